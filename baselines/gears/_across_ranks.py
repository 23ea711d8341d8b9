"""Sums over the ranks that share a batch.

Batch normalisation and the loss are made of means over a batch. Where ranks share one, each sees a part, and means of
its own would train another model: with two ranks, predicted effects were up to 0.12 away from those of one process.
torch's synchronised batch normalisation needs CUDA, and is of no use where normalisations are folded into weights. So
the moments themselves are summed over ranks, with gradients, and two ranks train what one process does, but for
rounding.

Every rank has to ask for the same sums in the same order. In one process all of this returns what it is given.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["add_over_ranks_", "gathered", "place", "summed"]


def place() -> tuple[int, int]:
    """Return which of how many ranks this is: (0, 1) in one process."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


class _Sum(torch.autograd.Function):
    """A sum over ranks. What the loss of each rank gains from it is summed too."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def summed(value: Tensor) -> Tensor:
    """Return the sum of a tensor over ranks, with a gradient."""
    if place()[1] == 1:
        return value
    total: Tensor = _Sum.apply(value)  # type: ignore[no-untyped-call]
    return total


def add_over_ranks_(*values: Tensor) -> None:
    """Replace tensors by their sums over ranks, without a gradient."""
    if place()[1] == 1:
        return
    flat = torch.cat([value.reshape(-1) for value in values])
    dist.all_reduce(flat)
    start = 0
    for value in values:
        value.copy_(flat[start : start + value.numel()].view_as(value))
        start += value.numel()


def gathered(value: Tensor) -> tuple[Tensor, slice]:
    """Return the tensors of all ranks, of one length, as one, and where this rank's own is."""
    rank, world = place()
    if world == 1:
        return value, slice(None)
    parts = [torch.empty_like(value) for _ in range(world)]
    dist.all_gather(parts, value.contiguous())
    return torch.cat(parts), slice(rank * len(value), (rank + 1) * len(value))
