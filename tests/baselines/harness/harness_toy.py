"""A model small enough to train in a second, in a file of its own: ranks and resumed runs are processes that import it.

A target's embedding decides a shift of every gene.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from pertbase.baselines.harness import LightningBaseline, PerturbationModule

TRAINED = {"max_epochs": 3, "batch_size": 256}
CPU = {"accelerator": "cpu"}
TWO = {**CPU, "devices": 2}

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
        if self.global_step == FAIL_AT or self.baseline.fail_on_rank == self.global_rank:
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


def fitted(training, folder=None, trainer=CPU, **options):
    """Return a toy fitted to a training, in a folder of its own where one is given."""
    baseline = Shift(**{**TRAINED, **options})
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
