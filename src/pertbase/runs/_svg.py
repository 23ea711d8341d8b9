"""Plots as SVG: text stays text, colours can be told apart by everybody, and the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pertbase.folds import OUTCOMES
from pertbase.runs._markup import Markup, element, join, number

__all__ = [
    "COLOURS",
    "Dot",
    "Line",
    "cividis",
    "confusion_plot",
    "dot_domain",
    "dot_panels",
    "dot_plot",
    "ink_on",
    "scatter_plot",
]

COLOURS = {"up": "#d55e00", "down": "#0072b2", "no_change": "#8a8a8a"}
"""From the palette of Okabe and Ito, which holds for every common colour vision."""

_INK, _MUTED, _RULE, _DOT, _CEILING = "#1b1d22", "#595d66", "#d9dce1", "#0072b2", "#b34700"
_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
# Nine anchors of matplotlib's cividis; between them it is straight enough for a table cell.
_CIVIDIS = np.array(
    [
        (0, 34, 78),
        (26, 56, 111),
        (67, 78, 108),
        (97, 101, 111),
        (125, 124, 120),
        (155, 148, 118),
        (188, 174, 108),
        (222, 201, 88),
        (254, 232, 56),
    ],
    dtype=float,
)


def cividis(share: float) -> str:
    """Return the colour for a number from 0 (dark blue) to 1 (yellow)."""
    position = float(np.clip(share, 0, 1)) * (len(_CIVIDIS) - 1)
    rgb = [round(float(np.interp(position, range(len(_CIVIDIS)), _CIVIDIS[:, channel]))) for channel in range(3)]
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on a colour: a contrast of 4.5 or more on all of cividis."""
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#fff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000"


@dataclass(frozen=True)
class Dot:
    """A number with its interval, which may be NaN.

    Parameters
    ----------
    label
        What it is of.
    value, low, high
        The number and its ends.
    flagged
        Drawn hollow.
    """

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan
    flagged: bool = False

    @property
    def told(self) -> str:
        """The dot in words."""
        ends = "" if math.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.label}: {number(self.value)}{ends}"


@dataclass(frozen=True)
class Line:
    """A value to compare with, as a vertical line; labelled at the top of its plot."""

    value: float
    label: str
    strong: bool = False


Domain = tuple[float, float]


