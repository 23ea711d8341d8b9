"""GEARS as a baseline: what it is trained on, what it says, and that it says it again."""

from __future__ import annotations

import copy
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

from pertbase.adapters import Calibrated
from pertbase.baselines import refusal
from pertbase.baselines.gears import GEARS
from pertbase.baselines.gears._module import ORIGINAL_CELLS, GearsModule
from pertbase.baselines.harness import PerturbationModule
from pertbase.errors import InputError
from pertbase.folds import FoldSpec, Part, Perturbation
from pertbase.folds._batches import CellPairs

SMALL = {"hidden_size": 8, "max_epochs": 2, "batch_size": 256}


@pytest.fixture(scope="module")
def upstream(training) -> GEARS:
    return GEARS(**SMALL, preset="upstream").fit(training)


def test_configuration_holds_the_papers_settings_and_every_option():
    about = yaml.safe_load(files("pertbase.conf").joinpath("baseline", "gears.yaml").read_text())
    assert about.pop("_target_") == "pertbase.baselines.gears.GEARS"
    given = {name: item.default for name, item in inspect.signature(GEARS).parameters.items()}
    assert about == given
    paper = {"hidden_size": 64, "learning_rate": 1e-3, "weight_decay": 5e-4, "decay": 0.5, "batch_size": 32}
    paper |= {"max_epochs": 20, "direction_weight": 0.1, "gene_neighbours": 20, "coexpression_threshold": 0.4}
    assert paper.items() <= about.items()


def test_importing_gears_imports_no_torch():
    code = "import sys, pertbase.baselines.gears; print([m for m in ('torch', 'lightning') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [("preset", "correct"), ("hidden_size", 0), ("gene_layers", -1), ("gamma", -1.0), ("target_neighbours", -1)],
)
def test_an_option_that_cannot_be_is_told(option, value):
    with pytest.raises(InputError, match=option):
        GEARS(**{option: value})


def test_presets_differ_in_pairing_and_selection(training):
    assert (GEARS().pairing, GEARS().monitor) == ("redrawn", "val_mse")
    original = GEARS(preset="upstream")
    assert (original.pairing, original.monitor) == ("fixed", "val_mse_top20")
    assert (original.clip_value, original.parameters()["preset"]) == (1.0, "upstream")


@pytest.mark.parametrize("which", ["fitted", "upstream"])
def test_effects_of_every_condition_are_predicted(which, request, inputs):
    effects = request.getfixturevalue(which).predict(inputs)
    assert len(effects.conditions) == len(inputs.conditions)
    spoken = effects.status == "ok"
    assert spoken.sum() >= len(spoken) - 4
    assert (effects.values[~spoken] == 0).all()
    assert (effects.values[spoken].std(axis=1) > 0).all()


@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_the_same_seed_gives_the_same_effects_bit_for_bit(training, inputs, preset):
    one, other = (GEARS(**SMALL | {"max_epochs": 1}, preset=preset).fit(training).predict(inputs) for _ in range(2))
    np.testing.assert_array_equal(one.values, other.values)
    another = GEARS(**SMALL | {"max_epochs": 1}, preset=preset).fit(replace(training, seed=1)).predict(inputs)
    assert (one.values != another.values).any()


