"""How a model is trained on a machine: ``conf/trainer/*.yaml``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pertbase.errors import InputError, unknown_name

if TYPE_CHECKING:
    import torch

__all__ = ["ACCELERATORS", "PRECISIONS", "STRATEGIES", "TrainerSettings"]

ACCELERATORS = ("auto", "cpu", "gpu", "mps")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
STRATEGIES = ("ddp", "fsdp")


@dataclass(frozen=True)
class TrainerSettings:
    """How, and on what, a model is trained.

    Parameters
    ----------
    accelerator
        ``cpu``, ``gpu`` (CUDA), ``mps`` or ``auto`` (a GPU where there is one).
    devices
        How many, or which by number. With several, one process each, started by us, shares every batch.
    strategy
        How several devices share the work: ``ddp``, a whole model each; ``fsdp``, shards of weights, gradients and
        moments, for models that do not fit (GPUs only; not verified here).
    precision
        ``32-true``, ``bf16-mixed`` or ``16-mixed``; predictions are made in the same.
    deterministic
        Whether an operation without a deterministic form is an error; ``warn`` tolerates it, and the same seed may then
        give other numbers.
    compile
        Whether the module's parts are compiled for training, with ``torch.compile``.
    gradient_checkpointing
        Whether activations are computed again in the backward pass rather than kept; for modules that support it.
    sync_batchnorm
        Whether torch's batch norms see the batches of all devices (GPU only). Those of GEARS always do.
    find_unused_parameters
        Whether several devices allow for parameters that a batch does not use, as GEARS and scGPT have; without, they
        are a little faster, and such a batch is an error.
    checkpoint_every
        Steps after which a checkpoint is written, beside the one at each epoch's end.
    prefetch
        Batches drawn ahead in a thread, while the device computes.
    progress
        Whether to show a progress bar; where the output is a terminal, if null.
    loggers
        Name -> configuration with ``_target_`` of further Lightning loggers. A CSV log is always kept.
    """

    accelerator: str = "cpu"
    devices: int | tuple[int, ...] = 1
    strategy: str = "ddp"
    precision: str = "32-true"
    deterministic: bool | str = True
    compile: bool = False
    gradient_checkpointing: bool = False
    sync_batchnorm: bool = False
    find_unused_parameters: bool = True
    checkpoint_every: int | None = None
    prefetch: int = 0
    progress: bool | None = None
    loggers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("accelerator", self.accelerator, ACCELERATORS)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("strategy", self.strategy, STRATEGIES)
        _check("deterministic", self.deterministic, self.deterministic in (True, False, "warn"), "true, false or warn")
        numbers = self.devices if isinstance(self.devices, tuple) else (self.devices,)
        whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
        least = 0 if isinstance(self.devices, tuple) else 1
        right = whole and bool(numbers) and min(numbers) >= least and len(set(numbers)) == len(numbers)
        _check("devices", self.devices, right, "a number from 1 on, or a list of device numbers")
        every = self.checkpoint_every
        _check("checkpoint_every", every, every is None or (isinstance(every, int) and every > 0), "a number of steps")
        _check("prefetch", self.prefetch, isinstance(self.prefetch, int) and self.prefetch >= 0, "a number from 0 on")
        if self.strategy == "fsdp" and (self.accelerator != "gpu" or self.world == 1):
            raise InputError(
                "shards are those of several GPUs", key="trainer.strategy", value=self.strategy,
                remedy="use trainer=ddp trainer.strategy=fsdp trainer.devices=2 or more",
            )  # fmt: skip
        if isinstance(self.devices, tuple) and self.accelerator == "cpu":
            raise InputError("processors have no numbers", key="trainer.devices", value=list(self.devices))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TrainerSettings:
        """Return the settings a configuration describes.

        Raises
        ------
        InputError
            Where a key is unknown or a value is none of those it takes.
        """
        known = [f.name for f in fields(cls)]
        for key in config:
            if key not in known:
                raise unknown_name("option of trainer", str(key), known)
        devices = config.get("devices", 1)
        return cls(**{**config, "devices": tuple(devices) if isinstance(devices, list) else devices})

    @property
    def world(self) -> int:
        """How many processes train."""
        return len(self.devices) if isinstance(self.devices, tuple) else self.devices

    def numbers(self) -> dict[str, Any]:
        """Return the settings that predictions depend on, be it by rounding: what identifies a run."""
        names = ("accelerator", "devices", "precision", "deterministic", "compile", "sync_batchnorm")
        found = {name: getattr(self, name) for name in names}
        sharded = {"strategy": self.strategy} if self.strategy != "ddp" else {}
        return {**found, "devices": self.world, **sharded}

    def to_config(self) -> dict[str, Any]:
        """Return what :meth:`from_config` takes."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        devices = list(self.devices) if isinstance(self.devices, tuple) else self.devices
        return {**found, "devices": devices, "loggers": {key: dict(value) for key, value in self.loggers.items()}}

    def kind(self) -> str:
        """Return the accelerator, ``auto`` resolved: ``cpu``, ``gpu`` or ``mps``.

        Raises
        ------
        InputError
            Where this machine has none of that kind, or fewer than are asked for.
        """
        import torch

        available = {
            "cpu": True,
            "gpu": torch.cuda.is_available(),
            "mps": torch.backends.mps.is_available(),
        }
        kind = self.accelerator
        if kind == "auto":
            kind = next(name for name in ("gpu", "mps", "cpu") if available[name])
        if not available[kind]:
            raise InputError(
                "this machine has no such device that torch can use",
                key="trainer.accelerator",
                value=self.accelerator,
                remedy="use trainer=cpu, or install a torch built for it",
            )
        if kind == "gpu":
            wanted = max(self.devices) + 1 if isinstance(self.devices, tuple) else self.devices
            if wanted > torch.cuda.device_count():
                raise InputError(
                    f"this machine has {torch.cuda.device_count()} GPUs", key="trainer.devices", value=self.devices
                )
        return kind

    def device(self) -> torch.device:
        """Return the device predictions are made on: the first of those that train."""
        import torch

        kind = self.kind()
        number = self.devices[0] if isinstance(self.devices, tuple) else 0
        return torch.device("cpu") if kind == "cpu" else torch.device("cuda" if kind == "gpu" else "mps", number)


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(f"trainer.{key}", str(value), known)


def _check(key: str, value: Any, right: bool, remedy: str) -> None:
    if not right:
        raise InputError("is not a setting", key=f"trainer.{key}", value=value, remedy=f"use {remedy}")
