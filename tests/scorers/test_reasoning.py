"""Reasons on whole folds: the simulated screen's true mechanism, nulls and controls by hand, and what stands apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reasons_by_hand as reasons

from pertbase._io import plain
from pertbase.errors import InputError
from pertbase.folds import Answers, FoldSpec, Part, Perturbation, Truth
from pertbase.knowledge import SignedGraph, relation_sign
from pertbase.scorers import REASON_SCORES, ReasonScores, outcome, reasoning
from pertbase.scorers._reasoning._nulls import Graph
from pertbase.simulate import true_paths

UP, DOWN = "activates", "inhibits"
P1 = Perturbation.genetic(["A"], "CRISPRi")


def asked(*rows: dict[str, Any], perturbations: tuple[Perturbation, ...] = (P1,)) -> Truth:
    """Return a truth of a few questions; what a row leaves out: A is knocked down in K, and D goes down."""
    base = {
        "context": "K", "perturbation": P1.name, "target_set": "gene:A", "gene": "D", "regime": "", "outcome": "down",
        "effect": np.nan, "p_value": np.nan, "candidate_paths": [], "reference_paths": [],
    }  # fmt: skip
    table = pd.DataFrame([{"id": f"q{number}", **base, **row} for number, row in enumerate(rows)])
    return Truth(table, "toy", "h", perturbations={item.name: item for item in perturbations})


def said(truth: Truth, *triplets: Any, outcomes: Any = None) -> Answers:
    ids = truth.questions["id"]
    table = pd.DataFrame({"id": ids, "outcome": truth.questions["outcome"] if outcomes is None else outcomes})
    return Answers(table, pd.DataFrame({"id": ids, "triplets": list(triplets)}))


GOLD = [("A", UP, "B"), ("B", UP, "D")]
OTHER = [("A", DOWN, "C"), ("C", UP, "D")]


# -- the simulated screen -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mechanism(maker, simulation):  # type: ignore[no-untyped-def]
    """A fold of the simulated screen with true paths as references, the generating graph, and the true answers."""
    fold = maker.make(FoldSpec(kind="combinatorial"))
    questions = fold.truth.questions
    paths = true_paths(simulation, questions)
    truth = replace(fold.truth, questions=questions.assign(reference_paths=paths, candidate_paths=paths))
    graph = SignedGraph.from_edges(simulation.truth.network[["source", "target", "sign"]], name="generating")
    answered = questions["outcome"].notna()
    answers = said(
        replace(truth, questions=truth.questions[answered]),
        *(path[0] if path else () for path, keep in zip(paths, answered, strict=True) if keep),
    )
    return truth, answers, graph, simulation.gene_sets


@pytest.fixture(scope="module")
def scores(mechanism) -> ReasonScores:  # type: ignore[no-untyped-def]
    truth, answers, graph, sets = mechanism
    return reasoning(answers, truth, graph=graph, gene_sets=sets)


def changed(answers: Answers, how) -> Answers:  # type: ignore[no-untyped-def]
    kept = answers.reasons
    assert kept is not None
    return replace(answers, reasons=kept.assign(triplets=[tuple(map(how, item)) for item in kept["triplets"]]))


def test_the_true_mechanism_has_one_on_every_score(scores) -> None:  # type: ignore[no-untyped-def]
    assert scores.n > 400
    assert scores.simulated
    assert list(scores.scores.index) == list(REASON_SCORES)
    assert (scores.scores["value"] == 1).all()
    assert all(interval.value == 1 for interval in scores.axes.values())
    assert scores.taxonomy["right_answer_right_reason"] == scores.n
    assert (scores.scores["n"] > 100).all()


def test_controls_on_the_true_mechanism_score_as_the_table_says(scores) -> None:  # type: ignore[no-untyped-def]
    rows = scores.controls
    assert (rows.loc[["reference", "copied", "random_path"]] == 1).all(axis=None)
    assert rows.loc["both_signs", ["precision", "edge_recall", "connected", "consistent"]].tolist() == [0.5, 1, 1, 0]
    assert rows.loc["all_activates", "edge_recall"] == 1
    assert rows.loc["all_activates", "f1"] < 0.8
    assert rows.loc["invented", ["connected", "consistent", "consistent_any"]].tolist() == [1, 1, 1]
    assert rows.loc["invented", "f1"] < 0.3
    assert rows.loc["reachable", ["edge_recall", "f1", "consistent"]].tolist() == [1, 0, 0]
    assert (rows.loc["empty"] == 0).all()


def test_controls_stand_on_the_axes_and_follow_the_context_or_not(scores) -> None:  # type: ignore[no-untyped-def]
    rows = scores.control_axes
    assert (rows[["invalid", "wrong_answer_right_reason", "wrong_answer_wrong_reason"]] == 0).all(axis=None)
    assert rows.loc["copied", ["right_reason", "consistent", "right_answer_right_reason"]].tolist() == [1, 1, scores.n]
    # Both signs on every edge have F1 2/3, and imply both outcomes: the axis of agreement sees it.
    assert rows.loc["both_signs", ["right_reason", "consistent"]].tolist() == [1, 0]
    assert rows.loc["empty", ["right_reason", "no_reason"]].tolist() == [0, scores.n]
    assert rows.loc["reference", "claimed_distance"] == pytest.approx(scores.contexts.reference_distance.value)
    assert rows.loc["reference", "correlation"] == pytest.approx(1)
    assert rows.loc["empty", "claimed_distance"] == 0


def test_reversed_and_flipped_mechanisms_have_none_of_it(mechanism) -> None:  # type: ignore[no-untyped-def]
    truth, answers, graph, _ = mechanism
    turned = reasoning(changed(answers, lambda item: (item[2], item[1], item[0])), truth, graph=graph)
    assert turned.scores.loc[["precision", "recall", "f1", "edge_recall", "connected"], "value"].tolist() == [0] * 5
    other = {UP: DOWN, DOWN: UP}
    flipped = reasoning(changed(answers, lambda item: (item[0], other[item[1]], item[2])), truth, graph=graph)
    assert flipped.scores.loc[["f1", "grounded_graph"], "value"].tolist() == [0, 0]
    assert flipped.scores.loc[["edge_recall", "connected"], "value"].tolist() == [1, 1]


def test_the_true_mechanism_stands_clear_of_its_nulls(scores) -> None:  # type: ignore[no-untyped-def]
    table = scores.scores
    assert table.loc["f1", "rewired"] < 0.05
    assert table.loc["grounded_graph", "rewired"] < 0.2
    assert 0.3 < table.loc["consistent", "labels"] < 0.7
    assert table.loc["f1", "contexts_n"] > 100
    assert table.loc["f1", "contexts_low"] < table.loc["f1", "contexts_excess"] < table.loc["f1", "contexts_high"]


def test_scores_of_a_fold_are_those_of_its_questions_one_by_one(mechanism, rng) -> None:  # type: ignore[no-untyped-def]
    truth, answers, graph, _ = mechanism
    table = answers.table.sample(frac=1, random_state=1, ignore_index=True)
    outcomes = rng.choice(np.array(["up", "down", "no_change"], dtype=object), len(table))
    edges = graph.edges[["source", "sign", "target"]].to_numpy()

    def shaken(item):  # type: ignore[no-untyped-def]
        head, sign, tail = (
            edges[rng.integers(len(edges))] if rng.random() < 0.4 else (item[0], relation_sign(item[1]), item[2])
        )
        return head, reasons.WORDS[int(sign) * int(rng.choice([1, -1]))], tail

    noisy = replace(changed(answers, shaken), table=table.assign(outcome=outcomes)[["id", "outcome"]])
    found = reasoning(noisy, truth, graph=graph).records.sample(150, random_state=0)
    about = truth.questions.set_index("id")
    own = noisy.reasons.set_index("id")["triplets"]
    for row in found.to_dict("records"):
        question = about.loc[row["id"]]
        claimed, reference = (
            [(head, relation_sign(word), tail) for head, word, tail in path]
            for path in (own[row["id"]], question["reference_paths"][0])
        )
        expected = reasons.brute_force(
            claimed, [reference], start=truth.perturbations[question["perturbation"]].signs, readout=question["gene"],
            outcome=row["outcome"], given=[reference], edges=[tuple(edge) for edge in edges],
        )  # fmt: skip
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name


def test_outcomes_are_scored_as_without_reasons_and_conflict_is_a_stratum(mechanism) -> None:  # type: ignore[no-untyped-def]
    truth, answers, _, _ = mechanism
    assert outcome(answers, truth).by_conflict is None
    flag = np.arange(len(truth.questions)) % 3 == 0
    marked = outcome(answers, replace(truth, questions=truth.questions.assign(conflict=flag)))
    assert marked.balanced_accuracy == outcome(answers, truth).balanced_accuracy
    assert marked.by_conflict is not None
    assert marked.by_conflict["n"].to_dict() == {
        "conflict": int((flag & truth.questions["outcome"].notna()).sum()),
        "no conflict": int((~flag & truth.questions["outcome"].notna()).sum()),
    }
    assert marked.to_dict()["by_conflict"]["conflict"]["n"] == marked.by_conflict.loc["conflict", "n"]


def test_answers_without_reasons_score_nothing_and_stay_in_every_denominator(mechanism) -> None:  # type: ignore[no-untyped-def]
    truth, answers, graph, sets = mechanism
    silent = reasoning(replace(answers, reasons=None), truth, graph=graph, gene_sets=sets)
    assert (silent.scores["value"] == 0).all()
    assert silent.taxonomy["no_reason"] == silent.n
    assert silent.n_with_reason == 0
    partial = replace(answers, reasons=answers.reasons.iloc[::2])
    assert reasoning(partial, truth).n == silent.n


def test_no_number_is_shown_without_nulls_and_controls(scores) -> None:  # type: ignore[no-untyped-def]
    for shown in (repr(scores), scores._repr_html_()):
        for row in ("null: labels", "null: rewired", "null: contexts", "control: copied", "control: invented"):
            assert row in shown
        assert "simulated" in shown
    text = json.dumps(plain(scores.to_dict()), allow_nan=False)
    assert json.loads(text)["controls"]["copied"]["f1"] == 1


# -- by hand ------------------------------------------------------------------------------------------------


def test_the_null_of_labels_is_the_mean_over_outcomes_as_often_as_they_are_true() -> None:
    paths = {"candidate_paths": [GOLD, OTHER]}
    truth = asked(
        {**paths, "reference_paths": [GOLD]},
        {**paths, "reference_paths": [OTHER], "outcome": "up", "gene": "D", "context": "L"},
        {**paths, "reference_paths": [GOLD], "context": "M"},
    )
    found = reasoning(said(truth, GOLD, GOLD, [("A", UP, "B")]), truth).scores
    # down in two of three: F1 with the paths that imply down is 1, 1, 2/3, with those that imply up 0.
    assert found.loc["f1", "labels"] == pytest.approx(2 / 3 * (1 + 1 + 2 / 3) / 3)
    assert found.loc["f1", "value"] == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert found.loc["f1", "labels_excess"] == pytest.approx(found.loc["f1", "value"] - found.loc["f1", "labels"])


def test_grounding_in_the_prompt_is_in_the_paths_that_were_shown() -> None:
    rows = {"candidate_paths": [GOLD], "reference_paths": [GOLD]}
    truth = asked(rows, {**rows, "context": "L"}, {**rows, "context": "M"})
    answers = said(truth, GOLD, OTHER, GOLD)
    shown = {"q0": [GOLD], "q1": [OTHER], "q2": None}
    found, candidates = reasoning(answers, truth, shown=shown), reasoning(answers, truth)
    assert candidates.records["grounded_prompt"].tolist() == [1, 0, 1]
    assert found.records["grounded_prompt"].tolist()[:2] == [1, 1]
    assert np.isnan(found.records["grounded_prompt"].iloc[2])
    # Controls and nulls stay what they are: they are made of candidates.
    pd.testing.assert_frame_equal(found.controls, candidates.controls)
    pd.testing.assert_frame_equal(found.scores.drop("grounded_prompt"), candidates.scores.drop("grounded_prompt"))
    assert found.controls.loc["copied", "grounded_prompt"] == 1


def test_paths_of_one_sign_alone_have_no_excess_over_labels() -> None:
    truth = asked({"candidate_paths": [GOLD], "reference_paths": [GOLD]}, {"outcome": "up", "context": "L"})
    found = reasoning(said(truth, GOLD, ()), truth).scores
    assert found.loc["f1", "labels_excess"] == 0


def test_the_null_of_contexts_is_the_reference_of_the_next_context() -> None:
    truth = asked(
        {"reference_paths": [GOLD]}, {"reference_paths": [OTHER], "context": "L", "outcome": "up"},
        {"reference_paths": [GOLD], "context": "M", "gene": "E"},
    )  # fmt: skip
    found = reasoning(said(truth, GOLD, [*GOLD, *OTHER], GOLD), truth)
    row = found.scores.loc["f1"]
    assert row["contexts_n"] == 2
    assert row["contexts"] == pytest.approx((0 + 2 / 3) / 2)
    assert found.contexts is not None
    assert found.contexts.n_pairs == 1
    assert found.contexts.claimed_distance.value == 0.5
    assert found.contexts.reference_distance.value == 1


def test_answers_are_compared_where_effects_differ_by_a_test() -> None:
    rows = [
        {"effect": -1.0, "p_value": 1e-6}, {"effect": 1.0, "p_value": 1e-6, "outcome": "up", "context": "L"},
        # Called in one context alone, for want of cells.
        {"effect": -1.0, "p_value": 1e-6, "gene": "E"},
        {"effect": -0.9, "p_value": 0.3, "outcome": "no_change", "context": "L", "gene": "E"},
    ]  # fmt: skip
    truth = asked(*rows)
    found = reasoning(said(truth, (), (), (), (), outcomes=["down", "down", "down", "down"]), truth).contexts
    assert found is not None
    assert (found.n_discordant, found.n_untested) == (1, 1)
    assert found.flipped.value == 0
    both = reasoning(said(truth, (), (), (), ()), truth).contexts
    assert both is not None
    assert both.flipped.value == both.both_right.value == 1


def test_a_rewired_graph_keeps_the_degrees_of_every_gene_and_sign(mechanism, rng) -> None:  # type: ignore[no-untyped-def]
    _, _, signed, _ = mechanism
    graph = Graph(len(signed.nodes), *(np.asarray(side, dtype=np.int64) for side in (signed.source, signed.target)),
                  signed.sign.astype(np.int64), signed.evidence.astype(np.int64))  # fmt: skip
    tail = graph.rewired(rng)
    assert (tail != graph.tail).mean() > 0.8
    for sign in (-1, 1):
        rows = graph.sign == sign
        assert np.array_equal(np.bincount(tail[rows]), np.bincount(graph.tail[rows]))


def test_axes_are_kept_apart_and_cells_are_exclusive() -> None:
    gold = {"reference_paths": [GOLD], "candidate_paths": [GOLD]}
    truth = asked(*({**gold, "context": name} for name in "KLMNOPQ"))
    said_outcomes = ["down", "down", "up", "up", "down", None, None]
    answers = said(truth, GOLD, OTHER, GOLD, OTHER, (), GOLD, (), outcomes=said_outcomes)
    found = reasoning(answers, truth)
    assert found.taxonomy == {
        "invalid": 2, "no_reason": 1, "right_answer_right_reason": 1, "right_answer_wrong_reason": 1,
        "wrong_answer_right_reason": 1, "wrong_answer_wrong_reason": 1,
    }  # fmt: skip
    # A right reason implies the right answer: asking for agreement empties the cell.
    joined = reasoning(answers, truth, preset="joined").taxonomy
    assert joined["wrong_answer_right_reason"] == 0
    assert sum(joined.values()) == 7
    assert found.causes == {"low_f1": 4, "unconnected": 2, "ungrounded": 4, "inconsistent": 3}
    assert found.axes["right_answer"].value == pytest.approx(3 / 7)
    assert (found.by_axes["n"].sum(), found.records["cell"].nunique()) == (7, 6)
    # At the preset's own threshold the sweep has its cells; a harder one has fewer right reasons.
    assert found.sweep.loc[0.5].to_dict() == {name: found.taxonomy[name] for name in found.sweep}
    assert (found.sweep[["right_answer_right_reason"]].diff().dropna() <= 0).all(axis=None)


def test_questions_without_a_reference_or_without_a_change_stand_apart() -> None:
    opposing = {"candidate_paths": [GOLD, OTHER], "reference_paths": [GOLD, OTHER], "outcome": "no_change"}
    truth = asked(
        {"reference_paths": [GOLD]}, {"context": "L"}, {**opposing, "context": "M"},
        {"outcome": "no_change", "context": "N"},
    )  # fmt: skip
    found = reasoning(said(truth, GOLD, GOLD, [*GOLD, *OTHER], ()), truth)
    assert (found.n, found.n_without_reference) == (1, 1)
    assert found.scores.loc["f1", ["value", "n", "excluded"]].tolist() == [1, 1, 1]
    apart = found.no_change.loc["answers"]
    assert apart[["n", "with_reference", "with_reason", "f1", "consistent"]].tolist() == [2, 1, 1, 1, 1]
    assert found.without_reference.loc["answers", ["n", "connected"]].tolist() == [1, 1]
    assert "copied" in found.no_change.index


def test_saying_nothing_agrees_with_no_change_only_where_nothing_changes() -> None:
    truth = asked({"reference_paths": [GOLD]}, {"context": "L"}, {"outcome": "no_change", "context": "M"})
    found = reasoning(said(truth, (), (), (), outcomes=["no_change"] * 3), truth)
    assert found.scores.loc[["consistent", "consistent_any"], "value"].tolist() == [0, 0]
    assert found.without_reference.loc["answers", "consistent"] == 0
    assert found.no_change.loc["answers", "consistent"] == 1


def test_what_cannot_be_understood_is_claimed_and_counted() -> None:
    truth = asked({"reference_paths": [GOLD]})
    claimed = [*GOLD, ("B", UP, "aspirin"), ("B", "frobnicates", "D"), ("D", UP, "D"), ("b", "induces", "d")]
    found = reasoning(said(truth, claimed), truth)
    assert found.set_aside == {
        "given": 6, "self_loops": 1, "repeated": 1, "unknown_relations": 1, "unresolved": 1, "restated": 0,
    }  # fmt: skip
    assert found.scores.loc["precision", "value"] == 0.5
    assert any("no known gene" in note for note in found.notes)
    assert any("no known word" in note for note in found.notes)


def test_a_drug_starts_at_its_targets_and_naming_it_is_no_claim() -> None:
    drug = Perturbation((Part("drug", (("A", -1), ("X", -1)), "Trametinib", 1.0),))
    truth = asked({"perturbation": drug.name, "reference_paths": [GOLD]}, perturbations=(drug,))
    claimed = [("trametinib", DOWN, "A"), *GOLD]
    found = reasoning(said(truth, claimed), truth)
    assert found.scores.loc[["precision", "connected", "consistent"], "value"].tolist() == [1, 1, 1]
    assert found.set_aside["restated"] == 1
    # To something it does not act on, it is a claim like any other.
    strayed = reasoning(said(truth, [("trametinib", DOWN, "B"), *GOLD]), truth)
    assert strayed.scores.loc["precision", "value"] == pytest.approx(2 / 3)


def test_a_combination_has_one_start_a_target() -> None:
    pair = Perturbation.genetic(["A", "C"], "CRISPRa")
    truth = asked({"perturbation": pair.name, "outcome": "up", "reference_paths": [GOLD]}, perturbations=(pair,))
    assert reasoning(said(truth, [("C", UP, "D")]), truth).scores.loc["consistent", "value"] == 1
    assert reasoning(said(truth, [("C", DOWN, "D"), *GOLD]), truth).scores.loc["consistent", "value"] == 0


def test_strata_part_the_questions(scores) -> None:  # type: ignore[no-untyped-def]
    counts = scores.strata.groupby("by")["n"].sum()
    assert (counts == scores.n).all()
    assert {"evidence", "conflict", "context"} <= set(counts.index)
    assert {"f1_copied", "f1_null_labels", "f1_invented"} <= set(scores.strata.columns)


def test_a_fold_without_references_or_perturbations_is_refused(mechanism) -> None:  # type: ignore[no-untyped-def]
    truth, answers, _, _ = mechanism
    with pytest.raises(InputError, match="no reference paths"):
        reasoning(answers, replace(truth, questions=truth.questions.drop(columns="reference_paths")))
    with pytest.raises(InputError, match="what is perturbed"):
        reasoning(answers, replace(truth, perturbations=None))
    with pytest.raises(InputError, match="Did you mean 'joined'"):
        reasoning(answers, truth, preset="joind")
    with pytest.raises(InputError, match="not asked"):
        reasoning(Answers(pd.DataFrame({"id": ["x"], "outcome": ["up"]})), truth)