@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_a_stopped_and_resumed_training_equals_an_undisturbed_one(training, inputs, preset, tmp_path, monkeypatch):
    def model(folder: str) -> GEARS:
        made = GEARS(**SMALL, preset=preset)
        made.workspace(tmp_path / folder, {"checkpoint_every": 5})
        return made

    undisturbed = model("one").fit(training).predict(inputs)
    left = [8]
    step = GearsModule.training_step

    def stopping(self: GearsModule, pairs: CellPairs) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return step(self, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(GearsModule, "training_step", stopping)
        with pytest.raises(KeyboardInterrupt):
            model("two").fit(training)
    assert list((tmp_path / "two").rglob("last.ckpt"))
    np.testing.assert_array_equal(model("two").fit(training).predict(inputs).values, undisturbed.values)


def test_effects_are_the_mean_of_prediction_minus_its_own_input(fitted, inputs):
    module = fitted.module
    spoken = [module.speaks_to(inputs.perturbations[name]) for name in inputs.conditions["perturbation"]]
    asked = replace(inputs, conditions=inputs.conditions.loc[spoken].reset_index(drop=True))
    with torch.no_grad():
        cell_by_cell = PerturbationModule.effects(module, asked)
    np.testing.assert_allclose(module.effects(asked), cell_by_cell, atol=1e-5)


@pytest.mark.parametrize("which", ["fitted", "upstream"])
def test_another_prediction_seed_flips_no_sign_of_an_effect_beyond_the_adapters_threshold(
    which, request, training, inputs
):
    model = request.getfixturevalue(which)
    one = model.predict(inputs).values
    up, down = Calibrated().fit(training, model).thresholds
    large = (one > up) | (one < -down)
    assert large.sum() > 100
    few = GEARS(**SMALL, preset=model.preset, n_controls=20)
    for seed in (1, 2):
        few._module, few._seed = model.module, seed
        other = few.predict(inputs).values
        assert np.mean(np.sign(one[large]) != np.sign(other[large])) < 0.02
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_identical_cells_in_different_slots_of_a_batch_get_identical_predictions(training):
    model = GEARS(**SMALL)
    module = model.build(training)
    sampler = model.sampler(training, module)
    drawn = np.array([5, 900, 5, 900, 5])
    controls = sampler.controls(0)[drawn]
    for mode in (True, False):
        predicted = module.train(mode)(sampler.pairs(drawn, controls))
        assert torch.equal(predicted[0], predicted[2])
        assert torch.equal(predicted[0], predicted[4])
        assert torch.equal(predicted[1], predicted[3])
        assert not torch.equal(predicted[0], predicted[1])


def test_effects_are_the_same_in_every_context(fitted, inputs):
    effects = fitted.predict(inputs).frame()
    first, second = (effects.xs(name, level="context") for name in sorted(set(inputs.conditions["context"])))
    both = first.index.intersection(second.index)
    assert len(both) > 5
    np.testing.assert_array_equal(first.loc[both].to_numpy(), second.loc[both].to_numpy())


@pytest.mark.slow
def test_a_context_that_training_does_not_have_gets_the_same_effects(maker):
    fold = maker.make(FoldSpec(kind="unseen_context_genetic"))
    training, inputs = fold.make_training(seed=0, cells=True), fold.inputs("test")
    assert not set(inputs.conditions["context"]) & set(training.conditions.query("split == 'train'")["context"])
    model = GEARS(**SMALL | {"max_epochs": 1, "batch_size": 512}).fit(training)
    asked, known = model.predict(inputs).frame(), model.predict(training.inputs("train")).frame()
    asked, known = asked.droplevel("context"), known.droplevel("context")
    shared = [name for name in asked.index if name in known.index]
    assert len(shared) > 20
    for name in shared:
        np.testing.assert_array_equal(asked.loc[name], np.atleast_2d(known.loc[name])[0])


def test_perturbations_outside_the_graph_are_listed_never_drawn_and_unsupported(training, inputs, caplog):
    known = dict(training.gene_sets)
    trained = next(name for name in training.conditions["perturbation"] if training.perturbations[name].targets)
    lost = training.perturbations[trained].targets[0]
    asked = next(
        item.targets[0]
        for name, item in inputs.perturbations.items()
        if not item.is_combination and item.targets and item.targets[0] != lost
    )
    sets = {name: tuple(gene for gene in genes if gene not in (lost, asked)) for name, genes in known.items()}
    without = replace(training, gene_sets=sets)
    model = GEARS(**SMALL | {"max_epochs": 1})
    model.fit(without)
    assert trained in caplog.text
    sampler = model.sampler(without, model.module)
    drawn = sampler.cells.obs.iloc[sampler.rows]
    acting = {name for name, item in training.perturbations.items() if lost in item.targets}
    assert acting
    assert not acting & set(drawn["perturbation"])
    assert (
        drawn["is_control"].sum() == (training.cells.obs["is_control"] & (training.cells.obs["split"] == "train")).sum()
    )
    effects = model.predict(inputs)
    outside = [asked in inputs.perturbations[name].targets for name in effects.conditions["perturbation"]]
    assert any(outside)
    assert (effects.status[np.array(outside)] == "unsupported").all()


def test_a_fold_without_a_known_target_is_refused_with_an_example(training):
    nowhere = replace(training, gene_sets={"S": ("NOWHERE1", "NOWHERE2")})
    assert "no gene set with the targets" in refusal(GEARS(), nowhere)
    assert refusal(GEARS(), training) is None


def test_gene_sets_named_win_over_those_a_data_set_brings(training, tmp_path):
    (tmp_path / "mine.gmt").write_text("S\t\tNOWHERE1\tNOWHERE2\n")
    assert refusal(GEARS(gene_sets=str(tmp_path / "mine.gmt")), training) is not None
    assert refusal(GEARS(gene_sets="GO_Biological_Process_2023"), training) is not None
    with pytest.raises(InputError, match="GO_Biological_Process_2023"):
        refusal(GEARS(gene_sets="GO_Biological_Proces"), training)


def changes(model: GEARS, *items: Perturbation) -> np.ndarray:
    return model.module.changes(items)


def test_a_drug_is_its_targets_with_their_signs(fitted, upstream, training):
    gene = next(item.targets[0] for item in training.perturbations.values() if fitted.module.speaks_to(item))
    drugs = {sign: Perturbation((Part("drug", ((gene, sign),), "x", 1.0),)) for sign in (-1, 0, 1)}
    lowered, raised = (Perturbation.genetic([gene], mechanism) for mechanism in ("CRISPRi", "CRISPRa"))
    down, unknown, up, low, high = changes(fitted, drugs[-1], drugs[0], drugs[1], lowered, raised)
    np.testing.assert_allclose(down, low, atol=1e-6)
    np.testing.assert_allclose(unknown, low, atol=1e-6)
    # Alike to rounding: the last bits depend on where in a batch a product is taken.
    np.testing.assert_allclose(up, high, atol=1e-6)
    assert np.abs(low - high).max() > 1e-3
    down, unknown, up = changes(upstream, drugs[-1], drugs[0], drugs[1])
    np.testing.assert_array_equal(down, up)
    np.testing.assert_array_equal(down, unknown)


def test_the_order_of_targets_makes_no_difference(fitted, training):
    genes = sorted(
        {g for item in training.perturbations.values() if fitted.module.speaks_to(item) for g in item.targets}
    )
    one, other = (Perturbation.genetic(pair, "CRISPRi") for pair in (genes[:2], genes[1::-1]))
    np.testing.assert_array_equal(*changes(fitted, one, other)[:, None])


def test_upstream_predicts_as_one_batch_of_300_cells_of_which_the_first_sees_the_graph(upstream, training):
    module = upstream.module
    item = next(item for item in training.perturbations.values() if module.speaks_to(item))
    position = int(module.vocabulary.get_indexer([item.targets[0]])[0])
    control = torch.zeros(ORIGINAL_CELLS, len(module.genes))
    zero = torch.zeros(ORIGINAL_CELLS, dtype=torch.int64)
    pairs = CellPairs(
        control=control,
        perturbed=control,
        condition=zero,
        targets=torch.full((ORIGINAL_CELLS, 1), position),
        signs=torch.ones((ORIGINAL_CELLS, 1), dtype=torch.int8),
        context=zero,
        batch=zero,
    )
    with torch.no_grad():
        predicted = module(pairs)
    assert (predicted[0] != predicted[1]).any()
    np.testing.assert_allclose(changes(upstream, item)[0], predicted.mean(0).numpy(), atol=1e-6)


def test_genes_count_in_the_loss_of_conditions_that_express_them(training):
    model = GEARS(**SMALL)
    module = model.build(training)
    sampler = model.sampler(training, module)
    module.prepare(sampler)
    cells = training.cells
    for row, (context, name) in enumerate(sampler.conditions.itertuples(index=False)):
        if name == "control":
            assert module.kept[row].all()
            continue
        here = (cells.obs["context"] == context) & (cells.obs["perturbation"] == name) & (cells.obs["split"] == "train")
        np.testing.assert_array_equal(module.kept[row].numpy(), np.asarray(cells.X[here.to_numpy()].sum(0)).ravel() > 0)
    control = (cells.obs["is_control"] & (cells.obs["split"] == "train")).to_numpy()
    np.testing.assert_allclose(module.mean_control.numpy(), np.asarray(cells.X[control].mean(0)).ravel(), rtol=1e-5)


def test_upstream_selects_on_the_20_genes_of_largest_measured_effect(upstream, training, tmp_path):
    model = GEARS(**SMALL, preset="upstream")
    model.workspace(tmp_path, {})
    model.fit(training)
    log = pd.concat([pd.read_csv(path) for path in tmp_path.rglob("metrics.csv")])
    logged = log["val_mse_top20"].dropna().to_numpy()
    val = training.part("val")
    spoken = [model.module.speaks_to(val.perturbations[name]) for name in val.conditions["perturbation"]]
    conditions = val.conditions.loc[spoken]
    predicted = model.predict(training.inputs("val")).select(conditions).values
    measured = training.effects.select(conditions).values
    errors = [
        np.mean((p[np.argsort(-np.abs(m))[:20]] - m[np.argsort(-np.abs(m))[:20]]) ** 2)
        for p, m in zip(predicted, measured, strict=True)
    ]
    assert len(logged) == 2
    # what is kept is the epoch of the smaller one
    assert np.mean(errors) == pytest.approx(logged.min(), rel=1e-3)


def test_predicted_cells_are_every_control_with_the_effect_added(fitted, inputs):
    cells = fitted.predict_cells(inputs)
    effects = fitted.predict(inputs)
    assert len(cells) == (effects.status == "ok").sum()
    key = next(iter(cells))
    here = (inputs.controls.obs["context"] == key[0]).to_numpy()
    expected = inputs.controls.X[here].toarray() + effects.frame().loc[key].to_numpy()
    np.testing.assert_allclose(cells[key], expected, atol=1e-5)


@pytest.mark.parametrize("which", ["fitted", "upstream"])
def test_corrected_normalises_perturbations_by_all_of_train_and_not_by_past_batches(which, request):
    model = request.getfixturevalue(which)
    net = copy.deepcopy(model.module.net)
    before = [norm.running_mean.clone() for norm in net.fuse.norm]
    net.settle(model.module._known)
    same = [torch.allclose(one, norm.running_mean, atol=1e-6) for one, norm in zip(before, net.fuse.norm, strict=True)]
    assert same == [model.preset == "corrected"] * 2


def test_uncertainty_is_predicted_where_asked_for(training, inputs, fitted):
    model = GEARS(**SMALL | {"max_epochs": 1}, uncertainty=True).fit(training)
    variances = model.log_variances(inputs)
    assert variances.shape == ((model.predict(inputs).status == "ok").sum(), len(training.genes))
    assert np.isfinite(variances.to_numpy()).all()
    assert variances.to_numpy().std() > 0
    with pytest.raises(InputError, match="no uncertainty"):
        fitted.log_variances(inputs)


def test_training_lowers_the_error_of_val(training):
    inputs = training.inputs("val")
    measured = training.effects.select(inputs.conditions).values
    model = GEARS(**SMALL | {"max_epochs": 5, "learning_rate": 5e-3, "decay": 0.8}).fit(training)
    predicted = model.predict(inputs)
    spoken = predicted.status == "ok"
    assert ((predicted.values - measured)[spoken] ** 2).mean() < 0.97 * (measured[spoken] ** 2).mean()
    assert np.corrcoef(predicted.values[spoken].ravel(), measured[spoken].ravel())[0, 1] > 0.2


def test_mixed_precision_trains_and_stays_near_full_precision(training, tmp_path):
    inputs = training.inputs("val")
    model = GEARS(**SMALL)
    full = model.fit(training).predict(inputs).values
    model.workspace(tmp_path, {"precision": "bf16-mixed"})
    np.testing.assert_allclose(model.fit(training).predict(inputs).values, full, atol=0.03)
    assert not model.module.net.gene.weight.isnan().any()
