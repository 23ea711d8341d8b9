"""The report as one HTML page that needs nothing else: no network, no second file."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from pertbase.errors import InputError
from pertbase.folds import OUTCOMES
from pertbase.runs._html_table import (
    BADGE,
    Cell,
    Column,
    data_table,
    details,
    heat,
    heat_key,
    of_interval,
    of_number,
)
from pertbase.runs._markup import Markup, element, join, number
from pertbase.runs._page_fold import FoldView, compact
from pertbase.runs._published import MARK, published
from pertbase.runs._report import MAIN, FoldTable, Report
from pertbase.runs._store import Run
from pertbase.runs._svg import Domain, Dot, Line, dot_domain, dot_panels, dot_plot

__all__ = ["page", "picture"]


def page(report: Report, *, compare: tuple[str, str] | None = None, shortcuts: bool = True, adapter: str = MAIN) -> str:
    """Return a report, or the paired difference of two rows, as one HTML page.

    The same runs give the same bytes.

    Parameters
    ----------
    report
        The runs.
    compare
        Two names; their difference alone is shown then.
    shortcuts
        Whether to decompose what each baseline adds to shortcuts, which takes some seconds a fold.
    adapter
        The adapter that plots and one-adapter tables show.
    """
    if compare:
        body = [_comparison(report, compare, adapter)]
        contents: list[tuple[str, str, bool]] = []
    else:
        views = [
            FoldView(table, ident=f"fold-{position}", adapter=adapter, domain=_domain(report, table.data))
            for position, table in enumerate(report.folds, start=1)
        ]
        body = [_summary(views)]
        for data in report.data:
            of_data = [view for view in views if view.table.data == data]
            body.append(_data_section(report, of_data, adapter, shortcuts=shortcuts))
        body += [part for part in (_published(report), _left_out(report), _provenance(report)) if part]
        contents = _contents(report, views)
    return _document(report, body, contents, compare)


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

    def place(label: str) -> tuple[float, str]:
        values = [dot.value for dot in found[label].values() if not math.isnan(dot.value)]
        return (-sum(values) / len(values) if values else math.inf, label)

    names = sorted(found, key=place)
    panels = []
    for position, view in enumerate(views):
        dots = [found[label].get(position, Dot(label, math.nan)) for label in names]
        lines = [Line(1 / 3, "chance")]
        if not math.isnan(view.ceiling):
            lines.append(Line(view.ceiling, "ceiling", strong=True))
        panels.append((view.table.title if len(report.data) > 1 else view.table.fold, dots, lines, view.simulated))
    simulated = " (simulated)" if any(view.simulated for view in views) else ""
    what = f"{report.data[0]}{simulated}" if len(report.data) == 1 else f"{', '.join(report.data)}{simulated}"
    values = [end for _, dots, lines, _ in panels for dot in dots for end in (dot.value, dot.low, dot.high)]
    values += [line.value for _, _, lines, _ in panels for line in lines]
    title = f"{what}: balanced accuracy with 95% intervals, {adapter}"
    return str(dot_panels(panels, title=title, axis="balanced accuracy", domain=dot_domain(values))) + "\n"


def _domain(report: Report, data: str) -> Domain:
    """Return the ends of balanced accuracy over all folds of a data set."""
    values = [1 / 3]
    for table in report.folds:
        if table.data == data and table.ranks:
            rows = table.rows()
            for name in ("balanced_accuracy", "balanced_accuracy_low", "balanced_accuracy_high"):
                values += rows[name].astype(float).tolist() if name in rows else []
    return dot_domain(values)


# -- the document -------------------------------------------------------------------------------------------


@cache
def _part(name: str) -> str:
    return files("pertbase.runs").joinpath("page", name).read_text(encoding="utf-8")


def _document(
    report: Report,
    body: Sequence[Markup],
    contents: Sequence[tuple[str, str, bool]],
    compare: tuple[str, str] | None,
) -> str:
    script, style = Markup(_part("page.js")), Markup(_part("page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    # Nothing is loaded from anywhere and no other script runs, whatever a name in the data may hold.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    simulated = sorted({table.data for table in report.folds if table.simulated})
    names = ", ".join(f"{data} (simulated)" if data in simulated else data for data in report.data)
    what = f"{compare[0]} - {compare[1]}" if compare else "report"
    title = f"pertbase {what}: {names}" if names else f"pertbase {what}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"pertbase {version('pertbase')}"),
        element("title", title),
        element("style", style),
    )
    links = [
        element("li", element("a", label, href=f"#{ident}"), class_="sub" if below else None)
        for ident, label, below in contents
    ]
    nav = element("nav", element("ul", *links), aria_label="Contents") if links else None
    return "<!DOCTYPE html>\n" + element(
        "html",
        head,
        element(
            "body",
            _header(report, title, simulated),
            element("div", nav, element("main", *body), class_="columns" if links else None),
            element("footer", f"Made with pertbase {version('pertbase')}."),
            element("script", script),
        ),
        "\n",
        lang="en",
    )


def _header(report: Report, title: str, simulated: Sequence[str]) -> Markup:
    runs = sum(len(table.runs) for table in report.folds)
    counts = f"{_count(runs, 'run')} on {_count(len(report.folds), 'fold')} of {_count(len(report.data), 'data set')}"
    if report.unfinished:
        counts += f"; {_count(len(report.unfinished), 'run')} not in the tables"
    banner = None
    if simulated:
        real = len(simulated) < len(report.data)
        told = f"{', '.join(simulated)}: cells made by a simulation, not measured." + (
            " The other data sets are real; the two are never averaged together." if real else ""
        )
        banner = element("p", BADGE, " ", told, class_="banner")
    return element("header", element("h1", title), element("p", counts), banner)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _contents(report: Report, views: Sequence[FoldView]) -> list[tuple[str, str, bool]]:
    links = [("overview", "Overview", False)]
    for data in report.data:
        of_data = [view for view in views if view.table.data == data]
        mark = " (simulated)" if any(view.simulated for view in of_data) else ""
        links.append((_ident(report, data), f"{data}{mark}", False))
        links += [(view.ident, view.table.fold, True) for view in of_data]
    if published(report.data):
        links.append(("published", "Published figures", False))
    if report.unfinished or report.skipped:
        links.append(("left-out", "Not in the tables", False))
    return [*links, ("provenance", "Provenance", False)]


def _ident(report: Report, data: str) -> str:
    return f"data-{report.data.index(data) + 1}"


# -- overview -----------------------------------------------------------------------------------------------

_HOW_TO_READ = (
    ("Balanced accuracy (BA)", "the mean of the recalls of up, down and no_change; a third is chance."),
    (
        "Intervals",
        "cover target sets and readout genes; where two overlap, only a paired difference tells (pertbase report "
        "compare=A,B).",
    ),
    ("Split-half ceiling", "what one half of a condition's cells says of the other half, corrected to all cells."),
    ("Adapter", "turns predicted effects or scores into outcomes; fitted on val, never on test."),
    ("Unsupported", "answered no_change and counted; supported BA leaves those questions out."),
    ("Without an outcome", "such an answer is wrong, and stays in every denominator."),
    ("Ambiguous", "questions between change and no change: out of the headline, reported as a forced choice."),
    ("–", "there is no such number, or too few questions to print one."),
)


def _summary(views: Sequence[FoldView]) -> Markup:
    columns = [
        Column("fold", numeric=False),
        Column("runs"),
        *(Column(name, f"test questions that are {name}") for name in OUTCOMES),
        Column("ceiling", "split-half ceiling of balanced accuracy"),
        Column("smallest difference", "the smallest difference between two baselines it can detect"),
        Column("can rank baselines", numeric=False),
    ]
    rows = []
    for view in views:
        table, counts = view.table, view.table.certificate["questions"]["test"]
        smallest = table.certificate.get("smallest_difference") if table.ranks else None
        link = join(
            element("a", table.data, ": ", table.fold, href=f"#{view.ident}"),
            join(" ", BADGE) if view.simulated else None,
        )
        rows.append(
            [
                Cell(link),
                Cell(str(len(table.runs)), len(table.runs)),
                *(Cell(f"{counts[name]:,}", counts[name]) for name in OUTCOMES),
                of_number(view.ceiling),
                of_number(smallest),
                Cell("yes" if table.ranks else "no", about=table.certificate["verdict"]),
            ]
        )
    terms = [join(element("dt", term), element("dd", meaning)) for term, meaning in _HOW_TO_READ]
    return element(
        "section",
        element("h2", "Overview"),
        data_table(columns, rows, caption="Folds, their test questions, and what they can decide") if rows else None,
        details("How to read this page", element("dl", *terms)),
        id="overview",
    )


def _data_section(report: Report, views: Sequence[FoldView], adapter: str, *, shortcuts: bool) -> Markup:
    data, simulated = views[0].table.data, any(view.simulated for view in views)
    heading = f"{data} (simulated)" if simulated else data
    return element(
        "section",
        element("h2", heading, " ", BADGE if simulated else None),
        _heat_map(report, views, adapter) if any(view.table.ranks for view in views) else None,
        _means(report, data, adapter, simulated=simulated),
        *(view.section(report, shortcuts=shortcuts) for view in views),
        id=_ident(report, data),
        class_="data",
    )


def _heat_map(report: Report, views: Sequence[FoldView], adapter: str) -> Markup:
    """Return balanced accuracy, baselines x folds; a fold that cannot rank says so in its head."""
    data, domain = views[0].table.data, views[0].domain
    seeds = {run.config["seed"] for view in views for run in view.table.runs}
    means = report.means(data, adapter=adapter)
    order = [(row.baseline, row.seed) for row in means.itertuples()] if len(means) else []
    keys = {(str(run.config["name"]), int(run.config["seed"])) for view in views for run in view.table.runs}
    order += sorted(keys - set(order))
    rows = []
    for name, seed in order:
        cells = []
        for view in views:
            run = next((r for r in view.table.runs if (r.config["name"], r.config["seed"]) == (name, seed)), None)
            if run is None:
                cells.append(Cell("", math.nan, about="not run"))
            else:
                told = None if view.table.ranks else "not ranked"
                cells.append(heat(float(view.row(run)["balanced_accuracy"]), domain, about=told))
        rows.append([Cell(f"{name}, seed {seed}" if len(seeds) > 1 else name), *cells])
    columns = [Column("baseline", numeric=False)]
    columns += [
        Column(
            view.table.fold if view.table.ranks else f"{view.table.fold}, not ranked",
            view.table.certificate["verdict"],
            sortable=view.table.ranks,
        )
        for view in views
    ]
    mark = " (simulated)" if any(view.simulated for view in views) else ""
    caption = f"{data}{mark}: balanced accuracy, baselines by folds, {adapter}"
    table = data_table(columns, rows, caption=caption, simulated=bool(mark), class_="heat")
    note = element("p", "Empty: not run, or the baseline cannot be on that fold.", class_="hint")
    return join(table, heat_key(domain), note)


def _means(report: Report, data: str, adapter: str, *, simulated: bool) -> Markup | None:
    table = report.means(data, adapter=adapter)
    if table.empty or table["n_folds"].max() < 2:
        return None
    several = table["seed"].nunique() > 1
    rows = [
        [
            Cell(f"{row.baseline}, seed {row.seed}" if several else str(row.baseline)),
            of_interval(row.balanced_accuracy, row.low, row.high),
            Cell(str(row.n_folds), row.n_folds),
            Cell(row.notes),
        ]
        for row in table.itertuples()
    ]
    # Rows over different folds cannot be compared, so that sorting them by their means would mislead.
    columns = [
        Column("baseline", numeric=False, sortable=False),
        Column("mean BA", "plain mean over the folds it ran on", sortable=False),
        Column("folds", sortable=False),
        Column("notes", numeric=False, sortable=False),
    ]
    if not any(table["notes"]):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    mark = " (simulated)" if simulated else ""
    caption = f"{data}{mark}: mean balanced accuracy over folds, {adapter}"
    hint = element("p", "Intervals are joint over folds. Compare rows that ran on the same folds only.", class_="hint")
    return join(data_table(columns, rows, caption=caption, simulated=simulated), hint)


# -- beside our own numbers ---------------------------------------------------------------------------------


def _published(report: Report) -> Markup | None:
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
        parts.append(element("p", f"Source: {figures.source}.", class_="hint"))
    return element("section", element("h2", "Published figures ", mark), *parts, id="published")


def _left_out(report: Report) -> Markup | None:
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


def _provenance(report: Report) -> Markup:
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
            f"{_count(len(runs), 'run')}: configuration, hashes and seeds",
            data_table(columns, rows, caption="Every run of this page, by its folder", class_="wrap"),
        ),
        id="provenance",
    )


# -- comparison ---------------------------------------------------------------------------------------------


def _comparison(report: Report, names: tuple[str, str], adapter: str) -> Markup:
    """Return the paired differences of two rows, a plot and a table a data set."""
    found = report.differences(*names, adapter=adapter)
    simulated = {table.data for table in report.folds if table.simulated}
    parts = []
    for position, (data, rows) in enumerate(found.groupby("data", sort=True)):
        several = rows["seed"].astype(str).nunique() > 2
        mark = f"{data} (simulated)" if data in simulated else str(data)
        title = f"{mark}: balanced accuracy of {names[0]} minus {names[1]}, {adapter}"
        dots = [
            Dot(
                f"{row.fold}, seed {row.seed}" if several and row.seed != "" else row.fold,
                row.difference,
                row.low,
                row.high,
            )
            for row in rows.itertuples()
        ]
        ends = [abs(end) for dot in dots for end in (dot.value, dot.low, dot.high) if not math.isnan(end)]
        limit = dot_domain([0.0, *ends], step=0.05)[1]
        plot = dot_plot(
            dots,
            ident=f"difference-{position}",
            title=title,
            axis="difference in balanced accuracy, paired",
            domain=(-limit, limit),
            lines=[Line(0.0, "no difference")],
            simulated=data in simulated,
            width=560,
        )
        columns = [Column("fold", numeric=False), Column("seed"), Column("difference"), Column("note", numeric=False)]
        cells = [
            [
                Cell(str(row.fold)),
                Cell(str(row.seed)),
                of_interval(row.difference, row.low, row.high, signed=True),
                Cell(str(row.note)),
            ]
            for row in rows.itertuples()
        ]
        badge = join(" ", BADGE) if data in simulated else None
        parts.append(
            element(
                "section",
                element("h2", mark, badge),
                element("figure", element("figcaption", title, badge), plot),
                data_table(columns, cells, caption=title, simulated=data in simulated),
                class_="data",
            )
        )
    return join(*parts)
