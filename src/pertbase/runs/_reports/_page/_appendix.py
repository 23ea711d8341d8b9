"""What stands beside our own numbers: published figures, runs left out, provenance."""

from __future__ import annotations

from pertbase.runs._reports._page._markup import Markup, count, element
from pertbase.runs._reports._page._table import Cell, Column, data_table, details
from pertbase.runs._reports._page._view import compact
from pertbase.runs._reports._published import MARK, published
from pertbase.runs._reports._report import Report
from pertbase.runs._store import Run

__all__ = ["left_out", "provenance", "published_figures"]


def published_figures(report: Report) -> Markup | None:
    """Return figures from papers, marked so in every heading and caption."""
    found = published(report.data)
    if not found:
        return None
    mark = element("span", MARK, class_="badge published")
    parts = []
    for figures in found:
        columns = [Column("model", numeric=False, sortable=False)]
        columns += [Column(str(name), sortable=False) for name in figures.table.columns]
        rows = [
            [
                Cell(str(model)),
                *(Cell(f"{value:.3f}".rstrip("0") if isinstance(value, float) else str(value)) for value in row),
            ]
            for model, row in zip(figures.table.index, figures.table.to_numpy(), strict=True)
        ]
        parts.append(element("h3", figures.title, " ", mark))
        parts.append(data_table(columns, rows, caption=f"{figures.title} ({MARK})", class_="published"))
        parts.append(element("ul", *(element("li", line) for line in figures.told), class_="notes"))
    return element("section", element("h2", "Published figures ", mark), *parts, id="published")


def left_out(report: Report) -> Markup | None:
    """Return the runs that are in no table, and why."""
    runs = [*report.unfinished, *report.skipped]
    if not runs:
        return None
    columns = [
        Column("run", numeric=False),
        Column("state", numeric=False),
        Column("why", numeric=False, sortable=False),
    ]
    rows = [[Cell(_place(run)), Cell(str(run.status["state"])), Cell(run.reason)] for run in runs]
    return element(
        "section",
        element("h2", "Not in the tables"),
        data_table(columns, rows, caption="Runs that failed, did not finish or were skipped", class_="wrap"),
        id="left-out",
    )


def _place(run: Run) -> str:
    """Return where a run lies among its runs; never a path of somebody's machine."""
    return "/".join(run.folder.parts[-4:])


def provenance(report: Report) -> Markup:
    """Return what every run was made of and with."""
    runs = [run for table in report.folds for run in table.runs]
    kept = [{key: run.status.get(key) for key in ("versions", "python", "platform", "device")} for run in runs]
    distinct: list[dict[str, object]] = []
    for environment in kept:
        if environment not in distinct:
            distinct.append(environment)
    text = [Column(name, numeric=False) for name in ("run", "configuration", "adapters")]
    columns = [
        *text,
        Column("seed"),
        Column("fold hash", numeric=False),
        Column("environment"),
        Column("finished", numeric=False),
    ]
    rows = []
    for run, environment in zip(runs, kept, strict=True):
        place = distinct.index(environment) + 1
        rows.append(
            [
                Cell(_place(run)),
                Cell(element("code", compact(run.config["baseline"]))),
                Cell(", ".join(run.config["adapters"])),
                Cell(str(run.config["seed"]), run.config["seed"]),
                Cell(element("code", run.config["fold_hash"][:12]), about=run.config["fold_hash"]),
                Cell(str(place), place),
                Cell(str(run.status.get("finished") or "")),
            ]
        )
    lines = [element("li", element("code", compact(environment))) for environment in distinct]
    return element(
        "section",
        element("h2", "Provenance"),
        element("p", "Environments the runs were made in:"),
        element("ol", *lines),
        details(
            f"{count(len(runs), 'run')}: configuration, hashes and seeds",
            data_table(columns, rows, caption="Every run of this page, by its folder", class_="wrap"),
        ),
        id="provenance",
    )
