"""What the page of a report and :mod:`pertbase.plot` draw alike: colours, which questions, how far axes go.

Where nodes and edges of paths lie is in :mod:`pertbase._path_layout`.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

__all__ = [
    "BEYOND",
    "CEILING",
    "COLOURS",
    "INK",
    "MUTED",
    "POINTS_PER_OUTCOME",
    "RULE",
    "SIGN_COLOURS",
    "first_of_each",
    "marked",
    "reach",
    "round_up",
]

COLOURS = {"up": "#d55e00", "down": "#0072b2", "no_change": "#8a8a8a"}
"""From the palette of Okabe and Ito, which holds for every common colour vision."""
SIGN_COLOURS = {1: COLOURS["up"], -1: COLOURS["down"], 0: COLOURS["no_change"]}
"""Of edges, by what they do: raise, lower, not said."""

INK, MUTED, RULE, CEILING = "#1b1d22", "#595d66", "#d9dce1", "#b34700"

POINTS_PER_OUTCOME = 150
"""Points that one scatter shows of each outcome."""
BEYOND = 0.995
"""The share of effects that the ends of an axis hold; the few beyond are drawn at the edge."""


def marked(data: str, *, simulated: bool) -> str:
    """Return a data set's name as it stands in titles: nobody may take simulated cells for real ones."""
    return f"{data} (simulated)" if simulated and "simulated" not in data else data


def first_of_each(questions: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most so many questions of each outcome: ids are hashes, so that the first by id are drawn at random.

    They are the same every time, and the same for every baseline.
    """
    ordered = questions.sort_values("id", kind="stable")
    return ordered.groupby("outcome", sort=False, observed=True).head(most)


def reach(*values: np.ndarray) -> float:
    """Return how far an axis goes to either side of 0, so that its ends hold all but a few of the values."""
    known = np.abs(np.concatenate([np.ravel(one) for one in values])).astype(float)
    known = known[np.isfinite(known)]
    return round_up(float(np.quantile(known, BEYOND))) if len(known) else 1.0


def round_up(value: float) -> float:
    """Return the next larger of 1, 1.5, 2, 3, 5 times a power of ten."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(round(step * power, 12) for step in (1, 1.5, 2, 3, 5, 10) if value <= step * power * (1 + 1e-9))
