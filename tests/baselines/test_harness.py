"""The training harness, on a model small enough to train in a second."""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from pertbase.baselines.harness import TrainerSettings
from pertbase.cli import main
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import CellTable, FoldMaker, FoldSpec, Inputs, Training, write_screen
from pertbase.runs import Names, find_runs
from pertbase.runs._compose import compose

# A file of its own, since ranks and resumed runs are other processes, which import it.
TOY = '''
"""A target's embedding decides a shift of every gene."""

import os
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from pertbase.baselines.harness import LightningBaseline, PerturbationModule

FAIL_AT = None  # a step at which training breaks
FAILURE = RuntimeError


class ShiftModule(PerturbationModule):
    def __init__(self, baseline, vocabulary, n_genes):
        super().__init__()
        self.vocabulary = vocabulary
        self.baseline = baseline
        self.embedding = nn.Embedding(len(vocabulary) + 1, baseline.width, padding_idx=len(vocabulary))
        self.decoder = nn.Sequential(nn.Dropout(baseline.dropout), nn.Linear(baseline.width, n_genes))

    def forward(self, pairs):
        known = pairs.targets >= 0
        told = self.embedding(torch.where(known, pairs.targets, len(self.vocabulary))).sum(dim=1)
        return pairs.control + known.any(dim=1, keepdim=True) * self.checkpointed(self.decoder, told)

    def training_step(self, pairs):
        if FAIL_AT == self.global_step or self.baseline.fail_on_rank == self.global_rank:
            raise FAILURE("the toy was told to fail")
        if seen := os.environ.get("SHIFT_SEEN"):
            with Path(seen, f"rank{self.global_rank}of{self.trainer.world_size}.txt").open("a") as file:
                for row in pairs.perturbed:
                    print(self.current_epoch, self.global_step, float(row.double().sum()), file=file)
        return ((self(pairs) - pairs.perturbed) ** 2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.baseline.rate)
        if self.baseline.plateau:
            waiting = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": waiting, "monitor": "val_mse"}}
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=self.baseline.gamma)]


class Shift(LightningBaseline):
    def __init__(
        self, *, width=4, rate=0.02, gamma=0.8, dropout=0.2, knows=None, plateau=False, fail_on_rank=None, **training
    ):
        super().__init__(**training)
        self.width, self.rate, self.gamma, self.dropout = width, rate, gamma, dropout
        self.knows, self.plateau, self.fail_on_rank = knows, plateau, fail_on_rank

    def build(self, training):
        return ShiftModule(self, pd.Index(self.knows or training.genes), len(training.genes))
'''
TRAINED = {"max_epochs": 3, "batch_size": 256}
CPU = {"accelerator": "cpu"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "harness_toy.py").write_text(TOY)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("harness_toy")
    sys.path.remove(str(folder))
    del sys.modules["harness_toy"]


@pytest.fixture(autouse=True)
def whole(toy: ModuleType) -> Iterator[None]:
    yield
    toy.FAIL_AT, toy.FAILURE = None, RuntimeError


@pytest.fixture(scope="module")
def fold(simulated):
    """Genetic conditions of two contexts of the simulated screen."""
    obs = simulated.obs
    genetic = {name for name, item in simulated.perturbations.items() if item.modality == "genetic"}
    keep = obs["context"].isin(simulated.contexts[:2]) & (obs["is_control"] | obs["perturbation"].isin(genetic))
    return FoldMaker(simulated.subset(keep.to_numpy())).make(FoldSpec(kind="unseen_perturbation_genetic"))


@pytest.fixture(scope="module")
def training(fold) -> Training:
    return fold.make_training(seed=0, cells=True)


@pytest.fixture(scope="module")
def inputs(fold) -> Inputs:
    return fold.inputs("test")


