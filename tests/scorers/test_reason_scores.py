"""The scores of one reason: the gaming table, an independent computation, and what must hold for all of them."""

from __future__ import annotations

import math
import random

import pandas as pd
import pytest
import reasons_by_hand as reasons
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from pertbase.errors import InputError
from pertbase.knowledge import GeneNames, SignedGraph
from pertbase.scorers import REASON_SCORES, reason_scores

GOLD, written = reasons.GOLD, reasons.written

ASKED = {"start": {"A": -1}, "readout": "D", "outcome": "down"}
CONTEXT = [*GOLD, ("B", 1, "C"), ("A", 1, "B"), ("E", -1, "D"), ("A", 1, "E")]
BOTH = [*GOLD, *((head, -sign, tail) for head, sign, tail in GOLD)]
SHOWN = ("precision", "recall", "edge_recall", "connected", "consistent")


def scored(claimed, references=(GOLD,), **asked):  # type: ignore[no-untyped-def]
    return reason_scores(written(claimed), [written(path) for path in references], **{**ASKED, **asked})


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        (GOLD, (1, 1, 1, 1, 1)),
        (CONTEXT, (3 / 7, 1, 1, 1, 0)),
        (BOTH, (0.5, 1, 1, 1, 0)),
        ([(head, 1, tail) for head, _, tail in GOLD], (1 / 3, 1 / 3, 1, 1, 1)),
        ([("A", 1, "D")], (0, 0, 0, 1, 1)),
        ([(tail, sign, head) for head, sign, tail in GOLD], (0, 0, 0, 0, 0)),
        ([(head, -sign, tail) for head, sign, tail in GOLD], (0, 0, 1, 1, 0)),
        ([], (0, 0, 0, 0, 0)),
    ],
    ids=["gold", "copied", "both signs", "all activates", "invented", "reversed", "flipped", "empty"],
)
def test_games_on_a_three_edge_reference_score_as_the_table_says(claimed, expected) -> None:  # type: ignore[no-untyped-def]
    found = scored(claimed)
    assert [found[name] for name in SHOWN] == pytest.approx(expected, abs=1e-15)


def test_the_true_reason_has_one_on_every_score() -> None:
    graph = SignedGraph.from_edges(pd.DataFrame(GOLD, columns=["source", "sign", "target"]), name="g")
    sets = {"S": ("B", "C", "X"), "T": ("B", "Y")}
    found = scored(GOLD, graph=graph, gene_sets=sets, given=[written(CONTEXT)])
    assert found == dict.fromkeys(REASON_SCORES, 1.0)


