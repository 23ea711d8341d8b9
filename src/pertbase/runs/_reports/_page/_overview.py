"""The parts of the page over folds: what there is, and one data set on all its folds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from pertbase.folds import OUTCOMES
from pertbase.runs._reports._page._dots import Domain, Dot, Line, dot_plot
from pertbase.runs._reports._page._fold import fold_section
from pertbase.runs._reports._page._markup import Markup, element, join
from pertbase.runs._reports._page._table import (
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
from pertbase.runs._reports._page._view import FoldView
from pertbase.runs._reports._report import Report, marked
from pertbase.runs._reports._terms import ADAPTERS, LEGEND, POWER, TERMS, adapters_told

__all__ = ["data_ident", "data_section", "summary"]

_HOW_TO_READ = (
    *TERMS.items(),
    (
        "Intervals",
        "cover target sets and readout genes. Where two overlap, only a paired difference tells: compare=A,B.",
    ),
    *((word[0].upper() + word[1:], f"{meaning}.") for word, meaning in LEGEND.items()),
    ("Adapters", f"{adapters_told(ADAPTERS)} They are fitted on val, never on test."),
    ("Mean power", f"{POWER}."),
    ("Unsupported", "answered no_change and counted; supported BA leaves those questions out."),
    ("Without an outcome", "such an answer is wrong, and stays in every denominator."),
    ("Pairwise r", "how alike predicted effects of different perturbations are: far above measured is a collapse."),
    ("–", "there is no such number, or too few questions to print one."),
)


def summary(views: Sequence[FoldView]) -> Markup:
    """Return what there is: a row a fold, and how to read the page."""
    columns = [
        Column("fold", numeric=False),
        Column("runs"),
        *(Column(name, f"test questions that are {name}") for name in OUTCOMES),
        Column("ceiling", "what a perfect replicate of the screen would score, modelled"),
        Column(
            "difference needed",
            "in balanced accuracy, for two baselines to be told apart; worked out from the two priors, others may need "
            "more",
        ),
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
        details("How to read this page", element("dl", *terms, class_="terms")),
        id="overview",
    )


def data_section(report: Report, views: Sequence[FoldView], adapter: str, *, shortcuts: bool) -> Markup:
    """Return everything about one data set."""
    data, simulated = views[0].table.data, any(view.simulated for view in views)
    heading = marked(data, simulated=simulated)
    means = report.means(data, adapter=adapter)
    return element(
        "section",
        element("h2", heading, " ", BADGE if simulated else None),
        _heat_map(views, means, adapter) if sum(view.table.ranks for view in views) > 1 else None,
        _means(means, heading, adapter, ident=data_ident(report, data), domain=views[0].domain, simulated=simulated),
        *(fold_section(view, report, shortcuts=shortcuts) for view in views),
        id=data_ident(report, data),
        class_="data",
    )


def _heat_map(views: Sequence[FoldView], means: pd.DataFrame, adapter: str) -> Markup:
    """Return balanced accuracy, baselines x folds; a fold that cannot rank says so in its head."""
    data, domain = views[0].table.data, views[0].heat_domain
    seeds = {run.config["seed"] for view in views for run in view.table.runs}
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
    simulated = any(view.simulated for view in views)
    caption = f"{marked(data, simulated=simulated)}: balanced accuracy, baselines by folds, {adapter}"
    table = data_table(columns, rows, caption=caption, simulated=simulated, class_="heat")
    note = element("p", "Empty: not run, or the baseline cannot be on that fold.", class_="hint")
    return join(table, heat_key(domain), note)


_SAME_FOLDS = "Compare rows that ran on the same folds only."


def _means(
    table: pd.DataFrame, heading: str, adapter: str, *, ident: str, domain: Domain, simulated: bool
) -> Markup | None:
    if table.empty or table["n_folds"].max() < 2:
        return None
    several = table["seed"].nunique() > 1
    named = table.assign(
        label=[f"{row.baseline}, seed {row.seed}" if several else str(row.baseline) for row in table.itertuples()]
    )
    rows = [
        [
            Cell(row.label),
            of_interval(row.balanced_accuracy, row.low, row.high, flag=" *" if row.n_flagged else ""),
            Cell(str(row.n_folds), row.n_folds),
        ]
        for row in named.itertuples()
    ]
    # Rows over different folds cannot be compared, so that sorting them by their means would mislead.
    columns = [
        Column("baseline", numeric=False, sortable=False),
        Column("mean BA", "plain mean over the folds it ran on", sortable=False),
        Column("folds", sortable=False),
    ]
    caption = f"{heading}: mean balanced accuracy over folds, {adapter}"
    most = named.loc[named["n_folds"] == named["n_folds"].max()]
    plot = dot_plot(
        [Dot(row.label, row.balanced_accuracy, row.low, row.high) for row in most.itertuples()],
        ident=f"{ident}-means",
        title=caption,
        axis=f"mean balanced accuracy over {int(most['n_folds'].iloc[0])} folds, {adapter}",
        domain=domain,
        lines=[Line(1 / 3, "chance")],
        simulated=simulated,
    )
    badge = join(" ", BADGE) if simulated else None
    notes = [f"Intervals are joint over folds. {_SAME_FOLDS}", *dict.fromkeys(note for note in named["notes"] if note)]
    if named["n_flagged"].any():
        notes.append("* on some folds thresholds could not be fitted: fixed ones are used there")
    return element(
        "div",
        element("figure", element("figcaption", "Mean over folds, baselines that ran on the most", badge), plot),
        element(
            "div",
            data_table(columns, rows, caption=caption, simulated=simulated, class_="inline"),
            element("ul", *(element("li", note) for note in notes), class_="notes"),
        ),
        class_="pair",
    )


def data_ident(report: Report, data: str) -> str:
    """Return where a data set stands on the page."""
    return f"data-{report.data.index(data) + 1}"
