"""Reasons that are right by construction: the strongest path of the generating network behind each measured change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from pertbase.knowledge._triplets import Triplet, relation_word
from pertbase.simulate._screen import Simulation

__all__ = ["true_paths"]

_CHANGES = {"up": 1, "down": -1}
Integers = npt.NDArray[np.int64]


def true_paths(simulation: Simulation, questions: pd.DataFrame, *, max_hops: int = 4) -> list[list[list[Triplet]]]:
    """Return the reference paths of questions: for each, a list with one path, or an empty one.

    The path is, of all paths without a repeated gene of edges that are active in the question's context, from an
    annotated target to the readout gene, with the sign of the outcome, the one with the largest product of weights. A
    question has none where nothing changed, or where the change came by the general stress programme, an off-target or
    a longer way.

    Parameters
    ----------
    simulation
        Whose network it is. No model may see these paths.
    questions
        ``context``, ``perturbation``, ``gene`` and ``outcome``.
    max_hops
        Edges of the longest path.
    """
    found: list[list[list[Triplet]]] = [[] for _ in range(len(questions))]
    table = questions[["context", "perturbation", "gene", "outcome"]].reset_index(drop=True)
    for context, rows in table.groupby("context", sort=True, observed=True):
        network = _Network(simulation, str(context))
        for perturbation, asked in rows.groupby("perturbation", sort=True, observed=True):
            best = network.strongest(_starts(simulation, str(perturbation)), max_hops)
            for row, gene, outcome in zip(asked.index, asked["gene"], asked["outcome"], strict=True):
                path = best.get((gene, _CHANGES.get(outcome, 0)))
                if path is not None:
                    found[int(row)] = [path]
    return found


def _starts(simulation: Simulation, perturbation: str) -> dict[str, int]:
    """Return annotated target -> what was really done to it."""
    inputs = simulation.truth.inputs
    own = inputs.loc[(inputs["perturbation"] == perturbation) & inputs["annotated"]]
    return {gene: int(np.sign(strength)) for gene, strength in zip(own["gene"], own["strength"], strict=True)}


class _Network:
    """The edges that are active in one context."""

    def __init__(self, simulation: Simulation, context: str) -> None:
        active = simulation.truth.active
        edges = active.loc[active["context"] == context].sort_values("source", kind="stable")
        self.genes = simulation.truth.genes.index
        self.source, self.target = (self.genes.get_indexer(edges[side]) for side in ("source", "target"))
        self.sign, self.weight = edges["sign"].to_numpy(), edges["weight"].to_numpy()
        self.first = np.searchsorted(self.source, np.arange(len(self.genes) + 1))

    def strongest(self, starts: dict[str, int], max_hops: int) -> dict[tuple[str, int], list[Triplet]]:
        """Return (gene, change) -> the strongest path that implies it."""
        best: dict[tuple[int, int], tuple[float, list[int]]] = {}
        held = self.genes.get_indexer(list(starts))
        for node, change in zip(held, starts.values(), strict=True):
            for edges, strength in self._paths(int(node), held, max_hops):
                key = (int(self.target[edges[-1]]), change * int(np.prod(self.sign[edges])))
                if key not in best or strength > best[key][0]:
                    best[key] = (strength, edges)
        return {
            (str(self.genes[node]), change): [self._triplet(edge) for edge in edges]
            for (node, change), (_, edges) in best.items()
        }

    def _paths(self, start: int, held: Integers, max_hops: int) -> Iterator[tuple[list[int], float]]:
        """Yield every path from a start that meets no gene twice and no perturbed one again."""
        waiting: list[tuple[list[int], frozenset[int], int, float]] = [([], frozenset(held.tolist()), start, 1.0)]
        while waiting:
            edges, met, node, strength = waiting.pop()
            for edge in range(int(self.first[node]), int(self.first[node + 1])):
                following = int(self.target[edge])
                if following in met:
                    continue
                path, product = [*edges, edge], strength * float(self.weight[edge])
                yield path, product
                if len(path) < max_hops:
                    waiting.append((path, met | {following}, following, product))

    def _triplet(self, edge: int) -> Triplet:
        return Triplet(
            str(self.genes[self.source[edge]]), relation_word(int(self.sign[edge])), str(self.genes[self.target[edge]])
        )
