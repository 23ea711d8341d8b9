"""Counting outcomes, averaging measured effects, and writing answers: what several simple baselines share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd

from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import OUTCOMES, SCORES, Answers, Effects, Inputs, Training, outcome_counts

__all__ = ["Measured", "Shares", "answers", "fitted", "measured", "predicted"]

T = TypeVar("T")

_NO_CHANGE = OUTCOMES.index("no_change")


def fitted(value: T | None, owner: object) -> T:
    """Return what ``fit`` left behind, or say that it was not called."""
    if value is None:
        raise InputError(f"this {type(owner).__name__} is not fitted", remedy="call fit(training) first")
    return value


@dataclass(frozen=True, eq=False)
class Shares:
    """How often each outcome was seen under each key.

    Parameters
    ----------
    keys
        Unique keys.
    counts
        Shape (n_keys, 3), in the order of :data:`~pertbase.folds.OUTCOMES`.
    total
        Counts over all questions, shape (3,), keys or not.
    """

    keys: pd.Index
    counts: np.ndarray
    total: np.ndarray

    @classmethod
    def of(cls, questions: pd.DataFrame, key: str) -> Shares:
        """Count the outcomes of questions that have one, under each value of a column."""
        table = outcome_counts(questions, key)
        counts = table.to_numpy(dtype=np.float64)
        return cls(table.index, counts, counts.sum(axis=0))

    def at(self, keys: pd.Series) -> np.ndarray:
        """Return the counts under each key, shape (n, 3); zeros where a key was never seen."""
        rows = self.keys.get_indexer(pd.Index(keys.astype(object)))
        return np.asarray(np.vstack([self.counts, np.zeros(len(OUTCOMES))])[rows])

    @property
    def frequency(self) -> np.ndarray:
        """The share of each outcome over all questions, shape (3,)."""
        return np.asarray(self.total / max(self.total.sum(), 1.0))


def answers(
    questions: pd.DataFrame, codes: np.ndarray, scores: np.ndarray, *, supported: np.ndarray | None = None
) -> Answers:
    """Return answers from outcome codes and scores; unsupported ones say ``no_change`` with the scores (0, 0, 1)."""
    supported = np.ones(len(questions), dtype=bool) if supported is None else supported
    scores = np.where(supported[:, None], scores, np.eye(len(OUTCOMES))[_NO_CHANGE])
    table = pd.DataFrame(
        {
            "id": questions["id"].to_numpy(),
            "outcome": np.array(OUTCOMES, dtype=object)[np.where(supported, codes, _NO_CHANGE)],
            "status": np.where(supported, "ok", "unsupported").astype(object),
        }
    )
    return Answers(table.assign(**{name: scores[:, column] for column, name in enumerate(SCORES)}))


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured training effects, their conditions in the same order.

    Parameters
    ----------
    conditions
        As in :class:`~pertbase.folds.Training`.
    values
        Effects, shape (n_conditions, n_genes).
    genes
        The columns of ``values``.
    """

    conditions: pd.DataFrame
    values: np.ndarray
    genes: pd.Index

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """Return the unweighted mean of some rows, given by position or mask, shape (n_genes,)."""
        return np.asarray(self.values[rows].mean(axis=0))

    def means_by_context(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the unweighted mean of the masked conditions of each context."""
        context = self.conditions["context"].to_numpy()
        return {str(name): self.mean(rows & (context == name)) for name in pd.unique(context[rows])}


def measured(training: Training, owner: object) -> Measured:
    """Return the effects of the training conditions.

    Raises
    ------
    UnsupportedError
        Where the data set is an outcome table, or no condition is left to learn from.
    """
    if training.effects is None:
        raise UnsupportedError(f"{type(owner).__name__} needs expression, and {training.data} is a table of outcomes")
    if len(training.conditions) == 0:
        raise UnsupportedError(f"{training.fold} has no condition to fit {type(owner).__name__} on")
    effects = training.effects.select(training.conditions)
    return Measured(training.conditions.reset_index(drop=True), effects.values, effects.genes)


def predicted(inputs: Inputs, genes: pd.Index, rows: list[np.ndarray | None]) -> Effects:
    """Return effects from one row a condition; None where the baseline cannot speak to it."""
    supported = np.array([row is not None for row in rows], dtype=bool)
    values = np.zeros((len(rows), len(genes)))
    for number, row in enumerate(rows):
        if row is not None:
            values[number] = row
    status = np.where(supported, "ok", "unsupported").astype(object)
    return Effects(values, inputs.conditions, genes, inputs.statistic, status, inputs.basal)
