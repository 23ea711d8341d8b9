from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase.adapters import Calibrated
from pertbase.baselines import HubDegree, PathVote, Reachability, refusal
from pertbase.errors import InputError
from pertbase.folds import Perturbation
from pertbase.knowledge import SignedGraph

GENES = ["A", "B", "C", "D", "E", "F"]


def graph(*edges):
    return SignedGraph.from_edges(pd.DataFrame(edges, columns=["source", "target", "sign"]), name="small")


SMALL = graph(("A", "B", 1), ("A", "C", -1), ("B", "D", -1), ("C", "D", -1), ("A", "E", 0), ("T", "E", 1))


@pytest.fixture
def ask(small_fold):
    """Return what a baseline answers about one perturbation, by readout gene."""

    def ask(baseline, perturbation, *, trained=None, values=None, **options):
        trained = trained or {("K", Perturbation.genetic(["A"], "CRISPRi")): np.zeros(len(GENES))}
        rows = [(context, item, "train") for context, item in trained]
        values = np.array([*trained.values(), np.zeros(len(GENES))])
        options.setdefault("graph", SMALL)
        fold = small_fold([*rows, ("K", perturbation, "test")], values, genes=GENES, **options)
        assert refusal(baseline, fold.training) is None
        table = baseline.fit(fold.training).answer(fold.inputs).table.set_index("id")
        table.index = [name.rpartition("|")[2] for name in table.index]
        return table

    return ask


# -- path_vote ----------------------------------------------------------------------------------------------


def test_paths_vote_with_start_and_signs(ask):
    lowered = ask(PathVote(), Perturbation.genetic(["A"], "CRISPRi"))
    assert lowered.loc[["B", "C", "E"], "outcome"].tolist() == ["down", "up", "no_change"]
    raised = ask(PathVote(), Perturbation.genetic(["A"], "CRISPRa"))
    assert raised.loc[["B", "C", "E"], "outcome"].tolist() == ["up", "down", "no_change"]


def test_scores_are_the_summed_weights_of_each_sign_beside_one(ask):
    table = ask(PathVote(gate="none"), Perturbation.genetic(["A"], "CRISPRi"))
    scores = table.loc["D", ["score_up", "score_down", "score_no_change"]].to_numpy(dtype=float)
    # A -> B -| D says up, A -| C -| D says down, each with a weight of 1/4.
    np.testing.assert_allclose(scores, np.array([0.25, 0.25, 1.0]) / 1.5, rtol=1e-5)
    assert table.loc["D", "outcome"] == "no_change"


def test_genes_the_graph_lacks_are_unsupported_and_those_it_does_not_reach_are_not(ask):
    table = ask(PathVote(), Perturbation.genetic(["A"], "CRISPRi"))
    assert table.loc["F", ["outcome", "status"]].tolist() == ["no_change", "unsupported"]
    assert ask(PathVote(), Perturbation.genetic(["D"], "CRISPRi")).loc["B", "status"] == "ok"
    assert (ask(PathVote(), Perturbation.genetic(["NOWHERE"], "CRISPRi"))["status"] == "unsupported").all()


def test_basal_expression_gates_the_votes(ask):
    basal = pd.DataFrame(1.0, index=["K"], columns=GENES).assign(B=0.0)
    table = ask(PathVote(), Perturbation.genetic(["A"], "CRISPRi"), basal=basal)
    assert table.loc["D", "outcome"] == "down"
    assert table.loc["D", "score_up"] < table.loc["D", "score_down"]
    ungated = ask(PathVote(gate="none"), Perturbation.genetic(["A"], "CRISPRi"), basal=basal)
    assert ungated.loc["D", "outcome"] == "no_change"


def test_a_gate_fitted_to_labels_is_refused():
    with pytest.raises(InputError, match="gated by expression, or not at all"):
        PathVote(gate="ks")


# -- control rows -------------------------------------------------------------------------------------------


def trained_on_distance():
    """A perturbation of A whose readouts change one edge away, and do not further on."""
    change = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    return {("K", Perturbation.genetic(["A"], "CRISPRi")): change}