@pytest.fixture(scope="module")
def undisturbed(toy, training, inputs, tmp_path_factory):
    """The folder of a training, and what it predicts."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, fitted(toy, training, folder).predict(inputs)


def fitted(toy, training, folder=None, trainer=CPU, **options):
    baseline = toy.Shift(**{**TRAINED, **options})
    if folder is not None:
        baseline.workspace(folder, trainer)
    return baseline.fit(training)


def files(folder: Path, name: str) -> list[Path]:
    return sorted(folder.rglob(name))


def logged(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_csv(path) for path in files(folder, "metrics.csv")], ignore_index=True)


def metric_of(folder: Path, name: str) -> np.ndarray:
    return logged(folder)[name].dropna().to_numpy()


def val_mse(folder: Path) -> np.ndarray:
    return metric_of(folder, "val_mse")


# -- the same seed, stopped or not ----------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_effects_bit_for_bit_and_another_does_not(toy, training, inputs, undisturbed):
    again = fitted(toy, training).predict(inputs)
    assert np.array_equal(again.values, undisturbed[1].values)
    other = fitted(toy, replace(training, seed=1)).predict(inputs)
    assert not np.array_equal(other.values, again.values)
    assert np.abs(again.values).max() > 0.05


@pytest.mark.parametrize("step", [8, 50, 74])
def test_a_training_stopped_at_any_step_ends_as_an_undisturbed_one(
    toy, training, inputs, undisturbed, tmp_path, step, monkeypatch
):
    trainer = {**CPU, "checkpoint_every": 7}
    toy.FAIL_AT = step
    with pytest.raises(RuntimeError, match="told to fail"):
        fitted(toy, training, tmp_path, trainer)
    toy.FAIL_AT = None
    monkeypatch.setenv("SHIFT_SEEN", str(tmp_path))
    resumed = fitted(toy, training, tmp_path, trainer)
    assert np.array_equal(resumed.predict(inputs).values, undisturbed[1].values)
    for metric in ("val_mse", "train_loss"):
        assert metric_of(tmp_path, metric)[-1] == metric_of(undisturbed[0], metric)[-1]
    first = int((tmp_path / "rank0of1.txt").read_text().split()[1])
    assert step - 7 <= first <= step  # at most one interval is done again


def test_a_stop_between_best_and_last_checkpoint_mixes_nothing(toy, training, inputs, undisturbed, tmp_path):
    """The best weights are then a whole epoch newer than the state that is gone on from."""
    toy.FAIL_AT = len(toy_steps(toy, training)) * 2
    with pytest.raises(RuntimeError):
        fitted(toy, training, tmp_path)
    (last,) = files(tmp_path, "last.ckpt")
    early = last.read_bytes()
    toy.FAIL_AT = None
    fitted(toy, training, tmp_path)
    last.write_bytes(early)
    assert np.array_equal(fitted(toy, training, tmp_path).predict(inputs).values, undisturbed[1].values)


def toy_steps(toy, training) -> range:
    baseline = toy.Shift(**TRAINED)
    return range(baseline.sampler(training, baseline.build(training)).steps)


def test_an_interruption_is_one_and_is_taken_up(toy, training, inputs, undisturbed, tmp_path):
    """Lightning would exit the process, and leave it deaf to the next interruption."""
    toy.FAIL_AT, toy.FAILURE = 60, KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        fitted(toy, training, tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    toy.FAIL_AT = None
    assert np.array_equal(fitted(toy, training, tmp_path).predict(inputs).values, undisturbed[1].values)


@pytest.mark.slow
def test_a_killed_process_is_taken_up_where_it_stopped(toy, training, inputs, undisturbed, tmp_path):
    from pertbase.baselines.harness._ranks import write_training

    write_training(training, tmp_path)
    script = (
        "from pathlib import Path; from harness_toy import Shift\n"
        "from pertbase.baselines.harness._ranks import read_training\n"
        f"baseline = Shift(**{TRAINED!r})\n"
        f"baseline.workspace(Path({str(tmp_path / 'run')!r}), {{'accelerator': 'cpu', 'checkpoint_every': 5}})\n"
        f"baseline.fit(read_training(Path({str(tmp_path)!r})))\n"
    )
    path = os.pathsep.join(item for item in sys.path if item)
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path})
    until = time.monotonic() + 120
    while not files(tmp_path, "last.ckpt") and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (last,) = files(tmp_path, "last.ckpt")
    import torch

    assert not torch.load(last, weights_only=True)["callbacks"]["Checkpoints"]["ended"], "it was killed too late"
    resumed = fitted(toy, training, tmp_path / "run", {**CPU, "checkpoint_every": 5})
    assert np.array_equal(resumed.predict(inputs).values, undisturbed[1].values)


def test_a_training_that_ended_is_not_trained_again(toy, training, inputs, undisturbed):
    folder, effects = undisturbed
    toy.FAIL_AT = 0
    before = {path: path.stat().st_mtime_ns for path in files(folder, "*.ckpt")}
    assert np.array_equal(fitted(toy, training, folder).predict(inputs).values, effects.values)
    assert {path: path.stat().st_mtime_ns for path in files(folder, "*.ckpt")} == before


def test_one_that_stopped_early_is_not_trained_on(toy, training, inputs, tmp_path):
    options = {"max_epochs": 8, "patience": 1, "rate": 0.0}
    effects = fitted(toy, training, tmp_path, **options).predict(inputs)
    assert len(val_mse(tmp_path)) == 2  # the second epoch is no better than the first
    again = fitted(toy, training, tmp_path, **options).predict(inputs)
    assert len(val_mse(tmp_path)) == 2
    assert np.array_equal(again.values, effects.values)


def test_settings_that_only_cost_time_or_memory_change_no_number(toy, training, inputs, undisturbed, tmp_path):
    trainer = {**CPU, "prefetch": 3, "gradient_checkpointing": True, "checkpoint_every": 11}
    assert np.array_equal(fitted(toy, training, tmp_path, trainer).predict(inputs).values, undisturbed[1].values)


def test_training_leaves_torchs_generator_and_switches_as_they_were(toy, training):
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fitted(toy, training, max_epochs=1)
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- selection ------------------------------------------------------------------------------------------------


def test_the_weights_kept_are_those_of_the_epoch_that_predicts_val_best(toy, training, tmp_path):
    baseline = fitted(toy, training, tmp_path, max_epochs=4, gamma=6.0, n_controls=50, n_selection_controls=50)
    told = val_mse(tmp_path)
    assert told.argmin() < len(told) - 1, "pointless unless the last epoch is not the best"
    predicted = baseline.predict(training.inputs("val"))
    measured = training.effects.select(predicted.conditions)
    assert np.mean((predicted.values - measured.values) ** 2) == pytest.approx(told.min(), rel=1e-5)


def test_without_val_the_last_epoch_is_kept(toy, training, inputs, tmp_path):
    alone = training.part("train")
    first = fitted(toy, alone, tmp_path, max_epochs=2).predict(inputs)
    assert "val_mse" not in logged(tmp_path)
    longer = fitted(toy, alone, tmp_path / "longer", max_epochs=3).predict(inputs)
    assert not np.array_equal(first.values, longer.values)


def test_what_is_selected_on_must_be_logged(toy, training):
    with pytest.raises(InputError, match=r"nothing of this name is logged.*val_mse"):
        fitted(toy, training, monitor="val_spearman")


def test_training_that_diverges_says_so(toy, training):
    with pytest.raises(PertbaseError, match="diverged"):
        fitted(toy, training, rate=1e30, max_epochs=1)


def test_a_schedule_that_waits_for_a_plateau_is_refused(toy, training):
    with pytest.raises(InputError, match="plateau"):
        fitted(toy, training, plateau=True)


# -- what is predicted ----------------------------------------------------------------------------------------


def test_effects_are_the_mean_of_prediction_minus_its_own_input(toy, training, inputs, undisturbed):
    """The toy adds the same shift to every cell, so that its effect is that shift, whatever the controls."""
    baseline = fitted(toy, training)
    few = toy.Shift(**TRAINED, n_controls=7)
    few._module = baseline.module
    np.testing.assert_allclose(few.predict(inputs).values, baseline.predict(inputs).values, atol=1e-6)
    row = inputs.conditions.iloc[0]
    target = inputs.perturbations[row["perturbation"]].targets[0]
    module = baseline.module
    weight, (_, decoder) = module.embedding.weight, module.decoder
    shift = (weight[module.vocabulary.get_loc(target)] @ decoder.weight.T + decoder.bias).detach().numpy()
    np.testing.assert_allclose(undisturbed[1].values[0], shift, atol=1e-5)


def test_conditions_outside_the_vocabulary_are_unsupported_and_never_drawn(toy, training, inputs):
    asked = sorted({gene for item in inputs.perturbations.values() for gene in item.targets})
    unknown = asked[0]
    trained = sorted({gene for item in training.perturbations.values() for gene in item.targets})
    knows = [gene for gene in training.genes if gene not in (unknown, trained[0])]
    baseline = fitted(toy, training, knows=knows)
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


def test_a_log_ratio_of_means_is_predicted_where_the_fold_asks_for_it(toy, training, inputs, undisturbed):
    baseline = fitted(toy, training)
    ratio = baseline.predict(replace(inputs, statistic="log_mean"))
    basal = inputs.controls.basal().loc[inputs.conditions["context"]].to_numpy()
    mean = np.maximum(basal + undisturbed[1].values, 0)
    expected = np.log((np.expm1(mean) + 1e-9) / (np.expm1(basal) + 1e-9))
    np.testing.assert_allclose(ratio.values, expected, rtol=1e-4, atol=1e-4)


def test_other_genes_than_those_trained_on_are_refused(toy, training, inputs):
    baseline = fitted(toy, training, max_epochs=1)
    with pytest.raises(InputError, match="genes are not those"):
        baseline.predict(replace(inputs, genes=inputs.genes[::-1]))


def test_a_screen_in_rows_of_zeros_trains_as_a_dense_one(toy, training, inputs, undisturbed):
    dense = CellTable(training.cells.X.toarray(), training.cells.obs, training.cells.genes)
    assert np.array_equal(fitted(toy, replace(training, cells=dense)).predict(inputs).values, undisturbed[1].values)


def test_mixed_precision_trains_on_a_processor(toy, training, inputs, undisturbed, tmp_path):
    effects = fitted(toy, training, tmp_path, {**CPU, "precision": "bf16-mixed"}).predict(inputs)
    assert not np.array_equal(effects.values, undisturbed[1].values)
    np.testing.assert_allclose(effects.values, undisturbed[1].values, atol=0.05)


@pytest.mark.slow
def test_a_compiled_module_predicts_what_it_would_uncompiled(toy, training, inputs, undisturbed, tmp_path):
    import torch

    if shutil.which("g++") is None:
        pytest.skip("there is no compiler")
    effects = fitted(toy, training, tmp_path, {**CPU, "compile": True}, dropout=0.0).predict(inputs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    np.testing.assert_allclose(effects.values, fitted(toy, training, dropout=0.0).predict(inputs).values, atol=1e-4)


# -- copies, folders, imports ---------------------------------------------------------------------------------


def test_a_copy_fitted_to_other_conditions_mixes_no_checkpoints(toy, training, inputs, tmp_path):
    baseline = fitted(toy, training, tmp_path, max_epochs=1)
    before = {path: path.read_bytes() for path in files(tmp_path, "*.ckpt")}
    effects = baseline.predict(inputs)
    other = copy.deepcopy(baseline).fit(training.part("train"))
    assert len(files(tmp_path, "last.ckpt")) == 2
    assert all(path.read_bytes() == content for path, content in before.items())
    assert np.array_equal(baseline.predict(inputs).values, effects.values)
    assert other.training_key(training.part("train")) != baseline.training_key(training)


def test_a_fitted_baseline_does_not_carry_the_cells_along(toy, training):
    baseline = fitted(toy, training, max_epochs=1)
    assert len(pickle.dumps(baseline)) < 300_000 < training.cells.X.data.nbytes


def test_the_parameters_of_the_harness_are_recorded_too(toy):
    found = toy.Shift(max_epochs=7, match=["context"]).parameters()
    assert found["max_epochs"] == 7
    assert found["match"] == ("context",)
    assert found["width"] == 4
    assert toy.Shift(**found).parameters() == found

    class Closed(toy.Shift):
        def __init__(self, *, width=2):
            super().__init__(width=width)

    assert Closed().parameters() == {"width": 2}


def test_baselines_are_imported_without_torch():
    script = (
        "import sys, pertbase.baselines, pertbase.baselines.harness, pertbase.folds._batches\n"
        "print([name for name in ('torch', 'lightning', 'torch_geometric') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"acelerator": "cpu"}, "accelerator"),
        ({"accelerator": "gpus"}, "gpu"),
        ({"precision": "16"}, "16-mixed"),
        ({"devices": 0}, "devices"),
        ({"devices": [0, 0], "accelerator": "gpu"}, "devices"),
        ({"devices": [0], "accelerator": "cpu"}, "have no numbers"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"deterministic": "maybe"}, "deterministic"),
    ],
)
def test_a_wrong_trainer_setting_is_refused_with_what_would_do(config, problem):
    with pytest.raises(InputError, match=problem):
        TrainerSettings.from_config(config)


@pytest.mark.parametrize("name", ["cpu", "gpu", "ddp"])
def test_every_trainer_that_can_be_named_is_one(name):
    settings = TrainerSettings.from_config(compose([f"trainer={name}"], Names())["trainer"])
    assert settings.world == (2 if name == "ddp" else 1)
    assert settings.accelerator == ("cpu" if name == "cpu" else "gpu")
    assert set(compose([f"trainer={name}"], Names())["trainer"]) == {item.name for item in fields(TrainerSettings)}


def test_trackers_are_added_by_name():
    config = compose(["+logger=[wandb,mlflow]", "trainer.loggers.wandb.project=mine"], Names())
    loggers = TrainerSettings.from_config(config["trainer"]).loggers
    assert loggers["wandb"] == {"_target_": "lightning.pytorch.loggers.WandbLogger", "project": "mine"}
    assert loggers["mlflow"]["_target_"] == "lightning.pytorch.loggers.MLFlowLogger"


def test_a_mistyped_trainer_is_answered_with_the_nearest(capsys):
    assert main(["run", "baseline=no_change", "trainer=dpp", "dry_run=true"]) == 2
    assert "did you mean 'ddp'" in capsys.readouterr().err.lower()


def test_a_device_that_is_not_there_is_told_before_training(toy, training, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(InputError, match=r"trainer\.accelerator.*no such device"):
        fitted(toy, training, tmp_path, {"accelerator": "gpu"})


def test_further_loggers_come_from_the_configuration(toy, training, tmp_path):
    extra = {"_target_": "lightning.pytorch.loggers.CSVLogger", "name": "extra"}
    fitted(toy, training, tmp_path, {**CPU, "loggers": {"second": extra}}, max_epochs=1)
    first, second = (pd.read_csv(path) for path in files(tmp_path, "metrics.csv"))
    pd.testing.assert_frame_equal(first, second)
    missing = {"_target_": "lightning.pytorch.loggers.NeptuneLoggers"}
    with pytest.raises(InputError, match=r"trainer\.loggers\.missing"):
        fitted(toy, training, tmp_path / "other", {**CPU, "loggers": {"missing": missing}}, max_epochs=1)


# -- runs -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def command(fold, toy, tmp_path_factory) -> list[str]:
    """The start of a command line that runs the toy on the fold's screen."""
    folder = tmp_path_factory.mktemp("command")
    write_screen(fold.screen, folder / "screen.h5ad")
    configs = folder / "conf" / "baseline"
    configs.mkdir(parents=True)
    for name, width in (("shift", 4), ("wide_shift", 6)):
        about = {"_target_": "harness_toy.Shift", "width": width, "dropout": 0.0, **TRAINED}
        (configs / f"{name}.yaml").write_text(yaml.safe_dump(about))
    return [
        "run", "-m", "--config-dir", str(folder / "conf"), "data=h5ad", f"data.path={folder / 'screen.h5ad'}",
        "data.name=small", "fold=unseen_perturbation_genetic",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def single(command, tmp_path_factory) -> Path:
    """Runs on one device, of the toy and of a baseline that trains nothing."""
    runs = tmp_path_factory.mktemp("single")
    seen = tmp_path_factory.mktemp("seen_by_one")
    os.environ["SHIFT_SEEN"] = str(seen)
    try:
        assert main([*command, "baseline=shift,wide_shift,perturbed_mean", f"runs={runs}"]) == 0
    finally:
        del os.environ["SHIFT_SEEN"]
    (seen / "rank0of1.txt").rename(runs / "seen.txt")
    return runs


def test_a_run_records_how_it_was_trained_where_that_changes_numbers(single):
    found = {run.config["name"]: run for run in find_runs(single)}
    assert found["shift"].config["trainer"] == TrainerSettings().numbers()
    assert found["shift"].status["device"] == "cpu"
    assert found["shift"].status["versions"]["torch"]
    assert "trainer" not in found["perturbed_mean"].config
    assert files(found["shift"].folder, "best.ckpt")


def test_another_device_under_the_same_name_is_refused(command, single, capsys):
    code = main([*command, "baseline=shift", f"runs={single}", "trainer.precision=bf16-mixed"])
    assert code == 1
    assert "trainer.precision is '32-true' there" in capsys.readouterr().out
    assert main([*command, "baseline=shift", f"runs={single}", "trainer.checkpoint_every=3"]) == 0
    assert "already" in capsys.readouterr().out


# -- several ranks --------------------------------------------------------------------------------------------

TWO = {**CPU, "devices": 2}


@pytest.mark.slow
def test_two_ranks_under_a_multirun_train_what_one_process_trains(command, single, tmp_path, monkeypatch):
    """Shares of a batch make the batch: the gradient is the same, but for rounding, and so are the effects."""
    (tmp_path / "seen").mkdir()
    monkeypatch.setenv("SHIFT_SEEN", str(tmp_path / "seen"))
    runs = tmp_path / "runs"
    ranks = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true"]
    assert main([*command, "baseline=shift,wide_shift", f"runs={runs}", *ranks]) == 0
    two, one = ({run.config["name"]: run for run in find_runs(folder)} for folder in (runs, single))
    assert sorted(two) == ["shift", "wide_shift"]
    for name, run in two.items():
        np.testing.assert_allclose(run.effects().values, one[name].effects().values, atol=1e-5)
        assert [path.name for path in run.folder.parent.iterdir()] == ["seed0"]
        assert len(list((run.folder / "training").iterdir())) == 1
        assert not list(run.folder.rglob("ranks"))
    assert {path.name for path in runs.iterdir()} == {"_folds", "small"}
    assert not np.array_equal(two["shift"].effects().values, two["wide_shift"].effects().values)

    seen = {rank: (tmp_path / "seen" / f"rank{rank}of2.txt").read_text().splitlines() for rank in (0, 1)}
    assert len(seen[0]) == len(seen[1])
    assert not set(seen[0]) & set(seen[1])
    assert sorted(seen[0] + seen[1]) == sorted((single / "seen.txt").read_text().splitlines())


@pytest.mark.slow
def test_ranks_take_up_a_stopped_training_and_are_never_asked_to_repeat_an_ended_one(toy, training, inputs, tmp_path):
    whole = fitted(toy, training, tmp_path / "whole", TWO).predict(inputs)
    stopped = {**TWO, "checkpoint_every": 7}
    toy.FAIL_AT = 50  # of rank 0, in this process
    with pytest.raises((RuntimeError, PertbaseError)):
        fitted(toy, training, tmp_path / "stopped", stopped)
    toy.FAIL_AT = None
    started = time.monotonic()
    assert np.array_equal(fitted(toy, training, tmp_path / "stopped", stopped).predict(inputs).values, whole.values)
    again = time.monotonic()
    assert np.array_equal(fitted(toy, training, tmp_path / "stopped", stopped).predict(inputs).values, whole.values)
    assert time.monotonic() - again < (again - started) / 3


@pytest.mark.slow
def test_a_rank_that_fails_is_told_with_its_own_words_and_leaves_no_process(toy, training, tmp_path):
    with pytest.raises(PertbaseError, match=r"rank 1 ended early.*told to fail") as raised:
        fitted(toy, training, tmp_path, TWO, fail_on_rank=1)
    assert "Traceback" in Path(raised.value.file).read_text()
    assert not files(tmp_path, "training.pickle")
    import torch.distributed as dist

    assert not dist.is_initialized()


def test_a_baseline_that_other_processes_cannot_import_is_refused_by_several_ranks(toy, training, tmp_path):
    class Local(toy.Shift):
        pass

    baseline = Local(**TRAINED)
    baseline.workspace(tmp_path, TWO)
    with pytest.raises(InputError, match="module of its own"):
        baseline.fit(training)


def test_what_ranks_read_is_what_was_saved_and_shares_its_memory(training, tmp_path):
    from pertbase.baselines.harness._ranks import read_training, write_training

    write_training(training, tmp_path)
    found = read_training(tmp_path)
    assert (found.cells.X != training.cells.X).nnz == 0
    pd.testing.assert_frame_equal(found.cells.obs, training.cells.obs)
    pd.testing.assert_frame_equal(found.questions, training.questions)
    assert found.perturbations == training.perturbations
    base = found.cells.X.data
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, (np.memmap, memoryview)) or "mmap" in type(base).__name__
    assert json.dumps(found.seed) == "0"
