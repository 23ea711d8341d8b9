"""scGPT as a baseline: what it is trained on, what it says, and that it says it again."""

from __future__ import annotations

import inspect
import json
import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scgpt_toy import SMALL, restricted, resumed

from pertbase.baselines import refusal
from pertbase.baselines.scgpt import ScGPT
from pertbase.baselines.scgpt._module import ScGPTModule
from pertbase.errors import InputError
from pertbase.folds import CellTable, FoldMaker, FoldSpec, Part, Perturbation, data
from pertbase.folds._batches import CellPairs


def test_configuration_holds_every_option_and_the_published_settings():
    about = yaml.safe_load(files("pertbase.conf").joinpath("baseline", "scgpt.yaml").read_text())
    assert about.pop("_target_") == "pertbase.baselines.scgpt.ScGPT"
    given = {name: item.default for name, item in inspect.signature(ScGPT).parameters.items()}
    assert about == given
    published = {"max_genes": 1536, "batch_size": 64, "max_epochs": 15, "patience": 10, "clip_norm": 1.0, "decay": 0.9}
    assert published.items() <= about.items()


def test_importing_scgpt_imports_no_torch():
    code = (
        "import sys, pertbase.baselines.scgpt; print([m for m in ('torch', 'lightning', 'peft') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"preset": "correct"}, "corrected"),
        ({"size": "publish"}, "published"),
        ({"embedding_size": 31}, "no multiple of 2 heads"),
        ({"n_layers": 0}, "n_layers"),
        ({"max_genes": 0}, "max_genes"),
        ({"dropout": -0.1}, "dropout"),
        ({"tuning": "none"}, "frozen"),
        ({"tuning": "lora"}, "without a checkpoint"),
        ({"checkpoint_url": "https://x.org"}, "Name a folder"),
        ({"checkpoint": "here", "size": "small"}, "is the checkpoint's own"),
        ({"checkpoint": "here", "vocabulary": "v.json"}, "is the checkpoint's own"),
    ],
)
def test_an_option_that_cannot_be_is_told(options, told):
    with pytest.raises(InputError, match=told):
        ScGPT(**options)


def test_presets_differ_in_pairing_and_selection():
    assert (ScGPT().pairing, ScGPT().monitor) == ("redrawn", "val_mse")
    original = ScGPT(preset="upstream")
    assert (original.pairing, original.monitor) == ("fixed", "val_raw_distance")


@pytest.mark.parametrize("which", ["fitted", "upstream"])
def test_effects_of_every_condition_are_predicted(which, request, inputs):
    effects = request.getfixturevalue(which).predict(inputs)
    assert len(effects.conditions) == len(inputs.conditions)
    assert (effects.status == "ok").all()
    assert (effects.values.std(axis=1) > 0).all()


def test_effects_depend_on_the_context(fitted, inputs):
    effects = fitted.predict(inputs).frame()
    a, b = effects.index.get_level_values("context").unique()[:2]
    both = effects.loc[a].index.intersection(effects.loc[b].index)
    assert len(both)
    assert (effects.loc[a].loc[both] != effects.loc[b].loc[both]).to_numpy().mean() > 0.99


@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_the_same_seed_gives_the_same_effects_bit_for_bit(training, inputs, preset, fitted, upstream):
    one = {"corrected": fitted, "upstream": upstream}[preset].predict(inputs)
    np.testing.assert_array_equal(one.values, ScGPT(**SMALL, preset=preset).fit(training).predict(inputs).values)
    another = ScGPT(**SMALL, preset=preset).fit(replace(training, seed=1)).predict(inputs)
    assert (one.values != another.values).any()


@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_a_stopped_and_resumed_training_equals_an_undisturbed_one(training, inputs, preset, tmp_path, monkeypatch):
    def model() -> ScGPT:
        return ScGPT(**SMALL | {"max_epochs": 2, "dropout": 0.1}, preset=preset)

    np.testing.assert_array_equal(*resumed(model, training, inputs, tmp_path, monkeypatch))


