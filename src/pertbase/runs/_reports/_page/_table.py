"""Tables in HTML: sortable, with numbers that can be read back and copied, and marked where data are simulated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pertbase.runs._reports._page._markup import Markup, element, join, number, text
from pertbase.runs._reports._page._svg import ink_on, viridis

__all__ = ["BADGE", "Cell", "Column", "broken", "data_table", "details", "heat", "heat_key", "of_interval", "of_number"]

BADGE = element("span", "simulated", class_="badge")
"""Stands in every title and caption about simulated data; text, so that it is printed, copied and heard."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    label
        Its head.
    about
        What it means, shown on hovering.
    numeric
        Aligned right.
    sortable
        Whether a reader may sort by it.
    """

    label: str
    about: str = ""
    numeric: bool = True
    sortable: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    content
        What is shown.
    value
        What it is sorted by, in full precision; None for text, NaN for a number that is not there.
    colour
        Behind it.
    about
        Shown on hovering.
    """

    content: str
    value: float | None = None
    colour: str | None = None
    about: str | None = None


def broken(name: str) -> Markup:
    """Return a name that may be broken after each ``_``."""
    first, *rest = name.split("_")
    return join(first, *(join("_", element("wbr"), part) for part in rest))


def of_number(value: float | None, *, flag: str = "", signed: bool = False) -> Cell:
    """Return the cell of a number with three decimals; a dash where there is none."""
    known = math.nan if value is None else float(value)
    return Cell(number(known, signed=signed) + flag, known)


def of_interval(value: float, low: float, high: float, *, flag: str = "", signed: bool = False) -> Cell:
    """Return the cell of a number with its interval below it."""
    if math.isnan(value) or math.isnan(low):
        return of_number(value, flag=flag, signed=signed)
    ends = f"{number(low, signed=signed)} to {number(high, signed=signed)}"
    content = join(number(value, signed=signed), flag, " ", element("small", ends))
    return Cell(content, value)


def heat(value: float, domain: tuple[float, float], *, about: str | None = None) -> Cell:
    """Return the cell of a number on a colour between two ends."""
    if math.isnan(value):
        return Cell(number(value), value, about=about)
    low, high = domain
    return Cell(number(value), value, viridis((value - low) / (high - low)), about)


def heat_key(domain: tuple[float, float]) -> Markup:
    """Return what the colours of :func:`heat` stand for."""
    low, high = domain
    stops = ",".join(viridis(step / 8) for step in range(9))
    strip = element("span", class_="strip", style=f"background:linear-gradient(90deg,{stops})", aria_hidden="true")
    return element("p", number(low), " ", strip, " ", number(high), " balanced accuracy", class_="key")


def data_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    *,
    caption: str,
    simulated: bool = False,
    pinned: int = 0,
    class_: str | None = None,
) -> Markup:
    """Return a table; its first column heads the rows.

    Parameters
    ----------
    columns, rows
        As many cells as columns in each row.
    caption
        What it shows.
    simulated
        Whether to mark it as one of simulated data.
    pinned
        Rows that stay on top however it is sorted.
    class_
        For the looks.
    """
    head = element("tr", *(_head(column, narrow=class_ == "heat") for column in columns))
    body = [_row(cells, columns, pinned=position < pinned) for position, cells in enumerate(rows)]
    table = element(
        "table",
        element("caption", element("span", caption, " " if simulated else None, BADGE if simulated else None)),
        element("thead", head),
        element("tbody", *body),
        class_=class_,
    )
    # A region that scrolls has to be reachable by keyboard, and needs a name then.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=text(caption))


def _head(column: Column, *, narrow: bool) -> Markup:
    label = broken(column.label) if narrow or len(column.label) > 12 else text(column.label)
    content = element("button", label, type="button") if column.sortable else label
    class_ = "number" if column.numeric else None
    return element("th", content, scope="col", class_=class_, title=column.about or None)


def _row(cells: Sequence[Cell], columns: Sequence[Column], *, pinned: bool) -> Markup:
    made = []
    for position, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        kept = None if cell.value is None else "" if math.isnan(cell.value) else repr(float(cell.value))
        style = f"background:{cell.colour};color:{ink_on(cell.colour)}" if cell.colour else None
        made.append(
            element(
                "td" if position else "th",
                cell.content,
                scope=None if position else "row",
                class_="number" if column.numeric else None,
                data_value=kept,
                style=style,
                title=cell.about,
            )
        )
    return element("tr", *made, class_="pinned" if pinned else None)


def details(summary: str, *children: Markup | None) -> Markup:
    """Return a part that is folded away until asked for, or printed."""
    return element("details", element("summary", summary), *children)
