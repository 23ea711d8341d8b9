"""Splits in the TOML of cell-load, which STATE is trained by: read as what a fold is asked to be, and written.

.. code-block:: toml

    [datasets]
    replogle = "/data/replogle"

    [training]
    replogle = "train"

    [zeroshot]
    "replogle.jurkat" = "test"

    [fewshot."replogle.rpe1"]
    val = ["AARS"]
    test = ["AAMP", "AAAS"]

Contexts under ``zeroshot`` are held out whole, perturbations under ``fewshot`` in their context, and everything else is
trained on. cell-load says nothing where a context, a perturbation or a key is not known, and then trains on it, nor
where there is no val, and then selects on test. Here all of that is an error.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._io import write_text
from pertbase.errors import InputError, unknown_name
from pertbase.folds._perturbation import Perturbation

if TYPE_CHECKING:
    from pertbase.folds._fold import Fold

__all__ = ["SplitFile", "read_split", "write_split"]

_SECTIONS = ("datasets", "training", "zeroshot", "fewshot")
_HELD_OUT = ("val", "test")


@dataclass(frozen=True)
class SplitFile:
    """What a split file holds out of one data set; the rest is trained on.

    Parameters
    ----------
    name
        The file's, without its suffix.
    contexts
        (context, split) of the contexts held out whole.
    conditions
        (context, perturbation, split) of the conditions held out in other contexts. Perturbations are spelt as in the
        file: by name (``CRISPRi:A``) or without their mechanism (``A``).
    """

    name: str
    contexts: tuple[tuple[str, str], ...]
    conditions: tuple[tuple[str, str, str], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "contexts", tuple(sorted((str(c), str(s)) for c, s in self.contexts)))
        held = sorted((str(context), str(name), str(split)) for context, name, split in self.conditions)
        object.__setattr__(self, "conditions", tuple(held))
        splits = {split for _, split in self.contexts} | {split for *_, split in self.conditions}
        for split in _HELD_OUT:
            if split not in splits:
                raise InputError(
                    f"the split {self.name!r} holds nothing out for {split}",
                    key=split,
                    value=sorted(splits),
                    remedy="name a context under zeroshot or perturbations under fewshot"
                    + (": without val, models would be selected on test" if split == "val" else ""),
                )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "contexts": [list(item) for item in self.contexts],
            "conditions": [list(item) for item in self.conditions],
        }

    @classmethod
    def of(cls, value: SplitFile | Mapping[str, Any] | str | Path) -> SplitFile:
        """Return the split that a path, or what :meth:`to_dict` returned, means."""
        if isinstance(value, SplitFile):
            return value
        if isinstance(value, (str, Path)):
            return read_split(value)
        if not isinstance(value, Mapping) or set(value) != {"name", "contexts", "conditions"}:
            raise InputError("is no split", key="fold.split", value=value, remedy="name a .toml file")
        return cls(str(value["name"]), tuple(value["contexts"]), tuple(value["conditions"]))

    def assign(
        self, conditions: pd.DataFrame, perturbations: Mapping[str, Perturbation]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return ``train``, ``val`` or ``test`` for each condition, and notes.

        Parameters
        ----------
        conditions
            ``context`` and ``perturbation``.
        perturbations
            Name -> perturbation, of the whole data set.

        Raises
        ------
        InputError
            Where the data set lacks a context or a perturbation, or a name means several.
        """
        context, name = (conditions[key].astype(str).to_numpy(dtype=object) for key in ("context", "perturbation"))
        split = np.full(len(conditions), "train", dtype=object)
        for held in [held for held, _ in self.contexts] + [held for held, *_ in self.conditions]:
            if held not in set(context):
                raise unknown_name("context of the split", held, set(context))
        for held, where in self.contexts:
            split[context == held] = where
        labels = _labels(perturbations)
        absent = 0
        for held, wanted, where in self.conditions:
            means = [wanted] if wanted in perturbations else labels.get(wanted, [])
            if not means:
                raise unknown_name("perturbation of the split", wanted, [*perturbations, *labels])
            found = np.isin(name, means) & (context == held)
            if found.sum() > 1:
                raise InputError(
                    f"means several perturbations of {held}",
                    key="fold.split",
                    value=wanted,
                    remedy=f"write one of {', '.join(sorted(set(name[found])))}",
                )
            absent += int(not found.any())
            split[found] = where
        notes = (f"{absent} conditions of the split have no questions here",) if absent else ()
        return split, notes


def _labels(perturbations: Mapping[str, Perturbation]) -> dict[str, list[str]]:
    """Return what a perturbation is called without its mechanism -> the names it may mean."""
    found: dict[str, list[str]] = {}
    for name, item in perturbations.items():
        found.setdefault("+".join(part.label for part in item.parts), []).append(name)
    return found