def dot_domain(values: Sequence[float], *, step: float = 0.1) -> Domain:
    """Return the tenths that enclose all values that are numbers."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return 0.0, 1.0
    low, high = math.floor(min(known) / step + 1e-9), math.ceil(max(known) / step - 1e-9)
    return low * step, max(high, low + 1) * step


# -- dots and whiskers --------------------------------------------------------------------------------------

_ROW = 20
_TOP = 20


def dot_plot(
    dots: Sequence[Dot],
    *,
    ident: str,
    title: str,
    axis: str,
    domain: Domain,
    lines: Sequence[Line] = (),
    bar: tuple[float, str] | None = None,
    simulated: bool = False,
    width: int = 460,
) -> Markup:
    """Return a row a dot, with its whisker, in the order given.

    Parameters
    ----------
    dots
        At least one.
    ident
        Unique on the page; ties the picture to its title and description.
    title, axis
        What is shown, for those who hear the page, and what the axis counts.
    domain
        Ends of the axis.
    lines
        Values to compare with.
    bar
        A length in units of the axis, and what it means, drawn below it.
    simulated
        Whether to mark the picture as one of simulated data.
    width
        In pixels; the height follows from the rows.
    """
    left = _label_width(dots)
    bottom = _TOP + _ROW * len(dots)
    height = bottom + (54 if bar else 38)
    frame = _Frame(left, width - 14, _TOP, bottom, domain)
    parts = [
        _watermark((left + width) / 2, (_TOP + bottom) / 2, 34) if simulated else None,
        frame.grid(),
        *(frame.line(line) for line in lines),
        *(join(_row_label(dot.label, left, frame.row(row)), frame.dot(dot, row)) for row, dot in enumerate(dots)),
        frame.axis(axis),
        frame.bar(*bar) if bar else None,
    ]
    about = "; ".join([*(dot.told for dot in dots), *(f"{line.label}: {number(line.value)}" for line in lines)])
    return _picture(ident, title, about, width, height, parts, simulated=simulated)


def _label_width(dots: Sequence[Dot]) -> int:
    return 18 + round(6.4 * min(26, max(len(dot.label) for dot in dots)))


def _row_label(label: str, left: float, y: float) -> Markup:
    shown = label if len(label) <= 26 else f"{label[:25]}…"
    return element("text", shown, x=left - 10, y=y + 4, text_anchor="end")


@dataclass(frozen=True)
class _Frame:
    """Where the dots of one panel lie."""

    left: float
    right: float
    top: float
    bottom: float
    domain: Domain

    def x(self, value: float) -> float:
        low, high = self.domain
        return self.left + (self.right - self.left) * (min(max(value, low), high) - low) / (high - low)

    def row(self, row: int) -> float:
        return self.top + _ROW * (row + 0.5)

    def ticks(self) -> list[float]:
        low, high = self.domain
        step = next((step for step in (0.05, 0.1, 0.2, 0.5) if (high - low) / step <= 7.001), 1.0)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]

    def grid(self) -> Markup:
        path = "".join(f"M{self.x(tick):.1f} {self.top:g}V{self.bottom:g}" for tick in self.ticks())
        return element("path", d=path, stroke=_RULE, fill="none")

    def line(self, line: Line) -> Markup:
        x, colour = self.x(line.value), _CEILING if line.strong else _MUTED
        anchor = "middle"
        if x - self.left < 30:
            anchor = "start"
        elif self.right - x < 70:
            anchor = "end"
        return element(
            "g",
            element("title", f"{line.label}: {number(line.value)}"),
            element(
                "line",
                x1=x,
                x2=x,
                y1=self.top - 4,
                y2=self.bottom,
                stroke=colour,
                stroke_width=1.5,
                stroke_dasharray="5 3" if line.strong else "1.5 3",
            ),
            element("text", line.label, x=x, y=self.top - 8, text_anchor=anchor, fill=colour, font_size=11),
        )

    def dot(self, dot: Dot, row: int) -> Markup:
        y, parts = self.row(row), [element("title", dot.told)]
        if not math.isnan(dot.low):
            low, high = self.x(dot.low), self.x(dot.high)
            parts.append(element("line", x1=low, x2=high, y1=y, y2=y, stroke=_DOT, stroke_width=2, stroke_opacity=0.55))
        if not math.isnan(dot.value):
            fill = "#fff" if dot.flagged else _DOT
            parts.append(element("circle", cx=self.x(dot.value), cy=y, r=4.5, fill=fill, stroke=_DOT, stroke_width=1.5))
        return element("g", *parts)

    def axis(self, label: str) -> Markup:
        ticks = [
            element(
                "text",
                f"{tick + 0.0:.2f}".rstrip("0").rstrip(".") if tick else "0",
                x=self.x(tick),
                y=self.bottom + 15,
                text_anchor="middle",
                fill=_MUTED,
                font_size=11,
            )
            for tick in self.ticks()
        ]
        middle = (self.left + self.right) / 2
        return join(
            element("line", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom, stroke=_MUTED, stroke_width=1),
            *ticks,
            element("text", label, x=middle, y=self.bottom + 31, text_anchor="middle", fill=_MUTED, font_size=11),
        )

    def bar(self, length: float, label: str) -> Markup:
        low, high = self.domain
        size = (self.right - self.left) * length / (high - low)
        y = self.bottom + 45
        path = f"M{self.left:.1f} {y - 3:g}v6m0 -3h{size:.1f}m0 -3v6"
        return join(
            element("path", d=path, stroke=_INK, stroke_width=1.5, fill="none"),
            element("text", label, x=self.left + size + 6, y=y + 4, fill=_MUTED, font_size=11),
        )


def dot_panels(
    panels: Sequence[tuple[str, Sequence[Dot], Sequence[Line], bool]],
    *,
    title: str,
    axis: str,
    domain: Domain,
    columns: int = 4,
) -> Markup:
    """Return several folds side by side as one picture of its own, with a row a baseline throughout.

    Parameters
    ----------
    panels
        Title, dots with the same labels in the same order in each, lines, and whether the data are simulated. A dot
        of NaN leaves its row empty.
    title
        Of the picture.
    axis, domain
        Of every panel.
    columns
        Panels in a row.
    """
    first = panels[0][1]
    left, panel, gap = _label_width(first), 190, 22
    columns = min(columns, len(panels))
    tall = _ROW * len(first) + _TOP + 74
    width = left + columns * (panel + gap)
    height = 34 + math.ceil(len(panels) / columns) * tall
    parts: list[Markup | None] = [element("text", title, x=10, y=22, font_size=15, font_weight=600)]
    about = []
    for position, (name, dots, lines, simulated) in enumerate(panels):
        x = left + (position % columns) * (panel + gap)
        top = 34 + (position // columns) * tall + _TOP + 22
        frame = _Frame(x, x + panel, top, top + _ROW * len(dots), domain)
        parts += [
            _watermark(x + panel / 2, (top + frame.bottom) / 2, 24) if simulated else None,
            element("text", name, x=x, y=top - 24, font_weight=600),
            frame.grid(),
            *(frame.line(line) for line in lines),
            *(frame.dot(dot, row) for row, dot in enumerate(dots)),
            frame.axis(axis),
        ]
        if position % columns == 0:
            parts += [_row_label(dot.label, left, frame.row(row)) for row, dot in enumerate(dots)]
        about.append(f"{name}: " + "; ".join(dot.told for dot in dots))
    parts.insert(0, element("rect", width=width, height=height, fill="#fff"))
    return _picture("picture", title, ". ".join(about), width, height, parts, alone=True)


# -- confusions ---------------------------------------------------------------------------------------------


def confusion_plot(
    counts: Sequence[Sequence[int]], *, ident: str, title: str, unanswered: bool, simulated: bool
) -> Markup:
    """Return counts, true by answered outcome, each shaded by its share of the true outcome.

    Parameters
    ----------
    counts
        Shape (3, 4), as in ``scores.json``.
    ident, title
        As for :func:`dot_plot`.
    unanswered
        Whether to show the fourth column, answers without an outcome.
    simulated
        Whether to mark the picture as one of simulated data.
    """
    columns = [*OUTCOMES, "none"] if unanswered else list(OUTCOMES)
    cell, tall, left, top = 52, 36, 66, 34
    width, height = left + cell * len(columns) + 2, top + tall * len(OUTCOMES) + (18 if simulated else 4)
    parts: list[Markup | None] = [
        element("text", "answered", x=left + cell * len(columns) / 2, y=11, text_anchor="middle", fill=_MUTED),
        element("text", "true", x=left - 8, y=28, text_anchor="end", fill=_MUTED),
        *(
            element("text", name, x=left + cell * (column + 0.5), y=28, text_anchor="middle", font_size=10.5)
            for column, name in enumerate(columns)
        ),
    ]
    about = []
    for row, name in enumerate(OUTCOMES):
        y, total = top + tall * row, sum(counts[row])
        parts.append(element("text", name, x=left - 8, y=y + tall / 2 + 4, text_anchor="end", font_size=10.5))
        for column, answered in enumerate(columns):
            count = counts[row][column]
            share = count / total if total else 0.0
            colour = cividis(share)
            x = left + cell * column
            parts.append(
                join(
                    element("rect", x=x, y=y, width=cell - 1, height=tall - 1, fill=colour),
                    element(
                        "text",
                        element("tspan", f"{share:.0%}" if total else "–", x=x + cell / 2, font_weight=600),
                        element("tspan", f"{count:,}", x=x + cell / 2, dy=13, font_size=10),
                        y=y + 15,
                        text_anchor="middle",
                        fill=ink_on(colour),
                    ),
                )
            )
            about.append(f"{name} answered {answered}: {count}")
    if simulated:
        parts.append(_tag(left + cell * len(columns) / 2, height - 5))
    return _picture(ident, title, "; ".join(about), width, height, parts, simulated=simulated)


# -- effects ------------------------------------------------------------------------------------------------


def scatter_plot(
    measured: np.ndarray,
    predicted: np.ndarray,
    outcomes: np.ndarray,
    *,
    ident: str,
    title: str,
    limit: float,
    thresholds: tuple[float, float] | None = None,
    simulated: bool = False,
) -> Markup:
    """Return predicted against measured effects, coloured by the true outcome.

    Parameters
    ----------
    measured, predicted
        Shape (n,), in the unit of the effect statistic.
    outcomes
        Outcome names, shape (n,).
    ident, title
        As for :func:`dot_plot`.
    limit
        Both axes go from -limit to limit; what lies beyond is drawn at the edge.
    thresholds
        (tau_up, tau_down) above and below which a predicted effect is called.
    simulated
        Whether to mark the picture as one of simulated data.
    """
    size, left, top = 180, 44, 6
    width, height = left + size + 10, top + size + 36
    scale = size / (2 * limit)

    def at(value: float) -> float:
        return (min(max(value, -limit), limit) + limit) * scale

    centre = left + size / 2
    parts: list[Markup | None] = [
        element("rect", x=left, y=top, width=size, height=size, fill="#fff", stroke=_RULE),
        element(
            "path",
            d=f"M{left} {top + size / 2:g}h{size}M{centre:g} {top}v{size}M{left} {top + size}l{size} {-size}",
            stroke=_RULE,
            fill="none",
        ),
        _watermark(centre, top + size / 2, 24) if simulated else None,
    ]
    for outcome in reversed(OUTCOMES):
        chosen = outcomes == outcome
        # Tenths of a pixel as whole numbers, in a group scaled back: a third of the bytes.
        points = "".join(
            f"M{round(10 * at(x))} {round(10 * (size - at(y)))}h0"
            for x, y in zip(measured[chosen].tolist(), predicted[chosen].tolist(), strict=True)
        )
        if points:
            parts.append(
                element(
                    "path",
                    d=points,
                    transform=f"translate({left} {top}) scale(.1)",
                    stroke=COLOURS[outcome],
                    stroke_width=36,
                    stroke_linecap="round",
                    stroke_opacity=0.55,
                    fill="none",
                )
            )
    if thresholds:
        levels = "".join(f"M{left} {top + size - at(level):.1f}h{size}" for level in (thresholds[0], -thresholds[1]))
        parts.append(element("path", d=levels, stroke=_INK, stroke_width=1, stroke_dasharray="4 3", fill="none"))
    for value in (-limit, 0.0, limit):
        shown = f"{value:g}"
        offset = at(value)
        parts.append(element("text", shown, x=left + offset, y=top + size + 14, text_anchor="middle", fill=_MUTED))
        parts.append(element("text", shown, x=left - 5, y=top + size - offset + 4, text_anchor="end", fill=_MUTED))
    parts.append(element("text", "measured", x=centre, y=top + size + 29, text_anchor="middle", fill=_MUTED))
    turned = f"rotate(-90 11 {top + size / 2:g})"
    parts.append(
        element("text", "predicted", x=11, y=top + size / 2, text_anchor="middle", fill=_MUTED, transform=turned)
    )
    about = f"{len(measured)} questions, effects from {-limit:g} to {limit:g}"
    return _picture(ident, title, about, width, height, parts, simulated=simulated, font_size=10.5)


# -- frame --------------------------------------------------------------------------------------------------


def _watermark(x: float, y: float, size: int) -> Markup:
    return element(
        "text",
        "SIMULATED",
        x=x,
        y=y,
        text_anchor="middle",
        font_size=size,
        font_weight=700,
        letter_spacing=3,
        fill=_CEILING,
        fill_opacity=0.2,
        transform=f"rotate(-16 {x:g} {y:g})",
    )


def _tag(x: float, y: float) -> Markup:
    return element(
        "text",
        "SIMULATED",
        x=x,
        y=y,
        text_anchor="middle",
        font_size=9,
        font_weight=700,
        letter_spacing=2,
        fill=_CEILING,
    )


def _picture(
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
        fill=_INK,
    )
