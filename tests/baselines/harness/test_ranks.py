"""Several ranks, started from what the run saved, train what one process would."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import harness_toy as toy
import numpy as np
import pandas as pd
import pytest
import torch.distributed as dist
from harness_toy import CPU, TRAINED, TWO, files, fitted
from hydra.utils import instantiate

from pertbase._io import read_yaml
from pertbase.baselines.harness._ranks import Place, Ranks, read_training, write_training
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.cli import main
from pertbase.errors import InputError, PertbaseError
from pertbase.runs import find_runs


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
def test_ranks_take_up_a_stopped_training_and_are_never_asked_to_repeat_an_ended_one(training, inputs, tmp_path):
    whole = fitted(training, tmp_path / "whole", TWO).predict(inputs)
    stopped = {**TWO, "checkpoint_every": 7}
    toy.FAIL_AT = 50  # of rank 0, in this process
    with pytest.raises((RuntimeError, PertbaseError)):
        fitted(training, tmp_path / "stopped", stopped)
    toy.FAIL_AT = None
    started = time.monotonic()
    assert np.array_equal(fitted(training, tmp_path / "stopped", stopped).predict(inputs).values, whole.values)
    again = time.monotonic()
    assert np.array_equal(fitted(training, tmp_path / "stopped", stopped).predict(inputs).values, whole.values)
    assert time.monotonic() - again < (again - started) / 3


@pytest.mark.slow
def test_a_rank_that_fails_is_told_with_its_own_words_and_leaves_no_process(training, tmp_path):
    with pytest.raises(PertbaseError, match=r"rank 1 ended early.*told to fail") as raised:
        fitted(training, tmp_path, TWO, fail_on_rank=1)
    assert "Traceback" in Path(raised.value.file).read_text()
    assert not files(tmp_path, "training.pickle")
    assert not dist.is_initialized()


def test_a_baseline_that_other_processes_cannot_import_is_refused_by_several_ranks(training, tmp_path):
    class Local(toy.Shift):
        pass

    baseline = Local(**TRAINED)
    baseline.workspace(tmp_path, TWO)
    with pytest.raises(InputError, match="module of its own"):
        baseline.fit(training)


def test_what_ranks_read_is_what_was_saved_and_shares_its_memory(training, tmp_path):
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


def test_a_rank_that_dies_before_it_is_ready_is_told_and_leaves_nothing(training, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    ranks = Ranks(toy.Shift(**TRAINED), training, tmp_path, TrainerSettings.from_config(TWO))
    with pytest.raises(PertbaseError, match="rank 1 ended early: it said nothing"), ranks:
        raise AssertionError("a rank that never came was met")
    assert not ranks.saved.exists()
    assert not dist.is_initialized()


@pytest.mark.parametrize("failure", [None, RuntimeError("training broke")])
def test_what_is_saved_for_ranks_makes_the_same_baseline_and_goes_when_training_ends(training, tmp_path, failure):
    baseline = toy.Shift(**{**TRAINED, "width": 3})
    ranks = Ranks(baseline, training, tmp_path, TrainerSettings.from_config(CPU))
    ends = contextlib.nullcontext() if failure is None else pytest.raises(RuntimeError, match="training broke")
    with ends, ranks as place:
        assert (place.global_rank(), place.local_rank(), place.node_rank(), place.world_size()) == (0, 0, 0, 1)
        assert dist.get_world_size() == 1
        config = read_yaml(ranks.saved / "config.yaml")
        assert (config["world"], config["port"]) == (1, place.main_port)
        assert instantiate(config["baseline"]).parameters() == baseline.parameters()
        if failure is not None:
            raise failure
    assert not ranks.saved.exists()
    assert not dist.is_initialized()


def test_lightning_is_told_that_every_rank_is_started_already():
    place = Place(2, 4, 4567)
    place.set_global_rank(0)
    place.set_world_size(1)
    assert (place.global_rank(), place.local_rank(), place.world_size(), place.main_port) == (2, 2, 4, 4567)
    assert place.creates_processes_externally
    assert place.main_address == "127.0.0.1"
    assert not Place.detect()
