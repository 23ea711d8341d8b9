"""Reasons scored one by one, with sets and networkx, as somebody who never saw ours would write it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import networkx as nx

Signed = tuple[str, int, str]
GOLD: list[Signed] = [("A", -1, "B"), ("B", -1, "C"), ("C", 1, "D")]
WORDS = {1: "activates", -1: "inhibits", 0: "affects"}


def written(triplets: Sequence[Signed]) -> list[tuple[str, str, str]]:
    return [(head, WORDS[sign], tail) for head, sign, tail in triplets]


def plain(triplets: Sequence[Signed]) -> set[Signed]:
    return {item for item in triplets if item[0] != item[2]}


def pairs(triplets: set[Signed]) -> set[tuple[str, str]]:
    return {(head, tail) for head, _, tail in triplets}


def rates(claimed: set, right: set) -> tuple[float, float, float]:  # type: ignore[type-arg]
    """Return precision, recall and F1 by their definitions."""
    if not right:
        return math.nan, math.nan, math.nan
    if not claimed:
        return 0.0, 0.0, 0.0
    shared = len(claimed & right)
    return shared / len(claimed), shared / len(right), 2 * shared / (len(claimed) + len(right))


def signs_at(claimed: set[Signed], start: Mapping[str, int], readout: str) -> set[int]:
    """Return the signs with which a readout is reached: descendants in the product of the graph with the signs."""
    walks = nx.DiGraph()
    for (head, sign, tail), before in product(claimed, (-1, 0, 1)):
        walks.add_edge((head, before), (tail, before * sign))
    met = set()
    for node in start.items():
        if node in walks:
            met |= nx.descendants(walks, node) | {node}
    return {sign for name, sign in met if name == readout}


def on_walks(claimed: set[Signed], start: Mapping[str, int], readout: str) -> float:
    graph = nx.DiGraph(list(pairs(claimed)))
    reached = set().union(*(nx.descendants(graph, name) | {name} for name in start if name in graph))
    leading = nx.ancestors(graph, readout) | {readout} if readout in graph else set()
    inside = [item for item in claimed if item[0] in reached and item[2] in leading]
    return len(inside) / len(claimed) if claimed else 0.0


def agreement(signs: set[int], outcome: str | None) -> tuple[float, float]:
    """Return strict and lenient agreement of the signs reached with an answer."""
    if outcome is None:
        return 0.0, 0.0
    if outcome == "no_change":
        return float(signs in (set(), {1, -1})), float(not signs or {1, -1} <= signs)
    wanted = 1 if outcome == "up" else -1
    return float(signs == {wanted}), float(wanted in signs)


def borne_out(item: Signed, edges: set[Signed]) -> bool:
    head, sign, tail = item
    there = {edge[1] for edge in edges if (edge[0], edge[2]) == (head, tail)}
    return bool(there) and (sign == 0 or sign in there or 0 in there)


def brute_force(
    claimed: Sequence[Signed],
    references: Sequence[Sequence[Signed]],
    *,
    start: Mapping[str, int],
    readout: str,
    outcome: str | None,
    given: Sequence[Sequence[Signed]],
    edges: Sequence[Signed],
) -> dict[str, float]:
    """Return every score but those by gene sets."""
    own, right = plain(claimed), plain([item for path in references for item in path])
    found = dict(zip(("precision", "recall", "f1"), rates(own, right), strict=True))
    found |= dict(
        zip(("unsigned_precision", "edge_recall", "unsigned_f1"), rates(pairs(own), pairs(right)), strict=True)
    )
    best = [rates(own, plain(path))[2] for path in references if plain(path)]
    found["best_path"] = max(best) if best else math.nan
    signs = signs_at(own, start, readout)
    found["connected"] = float(bool(signs)) if start else math.nan
    found["on_path"] = on_walks(own, start, readout) if start else math.nan
    known = any(start.values())
    strict, lenient = agreement(signs, outcome)
    found |= {"consistent": strict if known else math.nan, "consistent_any": lenient if known else math.nan}
    shown = plain([item for path in given for item in path])
    for name, there in (("grounded_graph", plain(edges)), ("grounded_prompt", shown)):
        share = sum(borne_out(item, there) for item in own) / len(own) if own else 0.0
        found[name] = share if there or name == "grounded_graph" else math.nan
    return found


def gene_set_scores(
    claimed: set[str], right: set[str], sets: Mapping[str, Sequence[str]]
) -> tuple[float, float, float]:
    """Return the three similarities by gene sets, by their definitions."""
    of = {gene: {name for name, genes in sets.items() if gene in genes} for gene in claimed | right}
    total = len({gene for genes in sets.values() for gene in genes})
    left, other = ([gene for gene in sorted(side) if of[gene]] for side in (claimed, right))
    if not other:
        return math.nan, math.nan, math.nan
    if not left:
        return 0.0, 0.0, 0.0
    one, two = (set().union(*(of[gene] for gene in side)) for side in (left, other))
    content = {name: -math.log(len(set(genes)) / total) for name, genes in sets.items()}
    whole = sum(content[name] for name in one | two)
    weighted = sum(content[name] for name in one & two) / whole if whole > 0 else 0.0

    def alike(a: str, b: str) -> float:
        return len(of[a] & of[b]) / len(of[a] | of[b])

    best = sum(max(alike(a, b) for b in other) for a in left) + sum(max(alike(a, b) for a in left) for b in other)
    return len(one & two) / len(one | two), weighted, best / (len(left) + len(other))
