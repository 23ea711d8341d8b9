"""What a model on this machine has read, and rows of tokens that are read together."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Any

__all__ = ["State", "cache_name", "common", "padded", "told_apart"]


@dataclass(frozen=True, eq=False)
class State:
    """What a model has read: its cache, the tokens all rows have read, and the mask, None before anything was read."""

    cache: Any
    tokens: list[int]
    mask: Any

    def repeated(self, times: int, *, copied: bool = True) -> State:
        """Return the state for several rows in the place of each: of a copy, where it is to be used again."""
        cache = deepcopy(self.cache) if copied else self.cache
        if self.mask is None:
            return State(cache, self.tokens, None)
        cache.batch_repeat_interleave(times)
        return State(cache, self.tokens, self.mask.repeat_interleave(times, dim=0))


def padded(rows: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[Any, Any]:
    """Return token ids and mask, padded on the left."""
    import torch

    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for number, row in enumerate(rows):
        if row:
            ids[number, -len(row) :] = torch.tensor(row)
            mask[number, -len(row) :] = 1
    return ids.to(device), mask.to(device)


def cache_name(model: Any) -> str:
    """Return what the model's version of transformers calls the cache it is given."""
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


def common(rows: Sequence[Sequence[int]]) -> int:
    """Return how many first tokens are the same in all."""
    for place, column in enumerate(zip(*rows, strict=False)):
        if len(set(column)) > 1:
            return place
    return min(len(row) for row in rows)


def told_apart(rows: Sequence[list[int]]) -> list[list[int]]:
    """Return what rows begin with alike, then of each row what follows, as far as it takes to tell it from all others.

    What comes behind says no more of which row it is, and is written in more ways than one.
    """
    begun = common(rows)
    ends = [
        max(common([row, other]) for place, other in enumerate(rows) if place != own) + 1
        for own, row in enumerate(rows)
    ]
    return [list(rows[0][:begun]), *(list(row[begun:end]) for row, end in zip(rows, ends, strict=True))]
