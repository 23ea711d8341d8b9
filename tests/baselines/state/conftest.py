"""A small fold of the simulated screen, and a STATE small enough to train in seconds."""

from __future__ import annotations

import pytest

from pertbase.baselines.state import STATE
from pertbase.folds import FoldMaker, FoldSpec, Inputs, Training

SMALL = {
    "hidden_size": 16, "layers": 1, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "set_size": 16,
    "batch_size": 8, "max_epochs": 2, "learning_rate": 0.003, "n_controls": 40,
}  # fmt: skip


def few_conditions(screen, n_perturbations: int):
    """Return a screen of the first perturbations of its contexts, and up to 30 cells of each condition."""
    names = sorted({name for name in screen.perturbations if screen.perturbations[name].modality == "genetic"})
    wanted = set(names[:n_perturbations])
    obs = screen.obs
    turn = obs.groupby(["context", "perturbation"], observed=True).cumcount()
    keep = (obs["perturbation"].isin(wanted) & (turn < 30)) | (obs["is_control"] & (turn < 150))
    return screen.subset(keep.to_numpy())


@pytest.fixture(scope="session")
def few(simulated):
    return few_conditions(simulated, 24)


@pytest.fixture(scope="session")
def small_fold(few):
    """Every condition of a context is held out."""
    return FoldMaker(few).make(FoldSpec(kind="unseen_context_genetic"))


@pytest.fixture(scope="session")
def training(small_fold) -> Training:
    return small_fold.make_training(seed=0, cells=True)


@pytest.fixture(scope="session")
def inputs(small_fold) -> Inputs:
    return small_fold.inputs("test")


@pytest.fixture(scope="session")
def fitted(training) -> STATE:
    return STATE(**SMALL).fit(training)
