"""How large the transformer is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pertbase.errors import InputError, unknown_name

__all__ = ["SIZES", "Size", "sized"]


@dataclass(frozen=True)
class Size:
    """The numbers that shape the transformer.

    Parameters
    ----------
    embedding_size
        Numbers that stand for a gene of a cell; a multiple of ``n_heads``.
    n_layers
        Layers.
    n_heads
        Heads of each attention.
    hidden_size
        Hidden units of each layer's perceptron.
    """

    embedding_size: int
    n_layers: int
    n_heads: int
    hidden_size: int

    def __post_init__(self) -> None:
        for key in ("embedding_size", "n_layers", "n_heads", "hidden_size"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError("is a number from 1 on", key=key, value=value)
        if self.embedding_size % self.n_heads:
            raise InputError(f"is no multiple of {self.n_heads} heads", key="embedding_size", value=self.embedding_size)


SIZES = {"small": Size(64, 2, 2, 64), "published": Size(512, 12, 8, 512)}
"""``small`` trains on a processor; ``published`` is that of the checkpoints, and wants a GPU."""


def sized(name: str, **changes: int | None) -> Size:
    """Return a size by name, with some of its numbers changed; None leaves one as it is."""
    if name not in SIZES:
        raise unknown_name("size", name, SIZES)
    return replace(SIZES[name], **{key: value for key, value in changes.items() if value is not None})
