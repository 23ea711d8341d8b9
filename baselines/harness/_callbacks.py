"""What happens around a training step: seeding, selection on val, checkpoints, early stopping."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint

from pertbase._random import generator
from pertbase.baselines.harness._module import PerturbationModule
from pertbase.baselines.harness._predict import Asked, predicted_effects
from pertbase.errors import InputError, PertbaseError

__all__ = ["Checkpoints", "Heartbeat", "Losses", "Seeding", "Selection", "seed_torch"]

_log = logging.getLogger("pertbase.training")


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
        asked, measured = self.asked.take(mine), self.measured[mine]
        predicted = np.zeros_like(measured)
        if len(mine):
            with trainer.precision_plugin.val_step_context():
                predicted = predicted_effects(module, asked)
        others = module.selection_scores(asked.inputs, predicted, measured)
        found = [((predicted - measured) ** 2).sum(), (measured**2).sum(), *(item.sum() for item in others.values())]
        if world > 1:
            sums = torch.tensor(found, dtype=torch.float32, device=module.device)
            found = trainer.strategy.reduce(sums, reduce_op="sum").tolist()
        error, size, *rest = map(float, found)
        for name, total in zip(others, rest, strict=True):
            module.log(name, total / len(self.measured), sync_dist=world > 1)
        module.log("val_mse", error / self.measured.size, prog_bar=True, sync_dist=world > 1)
        if size > 0:
            module.log("val_explained", 1.0 - error / size, sync_dist=world > 1)


class Heartbeat(Callback):
    """Tells the logger ``pertbase.training`` how far a training is, where no progress bar does.

    A line when it starts, one after the first epoch and the last, and between them one every so many seconds, within a
    long epoch too.

    Parameters
    ----------
    monitor
        The figure that epochs are selected by, told with each; the loss where there is none.
    every
        Seconds between lines.
    """

    def __init__(self, monitor: str | None, *, every: float = 30.0) -> None:
        self.monitor = monitor
        self.every = every
        self._started = self._told = 0.0
        self._ended = 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Say how much there is to do, and from where on."""
        self._started = self._told = time.monotonic()
        done = f", taken up at epoch {trainer.current_epoch + 1}" if trainer.global_step else ""
        steps = int(trainer.num_training_batches)
        _log.info("training on %s: at most %s epochs of %s steps%s", module.device, trainer.max_epochs, steps, done)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Say which step this is, where nothing was said for long."""
        if time.monotonic() - self._told >= self.every and batch_idx + 1 < trainer.num_training_batches:
            what = f"step {batch_idx + 1} of {int(trainer.num_training_batches)}"
            self._tell(trainer.current_epoch + 1, trainer, what)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Keep in mind which epoch ended: what the module itself logs of it is not there yet."""
        self._ended = trainer.current_epoch + 1

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Say how good the epoch before was, the first, or where nothing was said for long."""
        if self._ended == 1 or (self._ended and time.monotonic() - self._told >= self.every):
            self._tell_epoch(trainer)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Say how good the last epoch was."""
        if self._ended:
            self._tell_epoch(trainer)

    def _tell_epoch(self, trainer: pl.Trainer) -> None:
        name = self.monitor or "train_loss"
        value = trainer.callback_metrics.get(name)
        self._tell(self._ended, trainer, name if value is None else f"{name} {float(value):.4g}")
        self._ended = 0

    def _tell(self, epoch: int, trainer: pl.Trainer, what: str) -> None:
        self._told = time.monotonic()
        _log.info("epoch %s of %s: %s, %.0f s", epoch, trainer.max_epochs, what, self._told - self._started)


class Checkpoints(Checkpoint):
    """Keeps ``last.ckpt``, to go on from, and ``best.ckpt``, the weights of the best epoch.

    Lightning's own keeps the two in one callback per trigger, numbers names it finds taken, and says of neither when
    training ended. Here every file is written aside and renamed; ``best.ckpt`` is always written before the
    ``last.ckpt`` that speaks of it, so that a stop between the two costs one interval and mixes nothing; and
    ``last.ckpt`` knows whether training had ended. Then it says that and no more: there is nothing to go on with, and
    the optimiser's state alone is twice the weights.

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

    def take_up(self) -> None:
        """Take up what ``last.ckpt`` says, where there is one.

        Raises
        ------
        PertbaseError
            Where it is damaged, or the best weights that it speaks of are not there: before anything is trained.
        """
        if not self.last.exists():
            return
        kept = _read(self.last)
        try:
            self.load_state_dict(kept["callbacks"][self.state_key])
        except (KeyError, TypeError) as error:
            raise _damaged(self.last, f"it lacks {error}") from error
        if self.best_epoch is not None and not self.best.exists():
            raise PertbaseError(
                f"there are no weights of the best epoch, {self.best_epoch + 1}, and {self.last.name} speaks of them",
                file=self.best,
                remedy=f"remove {self.folder}; the same command then trains anew",
            )
        if self.best_epoch is not None and not self.ended:
            self.best_weights()  # before hours are spent that may not better them

    def best_weights(self) -> dict[str, Any]:
        """Return the weights of the best epoch.

        Raises
        ------
        PertbaseError
            Where there was none, or the file is damaged.
        """
        if not self.best.exists():
            raise PertbaseError(
                f"training diverged: {self.monitor} was never finite",
                file=self.folder,
                remedy="lower the learning rate, or clip gradients",
            )
        kept = _read(self.best)
        if not isinstance(kept.get("state_dict"), dict):
            raise _damaged(self.best, "it lacks 'state_dict'")
        weights: dict[str, Any] = kept["state_dict"]
        return weights

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
            if self.ended and path == self.last:
                if trainer.is_global_zero:
                    torch.save({"callbacks": {self.state_key: self.state_dict()}}, aside)
            else:
                trainer.save_checkpoint(aside, weights_only=weights_only)
            if trainer.is_global_zero:
                with aside.open("rb") as written:
                    os.fsync(written.fileno())
                os.replace(aside, path)
        except (OSError, RuntimeError) as error:  # torch's own writer raises the latter on a full disk
            if isinstance(error, RuntimeError) and "Writer" not in str(error) and "write" not in str(error):
                raise
            raise PertbaseError(
                f"cannot write a checkpoint ({getattr(error, 'strerror', None) or str(error).splitlines()[0]})",
                file=path,
                remedy="make room; the same command goes on from the last checkpoint",
            ) from error


def _read(path: Path) -> dict[str, Any]:
    """Return what a checkpoint of ours holds, read without running anything."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, UnpicklingError) as error:
        first = str(error).partition("\n")[0].partition(". ")[0]  # torch goes on for several sentences
        raise _damaged(path, first or type(error).__name__) from error
    if not isinstance(found, dict):
        raise _damaged(path, f"it holds a {type(found).__name__}")
    return found


def _damaged(path: Path, why: str) -> PertbaseError:
    return PertbaseError(
        f"this checkpoint is damaged ({why})", file=path,
        remedy=f"remove {path.parent}; the same command then trains anew",
    )  # fmt: skip
