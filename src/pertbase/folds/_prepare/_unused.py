"""The columns of obs that a screen is not made from, and which of them may be a batch."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

__all__ = ["unused_columns"]

_SHOWN = 20
# A batch has a name of its own, not one a cell, and holds some cells of it.
_MOST_LEVELS, _CELLS_A_LEVEL = 100, 20
# Of the cells, those in levels that hold controls and some perturbations.
_CROSSED, _PERTURBATIONS = 0.95, 3


def unused_columns(obs: pd.DataFrame, used: Collection[str], cells: pd.DataFrame, *, batch: str | None) -> list[str]:
    """Return what to say of the columns that nothing was read from, one line each; nothing where there are none.

    Parameters
    ----------
    obs
        The kept cells as they are in the file.
    used
        Columns that were read.
    cells
        The same cells in the contract: ``context``, ``perturbation`` and ``is_control``.
    batch
        The batch's column; where there is one, none is proposed.
    """
    names = [str(name) for name in obs.columns if str(name) not in used]
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    lines = [f"not used: {', '.join(names[:_SHOWN])}{more}"]
    crossed = [name for name in names if batch is None and _may_be_batch(obs[name], cells)]
    if crossed:
        lines.append(
            f"may be a batch (few values, each with controls and several perturbations): {', '.join(crossed)}; say "
            "batch=COLUMN if one is"
        )
    return lines


def _may_be_batch(column: pd.Series, cells: pd.DataFrame) -> bool:
    codes, levels = pd.factorize(column, use_na_sentinel=True)
    if not 2 <= len(levels) <= min(_MOST_LEVELS, len(column) // _CELLS_A_LEVEL) or (codes < 0).any():
        return False
    table = pd.DataFrame({name: cells[name].to_numpy() for name in ("context", "perturbation", "is_control")})
    table["level"] = codes
    # One level a context, as in a second name of the context, is no batch within it.
    if table.groupby("context", observed=True)["level"].nunique().max() < 2:
        return False
    treated = table.loc[~table["is_control"]]
    wanted = min(_PERTURBATIONS, treated["perturbation"].nunique())
    held = treated.groupby("level")["perturbation"].nunique().reindex(range(len(levels)), fill_value=0) >= wanted
    held &= table.groupby("level")["is_control"].any()
    return bool(held.to_numpy()[codes].mean() >= _CROSSED) and bool(np.sum(held) >= 2)
