"""The picture of what reasons are worth, never without what knows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pertbase._pictures import COLOURS, INK, MUTED, RULE, marked
from pertbase.errors import InputError
from pertbase.plot._canvas import canvas, check, finish, legend, row_height, rows_axis
from pertbase.scorers import ReasonScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["reason_axes"]

_AXES = {
    "right_answer": "answer is right",
    "right_reason": "reason is right",
    "consistent": "reason agrees with answer",
}
_SCORES = {
    "f1": "signed F1",
    "precision": "precision",
    "edge_recall": "recall of edges",
    "connected": "leads from target to readout",
    "consistent": "implies the answer",
    "grounded_graph": "is in the graph",
}
# Nulls stand below the line of a score, controls above it: so far apart that none hides another of the same value.
_NULLS = {
    "labels": ("permuted labels", "v", 0.18),
    "rewired": ("rewired graph", "^", 0.31),
    "contexts": ("another context", "s", 0.44),
}
_CONTROLS = {"copied": ("all given paths copied", "x", -0.18), "invented": ("one invented edge", "+", -0.31)}
_ROOM = 0.22
_DOT, _MARK = 36, 20
_OWN = "#0072b2"


def reason_axes(scores: ReasonScores | Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    """Draw the three axes and the main scores of reasons, with intervals, beside their nulls and control answers.

    A score is evidence of a mechanism only as far as it lies to the right of all its nulls; where a control that knows
    nothing scores as much, the score can be had for nothing.

    Parameters
    ----------
    scores
        What :func:`pertbase.scorers.reasoning` returned, or what a run keeps of it
        (``run.scores["adapters"][name]["reasoning"]``).
    ax
        To draw on.

    Raises
    ------
    InputError
        Where no question has a change and a reference.
    """
    remedy = 'give what pertbase.scorers.reasoning returns, or a run\'s scores["adapters"][NAME]["reasoning"]'
    check(scores, (ReasonScores, Mapping), key="scores", remedy=remedy)
    found = scores.to_dict() if isinstance(scores, ReasonScores) else scores
    if lacking := [key for key in ("n", "fold", "scores", "axes") if key not in found]:
        raise InputError(f"are no scores of reasons: {', '.join(lacking)} not there", key="scores", remedy=remedy)
    if not found["n"]:
        raise InputError(
            "no question has a change and a reference", key="scores", value=found["fold"],
            remedy="make the fold with paths=..., or with fold.reached=3, which asks what paths lead to",
        )  # fmt: skip
    table = found["scores"]
    shown = [name for name in _SCORES if _number(table[name]["value"]) is not None]
    labels = [*_AXES.values(), *(_SCORES[name] for name in shown)]
    rows = {name: number for number, name in enumerate(shown, start=len(_AXES))}
    ax = canvas(ax, width=7.2, height=row_height(len(labels)) + _ROOM * len(labels))
    own = [*(found["axes"][name] for name in _AXES), *(table[name] for name in shown)]
    _own(ax, own)
    for null, (label, marker, shift) in _NULLS.items():
        values = {name: _number(table[name].get(null)) for name in shown}
        _marks(ax, values, rows, f"null: {label}", shift, marker=marker, facecolors="white", edgecolors=COLOURS["up"])
    for control, (label, marker, shift) in _CONTROLS.items():
        values = {name: _number(found["controls"].get(control, {}).get(name)) for name in shown}
        _marks(ax, values, rows, f"control: {label}", shift, marker=marker, color=MUTED)
    ax.axhline(len(_AXES) - 0.5, color=RULE, linewidth=1.5)
    rows_axis(ax, labels)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xlabel(f"mean, {found['level']:.0%} intervals")
    legend(ax)
    title = marked(found["fold"], simulated=found["simulated"])
    title += f"\nreasons for n = {found['n']:,} questions with a change and a reference"
    return finish(ax, title, simulated=bool(found["simulated"]))


def _own(ax: Axes, values: list[Mapping[str, Any]]) -> None:
    for row, one in enumerate(values):
        low, high = _number(one["low"]), _number(one["high"])
        if low is not None and high is not None:
            ax.plot([low, high], [row, row], color=_OWN, linewidth=2.4, alpha=0.5, solid_capstyle="butt")
    points = [(value, row) for row, one in enumerate(values) if (value := _number(one["value"])) is not None]
    x, y = zip(*points, strict=True)
    ax.scatter(x, y, s=_DOT, color=_OWN, edgecolors=INK, linewidths=0.6, zorder=4, label="answers")


def _marks(
    ax: Axes, values: Mapping[str, float | None], rows: Mapping[str, int], label: str, shift: float, **style: Any
) -> None:
    points = [(value, rows[name] + shift) for name, value in values.items() if value is not None]
    if points:
        x, y = zip(*points, strict=True)
        ax.scatter(x, y, s=_MARK, linewidths=1.2, zorder=3, label=label, **style)


def _number(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)
