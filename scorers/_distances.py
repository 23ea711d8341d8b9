"""pertpy's distances between predicted and real cells: a group of their own, where pertpy is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase.errors import UnsupportedError
from pertbase.scorers._cell_eval import cell_pairs

if TYPE_CHECKING:
    from pertbase.folds import Effects, Fold

__all__ = ["DISTANCES", "distances"]

DISTANCES = ("edistance", "mmd")
"""Of cells: what a mean alone decides is among the expression metrics already."""


def distances(effects: Effects, fold: Fold, *, names: Sequence[str] = DISTANCES, max_cells: int = 100) -> pd.DataFrame:
    """Return pertpy's distances from the real cells of each test condition to the predicted ones, and to the control.

    The predicted cells are controls moved by the effect, see :func:`pertbase.scorers._cell_eval.cell_pairs`. At most
    ``max_cells`` are compared on each side: the first of the real ones in the file's order, and of the controls.

    Returns
    -------
    One row a condition and distance: ``context``, ``perturbation``, ``distance``, ``predicted``, ``control``. A model
    is of use where ``predicted`` is below ``control``.

    Raises
    ------
    UnsupportedError
        Where pertpy cannot be imported.
    """
    try:
        from pertpy.tools import Distance
    except ImportError as error:
        raise UnsupportedError(
            f"the distances are pertpy's, which cannot be imported ({error})",
            remedy="run `pip install 'pertbase[pertpy]'`",
        ) from error
    rows = []
    for pair in cell_pairs(effects, fold, max_cells=max_cells):
        control = pair.control[:max_cells]
        for number, (real, cells) in enumerate(zip(pair.real, pair.cells, strict=True)):
            name = pair.measured.conditions["perturbation"].iloc[number]
            for metric in names:
                measure = Distance(metric=metric)
                to = [float(measure(np.asarray(side), real[:max_cells])) for side in (cells, control)]
                rows.append((pair.context, name, metric, *to))
    return pd.DataFrame(rows, columns=["context", "perturbation", "distance", "predicted", "control"])
