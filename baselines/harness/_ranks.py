"""Several processes that train one module: started by us, from what the run saved.

Lightning would start them by running ``sys.argv`` again, which under a multirun trains another baseline on rank 1, and
in a notebook does nothing sensible. Here rank 0 is the process that called ``fit``. It saves the configuration of the
baseline and of the trainer, and the training itself, below the training's folder; each further rank is given that
folder and its number, builds the same baseline from the configuration, and trains. Only rank 0 writes checkpoints and
logs.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment

from pertbase._io import plain, read_yaml, write_yaml
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import Training

if TYPE_CHECKING:
    from pertbase.baselines.harness._trained import Trained

__all__ = ["Place", "Ranks", "join", "read_training", "write_training"]

_HOST = "127.0.0.1"
_ALIGNMENT = 64
_START = datetime.timedelta(minutes=10)
_STOP = 60.0
_DYING = 5.0
"""Seconds that other ranks get to end: where training ended, and where this one failed, perhaps because of them."""


class Place(ClusterEnvironment):
    """Which of how many processes this is; tells Lightning that all of them run already."""

    def __init__(self, rank: int, world: int, port: int) -> None:
        super().__init__()
        self.rank = rank
        self.world = world
        self.port = port

    @property
    def creates_processes_externally(self) -> bool:
        """Return True: Lightning starts none."""
        return True

    @property
    def main_address(self) -> str:
        """Return this machine's address: ranks are on one machine."""
        return _HOST

    @property
    def main_port(self) -> int:
        """Return the port of the store that ranks meet at."""
        return self.port

    @staticmethod
    def detect() -> bool:
        """Return False: it is given, never found."""
        return False

    def world_size(self) -> int:
        """Return how many ranks there are."""
        return self.world

    def set_world_size(self, size: int) -> None:
        """Ignore what is known."""

    def global_rank(self) -> int:
        """Return the rank."""
        return self.rank

    def set_global_rank(self, rank: int) -> None:
        """Ignore what is known."""

    def local_rank(self) -> int:
        """Return the rank: there is one machine."""
        return self.rank

    def node_rank(self) -> int:
        """Return 0: there is one machine."""
        return 0


def join(rank: int, world: int, port: int, settings: TrainerSettings) -> Place:
    """Meet the other ranks; to be followed by ``destroy_process_group``."""
    store = dist.TCPStore(_HOST, port, world, is_master=False, timeout=_START)  # type: ignore[attr-defined]
    store.set(f"ready/{rank}", "1")
    return _meet(store, rank, world, settings)


def _meet(store: Any, rank: int, world: int, settings: TrainerSettings) -> Place:
    group = dist.PrefixStore("group", store)  # type: ignore[attr-defined]
    device = None
    if settings.kind() == "gpu":
        numbers = settings.devices if isinstance(settings.devices, tuple) else range(world)
        device = torch.device("cuda", numbers[rank])
    backend = "gloo" if device is None else "nccl"
    dist.init_process_group(backend, store=group, rank=rank, world_size=world, device_id=device)
    return Place(rank, world, store.port)


