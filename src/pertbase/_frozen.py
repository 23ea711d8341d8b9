"""A mapping that is read and never written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

__all__ = ["FrozenMapping"]

K = TypeVar("K")
V = TypeVar("V")


class FrozenMapping(Mapping[K, V]):
    """A read-only copy of a mapping, which unlike :class:`types.MappingProxyType` can be pickled and copied.

    Parameters
    ----------
    items
        What it holds; whoever changes that later does not change this.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._items,)

    def __repr__(self) -> str:
        return f"FrozenMapping({self._items!r})"