# -- what a prediction depends on -----------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["fitted", "upstream"])
def test_the_order_of_genes_makes_no_difference(which, request, inputs):
    model = request.getfixturevalue(which)
    order = np.random.default_rng(0).permutation(len(inputs.genes))
    genes = inputs.genes[order]
    controls = CellTable(inputs.controls.X[:, order], inputs.controls.obs, genes)
    turned = model.predict(replace(inputs, genes=genes, controls=controls, basal=inputs.basal[genes]))
    np.testing.assert_array_equal(turned.values, model.predict(inputs).values[:, order])


def test_what_else_is_asked_makes_no_difference(fitted, inputs, monkeypatch):
    whole = fitted.predict(inputs)
    alone = inputs.conditions.iloc[[3]].reset_index(drop=True)
    np.testing.assert_allclose(fitted.predict(replace(inputs, conditions=alone)).values[0], whole.values[3], atol=1e-6)
    monkeypatch.setattr(ScGPTModule, "at_once", lambda self: 3)
    np.testing.assert_allclose(fitted.predict(inputs).values, whole.values, atol=1e-6)


def test_other_genes_than_those_trained_on_are_refused(fitted, inputs):
    with pytest.raises(InputError, match="genes are not those"):
        fitted.predict(replace(inputs, genes=inputs.genes[1:]))


def test_an_effect_is_prediction_under_the_perturbation_minus_that_under_none(fitted, upstream, inputs):
    few = inputs.controls.take(np.flatnonzero(inputs.controls.obs.groupby("context").cumcount().to_numpy() < 6))
    inputs = replace(inputs, controls=few)
    row = inputs.conditions.iloc[0]
    cells = torch.from_numpy(few.X[(few.obs["context"] == row["context"]).to_numpy()].toarray())
    item = inputs.perturbations[row["perturbation"]]

    def under(model: ScGPT, *, control: bool = False) -> torch.Tensor:
        targets = [-1 if control else model.module.vocabulary.get_loc(gene) for gene in item.targets]
        zero, signs = torch.zeros(len(cells), dtype=torch.int64), [item.signs[gene] for gene in item.targets]
        about = (torch.tensor([targets] * len(cells)), torch.tensor([signs] * len(cells), dtype=torch.int8), zero, zero)
        with torch.no_grad():
            return model.module(CellPairs(cells, cells, zero, *about))

    every = ScGPT(**SMALL | {"n_controls": None})
    for model in (fitted, upstream):
        every._module = model.module
        expected = (under(model) - (under(model, control=True) if model is fitted else cells)).mean(0).numpy()
        np.testing.assert_allclose(every.predict(inputs).values[0], expected, atol=1e-6)


def test_another_set_of_controls_flips_few_signs(fitted, inputs):
    one = fitted.predict(inputs).values
    again = ScGPT(**SMALL)
    again._module, again._seed = fitted.module, 1
    other = again.predict(inputs).values
    large = np.abs(one) > np.quantile(np.abs(one), 0.95)
    assert (one != other).any()
    assert np.mean(np.sign(one[large]) != np.sign(other[large])) < 0.02


# -- what is trained on ---------------------------------------------------------------------------------------


def subsets(model: ScGPT, training) -> list[tuple[np.ndarray, np.ndarray]]:
    """Genes, and targets, of every step of an epoch."""
    torch.manual_seed(0)
    module = model.build(training)
    batches = model.sampler(training, module).batches(0)
    return [(module._chosen(b.targets).numpy(), b.targets[b.targets >= 0].unique().numpy()) for b in batches]


def test_the_targets_are_in_every_training_step(training):
    found = subsets(ScGPT(**SMALL | {"max_genes": 100}), training)
    assert all(np.isin(targets, chosen).all() for chosen, targets in found)
    assert any(len(targets) > 20 for _, targets in found)
    assert {len(chosen) for chosen, _ in found} == {100}
    assert len({tuple(chosen) for chosen, _ in found}) == len(found), "genes are drawn anew in each step"
    # where there is no room for all of them, the step grows
    grown = subsets(ScGPT(**SMALL | {"max_genes": 2}), training)
    assert all(np.isin(targets, chosen).all() for chosen, targets in grown)


