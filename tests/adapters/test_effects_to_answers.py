from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.adapters import Calibrated, Fixed, HeldOut, PriorMatched, held_out
from pertbase.adapters._scores import answers_from_values
from pertbase.baselines import NoChange
from pertbase.errors import InputError
from pertbase.folds import SCORES, Answers, Effects, outcome_codes, vote

TAUS = st.floats(0, 3)


def answered(effects, thresholds, status="ok"):
    effects = np.asarray(effects, dtype=float)
    questions = pd.DataFrame({"id": [str(number) for number in range(len(effects))]})
    status = np.full(len(effects), status, dtype=object)
    return answers_from_values(questions, effects, status, thresholds).table


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), TAUS, TAUS)
@settings(max_examples=200, deadline=None)
def test_the_largest_score_is_the_outcomes(effects, tau_up, tau_down):
    table = answered(effects, (tau_up, tau_down))
    scores = table[list(SCORES)].to_numpy()
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    chosen = scores[np.arange(len(table)), outcome_codes(table["outcome"])]
    # Equal only where rounding puts an effect on the threshold.
    assert (chosen >= scores.max(axis=1) - 1e-12).all()


def test_thresholds_are_strict():
    table = answered([0.25, np.nextafter(0.25, 1), -0.25, np.nextafter(-0.25, -1), 0.0], (0.25, 0.25))
    assert table["outcome"].tolist() == ["no_change", "up", "no_change", "down", "no_change"]


def test_scores_follow_the_effect_without_saturating():
    effects = np.concatenate([-np.geomspace(300, 1e-3, 400), np.geomspace(1e-3, 300, 400)])
    table = answered(effects, (0.2, 0.4))
    assert (np.diff(table["score_up"]) > 0).all()
    assert (np.diff(table["score_down"]) < 0).all()
    assert (np.diff(np.log(table["score_up"]) - np.log(table["score_down"])) > 0).all()


def test_an_unsupported_condition_answers_no_change_with_the_scores_of_no_effect(random_fold, oracle):
    fold = random_fold()
    inputs = fold.training.inputs("val")
    silent = inputs.conditions["perturbation"].iloc[0]
    effects = oracle(fold.training, unsupported=[silent]).predict(inputs)
    table = Fixed().fit(fold.training).answer(inputs, effects).table
    here = (inputs.questions["perturbation"] == silent).to_numpy()
    assert set(table.loc[here, "outcome"]) == {"no_change"}
    assert (table["status"] == "unsupported").tolist() == here.tolist()
    expected = answered([0.0], (0.25, 0.25))[list(SCORES)].to_numpy()[0]
    assert (table.loc[here, list(SCORES)] == expected).all(axis=None)


def test_a_gene_without_an_effect_is_unsupported(random_fold, oracle):
    fold = random_fold()
    inputs = fold.training.inputs("val")
    effects = oracle(fold.training).predict(inputs)
    fewer = Effects(effects.values[:, 1:], effects.conditions, effects.genes[1:])
    table = Fixed().answer(inputs, fewer).table
    assert ((table["status"] == "unsupported") == (inputs.questions["gene"] == "G0").to_numpy()).all()


@pytest.mark.parametrize("constant", [0.0, 0.7, -0.7])
@pytest.mark.parametrize("adapter", [Fixed, Calibrated, PriorMatched])
def test_no_effect_anywhere_is_no_change_everywhere(adapter, constant, random_fold, oracle):
    fold = random_fold()
    model = oracle(fold.training, shrink=0.0, noise=0.0)
    model.known = Effects(np.full(model.known.values.shape, constant), model.known.conditions, model.known.genes)
    fitted = adapter().fit(fold.training, model)
    nothing = Effects(np.zeros((10, len(fold.inputs.genes))), fold.inputs.conditions, fold.inputs.genes)
    assert set(fitted.answer(fold.inputs, nothing).table["outcome"]) == {"no_change"}


@pytest.mark.parametrize("adapter", [Fixed, Calibrated, PriorMatched])
def test_a_model_that_always_says_no_change_keeps_saying_it(adapter, random_fold):
    fold = random_fold()
    model = NoChange()
    answers = model.fit(fold.training).answer(fold.inputs)
    found = adapter().fit(fold.training, model).answer(fold.inputs, answers)
    assert set(found.table["outcome"]) == {"no_change"}


