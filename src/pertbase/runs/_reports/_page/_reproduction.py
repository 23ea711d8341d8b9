"""An experiment beside the published table, on the page."""

from __future__ import annotations

import math

from pertbase.runs._reports._figures import Figure
from pertbase.runs._reports._page._markup import Markup, element, join
from pertbase.runs._reports._page._table import BADGE, Cell, Column, data_table, details, of_interval, of_number
from pertbase.runs._reports._page._view import compact
from pertbase.runs._reports._published import MARK
from pertbase.runs._reports._reproduction import Reproduction, Row
from pertbase.runs._reports._reproduction_text import shown, theirs, told

__all__ = ["reproduction"]


def reproduction(found: Reproduction) -> Markup:
    """Return ours, theirs and the difference, what is to be known beside them, and the runs that ours come from."""
    mark = element("span", MARK, class_="badge published")
    badge = join(" ", BADGE) if found.simulated else None
    columns = [Column("row", numeric=False, sortable=False)]
    columns += [Column(name, _about(found, name), sortable=False) for name in found.columns]
    caption = f"{found.experiment.title}, published figures ({MARK}) beside ours"
    rows = [cells for row in found.rows for cells in _lines(found, row)]
    return element(
        "section",
        element("h2", found.experiment.title, " ", mark, badge),
        data_table(columns, rows, caption=caption, simulated=found.simulated, class_="published"),
        element("ul", *(element("li", line) for line in told(found)), class_="notes"),
        _origins(found),
        class_="data",
    )


def _about(found: Reproduction, name: str) -> str:
    about = found.column(name)
    if about is None:
        return "no score of ours stands here"
    where = "" if about.score.startswith("expression.") else f", {about.adapter}"
    return f"ours: {about.score}{where}{f', regime {about.regime}' if about.regime else ''}"


def _lines(found: Reproduction, row: Row) -> list[list[Cell]]:
    lines = []
    if row.published:
        figures = [Cell(theirs(row, name), row.published.get(name, math.nan)) for name in found.columns]
        lines.append([Cell(f"{row.label}, published"), *figures])
    label = f"ours{f': {row.run}' if row.run else ''}" if row.published else f"{row.label}, not published here"
    lines.append([Cell(label), *(_ours(row, name) for name in found.columns)])
    differences = [found.difference(row, name) for name in found.columns]
    if any(not math.isnan(value) for value in differences):
        lines.append([Cell("difference"), *(of_number(value, signed=True) for value in differences)])
    return lines


def _ours(row: Row, column: str) -> Cell:
    figure = row.ours.get(column)
    if isinstance(figure, Figure) and math.isnan(figure.spread):
        return of_interval(figure.value, figure.low, figure.high)
    return Cell(shown(row, column), figure.value if isinstance(figure, Figure) else math.nan)


def _origins(found: Reproduction) -> Markup | None:
    runs = {str(run.folder): run for _, _, figure in found.figures for run in figure.runs}
    if not runs:
        return None
    columns = [Column(name, numeric=False) for name in ("run", "configuration", "fold hash", "finished")]
    rows = [
        [
            # Where it lies among its runs; never a path of somebody's machine.
            Cell("/".join(run.folder.parts[-4:])),
            Cell(element("code", compact(run.config["baseline"]))),
            Cell(element("code", run.config["fold_hash"][:12]), about=run.config["fold_hash"]),
            Cell(str(run.status.get("finished") or "")),
        ]
        for run in runs.values()
    ]
    return details(f"{len(runs)} runs that ours come from", data_table(columns, rows, caption="Runs", class_="wrap"))
