"""The outcome table: a data set of outcomes without expression."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from pertbase._html import shown
from pertbase._io import canonical_json, sha256_text
from pertbase.errors import InputError, unknown_name
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._cells import hash_frame
from pertbase.folds._perturbation import MECHANISMS, Perturbation, perturbation_table

__all__ = ["PERTURBQA_LINES", "OutcomeTable", "read_perturbqa"]

PERTURBQA_LINES = ("K562", "RPE1", "HepG2", "Jurkat")
"""The cell lines that PerturbQA ships tables for."""

_KEY = ("context", "perturbation", "gene")
_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeTable:
    """Outcomes of (context, perturbation, readout gene), from somebody else's analysis.

    Parameters
    ----------
    name
        The data set's name, part of every question's id.
    table
        One row a question, columns ``context``, ``perturbation``, ``gene``, ``outcome`` and, where the data set
        ships one, ``split`` (train, val or test). Rows are sorted and columns made categorical on creation.
    perturbations
        Every name in ``table["perturbation"]``, and what it means.
    simulated
        Whether the outcomes come out of a simulation.
    file
        Where it was read from.
    pooled
        Whether the split it ships is one over all contexts; otherwise each context ships its own.
    paths
        What it ships beside outcomes: ``context``, ``perturbation``, ``gene`` of every question, and
        ``candidate_paths``, ``conflict``, ``reference_paths``, ``reference_text`` as far as there are any. None where
        there are none. Rows are brought into the order of ``table``.

    Raises
    ------
    InputError
        For missing columns or values, unknown outcomes, splits or perturbations, and questions asked twice.
    """

    name: str
    table: pd.DataFrame
    perturbations: Mapping[str, Perturbation]
    simulated: bool = False
    file: str | None = None
    pooled: bool = False
    paths: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _checked(self.table, self.perturbations, self.file))
        if self.paths is not None:
            object.__setattr__(self, "paths", _beside(self.table, self.paths, self.file))

    @cached_property
    def contexts(self) -> tuple[str, ...]:
        """The contexts, sorted."""
        return tuple(self.table["context"].cat.categories)

    @cached_property
    def genes(self) -> pd.Index:
        """The readout genes, sorted."""
        return pd.Index(self.table["gene"].cat.categories.astype(object), name="gene")

    @property
    def has_split(self) -> bool:
        """Whether the data set ships a split."""
        return "split" in self.table.columns

    @cached_property
    def conditions(self) -> pd.DataFrame:
        """One row a condition, the columns of a screen's; ``n_cells`` is 0 as the cells are not known."""
        columns = ["context", "perturbation"]
        table = self.table[columns].drop_duplicates().astype(object).reset_index(drop=True)
        about = [self.perturbations[name] for name in table["perturbation"]]
        table["n_cells"] = 0
        table["modality"] = [item.modality for item in about]
        table["mechanism"] = [item.mechanism for item in about]
        table["targets"] = ["+".join(item.targets) for item in about]
        table["target_set"] = [item.split_key for item in about]
        table["n_parts"] = [len(item.parts) for item in about]
        return table.sort_values(columns, ignore_index=True)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of every row and what the perturbations mean; the order of rows does not matter."""
        digest = hashlib.sha256()
        for column in self.table.columns:
            levels = self.table[column].cat
            digest.update("\x1f".join([column, *levels.categories]).encode())
            digest.update(np.ascontiguousarray(levels.codes, dtype="<i4").tobytes())
        return sha256_text(
            canonical_json(
                {
                    "rows": digest.hexdigest(),
                    "perturbations": hash_frame(perturbation_table(self.perturbations)),
                    **({} if self.paths is None else {"paths": hash_frame(self.paths)}),
                }
            )
        )

    def counts(self) -> pd.DataFrame:
        """Return the number of questions of each outcome, one row a context (and split, where there is one)."""
        keys = ["context", "split"] if self.has_split else ["context"]
        sizes = self.table.groupby([*keys, "outcome"], observed=True).size()
        return sizes.unstack("outcome", fill_value=0).reindex(columns=list(OUTCOMES), fill_value=0)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        title = f"OutcomeTable {self.name!r}" + (" (simulated)" if self.simulated else "")
        counts = self.table["outcome"].value_counts()
        outcomes = ", ".join(f"{int(counts.get(item, 0)):,} {item}" for item in OUTCOMES)
        return (
            f"{title}: {len(self.table):,} questions ({outcomes}), {len(self.contexts)} contexts, "
            f"{len(self.perturbations):,} perturbations, {len(self.genes):,} readout genes"
            + ("" if self.has_split else ", no split")
        )

    def _repr_html_(self) -> str:
        return shown(repr(self), self.counts())


def _checked(table: pd.DataFrame, perturbations: Mapping[str, Perturbation], file: str | None) -> pd.DataFrame:
    """Return the table sorted, with sorted categories, after every check."""
    columns = [*_KEY, "outcome", *(["split"] if "split" in table.columns else [])]
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise InputError("an outcome table lacks columns", file=file, key="table", value=missing)
    if not len(table):
        raise InputError("an outcome table has no rows", file=file, key="table", value=0)
    made = pd.DataFrame({column: _categorical(table[column], column, file) for column in columns})
    for column, allowed in (("outcome", OUTCOMES), ("split", _SPLITS), ("perturbation", tuple(perturbations))):
        unknown = [] if column not in made else sorted(set(made[column].cat.categories) - set(allowed))
        if unknown:
            raise unknown_name(column, unknown[0], allowed if len(allowed) < 20 else (), file=file)
    made = made.sort_values(list(_KEY), kind="stable", ignore_index=True)
    twice = made.duplicated(list(_KEY))
    if twice.any():
        raise InputError(
            f"{int(twice.sum())} questions are asked more than once",
            file=file,
            key=", ".join(_KEY),
            value=tuple(made.loc[twice.idxmax(), list(_KEY)]),
            remedy="keep one row of each",
        )
    return made


def _beside(table: pd.DataFrame, paths: pd.DataFrame, file: str | None) -> pd.DataFrame:
    """Return the paths in the order of the questions."""
    key = list(_KEY)
    rows = pd.MultiIndex.from_frame(paths[key].astype(str)).get_indexer(
        pd.MultiIndex.from_frame(table[key].astype(str))
    )
    if (rows < 0).any():
        lost = tuple(table.loc[rows < 0, key].iloc[0])
        raise InputError("a question has no row of paths", file=file, key="paths", value=lost)
    return paths.iloc[rows].reset_index(drop=True)


def _categorical(column: pd.Series, name: str, file: str | None) -> pd.Categorical:
    made = column.array if isinstance(column.dtype, pd.CategoricalDtype) else pd.Categorical(column)
    levels = [str(item) for item in made.categories]
    if (made.codes < 0).any() or "" in levels:
        raise InputError("has empty values", file=file, key=name, value=None, remedy="fill or drop those rows")
    # Sorting by code is sorting by text, and equal tables have equal codes.
    made = made.rename_categories(pd.Index(levels, dtype=object)).remove_unused_categories()
    return made.reorder_categories(sorted(made.categories)).as_unordered()


def read_perturbqa(
    folder: str | Path, *, name: str = "perturbqa", lines: tuple[str, ...] = PERTURBQA_LINES, mechanism: str = "CRISPRi"
) -> OutcomeTable:
    """Read PerturbQA's tables and merge whether (``*-de.csv``) and where to (``*-dir.csv``) into outcomes.

    Parameters
    ----------
    folder
        Holds ``k562-de.csv``, ``k562-dir.csv`` and so on, columns pert, gene, label, split.
    name
        The data set's name.
    lines
        The cell lines to read; they become the contexts.
    mechanism
        Of every perturbation.

    Raises
    ------
    InputError
        Where a file is absent or lacks a column, a label is not 0 or 1, a differentially expressed row has no
        direction, or a perturbation lies in train and test.
    """
    if mechanism not in MECHANISMS:
        raise unknown_name("mechanism", mechanism, MECHANISMS)
    unknown = [line for line in lines if line not in PERTURBQA_LINES]
    if unknown or not lines:
        raise unknown_name("line", unknown[0] if unknown else "", PERTURBQA_LINES)
    tables = [_read_line(Path(folder), line) for line in lines]
    table = pd.DataFrame(
        {
            column: pd.api.types.union_categoricals([table[column] for table in tables])
            for column in ("context", "pert", "gene", "outcome", "split")
        }
    )
    meant = {gene: Perturbation.genetic([gene], mechanism) for gene in table["pert"].cat.categories}
    table["perturbation"] = table["pert"].cat.rename_categories({gene: item.name for gene, item in meant.items()})
    return OutcomeTable(
        name=name, table=table, perturbations={item.name: item for item in meant.values()}, file=str(folder)
    )


def _read_line(folder: Path, line: str) -> pd.DataFrame:
    """Return one line's rows with their outcomes."""
    de_file, dir_file = (folder / f"{line.lower()}-{kind}.csv" for kind in ("de", "dir"))
    called, turned = _read_labels(de_file), _read_labels(dir_file)
    genes = pd.Index(called["gene"].cat.categories)
    perturbations = pd.Index(called["pert"].cat.categories)

    def pair(table: pd.DataFrame) -> np.ndarray:
        """Return one number a (perturbation, gene), negative where the pair is not in the first table."""
        first = perturbations.get_indexer(table["pert"].cat.categories)[table["pert"].cat.codes]
        second = genes.get_indexer(table["gene"].cat.categories)[table["gene"].cat.codes]
        return np.where((first < 0) | (second < 0), -1, first.astype(np.int64) * len(genes) + second)

    pairs = pd.Index(pair(called))
    if not pairs.is_unique:
        raise _row_error("a pair is given twice", de_file, called, pairs.duplicated())
    at = pairs.get_indexer(pair(turned))
    if pd.Index(at[at >= 0]).has_duplicates:
        raise _row_error("a pair is given twice", dir_file, turned, pd.Series(at).duplicated().to_numpy() & (at >= 0))
    is_called = called["label"].to_numpy() == 1
    if ((at < 0) | ~is_called[at]).any():
        raise _row_error(
            f"a direction is given for a row that {de_file.name} does not call",
            dir_file,
            turned,
            (at < 0) | ~is_called[at],
        )
    direction = np.full(len(called), -1)
    direction[at] = turned["label"].to_numpy()
    if (is_called & (direction < 0)).any():
        raise _row_error(
            f"a called row has no direction in {dir_file.name}", de_file, called, is_called & (direction < 0)
        )
    split = called["split"].astype(str).to_numpy()
    moved = split[at] != turned["split"].astype(str).to_numpy()
    if moved.any():
        raise _row_error(f"a row lies in another split than in {de_file.name}", dir_file, turned, moved)
    both = set(called.loc[split == "train", "pert"]) & set(called.loc[split == "test", "pert"])
    if both:
        raise InputError("perturbations lie in train and test", file=de_file, key="pert", value=sorted(both)[:5])
    # no_change -1, down 0, up 1: as indices into the three names.
    outcome = pd.Categorical.from_codes(direction + 1, categories=["no_change", "down", "up"])
    return called.assign(context=pd.Categorical([line]).repeat(len(called)), outcome=outcome)


def _read_labels(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise InputError("there is no such file", file=path, remedy="PerturbQA ships LINE-de.csv and LINE-dir.csv")
    try:
        # A gene may be called NA: nothing is read as missing.
        table = pd.read_csv(
            path, dtype={"pert": "category", "gene": "category", "split": "category"}, keep_default_na=False
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a table ({error})", file=path) from error
    missing = [column for column in ("pert", "gene", "label", "split") if column not in table.columns]
    if missing:
        raise InputError("lacks columns", file=path, key=", ".join(missing), value=list(table.columns))
    wrong = ~table["label"].isin([0, 1])
    if wrong.any():
        raise _row_error("a label is not 0 or 1", path, table, wrong.to_numpy())
    return table


def _row_error(problem: str, path: Path, table: pd.DataFrame, rows: np.ndarray) -> InputError:
    row = int(np.flatnonzero(rows)[0])
    return InputError(
        f"{problem} ({int(rows.sum())} rows)",
        file=path,
        key=f"line {row + 2}",
        value=tuple(table.iloc[row].astype(str)),
        remedy="fetch the tables again; both files have to be of one release",
    )
