"""A titled table of text, and how it is shown in a terminal or as Markdown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

__all__ = ["MISSING", "Section", "render"]

MISSING = "–"
"""What stands where there is no number."""


@dataclass(frozen=True, eq=False)
class Section:
    """A titled table with what is to be said about it.

    Parameters
    ----------
    title
        One line.
    table
        Text cells; without a column, there is none to show.
    notes
        Lines below it.
    lead
        Lines above it: a sentence, and what it lists.
    optional
        Columns that a narrow terminal does without, the first to go first.
    """

    title: str
    table: pd.DataFrame
    notes: Sequence[str] = ()
    lead: Sequence[str] = ()
    optional: Sequence[str] = ()


def render(parts: Iterable[Section], form: str, *, width: int | None = None) -> str:
    """Return sections as ``terminal`` text or Markdown (``md``).

    Parameters
    ----------
    parts
        The sections.
    form
        Which of the two.
    width
        Of the terminal. Wider tables leave out their optional columns, and say so, and go on below with what is still
        too much. Every table is whole where not given.
    """
    return "\n".join(_markdown(part) if form == "md" else _terminal(part, width) for part in parts)


def _markdown(part: Section) -> str:
    lines = [f"## {part.title}", ""]
    if part.lead:
        lines += [part.lead[0], "", *(f"- {line}" for line in part.lead[1:]), ""]
    if len(part.table.columns):
        lines.append("| " + " | ".join(part.table.columns) + " |")
        lines.append("|" + "|".join(" --- " for _ in part.table.columns) + "|")
        lines += [
            "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in part.table.to_numpy()
        ]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in part.notes), ""])


def _terminal(part: Section, width: int | None) -> str:
    from rich.console import Console

    tables, left_out = _fitted(part, width)
    widest = max([80, *(_width(table) for table in tables)])
    # Where the output is a file, no number is cut off; in a terminal, lines end where it ends.
    console = Console(file=io.StringIO(), width=widest if width is None else max(width, widest), highlight=False)
    console.print(part.title, style="bold", markup=False)
    for number, line in enumerate(part.lead):
        console.print(f"    {line}" if number else f"  {line}", markup=False)
    for table in tables:
        console.print(_laid_out(table))
    notes = [f"left out for want of room, in format=md and csv: {', '.join(left_out)}"] if left_out else []
    for note in [*notes, *part.notes]:
        console.print(f"  {note}", markup=False)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def _laid_out(table: pd.DataFrame) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(table.columns):
        shown.add_column(str(column), justify="left" if number == 0 else "right", no_wrap=True)
    for row in table.to_numpy():
        shown.add_row(*(str(cell) for cell in row))
    return shown


def _fitted(part: Section, width: int | None) -> tuple[list[pd.DataFrame], list[str]]:
    """Return the table, or what of it fits one below the other, and the columns left out."""
    table, left_out = part.table, []
    if not len(table.columns):
        return [], []
    if width is None:
        return [table], []
    for column in part.optional:
        if _width(table) <= width:
            break
        if column in table.columns:
            table = table.drop(columns=column)
            left_out.append(column)
    first, *rest = table.columns
    blocks: list[list[str]] = [[]]
    for column in rest:
        if blocks[-1] and _width(table[[first, *blocks[-1], column]]) > width:
            blocks.append([])
        blocks[-1].append(column)
    return [table[[first, *block]] for block in blocks], left_out


def _width(table: pd.DataFrame) -> int:
    """Return the width a table needs."""
    widths = [max([len(str(column)), *(len(str(cell)) for cell in table[column])]) for column in table.columns]
    return sum(widths) + 3 * len(widths) + 2
