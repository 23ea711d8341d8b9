"""What is selected and what is predicted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace

import harness_toy as toy
import numpy as np
import pytest
from harness_toy import CPU, TRAINED, fitted, logged, val_mse

from pertbase.errors import InputError, PertbaseError
from pertbase.folds import CellTable

# -- selection ------------------------------------------------------------------------------------------------


def test_the_weights_kept_are_those_of_the_epoch_that_predicts_val_best(training, tmp_path):
    baseline = fitted(training, tmp_path, max_epochs=4, gamma=6.0, n_controls=50, n_selection_controls=50)
    told = val_mse(tmp_path)
    assert told.argmin() < len(told) - 1, "pointless unless the last epoch is not the best"
    predicted = baseline.predict(training.inputs("val"))
    measured = training.effects.select(predicted.conditions)
    assert np.mean((predicted.values - measured.values) ** 2) == pytest.approx(told.min(), rel=1e-5)


def test_without_val_the_last_epoch_is_kept(training, inputs, tmp_path):
    alone = training.part("train")
    first = fitted(alone, tmp_path, max_epochs=2).predict(inputs)
    assert "val_mse" not in logged(tmp_path)
    longer = fitted(alone, tmp_path / "longer", max_epochs=3, monitor="val_of_its_own").predict(inputs)
    assert not np.array_equal(first.values, longer.values)


def test_what_is_selected_on_must_be_logged(training):
    with pytest.raises(InputError, match=r"nothing of this name is logged.*val_mse"):
        fitted(training, monitor="val_spearman")


def test_training_that_diverges_says_so(training):
    with pytest.raises(PertbaseError, match="diverged"):
        fitted(training, rate=1e30, max_epochs=1)


def test_a_schedule_that_waits_for_a_plateau_is_refused(training):
    with pytest.raises(InputError, match="plateau"):
        fitted(training, plateau=True)


# -- what is predicted ----------------------------------------------------------------------------------------


def test_effects_are_the_mean_of_prediction_minus_its_own_input(training, inputs, undisturbed):
    """The toy adds the same shift to every cell, so that its effect is that shift, whatever the controls."""
    baseline = fitted(training)
    few = toy.Shift(**TRAINED, n_controls=7)
    few._module = baseline.module
    np.testing.assert_allclose(few.predict(inputs).values, baseline.predict(inputs).values, atol=1e-6)
    row = inputs.conditions.iloc[0]
    target = inputs.perturbations[row["perturbation"]].targets[0]
    module = baseline.module
    weight, (_, decoder) = module.embedding.weight, module.decoder
    shift = (weight[module.vocabulary.get_loc(target)] @ decoder.weight.T + decoder.bias).detach().numpy()
    np.testing.assert_allclose(undisturbed[1].values[0], shift, atol=1e-5)


def test_conditions_outside_the_vocabulary_are_unsupported_and_never_drawn(training, inputs):
    asked = sorted({gene for item in inputs.perturbations.values() for gene in item.targets})
    unknown = asked[0]
    trained = sorted({gene for item in training.perturbations.values() for gene in item.targets})
    knows = [gene for gene in training.genes if gene not in (unknown, trained[0])]
    baseline = fitted(training, knows=knows)
    effects = baseline.predict(inputs)
    hit = np.array([unknown in inputs.perturbations[name].targets for name in inputs.conditions["perturbation"]])
    assert hit.any()
    assert (effects.status[hit] == "unsupported").all()
    assert (effects.status[~hit] == "ok").all()
    assert not effects.values[hit].any()
    drawn = baseline.sampler(training, baseline.module)
    names = set(training.cells.obs["perturbation"].iloc[drawn.rows])
    assert not any(trained[0] in training.perturbations[name].targets for name in names - {"control"})


def test_a_fixed_set_of_controls_depends_on_their_names_and_not_on_their_order(training):
    from pertbase.baselines.harness._predict import ask

    inputs = training.inputs("val")
    module = SimpleNamespace(needs_controls=True)
    turned = inputs.controls.take(np.arange(len(inputs.controls))[::-1])
    every = np.ones(len(inputs.conditions), dtype=bool)
    first = ask(module, inputs, every, n_controls=9, seed=2).inputs.controls
    again = ask(module, replace(inputs, controls=turned), every, n_controls=9, seed=2).inputs.controls
    assert set(first.obs.index) == set(again.obs.index)
    assert first.obs.groupby("context").size().tolist() == [9, 9]
    assert set(ask(module, inputs, every, n_controls=9, seed=3).inputs.controls.obs.index) != set(first.obs.index)


def test_a_log_ratio_of_means_is_predicted_where_the_fold_asks_for_it(training, inputs, undisturbed):
    baseline = fitted(training)
    ratio = baseline.predict(replace(inputs, statistic="log_mean"))
    basal = inputs.controls.basal().loc[inputs.conditions["context"]].to_numpy()
    mean = np.maximum(basal + undisturbed[1].values, 0)
    expected = np.log((np.expm1(mean) + 1e-9) / (np.expm1(basal) + 1e-9))
    np.testing.assert_allclose(ratio.values, expected, rtol=1e-4, atol=1e-4)


def test_other_genes_than_those_trained_on_are_refused(training, inputs):
    baseline = fitted(training, max_epochs=1)
    with pytest.raises(InputError, match="genes are not those"):
        baseline.predict(replace(inputs, genes=inputs.genes[::-1]))


def test_a_screen_in_rows_of_zeros_trains_as_a_dense_one(training, inputs, undisturbed):
    dense = CellTable(training.cells.X.toarray(), training.cells.obs, training.cells.genes)
    assert np.array_equal(fitted(replace(training, cells=dense)).predict(inputs).values, undisturbed[1].values)


def test_mixed_precision_trains_on_a_processor(training, inputs, undisturbed, tmp_path):
    effects = fitted(training, tmp_path, {**CPU, "precision": "bf16-mixed"}).predict(inputs)
    assert not np.array_equal(effects.values, undisturbed[1].values)
    np.testing.assert_allclose(effects.values, undisturbed[1].values, atol=0.05)


@pytest.mark.slow
def test_a_compiled_module_predicts_what_it_would_uncompiled(training, inputs, undisturbed, tmp_path):
    import torch

    if shutil.which("g++") is None:
        pytest.skip("there is no compiler")
    effects = fitted(training, tmp_path, {**CPU, "compile": True}, dropout=0.0).predict(inputs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    np.testing.assert_allclose(effects.values, fitted(training, dropout=0.0).predict(inputs).values, atol=1e-4)
