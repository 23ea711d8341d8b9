"""Small plots, one a baseline: confusions, and predicted against measured effects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pertbase.folds import OUTCOMES
from pertbase.runs._reports._page._markup import Markup, element, join
from pertbase.runs._reports._page._svg import COLOURS, INK, MUTED, RULE, ink_on, picture, tag, viridis, watermark

__all__ = ["confusion_plot", "scatter_plot"]


def confusion_plot(
    counts: Sequence[Sequence[int]], *, ident: str, title: str, unanswered: bool, simulated: bool
) -> Markup:
    """Return counts, true by answered outcome, each shaded by its share of the true outcome.

    Parameters
    ----------
    counts
        Shape (3, 4), as in ``scores.json``.
    ident, title
        As for :func:`dot_plot`.
    unanswered
        Whether to show the fourth column, answers without an outcome.
    simulated
        Whether to mark the picture as one of simulated data.
    """
    columns = [*OUTCOMES, "none"] if unanswered else list(OUTCOMES)
    cell, tall, left, top = 52, 36, 66, 34
    width, height = left + cell * len(columns) + 2, top + tall * len(OUTCOMES) + (18 if simulated else 4)
    parts: list[Markup | None] = [
        element("text", "answered", x=left + cell * len(columns) / 2, y=11, text_anchor="middle", fill=MUTED),
        element("text", "true", x=left - 8, y=28, text_anchor="end", fill=MUTED),
        *(
            element("text", name, x=left + cell * (column + 0.5), y=28, text_anchor="middle", font_size=10.5)
            for column, name in enumerate(columns)
        ),
    ]
    about = []
    for row, name in enumerate(OUTCOMES):
        y, total = top + tall * row, sum(counts[row])
        parts.append(element("text", name, x=left - 8, y=y + tall / 2 + 4, text_anchor="end", font_size=10.5))
        for column, answered in enumerate(columns):
            count = counts[row][column]
            share = count / total if total else 0.0
            colour = viridis(share)
            x = left + cell * column
            parts.append(
                join(
                    element("rect", x=x, y=y, width=cell - 1, height=tall - 1, fill=colour),
                    element(
                        "text",
                        element("tspan", f"{share:.0%}" if total else "–", x=x + cell / 2, font_weight=600),
                        element("tspan", f"{count:,}", x=x + cell / 2, dy=13, font_size=10),
                        y=y + 15,
                        text_anchor="middle",
                        fill=ink_on(colour),
                    ),
                )
            )
            about.append(f"{name} answered {answered}: {count}")
    if simulated:
        parts.append(tag(left + cell * len(columns) / 2, height - 5))
    return picture(ident, title, "; ".join(about), width, height, parts, simulated=simulated)


def scatter_plot(
    measured: np.ndarray,
    predicted: np.ndarray,
    outcomes: np.ndarray,
    *,
    ident: str,
    title: str,
    limit: float,
    thresholds: tuple[float, float] | None = None,
    simulated: bool = False,
) -> Markup:
    """Return predicted against measured effects, coloured by the true outcome.

    Parameters
    ----------
    measured, predicted
        Shape (n,), in the unit of the effect statistic.
    outcomes
        Outcome names, shape (n,).
    ident, title
        As for :func:`dot_plot`.
    limit
        Both axes go from -limit to limit; what lies beyond is drawn at the edge.
    thresholds
        (tau_up, tau_down) above and below which a predicted effect is called.
    simulated
        Whether to mark the picture as one of simulated data.
    """
    size, left, top = 180, 44, 6
    width, height = left + size + 10, top + size + 36
    scale = size / (2 * limit)

    def at(value: float) -> float:
        return (min(max(value, -limit), limit) + limit) * scale

    centre = left + size / 2
    parts: list[Markup | None] = [
        element("rect", x=left, y=top, width=size, height=size, fill="#fff", stroke=RULE),
        element(
            "path",
            d=f"M{left} {top + size / 2:g}h{size}M{centre:g} {top}v{size}M{left} {top + size}l{size} {-size}",
            stroke=RULE,
            fill="none",
        ),
        watermark(centre, top + size / 2, 24) if simulated else None,
    ]
    for outcome in reversed(OUTCOMES):
        chosen = outcomes == outcome
        # Tenths of a pixel as whole numbers, in a group scaled back: a third of the bytes.
        points = "".join(
            f"M{round(10 * at(x))} {round(10 * (size - at(y)))}h0"
            for x, y in zip(measured[chosen].tolist(), predicted[chosen].tolist(), strict=True)
        )
        if points:
            parts.append(
                element(
                    "path",
                    d=points,
                    transform=f"translate({left} {top}) scale(.1)",
                    stroke=COLOURS[outcome],
                    stroke_width=36,
                    stroke_linecap="round",
                    stroke_opacity=0.55,
                    fill="none",
                )
            )
    if thresholds:
        levels = "".join(f"M{left} {top + size - at(level):.1f}h{size}" for level in (thresholds[0], -thresholds[1]))
        parts.append(element("path", d=levels, stroke=INK, stroke_width=1, stroke_dasharray="4 3", fill="none"))
    for value in (-limit, 0.0, limit):
        shown = f"{value:g}"
        offset = at(value)
        parts.append(element("text", shown, x=left + offset, y=top + size + 14, text_anchor="middle", fill=MUTED))
        parts.append(element("text", shown, x=left - 5, y=top + size - offset + 4, text_anchor="end", fill=MUTED))
    parts.append(element("text", "measured", x=centre, y=top + size + 29, text_anchor="middle", fill=MUTED))
    turned = f"rotate(-90 11 {top + size / 2:g})"
    parts.append(
        element("text", "predicted", x=11, y=top + size / 2, text_anchor="middle", fill=MUTED, transform=turned)
    )
    about = f"{len(measured)} questions, effects from {-limit:g} to {limit:g}"
    return picture(ident, title, about, width, height, parts, simulated=simulated, font_size=10.5)
