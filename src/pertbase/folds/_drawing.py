"""What samplers of cell pairs and of cell sets share: who may be whose control, and names as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pertbase.errors import InputError

__all__ = ["control_pools", "drawn_conditions", "name_codes"]


def control_pools(
    obs: pd.DataFrame, rows: np.ndarray, controls: np.ndarray, match: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Lay controls out so that those a cell may get are one slice: ``pool[start : start + size]``.

    Parameters
    ----------
    obs
        Of all cells.
    rows, controls
        Positions of the cells that get a control, shape (n,), and of those that are one.
    match
        Columns in which the two agree. Where ``context`` is among several, a cell for which there is none gets any of
        its context.

    Returns
    -------
    tuple
        ``pool``, positions of controls; ``start`` and ``size``, shape (n,); how many cells got any of their context.

    Raises
    ------
    InputError
        Where a cell has no control.
    """
    levels = [tuple(match)] + ([("context",)] if "context" in match and len(match) > 1 else [])
    pools: list[np.ndarray] = []
    start = np.zeros(len(rows), dtype=np.int64)
    size = np.zeros(len(rows), dtype=np.int64)
    unmatched = 0
    for number, columns in enumerate(levels):
        group = _groups(obs, columns)
        order = np.argsort(group[controls], kind="stable")
        counts = np.bincount(group[controls], minlength=int(group.max(initial=0)) + 1)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) + sum(map(len, pools))
        empty = size == 0
        of_cell = group[rows][empty]
        start[empty], size[empty] = starts[of_cell], counts[of_cell]
        pools.append(controls[order])
        if number == 0 and len(levels) > 1:
            unmatched = int((size == 0).sum())
    if (size == 0).any():
        row = rows[int(np.argmax(size == 0))]
        raise InputError(
            "a cell has no control to be paired with",
            key="+".join(match) or "is_control",
            value=tuple(obs.iloc[row][list(match)]),
            remedy="match fewer columns, or check the controls of that context",
        )
    return np.concatenate(pools), start, size, unmatched


def name_codes(column: pd.Series) -> tuple[pd.Index, np.ndarray]:
    """Return the sorted names of a column, and the position of each row's name among them."""
    names, inverse = np.unique(column.astype(str).to_numpy(dtype=object), return_inverse=True)
    return pd.Index(names, dtype=object), np.asarray(inverse, dtype=np.int64)


def _groups(obs: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return one number per combination of values of some columns, shape (n,)."""
    if not columns:
        return np.zeros(len(obs), dtype=np.int64)
    return np.asarray(obs.groupby(list(columns), observed=True, dropna=False).ngroup(), dtype=np.int64)


def drawn_conditions(keys: pd.DataFrame, drawable: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the sorted conditions of the cells that can be drawn, and the row of each cell's; -1 for the others."""
    condition = np.full(len(keys), -1, dtype=np.int64)
    part = keys.loc[drawable].reset_index(drop=True)
    condition[drawable] = part.groupby(["context", "perturbation"], sort=True).ngroup().to_numpy()
    return part.drop_duplicates().sort_values(["context", "perturbation"], ignore_index=True), condition
