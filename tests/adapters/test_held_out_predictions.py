from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pertbase._metrics import balanced_accuracy, confusion
from pertbase.adapters import Calibrated, Fixed, PriorMatched, held_out
from pertbase.baselines import ContextMean, GenePrior
from pertbase.errors import UnsupportedError
from pertbase.folds import outcome_codes


def test_val_with_thirty_of_each_is_predicted_by_a_copy_fitted_on_train(random_fold):
    fold = random_fold(20, 12)
    model = ContextMean().fit(fold.training)
    before = model.predict(fold.inputs).values
    found = held_out(model, fold.training)
    assert (found.how, found.reason) == ("val", "")
    assert min(found.counts.values()) >= 30
    assert set(found.questions["split"]) == {"val"}
    expected = ContextMean().fit(fold.training.part("train")).predict(fold.training.inputs("val"))
    np.testing.assert_array_equal(found.values, expected.at(found.questions)[0])
    # The model in hand stays fitted on train and val.
    np.testing.assert_array_equal(model.predict(fold.inputs).values, before)


def test_few_val_questions_are_replaced_by_cross_fitting(random_fold, oracle):
    fold = random_fold(24, 2)
    found = held_out(oracle(fold.training), fold.training)
    assert found.how == "cross_fitted"
    assert "fewer than 30 of each" in found.reason
    # Every question with an outcome once, from train too; the oracle checks that it was not fitted on it.
    assert sorted(found.questions["id"]) == sorted(fold.training.headline["id"])


def test_cross_fitting_pools_answers_too(random_fold):
    fold = random_fold(24, 2)
    found = held_out(GenePrior(), fold.training)
    assert found.how == "cross_fitted"
    assert found.values.shape == (len(fold.training.headline), 3)
    assert held_out(GenePrior(), fold.training, minimum=3).how == "val"


def test_ambiguous_questions_are_left_out(random_fold, oracle):
    fold = random_fold(20, 12)
    assert fold.training.questions["outcome"].isna().sum() > 20
    for training in (fold.training, random_fold(24, 2).training):
        found = held_out(oracle(training), training)
        assert found.questions["outcome"].notna().all()
        assert len(found.values) == len(found.questions) == len(found.codes)


def test_with_fewer_than_three_groups_nothing_is_fitted_and_the_fallback_is_flagged(random_fold, oracle):
    fold = random_fold(24, 2)
    conditions = fold.training.conditions.assign(target_set=["gene:A", "gene:B"] * 13)
    adapter = Calibrated().fit(replace(fold.training, conditions=conditions), oracle(fold.training))
    about = adapter.describe()
    assert (about["fitted"], about["flagged"], about["tau_up"], about["tau_down"]) == ("fixed", True, 0.25, 0.25)
    assert "2 groups, fewer than 3" in about["reason"]


def test_with_fewer_than_ten_of_a_class_nothing_is_fitted(random_fold, oracle, with_outcomes):
    fold = random_fold(24, 2)
    rare = with_outcomes(fold.training, "train", lambda rows: "no_change")
    found = held_out(oracle(fold.training), rare, minimum=100)
    assert found.how == "none"
    assert "fewer than 10 of each" in found.reason


def test_a_model_that_selects_on_val_is_not_refitted(random_fold, oracle):
    fold = random_fold(20, 12)
    model = oracle(fold.training)
    model.refit = False
    model.fit = None  # not to be called
    assert held_out(model, fold.training).how == "val"
    few = random_fold(24, 2)
    model = oracle(few.training)
    model.refit = False
    found = held_out(model, few.training)
    assert found.how == "none"
    assert "too costly to be cross-fitted" in found.reason
    assert Calibrated().fit(few.training, held_out=found).describe()["flagged"]
    assert held_out(model, few.training, cross_fit=True).how == "cross_fitted"


def test_thresholds_are_fitted_to_what_the_model_speaks_to(random_fold, oracle):
    fold = random_fold(20, 12)
    val = fold.training.conditions.loc[fold.training.conditions["split"] == "val", "perturbation"]
    found = held_out(oracle(fold.training, unsupported=val[:2]), fold.training)
    assert found.how == "val"
    assert len(found.values) < len(found.questions)
    silent = found.questions["perturbation"].isin(val[:2]).to_numpy()
    assert (found.speaks == ~silent).all()
    everything = fold.training.conditions["perturbation"]
    mute = held_out(oracle(fold.training, unsupported=everything), fold.training)
    assert mute.how == "none"
    assert "the model speaks to 0 up" in mute.reason


def test_a_model_that_cannot_be_fitted_on_a_part_is_fixed(random_fold, oracle):
    class Picky(oracle):
        def fit(self, training):
            raise UnsupportedError("not on so little")

    fold = random_fold(20, 12)
    found = held_out(Picky(fold.training), fold.training)
    assert found.how == "none"
    assert "not on so little" in found.reason


def test_calibration_finds_the_scale_of_a_model_that_shrinks(random_fold, oracle):
    fold = random_fold(20, 12)
    model = oracle(fold.training, shrink=0.3)
    inputs = fold.training.part("val").inputs("val")
    true = fold.training.headline.loc[lambda table: table["split"] == "val"].set_index("id")["outcome"]

    def score(adapter):
        table = adapter.answer(inputs, model.predict(inputs)).table.set_index("id")
        return float(balanced_accuracy(confusion(outcome_codes(true), outcome_codes(table.loc[true.index, "outcome"]))))

    calibrated = Calibrated().fit(fold.training, model)
    # Outcomes turn at .4, and the model says .3 of it.
    assert calibrated.thresholds == pytest.approx((0.12, 0.12), abs=0.03)
    assert score(calibrated) > score(Fixed()) + 0.3
    matched = PriorMatched().fit(fold.training, model)
    answers = matched.answer(inputs, model.predict(inputs)).table.set_index("id").loc[true.index]
    shares, truth = answers["outcome"].value_counts(), true.value_counts()
    assert abs(shares["up"] - truth["up"]) <= 1
    assert abs(shares["down"] - truth["down"]) <= 1


@pytest.mark.parametrize("adapter", [Calibrated, PriorMatched])
def test_thresholds_move_with_val_and_not_with_test(adapter, random_fold, oracle, with_outcomes):
    fold = random_fold(20, 12)
    model = oracle(fold.training)
    thresholds = adapter().fit(fold.training, model).thresholds

    def stricter(rows):
        return np.select([rows["effect"] > 0.6, rows["effect"] < -0.6], ["up", "down"], "no_change")

    other_val = with_outcomes(fold.training, "val", stricter)
    assert adapter().fit(other_val, model).thresholds != thresholds
    # Test is no part of training; outcomes of train play no part where val is enough.
    other_train = with_outcomes(fold.training, "train", stricter)
    assert adapter().fit(other_train, model).thresholds == thresholds
    again = adapter().fit(fold.training, model)
    again.answer(replace(fold.inputs, questions=fold.inputs.questions.iloc[:5]), model.known)
    assert again.thresholds == thresholds


def test_combinations_are_cross_fitted_with_their_parts_kept(random_fold):
    fold = random_fold(24, 2)
    conditions = fold.training.conditions.assign(n_parts=[1] * 16 + [2] * 10)
    training = replace(fold.training, kind="combinatorial", conditions=conditions)
    found = held_out(ContextMean(), training)
    assert found.how == "cross_fitted"
    assert set(found.questions["perturbation"]) == set(conditions["perturbation"].iloc[16:])
