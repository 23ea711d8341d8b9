from __future__ import annotations

import numpy as np
import pytest

from pertbase.baselines import AskedElsewhere, BasalExpression, ContextMean, CrossContext, PerturbedMean, refusal
from pertbase.folds import Perturbation, outcome_codes

A, B, C = (Perturbation.genetic([gene], "CRISPRi") for gene in "ABC")


def test_context_mean_averages_conditions_not_cells(small_fold):
    rows = [("K", A, "train"), ("K", B, "val"), ("L", A, "train"), ("K", C, "test"), ("M", C, "test")]
    values = np.array([[1.0, 0.0], [3.0, 1.0], [5.0, 2.0], [0, 0], [0, 0]])
    fold = small_fold(rows, values, n_cells=[10, 1000, 10, 1, 1])
    predicted = ContextMean().fit(fold.training).predict(fold.inputs)
    # K: the mean of its two conditions; M has none, so the mean of all three.
    np.testing.assert_allclose(predicted.values, [[2.0, 0.5], [3.0, 1.0]])
    assert (predicted.status == "ok").all()


def test_perturbed_mean_averages_cells_not_conditions(small_fold):
    rows = [("K", A, "train"), ("K", B, "val"), ("L", A, "train"), ("K", C, "test"), ("M", C, "test")]
    values = np.array([[1.0, 0.0], [3.0, 1.0], [5.0, 2.0], [0, 0], [0, 0]])
    fold = small_fold(rows, values, n_cells=[10, 60, 30, 1, 1])
    predicted = PerturbedMean().fit(fold.training).predict(fold.inputs)
    np.testing.assert_allclose(predicted.values, [[3.4, 1.2]] * 2)


def test_cross_context_averages_the_perturbation_over_training_contexts(small_fold):
    rows = [("K", A, "train"), ("L", A, "val"), ("K", B, "train"), ("M", A, "test"), ("M", C, "test")]
    values = np.array([[1.0, 0.0], [3.0, 1.0], [5.0, 2.0], [0, 0], [0, 0]])
    fold = small_fold(rows, values)
    predicted = CrossContext().fit(fold.training).predict(fold.inputs)
    np.testing.assert_allclose(predicted.values, [[2.0, 0.5], [3.0, 1.0]])


def test_cross_context_votes_where_there_is_no_expression(small_fold):
    contexts = ["K", "L", "N"]
    rows = [*((context, A, "train") for context in contexts), ("M", A, "test"), ("M", C, "test")]
    values = np.array([[1.0, -1.0], [1.0, 0.0], [0.0, 0.0], [0, 0], [0, 0]])
    fold = small_fold(rows, values, expression=False)
    table = CrossContext().fit(fold.training).answer(fold.inputs).table
    assert table["outcome"].tolist() == ["up", "no_change", "no_change", "no_change"]
    assert table["status"].tolist() == ["ok", "ok", "unsupported", "unsupported"]


def test_asked_elsewhere_takes_being_asked_for_a_change(small_fold):
    rows = [("K", A, "train"), ("K", B, "train"), ("L", B, "val"), ("M", A, "test"), ("M", C, "test")]
    values = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0, 0, 0], [0, 0, 0]])
    fold = small_fold(rows, values, expression=False)
    table = AskedElsewhere().fit(fold.training).answer(fold.inputs).table
    # G0 rose twice; G1 rose and fell once each: down; G2 never changed: the commonest direction of all is up.
    assert table["outcome"].tolist() == ["up", "down", "up", *["no_change"] * 3]
    assert table["status"].tolist() == [*["ok"] * 3, *["unsupported"] * 3]


@pytest.mark.parametrize("kind", ["published", "unseen_perturbation_genetic", "combinatorial"])
def test_nothing_was_asked_elsewhere_where_perturbations_are_held_out(kind, small_fold):
    fold = small_fold([("K", A, "train"), ("K", B, "test")], np.zeros((2, 2)), kind=kind, expression=False)
    for baseline in (AskedElsewhere(), CrossContext()):
        assert "none was asked in another context" in refusal(baseline, fold.training)


def test_basal_expression_is_a_class_balanced_logistic_regression(mixed_fold):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fold = mixed_fold(3, n_genes=60)
    found = BasalExpression().fit(fold.training).answer(fold.inputs).table

    def features(questions):
        level = np.array([fold.inputs.basal.loc[c, g] for c, g in zip(questions["context"], questions["gene"])])  # noqa: B905
        return np.column_stack([level, level**2, np.log(level + 0.01)])

    known = fold.training.headline
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
    model.fit(features(known), outcome_codes(known["outcome"]))
    expected = model.predict_proba(features(fold.inputs.questions))
    scores = found[["score_up", "score_down", "score_no_change"]].to_numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-3)
    assert scores.std(axis=0).min() > 1e-3


def test_basal_expression_never_answers_an_outcome_it_has_not_seen(small_fold):
    rows = [("K", A, "train"), ("K", B, "train"), ("K", C, "test")]
    values = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0] * 4])
    fold = small_fold(rows, values)
    fold.training.basal.loc["K"] = fold.inputs.basal.loc["K"] = [2.0, 0.1, 2.5, 0.2]
    table = BasalExpression().fit(fold.training).answer(fold.inputs).table
    assert table["outcome"].tolist() == ["up", "no_change", "up", "no_change"]
    assert (table["score_down"] == 0).all()


def test_a_context_without_input_controls_is_unsupported(mixed_fold):
    fold = mixed_fold()
    baseline = BasalExpression().fit(fold.training)
    fold.inputs.basal.drop(index="C", inplace=True)
    assert set(baseline.answer(fold.inputs).table["status"]) == {"unsupported"}
