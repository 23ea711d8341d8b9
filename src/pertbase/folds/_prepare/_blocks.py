"""Somebody else's matrix, block by block: no sparse matrix is made dense, and no more than one block is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["blocks"]

_BLOCK_VALUES = 8_000_000
_SPARSE_ROWS = 16_384


def blocks(values: Any, keep: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield the row numbers and float64 values of kept cells, block by block, sparse as canonical CSR."""
    n_rows, n_genes = values.shape
    dense = not (sparse.issparse(values) or hasattr(values, "to_memory"))
    step = max(1, _BLOCK_VALUES // max(n_genes, 1)) if dense else _SPARSE_ROWS
    for start in range(0, n_rows, step):
        rows = start + np.flatnonzero(keep[start : start + step])
        if not len(rows):
            continue
        block = values[start : start + step]
        if len(rows) < block.shape[0]:
            block = block[rows - start]
        if dense:
            yield rows, np.asarray(block, dtype=np.float64)
        else:
            block = sparse.csr_matrix(block, dtype=np.float64, copy=True)
            block.sum_duplicates()
            block.eliminate_zeros()
            block.sort_indices()
            yield rows, block
