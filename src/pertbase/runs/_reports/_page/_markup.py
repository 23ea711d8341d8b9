"""HTML and SVG as text: whatever is not markup already is escaped, so that no name can become a tag."""

from __future__ import annotations

import html
import math
import re

__all__ = ["Markup", "count", "element", "join", "number", "text"]

# Written without an end tag. SVG's are closed in place, since a picture of its own is read as XML.
_VOID = frozenset({"meta", "wbr"})
_SHAPES = frozenset({"circle", "line", "path", "rect"})
# Neither HTML nor XML can hold these, and somebody's gene or baseline name may.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is markup already, and is not escaped again."""

    __slots__ = ()


Child = str | int | None
Attribute = str | int | float | bool | None


def text(value: object) -> Markup:
    """Return ``value`` as text that is safe between tags and in attributes."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_CONTROLS.sub("\ufffd", str(value)), quote=True))


def join(*children: Child) -> Markup:
    """Return children after one another; None is left out."""
    return Markup("".join(text(child) for child in children if child is not None))


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return one element.

    Parameters
    ----------
    name
        Of the tag.
    children
        :class:`Markup` as it is, everything else escaped; None is left out.
    attributes
        ``_`` becomes ``-`` and one at the end is dropped (``class_``, ``stroke_width``). None and False are left
        out, True stands without a value, floats are coordinates of at most two decimals.
    """
    told = "".join(
        f" {key.removesuffix('_').replace('_', '-')}" + ("" if value is True else f'="{_value(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _SHAPES and not children:
        return Markup(f"<{name}{told}/>")
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{join(*children)}</{name}>")


def _value(value: Attribute) -> str:
    if isinstance(value, float):
        # Adding zero turns -0 into 0.
        return f"{round(value, 2) + 0.0:g}"
    return text(value)


def number(value: float | None, *, signed: bool = False) -> str:
    """Return a number with three decimals; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def count(n: int, noun: str) -> str:
    """Return a number of things."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