def read_split(path: str | Path) -> SplitFile:
    """Read a split file of cell-load's.

    Raises
    ------
    InputError
        Where the file is absent, is not TOML, has a key that cell-load would ignore, is of several data sets, or holds
        nothing out for val or test.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError as error:
        raise InputError("there is no such file", file=path, key="fold.split") from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as TOML ({error})", file=path) from error
    for key, section in found.items():
        if key not in _SECTIONS:
            raise unknown_name("section", key, _SECTIONS, file=path)
        if not isinstance(section, dict):
            raise InputError("is no section", file=path, key=key, value=section)
    training = found.get("training", {})
    for key, value in training.items():
        if value != "train":
            raise InputError("a data set is trained on", file=path, key=f"training.{key}", value=value)
    known = sorted({*found.get("datasets", {}), *training})
    if len(training) != 1 or known != sorted(training):
        raise InputError(
            "a fold is of one data set, which is named under training",
            file=path,
            key="training",
            value=known,
            remedy="give a split of one data set; contexts of several can be made one file",
        )
    (data,) = training
    contexts = [
        (_context(key, data, path, "zeroshot"), _split(value, path, key))
        for key, value in found.get("zeroshot", {}).items()
    ]
    conditions: list[tuple[str, str, str]] = []
    for key, section in found.get("fewshot", {}).items():
        context = _context(key, data, path, "fewshot")
        if context in dict(contexts):
            raise InputError("a context is held out whole and in part", file=path, key="fewshot", value=key)
        conditions += _few(section, path, key, context)
    return SplitFile(path.stem, tuple(contexts), tuple(conditions))


def _context(key: str, data: str, path: Path, section: str) -> str:
    if not key.startswith(f"{data}.") or key == f"{data}.":
        raise InputError(
            "names no context of the data set that is trained on",
            file=path,
            key=section,
            value=key,
            remedy=f'write "{data}.CONTEXT", in quotes',
        )
    return key.removeprefix(f"{data}.")


def _split(value: Any, path: Path, key: str) -> str:
    if isinstance(value, dict):
        raise InputError("is a table", file=path, key="zeroshot", value=key, remedy=f'write "{key}" in quotes')
    if value not in _HELD_OUT:
        raise InputError(
            "is held out for val or test",
            file=path,
            key=f"zeroshot.{key}",
            value=value,
            remedy="leave out what is trained on",
        )
    return str(value)


def _few(section: Any, path: Path, key: str, context: str) -> Iterable[tuple[str, str, str]]:
    if not isinstance(section, dict):
        raise InputError("holds lists of perturbations", file=path, key=f"fewshot.{key}", value=section)
    seen: dict[str, str] = {}
    for split, names in section.items():
        if split not in _HELD_OUT:
            raise InputError(
                "cell-load ignores it, and trains on all that is in neither val nor test",
                file=path,
                key=f"fewshot.{key}.{split}",
                value=names,
                remedy="list what is held out, under val and test",
            )
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError("is a list of perturbations", file=path, key=f"fewshot.{key}.{split}", value=names)
        for name in names:
            if name in seen:
                raise InputError("is listed twice", file=path, key=f"fewshot.{key}.{split}", value=name)
            seen[name] = split
    return [(context, name, split) for name, split in seen.items()]


# -- writing --------------------------------------------------------------------------------------------------


def write_split(fold: Fold, path: str | Path, *, data_folder: str | Path = ".") -> None:
    """Write a fold's split as cell-load reads it, so that others train on the same cells.

    Names are those of the screen's file (``pert_col=perturbation cell_type_key=context batch_col=batch
    control_pert=control``). cell-load cannot leave a condition out: what the fold uses for nothing is written under
    test, so that it is not trained on, and predictions of it are not asked about.

    Parameters
    ----------
    fold
        Of a screen.
    path
        A ``.toml`` file.
    data_folder
        Where cell-load finds the screen.
    """
    table = fold.conditions.assign(split=_held_out(fold))
    data = _quoted(fold.data)
    lines = ["[datasets]", f"{data} = {_quoted(str(data_folder))}", "", "[training]", f'{data} = "train"', ""]
    zero, few = ["[zeroshot]"], []
    for context, rows in table.groupby("context", sort=True, observed=True):
        key = _quoted(f"{fold.data}.{context}")
        splits = sorted(set(rows["split"]))
        if splits == ["train"]:
            continue
        if len(splits) == 1:
            zero.append(f'{key} = "{splits[0]}"')
            continue
        few.append(f"[fewshot.{key}]")
        for split in _HELD_OUT:
            names = sorted(rows.loc[rows["split"] == split, "perturbation"])
            few += [f"{split} = [", *(f"  {_quoted(name)}," for name in names), "]"] if names else []
        few.append("")
    write_text(path, "\n".join([*lines, *zero, "", *few]))


def _held_out(fold: Fold) -> np.ndarray:
    """Return the split of every condition, those that are used for nothing among test's or train's."""
    table = fold.conditions
    split: np.ndarray = table["split"].to_numpy(dtype=object).copy()
    held = table["split"].isin(_HELD_OUT)
    units = {unit for name in table.loc[held, "perturbation"] for unit in fold.perturbations[name].units}
    trained = set(table.loc[table["split"] == "train", "context"])
    for row in np.flatnonzero(~table["split"].isin(("train", *_HELD_OUT)).to_numpy()):
        context, name = table.loc[row, ["context", "perturbation"]]
        # Too few cells to be asked about are no reason not to train on them, unless they tell of what is asked.
        harmless = split[row] == "dropped" and context in trained and not units & set(fold.perturbations[name].units)
        split[row] = "train" if harmless else "test"
    return split


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
