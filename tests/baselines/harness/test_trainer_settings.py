"""Settings, folders and records of trained baselines."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import fields

import harness_toy as toy
import numpy as np
import pandas as pd
import pytest
from harness_toy import CPU, files, fitted

from pertbase.baselines.harness import TrainerSettings
from pertbase.cli import main
from pertbase.errors import InputError
from pertbase.runs import Names, find_runs
from pertbase.runs._compose import compose


def test_a_copy_fitted_to_other_conditions_mixes_no_checkpoints(training, inputs, tmp_path):
    baseline = fitted(training, tmp_path, max_epochs=1)
    before = {path: path.read_bytes() for path in files(tmp_path, "*.ckpt")}
    effects = baseline.predict(inputs)
    other = copy.deepcopy(baseline).fit(training.part("train"))
    assert len(files(tmp_path, "last.ckpt")) == 2
    assert all(path.read_bytes() == content for path, content in before.items())
    assert np.array_equal(baseline.predict(inputs).values, effects.values)
    assert other.training_key(training.part("train")) != baseline.training_key(training)


def test_a_fitted_baseline_does_not_carry_the_cells_along(training):
    baseline = fitted(training, max_epochs=1)
    assert len(pickle.dumps(baseline)) < 300_000 < training.cells.X.data.nbytes


def test_the_parameters_of_the_harness_are_recorded_too():
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


def test_a_device_that_is_not_there_is_told_before_training(training, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(InputError, match=r"trainer\.accelerator.*no such device"):
        fitted(training, tmp_path, {"accelerator": "gpu"})


def test_further_loggers_come_from_the_configuration(training, tmp_path):
    extra = {"_target_": "lightning.pytorch.loggers.CSVLogger", "name": "extra"}
    fitted(training, tmp_path, {**CPU, "loggers": {"second": extra}}, max_epochs=1)
    first, second = (pd.read_csv(path) for path in files(tmp_path, "metrics.csv"))
    pd.testing.assert_frame_equal(first, second)
    missing = {"_target_": "lightning.pytorch.loggers.NeptuneLoggers"}
    with pytest.raises(InputError, match=r"trainer\.loggers\.missing"):
        fitted(training, tmp_path / "other", {**CPU, "loggers": {"missing": missing}}, max_epochs=1)


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


def test_shards_are_of_several_gpus_and_change_what_identifies_a_run_only_where_there_are_some():
    from pertbase.baselines.harness import TrainerSettings
    from pertbase.errors import InputError

    for others in ({"accelerator": "cpu", "devices": 2}, {"accelerator": "gpu", "devices": 1}):
        with pytest.raises(InputError, match=r"trainer\.strategy.*several GPUs"):
            TrainerSettings(strategy="fsdp", **others)
    assert "strategy" not in TrainerSettings(accelerator="gpu", devices=2).numbers()
    assert TrainerSettings(accelerator="gpu", devices=2, strategy="fsdp").numbers()["strategy"] == "fsdp"
