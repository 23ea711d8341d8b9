"""A study of counts under two perturbations, to be prepared."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse

from pertbase.folds import Screen

ASKED = {
    "perturbation": "what",
    "control": "ctrl",
    "context": "line",
    "mechanism": "CRISPRi",
}


def counts(n_cells: int = 90, n_genes: int = 60, seed: int = 0) -> np.ndarray:
    """Return sparse counts whose totals differ between cells."""
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.5, 3.0, (n_cells, 1))
    return rng.poisson(depth * rng.gamma(0.5, 2.0, n_genes)).astype(np.float32)


def study(values: Any, genes: list[str] | None = None) -> ad.AnnData:
    """Return cells of two lines under two perturbations and control, with these values."""
    n_cells, n_genes = values.shape
    obs = pd.DataFrame(
        {
            "what": np.resize(["ctrl", "G1", "G2"], n_cells),
            "line": np.repeat(["a", "b"], [n_cells // 2, n_cells - n_cells // 2]),
            "quality": np.linspace(0, 1, n_cells),
        },
        index=[f"cell{i}" for i in range(n_cells)],
    )
    return ad.AnnData(values, obs, pd.DataFrame(index=genes or [f"G{i}" for i in range(n_genes)]))


def scaled(values: np.ndarray, total: float) -> np.ndarray:
    return values.astype(float) * (total / values.sum(axis=1, keepdims=True))


def dense(screen: Screen) -> np.ndarray:
    return np.asarray(screen.X.toarray() if sparse.issparse(screen.X) else screen.X)
