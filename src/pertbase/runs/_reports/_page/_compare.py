"""The paired difference of two rows."""

from __future__ import annotations

import math

import pandas as pd

from pertbase.runs._reports._page._dots import Dot, Line, dot_domain, dot_plot
from pertbase.runs._reports._page._markup import Markup, element, join
from pertbase.runs._reports._page._table import BADGE, Cell, Column, data_table, of_interval
from pertbase.runs._reports._report import Report, marked

__all__ = ["comparison"]


def comparison(report: Report, names: tuple[str, str], adapter: str) -> Markup:
    """Return the paired differences of two rows: a plot and a table a data set."""
    found = report.differences(*names, adapter=adapter)
    simulated = {table.data for table in report.folds if table.simulated}
    return join(
        *(
            _of_data(f"difference-{position}", str(data), rows, names, adapter, simulated=data in simulated)
            for position, (data, rows) in enumerate(found.groupby("data", sort=True))
        )
    )


def _of_data(
    ident: str, data: str, rows: pd.DataFrame, names: tuple[str, str], adapter: str, *, simulated: bool
) -> Markup:
    several = len({seed for seed in rows["seed"] if seed != ""}) > 1
    labels = [
        f"{row.fold}, seed {row.seed}" if several and row.seed != "" else str(row.fold) for row in rows.itertuples()
    ]
    heading = marked(data, simulated=simulated)
    title = f"{heading}: {names[0]} minus {names[1]}, {adapter}"
    dots = [Dot(label, row.difference, row.low, row.high) for label, row in zip(labels, rows.itertuples(), strict=True)]
    ends = [abs(end) for dot in dots for end in (dot.value, dot.low, dot.high) if not math.isnan(end)]
    limit = dot_domain([0.0, *ends], step=0.05)[1]
    plot = dot_plot(
        dots,
        ident=ident,
        title=title,
        axis="difference in balanced accuracy, paired",
        domain=(-limit, limit),
        lines=[Line(0.0, "no difference")],
        simulated=simulated,
        width=520,
    )
    columns = [Column("fold", numeric=False), Column("difference"), Column("note", numeric=False)]
    cells = [
        [Cell(label), of_interval(row.difference, row.low, row.high, signed=True), Cell(str(row.note))]
        for label, row in zip(labels, rows.itertuples(), strict=True)
    ]
    if not any(rows["note"]):
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    badge = join(" ", BADGE) if simulated else None
    table = data_table(columns, cells, caption=title, simulated=simulated, class_="inline")
    figure = element("figure", element("figcaption", "Difference in balanced accuracy, same questions", badge), plot)
    return element(
        "section", element("h2", heading, badge), element("div", figure, table, class_="pair"), class_="data"
    )
