"""A report and the tables of its folds as people read them in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from pertbase._html import shown
from pertbase._pictures import marked
from pertbase.runs._reports._fold_table import CEILING
from pertbase.runs._reports._page._markup import count
from pertbase.runs._reports._terms import UNANSWERED

if TYPE_CHECKING:
    from pertbase.runs._reports._fold_table import FoldTable
    from pertbase.runs._reports._report import Report

__all__ = ["best_first", "fold_html", "grid", "report_html", "report_line"]

_COLUMNS = (
    "balanced_accuracy", "balanced_accuracy_low", "balanced_accuracy_high", "accuracy", "macro_f1", "auroc_called",
    "auroc_direction", "coverage",
)  # fmt: skip


def grid(report: Report, data: str, adapter: str) -> pd.DataFrame:
    """Return balanced accuracy, baselines x folds of one data set, best mean first and the ceiling on top.

    Of several seeds it is the mean. NaN where a baseline was not run, or the fold cannot rank baselines.
    """
    columns = {}
    for table in report.folds:
        if table.data == data:
            rows = table.rows()
            own = rows["adapter"].isin((table.main_adapter(adapter), ""))
            columns[table.fold] = rows.loc[own].groupby("baseline", sort=False)["balanced_accuracy"].mean()
    found = pd.DataFrame(columns).astype(float)
    order = found.mean(axis=1).sort_values(ascending=False, kind="stable").index
    return found.loc[sorted(order, key=lambda name: name != CEILING)].rename_axis("baseline")


def best_first(table: FoldTable, adapter: str) -> pd.DataFrame:
    """Return the main scores of a fold's runs by one adapter, best first where the fold ranks baselines."""
    rows = table.rows()
    rows = rows.loc[rows["adapter"].isin((table.main_adapter(adapter), ""))]
    named = {str(run.folder): table.label(run) for run in table.runs}
    labels = [named.get(str(run), name) for run, name in zip(rows["run"], rows["baseline"], strict=True)]
    # An answer without an outcome is covered too: where there are any, their share stands beside coverage.
    columns = [*_COLUMNS, *([UNANSWERED] if (rows[UNANSWERED] > 0).any() else [])]
    made = rows[columns].astype(float).set_axis(pd.Index(labels, name="baseline"))
    if not table.ranks:
        return made
    order = made["balanced_accuracy"].sort_values(ascending=False, kind="stable").index
    return made.loc[sorted(order, key=lambda name: name != CEILING)]


def fold_html(table: FoldTable, adapter: str) -> str:
    """Return a fold's table as HTML."""
    notes = [] if table.ranks else [f"baselines are not ranked: the fold {table.certificate['verdict']}"]
    title = f"{table.title}, {table.main_adapter(adapter)}, with 95% intervals"
    return shown(title, best_first(table, adapter), notes=notes)


def report_line(report: Report) -> str:
    """Return how much a report holds, on one line."""
    n_runs = sum(len(table.runs) for table in report.folds)
    simulated = {table.data for table in report.folds if table.simulated}
    names = ", ".join(marked(data, simulated=data in simulated) for data in report.data) or "no data set"
    left_out = len(report.unfinished) + len(report.skipped)
    told = f"; {left_out:,} not in the tables" if left_out else ""
    return f"Report: {count(n_runs, 'run')} on {count(len(report.folds), 'fold')} of {names}{told}"


def report_html(report: Report, adapter: str) -> str:
    """Return what a report holds as HTML: balanced accuracy, a table a data set."""
    parts = [shown(report_line(report))]
    for data in report.data:
        simulated = any(table.simulated for table in report.folds if table.data == data)
        used = dict.fromkeys(table.main_adapter(adapter) for table in report.folds if table.data == data)
        title = f"{marked(data, simulated=simulated)}: balanced accuracy, {', '.join(used)}"
        parts.append(shown(title, grid(report, data, adapter)))
    left_out = [f"{'/'.join(run.folder.parts[-4:])}: {run.state}: {run.reason}" for run in report.unfinished]
    return "".join([*parts, shown("Not in the tables:", notes=left_out) if left_out else ""])
