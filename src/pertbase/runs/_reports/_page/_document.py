"""The report as one HTML page that needs nothing else: no network, no second file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from pertbase.runs._reports._page._appendix import left_out, provenance, published_figures
from pertbase.runs._reports._page._compare import comparison
from pertbase.runs._reports._page._markup import Markup, count, element
from pertbase.runs._reports._page._overview import data_ident, data_section, summary
from pertbase.runs._reports._page._reproduction import reproduction
from pertbase.runs._reports._page._table import BADGE
from pertbase.runs._reports._page._view import FoldView, fold_views
from pertbase.runs._reports._published import published
from pertbase.runs._reports._report import MAIN, Report, marked
from pertbase.runs._reports._reproduction import Reproduction

__all__ = ["experiment_page", "page"]


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
        body = [comparison(report, compare, adapter)]
        contents: list[tuple[str, str, bool]] = []
    else:
        views = fold_views(report, adapter)
        body = [summary(views)]
        for data in report.data:
            of_data = [view for view in views if view.table.data == data]
            body.append(data_section(report, of_data, adapter, shortcuts=shortcuts))
        body += [part for part in (published_figures(report), left_out(report), provenance(report)) if part]
        contents = _contents(report, views)
    title = _title(report, compare)
    return _document(title, _report_header(report, title), body, contents)


def experiment_page(found: Reproduction) -> str:
    """Return an experiment beside the published table as one HTML page; the same runs give the same bytes."""
    title = f"pertbase: {marked(found.experiment.title, simulated=found.simulated)}"
    folds = {
        (run.config["data_name"], run.config["fold_name"]) for _, _, figure in found.figures for run in figure.runs
    }
    runs = {str(run.folder) for _, _, figure in found.figures for run in figure.runs}
    told = f"{count(len(runs), 'run')} on {count(len(folds), 'fold')}, beside what is published"
    simulated = sorted({data for data, _ in folds}) if found.simulated else []
    return _document(title, _header(title, told, simulated, real=False), [reproduction(found)], [])


@cache
def _part(name: str) -> str:
    return files("pertbase.runs._reports._page").joinpath(name).read_text(encoding="utf-8")


def _document(title: str, header: Markup, body: Sequence[Markup], contents: Sequence[tuple[str, str, bool]]) -> str:
    script, style = Markup(_part("page.js")), Markup(_part("page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    # Nothing is loaded from anywhere and no other script runs, whatever a name in the data may hold.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
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
            header,
            element("div", nav, element("main", *body), class_="columns" if links else None),
            element("footer", f"Made with pertbase {version('pertbase')}."),
            element("script", script),
        ),
        "\n",
        lang="en",
    )


def _title(report: Report, compare: tuple[str, str] | None) -> str:
    simulated = {table.data for table in report.folds if table.simulated}
    names = ", ".join(marked(data, simulated=data in simulated) for data in report.data)
    what = f"{compare[0]} minus {compare[1]}" if compare else "report"
    return f"pertbase {what}: {names}" if names else f"pertbase {what}"


def _report_header(report: Report, title: str) -> Markup:
    simulated = sorted({table.data for table in report.folds if table.simulated})
    runs = sum(len(table.runs) for table in report.folds)
    counts = f"{count(runs, 'run')} on {count(len(report.folds), 'fold')} of {count(len(report.data), 'data set')}"
    if report.unfinished:
        counts += f"; {count(len(report.unfinished), 'run')} not in the tables"
    return _header(title, counts, simulated, real=len(simulated) < len(report.data))


def _header(title: str, counts: str, simulated: Sequence[str], *, real: bool) -> Markup:
    banner = None
    if simulated:
        told = f"{', '.join(simulated)}: cells made by a simulation, not measured." + (
            " The other data sets are real; the two are never averaged together." if real else ""
        )
        banner = element("p", BADGE, " ", told, class_="banner")
    return element("header", element("h1", title), element("p", counts), banner)


def _contents(report: Report, views: Sequence[FoldView]) -> list[tuple[str, str, bool]]:
    links = [("overview", "Overview", False)]
    for data in report.data:
        of_data = [view for view in views if view.table.data == data]
        name = marked(data, simulated=any(view.simulated for view in of_data))
        links.append((data_ident(report, data), name, False))
        links += [(view.ident, view.table.fold, True) for view in of_data]
    if published(report.data):
        links.append(("published", "Published figures", False))
    if report.unfinished or report.skipped:
        links.append(("left-out", "Not in the tables", False))
    return [*links, ("provenance", "Provenance", False)]
