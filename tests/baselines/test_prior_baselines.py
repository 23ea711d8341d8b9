from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase._metrics import accuracy, balanced_accuracy, confusion, macro_f1
from pertbase.baselines import GenePrior, NoChange, PerturbationPrior
from pertbase.folds import Inputs, Perturbation, Training, outcome_codes

PERTURBQA = Path(__file__).parents[3] / "shared" / "data" / "perturbqa"

# Accuracy, balanced accuracy, macro-F1; fitted on all train rows, every test row.
PUBLISHED = {
    "K562": (0.9202, 0.6121, 0.6468, 0.7637),
    "RPE1": (0.9417, 0.7960, 0.8119, 0.8543),
    "HepG2": (0.9280, 0.7614, 0.7727, 0.8161),
    "Jurkat": (0.9291, 0.7053, 0.7342, 0.7927),
}
NO_CHANGE = {
    "K562": (0.866, 0.309),
    "RPE1": (0.859, 0.308),
    "HepG2": (0.860, 0.308),
    "Jurkat": (0.859, 0.308),
}


def table_fold(questions):
    """Return training and inputs from a table of perturbation, gene, outcome, split."""
    table = questions.assign(
        id=[str(row) for row in range(len(questions))],
        context=questions.get("context", "K"),
        target_set=questions.get("target_set", questions["perturbation"]),
    )
    known, asked = table.loc[table["split"] != "test"], table.loc[table["split"] == "test"]
    genes = pd.Index(table["gene"].unique())
    empty = pd.DataFrame({"context": [], "perturbation": []})
    training = Training("f", "published", "d", 0, known, empty, genes, {}, "mean_log")
    return training, Inputs("test", asked.drop(columns="outcome"), empty, genes, {}, "mean_log"), asked["outcome"]


def small(rows):
    return table_fold(pd.DataFrame(rows, columns=["perturbation", "gene", "outcome", "split"]))


@pytest.fixture(scope="module")
def perturbqa():
    if not PERTURBQA.is_dir():
        pytest.skip("PerturbQA is not on this machine")
    from pertbase.folds import read_perturbqa

    return read_perturbqa(PERTURBQA).table


@pytest.mark.parametrize("line", PUBLISHED)
def test_perturbqa_priors_come_out_to_the_fourth_digit(line, perturbqa):
    training, inputs, outcomes = table_fold(perturbqa.loc[perturbqa["context"] == line].astype({"gene": str}))
    true = outcome_codes(outcomes)

    def counts(baseline):
        return confusion(true, outcome_codes(baseline.fit(training).answer(inputs).table["outcome"]))

    prior = counts(GenePrior())
    balanced = counts(GenePrior(balanced=True))
    found = (accuracy(prior), balanced_accuracy(prior), macro_f1(prior), balanced_accuracy(balanced))
    assert tuple(round(float(value), 4) for value in found) == PUBLISHED[line]
    nothing = counts(NoChange())
    assert (round(float(accuracy(nothing)), 3), round(float(macro_f1(nothing)), 3)) == NO_CHANGE[line]
    assert float(balanced_accuracy(nothing)) == 1 / 3


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (["up", "no_change"], "no_change"),
        (["up", "down"], "down"),
        (["up", "down", "no_change"], "no_change"),
        (["up", "up", "no_change"], "up"),
    ],
)
def test_a_tie_goes_to_no_change_then_down(seen, expected):
    rows = [(f"P{number}", "G", outcome, "train") for number, outcome in enumerate(seen)]
    training, inputs, _ = small([*rows, ("X", "G", None, "test")])
    assert GenePrior().fit(training).answer(inputs).table["outcome"].tolist() == [expected]


def test_a_gene_never_asked_in_training_gets_the_commonest_outcome():
    rows = [("P1", "G", "up", "train"), ("P2", "G", "up", "train"), ("P3", "H", "down", "train")]
    training, inputs, _ = small([*rows, ("X", "new", None, "test")])
    assert GenePrior().fit(training).answer(inputs).table["outcome"].tolist() == ["up"]
    assert GenePrior(balanced=True).fit(training).answer(inputs).table["outcome"].tolist() == ["no_change"]


def test_balancing_divides_by_how_often_an_outcome_occurs():
    # H: 2 up of 2, and 3 no_change of 8: up is the rarer and, weighted, the likelier.
    rows = [(f"P{n}", "H", outcome, "train") for n, outcome in enumerate(["up"] * 2 + ["no_change"] * 3)]
    rows += [(f"P{n}", "other", "no_change", "train") for n in range(5)]
    training, inputs, _ = small([*rows, ("X", "H", None, "test")])
    assert GenePrior().fit(training).answer(inputs).table["outcome"].tolist() == ["no_change"]
    table = GenePrior(balanced=True).fit(training).answer(inputs).table
    assert table["outcome"].tolist() == ["up"]
    # n / p + 1 with p = (.2, 0, .8): 11, 0 (never seen), 4.75.
    scores = table[["score_up", "score_down", "score_no_change"]].to_numpy()[0]
    np.testing.assert_allclose(scores, np.array([11, 0, 4.75]) / 15.75)


def test_ambiguous_questions_are_not_counted():
    rows = [("P1", "G", "up", "train"), ("P2", "G", None, "train"), ("P3", "G", None, "val")]
    training, inputs, _ = small([*rows, ("X", "G", None, "test")])
    assert GenePrior().fit(training).answer(inputs).table["outcome"].tolist() == ["up"]


def test_val_is_counted_too():
    rows = [("P1", "G", "no_change", "train"), ("P2", "G", "up", "val"), ("P3", "G", "up", "val")]
    training, inputs, _ = small([*rows, ("X", "G", None, "test")])
    assert GenePrior().fit(training).answer(inputs).table["outcome"].tolist() == ["up"]


def test_no_change_scores_are_certain():
    training, inputs, _ = small([("P1", "G", "up", "train"), ("X", "G", None, "test"), ("X", "H", None, "test")])
    table = NoChange().fit(training).answer(inputs).table
    assert table[["score_up", "score_down", "score_no_change"]].to_numpy().tolist() == [[0.0, 0.0, 1.0]] * 2


def test_a_perturbation_falls_back_to_its_target_set_then_to_all():
    by_interference = Perturbation.genetic(["A"], "CRISPRi")
    by_activation = Perturbation.genetic(["A"], "CRISPRa")
    table = pd.DataFrame(
        [
            (by_interference.name, "gene:A", "G", "up", "train"),
            (by_interference.name, "gene:A", "H", "up", "train"),
            ("CRISPRi:B", "gene:B", "G", "down", "train"),
            ("CRISPRi:B", "gene:B", "H", "down", "train"),
            ("CRISPRi:B", "gene:B", "I", "down", "train"),
            (by_interference.name, "gene:A", "G", None, "test"),
            (by_activation.name, "gene:A", "G", None, "test"),
            ("CRISPRi:C", "gene:C", "G", None, "test"),
        ],
        columns=["perturbation", "target_set", "gene", "outcome", "split"],
    )
    training, inputs, _ = table_fold(table)
    outcomes = PerturbationPrior().fit(training).answer(inputs).table["outcome"].tolist()
    assert outcomes == ["up", "up", "down"]
