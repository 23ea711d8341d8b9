"""How rewards went in training, as lines over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pertbase.runs._reports._finetuned import SHARES, curves, fold_finetuned_sections
from pertbase.runs._reports._page._markup import Markup, element, join
from pertbase.runs._reports._page._reason_tables import tables_of
from pertbase.runs._reports._page._svg import INK, MUTED, RULE, picture, watermark
from pertbase.runs._reports._page._table import details
from pertbase.runs._reports._page._view import FoldView

__all__ = ["curve_plot", "training_curves"]

# From the palette of Okabe and Ito.
_LINES = {"reward": INK, "outcome": "#0072b2", "triplets": "#d55e00", "format": "#009e73"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 430, 210, 34, 10, 78, 34


def training_curves(view: FoldView) -> Markup | None:
    """Return how rewards went in training, and what fine-tuning changed; None where nothing was fine-tuned so."""
    sections = fold_finetuned_sections(view.table, view.adapter)
    figures = [
        element(
            "figure",
            element("figcaption", view.table.label(run)),
            curve_plot(
                steps,
                ident=f"{view.ident}-rewards-{place}",
                title=f"{view.table.title}: rewards of {view.table.label(run)} in training",
                simulated=view.simulated,
            ),
        )
        for place, (run, steps) in enumerate(curves(view.table))
    ]
    if not figures and not sections:
        return None
    about = element(
        "p", "Reward of each step and its shares, means over replies; thick lines: over a tenth of the steps.",
        class_="hint",
    )  # fmt: skip
    pictures = [about, element("div", *figures, class_="multiples")] if figures else []
    return details("Fine-tuning", *pictures, *tables_of(sections, view))


def curve_plot(steps: Sequence[Mapping[str, Any]], *, ident: str, title: str, simulated: bool = False) -> Markup:
    """Return the reward and its shares over the steps, each from 0 to 1.

    Parameters
    ----------
    steps
        In order, with ``step`` and :data:`~pertbase.runs._reports._finetuned.SHARES`, None where a step has none.
    ident, title
        As for :func:`dot_plot`.
    simulated
        Whether to mark the picture as one of simulated data.
    """
    numbers = np.array([step["step"] for step in steps], dtype=np.float64)
    first, last = float(numbers[0]), float(max(numbers[-1], numbers[0] + 1))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(step: float) -> float:
        return _LEFT + (step - first) / (last - first) * width

    def y(value: float) -> float:
        return _TOP + (1 - value) * height

    drawn = [
        (name, at, values)
        for name in SHARES
        if len(at := numbers[(known := _known(steps, name))[0]]) and len(values := known[1])
    ]
    parts: list[Markup | None] = [watermark(_LEFT + width / 2, _TOP + height / 2, 30) if simulated else None]
    for level in (0.0, 0.5, 1.0):
        parts.append(element("path", d=f"M{_LEFT} {y(level):.1f}h{width}", stroke=RULE, fill="none"))
        parts.append(element("text", f"{level:g}", x=_LEFT - 6, y=y(level) + 4, text_anchor="end", fill=MUTED))
    for step in (first, last):
        at_end = "end" if step == last else "start"
        parts.append(element("text", f"{step:g}", x=x(step), y=_HEIGHT - 18, text_anchor=at_end, fill=MUTED))
    parts.append(element("text", "step", x=_LEFT + width / 2, y=_HEIGHT - 6, text_anchor="middle", fill=MUTED))
    labels = _apart([y(_smooth(values)[-1]) + 4 for _, _, values in drawn])
    for (name, at, values), height_of in zip(drawn, labels, strict=True):
        ends = [(x(step), y(value)) for step, value in zip(at, values, strict=True)]
        smooth = [(x(step), y(value)) for step, value in zip(at, _smooth(values), strict=True)]
        colour = _LINES[name]
        parts.append(
            join(
                element("path", d=_path(ends), stroke=colour, stroke_width=0.8, stroke_opacity=0.45, fill="none"),
                element("path", d=_path(smooth), stroke=colour, stroke_width=2, fill="none"),
                element("text", name, x=_LEFT + width + 6, y=height_of, fill=colour),
            )
        )
    about = "; ".join(f"{name} from {values[0]:.3f} to {values[-1]:.3f}" for name, _, values in drawn)
    return picture(ident, title, f"{len(steps)} steps; {about}", _WIDTH, _HEIGHT, parts, simulated=simulated)


def _known(steps: Sequence[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return which steps have a share, and its values there."""
    there = np.array([step[name] is not None for step in steps])
    return there, np.array([step[name] for step in steps if step[name] is not None], dtype=np.float64)


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return the mean of each value and those around it, a tenth of all; fewer at the ends."""
    half = len(values) // 20
    return np.array([values[max(0, place - half) : place + half + 1].mean() for place in range(len(values))])


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _apart(heights: Sequence[float], least: float = 13.0) -> list[float]:
    """Return heights of labels moved down, in their order, until none lies on another."""
    moved = [0.0] * len(heights)
    above = -np.inf
    for place in sorted(range(len(heights)), key=lambda place: heights[place]):
        above = max(heights[place], above + least)
        moved[place] = above
    return moved
