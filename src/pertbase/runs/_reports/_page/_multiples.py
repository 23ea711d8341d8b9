"""One small plot a baseline: confusions and effects of a fold."""

from __future__ import annotations

import numpy as np

from pertbase._pictures import POINTS_PER_OUTCOME, first_of_each, reach
from pertbase.folds import OUTCOMES
from pertbase.runs._reports._page._markup import Markup, element, join
from pertbase.runs._reports._page._plots import confusion_plot, scatter_plot
from pertbase.runs._reports._page._svg import COLOURS
from pertbase.runs._reports._page._table import details
from pertbase.runs._reports._page._view import FoldView

__all__ = ["confusions", "scatters"]


def confusions(view: FoldView) -> Markup | None:
    """Return the confusion matrix of each run."""
    by_run = {run: scores["confusion"] for run in view.runs if (scores := view.scores(run))}
    if not by_run:
        return None
    unanswered = any(row[-1] for counts in by_run.values() for row in counts)
    figures = [
        _figure(
            view.table.label(run),
            confusion_plot(
                counts,
                ident=f"{view.ident}-confusion-{position}",
                title=f"{view.table.title}: confusion of {view.table.label(run)}, {view.adapter}",
                unanswered=unanswered,
                simulated=view.simulated,
            ),
        )
        for position, (run, counts) in enumerate(by_run.items())
    ]
    about = element("p", f"Share of each true outcome, and questions; {view.adapter}.", class_="hint")
    return details("Confusion matrices", about, element("div", *figures, class_="multiples"))


def scatters(view: FoldView) -> Markup | None:
    """Return predicted against measured effects of the runs that predicted effects, on the same questions."""
    runs = [run for run in view.runs if (run.folder / "effects.h5ad").is_file()]
    questions = view.table.truth.questions
    asked = questions.loc[questions["outcome"].isin(OUTCOMES) & questions["effect"].notna()]
    if not runs or asked.empty:
        return None
    drawn = first_of_each(asked, POINTS_PER_OUTCOME)
    measured = drawn["effect"].to_numpy(dtype=float)
    predicted = {run: run.effects().at(drawn)[0] for run in runs}
    limit = reach(measured, *predicted.values())
    figures = []
    for position, run in enumerate(runs):
        known = ~np.isnan(predicted[run])
        title = f"{view.table.title}: predicted and measured effects of {view.table.label(run)}"
        plot = scatter_plot(
            measured[known],
            predicted[run][known],
            drawn["outcome"].to_numpy(dtype=str)[known],
            ident=f"{view.ident}-effects-{position}",
            title=title,
            limit=limit,
            thresholds=run.thresholds(view.adapter),
            simulated=view.simulated,
        )
        note = "" if known.all() else f" ({int((~known).sum())} unsupported)"
        figures.append(_figure(f"{view.table.label(run)}{note}", plot))
    rule = view.table.manifest["spec"]["rule"]
    about = element(
        "p",
        f"Effects ({rule['statistic']}, natural log) of {len(drawn):,} of {len(asked):,} test questions, at most "
        f"{POINTS_PER_OUTCOME} of each outcome and the same for every baseline; the few beyond the axes lie on "
        f"the edge. Dashes: thresholds of {view.adapter}. True outcome: ",
        *(
            join(element("span", "●", style=f"color:{COLOURS[name]}", aria_hidden="true"), f" {name} ")
            for name in OUTCOMES
        ),
        class_="hint",
    )
    return details(
        "Predicted and measured effects",
        about,
        element("div", *figures, class_="multiples"),
    )


def _figure(caption: str, plot: Markup) -> Markup:
    """Return one of many; the plot itself says where data are simulated, and the caption need not."""
    return element("figure", element("figcaption", caption), plot)
