"""Wilcoxon rank-sum tests of many groups of cells against one shared reference, and the groups' means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from pertbase.errors import InputError
from pertbase.folds._cells import Matrix, read_only

__all__ = ["GroupMoments", "RankSum", "group_means", "group_moments", "rank_sum"]

_BLOCK_ENTRIES = 4_000_000
"""Entries of a dense matrix, or of a chunk of cells, that are worked on at once: 32 MB in float64."""

_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class RankSum:
    """Tests of groups against one reference.

    Parameters
    ----------
    z
        Standardised rank sums, shape (n_groups, n_genes): positive where the group lies above the reference.
    p_value
        Two-sided, of the same shape.
    """

    z: np.ndarray
    p_value: np.ndarray


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Per group and gene, over the group's cells; each array has shape (n_groups, n_genes), float64.

    Parameters
    ----------
    n_cells
        Cells in each group, shape (n_groups,).
    mean_log
        Mean of the stored values, natural log1p.
    var_log
        Their variance, divisor n - 1; NaN for a group of one cell.
    mean_count
        Mean of ``expm1`` of the stored values: the scale of the counts after scaling to the screen's total.
    """

    n_cells: np.ndarray
    mean_log: np.ndarray
    var_log: np.ndarray
    mean_count: np.ndarray


def rank_sum(X: Matrix, *, reference: np.ndarray, members: Sequence[np.ndarray]) -> RankSum:
    r"""Test each group of cells against the reference, gene by gene.

    The Wilcoxon rank-sum test with tie correction, normal approximation and no continuity correction, as
    scanpy's ``rank_genes_groups(method="wilcoxon", tie_correct=True, reference=...)`` and
    ``scipy.stats.mannwhitneyu(method="asymptotic", use_continuity=False)`` have it. With :math:`n` cells in
    the group, :math:`m` in the reference, :math:`N = n + m`, :math:`U` the pairs in which the group's cell is
    higher plus half the tied pairs, and :math:`t` the sizes of the tie groups of the two together,

    .. math:: z = \frac{U - nm/2}{\sqrt{\frac{nm(N+1)}{12}\left(1 - \frac{\sum t^3 - t}{N^3 - N}\right)}}

    A gene that is constant over group and reference has z 0 and p 1. Values are compared as stored.

    Each gene is sorted once, whatever the number of groups: a group's rank sum needs only how many reference
    cells lie below or beside each of its values. Zeros are one tie group that is counted and never sorted.

    Parameters
    ----------
    X
        Cells x genes, non-negative; CSR, CSC or dense. A sparse matrix is never made dense.
    reference
        Row numbers of the reference cells.
    members
        Row numbers of each group's cells. Groups may share cells with each other, not with the reference.

    Raises
    ------
    InputError
        Where a group is empty or meets the reference, or ``X`` holds negative values or NaN.
    """
    reference = np.asarray(reference, dtype=np.intp)
    groups = [np.asarray(rows, dtype=np.intp) for rows in members]
    _check_rows(reference, groups)
    sizes = np.array([len(reference), *map(len, groups)], dtype=np.int64)
    rows = np.concatenate([reference, *groups])
    codes = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    # One line a gene while filling, so that a gene's results are written side by side.
    z = np.zeros((X.shape[1], len(groups)))
    for gene, values, owners in _genes(X, rows, codes):
        z[gene] = _z_scores(values, owners, sizes)
    z = np.ascontiguousarray(z.T)
    return RankSum(read_only(z), read_only(2.0 * ndtr(-np.abs(z))))


def _check_rows(reference: np.ndarray, groups: list[np.ndarray]) -> None:
    for number, rows in enumerate([reference, *groups]):
        if len(rows) == 0:
            raise InputError(
                "has no cells",
                key="reference" if number == 0 else f"members[{number - 1}]",
                remedy="leave out conditions and contexts without cells before testing",
            )
    for number, rows in enumerate(groups):
        shared = np.isin(rows, reference)
        if shared.any():
            raise InputError(
                f"shares {int(shared.sum())} cells with the reference",
                key=f"members[{number}]",
                value=int(rows[shared][0]),
                remedy="a cell is either a control or perturbed",
            )


def _check_values(values: np.ndarray) -> None:
    # A NaN makes the minimum NaN, and fails the comparison too.
    if values.size and not values.min() >= 0:
        raise InputError(
            "expression must be non-negative and without NaN",
            key="X",
            value=float(values.min()),
            remedy="pass natural log1p of scaled counts, not scaled or centred values",
        )


