"""Candidate paths of many questions at once: from every target, in every context, without any outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase.knowledge._gates import OPEN, Gate, node_gates
from pertbase.knowledge._graph import SignedGraph
from pertbase.knowledge._paths import BIT, Path, PathFinder, path_of
from pertbase.knowledge._relevance import Relevance

if TYPE_CHECKING:
    from pertbase.folds import Perturbation

__all__ = ["Candidates", "find_candidates", "nothing_left"]

_CHUNK = 100_000
"""Questions looked at together, so that millions need no more memory than these."""


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """The candidate paths of some questions, as arrays; paths of one question stand together, cheapest first.

    Parameters
    ----------
    graph
        Whose edges they are made of.
    offsets
        Where the paths of each question begin, int64, shape (n_questions + 1,).
    edges
        Numbers of edges, int32, shape (n_paths, hops), -1 beyond a path's end.
    start
        What the perturbation does to the path's first node, int8, shape (n_paths,).
    cost
        int64, shape (n_paths,); see :class:`~pertbase.knowledge.PathFinder`.
    """

    graph: SignedGraph
    offsets: np.ndarray
    edges: np.ndarray
    start: np.ndarray
    cost: np.ndarray

    @cached_property
    def sign(self) -> np.ndarray:
        """What each path says of the readout: start times the product of its signs, int8, shape (n_paths,)."""
        signs = np.where(self.edges >= 0, self.graph.sign[np.maximum(self.edges, 0)], 1)
        return np.asarray(self.start * signs.prod(axis=1, dtype=np.int8), dtype=np.int8)

    @cached_property
    def question(self) -> np.ndarray:
        """The number of each path's question, int64, shape (n_paths,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def count(self, sign: int) -> np.ndarray:
        """Return how many paths of each question say a sign, int64, shape (n_questions,)."""
        return np.bincount(self.question[self.sign == sign], minlength=len(self.offsets) - 1)

    @property
    def conflict(self) -> np.ndarray:
        """Whether the paths of each question say both signs, bool, shape (n_questions,)."""
        return np.asarray((self.count(1) > 0) & (self.count(-1) > 0))

    @property
    def hops(self) -> np.ndarray:
        """The edges of each path, int64, shape (n_paths,)."""
        return np.asarray((self.edges >= 0).sum(axis=1))

    def vote(self, sign: int) -> np.ndarray:
        """Return the summed weights of each question's paths that say a sign, float64, shape (n_questions,)."""
        chosen = self.sign == sign
        weights = 2.0 ** (-self.cost[chosen] / BIT)
        return np.bincount(self.question[chosen], weights, minlength=len(self.offsets) - 1)

    def paths(self, question: int) -> list[Path]:
        """Return the paths of one question, by its number."""
        return [
            path_of(self.graph, self.edges[row], cost=int(self.cost[row]), start=int(self.start[row]))
            for row in range(self.offsets[question], self.offsets[question + 1])
        ]

    def __len__(self) -> int:
        return len(self.cost)

    def __repr__(self) -> str:
        n_questions = len(self.offsets) - 1
        reached = int((np.diff(self.offsets) > 0).sum())
        return f"Candidates: {len(self):,} paths for {reached:,} of {n_questions:,} questions, in {self.graph.name}"


def find_candidates(
    questions: pd.DataFrame,
    perturbations: Mapping[str, Perturbation],
    graph: SignedGraph,
    *,
    hops: int = 3,
    k: int = 5,
    weight: str = "evidence",
    gate: Gate | None = None,
    basal: pd.DataFrame | None = None,
    subnetwork: int | None = None,
    shut: bool = False,
) -> Candidates:
    """Return the candidate paths of every question.

    Of ``questions`` only ``context``, ``perturbation`` and ``gene`` are looked at: no outcome reaches a candidate. The
    gate of a perturbed node is 1, whatever its level, unless it is knocked down where there is nothing to knock down.

    Parameters
    ----------
    questions
        One a row.
    perturbations
        Name -> perturbation, of all that are asked about.
    graph, hops, k, weight
        See :class:`~pertbase.knowledge.PathFinder`. A combination, or a drug with several targets, has one start a
        target, and its k paths are the cheapest from any of them.
    gate
        From level to gate; none where not given.
    basal
        Mean log1p of input controls, contexts x genes; what is not in it has gate 1.
    subnetwork
        Where given, paths go through this many of the nodes most relevant to each (perturbation, readout) alone; see
        :class:`~pertbase.knowledge._relevance.Relevance`.
    shut
        Whether a gate below one half lets no path through, in the place of making it dearer: neither through a gene
        that is off, nor from a knock-down that finds nothing to knock down.
    """
    parts: list[_Found] = []
    relevances: dict[str, Relevance] = {}
    # Positions in `questions` of what was asked, put back in order at the end.
    for context, rows in questions.reset_index(drop=True).groupby("context", observed=True, sort=True):
        level = None if basal is None or context not in basal.index else basal.loc[context]
        gates = node_gates(graph, level, gate)
        finder = PathFinder(graph, hops=hops, k=k, weight=weight, gates=gates)
        for begin in range(0, len(rows), _CHUNK):
            asked = rows.iloc[begin : begin + _CHUNK]
            starts = _starts(asked, perturbations, graph, finder, gates, shut=shut)
            passable = gates >= OPEN if shut else np.ones(len(gates), dtype=bool)
            if subnetwork is None:
                parts.append(_find(finder, starts, passable))
            else:
                weights = 2.0 ** (-finder.cost / BIT)
                relevance = relevances.setdefault(str(context), Relevance(graph, weights=weights))
                parts.append(_find_within(finder, starts, passable, relevance, subnetwork))
    return _together(parts, graph, len(questions), hops)


