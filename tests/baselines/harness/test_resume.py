"""The same seed gives the same effects bit for bit, wherever training was stopped and taken up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import harness_toy as toy
import numpy as np
import pytest
from harness_toy import CPU, TRAINED, files, fitted, metric_of, val_mse


def test_the_same_seed_gives_the_same_effects_bit_for_bit_and_another_does_not(training, inputs, undisturbed):
    again = fitted(training).predict(inputs)
    assert np.array_equal(again.values, undisturbed[1].values)
    other = fitted(replace(training, seed=1)).predict(inputs)
    assert not np.array_equal(other.values, again.values)
    assert np.abs(again.values).max() > 0.05


@pytest.mark.parametrize("step", [8, 50, 74])
def test_a_training_stopped_at_any_step_ends_as_an_undisturbed_one(
    training, inputs, undisturbed, tmp_path, step, monkeypatch
):
    trainer = {**CPU, "checkpoint_every": 7}
    toy.FAIL_AT = step
    with pytest.raises(RuntimeError, match="told to fail"):
        fitted(training, tmp_path, trainer)
    toy.FAIL_AT = None
    monkeypatch.setenv("SHIFT_SEEN", str(tmp_path))
    resumed = fitted(training, tmp_path, trainer)
    assert np.array_equal(resumed.predict(inputs).values, undisturbed[1].values)
    for metric in ("val_mse", "train_loss"):
        assert metric_of(tmp_path, metric)[-1] == metric_of(undisturbed[0], metric)[-1]
    first = int((tmp_path / "rank0of1.txt").read_text().split()[1])
    assert step - 7 <= first <= step  # at most one interval is done again


def test_a_stop_between_best_and_last_checkpoint_mixes_nothing(training, inputs, undisturbed, tmp_path):
    """The best weights are then a whole epoch newer than the state that is gone on from."""
    toy.FAIL_AT = len(steps_of(training)) * 2
    with pytest.raises(RuntimeError):
        fitted(training, tmp_path)
    (last,) = files(tmp_path, "last.ckpt")
    early = last.read_bytes()
    toy.FAIL_AT = None
    fitted(training, tmp_path)
    last.write_bytes(early)
    assert np.array_equal(fitted(training, tmp_path).predict(inputs).values, undisturbed[1].values)


def steps_of(training) -> range:
    baseline = toy.Shift(**TRAINED)
    return range(baseline.sampler(training, baseline.build(training)).steps)


def test_an_interruption_is_one_and_is_taken_up(training, inputs, undisturbed, tmp_path):
    """Lightning would exit the process, and leave it deaf to the next interruption."""
    toy.FAIL_AT, toy.FAILURE = 60, KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        fitted(training, tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    toy.FAIL_AT = None
    assert np.array_equal(fitted(training, tmp_path).predict(inputs).values, undisturbed[1].values)


@pytest.mark.slow
def test_a_killed_process_is_taken_up_where_it_stopped(training, inputs, undisturbed, tmp_path):
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
    resumed = fitted(training, tmp_path / "run", {**CPU, "checkpoint_every": 5})
    assert np.array_equal(resumed.predict(inputs).values, undisturbed[1].values)


def test_a_training_that_ended_is_not_trained_again(training, inputs, undisturbed):
    folder, effects = undisturbed
    toy.FAIL_AT = 0
    before = {path: path.stat().st_mtime_ns for path in files(folder, "*.ckpt")}
    assert np.array_equal(fitted(training, folder).predict(inputs).values, effects.values)
    assert {path: path.stat().st_mtime_ns for path in files(folder, "*.ckpt")} == before


def test_one_that_stopped_early_is_not_trained_on(training, inputs, tmp_path):
    options = {"max_epochs": 8, "patience": 1, "rate": 0.0}
    effects = fitted(training, tmp_path, **options).predict(inputs)
    assert len(val_mse(tmp_path)) == 2  # the second epoch is no better than the first
    again = fitted(training, tmp_path, **options).predict(inputs)
    assert len(val_mse(tmp_path)) == 2
    assert np.array_equal(again.values, effects.values)


def test_settings_that_only_cost_time_or_memory_change_no_number(training, inputs, undisturbed, tmp_path):
    trainer = {**CPU, "prefetch": 3, "gradient_checkpointing": True, "checkpoint_every": 11}
    assert np.array_equal(fitted(training, tmp_path, trainer).predict(inputs).values, undisturbed[1].values)


def test_training_leaves_torchs_generator_and_switches_as_they_were(training):
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fitted(training, max_epochs=1)
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_training_that_ended_keeps_its_weights_and_no_optimiser(undisturbed):
    import torch

    (last,), (best,) = (files(undisturbed[0], name) for name in ("last.ckpt", "best.ckpt"))
    assert list(torch.load(last, weights_only=True)) == ["callbacks"]
    assert "optimizer_states" not in torch.load(best, weights_only=True)
