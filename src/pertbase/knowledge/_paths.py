"""Candidate paths: the k cheapest signed paths from a perturbation's targets to a readout gene."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pertbase.errors import InputError
from pertbase.knowledge._graph import SignedGraph
from pertbase.knowledge._triplets import Triplet, relation_word

__all__ = ["BIT", "MAX_HOPS", "WEIGHTS", "Path", "PathFinder", "candidate_paths", "path_of"]

MAX_HOPS = 4
WEIGHTS = ("evidence", "equal")
BIT = 2**20
"""What an edge of weight 1/2 costs: costs are -log2 of weights, as whole numbers of this fineness."""


@dataclass(frozen=True, order=False)
class Path:
    """A path from a target to a readout gene.

    Parameters
    ----------
    nodes
        Names as the graph has them, the target first, the readout last, none twice.
    signs
        Of the edges between them.
    start
        What the perturbation does to the target: -1 lowers, +1 raises, 0 unknown.
    weight
        Product of the edges' weights.
    """

    nodes: tuple[str, ...]
    signs: tuple[int, ...]
    start: int
    weight: float

    @property
    def hops(self) -> int:
        """Number of edges."""
        return len(self.signs)

    @property
    def sign(self) -> int:
        """What the path says of the readout: start times the product of signs; 0 where any of them is unknown."""
        return int(self.start * np.prod(self.signs, dtype=np.int64))

    @property
    def triplets(self) -> tuple[Triplet, ...]:
        """The edges as (head, relation, tail)."""
        return tuple(
            Triplet(head, relation_word(sign), tail)
            for head, sign, tail in zip(self.nodes, self.signs, self.nodes[1:], strict=False)
        )

    def __str__(self) -> str:
        arrows = {1: "->", -1: "-|", 0: "-?"}
        steps = "".join(f" {arrows[sign]} {name}" for sign, name in zip(self.signs, self.nodes[1:], strict=True))
        return f"{self.nodes[0]}{steps}"


class PathFinder:
    r"""Finds the k cheapest simple paths of at most ``hops`` edges, exactly.

    An edge :math:`u \to v` has weight :math:`w \sqrt{g_u g_v}`: w is :math:`n / (n + 1)` for n pieces of evidence, or
    1/2 where edges are ``equal``; g are the nodes' gates. It costs minus the binary logarithm of that, rounded to
    :math:`2^{-20}`, so that sums are exact and candidates the same on every machine. The cheapest paths are those of
    the largest product of weights. Ties go by fewer edges, then by the names of the nodes.

    Parameters
    ----------
    graph
        Where paths are looked for.
    hops
        Edges of a path at most, 1 to 4.
    k
        Paths of a (target, readout) pair at most.
    weight
        ``evidence`` or ``equal``.
    gates
        Of each node, in (0, 1]; 1 everywhere where not given.
    """

    def __init__(
        self,
        graph: SignedGraph,
        *,
        hops: int = 3,
        k: int = 5,
        weight: str = "evidence",
        gates: np.ndarray | None = None,
    ) -> None:
        if not 1 <= hops <= MAX_HOPS:
            raise InputError(f"a path has 1 to {MAX_HOPS} edges", key="hops", value=hops)
        if k < 1:
            raise InputError("there is at least one path to look for", key="k", value=k)
        if weight not in WEIGHTS:
            raise InputError("edges are weighed by their evidence, or equal", key="weight", value=weight)
        if gates is not None and not ((gates > 0) & (gates <= 1)).all():
            raise InputError("a gate lies above 0 and up to 1", key="gates", value=float(np.min(gates)))
        self.graph, self.hops, self.k = graph, hops, k
        evidence = graph.evidence.astype(np.float64)
        self._base = _cost(evidence / (evidence + 1) if weight == "evidence" else np.full(len(graph), 0.5))
        ones = np.ones(len(graph.nodes))
        self._half = _cost(np.sqrt(ones if gates is None else gates))

    @cached_property
    def cost(self) -> np.ndarray:
        """What each edge costs, int64."""
        return np.asarray(self._base + self._half[self.graph.source] + self._half[self.graph.target])

    @cached_property
    def _in_edge(self) -> np.ndarray:
        return np.lexsort((self.graph.source, self.cost, self.graph.target))

    def search(
        self, sources: np.ndarray, targets: np.ndarray, *, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the paths of many (source, target) pairs; see :func:`pertbase.knowledge._search.search`.

        Parameters
        ----------
        sources, targets
            Positions in ``graph.nodes``, (n_pairs,); a pair with -1, or with itself, has none.
        allowed
            Which nodes may stand between them, bool (n_nodes,); all where not given.

        Returns
        -------
        Numbers of edges, int32 (n_pairs, k, hops), -1 beyond a path's end, and costs, int64 (n_pairs, k).

        Raises
        ------
        InputError
            Where a position is none of the graph's.
        """
        from pertbase.knowledge._search import search

        graph = self.graph
        sources, targets = np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64)
        for ends in (sources, targets):
            if len(ends) and not -1 <= ends.min() <= ends.max() < len(graph.nodes):
                raise InputError("is no position of a node", key="pairs", value=(int(ends.min()), int(ends.max())))
        order = np.argsort(sources, kind="stable")
        allowed = np.ones(len(graph.nodes), dtype=bool) if allowed is None else allowed
        edges, costs = search(
            graph.out_start,
            graph.target,
            graph.in_start,
            self._in_edge,
            graph.source,
            graph.target,
            self.cost,
            sources[order],
            targets[order],
            allowed,
            self.hops,
            self.k,
        )
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return edges[back], costs[back]

    def own(self, source: int) -> int:
        """Return what the gate of a node adds to the cost of each path that starts there."""
        return int(self._half[source])


def path_of(graph: SignedGraph, edges: np.ndarray, *, cost: int, start: int) -> Path:
    """Return a path from the numbers of its edges, -1 beyond its end."""
    held = edges[edges >= 0]
    names = graph.nodes.to_numpy()
    return Path(
        nodes=(names[graph.source[held[0]]], *names[graph.target[held]]),
        signs=tuple(graph.sign[held].tolist()),
        start=start,
        weight=float(2.0 ** (-cost / BIT)),
    )


def candidate_paths(
    graph: SignedGraph,
    targets: Mapping[str, int],
    readout: str,
    *,
    hops: int = 3,
    k: int = 5,
    weight: str = "evidence",
    gates: np.ndarray | None = None,
) -> list[Path]:
    """Return the k cheapest paths from any target to the readout gene, cheapest first.

    Parameters
    ----------
    graph
        Where they are looked for.
    targets
        Target -> what the perturbation does to it, -1, 0 or +1; names are found as
        :meth:`SignedGraph.locate` finds them.
    readout
        The readout gene.
    hops, k, weight, gates
        See :class:`PathFinder`; the gates of targets count too.
    """
    finder = PathFinder(graph, hops=hops, k=k, weight=weight, gates=gates)
    starts = graph.locate(targets)
    ends = np.repeat(graph.locate([readout]), len(starts))
    edges, costs = finder.search(starts, ends)
    found = [
        (int(costs[row, rank]), path_of(graph, edges[row, rank], cost=int(costs[row, rank]), start=sign))
        for row, sign in enumerate(targets.values())
        for rank in range(k)
        if edges[row, rank, 0] >= 0
    ]
    return [path for _, path in sorted(found, key=lambda item: (item[0], item[1].hops, item[1].nodes))[:k]]


def _cost(weights: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(-np.log2(weights) * BIT), dtype=np.int64)
