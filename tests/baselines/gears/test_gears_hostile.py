"""Trainings that leave GEARS little to learn from, or end badly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase.baselines.gears import GEARS
from pertbase.errors import PertbaseError
from pertbase.folds import CellTable, Part, Perturbation, Training

ONE = {"hidden_size": 8, "max_epochs": 1, "batch_size": 256}
PRESETS = pytest.mark.parametrize("preset", ["corrected", "upstream"])


def with_cells(training: Training, keep: np.ndarray) -> Training:
    return replace(training, cells=training.cells.take(keep))


def one_control_each(training: Training) -> np.ndarray:
    """Which cells are not controls, and the first control of each context."""
    obs = training.cells.obs.reset_index(drop=True)
    keep = ~obs["is_control"].to_numpy(dtype=bool)
    keep[obs.loc[obs["is_control"]].drop_duplicates("context").index] = True
    return keep


@PRESETS
def test_one_control_a_context_is_enough(training, inputs, preset):
    left = with_cells(training, one_control_each(training))
    assert left.cells.obs["is_control"].sum() == 2
    model = GEARS(**ONE, preset=preset).fit(left)
    if preset == "corrected":  # one cell of a context correlates with nothing; upstream correlates over contexts
        assert len(model.module.net.gene_graph.edges[0]) == 0
    values = model.predict(inputs).values
    assert np.isfinite(values).all()
    assert np.abs(values).max() > 0.05


def test_a_screen_of_one_perturbation_is_learnt_and_predicted_at_its_size(training):
    name = training.conditions.query("split == 'train'")["perturbation"].mode()[0]
    one = training._restrict(
        ((training.conditions["perturbation"] == name) | (training.conditions["split"] == "val")).to_numpy()
    )
    options = {"max_epochs": 6, "batch_size": 32, "learning_rate": 1e-2, "decay": 0.9, "monitor": "train_loss"}
    model = GEARS(**ONE | options).fit(one)
    predicted = model.module.changes([training.perturbations[name]])[0]
    measured = training.effects.frame().xs(name, level="perturbation").mean(axis=0)
    assert np.abs(predicted).max() < 2 * np.abs(measured).max()
    assert np.corrcoef(predicted, measured)[0, 1] > 0.3


@PRESETS
@pytest.mark.parametrize("batch_size", [1, 10**6])
def test_batches_of_one_cell_and_of_all_cells_are_trained_on(training, inputs, preset, batch_size):
    obs = training.cells.obs
    perturbed = (~obs["is_control"] & (obs["split"] == "train")).to_numpy(dtype=bool)
    few = with_cells(training, one_control_each(training) & ~(perturbed & (np.cumsum(perturbed) > 40)))
    model = GEARS(**ONE | {"batch_size": batch_size}, preset=preset).fit(few)
    assert np.isfinite(model.predict(inputs).values).all()


def test_a_screen_without_batches_is_one_batch(training, inputs):
    obs = training.cells.obs.assign(batch="")
    cells = CellTable(training.cells.X, obs, training.cells.genes)
    model = GEARS(**ONE).fit(replace(training, cells=cells))
    assert list(model.module.batch_names) == [""]
    assert np.isfinite(model.predict(inputs).values).all()


def test_a_drug_whose_targets_are_unknown_is_unsupported_and_the_others_are_not_touched(fitted, inputs):
    drug = Perturbation((Part("drug", (), "compound", 1.0),))
    asked = inputs.conditions.iloc[[0]].assign(perturbation=drug.name)
    more = replace(
        inputs,
        conditions=pd.concat([asked, inputs.conditions], ignore_index=True),
        perturbations={**inputs.perturbations, drug.name: drug},
    )
    effects = fitted.predict(more)
    assert effects.status[0] == "unsupported"
    assert (effects.values[0] == 0).all()
    np.testing.assert_array_equal(effects.values[1:], fitted.predict(inputs).values)


@PRESETS
@pytest.mark.parametrize("val", [True, False])
def test_a_training_that_diverges_says_so_and_says_it_again(training, preset, val, tmp_path):
    given = training if val else training.part("train")
    for _ in range(2):
        model = GEARS(**ONE, preset=preset, learning_rate=1e30, clip_value=None)
        model.workspace(tmp_path, {})
        with pytest.raises(PertbaseError, match="training diverged"):
            model.fit(given)
        with pytest.raises(PertbaseError, match="not fitted"):
            model.module  # noqa: B018
