"""A small fold, a small network, and a graph cache that is not the user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))  # for a module that processes of their own run

from pertbase.baselines.gears import GEARS
from pertbase.baselines.gears._nets import Adjacency, GearsNet
from pertbase.folds import FoldMaker, FoldSpec, Inputs, Training

SMALL = {"hidden_size": 8, "max_epochs": 2, "batch_size": 256}


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="session")
def small_fold(simulated):
    """Every condition of two contexts of the simulated screen; test holds perturbations never seen."""
    keep = simulated.obs["context"].isin(simulated.contexts[:2]).to_numpy()
    return FoldMaker(simulated.subset(keep)).make(FoldSpec(kind="unseen_perturbation_genetic"))


@pytest.fixture(scope="session")
def training(small_fold) -> Training:
    return small_fold.make_training(seed=0, cells=True)


@pytest.fixture(scope="session")
def inputs(small_fold) -> Inputs:
    return small_fold.inputs("test")


@pytest.fixture(scope="session")
def fitted(training) -> GEARS:
    return GEARS(**SMALL).fit(training)


def random_adjacency(rng: np.random.Generator, n_nodes: int, k: int = 4) -> Adjacency:
    """A directed graph in which some nodes lack a self-loop."""
    edges = np.unique(np.stack([rng.integers(0, n_nodes, n_nodes * k), np.repeat(np.arange(n_nodes), k)]), axis=1)
    return Adjacency(torch.from_numpy(edges), torch.from_numpy(rng.uniform(0.1, 1, edges.shape[1])), n_nodes)


@pytest.fixture
def net() -> GearsNet:
    """A network of 11 genes and 9 targets in float64, with weights of a size that matters."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    made = GearsNet(random_adjacency(rng, 11), random_adjacency(rng, 9), hidden=6, uncertainty=True).double()
    with torch.no_grad():
        for name, item in made.named_parameters():
            if "norm" in name:
                item.copy_(torch.rand_like(item) + 0.5)
            elif name.startswith(("own", "final")):
                item.normal_()
    return made
