"""Answers: an outcome, or none, for each question, with a status and three scores."""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pertbase._html import shown
from pertbase._io import read_jsonl, read_parquet, write_aside, write_jsonl
from pertbase.errors import InputError, nearest
from pertbase.folds._answer_table import (
    ANSWER_COLUMNS,
    NAMED_BY,
    OUTCOMES,
    SCORES,
    STATUSES,
    clean_answers,
    outcome_codes,
)
from pertbase.folds._reasons import REASON_COLUMNS, clean_reasons, inline_reasons, read_beside, write_beside

__all__ = ["ANSWER_COLUMNS", "OUTCOMES", "SCORES", "STATUSES", "Answers", "outcome_codes", "read_answers"]

_ROWS_SHOWN = 6
_ALMOST = 0.85


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """What a baseline answered.

    Parameters
    ----------
    table
        Columns ``id``, ``outcome`` (``up``, ``down``, ``no_change`` or None), ``status`` (one of
        :data:`STATUSES`; ``ok`` where the column is absent and there is an outcome, else ``no_answer``) and
        ``score_up``, ``score_down``, ``score_no_change`` (non-negative, sum 1, or all NaN; 1 and 0 by outcome
        where the columns are absent).
    reasons
        Columns ``id``, ``triplets`` (list of (head, relation, tail)) and ``text``, or None. Not every answer needs one.
    file
        Where they were read from, for messages.

    Raises
    ------
    InputError
        Where an id repeats, an outcome or status is unknown, scores are no distribution, or a reason is of no answer or
        no list of triplets.
    """

    table: pd.DataFrame
    reasons: pd.DataFrame | None = None
    file: str | None = None
    _checked: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        # Adapters answer the fold's own questions with words of ours: hashing every id again would cost more than
        # everything else they do.
        if not self._checked:
            object.__setattr__(self, "table", clean_answers(self.table, self.file))
            if self.reasons is not None:
                cleaned = clean_reasons(self.reasons, self.table["id"].to_numpy(dtype=object), self.file)
                object.__setattr__(self, "reasons", cleaned)

    def __len__(self) -> int:
        return len(self.table)

    def to(self, questions: pd.DataFrame, *, strict: bool = True) -> pd.DataFrame:
        """Return one row a question, in the questions' order; questions without an answer get ``no_answer``.

        Parameters
        ----------
        questions
            With an ``id`` column.
        strict
            Whether an answer to something else is an error. False to pick the answers to some of the questions.

        Raises
        ------
        InputError
            Where an answer's id is none of the questions'.
        """
        ids = questions["id"].to_numpy(dtype=object)
        rows = self.rows(ids)
        if strict and int((rows >= 0).sum()) < len(self.table):
            unknown = ~self.table["id"].isin(ids)
            raise InputError(
                f"{int(unknown.sum())} answers have ids that are not asked",
                file=self.file,
                key="id",
                value=self.table.loc[unknown, "id"].iloc[0],
                remedy="ids come from the fold's questions.parquet; answers to another fold cannot be scored here",
            )
        if len(self.table) == 0:
            absent: dict[str, Any] = {"outcome": None, "status": "no_answer", **dict.fromkeys(SCORES, np.nan)}
            return pd.DataFrame({"id": ids}).assign(**absent)
        aligned = self.table.take(rows).reset_index(drop=True)
        missing = rows < 0
        if missing.any():
            aligned.loc[missing, "outcome"] = None
            aligned.loc[missing, "status"] = "no_answer"
            aligned.loc[missing, list(SCORES)] = np.nan
        aligned["id"] = ids
        return aligned

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return the row of the answer to each question id, -1 where there is none."""
        own = self.table["id"].to_numpy(dtype=object)
        # Our own adapters answer in the order asked: comparing is far cheaper than hashing millions of ids.
        if len(own) == len(ids) and bool(np.all(own == ids)):
            return np.arange(len(ids))
        return np.asarray(pd.Index(own).get_indexer(ids))

    def write(self, path: str | Path) -> None:
        """Write as Parquet, JSONL or CSV, by the suffix.

        Reasons go into a JSONL's own lines, and beside a Parquet file ``NAME.parquet`` as ``NAME.reasons.parquet``.

        Raises
        ------
        InputError
            For another suffix, and for CSV where there are reasons, which it cannot hold.
        """
        path = Path(path)
        table = self.table
        if self.reasons is not None and path.suffix == ".jsonl":
            table = table.merge(self.reasons, on="id", how="left", validate="1:1")
        elif self.reasons is not None and path.suffix == ".csv":
            raise InputError("CSV does not hold reasons", file=path, remedy="write .jsonl or .parquet")
        elif path.suffix == ".parquet":
            write_beside(self.reasons, path)
        _write(table, path)

    @classmethod
    def read(cls, path: str | Path) -> Answers:
        """Read Parquet, JSONL, CSV or TSV; see :func:`read_answers`."""
        return read_answers(path)

    def __repr__(self) -> str:
        counts = self.table["outcome"].value_counts(dropna=False)
        told = ", ".join(f"{counts.get(outcome, 0):,} {outcome}" for outcome in OUTCOMES)
        none = int(self.table["outcome"].isna().sum())
        told += f", {none:,} without an outcome" if none else ""
        return f"Answers({len(self):,}: {told}{'' if self.reasons is None else f'; {len(self.reasons):,} reasons'})"

    def _repr_html_(self) -> str:
        more = f"the first {_ROWS_SHOWN} of {len(self):,}"
        return shown(
            repr(self), self.table.head(_ROWS_SHOWN), index=False, notes=[more] if len(self) > _ROWS_SHOWN else []
        )


def _write(table: pd.DataFrame, path: Path) -> None:
    with write_aside(path) as temporary:
        if path.suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        elif path.suffix == ".jsonl":
            write_jsonl(table, temporary)
        elif path.suffix == ".csv":
            table.to_csv(temporary, index=False, quoting=csv.QUOTE_NONNUMERIC)
        else:
            raise InputError("answers are written as .parquet, .jsonl or .csv", file=path, value=path.suffix)


def _with_ids(table: pd.DataFrame, questions: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return answers named by what they are about with the ids of the questions they answer."""
    names = list(NAMED_BY)
    asked = pd.MultiIndex.from_frame(questions[names].astype(str))
    rows = asked.get_indexer(pd.MultiIndex.from_frame(table[names].astype(str)))
    if (rows < 0).any():
        strange = table.loc[rows < 0, names].astype(str)
        raise InputError(
            f"{len(strange):,} answers are to questions that are not asked",
            file=path,
            key=", ".join(names),
            value=tuple(strange.iloc[0]),
            remedy=f"{_spelt(strange, questions)}`pertbase folds questions fold_dir=FOLDER output=FILE.csv` writes "
            "what is asked",
        )
    return table.assign(id=questions["id"].to_numpy(dtype=object)[rows])


