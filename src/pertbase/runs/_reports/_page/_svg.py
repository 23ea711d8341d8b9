"""SVG as text: what all plots share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pertbase._pictures import CEILING, COLOURS, INK, MUTED, RULE
from pertbase.runs._reports._page._markup import Markup, element

__all__ = ["CEILING", "COLOURS", "INK", "MUTED", "RULE", "ink_on", "picture", "tag", "viridis", "watermark"]

_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
# Nine anchors of matplotlib's viridis; between them it is straight enough for a table cell.
_VIRIDIS = ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725")


def viridis(share: float) -> str:
    """Return the colour for a number from 0 (dark violet) to 1 (yellow)."""
    anchors = np.array([[int(colour[start : start + 2], 16) for start in (0, 2, 4)] for colour in _VIRIDIS])
    position = float(np.clip(share, 0, 1)) * (len(anchors) - 1)
    rgb = [round(float(np.interp(position, range(len(anchors)), anchors[:, channel]))) for channel in range(3)]
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on a colour: one of them always has a contrast of 4.5."""
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#fff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000"


def watermark(x: float, y: float, size: int) -> Markup:
    """Return the mark of simulated data, to lie behind a plot."""
    return element(
        "text",
        "SIMULATED",
        x=x,
        y=y,
        text_anchor="middle",
        font_size=size,
        font_weight=700,
        letter_spacing=3,
        fill=CEILING,
        fill_opacity=0.2,
        transform=f"rotate(-16 {x:g} {y:g})",
    )


def tag(x: float, y: float) -> Markup:
    """Return the mark of simulated data, small, where a plot leaves nothing free behind it."""
    return element(
        "text",
        "SIMULATED",
        x=x,
        y=y,
        text_anchor="middle",
        font_size=9,
        font_weight=700,
        letter_spacing=2,
        fill=CEILING,
    )


def picture(
    ident: str,
    title: str,
    about: str,
    width: float,
    height: float,
    parts: Sequence[Markup | None],
    *,
    simulated: bool = False,
    alone: bool = False,
    font_size: float = 12,
) -> Markup:
    """Return a picture with its title and description, for those who hear the page and those who hover.

    Parameters
    ----------
    ident
        Unique on the page.
    title, about
        What is shown, and its numbers in words.
    width, height
        In pixels.
    parts
        What is drawn, from back to front.
    simulated
        Whether the title says so.
    alone
        Whether it is to be a file of its own.
    font_size
        In pixels.
    """
    return element(
        "svg",
        element("title", f"{title}{' (simulated)' if simulated else ''}", id=f"{ident}-title"),
        element("desc", about, id=f"{ident}-about"),
        *parts,
        xmlns="http://www.w3.org/2000/svg" if alone else None,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{ident}-title {ident}-about",
        font_family=_FONT,
        font_size=font_size,
        fill=INK,
    )
