"""A small training, and runs of a model small enough to train in a second."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).parent))  # for processes that are started too

import harness_toy as toy

from pertbase.cli import main
from pertbase.folds import FoldMaker, FoldSpec, Inputs, Training, write_screen


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    yield
    toy.FAIL_AT, toy.FAILURE = None, RuntimeError


@pytest.fixture(scope="session")
def fold(simulated):
    """Genetic conditions of two contexts of the simulated screen."""
    obs = simulated.obs
    genetic = {name for name, item in simulated.perturbations.items() if item.modality == "genetic"}
    keep = obs["context"].isin(simulated.contexts[:2]) & (obs["is_control"] | obs["perturbation"].isin(genetic))
    return FoldMaker(simulated.subset(keep.to_numpy())).make(FoldSpec(kind="unseen_perturbation_genetic"))


@pytest.fixture(scope="session")
def training(fold) -> Training:
    return fold.make_training(seed=0, cells=True)


@pytest.fixture(scope="session")
def inputs(fold) -> Inputs:
    return fold.inputs("test")


@pytest.fixture(scope="session")
def undisturbed(training, inputs, tmp_path_factory):
    """The folder of a training, and what it predicts."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, toy.fitted(training, folder).predict(inputs)


@pytest.fixture(scope="session")
def command(fold, tmp_path_factory) -> list[str]:
    """The start of a command line that runs the toy on the fold's screen."""
    folder = tmp_path_factory.mktemp("command")
    write_screen(fold.screen, folder / "screen.h5ad")
    configs = folder / "conf" / "baseline"
    configs.mkdir(parents=True)
    for name, width in (("shift", 4), ("wide_shift", 6)):
        about = {"_target_": "harness_toy.Shift", "width": width, "dropout": 0.0, **toy.TRAINED}
        (configs / f"{name}.yaml").write_text(yaml.safe_dump(about))
    return [
        "run", "-m", "--config-dir", str(folder / "conf"), "data=h5ad", f"data.path={folder / 'screen.h5ad'}",
        "data.name=small", "fold=unseen_perturbation_genetic",
    ]  # fmt: skip


@pytest.fixture(scope="session")
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
