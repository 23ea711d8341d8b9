"""How large the network is: the sizes of the paper, and what a user says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from pertbase.errors import InputError, unknown_name

__all__ = ["SIZES", "Shape", "shape_of"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of a network.

    Parameters
    ----------
    hidden_size
        Width of a token.
    layers
        Transformer layers.
    heads
        Attention heads in each layer.
    intermediate_size
        Width between the two products of a layer's feed-forward part; four times ``hidden_size`` where not given.
    encoder_layers
        Linear layers of each of the two encoders.
    decoder_layers
        Linear layers of the output.
    set_size
        Cells in a set at most.
    """

    hidden_size: int
    layers: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    set_size: int
    intermediate_size: int = 0

    def __post_init__(self) -> None:
        if self.intermediate_size == 0:
            object.__setattr__(self, "intermediate_size", 4 * self.hidden_size)
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError("is a number from 1 on", key=item.name, value=value)
        if self.hidden_size % self.heads:
            raise InputError(
                "the heads divide the hidden units between them",
                key="heads",
                value=self.heads,
                remedy=f"use a divisor of {self.hidden_size}",
            )


SIZES = {
    "small": Shape(hidden_size=672, layers=4, heads=8, encoder_layers=4, decoder_layers=4, set_size=128),
    "base": Shape(hidden_size=768, layers=8, heads=12, encoder_layers=1, decoder_layers=1, set_size=512),
    "large": Shape(hidden_size=1488, layers=6, heads=12, encoder_layers=4, decoder_layers=4, set_size=512),
}
"""The published sizes."""


def shape_of(size: str, **given: Any) -> Shape:
    """Return a published size, with what is given (not None) in place of its own.

    Raises
    ------
    InputError
        Where the size is unknown, or a number cannot be.
    """
    if size not in SIZES:
        raise unknown_name("size", str(size), SIZES)
    changed = {key: value for key, value in given.items() if value is not None}
    if "hidden_size" in changed:
        changed = {"intermediate_size": 0, **changed}
    return replace(SIZES[size], **changed)
