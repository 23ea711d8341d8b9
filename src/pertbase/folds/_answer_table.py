"""What a table of answers holds: known words, ids that do not repeat, three scores that sum to one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError, nearest

__all__ = [
    "ANSWER_COLUMNS",
    "NAMED_BY",
    "OUTCOMES",
    "SCORES",
    "STATUSES",
    "clean_answers",
    "outcome_codes",
    "refuse_repeated",
]

OUTCOMES = ("up", "down", "no_change")
SCORES = tuple(f"score_{outcome}" for outcome in OUTCOMES)
STATUSES = ("ok", "unsupported", "truncated", "empty", "refusal", "no_answer", "conflicting", "invalid")
NAMED_BY = ("context", "perturbation", "gene")
"""What names a question beside its id."""
ANSWER_COLUMNS = ("id", "outcome", "status", *SCORES)
_SUM_SLACK = 1e-3


def outcome_codes(outcomes: Any) -> np.ndarray:
    """Return 0 (up), 1 (down), 2 (no_change) or -1 (none) for each outcome, int8."""
    return np.asarray(pd.Categorical(outcomes, categories=list(OUTCOMES)).codes, dtype=np.int8)


def clean_answers(table: pd.DataFrame, file: str | None) -> pd.DataFrame:
    """Return the columns of answers, with the words and scores that are left out; see :class:`Answers`.

    Raises
    ------
    InputError
        Where the table breaks the contract; ``file`` is where it was read from.
    """
    for column in ("id", "outcome"):
        if column not in table.columns:
            raise InputError(
                "answers lack a column",
                file=file,
                key=column,
                value=list(table.columns),
                remedy=f"answers need outcome and id (or {', '.join(NAMED_BY)}), and may have "
                f"{', '.join(ANSWER_COLUMNS[2:])}; `pertbase folds questions` writes what is asked",
            )
    if (table["id"].isna() | (table["id"] == "")).any():
        raise InputError("an answer has no id", file=file, key="id", value=None, remedy="drop that row, or mend its id")
    ids = table["id"].astype(str)
    _plain_text(table, file)
    refuse_repeated(ids, "answers", file, remedy="give one answer a question")
    outcomes = _words(table["outcome"], OUTCOMES, "outcome", file)
    has = np.asarray(pd.notna(outcomes))
    own = np.where(has, "ok", "no_answer").astype(object)
    status = own
    if "status" in table.columns:
        given = _words(table["status"], STATUSES, "status", file)
        status = np.where(pd.isna(given), own, given)
    answered = (status == "ok") | (status == "unsupported")
    contradiction = answered != has
    if contradiction.any():
        row = int(np.flatnonzero(contradiction)[0])
        raise InputError(
            "status and outcome contradict each other",
            file=file,
            key="status",
            value=(ids.iloc[row], outcomes[row], status[row]),
            remedy="answers that are ok or unsupported have an outcome, all others have none",
        )
    scores = _scores(table, outcomes, file)
    return pd.DataFrame(
        {
            "id": ids.to_numpy(dtype=object),
            "outcome": outcomes,
            "status": status,
            **{name: scores[:, column] for column, name in enumerate(SCORES)},
        }
    )


def refuse_repeated(ids: pd.Series, what: str, file: str | None, *, remedy: str) -> None:
    """Raise where an id stands twice, with how many rows repeat one and the first of these."""
    repeated = ids.duplicated()
    if repeated.any():
        raise InputError(
            f"{int(repeated.sum())} {what} repeat an id",
            file=file,
            key="id",
            value=ids[repeated].iloc[0],
            remedy=remedy,
        )


def _words(column: pd.Series, known: tuple[str, ...], key: str, file: str | None) -> np.ndarray:
    """Return a column of known words, None where it is empty; the few distinct words are checked, not every row."""
    codes, found = pd.factorize(column.astype(object))
    for word in found:
        if word != "" and word not in known:
            close = nearest(str(word), known)
            raise InputError(
                f"unknown {key}",
                file=file,
                key=key,
                value=word,
                remedy=(f"did you mean {close!r}? " if close else "") + f"Use {', '.join(known)}, or leave it empty",
            )
    words = np.array([*(None if word == "" else word for word in found), None], dtype=object)
    return np.asarray(words[codes])


def _plain_text(table: pd.DataFrame, file: str | None) -> None:
    """Raise where an outcome or a status is a list or an object, as JSON may have it."""
    for column in ("outcome", "status"):
        if column not in table.columns or table[column].dtype != object:
            continue
        odd = table[column].map(lambda item: isinstance(item, (list, dict, np.ndarray)))
        if odd.any():
            raise InputError(
                f"an {column} is one word" if column == "outcome" else f"a {column} is one word",
                file=file,
                key=column,
                value=table.loc[odd, column].iloc[0],
                remedy=f"use {', '.join(OUTCOMES if column == 'outcome' else STATUSES)}",
            )


def _scores(table: pd.DataFrame, outcomes: np.ndarray, file: str | None) -> np.ndarray:
    given = [name for name in SCORES if name in table.columns]
    codes = outcome_codes(outcomes)
    if not given:
        by_outcome = np.full((len(table), 3), np.nan)
        by_outcome[codes >= 0] = np.eye(3)[codes[codes >= 0]]
        return by_outcome
    if len(given) < 3:
        raise InputError(
            "answers have some scores but not all three",
            file=file,
            key=", ".join(sorted(set(SCORES) - set(given))),
        )
    scores = np.column_stack([_numbers(table, name, file) for name in SCORES])
    some = ~np.isnan(scores).all(axis=1)
    with np.errstate(invalid="ignore"):
        bad = some & ~((scores >= 0).all(axis=1) & (np.abs(scores.sum(axis=1) - 1) <= _SUM_SLACK))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(
            "scores are not three non-negative numbers that sum to one",
            file=file,
            key="score_up, score_down, score_no_change",
            value=(str(table["id"].iloc[row]), *scores[row].tolist()),
            remedy="divide by their sum, or leave all three empty",
        )
    return scores


def _numbers(table: pd.DataFrame, column: str, file: str | None) -> np.ndarray:
    """Return a column of scores; what is no number is refused by its row's id."""
    values = table[column]
    if values.dtype == object:
        made = values.map(_number)
        bad = (made.isna() & values.notna()).to_numpy()
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise InputError(
                "a score is not a number",
                file=file,
                key=column,
                value=(str(table["id"].iloc[row]), values.iloc[row]),
                remedy="write three numbers that sum to one, or leave all three empty",
            )
        values = made
    numbers: np.ndarray = values.to_numpy(dtype=np.float64)
    return numbers


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
