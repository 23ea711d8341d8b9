"""From somebody else's values to natural log1p of counts scaled to one total.

Nothing here makes a sparse matrix dense or holds more than one block of cells beside the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from pertbase.folds._cells import Matrix
from pertbase.folds._prepare._blocks import blocks
from pertbase.folds._prepare._values import Recognised, Survey

__all__ = ["detected", "normalise"]


def detected(values: Any, keep: np.ndarray, *, columns: Any = None) -> np.ndarray:
    """Return in how many of the kept cells each gene is seen, shape (n_genes,); ``columns`` as in :func:`normalise`."""
    found = np.zeros(values.shape[1] if columns is None else columns.shape[1], dtype=np.int64)
    for _, raw in blocks(values, keep):
        block = raw if columns is None else raw @ columns
        found += np.asarray((block > 0).sum(axis=0)).ravel()
    return found


def normalise(
    values: Any,
    keep: np.ndarray,
    seen: Survey,
    recognised: Recognised,
    *,
    total: float,
    columns: Any = None,
    keep_counts: bool = False,
) -> tuple[Matrix, Matrix | None]:
    """Return the kept cells as natural log1p of counts scaled to ``total``, and their raw counts if asked.

    ``columns`` maps the matrix's columns to genes, shape (n_columns, n_genes), where some are added or left out.
    """
    scaled = np.divide(total, seen.sums, out=np.zeros_like(seen.sums), where=seen.sums > 0)

    def to_log(block: Any, rows: np.ndarray) -> Any:
        if recognised.counts:
            weights = scaled[rows]
            weights = np.repeat(weights, np.diff(block.indptr)) if sparse.issparse(block) else weights[:, None]
            return np.log1p(_data(block) * weights)
        return _data(block) if columns is None else np.log1p(_data(block))

    def mapped(block: Any) -> Any:
        if not recognised.counts:
            block = _with_data(block, _data(block) * recognised.factor)
        if columns is None:
            return block
        # Copies of a gene add up as counts do, not as logarithms.
        return (block if recognised.counts else _with_data(block, np.expm1(_data(block)))) @ columns

    n_genes = values.shape[1] if columns is None else columns.shape[1]
    sparse_in = sparse.issparse(values) or hasattr(values, "to_memory")
    collect = _SparseRows if sparse_in else _DenseRows
    log, counts = collect(keep, seen.filled, n_genes), None
    if keep_counts and recognised.counts:
        counts = collect(keep, seen.filled, n_genes)
    for rows, raw in blocks(values, keep):
        block = mapped(raw)
        if sparse.issparse(block):
            block.sort_indices()
        log.append(block, to_log(block, rows))
        if counts is not None:
            counts.append(block, _data(block))
    return log.matrix(), None if counts is None else counts.matrix()


def _data(block: Any) -> Any:
    return block.data if sparse.issparse(block) else block


def _with_data(block: Any, data: np.ndarray) -> Any:
    if not sparse.issparse(block):
        return data
    return sparse.csr_matrix((data, block.indices, block.indptr), shape=block.shape)


class _DenseRows:
    """A dense float32 matrix, filled block by block."""

    def __init__(self, keep: np.ndarray, filled: np.ndarray, n_genes: int) -> None:
        self._values = np.empty((int(keep.sum()), n_genes), dtype=np.float32)
        self._row = 0

    def append(self, block: Any, data: np.ndarray) -> None:
        self._values[self._row : self._row + len(data)] = data
        self._row += len(data)

    def matrix(self) -> Matrix:
        return self._values


class _SparseRows:
    """A CSR float32 matrix, filled block by block into arrays that are allocated once."""

    def __init__(self, keep: np.ndarray, filled: np.ndarray, n_genes: int) -> None:
        room = int(filled[keep].sum())
        index = np.int32 if max(room, n_genes) < np.iinfo(np.int32).max else np.int64
        self._data = np.empty(room, dtype=np.float32)
        self._indices = np.empty(room, dtype=index)
        self._indptr = np.zeros(int(keep.sum()) + 1, dtype=index)
        self._n_genes = n_genes
        self._row = self._end = 0

    def append(self, block: Any, data: np.ndarray) -> None:
        end = self._end + len(data)
        self._data[self._end : end] = data
        self._indices[self._end : end] = block.indices
        self._indptr[self._row + 1 : self._row + 1 + block.shape[0]] = block.indptr[1:] + self._end
        self._row, self._end = self._row + block.shape[0], end

    def matrix(self) -> Matrix:
        shape = (len(self._indptr) - 1, self._n_genes)
        found = sparse.csr_matrix((self._data[: self._end], self._indices[: self._end], self._indptr), shape=shape)
        found.has_canonical_format = True
        return found