NODES = "ABCDEF"
TRIPLETS = st.tuples(st.sampled_from(NODES), st.sampled_from([-1, 0, 1]), st.sampled_from(NODES))
SETS = st.lists(TRIPLETS, max_size=12)
PATHS = st.lists(st.lists(TRIPLETS, max_size=4), max_size=3)
STARTS = st.dictionaries(st.sampled_from("ABC"), st.sampled_from([-1, 0, 1]), max_size=2)
OUTCOMES = st.sampled_from(["up", "down", "no_change", None])
EDGES = st.lists(TRIPLETS.filter(lambda item: item[0] != item[2]), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(SETS, PATHS, STARTS, OUTCOMES, PATHS, EDGES)
def test_every_score_is_that_of_sets_and_networkx(claimed, references, start, outcome, shown, edges) -> None:  # type: ignore[no-untyped-def]
    # A graph keeps one sign a pair.
    edges = list({(head, tail): (head, sign, tail) for head, sign, tail in edges}.values())
    graph = SignedGraph.from_edges(pd.DataFrame(edges, columns=["source", "sign", "target"]), name="g")
    found = reason_scores(
        written(claimed), [written(path) for path in references], start=start, readout="F", outcome=outcome,
        given=[written(path) for path in shown], graph=graph,
    )  # fmt: skip
    expected = reasons.brute_force(
        claimed, references, start=start, readout="F", outcome=outcome, given=shown, edges=edges
    )
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name


@settings(max_examples=150, deadline=None)
@given(SETS, SETS, st.dictionaries(st.sampled_from("QRSTU"), st.sets(st.sampled_from(NODES), min_size=1), min_size=1))
def test_similarity_by_gene_sets_is_that_of_its_definition(claimed, reference, sets) -> None:  # type: ignore[no-untyped-def]
    sets = {name: tuple(sorted(genes)) for name, genes in sets.items()}
    found = reason_scores(
        written(claimed), [written(reference)], start={"A": -1}, readout="F", outcome="up", gene_sets=sets
    )
    inner = [{n for h, _, t in reasons.plain(side) for n in (h, t)} - {"A", "F"} for side in (claimed, reference)]
    expected = reasons.gene_set_scores(*inner, sets)
    for name, value in zip(("go_union", "go_weighted", "go_best_match"), expected, strict=True):
        assert found[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name


def test_similarity_by_hand() -> None:
    # Of four annotated genes: S holds two, T one, U all. B is in S and U, C in T and U.
    sets = {"S": ("B", "X"), "T": ("C",), "U": ("B", "C", "X", "Y")}
    claimed, reference = [("A", 1, "B"), ("B", 1, "D")], [("A", 1, "C"), ("C", 1, "D")]
    found = scored(claimed, [reference], gene_sets=sets)
    assert found["go_union"] == pytest.approx(1 / 3)
    # U holds all genes: that both are in it says nothing.
    assert found["go_weighted"] == 0
    assert found["go_best_match"] == pytest.approx(1 / 3)


def test_gene_sets_of_another_year_hold_the_same_genes() -> None:
    names = GeneNames(approved={"MARCHF1": "MARCHF1"}, previous={"MARCH1": "MARCHF1"})
    sets = {"S": ("MARCH1", "MARCHF1", "X"), "T": ("X", "Y")}
    path = [("A", 1, "march1"), ("march1", 1, "D")]
    found = scored(path, [[("A", 1, "MARCHF1"), ("MARCHF1", 1, "D")]], gene_sets=sets, names=names)
    assert found["go_union"] == found["go_weighted"] == found["go_best_match"] == 1


def test_precision_recall_and_f1_are_scikit_learns() -> None:
    rng = random.Random(0)
    every = [(head, sign, tail) for head in NODES for sign in (-1, 0, 1) for tail in NODES if head != tail]
    for _ in range(20):
        claimed, reference = (rng.sample(every, rng.randint(1, 30)) for _ in range(2))
        true, said = ([item in side for item in every] for side in (reference, claimed))
        expected = precision_recall_fscore_support(true, said, average="binary", zero_division=0)[:3]
        found = scored(claimed, [reference])
        assert [found[name] for name in ("precision", "recall", "f1")] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(SETS, PATHS.filter(lambda paths: any(reasons.plain(path) for path in paths)), STARTS, OUTCOMES)
def test_scores_are_shares_and_blind_to_order_repetition_and_self_loops(claimed, references, start, outcome) -> None:  # type: ignore[no-untyped-def]
    asked = {"start": start, "readout": "F", "outcome": outcome, "given": [written(path) for path in references]}
    found = scored(claimed, references, **asked)
    assert all(math.isnan(value) or 0 <= value <= 1 for value in found.values())
    again = [*reversed(claimed), *claimed, ("C", 1, "C")]
    repeated = scored(again, list(reversed(references)), **asked)
    assert repeated == pytest.approx(found, nan_ok=True)


@settings(max_examples=100, deadline=None)
@given(SETS, st.lists(TRIPLETS, min_size=1, max_size=6).filter(reasons.plain), st.data())
def test_a_right_triplet_more_never_lowers_a_score_and_a_wrong_one_never_raises_precision(
    claimed, reference, data
) -> None:  # type: ignore[no-untyped-def]
    before = scored(claimed, [reference])
    right = data.draw(st.sampled_from(sorted(reasons.plain(reference))))
    after = scored([*claimed, right], [reference])
    for name in ("precision", "recall", "f1", "edge_recall", "best_path"):
        assert after[name] >= before[name] - 1e-12
    wrong = ("X", 1, "Y")
    worse = scored([*claimed, wrong], [reference])
    assert worse["precision"] <= before["precision"]
    assert worse["recall"] == before["recall"]


def test_aliases_and_synonyms_are_the_same_triplet() -> None:
    names = GeneNames(approved={"STAT1": "STAT1", "ERBB2": "ERBB2"}, alias={"HER2": "ERBB2"})
    claimed = [
        ("Her2 protein", "upregulates", "stat1"),
        ("ERBB2", "IncreaseAmount", "STAT1"),
        ("HER2", "induces", "STAT1"),
    ]
    asked = {"start": {"ERBB2": 1}, "readout": "STAT1", "outcome": "up", "names": names}
    found = reason_scores(claimed, [[("ERBB2", "activates", "STAT1")]], **asked)
    assert found["precision"] == found["f1"] == found["consistent"] == 1


def test_a_relation_nobody_knows_is_a_claim_that_no_reference_makes_and_says_no_direction() -> None:
    claimed = [(head, "frobnicates", tail) for head, _, tail in GOLD]
    found = reason_scores(claimed, [written(GOLD)], **ASKED)
    assert found["precision"] == found["f1"] == 0
    assert found["edge_recall"] == found["connected"] == 1
    assert found["consistent"] == found["consistent_any"] == 0


def test_a_complex_is_its_members() -> None:
    found = reason_scores(
        [("A:B", "inhibits", "C")], [[("A", "inhibits", "C")], [("B", "inhibits", "C")]],
        start={"A": 1}, readout="C", outcome="down",
    )  # fmt: skip
    assert found["precision"] == found["recall"] == found["consistent"] == 1
    assert found["best_path"] == pytest.approx(2 / 3)


def test_a_negative_loop_reaches_what_lies_behind_it_with_both_signs() -> None:
    loop = [("A", 1, "B"), ("B", -1, "A"), ("B", 1, "D")]
    found = scored(loop, [loop])
    assert found["consistent"] == 0
    assert found["consistent_any"] == 1
    assert found["on_path"] == 1
    assert scored([("A", 1, "B"), ("B", 1, "A"), ("B", 1, "D")], [loop])["consistent"] == 1


def test_a_chain_of_two_hundred_nodes_is_followed_to_its_end() -> None:
    chain = [(f"N{i}", -1 if i % 2 else 1, f"N{i + 1}") for i in range(200)]
    random.Random(1).shuffle(chain)
    found = scored(chain, [chain], start={"N0": -1}, readout="N200", outcome="down")
    assert found["consistent"] == found["connected"] == found["on_path"] == found["f1"] == 1


def test_names_beyond_ascii_are_names() -> None:
    path = [("ＳＴＡＴ１", "activates", "β‑catenin"), ("β-CATENIN", "activates", "D")]
    asked = {"start": {"STAT1": 1}, "readout": "D", "outcome": "up"}
    reference = [("STAT1", "activates", "β-catenin"), ("β-catenin", "activates", "D")]
    assert reason_scores(path, [reference], **asked)["f1"] == 1


def test_without_a_sign_at_the_start_agreement_is_not_defined() -> None:
    found = scored(GOLD, start={"A": 0})
    assert math.isnan(found["consistent"])
    assert found["connected"] == 1
    assert math.isnan(scored(GOLD, start={})["connected"])


def test_no_change_agrees_with_nothing_reached_and_with_both_signs() -> None:
    assert scored([("X", 1, "Y")], outcome="no_change")["consistent"] == 1
    assert scored(BOTH, outcome="no_change")["consistent"] == 1
    assert scored(GOLD, outcome="no_change")["consistent"] == 0
    assert scored(GOLD, outcome=None)["consistent"] == 0


def test_what_is_no_triplet_is_refused() -> None:
    with pytest.raises(InputError, match="three texts"):
        reason_scores([("A", "activates")], [written(GOLD)], **ASKED)
    with pytest.raises(InputError, match="outcome"):
        scored(GOLD, outcome="upp")
