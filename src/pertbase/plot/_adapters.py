"""The picture of what an adapter was fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase._pictures import BEYOND, COLOURS, INK, RULE, marked, round_up
from pertbase.adapters import FittedAdapter, HeldOut
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, Effects
from pertbase.plot._canvas import canvas, finish, legend, seaborn, vertical

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["thresholds"]

_TOLD = {"val": "of val", "cross_fitted": "cross-fitted over train and val"}


def thresholds(adapter: FittedAdapter, *, bins: int = 50, ax: Axes | None = None) -> Axes:
    """Draw the held-out predictions that an adapter was fitted to, and where it draws its lines.

    Of a model that predicts effects: their distribution by true outcome, each drawn to the same area, with the
    thresholds. Where the three lie on one another, no threshold helps. Of one that gives scores: log ratios to
    ``no_change``, with the borders that the offsets move.

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
    if not isinstance(adapter, FittedAdapter):
        raise InputError(
            "has no thresholds that are fitted", key="adapter", value=type(adapter).__name__,
            remedy="give pertbase.adapters.Calibrated() or PriorMatched(), fitted",
        )  # fmt: skip
    held = adapter.held_out
    if held is None:
        raise InputError(f"this {type(adapter).__name__} is not fitted", remedy="call fit(training, model) first")
    if held.given is None:
        raise InputError(f"there are no held-out predictions: {held.reason}", key="adapter")
    if isinstance(held.given, Effects):
        return _effects(adapter, held, held.given.statistic, bins, ax)
    return _scores(adapter, held, ax)


def _effects(adapter: FittedAdapter, held: HeldOut, statistic: str, bins: int, ax: Axes | None) -> Axes:
    values = held.values
    limit = round_up(float(np.quantile(np.abs(values), BEYOND)))
    tau_up, tau_down = adapter.thresholds
    limit = max(limit, min(1.2 * max(tau_up, tau_down), 4 * limit))
    labels = {outcome: f"{outcome} (n = {count:,})" for outcome, count in held.counts.items()}
    outcomes = np.array([labels[outcome] for outcome in OUTCOMES], dtype=object)[held.codes]
    table = pd.DataFrame({"effect": np.clip(values, -limit, limit), "outcome": outcomes})
    ax = canvas(ax)
    seaborn().histplot(
        table, x="effect", hue="outcome", hue_order=list(labels.values()), palette=[COLOURS[name] for name in OUTCOMES],
        bins=np.linspace(-limit, limit, bins + 1), stat="density", common_norm=False, element="step", fill=True,
        alpha=0.15, linewidth=1.4, ax=ax,
    )  # fmt: skip
    legend(ax, title="true outcome")
    vertical(ax, tau_up, f"up above {tau_up:.3g}", strong=True, side="left")
    vertical(ax, -tau_down, f"down below {-tau_down:.3g}", strong=True, side="right")
    ax.set_xlim(-limit, limit)
    ax.set_xlabel(f"predicted effect ({statistic}, natural log)")
    ax.set_ylabel("density within each outcome")
    return finish(ax, _title(adapter, held), simulated=held.simulated, lined=True)


def _scores(adapter: FittedAdapter, held: HeldOut, ax: Axes | None) -> Axes:
    up, down = (held.values[:, :2] - held.values[:, 2:]).T
    limit = round_up(float(np.quantile(np.abs(np.concatenate([up, down])), BEYOND)))
    # An answer is up where up + offset_up is above both 0 and down + offset_down, and so on: three half-lines.
    at_up, at_down = (-offset for offset in adapter.offsets)
    ax = canvas(ax, width=6.2, height=4.4)
    for code in (2, 1, 0):
        chosen = held.codes == code
        ax.scatter(
            np.clip(up[chosen], -limit, limit), np.clip(down[chosen], -limit, limit), s=9, alpha=0.5, linewidths=0,
            color=COLOURS[OUTCOMES[code]], label=f"{OUTCOMES[code]} (n = {chosen.sum():,})",
        )  # fmt: skip
    far = 3 * limit + abs(at_up) + abs(at_down)
    for x, y in (([at_up, at_up], [-far, at_down]), ([-far, at_up], [at_down, at_down])):
        ax.plot(x, y, color=INK, linewidth=1, linestyle="--")
    ax.plot([at_up, at_up + far], [at_down, at_down + far], color=INK, linewidth=1, linestyle="--")
    for line in (ax.axhline, ax.axvline):
        line(0, color=RULE, linewidth=1, zorder=0)
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
    ax.set_xlabel("log score of up over no_change")
    ax.set_ylabel("log score of down over no_change")
    legend(ax, title="true outcome", handles=ax.get_legend_handles_labels()[0][::-1])
    return finish(ax, _title(adapter, held), simulated=held.simulated, framed=True)


def _title(adapter: FittedAdapter, held: HeldOut) -> str:
    name = marked(type(adapter).__name__, simulated=held.simulated)
    return f"{name}\n{len(held.codes):,} held-out predictions, {_TOLD[held.how]}"