def test_reachability_answers_by_the_length_of_the_shortest_path(ask):
    table = ask(Reachability(), Perturbation.genetic(["B"], "CRISPRi"), trained=trained_on_distance())
    # D is one edge from B, and nothing else is reached.
    assert table["outcome"].to_dict() == {
        "A": "no_change",
        "C": "no_change",
        "D": "up",
        "E": "no_change",
        "F": "no_change",
    } | {"B": table.loc["B", "outcome"]}


def test_reachability_knows_no_signs(ask):
    turned = graph(*[(a, b, -int(s)) for a, b, s in SMALL.edges[["source", "target", "sign"]].itertuples(index=False)])
    first, second = (
        ask(Reachability(), Perturbation.genetic(["B"], "CRISPRa"), trained=trained_on_distance(), graph=one)
        for one in (SMALL, turned)
    )
    pd.testing.assert_frame_equal(first, second)


def test_hubs_are_told_apart_by_powers_of_two_and_by_nothing_else(ask):
    change = np.array([0.0, 1.0, 1.0, -1.0, -1.0, 0.0])
    trained = {("K", Perturbation.genetic(["A"], "CRISPRi")): change}
    # Another gene with as many edges as A has, leading elsewhere.
    edges = [*SMALL.edges[["source", "target", "sign"]].itertuples(index=False), *(("H", f"X{i}", 1) for i in range(3))]
    table = ask(HubDegree(), Perturbation.genetic(["H"], "CRISPRi"), trained=trained, graph=graph(*edges))
    # B and C take one edge in, D and E two.
    assert table.loc[["B", "C", "D", "E"], "outcome"].tolist() == ["up", "up", "down", "down"]


def test_kinds_never_seen_in_training_are_answered_no_change(ask):
    table = ask(HubDegree(), Perturbation.genetic(["NOWHERE"], "CRISPRi"), trained=trained_on_distance())
    assert (table["outcome"] == "no_change").all()


# -- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", [PathVote(), Reachability(), HubDegree()])
def test_folds_without_a_graph_are_refused_with_how_to_name_one(small_fold, baseline):
    rows = [("K", Perturbation.genetic([gene], "CRISPRi"), split) for gene, split in (("A", "train"), ("B", "test"))]
    training = small_fold(rows, np.zeros((2, 6)), genes=GENES).training
    assert "baseline.graph=" in refusal(baseline, training)
    with pytest.raises(InputError, match="there is no graph"):
        baseline.fit(training)
    foreign = replace(training, graph=graph(("X", "Y", 1)))
    assert "for example A" in refusal(baseline, foreign)


def test_a_named_graph_wins_over_the_data_sets_own(small_fold, tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("source\ttarget\tsign\nA\tB\t-1\n", encoding="utf-8")
    rows = [("K", Perturbation.genetic(["A"], "CRISPRi"), split) for split in ("train", "test")]
    fold = small_fold(rows, np.zeros((2, 6)), genes=GENES, graph=SMALL)
    table = PathVote(graph=str(path)).fit(fold.training).answer(fold.inputs).table.set_index("id")
    assert table.filter(like="|B", axis=0)["outcome"].tolist() == ["up"]


@pytest.mark.slow
def test_on_the_simulated_screen_votes_say_more_of_direction_than_reach_alone(maker):
    from pertbase.folds import FoldSpec, outcome_codes

    fold = maker.make(FoldSpec(kind="unseen_perturbation_genetic"))
    training, inputs = fold.make_training(seed=0, cells=False), fold.inputs("test", cells=False)
    known = fold.truth.questions.dropna(subset="outcome")
    right = {}
    for baseline in (PathVote(), Reachability()):
        said = baseline.fit(training).answer(inputs)
        table = Calibrated().fit(training, baseline).answer(inputs, said).table.set_index("id").loc[known["id"]]
        called = known["outcome"].isin(("up", "down")).to_numpy() & table["outcome"].isin(("up", "down")).to_numpy()
        codes = outcome_codes(table["outcome"]), outcome_codes(known["outcome"])
        right[type(baseline).__name__] = float((codes[0] == codes[1])[called].mean())
    assert right["PathVote"] > right["Reachability"] + 0.1
