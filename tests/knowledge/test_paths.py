from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.errors import InputError
from pertbase.knowledge import PathFinder, SignedGraph, Triplet, candidate_paths


def graph(*edges):
    """Return a graph from texts such as ``A -> B``, ``A -| B``, ``A -? B``, with evidence after a space."""
    signs = {"->": 1, "-|": -1, "-?": 0}
    rows = []
    for text in edges:
        source, arrow, target, *evidence = text.split()
        rows.append((source, target, signs[arrow], int(evidence[0]) if evidence else 1))
    return SignedGraph.from_edges(pd.DataFrame(rows, columns=["source", "target", "sign", "evidence"]), name="small")


def random_graph(seed, *, n_nodes=9, density=0.35, most_evidence=3):
    rng = np.random.default_rng(seed)
    there = rng.random((n_nodes, n_nodes)) < density
    np.fill_diagonal(there, False)
    there[0, 1] = True
    source, target = np.nonzero(there)
    names = np.array([f"N{number:02d}" for number in range(n_nodes)], dtype=object)
    table = pd.DataFrame({"source": names[source], "target": names[target]})
    table["sign"] = rng.integers(-1, 2, len(table))
    table["evidence"] = rng.integers(1, most_evidence + 1, len(table))
    return SignedGraph.from_edges(table, name="random")


def exhaustive(finder, source, target):
    """Return (cost, hops, nodes) of every simple path, in order: depth first, nothing cut off."""
    made = finder.graph
    found = []

    def go(path, cost):
        here = path[-1]
        if here == target:
            found.append((cost, len(path) - 1, tuple(path)))
            return
        if len(path) > finder.hops:
            return
        for edge in range(made.out_start[here], made.out_start[here + 1]):
            if made.target[edge] not in path:
                go([*path, int(made.target[edge])], cost + int(finder.cost[edge]))

    go([source], 0)
    return sorted(found)


def searched(finder, source, target):
    edges, costs = finder.search(np.array([source]), np.array([target]))
    made = finder.graph
    return [
        (int(cost), int((row >= 0).sum()), (source, *made.target[row[row >= 0]].tolist()))
        for row, cost in zip(edges[0], costs[0], strict=True)
        if row[0] >= 0
    ]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    hops=st.integers(1, 4),
    k=st.integers(1, 7),
    weight=st.sampled_from(["evidence", "equal"]),
    density=st.sampled_from([0.15, 0.35, 0.7]),
)
def test_the_search_finds_what_exhaustive_enumeration_finds_ties_included(seed, hops, k, weight, density):
    made = random_graph(seed, density=density)
    finder = PathFinder(made, hops=hops, k=k, weight=weight)
    for target in range(1, len(made.nodes)):
        assert searched(finder, 0, target) == exhaustive(finder, 0, target)[:k]


def test_the_search_is_exact_with_gates_and_many_pairs_at_once():
    made = random_graph(3, n_nodes=14, density=0.3)
    gates = np.random.default_rng(0).uniform(0.05, 1.0, len(made.nodes))
    finder = PathFinder(made, hops=4, k=6, gates=gates)
    pairs = np.array([(a, b) for a in range(len(made.nodes)) for b in range(len(made.nodes))])
    shuffled = np.random.default_rng(1).permutation(pairs)
    edges, costs = finder.search(shuffled[:, 0], shuffled[:, 1])
    for (source, target), rows, cost in zip(shuffled.tolist(), edges, costs, strict=True):
        if source == target:
            assert (rows < 0).all()
            continue
        expected = exhaustive(finder, source, target)[:6]
        assert [c for c in cost.tolist() if c < 2**62] == [c for c, _, _ in expected]
        for row, (_, _, nodes) in zip(rows, expected, strict=False):
            assert (source, *made.target[row[row >= 0]].tolist()) == nodes


