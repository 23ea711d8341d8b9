"""STATE as a baseline: what it is trained on, what it says, and that it says it again."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy import sparse

from pertbase.adapters import RankTest
from pertbase.baselines import refusal
from pertbase.baselines.state import STATE
from pertbase.baselines.state._features import Described, OneHot
from pertbase.baselines.state._module import StateModule
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds import CellTable, FoldMaker, FoldSpec, Part, Perturbation, read_screen, write_screen

SMALL = {
    "hidden_size": 16, "layers": 1, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "set_size": 16,
    "batch_size": 8, "max_epochs": 2, "learning_rate": 0.003, "n_controls": 40,
}  # fmt: skip


def test_configuration_holds_every_option():
    about = yaml.safe_load(files("pertbase.conf").joinpath("baseline", "state.yaml").read_text())
    assert about.pop("_target_") == "pertbase.baselines.state.STATE"
    given = {name: item.default for name, item in inspect.signature(STATE).parameters.items()}
    assert about == {**given, "match": list(given["match"])}


def test_importing_state_imports_no_torch():
    code = "import sys, pertbase.baselines.state; print([m for m in ('torch', 'geomloss') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("preset", "correct"), ("size", "tiny"), ("loss", "mmd"), ("residual", "none"), ("heads", 5), ("dropout", 1.0),
        ("learning_rate", 0.0), ("feature_size", 0), ("decoder_weight", -1.0), ("warmup", -1), ("blur", 0.0),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_told(option, value):
    with pytest.raises(InputError, match=option):
        STATE(**{option: value})


def test_presets_differ_in_sets_residual_and_effects(training):
    ours, original = STATE(**SMALL), STATE(**SMALL, preset="upstream")
    assert (ours.pairing, ours.residual) == ("redrawn", "cell")
    assert (original.pairing, original.residual) == ("fixed", "token")
    assert (ours.build(training).anchored, original.build(training).anchored) == (True, False)
    assert ours.parameters()["hidden_size"] == 16
    assert ours.parameters()["clip_norm"] == 10.0


def test_every_condition_of_an_unseen_context_is_answered(fitted, inputs):
    effects = fitted.predict(inputs)
    assert (effects.status == "ok").all()
    assert (effects.values.std(axis=1) > 0).all()


def test_training_brings_effects_nearer_to_the_measured_ones(training):
    inputs, measured = training.inputs("val"), training.effects
    model = STATE(**SMALL | {"max_epochs": 20}).fit(training)
    effects = model.predict(inputs)
    truth = measured.select(effects.conditions).values
    assert ((effects.values - truth) ** 2).mean() < 0.97 * (truth**2).mean()


@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_the_same_seed_gives_the_same_effects_bit_for_bit(training, inputs, preset):
    one, other = (STATE(**SMALL, preset=preset).fit(training).predict(inputs) for _ in range(2))
    np.testing.assert_array_equal(one.values, other.values)
    another = STATE(**SMALL, preset=preset).fit(replace(training, seed=1)).predict(inputs)
    assert (one.values != another.values).any()


def test_a_stopped_and_resumed_training_equals_an_undisturbed_one(training, inputs, fitted, tmp_path, monkeypatch):
    def model() -> STATE:
        made = STATE(**SMALL)
        made.workspace(tmp_path, {"checkpoint_every": 2})
        return made

    left = [model().sampler(training, fitted.module).steps + 3]
    step = StateModule.training_step

    def stopping(self, sets):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return step(self, sets)

    with monkeypatch.context() as patch:
        patch.setattr(StateModule, "training_step", stopping)
        with pytest.raises(KeyboardInterrupt):
            model().fit(training)
    assert list(tmp_path.rglob("last.ckpt"))
    np.testing.assert_array_equal(model().fit(training).predict(inputs).values, fitted.predict(inputs).values)


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_does(training, inputs, tmp_path):
    def effects(devices: int) -> np.ndarray:
        model = STATE(**SMALL, dropout=0.0)
        model.workspace(tmp_path / str(devices), {"accelerator": "cpu", "devices": devices})
        return model.fit(training).predict(inputs).values

    one, two = effects(1), effects(2)
    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(two, one, atol=1e-4)


def test_keeping_fewer_activations_changes_no_number(training, inputs, fitted, tmp_path):
    model = STATE(**SMALL)
    model.workspace(tmp_path, {"gradient_checkpointing": True, "prefetch": 2})
    np.testing.assert_array_equal(model.fit(training).predict(inputs).values, fitted.predict(inputs).values)


def test_effects_are_the_mean_of_predicted_cells_less_those_of_no_perturbation(fitted, inputs):
    cells = fitted.predict_cells(inputs)
    effects = fitted.predict(inputs).frame()
    module = fitted.module
    context = next(iter(cells))[0]
    rows = cells._rows[context]
    with torch.no_grad():
        sets = list(module._control_sets(cells._controls, rows))
        resting = [module._predicted(item, module._features_of([None]))[0][item.real] for item in sets]
    start = torch.cat(resting).double().mean(dim=0).numpy()
    for key in [key for key in cells if key[0] == context][:3]:
        np.testing.assert_allclose(cells[key].astype(float).mean(axis=0) - start, effects.loc[key], atol=1e-5)


def test_upstream_effects_are_measured_from_the_controls(training, inputs):
    model = STATE(**SMALL | {"max_epochs": 1}, preset="upstream").fit(training)
    cells = model.predict_cells(inputs)
    key = next(iter(cells))
    chosen = cells._controls.take(cells._rows[key[0]])
    start = np.asarray(chosen.X.toarray() if sparse.issparse(chosen.X) else chosen.X, dtype=float).mean(axis=0)
    found = cells[key].astype(float).mean(axis=0) - start
    np.testing.assert_allclose(found, model.predict(inputs).frame().loc[key], atol=1e-5)


def test_effects_depend_neither_on_the_order_of_controls_nor_on_what_else_is_asked(fitted, inputs):
    whole = fitted.predict(inputs)
    order = np.random.default_rng(0).permutation(len(inputs.controls))
    shuffled = fitted.predict(replace(inputs, controls=inputs.controls.take(order)))
    np.testing.assert_allclose(shuffled.values, whole.values, atol=1e-6)
    few = inputs.conditions.iloc[[4, 1]].reset_index(drop=True)
    np.testing.assert_allclose(fitted.predict(replace(inputs, conditions=few)).values, whole.values[[4, 1]], atol=1e-5)


def test_predicted_cells_are_made_when_looked_up_and_tested_against_controls_the_model_never_saw(fitted, inputs):
    adapter = RankTest(n_cells=20)
    visible = adapter.visible(inputs)
    cells = fitted.predict_cells(visible)
    assert len(cells) == len(inputs.conditions)
    assert cells[next(iter(cells))].shape == (len(visible.controls), len(inputs.genes))
    assert (cells[next(iter(cells))] >= 0).all()
    answers = adapter.answer(inputs, fitted.predict(inputs), cells=cells)
    assert set(answers.table["status"]) == {"ok"}
    with pytest.raises(KeyError):
        cells["nowhere", "nothing"]
    with pytest.raises(UnsupportedError, match="hold none"):
        fitted.predict_cells(replace(inputs, controls=None))


# -- what is spoken of ----------------------------------------------------------------------------------------


def test_features_are_one_hot_where_train_holds_what_val_asks_and_gene_sets_elsewhere(training, few):
    assert isinstance(STATE(**SMALL).build(training).features, OneHot)
    other = FoldMaker(few).make(FoldSpec(kind="unseen_perturbation_genetic")).make_training(seed=0, cells=True)
    assert isinstance(STATE(**SMALL).build(other).features, Described)


def test_an_unseen_perturbation_is_answered_by_its_features_and_unsupported_without(few, caplog):
    fold = FoldMaker(few).make(FoldSpec(kind="unseen_perturbation_genetic"))
    training, inputs = fold.make_training(seed=0, cells=True), fold.inputs("test")
    brief = SMALL | {"max_epochs": 1}
    known = STATE(**brief, features="expression").fit(training).predict(inputs)
    assert (known.status == "ok").all()
    unknown = STATE(**brief, features="one_hot", monitor="train_loss").fit(training).predict(inputs)
    assert (unknown.status == "unsupported").all()
    assert (unknown.values == 0).all()
    assert "have no features" in caplog.text
    assert f"of {len(inputs.conditions)} conditions of test; features=gene_sets" in caplog.text


def test_cells_without_features_are_never_drawn(training, tmp_path):
    some = sorted({gene for item in training.perturbations.values() for gene in item.targets})[::2]
    pd.DataFrame({"x": np.arange(len(some)) + 1.0}, index=some).to_csv(tmp_path / "features.csv")
    model = STATE(**SMALL, features=str(tmp_path / "features.csv"))
    sampler = model.sampler(training, model.build(training))
    drawn = set(sampler.conditions["perturbation"]) - {"control"}
    assert drawn == {name for name, item in training.perturbations.items() if set(item.targets) <= set(some)}


def test_a_fold_without_features_is_refused_by_name(training, tmp_path):
    pd.DataFrame({"x": [1.0]}, index=["nothing"]).to_csv(tmp_path / "features.csv")
    model = STATE(**SMALL, features=str(tmp_path / "features.csv"))
    assert "no features" in refusal(model, replace(training, cells=None))
    assert refusal(STATE(**SMALL), replace(training, cells=None)) is None
    assert refusal(STATE(**SMALL, features="expression"), replace(training, cells=None)) is None


def test_another_content_of_a_features_file_is_another_training(training, tmp_path):
    path = tmp_path / "features.csv"
    model = STATE(**SMALL, features=str(path))
    keys = set()
    for value in (1.0, 2.0):
        pd.DataFrame({"x": [value]}, index=["A"]).to_csv(path)
        keys.add(model.training_key(training))
    assert len(keys) == 2


def test_a_drug_without_targets_is_spoken_of_one_hot(training):
    module = STATE(**SMALL).build(training)
    assert not module.speaks_to(Perturbation((Part("drug", (), "y"),)))
    name = next(iter(training.perturbations))
    bare = Perturbation((Part("drug", (), "y"),))
    renamed = replace(training, perturbations={**training.perturbations, name: bare})
    trained = set(training.conditions.loc[training.conditions["split"] == "train", "perturbation"])
    assert name in trained
    assert STATE(**SMALL, features="one_hot").build(renamed).speaks_to(bare)


def test_one_control_and_sets_larger_than_any_condition_will_do(training, inputs):
    obs = training.cells.obs
    turn = obs.groupby(["context", "perturbation"], observed=True).cumcount().to_numpy()
    cells = training.cells.take(~obs["is_control"].to_numpy() | (turn == 0))
    options = SMALL | {"max_epochs": 1, "set_size": 500, "batch_size": 1000, "n_controls": 1}
    effects = STATE(**options).fit(replace(training, cells=cells)).predict(inputs)
    assert np.isfinite(effects.values).all()
    assert (effects.status == "ok").all()


def test_a_training_that_diverges_says_so(training):
    with pytest.raises(PertbaseError, match="diverged"):
        STATE(**SMALL | {"learning_rate": 1e30}).fit(training)


# -- batches and embeddings -----------------------------------------------------------------------------------


def test_a_batch_embedding_is_trained_and_unknown_batches_are_answered(training, inputs):
    model = STATE(**SMALL | {"max_epochs": 1}, batch_embedding=True).fit(training)
    assert model.module.net.batch.num_embeddings == training.cells.obs["batch"].nunique()
    obs = inputs.controls.obs.assign(batch="never seen")
    asked = replace(inputs, controls=replace(inputs.controls, obs=obs))
    assert np.isfinite(model.predict(asked).values).all()


@pytest.fixture(scope="module")
def embedded(few):
    """The screen with an embedding of its cells: their expression, rotated."""
    dense = np.asarray(few.X.toarray() if sparse.issparse(few.X) else few.X)
    turn = np.random.default_rng(0).normal(size=(dense.shape[1], 12)) / np.sqrt(dense.shape[1])
    return replace(few, embeddings={"X_turned": (dense @ turn).astype(np.float32)})


@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_effects_are_read_off_an_embedding(embedded, preset):
    fold = FoldMaker(embedded).make(FoldSpec(kind="unseen_context_genetic"))
    training, inputs = fold.make_training(seed=0, cells=True), fold.inputs("test")
    model = STATE(**SMALL | {"max_epochs": 1}, preset=preset, embedding="X_turned").fit(training)
    effects = model.predict(inputs)
    assert effects.values.shape == (len(inputs.conditions), len(inputs.genes))
    assert (effects.values.std(axis=1) > 0).all()
    assert model.module.net.cell[0].in_features == 12
    assert model.predict_cells(inputs)[tuple(inputs.conditions.iloc[0][["context", "perturbation"]])].min() >= 0


def test_an_embedding_that_the_screen_lacks_is_told(training):
    with pytest.raises(InputError, match="unknown embedding"):
        STATE(**SMALL, embedding="X_state").build(training)


def test_a_screens_embeddings_are_kept_in_its_file_and_part_of_its_hash(embedded, few, tmp_path):
    write_screen(embedded, tmp_path / "screen.h5ad")
    again = read_screen(tmp_path / "screen.h5ad")
    np.testing.assert_array_equal(again.embeddings["X_turned"], embedded.embeddings["X_turned"])
    assert again.hash == embedded.hash != few.hash
    cells = again.cells(np.array([5, 2]))
    assert isinstance(cells, CellTable)
    np.testing.assert_array_equal(cells.embedding("X_turned"), embedded.embeddings["X_turned"][[5, 2]])
    wrong = {"X": np.full((len(few.obs), 2), np.nan, dtype=np.float32)}
    with pytest.raises(InputError, match=r'obsm\["X"\]'):
        replace(few, embeddings=wrong)


def test_mixed_precision_trains_with_gradients_clipped(training, tmp_path):
    inputs = training.inputs("val")
    model = STATE(**SMALL)
    full = model.fit(training).predict(inputs).values
    model.workspace(tmp_path, {"precision": "bf16-mixed"})
    mixed = model.fit(training).predict(inputs).values
    assert (mixed != full).any()
    assert np.abs(mixed - full).max() < 0.1
