"""Numbers with their intervals, as dots and whiskers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pertbase.runs._reports._page._markup import Markup, element, join, number
from pertbase.runs._reports._page._svg import CEILING, INK, MUTED, RULE, picture, watermark

__all__ = ["Domain", "Dot", "Line", "dot_domain", "dot_panels", "dot_plot"]

_DOT = "#0072b2"


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


_ROW = 20
_TOP = 20
_LONGEST = 28


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
    width: int = 430,
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
        watermark((left + width) / 2, (_TOP + bottom) / 2, 34) if simulated else None,
        frame.grid(),
        *(frame.line(line) for line in lines),
        *(join(_row_label(dot.label, left, frame.row(row)), frame.dot(dot, row)) for row, dot in enumerate(dots)),
        frame.axis(axis),
        frame.bar(*bar) if bar else None,
    ]
    about = "; ".join([*(dot.told for dot in dots), *(f"{line.label}: {number(line.value)}" for line in lines)])
    return picture(ident, title, about, width, height, parts, simulated=simulated)


def _label_width(dots: Sequence[Dot]) -> int:
    return 16 + round(7 * min(_LONGEST, max(len(dot.label) for dot in dots)))


def _row_label(label: str, left: float, y: float) -> Markup:
    shown = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
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
        return element("path", d=path, stroke=RULE, fill="none")

    def line(self, line: Line) -> Markup:
        x, colour = self.x(line.value), CEILING if line.strong else MUTED
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
                fill=MUTED,
                font_size=11,
            )
            for tick in self.ticks()
        ]
        middle = (self.left + self.right) / 2
        return join(
            element("line", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom, stroke=MUTED, stroke_width=1),
            *ticks,
            element("text", label, x=middle, y=self.bottom + 31, text_anchor="middle", fill=MUTED, font_size=11),
        )

    def bar(self, length: float, label: str) -> Markup:
        low, high = self.domain
        size = (self.right - self.left) * length / (high - low)
        y = self.bottom + 45
        path = f"M{self.left:.1f} {y - 3:g}v6m0 -3h{size:.1f}m0 -3v6"
        return join(
            element("path", d=path, stroke=INK, stroke_width=1.5, fill="none"),
            element("text", label, x=self.left + size + 6, y=y + 4, fill=MUTED, font_size=11),
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
    left, panel, gap = _label_width(first), 190, 30
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
            watermark(x + panel / 2, (top + frame.bottom) / 2, 24) if simulated else None,
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
    return picture("picture", title, ". ".join(about), width, height, parts, alone=True)