@pytest.mark.parametrize("adapter", [Fixed, Calibrated, PriorMatched])
def test_an_answer_does_not_depend_on_which_others_were_asked(adapter, random_fold, oracle):
    fold = random_fold()
    model = oracle(fold.training)
    fitted = adapter().fit(fold.training, model)
    inputs = fold.training.inputs("val")
    effects = model.predict(inputs)
    together = fitted.answer(inputs, effects).table.set_index("id")
    some = inputs.questions.sample(frac=0.1, random_state=0)
    apart = fitted.answer(replace(inputs, questions=some), effects).table.set_index("id")
    pd.testing.assert_frame_equal(apart, together.loc[apart.index])


def test_fixed_returns_answers_as_they_were_given(random_fold):
    fold = random_fold()
    answers = NoChange().answer(fold.inputs)
    assert Fixed().fit(fold.training).answer(fold.inputs, answers) is answers


def test_offsets_leave_answers_without_outcome_or_scores_or_support_alone(random_fold):
    fold = random_fold()
    known = fold.training.headline
    rng = np.random.default_rng(0)
    codes = outcome_codes(known["outcome"])
    scores = 0.5 * np.eye(3)[codes] + 0.5 * rng.dirichlet([1, 1, 12], len(known))
    table = pd.DataFrame(
        {"id": known["id"].to_numpy(), "outcome": np.array(["up", "down", "no_change"], object)[vote(scores)]}
    )
    for column, name in enumerate(SCORES):
        table[name] = scores[:, column]
    adapter = Calibrated().fit(fold.training, held_out=HeldOut("val", "", known, Answers(table)))
    given = pd.DataFrame(
        {
            "id": list("abcd"),
            "outcome": ["no_change", None, "no_change", "no_change"],
            "status": ["ok", "refusal", "unsupported", "ok"],
            "score_up": [0.49, 0.49, 0.49, np.nan],
            "score_down": [0.01, 0.01, 0.01, np.nan],
            "score_no_change": [0.50, 0.50, 0.50, np.nan],
        }
    )
    adapter.offsets = (1.0, 0.0)
    found = adapter.answer(fold.inputs, Answers(given)).table
    assert found["outcome"].tolist() == ["up", None, "no_change", "no_change"]
    pd.testing.assert_frame_equal(found.iloc[1:], Answers(given).table.iloc[1:])
    assert found.loc[0, "score_up"] == pytest.approx(0.49 * np.e / (0.49 * np.e + 0.51))


def test_an_adapter_fitted_to_effects_refuses_scores(random_fold, oracle):
    fold = random_fold()
    adapter = Calibrated().fit(fold.training, oracle(fold.training))
    with pytest.raises(InputError, match="fitted to Effects and is given Answers"):
        adapter.answer(fold.inputs, NoChange().answer(fold.inputs))


def test_an_adapter_needs_something_to_be_fitted_to(random_fold):
    fold = random_fold()
    with pytest.raises(InputError, match="held-out predictions"):
        Calibrated().fit(fold.training)
    with pytest.raises(InputError, match="not fitted"):
        PriorMatched().answer(fold.inputs, NoChange().answer(fold.inputs))
    with pytest.raises(InputError, match="threshold is not negative"):
        Fixed(threshold=-0.1)


def test_held_out_predictions_are_made_once_for_every_adapter(random_fold, oracle):
    fold = random_fold()
    model = oracle(fold.training)
    shared = held_out(model, fold.training)
    for adapter in (Calibrated, PriorMatched):
        alone = adapter().fit(fold.training, model)
        assert adapter().fit(fold.training, held_out=shared).describe() == alone.describe()


def test_answers_made_without_a_check_pass_it(random_fold):
    from pertbase.folds import Answers

    made = random_fold()
    values = np.random.default_rng(0).normal(size=(len(made.inputs.conditions), len(made.inputs.genes)))
    effects = Effects(values, made.inputs.conditions, made.inputs.genes)
    answers = Fixed().fit(made.training).answer(made.inputs, effects)
    pd.testing.assert_frame_equal(Answers(answers.table).table, answers.table)
