"""Cells handed to a model: a matrix, what is known of each row, and the gene names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase.errors import unknown_name

__all__ = ["CellTable", "Matrix", "hash_frame", "hash_matrix", "mean_rows", "read_only"]

Matrix = Any
"""A dense ``numpy.ndarray`` or a ``scipy.sparse`` CSR matrix, cells x genes."""


_SLICE = 1 << 22


def read_only(values: Any) -> Any:
    """Mark an array, or the arrays of a sparse matrix, as read-only, and return it."""
    if sparse.issparse(values):
        for array in (values.data, values.indices, values.indptr):
            array.flags.writeable = False
    elif isinstance(values, np.ndarray):
        values.flags.writeable = False
    return values


def mean_rows(values: Matrix, rows: np.ndarray) -> np.ndarray:
    """Return the mean over some rows, shape (genes,), accumulated in float64.

    A product with a weight vector, so that a sparse matrix is never sliced or made dense.
    """
    weights = np.zeros(values.shape[0])
    weights[rows] = 1.0 / len(rows)
    if sparse.issparse(values):
        return np.asarray(values.T @ weights, dtype=np.float64).ravel()
    return np.asarray(values[rows].mean(axis=0, dtype=np.float64)).ravel()


def hash_matrix(values: Matrix) -> str:
    """Return a SHA-256 of shape and values: equal for CSR and dense matrices with the same entries."""
    digest = hashlib.sha256(str(tuple(values.shape)).encode())
    matrix = values if sparse.issparse(values) else sparse.csr_matrix(values)
    if not (matrix.has_sorted_indices and (matrix.nnz == 0 or bool(np.all(matrix.data != 0)))):
        matrix = matrix.copy()
        matrix.eliminate_zeros()
        matrix.sort_indices()
    for array, kind in ((matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.data, "<f4")):
        # In slices: indices become 64-bit to be the same everywhere, and never all at once.
        for start in range(0, len(array), _SLICE):
            digest.update(np.ascontiguousarray(array[start : start + _SLICE], dtype=kind).tobytes())
    return digest.hexdigest()


def hash_frame(frame: pd.DataFrame) -> str:
    """Return a SHA-256 of a table's columns, index and values as text, independent of dtype details."""
    digest = hashlib.sha256("\x1f".join(map(str, frame.columns)).encode())
    for column in [frame.index.to_series(), *(frame[name] for name in frame.columns)]:
        values = column.to_numpy()
        if values.dtype.kind in "biuf":
            digest.update(np.ascontiguousarray(values.astype("<f8")).tobytes())
        else:
            filled = column.astype(object).where(column.notna(), "")
            digest.update("\x1e".join(map(str, filled)).encode())
        digest.update(b"\x1d")
    return digest.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class CellTable:
    """Some cells of a screen, copied out of it.

    Parameters
    ----------
    X
        Natural log1p of counts scaled to a fixed total, shape (n_cells, n_genes), CSR or dense float32.
    obs
        One row a cell: ``context``, ``perturbation``, ``is_control``, ``batch`` and, in training, ``split``.
    genes
        Gene symbols, the columns of ``X``.
    embeddings
        Name -> float32, shape (n_cells, n_dimensions), of the embeddings that the screen brings.
    """

    X: Matrix
    obs: pd.DataFrame
    genes: pd.Index
    embeddings: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for values in (self.X, *self.embeddings.values()):
            read_only(values)

    def embedding(self, name: str) -> np.ndarray:
        """Return an embedding, shape (n_cells, n_dimensions).

        Raises
        ------
        InputError
            Where the screen brings none of that name.
        """
        if name not in self.embeddings:
            raise unknown_name("embedding", name, self.embeddings)
        return self.embeddings[name]

    def __len__(self) -> int:
        return len(self.obs)

    def __repr__(self) -> str:
        kind = "sparse" if sparse.issparse(self.X) else "dense"
        return f"CellTable({len(self):,} cells x {len(self.genes):,} genes, {kind})"

    def own(self) -> CellTable:
        """Return the same with an ``obs`` of its own; the read-only matrix is shared."""
        return replace(self, obs=self.obs.copy(), genes=self.genes.copy(deep=True))

    def take(self, rows: np.ndarray) -> CellTable:
        """Return a copy of some rows, given by position or by a boolean mask."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        embeddings = {name: values[rows].copy() for name, values in self.embeddings.items()}
        return CellTable(self.X[rows].copy(), self.obs.iloc[rows].copy(), self.genes.copy(deep=True), embeddings)

    def basal(self) -> pd.DataFrame:
        """Return the mean expression of the control cells of each context, contexts x genes."""
        rows = {
            str(context): mean_rows(self.X, np.asarray(positions))
            for context, positions in self.obs.reset_index(drop=True).groupby("context", observed=True).groups.items()
            for positions in [np.asarray(positions)[self.obs["is_control"].to_numpy()[np.asarray(positions)]]]
            if len(positions)
        }
        return pd.DataFrame.from_dict(rows, orient="index", columns=self.genes).rename_axis("context")
