"""Reasons and language models on the page: the tables of the report as text, folded away."""

from __future__ import annotations

from collections.abc import Iterable

from pertbase.runs._reports._language import fold_language_sections
from pertbase.runs._reports._page._markup import Markup, element
from pertbase.runs._reports._page._table import Cell, Column, data_table, details
from pertbase.runs._reports._page._view import FoldView
from pertbase.runs._reports._reasons import fold_sections
from pertbase.runs._reports._section import Section

__all__ = ["language_tables", "reason_tables", "tables_of"]


def reason_tables(view: FoldView) -> Markup | None:
    """Return what the reasons of a fold's runs are worth, beside nulls and controls; None where there are none."""
    return _folded("Reasons", fold_sections(view.table, view.adapter), view)


def language_tables(view: FoldView) -> Markup | None:
    """Return what language models were asked, and what paths change; None where none was asked."""
    return _folded("Language models", fold_language_sections(view.table, view.adapter), view)


def _folded(title: str, sections: Iterable[Section], view: FoldView) -> Markup | None:
    parts = tables_of(sections, view)
    return details(title, *parts) if parts else None


def tables_of(sections: Iterable[Section], view: FoldView) -> list[Markup]:
    """Return sections as tables, each with its notes."""
    parts = []
    for section in sections:
        table = section.table.fillna("")
        # A number and its interval are one text: there is nothing to sort by.
        columns = [Column(str(name), numeric=number > 0, sortable=False) for number, name in enumerate(table.columns)]
        rows = [[Cell(str(cell)) for cell in row] for row in table.to_numpy()]
        parts.append(data_table(columns, rows, caption=section.title, simulated=view.simulated))
        parts.append(element("ul", *(element("li", note) for note in section.notes), class_="notes"))
    return parts
