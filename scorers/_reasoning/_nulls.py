"""What a reason would score by chance: three nulls, none of which says anything about this question's mechanism.

``labels``
    References as they would be if outcomes were permuted among the questions: the given paths that imply the outcome
    drawn. Its expectation is worked out, not drawn: the scores with the paths that imply up and with those that imply
    down, weighted by how often each outcome is true. For consistency, the answers are permuted in the same way. Paths
    of one sign alone are a reference whatever the label, and the score has no excess there.
``rewired``
    References and graph after a degree-preserving rewiring: each edge's target is exchanged with that of another edge
    of the same sign, so that every gene keeps its degrees. What is left is due to hubs.
``contexts``
    The reference of the same perturbation and readout gene in the next context that has one. What is left is not
    specific to the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pertbase.knowledge._overlap import EdgeSigns, grounded_in_graph, grounded_in_prompt
from pertbase.knowledge._rewire import rewire
from pertbase.knowledge._triplet_sets import Integers, PathSets, TripletSets, contained
from pertbase.knowledge._walks import Starts, reach
from pertbase.scorers._reasoning._records import Case, against, agrees

__all__ = [
    "NULLS",
    "Graph",
    "expected_agreement",
    "implied_signs",
    "labels_null",
    "partners",
    "rewired_null",
    "swap_null",
]

Floats = NDArray[np.float64]

NULLS = ("labels", "rewired", "contexts")


def implied_signs(paths: PathSets, starts: Starts) -> Integers:
    """Return the change of the readout gene that each path implies: sign of its start times its triplets; 0 unknown."""
    keys = starts.record * paths.sets.n_nodes + starts.node
    order = np.argsort(keys, kind="stable")
    own = paths.record * paths.sets.n_nodes + np.maximum(paths.start, 0)
    inside = contained(own, keys[order]) & (paths.start >= 0)
    sign = np.zeros(len(own), dtype=np.int64)
    sign[inside] = starts.sign[order][np.searchsorted(keys[order], own[inside])]
    return sign * paths.sign


def labels_null(claims: TripletSets, true: Integers, case: Case) -> dict[str, Floats]:
    """Return the expected scores under permuted labels; empty where no paths were given.

    Parameters
    ----------
    claims
        The reasons.
    true
        Outcome codes of the questions, up (0) or down (1) alone.
    case
        What they are held against.
    """
    if case.given is None:
        return {}
    implied = implied_signs(case.given, case.starts)
    sides = [against(claims, case.given.select(implied == sign), case) for sign in (1, -1)]
    weights = [float((true == code).mean()) if len(true) else 0.0 for code in (0, 1)]
    return {name: _mixed([side[name] for side in sides], weights) for name in sides[0]}


def _mixed(values: list[Floats], weights: list[float]) -> Floats:
    """Return the weighted mean of those that are there, NaN where none is."""
    weight = np.sum([np.where(np.isnan(one), 0.0, share) for one, share in zip(values, weights, strict=True)], axis=0)
    total = np.sum([share * np.nan_to_num(one) for one, share in zip(values, weights, strict=True)], axis=0)
    return np.asarray(np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0))


def expected_agreement(claims: TripletSets, answered: Integers, starts: Starts) -> dict[str, Floats]:
    """Return how often a reason would agree with an answer drawn from all answers given."""
    signs = reach(claims, starts).signs
    shares = np.bincount(answered, minlength=4) / max(1, len(answered))
    found = {}
    for name, strict in (("consistent", True), ("consistent_any", False)):
        each = [agrees(signs, np.full(len(signs), code), strict=strict) & (claims.sizes > 0) for code in range(3)]
        value = sum(share * one for share, one in zip(shares, each, strict=False))
        found[name] = np.where(starts.signed, value, np.nan)
    return found


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph's edges as numbers: heads, tails, signs (-1, 0, 1) and how many pieces of evidence each has."""

    n_nodes: int
    head: Integers
    tail: Integers
    sign: Integers
    evidence: Integers

    @property
    def edges(self) -> EdgeSigns:
        """Which triplets the graph bears out."""
        return EdgeSigns(self.head * self.n_nodes + self.tail, self.sign)

    def rewired(self, rng: np.random.Generator) -> Integers:
        """Return another tail for each edge, every node keeping its degrees of each sign."""
        tail = self.tail.copy()
        for sign in (-1, 0, 1):
            rows = np.flatnonzero(self.sign == sign)
            tail[rows] = rewire(self.head, tail, rows, self.n_nodes, rng)
        return tail


def rewired_null(claims: TripletSets, case: Case, graph: Graph | None, rng: np.random.Generator) -> dict[str, Floats]:
    """Return the scores against references and graph after one rewiring; empty where there is no graph."""
    if graph is None or not len(graph.head):
        return {}
    tail = graph.rewired(rng)
    pairs = graph.head * graph.n_nodes + graph.tail
    order = np.argsort(pairs, kind="stable")
    paths = case.references.sets
    own = paths.head * graph.n_nodes + paths.tail
    inside = contained(own, pairs[order])
    moved = tail[order][np.searchsorted(pairs[order], own[inside])]
    # An edge of a reference that is none of the graph's has no place in the rewired one.
    sets = TripletSets.of(paths.n, paths.n_nodes, paths.record[inside], paths.head[inside], moved, paths.sign[inside])
    old = case.references
    found = against(claims, PathSets(sets, old.record, old.start, old.sign, old.n), case)
    edges = EdgeSigns(graph.head * graph.n_nodes + tail, graph.sign)
    return {**found, "grounded_graph": grounded_in_graph(claims, edges)}


def partners(group: Integers, context: Integers) -> Integers:
    """Return, for each question, the same one in the next context; -1 where it is asked in no other.

    Parameters
    ----------
    group
        Codes of (perturbation, readout gene).
    context
        Codes of the contexts, in their order; after the last comes the first.
    """
    found = np.full(len(group), -1, dtype=np.int64)
    rows = np.lexsort((context, group))
    if not len(rows):
        return found
    starts = np.flatnonzero(np.r_[True, group[rows][1:] != group[rows][:-1]])
    sizes = np.diff(np.r_[starts, len(rows)])
    within = np.arange(len(rows)) - np.repeat(starts, sizes)
    following = np.repeat(starts, sizes) + (within + 1) % np.repeat(sizes, sizes)
    found[rows] = np.where(np.repeat(sizes, sizes) > 1, rows[following], -1)
    return found


def swap_null(claims: TripletSets, case: Case, partner: Integers) -> dict[str, Floats]:
    """Return the scores against references, and paths in the prompt, of another context; NaN where there is none."""
    found = against(claims, case.references.at(partner), case)
    if case.prompt is not None:
        found["grounded_prompt"] = grounded_in_prompt(claims, case.prompt.at(partner))
    return found