def _spelt(strange: pd.DataFrame, questions: pd.DataFrame) -> str:
    """Return how the fold spells what the first of some strange answers names, where one of its names is strange.

    Others' tables name targets alone; a perturbation of a fold says by which mechanism (``CRISPRi:A``), and for a
    compound at which dose.
    """
    first = strange.iloc[0]
    told = []
    for column in NAMED_BY:
        known = questions[column].astype(str).unique()
        if first[column] in known:
            continue
        same = {_bare(name): name for name in known}.get(_bare(first[column]))
        if same is not None:
            told.append(f"the fold writes {column} as {same!r}, not {first[column]!r}; ")
        elif len(known):
            example = nearest(first[column], known) or known[0]
            told.append(f"the fold has no {column} {first[column]!r}, and writes for example {example!r}; ")
    return "".join(told)


def _bare(name: str) -> str:
    """Return a perturbation's name without mechanisms: ``A+B`` for ``CRISPRi:A+CRISPRi:B``, in lower case."""
    return "+".join(part.rpartition(":")[2] for part in name.split("+")).lower()


def _refuse_torn(table: pd.DataFrame, questions: pd.DataFrame, path: Path) -> None:
    """Raise where an id is of another question than the context, perturbation and gene of its row."""
    names = list(NAMED_BY)
    rows = pd.Index(questions["id"]).get_indexer(table["id"].astype(str))
    known = np.flatnonzero(rows >= 0)
    meant = questions[names].astype(str).to_numpy()[rows[known]]
    torn = known[(meant != table[names].astype(str).to_numpy()[known]).any(axis=1)]
    if len(torn):
        row = table.iloc[torn[0]]
        asked = ", ".join(questions.loc[rows[torn[0]], names].astype(str))
        raise InputError(
            f"{len(torn):,} answers have the id of another question than their context, perturbation and gene name",
            file=path,
            key="id",
            value=(row["id"], *row[names]),
            remedy=f"that id asks about {asked}: a part of the table was sorted or joined. Drop the three columns if "
            "ids are right, and the ids if those are",
        )


