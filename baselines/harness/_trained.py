"""What every trained baseline shares: how long, on what, and where it keeps what it learnt."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pertbase._io import canonical_json, plain, sha256_text
from pertbase.baselines.base import Baseline
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import Training
from pertbase.folds._cells import hash_frame

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback

    from pertbase.baselines.harness._module import TrainedModule

__all__ = ["Draws", "Trained", "not_fitted", "trained_on"]


class Draws(Protocol):
    """What draws the batches of a training: all that the harness asks of it.

    Attributes
    ----------
    batch_size
        Items in a batch, over all ranks together.
    """

    batch_size: int

    def __len__(self) -> int:
        """Return how many items can be drawn."""

    @property
    def steps(self) -> int:
        """Batches in an epoch."""

    def batches(self, epoch: int, *, start_step: int = 0, rank: int = 0, world: int = 1) -> Iterator[Any]:
        """Yield the batches of an epoch from a step on, or a rank's share of each."""


class Trained(Baseline):
    """A baseline with a LightningModule: a subclass writes :meth:`build`, :meth:`sampler` and how to select on val.

    Parameters
    ----------
    max_epochs
        Epochs at most.
    batch_size
        Items in a batch, over all devices together.
    patience
        Epochs without a better ``monitor`` after which training stops; it runs to ``max_epochs`` if None.
    clip_norm
        Largest norm of all gradients together; at most one of this and ``clip_value``.
    clip_value
        Largest absolute value of each gradient; at most one of this and ``clip_norm``.
    monitor
        What is selected on, smaller being better. One whose name starts with ``val_`` is not asked for where
        :meth:`selects` says that val cannot tell.
    """

    refit: ClassVar[bool] = False
    least_epochs: ClassVar[int] = 1

    def __init__(
        self,
        *,
        max_epochs: int,
        batch_size: int,
        patience: int | None,
        clip_norm: float | None,
        clip_value: float | None,
        monitor: str,
    ) -> None:
        if max_epochs < self.least_epochs:
            raise InputError("a model is trained for at least one epoch", key="max_epochs", value=max_epochs)
        if clip_norm is not None and clip_value is not None:
            raise InputError("gradients are clipped by norm or by value", key="clip_value", value=clip_value)
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.patience = patience
        self.clip_norm = clip_norm
        self.clip_value = clip_value
        self.monitor = monitor
        self._folder: Path | None = None
        self._settings = TrainerSettings()

    @abstractmethod
    def build(self, training: Training) -> TrainedModule:
        """Return the untrained module for a training.

        Torch's generator is seeded from the training's seed before. Several ranks build the same.
        """

    @abstractmethod
    def sampler(self, training: Training, module: Any, *, split: str = "train") -> Draws:
        """Return what draws the batches of a training, for a module that :meth:`build` returned."""

    @abstractmethod
    def selects(self, training: Training, module: Any) -> bool:
        """Return whether val can tell one epoch from another."""

    @abstractmethod
    def selection(self, training: Training, module: Any) -> Callback:
        """Return what logs, after each epoch, how good it is on val; asked for where :meth:`selects` says yes."""

    # -- where and how --------------------------------------------------------------------------------------

    def workspace(self, folder: Path, trainer: Mapping[str, Any]) -> dict[str, Any]:
        """Take the folder to keep checkpoints and logs in, and how to train; nothing is written yet.

        Parameters
        ----------
        folder
            The run's. Without one, ``fit`` keeps its files in a temporary folder and cannot be taken up again.
        trainer
            A configuration of ``conf/trainer``; see :class:`TrainerSettings`.

        Returns
        -------
        dict
            The settings that predictions depend on; they belong to what identifies the run.
        """
        self._settings = TrainerSettings.from_config(trainer)
        self._folder = Path(folder)
        return self._settings.numbers()

    def at(self, folder: Path) -> None:
        """Take the folder of the run alone: other ranks know no more of it."""
        self._folder = Path(folder)

    @property
    def settings(self) -> TrainerSettings:
        """How it is trained."""
        return self._settings

    def training_key(self, training: Training) -> str:
        """Return what tells this training from others: a fit of a copy to other conditions mixes no checkpoints."""
        parts = {
            "baseline": f"{type(self).__module__}.{type(self).__qualname__}",
            "parameters": plain(self.parameters()),
            # only where there are some: the keys of the others are what they were
            **({"files": files} if (files := self.file_hashes()) else {}),
            "trainer": self._settings.numbers(),
            "fold": [training.data, training.fold, training.kind, training.statistic],
            "seed": training.seed,
            "genes": list(training.genes),
            "conditions": hash_frame(training.conditions),
            "basal": None if training.basal is None else hash_frame(training.basal),
            **self.learnt_from(training),
        }
        return sha256_text(canonical_json(parts))[:16]

    def learnt_from(self, training: Training) -> dict[str, Any]:
        """Return the hashes of what else of a training is learnt from."""
        return {
            "cells": None if training.cells is None else hash_frame(training.cells.obs),
            "effects": None if training.effects is None else hash_frame(training.effects.frame().reset_index()),
            "gene_sets": None if training.gene_sets is None else sha256_text(canonical_json(training.gene_sets)),
        }

    def train(self, training: Training) -> Any:
        """Return the trained module, from the start or from where a training of the same key stopped.

        Raises
        ------
        PertbaseError
            Where training diverges or a rank fails.
        """
        from pertbase.baselines.harness._train import train

        if self._folder is not None:
            return train(self, training, self._folder / "training" / self.training_key(training), self._settings)
        with tempfile.TemporaryDirectory(prefix="pertbase-") as temporary:
            return train(self, training, Path(temporary), self._settings)

    @property
    def device(self) -> str:
        """What it is trained on, for the record of a run."""
        return trained_on(self._settings)


def trained_on(settings: TrainerSettings) -> str:
    """Return what a model is trained on, for the record of a run."""
    import torch

    device = settings.device()
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    count = f"{settings.world} x " if settings.world > 1 else ""
    return f"{count}{device.type}{name}"


def not_fitted(owner: object) -> PertbaseError:
    """Return the error of a baseline that is asked before ``fit``."""
    return PertbaseError(f"{type(owner).__name__} is not fitted", remedy="call fit(training) first")