def test_a_walk_that_meets_itself_crowds_out_no_path():
    # The cheapest walks from A to E go A B A' ... through B twice; the simple path is dearer than all of them.
    made = graph("A -> B 99", "B -> C 99", "C -> B 99", "B -> D 1", "C -> E 1", "D -> E 1", "C -> D 1")
    found = candidate_paths(made, {"A": 1}, "E", hops=4, k=1)
    assert [path.nodes for path in found] == [("A", "B", "C", "E")]
    assert all(len(set(path.nodes)) == len(path.nodes) for path in candidate_paths(made, {"A": 1}, "E", hops=4, k=9))


def test_signs_multiply_and_an_unknown_one_leaves_the_path_unknown():
    made = graph("A -| B", "B -| C", "B -? D", "C -> D")
    by_nodes = {path.nodes: path for path in candidate_paths(made, {"A": -1}, "D", hops=3)}
    assert by_nodes["A", "B", "C", "D"].sign == -1
    assert by_nodes["A", "B", "D"].sign == 0
    assert candidate_paths(made, {"A": 0}, "C")[0].sign == 0
    assert by_nodes["A", "B", "C", "D"].triplets == (
        Triplet("A", "inhibits", "B"),
        Triplet("B", "inhibits", "C"),
        Triplet("C", "activates", "D"),
    )
    assert str(by_nodes["A", "B", "D"]) == "A -| B -? D"


def test_more_evidence_is_cheaper_and_equal_edges_are_not_told_apart():
    made = graph("A -> B 1", "B -> Z 1", "A -> C 9", "C -> Z 9")
    assert [p.nodes[1] for p in candidate_paths(made, {"A": 1}, "Z")] == ["C", "B"]
    assert [p.nodes[1] for p in candidate_paths(made, {"A": 1}, "Z", weight="equal")] == ["B", "C"]
    assert candidate_paths(made, {"A": 1}, "Z")[0].weight == pytest.approx(0.81, abs=1e-6)


def test_an_edge_weighs_w_times_the_root_of_both_gates():
    made = graph("A -> B 3", "B -> C 1")
    gates = np.array([0.5, 0.2, 0.9])
    (path,) = candidate_paths(made, {"A": 1}, "C", gates=gates)
    assert path.weight == pytest.approx(0.75 * np.sqrt(0.5 * 0.2) * 0.5 * np.sqrt(0.2 * 0.9), rel=1e-5)


def test_a_combination_starts_at_each_of_its_targets():
    made = graph("A -> C 5", "B -| C 1", "A -> B 2")
    found = candidate_paths(made, {"A": -1, "B": -1}, "C")
    assert [(path.nodes, path.sign) for path in found] == [
        (("A", "C"), -1),
        (("B", "C"), 1),
        (("A", "B", "C"), 1),
    ]


def test_a_readout_or_target_the_graph_lacks_has_no_path():
    made = graph("A -> B")
    for targets, readout in (({"A": 1}, "Z"), ({"Z": 1}, "B"), ({"A": 1}, "A"), ({}, "B"), ({"B": 1}, "A")):
        assert candidate_paths(made, targets, readout) == []


def test_names_of_another_case_are_found_where_one_node_alone_fits():
    made = graph("STAT1 -> IRF1", "b1 -> IRF1", "B1 -> IRF1")
    assert [path.nodes for path in candidate_paths(made, {"Stat1": -1}, "Irf1")] == [("STAT1", "IRF1")]
    assert made.locate(["b1", "B1", "Stat1", " IRF1 ", "ｓｔａｔ１"]).tolist() == [
        made.nodes.get_loc(name) for name in ("b1", "B1", "STAT1", "IRF1", "STAT1")
    ]
    two = graph("ab -> C", "aB -> C")
    assert two.locate(["AB"]).tolist() == [-1]


@pytest.mark.parametrize(
    ("options", "key"),
    [({"hops": 0}, "hops"), ({"hops": 5}, "hops"), ({"k": 0}, "k"), ({"weight": "hubs"}, "weight")],
)
def test_what_cannot_be_looked_for_is_refused(options, key):
    with pytest.raises(InputError) as caught:
        PathFinder(graph("A -> B"), **options)
    assert caught.value.key == key


def test_gates_of_zero_are_refused():
    with pytest.raises(InputError, match="gate lies above 0"):
        PathFinder(graph("A -> B"), gates=np.array([0.0, 1.0]))
