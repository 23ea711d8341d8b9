"""A small fold and models small enough to train in a second."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))

from scgpt_toy import SIZE, SMALL, published, some_cells

from pertbase.baselines.scgpt import ScGPT
from pertbase.baselines.scgpt._net import ScGPTNet
from pertbase.folds import FoldMaker, FoldSpec, Inputs, Training


@pytest.fixture(scope="session")
def small_fold(simulated):
    """Two contexts of the simulated screen; test holds perturbations never seen."""
    keep = simulated.obs["context"].isin(simulated.contexts[:2]).to_numpy()
    return FoldMaker(simulated.subset(keep)).make(FoldSpec(kind="unseen_perturbation_genetic"))


@pytest.fixture(scope="session")
def training(small_fold) -> Training:
    """Twenty cells of each condition: enough for what is asked here."""
    whole = small_fold.make_training(seed=0, cells=True)
    return replace(whole, cells=whole.cells.take(some_cells(whole.cells, 20)))


@pytest.fixture(scope="session")
def inputs(small_fold) -> Inputs:
    return small_fold.inputs("test")


@pytest.fixture(scope="session")
def fitted(training) -> ScGPT:
    return ScGPT(**SMALL).fit(training)


@pytest.fixture(scope="session")
def upstream(training) -> ScGPT:
    return ScGPT(**SMALL, preset="upstream").fit(training)


@pytest.fixture
def checkpoint(tmp_path: Path, training: Training) -> Callable[..., Path]:
    """Writes a checkpoint of a random network whose vocabulary holds the genes in another order, and more."""

    def write(
        name: str = "pretrained", *, style: str = "in_proj", decoder: bool = False, absent: int = 0, seed: int = 3
    ) -> Path:
        genes = [str(gene) for gene in training.genes][absent:]
        tokens = np.random.default_rng(0).permutation([*genes, "<cls>", "<pad>", *(f"OTHER{row}" for row in range(20))])
        vocabulary = {str(token): row for row, token in enumerate(tokens)}
        torch.manual_seed(seed)
        net = ScGPTNet(len(vocabulary), SIZE)
        with torch.no_grad():
            for key, item in net.named_parameters():
                if "norm" in key or key.endswith("bias"):
                    item.add_(0.1 * torch.randn_like(item))
        folder = tmp_path / name
        folder.mkdir()
        torch.save(published(net, style=style, decoder=decoder), folder / "best_model.pt")
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        about = {"embsize": 12, "nheads": 2, "d_hid": 8, "nlayers": 2, "n_layers_cls": 3, "dropout": 0.2}
        (folder / "args.json").write_text(json.dumps(about))
        return folder

    return write
