"""A small part of a fold's questions that stands for all of them: seeded, and stratified."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import InputError

__all__ = ["mini", "mini_of", "some_of_each"]

_STRATA = ("split", "context", "outcome", "regime")


def mini(questions: pd.DataFrame, n: int, *, seed: int = 0) -> pd.DataFrame:
    """Return ``n`` questions, each stratum in its share, in the order they had.

    Strata are split, context, outcome and regime. Shares are rounded so that the largest remainders are rounded up, and
    no stratum is left out while ``n`` allows one of each. Within a stratum, questions are drawn by their ids and the
    seed: whoever has the fold draws the same, with paths laid over it or without.

    Parameters
    ----------
    questions
        Of a fold, with ``id``.
    n
        How many; all where there are no more.
    seed
        Draws them.

    Raises
    ------
    InputError
        Where ``n`` is not positive.
    """
    if n < 1:
        raise InputError("is a positive number of questions", key="mini", value=n)
    if n >= len(questions):
        return questions
    columns = [name for name in _STRATA if name in questions.columns]
    keys = pd.MultiIndex.from_frame(questions[columns].astype(object).where(questions[columns].notna(), "").astype(str))
    codes, strata = pd.factorize(keys, sort=True)
    wanted = _shares(np.bincount(codes, minlength=len(strata)), n)
    # By id, not by row: the draw is the same for whatever order the questions come in.
    by_id = np.argsort(questions["id"].to_numpy(dtype=str), kind="stable")
    lot = np.empty(len(questions))
    lot[by_id] = generator(seed, "mini").random(len(questions))
    order = np.lexsort((lot, codes))
    first = np.searchsorted(codes[order], np.arange(len(strata)))
    place = np.arange(len(order)) - first[codes[order]]
    kept = np.sort(order[place < wanted[codes[order]]])
    return questions.iloc[kept].reset_index(drop=True)


def mini_of(questions: pd.DataFrame, n: str | None) -> pd.DataFrame:
    """Return as many questions as the option ``mini`` says, all where it is not given.

    Raises
    ------
    InputError
        Where it is no number.
    """
    if n is None:
        return questions
    if not n.isdigit() or not int(n):
        raise InputError("is a positive number of questions", key="mini", value=n, remedy="write for example mini=300")
    return mini(questions, int(n))


def some_of_each(questions: pd.DataFrame, n: int | None, *, seed: int = 0) -> pd.DataFrame:
    """Return all questions of train, and of val and test ``n`` of each outcome; all where ``n`` is None.

    Drawn by their ids and the seed, in the order they had; fewer where there are fewer, and no ambiguous ones.
    """
    if n is None:
        return questions
    by_id = np.argsort(questions["id"].to_numpy(dtype=str), kind="stable")
    lot = np.empty(len(questions))
    lot[by_id] = generator(seed, "per outcome").random(len(questions))
    place = pd.Series(lot).groupby([questions["split"].to_numpy(), questions["outcome"].to_numpy()]).rank()
    keep = (questions["split"] == "train").to_numpy() | (place.to_numpy() <= n)
    return questions.loc[keep].reset_index(drop=True)


def _shares(sizes: np.ndarray, n: int) -> np.ndarray:
    """Return how many of each stratum: largest remainders, one of each at least while ``n`` allows it."""
    if n < len(sizes):
        wanted = np.zeros(len(sizes), dtype=np.int64)
        wanted[np.argsort(-sizes, kind="stable")[:n]] = 1
        return wanted
    exact = sizes / sizes.sum() * n
    wanted = np.maximum(1, np.floor(exact).astype(np.int64))
    while wanted.sum() > n:
        over = np.where(wanted > 1, wanted - exact, -np.inf)
        wanted[int(np.argmax(over))] -= 1
    remainder = np.where(wanted < sizes, exact - wanted, -np.inf)
    wanted[np.argsort(-remainder, kind="stable")[: n - int(wanted.sum())]] += 1
    return np.asarray(wanted)
