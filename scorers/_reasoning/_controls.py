"""Reasons that know nothing: rows that stand beside every reasoning number, to show what it can be had for.

Each stands for an answer with the true outcome, so that all it gains comes from its reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pertbase.knowledge._overlap import overlap
from pertbase.knowledge._triplet_sets import Integers, PathSets, TripletSets
from pertbase.scorers._reasoning._axes import ReasonPreset, judge
from pertbase.scorers._reasoning._contexts import correlation, jaccard_distance, pairs_of_contexts
from pertbase.scorers._reasoning._nulls import partners
from pertbase.scorers._reasoning._records import Case

__all__ = ["CONTROLS", "control_axes", "control_claims"]

Floats = NDArray[np.float64]

CONTROLS = {
    "reference": "all reference paths: what a right reason scores",
    "copied": "every given path, copied",
    "both_signs": "every given edge, with both signs",
    "all_activates": "every given edge, all as activates",
    "random_path": "one given path, drawn",
    "reachable": "the shortest given path, without signs",
    "invented": "one invented edge from what is perturbed to the readout gene, with the sign of the answer",
    "empty": "no reason",
}
"""Control answers, and what each is."""


def control_claims(case: Case, true: Integers, rng: np.random.Generator) -> dict[str, TripletSets]:
    """Return the reasons of each control; those made of given paths are left out where none were given.

    Parameters
    ----------
    case
        The questions.
    true
        Outcome codes, the true ones, which the controls answer.
    rng
        Draws the random paths.
    """
    references = case.references.union
    n, n_nodes = references.n, references.n_nodes
    nothing = np.zeros(0, dtype=np.int64)
    found = {
        "reference": references,
        "invented": _invented(case, true),
        "empty": TripletSets(n, n_nodes, nothing, nothing, nothing, nothing),
    }
    if case.given is not None:
        found |= _made_of_given(case.given, rng)
    return {name: found[name] for name in CONTROLS if name in found}


def control_axes(
    made: Mapping[str, TripletSets],
    scores: Mapping[str, Mapping[str, Floats]],
    case: Case,
    true: Integers,
    preset: ReasonPreset,
    codes: tuple[Integers, Integers],
) -> pd.DataFrame:
    """Return where each control stands on the axes, and whether it follows the context.

    Parameters
    ----------
    made, scores
        The reasons of each control, and their scores.
    case, true
        The questions, and their outcomes.
    preset
        When a reason is right.
    codes
        Of (perturbation, readout gene), and of the context.

    Returns
    -------
    Index control; ``right_reason`` and ``consistent`` (shares), the cells and causes (counts), and
    ``claimed_distance``, ``correlation`` and ``drop``, as :class:`ContextSensitivity` has them.
    """
    first, second, _ = pairs_of_contexts(*codes)
    referred = jaccard_distance(case.references.union, first, second)
    elsewhere = case.references.at(partners(*codes))
    rows = {}
    for name, claims in made.items():
        found = judge(scores[name], claims.sizes, true, true, preset)
        claimed = jaccard_distance(claims, first, second)
        lost = scores[name]["f1"] - overlap(claims, elsewhere)["f1"]
        rows[name] = {
            "right_reason": _mean(found.right_reason),
            "consistent": _mean(found.consistent),
            **found.taxonomy,
            **{cause: int(count) for cause, count in found.causes.sum().items()},
            "claimed_distance": _mean(claimed),
            "correlation": correlation(claimed, referred),
            "drop": _mean(lost),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("control")


def _mean(values: Floats) -> float:
    return float(np.nanmean(values)) if (~np.isnan(values)).any() else float("nan")


def _made_of_given(given: PathSets, rng: np.random.Generator) -> dict[str, TripletSets]:
    copied = given.union
    signs = np.repeat([1, -1], len(copied.record))
    record, head, tail = (np.tile(side, 2) for side in (copied.record, copied.head, copied.tail))
    activates = np.ones(len(copied.record), dtype=np.int64)
    lengths = given.sets.sizes
    return {
        "copied": copied,
        "both_signs": TripletSets.of(copied.n, copied.n_nodes, record, head, tail, signs),
        "all_activates": TripletSets.of(copied.n, copied.n_nodes, copied.record, copied.head, copied.tail, activates),
        "random_path": given.select(_least(given.record, rng.random(len(given.record)))).union,
        "reachable": _unsigned(given.select(_least(given.record, lengths.astype(np.float64))).union),
    }


def _least(record: Integers, values: np.ndarray) -> np.ndarray:
    """Return a mask with the row of the least value of each question, the first of equals."""
    order = np.lexsort((values, record))
    keep = np.zeros(len(record), dtype=bool)
    if len(record):
        keep[order[np.r_[True, record[order][1:] != record[order][:-1]]]] = True
    return keep


def _unsigned(sets: TripletSets) -> TripletSets:
    return TripletSets.of(sets.n, sets.n_nodes, sets.record, sets.head, sets.tail, np.zeros_like(sets.sign))


def _invented(case: Case, true: Integers) -> TripletSets:
    """Return an edge from each question's first start, its sign such that it implies the answer."""
    starts, n_nodes = case.starts, case.references.sets.n_nodes
    _, first = np.unique(starts.record, return_index=True)
    record, node = starts.record[first], starts.node[first]
    change = np.array([1, -1, 0, 0])[true[record]]
    sign = change * starts.sign[first]
    return TripletSets.of(len(starts.readout), n_nodes, record, node, starts.readout[record], sign)