def _genes(X: Matrix, rows: np.ndarray, codes: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each gene with the non-zero values of the rows and the codes of the rows they stand in."""
    if sparse.issparse(X):
        columns = X[rows].tocsc()
        _check_values(columns.data)
        for gene in range(X.shape[1]):
            here = slice(columns.indptr[gene], columns.indptr[gene + 1])
            values, owners = columns.data[here], codes[columns.indices[here]]
            stored = values != 0
            yield (gene, values, owners) if stored.all() else (gene, values[stored], owners[stored])
        return
    width = max(1, _BLOCK_ENTRIES // max(1, len(rows)))
    for left in range(0, X.shape[1], width):
        block = np.ascontiguousarray(X[:, left : left + width][rows].T)
        _check_values(block)
        for offset, line in enumerate(block):
            stored = np.flatnonzero(line)
            yield left + offset, line[stored], codes[stored]


def _sorted_keys(values: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return one integer an entry, value in the high half and owner in the low half, sorted.

    Sorting plain integers is several times faster than ``lexsort`` or an ``argsort`` of the values. A positive
    float32 orders as its own bits do; other types are replaced by the rank of their distinct values.
    """
    if values.dtype == np.float32:
        high = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    else:
        high = np.unique(values, return_inverse=True)[1].astype(np.uint64)
    keys: np.ndarray = (high << np.uint64(32)) | owners
    keys.sort()
    return keys


def _z_scores(values: np.ndarray, owners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return z of each group for one gene, from its non-zero values; owner 0 is the reference."""
    n_codes = len(sizes)
    keys = _sorted_keys(values, owners)
    # A run is the entries of one owner at one value; the reference's run comes first within a value.
    start = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if keys.size else np.zeros(0, np.intp)
    count = np.diff(start, append=keys.size).astype(np.float64)
    owner = (keys[start] & _LOW).astype(np.intp)
    value = keys[start] >> np.uint64(32)
    position = np.cumsum(np.concatenate([[True], value[1:] != value[:-1]])) - 1 if start.size else start
    is_reference = owner == 0
    beside = np.zeros(int(position[-1]) + 1 if position.size else 0)
    beside[position[is_reference]] = count[is_reference]
    below = np.cumsum(beside) - beside

    tied = beside[position]
    # bincount of nothing counts in integers, whatever its weights: a gene no cell expresses.
    higher = np.bincount(owner, weights=count * (below[position] + tied / 2), minlength=n_codes)[1:].astype(np.float64)
    extra = (tied + count) ** 3 - tied**3 - count
    ties: np.ndarray = np.bincount(owner, weights=extra, minlength=n_codes)[1:].astype(np.float64)
    ties = ties + np.sum(beside**3 - beside)

    non_zero = np.bincount(owner, weights=count, minlength=n_codes)
    zeros = sizes - non_zero
    higher += zeros[0] * (non_zero[1:] + zeros[1:] / 2)
    ties += (zeros[0] + zeros[1:]) ** 3 - (zeros[0] + zeros[1:])

    n, m = sizes[1:].astype(np.float64), float(sizes[0])
    total = n + m
    untied = np.maximum(1.0 - ties / (total**3 - total), 0.0)
    deviation = np.sqrt(untied * n * m * (total + 1) / 12.0)
    z: np.ndarray = np.divide(higher - n * m / 2, deviation, out=np.zeros(n_codes - 1), where=deviation > 0)
    return z


def group_moments(X: Matrix, members: Sequence[np.ndarray]) -> GroupMoments:
    """Return means and variances of each group of cells, accumulated in float64.

    Parameters
    ----------
    X
        Cells x genes, natural log1p; CSR, CSC or dense. Read a chunk of cells at a time, never made dense.
    members
        Row numbers of each group's cells.

    Raises
    ------
    InputError
        Where a group is empty.
    """
    if sparse.issparse(X):
        X = X.tocsr()
    groups = [np.asarray(rows, dtype=np.intp) for rows in members]
    n_genes = X.shape[1]
    sums = np.zeros((3, len(groups), n_genes))
    step = max(1, _BLOCK_ENTRIES // max(1, n_genes))
    for number, rows in enumerate(groups):
        if len(rows) == 0:
            raise InputError("has no cells", key=f"members[{number}]", remedy="leave out conditions without cells")
        for left in range(0, len(rows), step):
            sums[:, number] += _chunk_sums(X[rows[left : left + step]], n_genes)
    n_cells = np.array([len(rows) for rows in groups], dtype=np.int64)
    mean_log, mean_square, mean_count = sums / n_cells[:, None]
    spread = np.maximum(mean_square - mean_log**2, 0.0)
    divisor = np.where(n_cells > 1, n_cells - 1, np.nan)
    var_log = spread * (n_cells / divisor)[:, None]
    return GroupMoments(*map(read_only, (n_cells, mean_log, var_log, mean_count)))


def _chunk_sums(chunk: Any, n_genes: int) -> np.ndarray:
    """Return the sums of values, their squares and their ``expm1`` over a chunk's cells, shape (3, n_genes)."""
    if sparse.issparse(chunk):
        values = chunk.data.astype(np.float64)
        return np.stack(
            [np.bincount(chunk.indices, weights=w, minlength=n_genes) for w in (values, values**2, np.expm1(values))]
        )
    values = np.asarray(chunk, dtype=np.float64)
    return np.stack([values.sum(axis=0), (values**2).sum(axis=0), np.expm1(values).sum(axis=0)])


def group_means(X: Matrix, members: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the stored (log1p) values and of their ``expm1``, each of shape (n_groups, n_genes).

    See :func:`group_moments`.
    """
    moments = group_moments(X, members)
    return moments.mean_log, moments.mean_count
