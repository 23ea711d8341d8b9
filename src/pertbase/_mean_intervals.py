"""Two-way intervals for plain means of one number a question, as :mod:`pertbase._intervals` has them for confusions.

With the sum and the count of each target set and each readout gene, the mean without one of them is a subtraction; the
rest is the same: both variances, less that of the (target set, readout gene) pairs, quantiles of t with
``min(S, G) - 1`` degrees of freedom, the logit scale between 0 and 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pertbase._intervals import Interval, Scale, _ends

__all__ = ["mean_interval"]


def mean_interval(
    values: ArrayLike, sets: ArrayLike, genes: ArrayLike, *, level: float = 0.95, scale: Scale = "logit"
) -> Interval:
    """Return the mean of the values that are not NaN, with its two-way interval.

    Parameters
    ----------
    values
        One a question, (n,); NaN where it is not defined.
    sets, genes
        Codes of the target sets and readout genes, (n,), non-negative.
    level
        What the interval is meant to cover.
    scale
        ``logit`` for numbers between 0 and 1, ``linear`` for differences.

    Returns
    -------
    Interval
        NaN with a note where no value is left; without ends, with a note, where all are about one target set or gene.
    """
    numbers = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(numbers)
    numbers = numbers[there]
    if not len(numbers):
        return Interval(math.nan, level=level, note="not defined: no question has it")
    # Exact sums, whatever the order of questions.
    total, n = math.fsum(numbers.tolist()), len(numbers)
    value = total / n
    codes = [np.unique(np.asarray(side)[there], return_inverse=True)[1] for side in (sets, genes)]
    n_sets, n_genes = (int(side.max()) + 1 for side in codes)
    variances = []
    for way, side in zip(("target set", "readout gene"), codes, strict=True):
        size = np.bincount(side)
        if len(size) < 2:
            note = f"no interval: all questions are about one {way}"
            return Interval(value, n_sets=n_sets, n_genes=n_genes, level=level, note=note)
        moved = (np.bincount(side, numbers - value) / (n - size)) ** 2
        variances.append((len(size) - 1) / len(size) * float(moved.sum()))
    pairs = np.unique(codes[0] * n_genes + codes[1], return_inverse=True)[1]
    both = float(_squared_sums(pairs, (numbers - value) / n))
    se = math.sqrt(max(sum(variances) - both, *variances))
    low, high, note = _ends(value, se, min(n_sets, n_genes) - 1, level, scale)
    return Interval(value, low, high, se, n_sets, n_genes, level, note)


def _squared_sums(groups: NDArray[np.int64], values: NDArray[np.float64]) -> np.float64:
    return np.float64((np.bincount(groups, values) ** 2).sum())
