"""The picture of a report."""

from __future__ import annotations

import math

from pertbase.errors import InputError
from pertbase.runs._reports._page._dots import Dot, Line, dot_domain, dot_panels
from pertbase.runs._reports._page._view import FoldView
from pertbase.runs._reports._report import MAIN, Report, marked

__all__ = ["picture"]


def picture(report: Report, *, adapter: str = MAIN) -> str:
    """Return balanced accuracy with intervals on every fold that ranks baselines, as one SVG picture.

    Raises
    ------
    InputError
        Where no fold ranks baselines.
    """
    tables = [table for table in report.folds if table.ranks]
    if not tables:
        raise InputError(
            "no fold here can rank baselines, and there is nothing to draw", file=report.runs, key="format"
        )
    views = [FoldView(table, ident="", adapter=adapter, domain=(0.0, 1.0)) for table in tables]
    found: dict[str, dict[int, Dot]] = {}
    for position, view in enumerate(views):
        for run in view.runs:
            row, label = view.row(run), view.table.label(run)
            dot = Dot(label, *(row[f"balanced_accuracy{end}"] for end in ("", "_low", "_high")))
            found.setdefault(label, {})[position] = dot

    def place(label: str) -> tuple[int, float, str]:
        values = [dot.value for dot in found[label].values() if not math.isnan(dot.value)]
        return -len(values), -sum(values) / max(len(values), 1), label

    names = sorted(found, key=place)
    panels = []
    for position, view in enumerate(views):
        dots = [found[label].get(position, Dot(label, math.nan)) for label in names]
        lines = [Line(1 / 3, "chance")]
        if not math.isnan(view.ceiling):
            lines.append(Line(view.ceiling, "ceiling", strong=True))
        panels.append((view.table.title if len(report.data) > 1 else view.table.fold, dots, lines, view.simulated))
    what = ", ".join(sorted({marked(view.table.data, simulated=view.simulated) for view in views}))
    values = [end for _, dots, lines, _ in panels for dot in dots for end in (dot.value, dot.low, dot.high)]
    values += [line.value for _, _, lines, _ in panels for line in lines]
    title = f"{what}: balanced accuracy with 95% intervals, {adapter}"
    return str(dot_panels(panels, title=title, axis="balanced accuracy", domain=dot_domain(values))) + "\n"
