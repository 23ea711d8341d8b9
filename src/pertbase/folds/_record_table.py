"""Question-answer records as a data set: from files, or from the Hugging Face hub."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, PertbaseError, unknown_name
from pertbase.folds._data import find_data
from pertbase.folds._outcome_table import OutcomeTable
from pertbase.folds._perturbation import Perturbation
from pertbase.folds._prepare._targets import read_targets
from pertbase.folds._records import FieldMap, Records, read_records
from pertbase.folds._shipped_paths import shipped_paths

__all__ = ["load_records"]

_LOGGER = logging.getLogger("pertbase")
_SPLITS = ("train", "val", "test")
_KEY = ["context", "perturbation", "gene"]


def load_records(
    *,
    fields: Mapping[str, Any],
    files: Mapping[str, str | Sequence[str] | None],
    name: str = "records",
    path: str | Path | None = None,
    repository: str | None = None,
    revision: str | None = None,
    fold: str | None = None,
    mechanism: str | None = None,
    separator: str | None = "+",
    outcomes: Mapping[str, Sequence[str]] | None = None,
    targets: Mapping[str, Mapping[str, int]] | str | None = None,
    source: str = "",
    licence: str = "",
) -> OutcomeTable:
    """Return the outcomes of one shipped test fold, with the train and val records that all of them share.

    Parameters
    ----------
    fields
        Where a record says what; see :class:`FieldMap`.
    files
        Split -> pattern of its files under the folder, such as ``{train: "train/*.jsonl", test: "test/*.jsonl"}``.
        Without val, or with null for it, val is carved out of train. Where records name their own split
        (``fields.split``), ``{all: PATTERN}``.
    name
        The data set's name; the fold's is added.
    path
        A folder or one file, found by :func:`find_data`; where not given, ``repository`` is fetched.
    repository
        A data set on the Hugging Face hub.
    revision
        The repository's branch, tag or commit.
    fold
        Which test fold, by the name of its file, or what ``fields.fold`` names.
    mechanism, separator, outcomes, targets
        See :func:`read_records`; ``targets`` may also be a csv or tsv file.
    source
        Where the records come from, for the message where ``path`` is absent.
    licence
        On what terms the records come, for the same message.

    Raises
    ------
    InputError
        Where a pattern fits no file, the fold is not there or not named, a question has two outcomes, or a condition
        lies in two splits.
    PertbaseError
        Where the repository cannot be fetched.
    """
    patterns, keys = _patterns(files), FieldMap.of(fields)
    if path is not None:
        folder = find_data(path, source=source, licence=licence)
    elif repository is not None:
        folder = Path(_fetch(repository, revision, patterns))
    else:
        raise InputError("has to be given", key="path", value=None, remedy="say path=FOLDER or repository=OWNER/NAME")
    signs = None if targets is None else read_targets(targets)
    read = partial(
        read_records, field_map=keys, mechanism=mechanism, separator=separator, outcomes=outcomes, targets=signs
    )
    table, perturbations = _read(folder, patterns, keys, read)
    tests = sorted(set(table.loc[table["split"] == "test", "test_fold"]))
    chosen = _choose(fold, tests, folder)
    kept = table.loc[(table["split"] != "test") | (table["test_fold"] == chosen)].reset_index(drop=True)
    checked = _checked(kept, folder)
    names = set(checked["perturbation"])
    return OutcomeTable(
        name=name if fold is None else f"{name}_{fold}",
        table=checked.reset_index(drop=True),
        # Of records that ask the same, the first one's.
        paths=shipped_paths(kept.loc[checked.index], perturbations, folder),
        perturbations={key: item for key, item in perturbations.items() if key in names},
        file=str(folder),
        pooled=True,
    )


def _read(
    folder: Path, patterns: Mapping[str, Sequence[str]], keys: FieldMap, read: Callable[[Path], Records]
) -> tuple[pd.DataFrame, dict[str, Perturbation]]:
    """Return all records with their ``split`` and the ``test_fold`` they are of, and what their perturbations mean."""
    tables: list[pd.DataFrame] = []
    perturbations: dict[str, Perturbation] = {}
    found = {split: _find(folder, split, wanted) for split, wanted in patterns.items()}
    for split, paths in found.items():
        for path in paths:
            records = read(path)
            table = _by_field(records.table, keys, folder) if split == "all" else records.table.assign(split=split)
            tables.append(table.assign(test_fold=table["fold"] if "fold" in table else _name_of(path, paths, folder)))
            for key, item in records.perturbations.items():
                if perturbations.setdefault(key, item) != item:
                    raise InputError(
                        "records name different targets for one perturbation",
                        file=path,
                        key=key,
                        value=(perturbations[key].signs, item.signs),
                        remedy="mend them, or give targets={compound: {GENE: sign}}",
                    )
    return pd.concat(tables, ignore_index=True), perturbations


def _patterns(files: Mapping[str, str | Sequence[str] | None]) -> dict[str, list[str]]:
    allowed = ("all", *_SPLITS)
    for split in files:
        if split not in allowed:
            raise unknown_name("split of files", str(split), allowed)
    given = {split: [wanted] if isinstance(wanted, str) else list(wanted) for split, wanted in files.items() if wanted}
    if set(given) != {"all"} and not {"train", "test"} <= set(given):
        raise InputError(
            "says neither where train and test lie, nor where all does",
            key="files",
            value=dict(files),
            remedy="write files={train: PATTERN, val: PATTERN, test: PATTERN} or files={all: PATTERN}",
        )
    return given


def _fetch(repository: str, revision: str | None, patterns: Mapping[str, Sequence[str]]) -> str:
    """Return the folder of a data set of the hub, as it lies in the hub's own cache."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise PertbaseError(
            f"{repository} is fetched by huggingface_hub ({error})",
            key="repository",
            remedy="run pip install 'pertbase[hub]', or fetch it yourself and say path=FOLDER",
        ) from error
    try:
        folder = snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=["README*", "LICENSE*", *(item for wanted in patterns.values() for item in wanted)],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise PertbaseError(
            f"https://huggingface.co/datasets/{repository} could not be fetched ({str(error).splitlines()[0]})",
            key="repository",
            value=repository,
            remedy="check the name, the connection and, where it is gated, your login (`hf auth login`); or fetch it "
            "elsewhere and say path=FOLDER",
        ) from error
    # The snapshot's folder is named by the commit: this is what was read, whatever the branch says tomorrow.
    _LOGGER.info("%s: commit %s, on the terms of its README", repository, Path(folder).name)
    return str(folder)