def _refuse_misspelled(table: pd.DataFrame, path: Path) -> None:
    """Raise where a column is all but called like an optional one that is absent: it would be passed over."""
    absent = [name for name in (*ANSWER_COLUMNS[2:], *REASON_COLUMNS[1:]) if name not in table.columns]
    for column in table.columns:
        meant = difflib.get_close_matches(str(column).strip().lower(), absent, n=1, cutoff=_ALMOST)
        if meant and column not in (*ANSWER_COLUMNS, *REASON_COLUMNS):
            raise InputError(
                "is no column of answers",
                file=path,
                key=str(column),
                remedy=f"did you mean {meant[0]!r}? Otherwise give it a name less like that one",
            )


def read_answers(path: str | Path, *, questions: pd.DataFrame | None = None) -> Answers:
    """Read answers from Parquet, JSONL, CSV or TSV (both with or without a byte-order mark).

    Parameters
    ----------
    path
        The file.
    questions
        Where given, a file without ids may name its questions by context, perturbation and gene, and in one that has
        both, both have to mean the same.

    Raises
    ------
    InputError
        Where the file is absent, broken or breaks the contract; a broken JSONL line is named by its number.

    Notes
    -----
    Reasons are the fields ``triplets`` and ``text`` of JSONL records, or lie beside a Parquet file: in
    ``NAME.reasons.parquet``, else in ``reasons.parquet``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    try:
        if path.suffix == ".parquet":
            table = read_parquet(path)
        elif path.suffix == ".jsonl":
            table = read_jsonl(path)
        elif path.suffix in (".csv", ".tsv"):
            table = pd.read_csv(
                path,
                sep="\t" if path.suffix == ".tsv" else ",",
                encoding="utf-8-sig",
                dtype={"id": str, "outcome": str, "status": str},
                keep_default_na=False,
                na_values={name: ["", "NaN", "nan"] for name in SCORES},
                # Without it, a score comes back as its neighbour.
                float_precision="round_trip",
            )
        else:
            raise InputError("answers are .parquet, .jsonl, .csv or .tsv", file=path, value=path.suffix)
    except (
        OSError,
        UnicodeDecodeError,
        pd.errors.ParserError,
        pd.errors.EmptyDataError,
        ValueError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot be read ({str(error).splitlines()[0]})", file=path) from error
    if questions is not None and "id" not in table.columns and set(NAMED_BY) <= set(table.columns):
        table = _with_ids(table, questions, path)
    elif questions is not None and {"id", *NAMED_BY} <= set(table.columns):
        _refuse_torn(table, questions, path)
    _refuse_misspelled(table, path)
    if "id" not in table.columns:
        return Answers(table, file=str(path))
    answers = Answers(table, inline_reasons(table, path), file=str(path))
    if path.suffix != ".parquet" or answers.reasons is not None:
        return answers
    beside = read_beside(path, answers.table["id"].to_numpy(dtype=object))
    return replace(answers, reasons=beside, _checked=True)
