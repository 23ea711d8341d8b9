from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.knowledge import SignedGraph
from pertbase.knowledge._relevance import Relevance, personalised_pagerank


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 40, (160, 2)), columns=["source", "target"]).astype(str)
    table["sign"] = 1
    return SignedGraph.from_edges(table, name="drawn")


def solved(graph, start, weights, *, reverse):
    """Return the heat as the solution of the linear equations, dense."""
    size = len(graph.nodes)
    moves = np.zeros((size, size))
    ends = (graph.target, graph.source) if reverse else (graph.source, graph.target)
    moves[ends] = weights
    leaving = moves.sum(axis=1)
    for node in range(size):
        if leaving[node] == 0:
            moves[node, start] = 1.0
        else:
            moves[node] /= leaving[node]
    restart = np.eye(size)[start]
    return np.linalg.solve(np.eye(size) - 0.85 * moves.T, 0.15 * restart)


@pytest.mark.parametrize("reverse", [False, True])
def test_heat_solves_its_equations(graph, reverse):
    weights = np.random.default_rng(1).uniform(0.1, 1.0, len(graph))
    starts = np.array([0, 7, 20])
    heat = personalised_pagerank(graph, starts, weights=weights, reverse=reverse)
    for row, start in zip(heat, starts, strict=True):
        np.testing.assert_allclose(row, solved(graph, start, weights, reverse=reverse), atol=1e-8)
    np.testing.assert_allclose(heat.sum(axis=1), 1.0, atol=1e-8)


def test_heat_agrees_with_networkx(graph):
    nx = pytest.importorskip("networkx")
    named = nx.DiGraph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
    named.add_nodes_from(range(len(graph.nodes)))
    rank = nx.pagerank(named, alpha=0.85, personalization={3: 1.0}, dangling={3: 1.0}, tol=1e-12, max_iter=500)
    expected = [rank[node] for node in range(len(graph.nodes))]
    np.testing.assert_allclose(personalised_pagerank(graph, np.array([3]))[0], expected, atol=1e-8)


def test_a_linker_lies_between_both_ends():
    edges = pd.DataFrame(
        {"source": ["T", "T", "M", "X", "R"], "target": ["M", "S", "R", "R", "Y"], "sign": [1, 1, 1, 1, 1]}
    )
    graph = SignedGraph.from_edges(edges, name="small")
    at = {name: place for place, name in enumerate(graph.nodes)}
    relevance = Relevance(graph)
    score = relevance.linkers(np.array([at["T"]]), at["R"])
    assert score[at["M"]] > 0
    assert score[at["S"]] == score[at["X"]] == score[at["Y"]] == 0
    inside = relevance.subnetwork(np.array([at["T"]]), at["R"], 3)
    assert {graph.nodes[node] for node in np.flatnonzero(inside)} == {"T", "M", "R"}


def test_the_cutoff_falls_until_the_subnetwork_has_its_size(graph):
    relevance = Relevance(graph)
    sizes = [int(relevance.subnetwork(np.array([0]), 9, size).sum()) for size in (1, 5, 10, 10**6)]
    assert sizes == sorted(sizes)
    score = relevance.linkers(np.array([0]), 9)
    inside = relevance.subnetwork(np.array([0]), 9, 5)
    best = np.sort(score)[-5:]
    assert set(np.flatnonzero(score >= best[0])) <= set(np.flatnonzero(inside))
    assert inside.sum() <= 7
    with pytest.raises(InputError, match="at least one node"):
        relevance.subnetwork(np.array([0]), 9, 0)


def test_heats_are_worked_out_once(graph, monkeypatch):
    from pertbase.knowledge import _relevance

    calls = []
    kept = _relevance.personalised_pagerank
    monkeypatch.setattr(
        _relevance, "personalised_pagerank", lambda *given, **named: calls.append(given[1]) or kept(*given, **named)
    )
    relevance = Relevance(graph)
    first = relevance.heat(np.array([1, 2, 1]))
    assert (relevance.heat(np.array([2, 1])) == first[[1, 0]]).all()
    assert len(calls) == 1
    with pytest.raises(InputError, match="alpha"):
        personalised_pagerank(graph, np.array([0]), alpha=1.0)
