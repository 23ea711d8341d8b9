"""A cache of keys and values that has room for more; needs transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

__all__ = ["empty_cache"]

_ROOM = 64
"""Places that are kept free behind what was read, at least."""


def empty_cache(model: Any) -> Any:
    """Return a cache of a model that has read nothing: layers that keep all they read have room for more."""
    made: Any = DynamicCache(config=model.config)
    made.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in made.layers]
    return made


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values as views of larger ones: joining them anew is a fifth of what a token takes a small model.

    The views may be cropped, repeated and chosen from as those of other layers; what is no view of its room any more,
    or has filled it, gets a new one. (The static layers of transformers are of one length and cannot be repeated, as a
    beginning that prompts share is.)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._rooms: list[Any] = []

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Write the new states behind those before, and return all; each of shape (rows, heads, places, size)."""
        read = int(self.get_seq_length())
        if not read:
            self._rooms = []
            first: tuple[Any, Any] = super().update(key_states, value_states, *args, **kwargs)
            return first
        held, now = (self.keys, self.values), read + key_states.shape[-2]
        if not (self._rooms and now <= self._rooms[0].shape[-2] and _views(held, self._rooms)):
            self._rooms = [_with_room(states, now) for states in (key_states, value_states)]
            for room, before in zip(self._rooms, held, strict=True):
                room[..., :read, :] = before
        for room, new in zip(self._rooms, (key_states, value_states), strict=True):
            room[..., read:now, :] = new
        self.keys, self.values = (room[..., :now, :] for room in self._rooms)
        return self.keys, self.values


def _views(held: Sequence[Any], rooms: Sequence[Any]) -> bool:
    """Return whether tensors begin where their rooms do, with as many rows and heads."""
    return all(
        one.data_ptr() == room.data_ptr() and one.shape[:2] == room.shape[:2]
        for one, room in zip(held, rooms, strict=True)
    )


def _with_room(states: Any, length: int) -> Any:
    return states.new_empty((*states.shape[:2], length + max(_ROOM, length // 8), states.shape[-1]))