def test_upstream_misses_targets_as_often_as_chance_has_it(training):
    found = subsets(ScGPT(**SMALL | {"batch_size": 16}, preset="upstream"), training)
    present = np.concatenate([np.isin(targets, chosen) for chosen, targets in found])
    assert present.mean() == pytest.approx(48 / len(training.genes), abs=0.05)


def test_the_loss_is_the_mean_squared_error_of_the_genes_drawn(training):
    model = ScGPT(**SMALL)
    module = model.build(training)
    pairs = next(iter(model.sampler(training, module).batches(0)))
    torch.manual_seed(5)
    chosen = module._chosen(pairs.targets)
    torch.manual_seed(5)
    loss = module.training_step(pairs)
    whole = ScGPT(**SMALL | {"max_genes": 10**6}).build(training)
    whole.net = module.net
    some = module.net(chosen, pairs.control[:, chosen], module._signs(pairs)[:, chosen])
    assert loss.item() == pytest.approx(((some - pairs.perturbed[:, chosen]) ** 2).mean().item(), rel=1e-5)
    every = whole.training_step(pairs)
    assert every.item() == pytest.approx(((whole(pairs) - pairs.perturbed) ** 2).mean().item(), rel=1e-5)


def test_upstream_selects_on_the_correlation_of_raw_expression(upstream, training, tmp_path):
    model = ScGPT(**SMALL, preset="upstream")
    model.workspace(tmp_path, {})
    model.fit(training)
    log = pd.concat([pd.read_csv(path) for path in tmp_path.rglob("metrics.csv")])
    inputs = training.inputs("val")
    few = ScGPT(**SMALL | {"n_controls": SMALL["n_selection_controls"]}, preset="upstream")
    few._module = model.module
    predicted = few.predict(inputs)
    measured = training.effects.select(inputs.conditions).values
    basal = training.basal.loc[inputs.conditions["context"]].to_numpy()
    r = [np.corrcoef(b + p, b + m)[0, 1] for b, p, m in zip(basal, predicted.values, measured, strict=True)]
    assert log["val_raw_distance"].dropna().item() == pytest.approx(1 - np.mean(r), rel=1e-4)


# -- genes, targets and what there is to say of them ----------------------------------------------------------


def test_a_target_that_is_not_measured_is_read_where_train_perturbs_it(training, inputs):
    trained = training.conditions.loc[training.conditions["split"] == "train", "perturbation"].unique()
    seen = {gene for name in trained for gene in training.perturbations[name].targets}
    asked = {gene for item in inputs.perturbations.values() for gene in item.targets}
    hidden = sorted(seen & set(training.genes))[:3], sorted((asked - seen) & set(training.genes))[:2]
    genes = training.genes[~training.genes.isin([*hidden[0], *hidden[1]])]
    less, less_inputs = restricted(training, inputs, genes)
    model = ScGPT(**SMALL).fit(less)
    assert set(model.module.read.unmeasured) == set(hidden[0])
    effects = model.predict(less_inputs)
    assert effects.genes.equals(genes)
    lost = np.array(
        [bool(set(hidden[1]) & set(inputs.perturbations[n].targets)) for n in effects.conditions["perturbation"]]
    )
    assert lost.any()
    assert (effects.status[lost] == "unsupported").all()
    assert (effects.values[lost] == 0).all()
    assert (effects.status[~lost] == "ok").all()
    val = model.predict(less.inputs("train"))
    acted = np.array([hidden[0][0] in less.perturbations[n].targets for n in val.conditions["perturbation"]])
    assert (val.values[acted].std(axis=1) > 0).all(), "what is done to it shows on the others"
    # it comes on top of the genes of a step: of itself there is nothing to learn
    module = ScGPT(**SMALL | {"max_genes": 1}).build(less)
    unmeasured = torch.tensor([[module.vocabulary.get_loc(gene)] for gene in hidden[0]])
    assert module._chosen(unmeasured).numel() == 4
    # the original has no mark for it, and would call a control cell its prediction
    original = ScGPT(**SMALL, preset="upstream").build(less)
    assert not any(original.speaks_to(Perturbation.genetic([gene], "CRISPRi")) for gene in (*hidden[0], *hidden[1]))