class Ranks:
    """Starts ranks 1 and up, and ends them.

    Entering returns this process's own place. Leaving waits for the others, or ends them where this one failed.

    Parameters
    ----------
    baseline, training, settings
        What all ranks train.
    folder
        The training's. What is saved for the ranks is in its folder ``ranks`` and is removed afterwards, except for
        their logs, ``rank1.log`` and so on.

    Raises
    ------
    InputError
        Where other processes cannot import the baseline.
    PertbaseError
        Where a rank ends early; the message tells its last line.
    """

    def __init__(self, baseline: Trained, training: Training, folder: Path, settings: TrainerSettings) -> None:
        self.baseline = baseline
        self.training = training
        self.folder = folder
        self.settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def saved(self) -> Path:
        """What ranks read."""
        return self.folder / "ranks"

    def __enter__(self) -> Place:
        world = self.settings.world
        store = dist.TCPStore(  # type: ignore[attr-defined]
            _HOST, 0, world, is_master=True, timeout=_START, wait_for_workers=False
        )
        self._store = store
        shutil.rmtree(self.saved, ignore_errors=True)
        self.saved.mkdir(parents=True)
        try:
            write_yaml(self.saved / "config.yaml", self._config(store.port))
            write_training(self.training, self.saved)
            for rank in range(1, world):
                self._processes[rank] = self._start(rank)
            self._wait_until_ready()
            return _meet(store, 0, world, self.settings)
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = isinstance(error, (PertbaseError, KeyboardInterrupt))
        try:
            failed = None if told else self._failed(_STOP if error is None else _DYING)
        finally:
            self._end()
        if failed is not None:
            raise failed from error

    def _config(self, port: int) -> dict[str, Any]:
        cls = type(self.baseline)
        if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
            raise InputError(
                "other processes cannot import a baseline that is defined here",
                key="trainer.devices",
                value=f"{cls.__module__}.{cls.__qualname__}",
                remedy="put its class in a module of its own, or train on one device",
            )
        return {
            "baseline": {"_target_": f"{cls.__module__}.{cls.__qualname__}", **plain(self.baseline.parameters())},
            "trainer": self.settings.to_config(),
            "folder": str(self.folder.resolve()),
            "world": self.settings.world,
            "port": port,
        }

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(item or os.getcwd() for item in sys.path)
        with self._log(rank).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pertbase.baselines.harness._rank", str(self.saved.resolve()), str(rank)],
                # Kept open while this process lives: a rank ends when it is closed, however this one ended.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
            )

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + _START.total_seconds()
        for rank, process in self._processes.items():
            while not self._store.check([f"ready/{rank}"]):
                if process.poll() is not None or time.monotonic() > until:
                    raise self._error(rank)
                time.sleep(0.05)

    def _failed(self, seconds: float) -> PertbaseError | None:
        """Wait for all ranks to end, and return the error of the first that ended badly."""
        until = time.monotonic() + seconds
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        return next((self._error(rank) for rank, process in self._processes.items() if process.poll()), None)

    def _error(self, rank: int) -> PertbaseError:
        text = self._log(rank).read_text(encoding="utf-8", errors="replace").strip()
        last = text.splitlines()[-1] if text else "it said nothing"
        return PertbaseError(f"rank {rank} ended early: {last}", file=self._log(rank))

    def _end(self) -> None:
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
            if process.poll() is None:
                process.kill()
            process.wait()
        if dist.is_initialized():
            dist.destroy_process_group()
        del self._store
        shutil.rmtree(self.saved, ignore_errors=True)


# -- the training, as ranks read it -------------------------------------------------------------------------


def write_training(training: Training, folder: Path) -> None:
    """Save a training for the ranks: its arrays in one file that all of them map, the rest pickled.

    Ranks map the arrays rather than load them, so that the cells are in memory once however many ranks there are.
    """
    buffers: list[pickle.PickleBuffer] = []
    with (folder / "training.pickle").open("wb") as file:
        pickle.dump(training, file, protocol=5, buffer_callback=buffers.append)
    places = []
    with (folder / "training.arrays").open("wb") as file:
        for buffer in buffers:
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            start = file.tell()
            file.write(buffer.raw())
            places.append([start, file.tell()])
        file.write(b"\0" * _ALIGNMENT)  # an empty file cannot be mapped
    write_yaml(folder / "training.yaml", places)


def read_training(folder: Path) -> Training:
    """Read what :func:`write_training` wrote; for files of this process's parent alone, since pickles run code."""
    arrays = np.memmap(folder / "training.arrays", dtype=np.uint8, mode="r")
    with (folder / "training.pickle").open("rb") as file:
        found = pickle.load(file, buffers=[arrays[start:end] for start, end in read_yaml(folder / "training.yaml")])
    if not isinstance(found, Training):
        raise InputError("is not a training", file=folder / "training.pickle", value=type(found).__name__)
    return found
