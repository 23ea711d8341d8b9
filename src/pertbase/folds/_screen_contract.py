"""What a screen has to be, checked when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds._perturbation import CONTROL

if TYPE_CHECKING:
    from pertbase.folds._screen import Screen

__all__ = ["PREPARE", "check_screen"]

PREPARE = "`pertbase prepare input=FILE output=FILE` turns other people's files into this contract"
# Natural log1p of counts scaled to a total T is at most log(1 + T); more means raw or linear values.
_SLACK = 1e-3


def check_screen(screen: Screen) -> None:
    """Raise where a screen breaks the contract, naming the file, the column, the value and the remedy."""
    file = screen.file
    n_cells, n_genes = screen.X.shape
    if n_cells == 0 or n_genes == 0:
        raise InputError("has no cells or no genes", file=file, key="X", value=tuple(screen.X.shape))
    if len(screen.obs) != n_cells or len(screen.genes) != n_genes:
        raise InputError("obs or genes do not fit X", file=file, key="X", value=tuple(screen.X.shape))
    for index, key, remedy in (
        (
            screen.genes,
            "var_names",
            "make gene symbols unique, for example by keeping the copy with most counts",
        ),
        (screen.obs.index, "obs_names", "call adata.obs_names_make_unique() before writing"),
    ):
        if not index.is_unique:
            raise InputError(
                "names are not unique",
                file=file,
                key=key,
                remedy=remedy,
                value=list(index[index.duplicated()][:5]),
            )
    _check_values(screen)
    _check_names(screen)
    for name, embedding in screen.embeddings.items():
        right = isinstance(embedding, np.ndarray) and embedding.ndim == 2 and len(embedding) == n_cells
        if not right or not np.isfinite(embedding).all():
            raise InputError(
                "an embedding is not one finite row of numbers a cell",
                file=file,
                key=f'obsm["{name}"]',
                value=getattr(embedding, "shape", None),
                remedy="remove it from the file, or write it again",
            )


def _check_values(screen: Screen) -> None:
    data = screen.X.data if sparse.issparse(screen.X) else screen.X
    if not np.isfinite(data).all():
        raise InputError(
            "X holds NaN or infinite values",
            file=screen.file,
            key="X",
            remedy="drop those cells or genes",
            value=f"{int((~np.isfinite(data)).sum())} values",
        )
    if data.size and data.min() < 0:
        raise InputError(
            "X holds negative values, so it is not log1p of counts",
            file=screen.file,
            key="X",
            value=float(data.min()),
            remedy="give raw counts to `pertbase prepare`, not scaled data",
        )
    if not (np.isfinite(screen.total) and screen.total > 0):
        raise InputError(
            "the total is not a positive number",
            file=screen.file,
            key="normalisation.total",
            value=screen.total,
        )
    highest = float(data.max()) if data.size else 0.0
    if highest > np.log1p(screen.total) + _SLACK:
        raise InputError(
            f"X exceeds log(1 + total) = {np.log1p(screen.total):.3f}, so it is not the natural log1p of counts "
            "scaled to the declared total",
            file=screen.file,
            key="X",
            value=round(highest, 3),
            remedy="declare the right total, or give raw counts to `pertbase prepare`",
        )


def _check_names(screen: Screen) -> None:
    obs, file = screen.obs, screen.file
    for key in ("context", "perturbation"):
        if (obs[key] == "").any():
            raise InputError(f"some cells have an empty {key}", file=file, key=f'obs["{key}"]', value="")
    marked = obs["is_control"].to_numpy()
    named = (obs["perturbation"] == CONTROL).to_numpy()
    if (marked != named).any():
        cell = obs.index[int(np.flatnonzero(marked != named)[0])]
        raise InputError(
            f'is_control and perturbation == "{CONTROL}" disagree for {int((marked != named).sum())} cells',
            file=file,
            key='obs["is_control"]',
            value=f"cell {cell}: {obs.loc[cell, 'perturbation']}",
            remedy=PREPARE,
        )
    names = set(obs.loc[~marked, "perturbation"])
    unknown = sorted(names - set(screen.perturbations))
    if unknown:
        raise InputError(
            "perturbations are not in the perturbation table",
            file=file,
            key='obs["perturbation"]',
            value=unknown[:5],
            remedy=PREPARE,
        )
    without = sorted(set(obs["context"]) - set(obs.loc[marked, "context"]))
    if without:
        raise InputError(
            "contexts have no control cells",
            file=file,
            key='obs["context"]',
            value=without[:5],
            remedy="every context needs unperturbed cells; drop those contexts or mark their controls",
        )
    if not names:
        raise InputError("has no perturbed cells", file=file, key='obs["perturbation"]', value=[CONTROL])
