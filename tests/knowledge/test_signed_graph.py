from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.errors import InputError
from pertbase.knowledge import SignedGraph


def made(*rows, name="small", **options):
    table = pd.DataFrame(rows, columns=["source", "target", "sign", "evidence", "sources", "conflict"][: len(rows[0])])
    return SignedGraph.from_edges(table, name=name, **options)


def signs(graph):
    return {(a, b): int(sign) for a, b, sign in graph.edges[["source", "target", "sign"]].itertuples(index=False)}


def test_rows_of_one_pair_become_one_edge_with_their_evidence_and_sources():
    graph = made(("A", "B", 1, 2, "x"), ("A", "B", 1, 3, "y;x"), ("A", "B", 0, 1, ""), ("B", "A", -1, 1, "x"))
    assert signs(graph) == {("A", "B"): 1, ("B", "A"): -1}
    assert graph.edges["evidence"].tolist() == [6, 1]
    assert graph.edges["sources"].tolist() == ["x;y", "x"]
    assert graph.meta["counts"]["duplicates"] == 2


def test_a_pair_with_both_signs_is_a_conflict_and_has_none():
    graph = made(("A", "B", 1), ("A", "B", -1), ("A", "C", 0))
    assert signs(graph) == {("A", "B"): 0, ("A", "C"): 0}
    assert graph.meta["counts"]["conflicts"] == 1
    assert graph.meta["counts"]["unknown_signs"] == 2


def test_self_loops_are_dropped_and_counted():
    graph = made(("A", "A", 1), ("A", "B", 1), (" A", "A ", -1))
    assert signs(graph) == {("A", "B"): 1}
    assert graph.meta["counts"]["self_loops"] == 2
    with pytest.raises(InputError, match="holds no edges"):
        made(("A", "A", 1))


def test_names_are_brought_to_one_form_and_keep_their_case():
    graph = made((" TNFα ", "ﬁb", 1), ("TNFα", "Stat1", -1))
    assert list(graph.nodes) == ["Stat1", "TNFα", "fib"]


def test_merging_graphs_joins_pairs_sources_and_licences():
    first = made(("A", "B", 1, 2), ("A", "C", 0, 1), name="one", licence="MIT")
    second = made(("A", "B", -1, 1), ("A", "C", -1, 1), name="two", licence="CC0")
    both = SignedGraph.merged([first, second])
    assert both.name == "one+two"
    assert signs(both) == {("A", "B"): 0, ("A", "C"): -1}
    assert both.edges["sources"].tolist() == ["one;two", "one;two"]
    assert both.edges["evidence"].tolist() == [3, 2]
    assert both.meta["licences"] == {"one": "MIT", "two": "CC0"}
    assert both.meta["counts"]["conflicts"] == 1
    assert SignedGraph.merged([first]) is first
    with pytest.raises(InputError, match="no graphs to merge"):
        SignedGraph.merged([])


ROW = st.tuples(
    st.sampled_from("ABC"), st.sampled_from("ABC"), st.sampled_from((-1, 0, 1)), st.integers(1, 3),
    st.sampled_from(("x", "y;z", "")),
).filter(lambda row: row[0] != row[1])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_graphs_merged_in_any_order_and_any_nesting_are_all_their_rows_merged_at_once(tables, random):
    whole = made(*(row for rows in tables for row in rows))
    graphs = [made(*rows, name=f"g{number}") for number, rows in enumerate(tables)]
    while len(graphs) > 1:
        random.shuffle(graphs)
        taken = random.randint(2, len(graphs))
        graphs = [SignedGraph.merged(graphs[:taken]), *graphs[taken:]]
        # What a graph was kept as, or handed to another process as, is merged as the graph is.
        kept = random.choice((lambda one: one, lambda one: pickle.loads(pickle.dumps(one)), stored, listed))
        graphs[0] = kept(graphs[0])
    pd.testing.assert_frame_equal(graphs[0].edges, whole.edges)
    assert graphs[0].hash == whole.hash
    for count in ("conflicts", "unknown_signs"):
        assert graphs[0].meta["counts"][count] == whole.meta["counts"][count]


def stored(graph):
    return SignedGraph.stored(graph.edges, meta=graph.meta)


def listed(graph):
    return SignedGraph.from_edges(graph.edges, name=graph.name)


def test_no_source_overrules_another_that_says_both():
    both, up = made(("A", "B", 1), ("A", "B", -1), name="both"), made(("A", "B", 1, 50), name="up")
    unknown = made(("A", "B", 0), name="unknown")
    for graphs in ([both, up], [up, both], [unknown, both, up], [SignedGraph.merged([up, unknown]), both]):
        merged = SignedGraph.merged(graphs)
        assert signs(merged) == {("A", "B"): 0}
        assert merged.edges["conflict"].tolist() == [True]
        assert merged.meta["counts"]["conflicts"] == 1
        assert "1 without a sign, 1 of these in conflict" in repr(merged)
    assert signs(SignedGraph.merged([unknown, up])) == {("A", "B"): 1}


