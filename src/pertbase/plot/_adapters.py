"""The picture of what an adapter was fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase._pictures import COLOURS, INK, RULE, marked, reach
from pertbase.adapters import FittedAdapter, HeldOut
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, Effects
from pertbase.plot._canvas import beyond, canvas, check_count, finish, legend, seaborn, vertical

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["thresholds"]

_TOLD = {"val": "of val", "cross_fitted": "cross-fitted over train and val"}


def thresholds(adapter: FittedAdapter, *, bins: int = 50, ax: Axes | None = None) -> Axes:
    """Draw the held-out predictions that an adapter was fitted to, and where it draws its lines.

    Of a model that predicts effects: their distribution by true outcome, each as a density of its own, with the
    thresholds. Where the three lie on one another, no threshold helps. Of one that gives scores: log ratios to
    ``no_change``, with the borders that the offsets move. What lies beyond the ends of an axis is not drawn, and
    counted below it.

    Parameters
    ----------
    adapter
        Fitted.
    bins
        Bars from end to end.
    ax
        To draw on.

    Raises
    ------
    InputError
        Where it is not fitted, or there were no held-out predictions to fit it to; with the reason.
    """
    check_count(bins, key="bins")
    if not isinstance(adapter, FittedAdapter):
        raise InputError(
            "has no thresholds that are fitted", key="adapter", value=type(adapter).__name__,
            remedy="give pertbase.adapters.Calibrated() or PriorMatched(), fitted",
        )  # fmt: skip
    held = adapter.held_out
    if held is None:
        raise InputError(f"this {type(adapter).__name__} is not fitted", remedy="call fit(training, model) first")
    if held.given is None:
        raise InputError(
            f"there are no held-out predictions: {held.reason}", key="adapter",
            remedy="draw what was answered: plot.confusion",
        )  # fmt: skip
    if isinstance(held.given, Effects):
        return _effects(adapter, held, held.given.statistic, bins, ax)
    return _scores(adapter, held, ax)


def _effects(adapter: FittedAdapter, held: HeldOut, statistic: str, bins: int, ax: Axes | None) -> Axes:
    values = held.values
    limit = reach(values)
    tau_up, tau_down = adapter.thresholds
    # A threshold that lies far out is told below the axis, which it would stretch until nothing else is seen.
    limit = max(limit, *(1.2 * tau for tau in (tau_up, tau_down) if 1.2 * tau <= 4 * limit), 0.0)
    labels = {outcome: f"{outcome} (n = {count:,})" for outcome, count in held.counts.items()}
    outcomes = np.array([labels[outcome] for outcome in OUTCOMES], dtype=object)[held.codes]
    # Of all predictions of an outcome, not of those within the axis: a tail beyond it is no reason to stand higher.
    weights = bins / (2 * limit) / np.bincount(held.codes, minlength=len(OUTCOMES))[held.codes]
    table = pd.DataFrame({"effect": values, "outcome": outcomes, "weight": weights})
    ax = canvas(ax)
    seaborn().histplot(
        table, x="effect", hue="outcome", hue_order=list(labels.values()), palette=[COLOURS[name] for name in OUTCOMES],
        weights="weight", bins=np.linspace(-limit, limit, bins + 1).tolist(), element="step", fill=True, alpha=0.15,
        linewidth=1.4, ax=ax,
    )  # fmt: skip
    legend(ax, title="true outcome")
    lines = ((tau_up, f"up above {tau_up:.3g}", "left"), (-tau_down, f"down below {-tau_down:.3g}", "right"))
    told = beyond(values, -limit, limit)
    for at, label, side in lines:
        if abs(at) <= limit:
            vertical(ax, at, label, strong=True, side=side)
        else:
            told += f"\n{label}: beyond the axis"
    ax.set_xlim(-limit, limit)
    ax.set_xlabel(f"predicted effect ({statistic}, natural log){told}")
    ax.set_ylabel("density within each outcome")
    return finish(ax, _title(adapter, held), simulated=held.simulated, lined=True)


def _scores(adapter: FittedAdapter, held: HeldOut, ax: Axes | None) -> Axes:
    up, down = (held.values[:, :2] - held.values[:, 2:]).T
    limit = reach(up, down)
    # An answer is up where up + offset_up is above both 0 and down + offset_down, and so on: three half-lines.
    at_up, at_down = (-offset for offset in adapter.offsets)
    ax = canvas(ax, width=6.2, height=4.4)
    for code in (2, 1, 0):
        chosen = held.codes == code
        ax.scatter(
            up[chosen], down[chosen], s=9, alpha=0.5, linewidths=0, color=COLOURS[OUTCOMES[code]],
            label=f"{OUTCOMES[code]} (n = {chosen.sum():,})",
        )  # fmt: skip
    far = 3 * limit + abs(at_up) + abs(at_down)
    for x, y in (([at_up, at_up], [-far, at_down]), ([-far, at_up], [at_down, at_down])):
        ax.plot(x, y, color=INK, linewidth=1, linestyle="--")
    ax.plot([at_up, at_up + far], [at_down, at_down + far], color=INK, linewidth=1, linestyle="--")
    for line in (ax.axhline, ax.axvline):
        line(0, color=RULE, linewidth=1, zorder=0)
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
    outside = int(((np.abs(up) > limit) | (np.abs(down) > limit)).sum())
    ax.set_xlabel("log score of up over no_change" + (f"\nbeyond the axes: {outside:,}" if outside else ""))
    ax.set_ylabel("log score of down over no_change")
    legend(ax, title="true outcome", handles=ax.get_legend_handles_labels()[0][::-1])
    return finish(ax, _title(adapter, held), simulated=held.simulated, framed=True)


def _title(adapter: FittedAdapter, held: HeldOut) -> str:
    name = marked(type(adapter).__name__, simulated=held.simulated)
    return f"{name}\n{len(held.codes):,} held-out predictions, {_TOLD[held.how]}"
