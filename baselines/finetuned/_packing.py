"""Batches of examples: several in a row, none of which sees another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pertbase._random import generator
from pertbase.baselines.finetuned._examples import TrainingExample
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES

if TYPE_CHECKING:
    import torch

__all__ = ["IGNORED", "ExampleSampler", "PackedBatch", "packed", "rows_of"]

IGNORED = -100
"""The label of a place whose next token is not learnt."""


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Examples laid out in R rows of L places.

    Parameters
    ----------
    ids
        Tokens, shape (R, L).
    positions
        Places within the example, from 0 on, shape (R, L).
    segments
        Number of the example within its row, from 1 on; 0 for padding; shape (R, L).
    labels
        The next token where it is to be learnt, else :data:`IGNORED`; shape (R, L).
    weights
        Of each place in the loss, shape (R, L).
    places
        Columns in which any row has a label, shape (K,): logits of the others are never made.
    total
        The sum of the weights of all places with labels, over all ranks that share the batch.
    size
        Number of examples.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    segments: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    places: torch.Tensor
    total: float
    size: int

    def __len__(self) -> int:
        return self.size

    def to(self, device: Any, **options: Any) -> PackedBatch:
        """Return the batch on a device."""
        tensors = [item.name for item in fields(self) if item.name not in ("total", "size")]
        return replace(self, **{name: getattr(self, name).to(device, **options) for name in tensors})

    def mask(self) -> torch.Tensor:
        """Return which place sees which: earlier ones of its own example, bool, shape (R, 1, L, L).

        Padding sees padding, so that no place sees nothing.
        """
        import torch

        same = self.segments[:, None, :, None] == self.segments[:, None, None, :]
        length = self.ids.shape[1]
        return same & torch.ones(length, length, dtype=torch.bool, device=same.device).tril()


def packed(
    examples: Sequence[TrainingExample], *, row: int | None, pad: int, total: float | None = None
) -> PackedBatch:
    """Return examples as a batch.

    Parameters
    ----------
    examples
        One or more.
    row
        Tokens of a row; a longer example has a longer one to itself. One example a row if None.
    pad
        The token in places that nothing fills.
    total
        See :class:`PackedBatch`; that of these examples where not given.
    """
    import torch

    rows = rows_of([len(one) for one in examples], row)
    length = max(sum(len(examples[place]) for place in one) for one in rows)
    shape = (len(rows), length)
    ids, labels = np.full(shape, pad, dtype=np.int64), np.full(shape, IGNORED, dtype=np.int64)
    positions, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    weights = np.zeros(shape, dtype=np.float32)
    for number, members in enumerate(rows):
        begin = 0
        for segment, place in enumerate(members, start=1):
            one = examples[place]
            end = begin + len(one)
            # A token is learnt at the place before it: the last of a prompt predicts the first of the reply.
            learnt = slice(end - len(one.completion_ids) - 1, end - 1)
            ids[number, begin:end] = np.concatenate([one.prompt_ids, one.completion_ids])
            positions[number, begin:end] = np.arange(len(one))
            segments[number, begin:end] = segment
            labels[number, learnt] = one.completion_ids
            weights[number, learnt] = one.weight
            begin = end
    return PackedBatch(
        ids=torch.from_numpy(ids),
        positions=torch.from_numpy(positions),
        segments=torch.from_numpy(segments),
        labels=torch.from_numpy(labels),
        weights=torch.from_numpy(weights),
        places=torch.from_numpy(np.flatnonzero((labels != IGNORED).any(axis=0))),
        total=_total(examples) if total is None else total,
        size=len(examples),
    )


def rows_of(lengths: Sequence[int], row: int | None) -> list[list[int]]:
    """Return which examples stand in which row, by position: the longest first, each in the first row with room."""
    if row is None:
        return [[place] for place in range(len(lengths))]
    rows: list[list[int]] = []
    room: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        fits = next((number for number, left in enumerate(room) if left >= lengths[place]), None)
        if fits is None:
            rows.append([place])
            room.append(row - lengths[place])
        else:
            rows[fits].append(place)
            room[fits] -= lengths[place]
    return rows


def _total(examples: Sequence[TrainingExample]) -> float:
    return float(sum(one.weight * len(one.completion_ids) for one in examples))


class ExampleSampler:
    """Draws batches of examples: which are in a batch is a pure function of (seed, epoch, step, rank).

    Parameters
    ----------
    examples
        All there are.
    batch_size
        Examples in a batch, over all ranks together. The incomplete last batch of an epoch is left out; which examples
        it holds changes with the epoch. Where there are fewer than that, they are one batch.
    row, pad
        See :func:`packed`.
    seed
        Of all drawing.
    resampled
        Whether an epoch draws as many of each outcome, the rarer ones several times, instead of each example once.
    """

    def __init__(
        self,
        examples: Sequence[TrainingExample],
        *,
        batch_size: int,
        row: int | None,
        pad: int,
        seed: int,
        resampled: bool = False,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InputError("a batch has at least one example", key="batch_size", value=batch_size)
        if not examples:
            raise InputError("train has no question with an outcome to learn from", key="training.questions", value=0)
        self.examples = tuple(examples)
        self.batch_size = batch_size
        self.row = row
        self.pad = pad
        self.seed = seed
        self.resampled = resampled

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return max(1, len(self.examples) // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """Return the examples of an epoch by position, in the order they are drawn, shape (n,)."""
        rng = generator(self.seed, "examples", "order", str(epoch))
        if not self.resampled:
            return rng.permutation(len(self.examples))
        groups = [
            np.flatnonzero([one.outcome == outcome for one in self.examples])
            for outcome in OUTCOMES
            if any(one.outcome == outcome for one in self.examples)
        ]
        share = -(-len(self.examples) // len(groups))
        # Each group over and over, shuffled anew each time: no example is drawn twice before all are drawn once.
        drawn = [
            np.concatenate([rng.permutation(group) for _ in range(-(-share // len(group)))])[:share] for group in groups
        ]
        return rng.permutation(np.concatenate(drawn))[: len(self.examples)]

    def batches(self, epoch: int, *, start_step: int = 0, rank: int = 0, world: int = 1) -> Iterator[PackedBatch]:
        """Yield the batches of an epoch from a step on, or a rank's share of each: every ``world``-th example.

        Raises
        ------
        InputError
            Where ``world`` does not divide the batch size, or there are fewer examples than ranks.
        """
        if not 0 <= rank < world:
            raise InputError("there is no such rank", key="rank", value=rank, remedy=f"ranks are 0 to {world - 1}")
        if self.batch_size % world or len(self.examples) < world:
            raise InputError(
                f"a batch cannot be shared equally by {world} ranks",
                key="batch_size",
                value=min(self.batch_size, len(self.examples)),
                remedy=f"use a multiple of {world}",
            )
        order = self.order(epoch)
        for step in range(start_step, self.steps):
            drawn = order[step * self.batch_size : (step + 1) * self.batch_size]
            drawn = drawn[: len(drawn) // world * world]
            whole = _total([self.examples[place] for place in drawn])
            mine = [self.examples[place] for place in drawn[rank::world]]
            yield packed(mine, row=self.row, pad=self.pad, total=whole)

    def places(self, rank: int = 0, world: int = 1) -> Iterator[range]:
        """Yield the positions of the examples in each batch of :meth:`in_turn`."""
        size = self.batch_size
        for begin in range(rank * size, len(self.examples), world * size):
            yield range(begin, min(begin + size, len(self.examples)))

    def in_turn(self, rank: int = 0, world: int = 1) -> Iterator[PackedBatch]:
        """Yield every example once, in order: of the batches, every ``world``-th."""
        for places in self.places(rank, world):
            yield packed([self.examples[place] for place in places], row=self.row, pad=self.pad)

    def __repr__(self) -> str:
        return f"ExampleSampler({len(self):,} examples, {self.steps} batches)"