def test_genes_outside_the_vocabulary_are_masked_and_counted(training, inputs, tmp_path, caplog):
    vocabulary = {str(gene): row for row, gene in enumerate([*training.genes[7:], "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    with caplog.at_level(logging.WARNING, "pertbase"):
        model = ScGPT(**SMALL, vocabulary=str(tmp_path / "vocab.json")).fit(training)
    assert f"7 of {len(training.genes)} measured genes are not in the vocabulary" in caplog.text
    effects = model.predict(inputs)
    spoken = effects.status == "ok"
    assert (effects.values[:, :7] == 0).all()
    assert (effects.values[spoken][:, 7:] != 0).mean() > 0.99
    # never attended to: what is measured of them changes nothing
    changed = inputs.controls.X.tolil()
    changed[:, :7] = 5.0
    other = replace(inputs, controls=CellTable(changed.tocsr(), inputs.controls.obs, inputs.controls.genes))
    np.testing.assert_array_equal(model.predict(other).values, effects.values)
    # upstream attends to them, as padding, and predicts them
    original = ScGPT(**SMALL, vocabulary=str(tmp_path / "vocab.json"), preset="upstream").fit(training)
    assert original.module.read.padded.sum() == 7
    assert (original.predict(inputs).values[:, :7] != 0).any()
    assert (original.predict(other).values != original.predict(inputs).values).any()
    pad = original.module.net.embedding
    assert (pad.weight[pad.padding_idx] != ScGPT(**SMALL).build(training).net.embedding.weight[0]).any()


def test_genes_are_matched_by_name_and_not_by_position(training, tmp_path):
    shuffled = np.random.default_rng(0).permutation(training.genes)
    (tmp_path / "vocab.json").write_text(json.dumps({str(gene): row for row, gene in enumerate(shuffled)}))
    read = ScGPT(**SMALL, vocabulary=str(tmp_path / "vocab.json")).build(training).read
    assert [shuffled[token] for token in read.tokens] == read.names.tolist() == training.genes.tolist()


def test_a_screen_that_shares_no_gene_with_the_vocabulary_is_refused_with_the_reason(training, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"<pad>": 0, "Actb": 1}))
    reason = refusal(ScGPT(vocabulary=str(tmp_path / "vocab.json")), training)
    assert "knows none of the 280 measured genes" in reason
    perturbed = {gene for item in training.perturbations.values() for gene in item.targets}
    others = [str(gene) for gene in training.genes if gene not in perturbed]
    (tmp_path / "vocab.json").write_text(json.dumps({gene: row for row, gene in enumerate(others)}))
    assert "reads no gene that train perturbs" in refusal(ScGPT(vocabulary=str(tmp_path / "vocab.json")), training)
    assert refusal(ScGPT(), training) is None
    assert "has none" in refusal(ScGPT(), replace(training, effects=None))


def test_a_drug_is_its_targets_with_their_signs(fitted, upstream, inputs):
    genes = [gene for item in inputs.perturbations.values() for gene in item.targets][:2]
    items = {
        **{f"drug {sign}": Perturbation((Part("drug", ((genes[0], sign),), "x", 1.0),)) for sign in (-1, 0, 1)},
        "lowered": Perturbation.genetic(genes[:1], "CRISPRi"),
        "raised": Perturbation.genetic(genes[:1], "CRISPRa"),
        "both": Perturbation.genetic(genes, "CRISPRi"),
        "reversed": Perturbation.genetic(genes[::-1], "CRISPRi"),
        "unknown": Perturbation((Part("drug", (), "y", 1.0),)),
    }
    conditions = pd.DataFrame({"context": inputs.conditions["context"].iloc[0], "perturbation": list(items)})
    asked = replace(inputs, conditions=conditions, perturbations=items)

    def said(model: ScGPT) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        effects = model.predict(asked)
        return dict(zip(items, effects.values, strict=True)), dict(zip(items, effects.status, strict=True))

    values, status = said(fitted)
    assert {name for name, told in status.items() if told != "ok"} == {"unknown"}
    for one, other in (("drug -1", "lowered"), ("drug 0", "lowered"), ("drug 1", "raised"), ("both", "reversed")):
        np.testing.assert_allclose(values[one], values[other], atol=1e-6)
    assert np.abs(values["lowered"] - values["raised"]).max() > 1e-4
    assert np.abs(values["both"] - values["lowered"]).max() > 1e-4
    values, _ = said(upstream)
    np.testing.assert_allclose(values["raised"], values["lowered"], atol=1e-6)


def test_predicted_cells_change_by_the_effect_on_the_mean(fitted, upstream, inputs):
    for model in (fitted, upstream):
        cells, effects = model.predict_cells(inputs), model.predict(inputs).frame()
        assert len(cells) == len(inputs.conditions)
        key = next(iter(cells))
        assert cells[key].shape == (SMALL["n_controls"], len(inputs.genes))
        assert cells[key].std(axis=0).mean() > 0
        controls = cells._controls
        basal = controls.X[(controls.obs["context"] == key[0]).to_numpy()].toarray().mean(0)
        np.testing.assert_allclose(cells[key].mean(0) - basal, effects.loc[key].to_numpy(), atol=1e-5)


def test_mixed_precision_checkpointing_and_a_log_ratio_are_by_configuration(training, inputs, fitted, tmp_path):
    model = ScGPT(**SMALL)
    model.workspace(tmp_path, {"gradient_checkpointing": True})
    np.testing.assert_allclose(model.fit(training).predict(inputs).values, fitted.predict(inputs).values, atol=1e-5)
    model.workspace(tmp_path / "bf16", {"precision": "bf16-mixed"})
    mixed = model.fit(training).predict(inputs).values
    assert (mixed != fitted.predict(inputs).values).any()
    assert np.abs(mixed - fitted.predict(inputs).values).max() < 0.1
    ratio = fitted.predict(replace(inputs, statistic="log_mean"))
    assert np.isfinite(ratio.values).all()


@pytest.mark.slow
def test_training_lowers_the_error_of_val(training):
    inputs = training.inputs("val")
    measured = training.effects.select(inputs.conditions).values
    model = ScGPT(**SMALL | {"max_epochs": 12, "embedding_size": 24, "batch_size": 64, "learning_rate": 3e-3})
    predicted = model.fit(training).predict(inputs).values
    assert ((predicted - measured) ** 2).mean() < 0.95 * (measured**2).mean()
    assert np.corrcoef(predicted.ravel(), measured.ravel())[0, 1] > 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "seed"),
    [
        # of seed 0, no target that is asked about is measured, or perturbed in training
        ("papalexi", "unseen_perturbation_genetic", 1),
        ("kang", "unseen_context_chemical", 0),
        ("perturbench_devel", "combinatorial", 0),
    ],
)
def test_real_screens_are_answered_by_their_targets_measured_or_not(name, kind, seed, real_data, monkeypatch):
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    fold = FoldMaker(data(name)).make(FoldSpec(kind=kind, seed=seed))
    training, inputs = fold.make_training(seed=0, cells=True), fold.inputs("test")
    model = ScGPT(**SMALL | {"max_epochs": 2, "batch_size": 128, "n_controls": 8}).fit(training)
    effects = model.predict(inputs)
    trained = training.conditions.loc[training.conditions["split"] == "train", "perturbation"]
    known = set(training.genes) | {gene for item in trained for gene in training.perturbations[item].targets}
    for row, perturbation in enumerate(effects.conditions["perturbation"]):
        targets = inputs.perturbations[perturbation].targets
        spoken = bool(targets) and known.issuperset(targets)
        assert effects.status[row] == ("ok" if spoken else "unsupported")
        assert effects.values[row].any() == spoken
    assert (effects.status == "ok").any()
    assert len(model.module.read.unmeasured), "some targets of each are not measured"


@pytest.mark.slow
def test_compiled_layers_train_to_the_same_effects(training, inputs, fitted, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("there is no compiler")
    model = ScGPT(**SMALL)
    model.workspace(tmp_path, {"compile": True})
    effects = model.fit(training).predict(inputs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    np.testing.assert_allclose(effects.values, fitted.predict(inputs).values, atol=1e-4)