def test_edges_kept_before_conflicts_were_are_read_with_the_hash_they_had():
    graph = made(("A", "B", 1), ("A", "B", -1), ("A", "C", 1))
    back = SignedGraph.stored(graph.edges.drop(columns="conflict"), meta=graph.meta)
    assert back.hash == graph.hash
    assert back.edges["conflict"].tolist() == [False, False]
    again = SignedGraph.from_edges(graph.edges.drop(columns="conflict"), name="again")
    assert again.hash == graph.hash


def test_the_hash_of_a_graph_is_the_one_it_had_when_layers_were_first_written():
    graph = made(
        ("A", "B", 1, 2, "x"),
        ("B", "A", -1, 1, "y"),
        ("A", "C", 0, 1, "x"),
        ("C", "A", 1, 1, ""),
        ("C", "A", -1, 3, "z"),
    )
    assert graph.hash == "0c924970b78de6a2c83e03706fe69faacbb54310c44daa77033bad2ce0f79865"


def test_the_hash_is_of_edges_and_not_of_their_order_or_name():
    first = made(("A", "B", 1), ("B", "C", -1), name="x")
    assert first.hash == SignedGraph.from_edges(first.edges.iloc[::-1], name="y").hash
    assert first.hash != made(("A", "B", -1), ("B", "C", -1), name="x").hash


def test_nothing_of_a_graph_can_be_changed():
    graph = made(("A", "B", 1))
    for array in (graph.source, graph.sign, graph.sources, graph.conflict, graph.in_order, graph.out_start):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    table = graph.edges
    table["sign"] = -1
    assert signs(graph) == {("A", "B"): 1}
    assert copy.deepcopy(graph) is graph
    back = pickle.loads(pickle.dumps(graph))
    assert back.hash == graph.hash
    assert dict(back.meta) == dict(graph.meta)


def test_a_stored_graph_comes_back_as_it_was():
    graph = made(("A", "B", 1, 4, "x;y"), ("B", "C", 0, 1, "z"), ("B", "A", 1, 1, "z"), ("B", "A", -1, 1, "z"))
    back = SignedGraph.stored(graph.edges, meta=graph.meta)
    pd.testing.assert_frame_equal(back.edges, graph.edges)
    assert back.hash == graph.hash


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_edges_can_be_walked_from_both_ends(seed):
    rng = np.random.default_rng(seed)
    names = np.array([f"N{number}" for number in range(8)], dtype=object)
    table = pd.DataFrame({"source": rng.choice(names, 25), "target": rng.choice(names, 25), "sign": 1})
    table = table.loc[table["source"] != table["target"]]
    graph = SignedGraph.from_edges(table, name="drawn")
    pairs = set(zip(table["source"], table["target"], strict=True))
    leaving = {
        (graph.nodes[node], graph.nodes[graph.target[edge]])
        for node in range(len(graph.nodes))
        for edge in range(graph.out_start[node], graph.out_start[node + 1])
    }
    arriving = {
        (graph.nodes[graph.source[graph.in_order[place]]], graph.nodes[node])
        for node in range(len(graph.nodes))
        for place in range(graph.in_start[node], graph.in_start[node + 1])
    }
    assert leaving == arriving == pairs
    degrees = graph.degrees
    assert degrees["out"].to_dict() == {name: sum(a == name for a, _ in pairs) for name in graph.nodes}
    assert degrees["in"].to_dict() == {name: sum(b == name for _, b in pairs) for name in graph.nodes}


def test_rewiring_keeps_every_degree_of_every_sign_and_little_else():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 60, (900, 2)), columns=["source", "target"]).astype(str)
    table["sign"] = rng.integers(-1, 2, len(table))
    graph = SignedGraph.from_edges(table, name="drawn")
    other = graph.rewired(np.random.default_rng(1))
    for sign in (-1, 0, 1):
        for side in ("source", "target"):
            before, after = (
                np.bincount(getattr(one, side)[one.sign == sign], minlength=len(graph.nodes)) for one in (graph, other)
            )
            np.testing.assert_array_equal(before, after)
    pairs = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    switched = set(zip(other.source.tolist(), other.target.tolist(), strict=True))
    assert len(switched) == len(other) == len(graph)
    assert (other.source != other.target).all()
    assert len(pairs & switched) < 0.5 * len(pairs)
    assert other.hash == graph.rewired(np.random.default_rng(1)).hash != graph.rewired(np.random.default_rng(2)).hash


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ([("A", "B", 2)], "sign"),
        ([("A", "B", "up")], "sign"),
        ([("A", "", 1)], "target"),
        ([(None, "B", 1)], "source"),
        ([("A", "B", 1, 0.5)], "evidence"),
        ([("A", "B", 1, -1)], "evidence"),
        ([("A", "B", 0, 1, "x", "yes")], "conflict"),
        ([("A", "B", 0, 1, "x", None)], "conflict"),
    ],
)
def test_rows_that_are_no_edges_are_refused(rows, key):
    with pytest.raises(InputError) as caught:
        made(*rows)
    assert caught.value.key == key


def test_a_table_without_its_columns_is_refused():
    with pytest.raises(InputError, match="lack columns"):
        SignedGraph.from_edges(pd.DataFrame({"source": ["A"], "sign": [1]}), name="x")
