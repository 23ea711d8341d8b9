"""Pictures of baselines beside one another: scores with intervals, a table over folds, what is added to shortcuts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pertbase._pictures import MUTED, RULE, marked
from pertbase.errors import InputError, unknown_name
from pertbase.plot._canvas import HEAD, canvas, check, finish, legend, row_height, rows_axis, seaborn, short, vertical
from pertbase.runs._reports._fold_table import check_adapter
from pertbase.runs._reports._page._dots import Dot
from pertbase.runs._reports._page._view import FoldView
from pertbase.runs._reports._report import CEILING, MAIN, FoldTable, Report
from pertbase.runs._store import Run
from pertbase.scorers import OutcomeScores, Shortcuts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["intervals", "shortcuts", "table"]

_DOT = "#0072b2"
# The rest of Okabe and Ito's palette, with a marker each.
_SERIES = (
    ("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#e69f00", "v"), ("#56b4e9", "P"),
    ("#1b1d22", "X"),
)  # fmt: skip
_METRICS = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy"}


def intervals(
    scores: FoldTable | Mapping[str, OutcomeScores],
    *,
    metric: str = "balanced_accuracy",
    adapter: str = MAIN,
    ax: Axes | None = None,
) -> Axes:
    """Draw a score of each baseline on one fold, with its interval.

    Two intervals that overlap do not say that two baselines are equally good: only a paired difference tells
    (:func:`pertbase.scorers.compare`). Hollow dots have thresholds that could not be fitted.

    Parameters
    ----------
    scores
        A fold's table, as :func:`pertbase.read_runs` gives them, drawn best first with the ceiling; or name -> scores,
        drawn in their order.
    metric
        ``balanced_accuracy`` or ``accuracy``.
    adapter
        Of the table's runs; the first there is where none was answered with it.
    ax
        To draw on.

    Raises
    ------
    InputError
        For another metric or adapter, where there is nothing to draw, the scores are of different folds, or these have
        too few questions of a class for balanced accuracy; with the reason.
    """
    if metric not in _METRICS:
        raise unknown_name("metric", str(metric), _METRICS)
    check(
        scores, (FoldTable, Mapping), key="scores",
        remedy='give a fold of pertbase.read_runs(...), or {name: pertbase.scorers.outcome(answers, truth), ...}',
    )  # fmt: skip
    if isinstance(scores, FoldTable):
        check_adapter([scores], adapter)
        view = FoldView(scores, ident="", adapter=adapter, domain=(0.0, 1.0))
        dots = [_dot_of_run(view, run, metric) for run in view.runs]
        title, simulated, level = f"{scores.title}, {view.adapter}", scores.simulated, view.level
        ceiling, n, reason = view.ceiling, view.n_asked, str(scores.certificate["verdict"])
    else:
        for one in scores.values():
            check(one, OutcomeScores, key="scores", remedy="give what pertbase.scorers.outcome returns")
        dots = [_dot(name, one, metric) for name, one in scores.items()]
        if len({one.fold_hash for one in scores.values()}) > 1:
            raise InputError(
                "the scores are of different folds", key="scores", value=sorted(scores), remedy="draw each fold apart"
            )
        first = next(iter(scores.values()), None)
        if first is None:
            raise InputError(
                "there are no scores to draw", key="scores", value={},
                remedy="give {name: pertbase.scorers.outcome(answers, truth), ...}",
            )  # fmt: skip
        title, simulated = marked(first.fold, simulated=first.simulated), first.simulated
        level, ceiling, n = f"{first.level:.0%}", math.nan, first.n
        reason = "; ".join(first.notes)
    if all(math.isnan(dot.value) for dot in dots):
        few = metric == "accuracy"
        remedy = "ask more questions: fold.certificate says of what" if few else 'draw metric="accuracy"'
        told = f"no baseline has {'an' if few else 'a'} {_METRICS[metric]} here: {reason}"
        raise InputError(told, key="scores", remedy=remedy)
    ax = canvas(ax, height=row_height(len(dots)))
    _whiskers(ax, dots)
    if metric == "balanced_accuracy":
        vertical(ax, 1 / 3, "chance")
        if not math.isnan(ceiling):
            vertical(ax, ceiling, f"ceiling {ceiling:.3f}", strong=True)
    ax.set_xlabel(f"{_METRICS[metric]}, {level} intervals, n = {n:,} questions")
    return finish(ax, title, simulated=simulated, lined=True)


def _dot(name: str, scores: OutcomeScores, metric: str) -> Dot:
    interval = getattr(scores, metric)
    return Dot(name, interval.value, interval.low, interval.high)


def _dot_of_run(view: FoldView, run: Run, metric: str) -> Dot:
    row = view.row(run)
    value, low, high = (float(row[f"{metric}{end}"]) for end in ("", "_low", "_high"))
    return Dot(view.table.label(run), value, low, high, view.flagged(run))


def _whiskers(ax: Axes, dots: Sequence[Dot]) -> None:
    for row, dot in enumerate(dots):
        if not math.isnan(dot.low):
            ax.plot([dot.low, dot.high], [row, row], color=_DOT, linewidth=2, alpha=0.55, solid_capstyle="butt")
    values = [dot.value for dot in dots]
    fill = ["white" if dot.flagged else _DOT for dot in dots]
    ax.scatter(values, range(len(dots)), s=36, c=fill, edgecolors=_DOT, linewidths=1.5, zorder=3)
    rows_axis(ax, [dot.label for dot in dots])


def table(report: Report, *, data: str | None = None, adapter: str = MAIN, ax: Axes | None = None) -> Axes:
    """Draw the balanced accuracy of every baseline on every fold of one data set.

    Baselines stand in the order of their means over the folds they ran on, the replicate ceiling on top. Grey: not run,
    or the fold has too few questions of a class to rank baselines.

    Parameters
    ----------
    report
        As :func:`pertbase.read_runs` gives it.
    data
        Which data set, where the report has several.
    adapter
        Of the runs; the first there is where a fold has none of it.
    ax
        To draw on.

    Raises
    ------
    InputError
        Where the report has several data sets and none is named, or not that one; for an adapter that no run has.
    """
    check(report, Report, key="report", remedy="give what pertbase.read_runs returns; of one fold: plot.intervals")
    chosen = _data(report, data)
    folds = [one for one in report.folds if one.data == chosen]
    grid = report.grid(chosen, adapter=adapter)
    used = dict.fromkeys(one.main_adapter(adapter) for one in folds)
    long = max(0, max((len(short(name)) for name in grid.index), default=0) - 20)
    ax = canvas(ax, width=3.6 + 0.85 * len(folds) + 0.075 * long, height=1.9 + 0.3 * len(grid))
    best = float(np.nanmax([*grid.drop(index=CEILING, errors="ignore").to_numpy(dtype=float).ravel(), 0.5]))
    seaborn().heatmap(
        grid, annot=True, fmt=".3f", cmap="viridis", vmin=1 / 3, vmax=best, linewidths=1, ax=ax,
        xticklabels=False, yticklabels=False, annot_kws={"fontsize": "small"},
        cbar_kws={"label": f"balanced accuracy, {', '.join(used)}"},
    )  # fmt: skip
    ax.set_facecolor(RULE)
    ax.set_yticks(np.arange(len(grid)) + 0.5, [short(name, HEAD) for name in grid.index], rotation=0, fontsize="small")
    ax.set_xticks(
        np.arange(len(folds)) + 0.5, [short(one.fold, HEAD) for one in folds], rotation=35, ha="right",
        rotation_mode="anchor", fontsize="small",
    )  # fmt: skip
    ax.tick_params(length=0)
    ax.set_xlabel("")
    ax.set_ylabel("")
    simulated = any(one.simulated for one in folds)
    seeds = {run.config["seed"] for one in folds for run in one.runs}
    what = f"{marked(chosen, simulated=simulated)}\nbaselines by folds{', means over seeds' if len(seeds) > 1 else ''}"
    return finish(ax, what, simulated=simulated, framed=True, faint=False)


def _data(report: Report, data: str | None) -> str:
    known = report.data
    if data is None and len(known) == 1:
        return known[0]
    if data is None:
        raise InputError("the report is about several data sets", key="data", value=list(known), remedy="name one")
    if data not in known:
        raise unknown_name("data", str(data), known)
    return data


def shortcuts(found: Shortcuts | Mapping[str, Shortcuts], *, ax: Axes | None = None) -> Axes:
    """Draw what candidates add to nested shortcuts: the gain in balanced accuracy over all that stand so far.

    From top to bottom one shortcut more is known. A gain that falls to zero is knowledge that the shortcut has too;
    what is left at the bottom is specific to the perturbation.

    Parameters
    ----------
    found
        What :func:`pertbase.scorers.shortcuts` returned, of one candidate or of several by name.
    ax
        To draw on.

    Raises
    ------
    InputError
        Where there is no step to draw; with the reason.
    """
    check(found, (Shortcuts, Mapping), key="shortcuts", remedy="give what pertbase.scorers.shortcuts returns")
    named = {"candidate": found} if isinstance(found, Shortcuts) else dict(found)
    for one in named.values():
        check(one, Shortcuts, key="shortcuts", remedy="give what pertbase.scorers.shortcuts returns")
    drawn = {name: one for name, one in named.items() if len(one.table)}
    if not drawn:
        reasons = "; ".join(dict.fromkeys(one.note for one in named.values())) or "no candidate"
        raise InputError(
            f"there is no decomposition to draw: {reasons}", key="shortcuts",
            remedy="give candidates of a fold whose test holds enough questions: fold.certificate",
        )  # fmt: skip
    steps = list(dict.fromkeys(step for one in drawn.values() for step in one.table.index))
    ax = canvas(ax, height=row_height(len(steps)) + 0.12 * len(steps) * (len(drawn) - 1))
    spread = 0.6 / len(drawn)
    for number, (name, one) in enumerate(drawn.items()):
        colour, marker = _SERIES[number % len(_SERIES)]
        rows = [steps.index(step) + spread * (number - (len(drawn) - 1) / 2) for step in one.table.index]
        ax.hlines(rows, one.table["gain_low"], one.table["gain_high"], color=colour, linewidth=2, alpha=0.55)
        ax.scatter(one.table["gain"], rows, color=colour, marker=marker, s=34, zorder=3, label=short(name))
    rows_axis(ax, ["over nothing" if step == "(nothing)" else f"+ {step}" for step in steps])
    ax.axvline(0, color=MUTED, linewidth=1.2)
    first = next(iter(drawn.values()))
    ax.set_xlabel(f"gain in balanced accuracy, {first.level:.0%} intervals")
    ax.set_ylabel("shortcuts known so far", fontsize="small")
    if len(drawn) > 1:
        legend(ax)
    mark = " (simulated)" if first.simulated else ""
    title = f"What is added to shortcuts{mark}\nn = {first.n:,} questions, {first.n_sets:,} target sets"
    return finish(ax, title, simulated=first.simulated)