def nothing_left(perturbation: Perturbation, gene: str, gate: float) -> bool:
    """Return whether a target is knocked down, or out, where there is nothing to knock down."""
    lowered = any(
        sign < 0 and target == gene
        for part in perturbation.parts
        if part.modality == "genetic"
        for target, sign in part.targets
    )
    return lowered and gate < OPEN


@dataclass(frozen=True)
class _Starts:
    """One row a (question, target): positions of target and readout, the start's sign, and what its gate gives back."""

    question: np.ndarray
    source: np.ndarray
    target: np.ndarray
    sign: np.ndarray
    refund: np.ndarray


@dataclass(frozen=True)
class _Found:
    question: np.ndarray
    edges: np.ndarray
    start: np.ndarray
    cost: np.ndarray


def _starts(
    asked: pd.DataFrame,
    perturbations: Mapping[str, Perturbation],
    graph: SignedGraph,
    finder: PathFinder,
    gates: np.ndarray,
    *,
    shut: bool,
) -> _Starts:
    readouts, of_gene = np.unique(asked["gene"].astype(str), return_inverse=True)
    target = graph.locate(readouts)[of_gene]
    names, of_name = np.unique(asked["perturbation"].astype(str), return_inverse=True)
    table = []
    for number, name in enumerate(names):
        perturbation = perturbations[name]
        signs = perturbation.signs
        for gene, place in zip(signs, graph.locate(signs), strict=True):
            if place >= 0:
                nothing = nothing_left(perturbation, gene, gates[place])
                refund = 0 if nothing else finder.own(int(place))
                table.append((number, -1 if nothing and shut else place, signs[gene], refund))
    of = np.array(table, dtype=np.int64).reshape(len(table), 4)
    # Each question, once for every target of its perturbation.
    first = np.searchsorted(of[:, 0], of_name, side="left")
    n_targets = np.searchsorted(of[:, 0], of_name, side="right") - first
    question = np.repeat(np.arange(len(asked)), n_targets)
    row = np.repeat(first - np.append(0, np.cumsum(n_targets)[:-1]), n_targets) + np.arange(n_targets.sum())
    return _Starts(
        question=asked.index.to_numpy()[question],
        source=of[row, 1],
        target=target[question],
        sign=of[row, 2],
        refund=of[row, 3],
    )


def _find(finder: PathFinder, starts: _Starts, passable: np.ndarray) -> _Found:
    # Doses of one drug, and combinations, ask for the same pairs.
    keys = starts.source * (len(finder.graph.nodes) + 1) + starts.target + 1
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    edges, costs = finder.search(starts.source[first], starts.target[first], allowed=passable)
    return _best(starts, edges[where], costs[where], finder)


def _find_within(finder: PathFinder, starts: _Starts, passable: np.ndarray, relevance: Relevance, size: int) -> _Found:
    edges = np.full((len(starts.source), finder.k, finder.hops), -1, dtype=np.int32)
    costs = np.zeros((len(starts.source), finder.k), dtype=np.int64)
    _, begins = np.unique(starts.question, return_index=True)
    for begin, end in zip(begins, np.append(begins[1:], len(starts.question)), strict=True):
        readout = int(starts.target[begin])
        if readout < 0:
            continue
        allowed = relevance.subnetwork(starts.source[begin:end], readout, size) & passable
        found = finder.search(starts.source[begin:end], starts.target[begin:end], allowed=allowed)
        edges[begin:end], costs[begin:end] = found
    return _best(starts, edges, costs, finder)


def _best(starts: _Starts, edges: np.ndarray, costs: np.ndarray, finder: PathFinder) -> _Found:
    """Return the k cheapest paths of each question, over its targets."""
    row, rank = np.nonzero(edges[:, :, 0] >= 0)
    found = edges[row, rank]
    cost = costs[row, rank] - starts.refund[row]
    question = starts.question[row]
    nodes = np.where(found >= 0, finder.graph.target[np.maximum(found, 0)], -1)
    columns = (*nodes.T[::-1], starts.source[row], (found >= 0).sum(axis=1), cost, question)
    order = np.lexsort(columns)
    ordered = question[order]
    begins = np.searchsorted(ordered, ordered, side="left")
    order = order[np.arange(len(order)) - begins < finder.k]
    return _Found(question[order], found[order], starts.sign[row][order].astype(np.int8), cost[order])


def _together(parts: list[_Found], graph: SignedGraph, n_questions: int, hops: int) -> Candidates:
    question = np.concatenate([np.zeros(0, np.int64), *(part.question for part in parts)])
    order = np.argsort(question, kind="stable")
    edges = np.concatenate([np.zeros((0, hops), np.int32), *(part.edges for part in parts)])
    start = np.concatenate([np.zeros(0, np.int8), *(part.start for part in parts)])
    cost = np.concatenate([np.zeros(0, np.int64), *(part.cost for part in parts)])
    offsets = np.append(0, np.cumsum(np.bincount(question, minlength=n_questions)))
    return Candidates(graph, offsets.astype(np.int64), edges[order], start[order], cost[order])
