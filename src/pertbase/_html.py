"""How objects show themselves in notebooks: a line and a table, in which no name of the data becomes a tag."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pandas as pd

__all__ = ["shown"]

_NO_MATHS = "tex2jax_ignore mathjax_ignore"


def shown(
    title: str, table: pd.DataFrame | None = None, *, notes: Sequence[str] = (), index: bool = True, digits: int = 3
) -> str:
    """Return a title, a table and notes as HTML, everything escaped.

    Parameters
    ----------
    title
        One line; further lines are put after one another.
    table
        Numbers with a fraction are shown with so many ``digits``, those that are not there as a dash.
    notes
        Lines below it.
    index
        Whether the table's index is a column.
    """
    parts = [f"<p>{html.escape(' '.join(title.split()))}</p>"]
    if table is not None:
        number = f"{{:.{digits}f}}".format
        # Columns that are cut off would be missed without a word.
        with pd.option_context("display.max_colwidth", 120):
            parts.append(str(table.to_html(index=index, float_format=number, na_rep="–", escape=True)))
    parts += ["<ul>", *(f"<li>{html.escape(note)}</li>" for note in notes), "</ul>"] if notes else []
    # What stands between two dollar signs is no mathematics: notebooks are told so by these classes.
    return f'<div class="{_NO_MATHS}">{"".join(parts)}</div>'
