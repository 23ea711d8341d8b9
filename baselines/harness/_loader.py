"""The batches of a training, as Lightning asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import lightning.pytorch as pl

from pertbase.baselines.harness._trained import Draws
from pertbase.errors import InputError

__all__ = ["PairLoader", "ahead"]


class PairLoader:
    """Yields what is left of the current epoch, whichever step training stands at.

    It keeps no position of its own: epoch and step are read off the trainer when the first batch is asked for, so that
    a checkpoint within an epoch is taken up at the very next batch.

    Parameters
    ----------
    sampler
        Draws the batches.
    prefetch
        Batches drawn ahead in a thread; 0 draws each when it is asked for.
    """

    def __init__(self, sampler: Draws, *, prefetch: int = 0) -> None:
        self.sampler = sampler
        self.prefetch = prefetch
        self.trainer: pl.Trainer | None = None

    def __len__(self) -> int:
        return self.sampler.steps

    def __iter__(self) -> Iterator[Any]:
        trainer = self.trainer
        if trainer is None:
            raise RuntimeError("the loader has no trainer to read its position off")
        # The counters are settled by the time the first batch is asked for, not when the iterator is made.
        batches = self.sampler.batches(
            trainer.current_epoch,
            start_step=trainer.fit_loop.epoch_loop.batch_progress.current.ready,
            rank=trainer.global_rank,
            world=trainer.world_size,
        )
        yield from ahead(batches, self.prefetch)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: it makes no sense for other batches."""
        return {"cells": len(self.sampler), "batch_size": self.sampler.batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Check that a checkpoint is of these batches."""
        if state != self.state_dict():
            raise InputError(
                "the checkpoint is of another training",
                key="cells and batch_size",
                value=state,
                remedy=f"here they are {self.state_dict()}",
            )


def ahead(batches: Iterator[Any], number: int) -> Iterator[Any]:
    """Yield the same batches, up to ``number`` of them drawn ahead in a thread."""
    if not number:
        yield from batches
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as executor:
        # One thread, so that the iterator is never advanced twice at a time and order is kept.
        waiting: list[Future[list[Any]]] = [executor.submit(lambda: list(islice(batches, 1))) for _ in range(number)]
        while found := waiting.pop(0).result():
            waiting.append(executor.submit(lambda: list(islice(batches, 1))))
            yield found[0]
