"""What happens around a training step: seeding, selection on val, checkpoints, early stopping."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint

from pertbase._random import generator
from pertbase.baselines.harness._module import PerturbationModule
from pertbase.baselines.harness._predict import Asked, predicted_effects
from pertbase.errors import InputError, PertbaseError

__all__ = ["Checkpoints", "Losses", "Seeding", "Selection", "seed_torch"]


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed the generators that a step on a device draws from.

    ``torch.manual_seed`` seeds those of every kind of device; for kinds that are not in use it queues the call with the
    stack it came from, which costs 1 ms and is never forgotten.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


class Seeding(Callback):
    """Seeds torch before each step from (seed, epoch, step, rank).

    Nothing of a generator's state then needs to be in a checkpoint, and dropout differs between ranks.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Refuse schedulers that wait for a plateau."""
        if any(scheduler.reduce_on_plateau for scheduler in trainer.lr_scheduler_configs):
            raise InputError(
                "a schedule that waits for a plateau cannot be taken up again exactly",
                key="configure_optimizers",
                value=type(module).__name__,
                remedy="use one that depends on epoch or step",
            )

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed the step."""
        purpose = ("step", str(trainer.current_epoch), str(batch_idx), str(trainer.global_rank))
        seed_torch(int(generator(self.seed, *purpose).integers(2**63)), module.device)


class Losses(Callback):
    """Logs the loss of some steps, ``train_loss_step``, and its mean over each epoch, ``train_loss``.

    The sum goes into checkpoints, so that the mean of an epoch that was stopped is of all its steps.
    """

    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0
        self._pending: list[torch.Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        """Return the sum so far."""
        self._gather()
        return {"sum": self.sum, "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a sum."""
        self.sum, self.count = state_dict["sum"], state_dict["count"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the loss; log that of every ``log_every_n_steps``-th step."""
        loss = outputs["loss"].detach()
        self._pending.append(loss)
        if (batch_idx + 1) % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            self._gather()
            module.log("train_loss_step", loss, on_step=True, batch_size=len(batch), prog_bar=True)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Log the mean, and begin anew."""
        self._gather()
        module.log("train_loss", self.sum / self.count, prog_bar=True, sync_dist=trainer.world_size > 1)
        self.sum, self.count = 0.0, 0

    def _gather(self) -> None:
        """Add up what has been kept: reading a loss waits for the device, so it is done for many at a time."""
        if self._pending:
            for loss in torch.stack(self._pending).tolist():  # one by one: the same sum wherever it is interrupted
                self.sum += loss
            self.count += len(self._pending)
            self._pending = []


class Selection(Callback):
    """After each epoch, logs how far predicted effects of val are from the measured ones.

    ``val_mse`` is the mean squared error over val's conditions and genes, ``val_explained`` one minus its ratio to that
    of predicting no effect: the share of measured effects that is explained, noise included.
    """

    def __init__(self, asked: Asked, measured: np.ndarray) -> None:
        self.asked = asked
        self.measured = measured

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Predict, compare and log."""
        if not isinstance(module, PerturbationModule):
            raise TypeError("selection is of a PerturbationModule")
        rank, world = trainer.global_rank, trainer.world_size
        mine = np.arange(rank, len(self.measured), world)
        error, size = 0.0, 0.0
        if len(mine):
            with trainer.precision_plugin.val_step_context():
                predicted = predicted_effects(module, self.asked.take(mine))
            error = float(((predicted - self.measured[mine]) ** 2).sum())
            size = float((self.measured[mine] ** 2).sum())
        if world > 1:
            sums = torch.tensor([error, size], dtype=torch.float32, device=module.device)
            error, size = (float(item) for item in trainer.strategy.reduce(sums, reduce_op="sum"))
        module.log("val_mse", error / self.measured.size, prog_bar=True, sync_dist=world > 1)
        if size > 0:
            module.log("val_explained", 1.0 - error / size, sync_dist=world > 1)


class Checkpoints(Checkpoint):
    """Keeps ``last.ckpt``, to go on from, and ``best.ckpt``, the weights of the best epoch.

    Lightning's own keeps the two in one callback per trigger, numbers names it finds taken, and says of neither when
    training ended. Here every file is written aside and renamed; ``best.ckpt`` is always written before the
    ``last.ckpt`` that speaks of it, so that a stop between the two costs one interval and mixes nothing; and
    ``last.ckpt`` knows whether training had ended.

    Parameters
    ----------
    folder
        Where they are kept.
    monitor
        The metric, smaller being better, or None where there is nothing to select on: the last epoch is best then.
    every
        Steps after which ``last.ckpt`` is written within an epoch.
    """

    def __init__(self, folder: Path, *, monitor: str | None, every: int | None) -> None:
        self.folder = folder
        self.monitor = monitor
        self.every = every
        self.best_score: float | None = None
        self.best_epoch: int | None = None
        self.ended = False

    @property
    def last(self) -> Path:
        """The file to go on from."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """The file with the best weights."""
        return self.folder / "best.ckpt"

    def state_dict(self) -> dict[str, Any]:
        """Return what ``last.ckpt`` says of the two."""
        return {"best_score": self.best_score, "best_epoch": self.best_epoch, "ended": self.ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what ``last.ckpt`` says."""
        self.best_score, self.best_epoch = state_dict["best_score"], state_dict["best_epoch"]
        self.ended = state_dict["ended"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write ``last.ckpt`` every so many steps; that of an epoch's last step waits for the epoch's end."""
        if self.every and (batch_idx + 1) % self.every == 0 and batch_idx + 1 < trainer.num_training_batches:
            self._save(trainer, self.last)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Write ``best.ckpt`` where this epoch is the best so far, then ``last.ckpt``."""
        score = None
        if self.monitor is not None:
            if self.monitor not in trainer.callback_metrics:
                raise InputError(
                    "nothing of this name is logged",
                    key="monitor",
                    value=self.monitor,
                    remedy=f"logged are {', '.join(sorted(trainer.callback_metrics))}",
                )
            score = float(trainer.callback_metrics[self.monitor])
        if score is None or (np.isfinite(score) and (self.best_score is None or score < self.best_score)):
            self.best_score, self.best_epoch = score, trainer.current_epoch
            self._save(trainer, self.best, weights_only=True)
        self.ended = bool(trainer.should_stop) or trainer.current_epoch + 1 >= (trainer.max_epochs or 0)
        self._save(trainer, self.last)

    def _save(self, trainer: pl.Trainer, path: Path, *, weights_only: bool = False) -> None:
        aside = path.with_name(f".{path.name}.part")
        try:
            trainer.save_checkpoint(aside, weights_only=weights_only)
            if trainer.is_global_zero:
                with aside.open("rb") as written:
                    os.fsync(written.fileno())
                os.replace(aside, path)
        except OSError as error:
            raise PertbaseError(f"cannot write a checkpoint ({error.strerror or error})", file=path) from error
