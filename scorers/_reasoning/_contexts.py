"""Whether reasons change with the context as their references do.

Outcomes of one (perturbation, readout gene) in two contexts differ mostly because one of them had the cells to call it.
So answers are compared on pairs whose *effects* differ by a test, and reasons beside the references of the same pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pertbase._intervals import Interval
from pertbase._mean_intervals import mean_interval
from pertbase.knowledge._triplet_sets import Integers, TripletSets, contained

__all__ = ["ContextSensitivity", "context_sensitivity", "correlation", "jaccard_distance", "pairs_of_contexts"]

Floats = NDArray[np.float64]

_MOST_PAIRS = 1_000_000
DIFFERS = 1.96
"""Standard errors between two effects."""


@dataclass(frozen=True)
class ContextSensitivity:
    """How reasons and answers for one (perturbation, readout gene) differ between two contexts.

    Parameters
    ----------
    n_pairs
        Pairs of contexts in which both questions are up or down and have a reference.
    claimed_distance, reference_distance
        Mean Jaccard distance of the claimed triplets of a pair, and of its references; 0: the same in both contexts.
    correlation
        Pearson's, of the two over pairs; NaN where either does not vary.
    drop
        F1 with a question's own reference less F1 with that of another context.
    n_discordant
        Pairs with different outcomes whose effects differ by more than 1.96 standard errors; without p-values, pairs of
        which one is up and one is down.
    flipped, both_right
        Share of the discordant pairs with different answers, and with two right ones.
    n_untested
        Pairs with different outcomes that the test does not tell apart.
    note
        What was left out; empty otherwise.
    """

    n_pairs: int
    claimed_distance: Interval
    reference_distance: Interval
    correlation: float
    drop: Interval
    n_discordant: int
    flipped: Interval
    both_right: Interval
    n_untested: int
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, text and numbers."""
        return asdict(self)


def pairs_of_contexts(group: Integers, context: Integers) -> tuple[Integers, Integers, bool]:
    """Return both rows of every pair of contexts of each group, and whether all pairs are among them.

    Above a million, each context is paired with fewer and fewer of the following ones, but always with the next.
    """
    order = np.lexsort((context, group))
    first: list[Integers] = []
    second: list[Integers] = []
    total = 0
    for lag in range(1, len(order)):
        same = group[order][lag:] == group[order][:-lag]
        if not same.any():
            break
        if total and total + int(same.sum()) > _MOST_PAIRS:
            return np.concatenate(first), np.concatenate(second), False
        first.append(order[:-lag][same])
        second.append(order[lag:][same])
        total += int(same.sum())
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *first]), np.concatenate([nothing, *second]), True


def jaccard_distance(sets: TripletSets, first: Integers, second: Integers) -> Floats:
    """Return 1 - |A & B| / |A | B| of the signed triplets of pairs of questions; 0 for two empty sets."""
    one, two = sets.at(first), sets.at(second)
    shared = np.bincount(one.record[contained(one.signed, two.signed)], minlength=len(first))
    whole = one.sizes + two.sizes - shared
    return np.asarray(np.where(whole > 0, 1 - shared / np.maximum(whole, 1), 0.0))


def correlation(claimed: Floats, referred: Floats) -> float:
    """Return Pearson's correlation, NaN where either does not vary."""
    varied = len(claimed) > 1 and claimed.std() > 0 and referred.std() > 0
    return float(np.corrcoef(claimed, referred)[0, 1]) if varied else float("nan")


def _effects_differ(questions: pd.DataFrame, first: Integers, second: Integers) -> NDArray[np.bool_] | None:
    """Return which pairs' effects differ, by the standard errors that effects and p-values imply; None without any."""
    from scipy.special import ndtri

    if not {"effect", "p_value"} <= set(questions.columns):
        return None
    effect, p_value = (questions[name].to_numpy(dtype=np.float64) for name in ("effect", "p_value"))
    if np.isnan(effect).all() or np.isnan(p_value).all():
        return None
    # A p-value of zero is below the smallest double, and one of 1 says nothing of the standard error.
    score = -ndtri(np.clip(p_value, np.finfo(float).tiny, 1.0) / 2)
    error = np.divide(np.abs(effect), score, out=np.full(len(effect), np.nan), where=(score > 0) & (effect != 0))
    gap = np.abs(effect[first] - effect[second])
    return np.asarray(gap > DIFFERS * np.hypot(error[first], error[second]))


def context_sensitivity(
    questions: pd.DataFrame,
    codes: Mapping[str, Integers],
    claims: TripletSets,
    references: TripletSets,
    drop: Floats,
    *,
    level: float,
) -> ContextSensitivity | None:
    """Return how sensitive reasons are to the context, or None where no question is asked in two contexts.

    Parameters
    ----------
    questions
        The headline questions.
    codes
        ``group`` (perturbation and readout gene), ``context``, ``sets``, ``genes``, ``true`` and ``answered`` of each.
    claims, references
        Of each.
    drop
        F1 less F1 with the reference of another context; NaN where that does not exist.
    level
        Of intervals.
    """
    first, second, whole = pairs_of_contexts(codes["group"], codes["context"])
    if not len(first):
        return None

    def over(values: Floats, rows: Integers) -> Interval:
        return mean_interval(values, codes["sets"][rows], codes["genes"][rows], level=level)

    true = codes["true"]
    called = (true[first] < 2) & (true[second] < 2)
    called &= (references.sizes[first] > 0) & (references.sizes[second] > 0)
    a, b = first[called], second[called]
    claimed, referred = jaccard_distance(claims, a, b), jaccard_distance(references, a, b)
    unlike = true[first] != true[second]
    tested = _effects_differ(questions, first, second)
    opposite = unlike & (true[first] < 2) & (true[second] < 2)
    discordant = opposite if tested is None else unlike & tested
    c, d = first[discordant], second[discordant]
    answered = codes["answered"]
    right = (answered[c] == true[c]) & (answered[d] == true[d])
    return ContextSensitivity(
        n_pairs=len(a),
        claimed_distance=over(claimed, a),
        reference_distance=over(referred, a),
        correlation=correlation(claimed, referred),
        drop=mean_interval(drop, codes["sets"], codes["genes"], level=level, scale="linear"),
        n_discordant=len(c),
        flipped=over((answered[c] != answered[d]).astype(np.float64), c),
        both_right=over(right.astype(np.float64), c),
        n_untested=int((unlike & ~discordant).sum()),
        note="" if whole else f"of more than {_MOST_PAIRS:,} pairs, those of contexts next to each other",
    )
