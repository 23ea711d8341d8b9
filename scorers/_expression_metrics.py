r"""Metrics of one condition's predicted effects, after cell-eval's definitions (MIT, release 0.8.2).

Vectors of one condition over readout genes: :math:`e` measured effects, :math:`\hat e` predicted ones, :math:`S` the
genes measured significant, :math:`C` the genes the prediction calls. Where a metric has no value it is NaN.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import cdist

__all__ = [
    "average_precision",
    "direction_match",
    "discrimination",
    "overlap",
    "pairwise",
    "pearson",
    "precision",
    "recall",
    "roc_auc",
    "spearman",
]

DISTANCES = ("l1", "l2", "cosine")

_AT_ONCE = 512
_ROUNDING = 1e-12


def pearson(first: np.ndarray, second: np.ndarray) -> float:
    """Return Pearson's correlation; NaN with fewer than two values or where one side is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    a, b = first - first.mean(), second - second.mean()
    return float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation, ties at their mean rank; NaN as :func:`pearson`."""
    from scipy.stats import rankdata  # half a second to import

    return pearson(rankdata(first), rankdata(second))


def _top(effect: np.ndarray, among: np.ndarray, k: int) -> np.ndarray:
    """Return a mask of the ``k`` genes of largest absolute effect among some; of equal ones, the first."""
    genes = np.flatnonzero(among)
    chosen = genes[np.argsort(-np.abs(effect[genes]), kind="stable")[:k]]
    mask = np.zeros(len(effect), dtype=bool)
    mask[chosen] = True
    return mask


def overlap(e: np.ndarray, predicted: np.ndarray, significant: np.ndarray, called: np.ndarray) -> float:
    r"""Return :math:`|S \cap C_{|S|}| / |S|`, with :math:`C_k` the k called genes of largest :math:`|\hat e|`.

    NaN where nothing is significant; cell-eval has 0.
    """
    n = int(significant.sum())
    return float((significant & _top(predicted, called, n)).sum() / n) if n else math.nan


def precision(e: np.ndarray, predicted: np.ndarray, significant: np.ndarray, called: np.ndarray) -> float:
    r"""Return :math:`|S_{|C|} \cap C| / |C|`, with :math:`S_k` the k significant genes of largest :math:`|e|`.

    0 where nothing is called, as in cell-eval: a model does not gain by calling only where it is sure. It is also 0
    where nothing is significant.
    """
    n = int(called.sum())
    return float((called & _top(e, significant, n)).sum() / n) if n else 0.0


def recall(significant: np.ndarray, called: np.ndarray) -> float:
    r"""Return :math:`|S \cap C| / |S|`; NaN where nothing is significant."""
    n = int(significant.sum())
    return float((significant & called).sum() / n) if n else math.nan


def direction_match(e: np.ndarray, predicted: np.ndarray, significant: np.ndarray) -> float:
    """Return the share of significant genes whose predicted effect has the measured sign; a predicted 0 has none."""
    if not significant.any():
        return math.nan
    return float((np.sign(e[significant]) == np.sign(predicted[significant])).mean())


def roc_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the ROC curve; NaN with one class only."""
    from scipy.stats import rankdata  # half a second to import

    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative:
        return math.nan
    return float((rankdata(scores)[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    r"""Return :math:`\sum_n (R_n - R_{n-1}) P_n` over distinct scores, as scikit-learn; NaN with one class only."""
    positive = int(labels.sum())
    if not 0 < positive < len(labels):
        return math.nan
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(labels) - 1)
    hits = np.cumsum(labels[order])[last]
    return float((np.diff(hits, prepend=0) / positive) @ (hits / (last + 1)))


def discrimination(measured: np.ndarray, predicted: np.ndarray, own: np.ndarray, distance: str) -> np.ndarray:
    """Return 1 - rank / n of each condition's own measured effects among all, by distance to what was predicted for it.

    The rank counts the conditions that are nearer, and half of those equally near, so that a prediction that is the
    same for all, or zero, gets what chance gives: cell-eval leaves ties to the order of rows.

    Parameters
    ----------
    measured, predicted
        Effects, shape (n_conditions, n_genes), all known.
    own
        Which genes are a condition's own targets, left out of its comparisons, same shape.
    distance
        One of :data:`DISTANCES`; the cosine distance to or from zero is 1.

    Returns
    -------
    Shape (n_conditions,); NaN with a single condition or without genes.
    """
    n, n_genes = measured.shape
    if n < 2 or not n_genes:
        return np.full(n, np.nan)
    from_each = (
        _cosine(measured, predicted, own) if distance == "cosine" else _power(measured, predicted, own, distance)
    )
    to_own = np.diag(from_each)[:, None]
    nearer = (from_each < to_own).sum(axis=1)
    ties = (from_each == to_own).sum(axis=1) - 1
    return np.asarray(1.0 - (nearer + ties / 2) / n)


def _power(measured: np.ndarray, predicted: np.ndarray, own: np.ndarray, distance: str) -> np.ndarray:
    """Return sums of absolute (l1) or squared (l2) differences, predicted x measured, without own targets."""
    sums = cdist(predicted, measured, "cityblock" if distance == "l1" else "sqeuclidean")
    for row in np.flatnonzero(own.any(axis=1)):
        others = np.flatnonzero(~own[row])
        gap = np.abs(measured[:, others] - predicted[row, others])
        sums[row] = (gap if distance == "l1" else gap**2).sum(axis=1)
    return np.asarray(sums)


def _cosine(measured: np.ndarray, predicted: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return cosine distances, predicted x measured, without own targets."""
    kept = (~own).astype(np.float64)
    # Where a target is left out of the prediction, it adds nothing to the product; its square leaves the length.
    clean = predicted * kept
    product = clean @ measured.T
    lengths = np.sqrt((clean**2).sum(axis=1))[:, None] * np.sqrt(kept @ (measured**2).T)
    return np.asarray(1.0 - np.divide(product, lengths, out=np.zeros_like(product), where=lengths > 0))


def pairwise(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of every two rows, on the genes that both keep.

    Sums over the genes of a pair are products of masked matrices, so that no pair is gone through by itself.

    Parameters
    ----------
    values
        Effects, shape (n_conditions, n_genes).
    kept
        Which genes count in a row, same shape.

    Returns
    -------
    One value a pair, shape (n_conditions * (n_conditions - 1) / 2,); NaN where a side is constant on the pair's genes,
    or they are fewer than two.
    """
    mask = kept.astype(np.float64)
    n_kept = np.maximum(kept.sum(axis=1, keepdims=True), 1)
    # A row's own mean is taken off first: what is left to take off for a pair is small, and loses no digits.
    x = (values - (values * mask).sum(axis=1, keepdims=True) / n_kept) * mask
    x[np.where(kept, values, -np.inf).max(axis=1) <= np.where(kept, values, np.inf).min(axis=1)] = 0.0
    square = x**2
    found = [np.zeros(0)]
    for start in range(0, len(values), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        n = mask[part] @ mask.T
        first, second = x[part] @ mask.T, mask[part] @ x.T
        own, other = square[part] @ mask.T, mask[part] @ square.T
        with np.errstate(divide="ignore", invalid="ignore"):
            left, right = own - first**2 / n, other - second**2 / n
            r = (x[part] @ x.T - first * second / n) / np.sqrt(left * right)
        # What rounding leaves of a constant side is no spread.
        r[(left <= _ROUNDING * own) | (right <= _ROUNDING * other) | (n < 2)] = np.nan
        rows = np.arange(start, start + len(r))
        found.append(r[rows[:, None] < np.arange(len(values))])
    return np.clip(np.concatenate(found), -1.0, 1.0)
