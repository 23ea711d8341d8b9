"""The tables of a fold that are folded away."""

from __future__ import annotations

from pertbase.folds import OUTCOMES, STATUSES
from pertbase.runs._reports._page._markup import Markup, element
from pertbase.runs._reports._page._table import (
    Cell,
    Column,
    data_table,
    details,
    heat,
    heat_key,
    of_interval,
    of_number,
)
from pertbase.runs._reports._page._view import FoldView, as_float
from pertbase.runs._reports._report import Report

__all__ = ["decomposed", "per_outcome", "statuses", "strata"]


def per_outcome(view: FoldView) -> Markup:
    """Return precision, recall and F1 of each outcome."""
    measures = [(outcome, measure) for outcome in OUTCOMES for measure in ("precision", "recall", "f1")]
    sortable = view.table.ranks
    columns = [Column("baseline", numeric=False)]
    columns += [Column(f"{outcome} {measure.replace('f1', 'F1')}", sortable=sortable) for outcome, measure in measures]
    rows = []
    for run in view.runs:
        row = view.row(run)
        rows.append([view.name(run), *(of_number(row[f"{measure}_{outcome}"]) for outcome, measure in measures)])
    caption = f"{view.table.title}: precision, recall and F1 of each outcome, {view.adapter}"
    return details(
        "Precision and recall",
        data_table(columns, rows, caption=caption, simulated=view.simulated),
    )


def strata(view: FoldView, kind: str) -> Markup | None:
    """Return balanced accuracy by regime, context or conflict, where there are several."""
    by_run = {run: scores.get(f"by_{kind}") or {} for run in view.runs if (scores := view.scores(run))}
    names = sorted({name for strata in by_run.values() for name in strata})
    if len(names) < 2 or not view.table.ranks:
        return None
    sizes = {name: next(strata[name]["n"] for strata in by_run.values() if name in strata) for name in names}
    columns = [Column("baseline", numeric=False)]
    columns += [Column(f"{name} ({sizes[name]:,})", f"{sizes[name]:,} questions") for name in names]
    rows = []
    for run, strata in by_run.items():
        cells = [heat(as_float(strata.get(name, {}).get("balanced_accuracy")), view.heat_domain) for name in names]
        rows.append([view.name(run), *cells])
    caption = f"{view.table.title}: balanced accuracy by {kind} (questions), {view.adapter}"
    table = data_table(columns, rows, caption=caption, simulated=view.simulated, class_="heat")
    return details(f"By {kind}", table, heat_key(view.heat_domain))


def statuses(view: FoldView) -> Markup:
    """Return coverage, and answers by status."""
    by_run = {run: scores for run in view.runs if (scores := view.scores(run))}
    seen = [name for name in STATUSES if any(scores["status"].get(name) for scores in by_run.values())]
    columns = [
        Column("baseline", numeric=False),
        Column("coverage", "share of answers that are not unsupported", sortable=view.table.ranks),
        *(Column(name, f"answers with status {name}", sortable=view.table.ranks) for name in seen),
        Column("without outcome", "answers without an outcome: wrong, and counted", sortable=view.table.ranks),
        Column("missing", "questions the answers leave out", sortable=view.table.ranks),
    ]
    rows = []
    for run, scores in by_run.items():
        counts = [
            *(scores["status"].get(name, 0) for name in seen),
            scores["n_without_outcome"],
            scores["n_missing"],
        ]
        cells = [Cell(f"{count:,}", count) for count in counts]
        rows.append([view.name(run), of_number(as_float(scores["coverage"])), *cells])
    caption = f"{view.table.title}: answers by status, {view.adapter}"
    table = data_table(columns, rows, caption=caption, simulated=view.simulated)
    return details("Coverage and status", table)


def decomposed(view: FoldView, report: Report) -> Markup | None:
    """Return what each baseline adds to nested shortcuts, where one was run."""
    found = report.decomposition(view.table, adapter=view.adapter)
    if found.empty:
        return None
    notes = [note for note in dict.fromkeys(found["note"]) if note]
    steps = list(dict.fromkeys(found["added"].dropna()))
    columns = [Column("baseline", numeric=False)]
    columns += [
        Column("over nothing" if position == 0 else f"+ {step}", "gain in balanced accuracy over all shortcuts so far")
        for position, step in enumerate(steps)
    ]
    rows = []
    by_label = dict(list(found.dropna(subset="added").groupby("baseline")))
    for run in view.runs:
        label = view.table.label(run)
        if label in by_label:
            gains = by_label[label].set_index("added")[["gain", "gain_low", "gain_high"]].astype(float)
            rows.append([view.name(run), *(of_interval(*gains.loc[step], signed=True) for step in steps)])
    caption = f"{view.table.title}: what each baseline adds to nested shortcuts, {view.adapter}"
    table = data_table(columns, rows, caption=caption, simulated=view.simulated) if rows else None
    about = element(
        "p",
        "Gain in balanced accuracy when a baseline's scores join those of the shortcuts named so far, left to "
        "right, in a cross-fitted regression. What remains in the last column is specific to the perturbation.",
        class_="hint",
    )
    told = element("ul", *(element("li", note) for note in notes), class_="notes") if notes else None
    return details("Shortcut decomposition", about, table, told)
