"""The part of the page that is about one fold: what it can decide, and the scores on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pertbase.folds import OUTCOMES
from pertbase.runs._reports._page._curves import training_curves
from pertbase.runs._reports._page._dots import Dot, Line, dot_plot
from pertbase.runs._reports._page._fold_tables import decomposed, per_outcome, statuses, strata
from pertbase.runs._reports._page._markup import Markup, element, join, number
from pertbase.runs._reports._page._multiples import confusions, scatters
from pertbase.runs._reports._page._reason_tables import language_tables, reason_tables
from pertbase.runs._reports._page._table import BADGE, Cell, Column, data_table, details, of_interval, of_number
from pertbase.runs._reports._page._view import FoldView, compact
from pertbase.runs._reports._report import CEILING, Report
from pertbase.runs._reports._terms import LEGEND, UNANSWERED
from pertbase.runs._store import Run

__all__ = ["fold_section"]

_SPLITS = ("train", "val", "test")


def fold_section(view: FoldView, report: Report, *, shortcuts: bool) -> Markup:
    """Return the whole section."""
    plot = _dots(view) if view.table.ranks else _refused(view)
    return element(
        "section",
        element("h3", view.table.title, " ", BADGE if view.simulated else None),
        element("div", plot, _certificate(view), class_="pair"),
        _score_table(view),
        _notes(view),
        confusions(view),
        scatters(view),
        *(strata(view, kind) for kind in ("regime", "context", "conflict")),
        per_outcome(view),
        statuses(view),
        language_tables(view),
        training_curves(view),
        reason_tables(view),
        decomposed(view, report) if shortcuts else None,
        id=view.ident,
        class_="fold simulated" if view.simulated else "fold",
    )


def _dots(view: FoldView) -> Markup:
    rows = [(run, view.row(run)) for run in view.runs]
    dots = [
        Dot(
            view.table.label(run),
            row["balanced_accuracy"],
            row["balanced_accuracy_low"],
            row["balanced_accuracy_high"],
            view.flagged(run),
        )
        for run, row in rows
    ]
    lines = [Line(1 / 3, "chance")]
    if not math.isnan(view.ceiling):
        lines.append(Line(view.ceiling, f"ceiling {view.ceiling:.3f}", strong=True))
    smallest = view.table.certificate.get("smallest_difference")
    # Of the fold, not of a pair that is drawn: it is worked out from the two priors.
    bar = (float(smallest), "needed to tell two baselines apart, about") if smallest else None
    plot = dot_plot(
        dots,
        ident=f"{view.ident}-dots",
        title=f"{view.table.title}: balanced accuracy of each baseline, {view.adapter}",
        axis=f"balanced accuracy, {view.adapter}",
        domain=view.domain,
        lines=lines,
        bar=bar,
        simulated=view.simulated,
    )
    badge = join(" ", BADGE) if view.simulated else None
    caption = element("figcaption", f"Balanced accuracy with {view.level} intervals", badge)
    return element("figure", caption, plot)


def _refused(view: FoldView) -> Markup:
    return element(
        "div",
        element("p", element("strong", "Baselines are not ranked on this fold.")),
        element("p", f"The fold {view.table.certificate['verdict']}. What may help:"),
        element("ul", *(element("li", item) for item in view.table.remedies)),
        element("p", "The table below is in the order of names and cannot be sorted by a score."),
        class_="refused",
        role="note",
    )


def _certificate(view: FoldView) -> Markup:
    manifest, certificate = view.table.manifest, view.table.certificate
    outcomes = [*OUTCOMES, "ambiguous"]
    counts = data_table(
        [Column("split", numeric=False, sortable=False), *(Column(name, sortable=False) for name in outcomes)],
        [
            [
                Cell(split),
                *(
                    Cell(f"{certificate['questions'][split][name]:,}", certificate["questions"][split][name])
                    for name in outcomes
                ),
            ]
            for split in _SPLITS
        ],
        caption=f"Questions{' (simulated)' if view.simulated else ''}",
        class_="plain",
    )
    told = [
        ("verdict", certificate["verdict"]),
        ("disjoint", "yes, proved when the fold was made" if certificate["disjoint"] else "NO"),
        ("replicate ceiling", _ceiling_told(view)),
        ("mean power", number(certificate.get("power"))),
        ("target sets", _by_split(certificate["target_sets"])),
        ("conditions with calls", _by_split(certificate["conditions_with_calls"])),
    ]
    if view.table.ranks:
        priors = ", ".join(f"{name} {number(value)}" for name, value in certificate["priors"].items())
        smallest = certificate.get("smallest_difference")
        told[2:2] = [("difference needed", _needed(smallest)), ("BA of the priors", priors)]
    identity = [
        ("fold hash", element("code", view.table.hash)),
        ("data hash", element("code", manifest["data_hash"])),
        ("specification", element("code", compact(manifest["spec"]))),
    ]
    heading = element("h4", "Certificate", " " if view.simulated else None, BADGE if view.simulated else None)
    return element(
        "div",
        heading,
        counts,
        _definitions(told),
        details("Hashes and specification", _definitions(identity)),
        class_="card",
    )


def _ceiling_told(view: FoldView) -> str:
    ceiling = view.table.certificate.get("ceiling")
    if not ceiling:
        return "none: the data set holds no cells"
    if not view.table.ranks:
        return "not given: too few questions of a class"
    return f"{number(ceiling['corrected'])} (half the cells {number(ceiling['half'])})"


def _needed(smallest: float | None) -> str:
    if smallest is None or math.isnan(smallest):
        return "not known: there is no interval to work it out from"
    return f"about {number(smallest)} of balanced accuracy, for two baselines to be told apart"


def _notes(view: FoldView) -> Markup | None:
    told = [*view.table.manifest["notes"], *view.table.unspoken(view.adapter), *view.table.laid()]
    notes: dict[str, None] = dict.fromkeys(told)
    flagged = [view.table.label(run) for run in view.runs if view.flagged(run)]
    if flagged:
        notes.setdefault(
            "* and hollow dots: thresholds could not be fitted on held-out outcomes, fixed ones are used: "
            + ", ".join(flagged)
        )
    for run in view.table.runs:
        for note in (view.scores(run) or {}).get("notes", ()):
            notes.setdefault(note)
    return element("ul", *(element("li", note) for note in notes), class_="notes") if notes else None


def _score_table(view: FoldView) -> Markup:
    ranks = view.table.ranks
    others = [name for name in view.adapters if name != view.adapter]

    def column(label: str, about: str) -> Column:
        return Column(label, about, sortable=ranks)

    columns = [
        Column("baseline", numeric=False),
        column(f"BA {view.adapter}", "balanced accuracy: mean recall of up, down and no_change, with its interval"),
        *(column(f"BA {name}", f"balanced accuracy with the adapter {name}") for name in others),
        column("accuracy", "share of questions answered right, with its interval"),
        column("macro F1", LEGEND["macro F1"]),
        column("AUROC called", "up or down against no_change, mean within readout genes"),
        column("AUROC direction", "up against down, mean within readout genes"),
        column("ambiguous", LEGEND["ambiguous"]),
        column("coverage", LEGEND["coverage"]),
        *([column(UNANSWERED, LEGEND[UNANSWERED])] if _any_unanswered(view) else []),
        column("supported BA", LEGEND["supported BA"]),
        column(
            "pairwise r",
            "mean correlation of predicted effects between perturbations of a context, in brackets that of measured "
            "ones: near 1 where that is not, the same is said of every perturbation",
        ),
    ]
    rows = [[view.name(run), *_score_cells(view, run, others)] for run in view.runs]
    if not math.isnan(view.ceiling):
        dashes = [of_number(math.nan)] * (len(columns) - 2)
        rows.insert(0, [Cell(CEILING), of_number(view.ceiling), *dashes])
    if not ranks:
        # What rests on too few questions is not given: a column of dashes says no more than that.
        kept = [place for place in range(len(columns)) if not all(_empty(row[place]) for row in rows)]
        columns, rows = [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]
    return data_table(
        columns,
        rows,
        caption=f"{view.table.title}: scores on {view.n_asked:,} test questions, {view.adapter}",
        simulated=view.simulated,
        pinned=len(rows) - len(view.runs),
    )


def _score_cells(view: FoldView, run: Run, others: list[str]) -> list[Cell]:
    row = view.row(run)
    flag = "*" if view.flagged(run) else ""

    def spread(name: str, flag: str = "") -> Cell:
        return of_interval(row[name], row[f"{name}_low"], row[f"{name}_high"], flag=flag)

    names = ["macro_f1", "auroc_called", "auroc_direction", "ambiguous", "coverage"]
    names += [UNANSWERED] if _any_unanswered(view) else []
    names += ["supported_balanced_accuracy"]
    return [
        spread("balanced_accuracy", flag),
        *(of_number(view.row(run, name)["balanced_accuracy"]) for name in others),
        spread("accuracy"),
        *(of_number(row[name]) for name in names),
        _pairwise(row["pairwise_predicted"], row["pairwise_measured"]),
    ]


def _any_unanswered(view: FoldView) -> bool:
    return bool((view.rows[UNANSWERED] > 0).any())


def _pairwise(predicted: float, measured: float) -> Cell:
    if math.isnan(predicted) or math.isnan(measured):
        return of_number(predicted)
    return Cell(join(number(predicted), " ", element("small", f"({number(measured)})")), predicted)


def _empty(cell: Cell) -> bool:
    return cell.value is not None and math.isnan(cell.value)


def _definitions(pairs: Sequence[tuple[str, str]]) -> Markup:
    return element("dl", *(join(element("dt", name), element("dd", value)) for name, value in pairs))


def _by_split(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[split]:,} {split}" for split in _SPLITS)