def _find(folder: Path, split: str, patterns: Sequence[str]) -> list[Path]:
    if folder.is_file():
        if split != "all":
            raise InputError(
                "is one file, and files= names several",
                file=folder,
                key="path",
                value=split,
                remedy="say files={all: '*'} and fields.split=KEY",
            )
        return [folder]
    found = sorted({item for pattern in patterns for item in folder.glob(pattern) if item.is_file()})
    if not found:
        there = sorted(str(item.relative_to(folder)) for item in folder.rglob("*.json*") if item.is_file())
        raise InputError(
            f"holds no file for {split}",
            file=folder,
            key=f"files.{split}",
            value=list(patterns),
            remedy=f"say files.{split}=PATTERN; it holds {', '.join(there[:20]) or 'no JSON at all'}",
        )
    return found


def _name_of(path: Path, among: Sequence[Path], folder: Path) -> str:
    """Return a file's name without its ending; with its folders where several have the same."""
    if [item.stem for item in among].count(path.stem) == 1:
        return path.stem
    return "-".join(path.relative_to(folder).with_suffix("").parts)


def _by_field(table: pd.DataFrame, keys: FieldMap, folder: Path) -> pd.DataFrame:
    if keys.split is None:
        raise InputError(
            "does not say which split a record is of",
            file=folder,
            key="fields.split",
            value=None,
            remedy="say fields.split=KEY, or files={train: PATTERN, test: PATTERN}",
        )
    spelled = table["split"].str.strip().str.lower().replace({"validation": "val", "valid": "val", "dev": "val"})
    unknown = sorted(set(spelled) - set(_SPLITS))
    if unknown:
        raise unknown_name("split", unknown[0], _SPLITS, file=folder)
    return table.assign(split=spelled)


def _choose(fold: str | None, tests: Sequence[str], folder: Path) -> str:
    if fold is not None and fold not in tests:
        raise unknown_name("fold", fold, tests, file=folder)
    if fold is None and len(tests) > 1:
        raise InputError(
            f"ships {len(tests)} test folds",
            file=folder,
            key="fold",
            value=None,
            remedy=f"name one: {', '.join(tests)}",
        )
    if not tests:
        raise InputError("holds no test record", file=folder, key="split", value=None, remedy="check fields.split")
    return fold or tests[0]


def _checked(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return one row a question, once no condition lies in two splits; the index is the table's."""
    splits = table.groupby(["context", "perturbation"])["split"].agg(lambda found: tuple(sorted(set(found))))
    torn = splits.loc[splits.map(len) > 1]
    if len(torn):
        raise InputError(
            f"{len(torn)} conditions lie in two splits",
            file=folder,
            key=" and ".join(torn.iloc[0]),
            value=torn.index[0],
            remedy="say files.val=null, so that val is carved out of train by perturbation"
            if set().union(*torn) == {"train", "val"}
            else "a condition that is asked about cannot be trained on: check fields and files, such as fields.dose",
        )
    once = table[[*_KEY, "outcome", "split"]].drop_duplicates()
    twice = once.duplicated(_KEY)
    if twice.any():
        raise InputError(
            f"{int(twice.sum())} questions have two outcomes",
            file=folder,
            key=", ".join(_KEY),
            value=tuple(once.loc[twice.idxmax(), _KEY]),
            remedy="check fields: something that tells them apart, such as fields.dose, may be left out",
        )
    if len(once) < len(table):
        _LOGGER.info("%s: %d records ask what another asks, with the same outcome", folder, len(table) - len(once))
    return once
