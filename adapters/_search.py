"""Exact searches for thresholds on effects and offsets on log scores."""

from __future__ import annotations

import numpy as np

from pertbase.adapters._scores import SCALE, Offsets
from pertbase.folds import vote

__all__ = ["best_offsets", "best_threshold", "matched_offsets", "matched_threshold"]

_NO_CHANGE = 2
# How far beyond the last break point an offset goes where nothing bounds it, in log units.
_MARGIN = 1.0
_ROUNDS = 25


def best_threshold(values: np.ndarray, hits: np.ndarray, misses: np.ndarray) -> float:
    r"""Return the threshold that serves balanced accuracy best on one side, exactly, in O(n log n).

    With :math:`\tau_u, \tau_d \ge 0` no question is called both ways, so that

    .. math:: 3\,\mathrm{BA} = \frac{\#\{u: e > \tau_u\}}{n_u} - \frac{\#\{0: e > \tau_u\}}{n_0}
              + \frac{\#\{d: -e > \tau_d\}}{n_d} - \frac{\#\{0: -e > \tau_d\}}{n_0} + 1

    and each side is maximised alone. It is constant between the values that occur; the middle of the best such
    interval is returned, the widest of several, the higher of equally wide ones. Where calling nothing is as good
    as anything, half a :data:`~pertbase.adapters._scores.SCALE` above the largest value is returned, so that nothing
    is called.

    Parameters
    ----------
    values
        Effects for the side of ``up``, minus effects for the side of ``down``.
    hits
        Which questions have this side's outcome.
    misses
        Which are ``no_change``. Those of the other side lose nothing by being called wrongly here.
    """
    n_hits, n_misses = int(hits.sum()), int(misses.sum())
    relevant = (hits | misses) & (values > 0)
    if not relevant.any():
        return SCALE / 2
    levels, level = np.unique(-values[relevant], return_inverse=True)
    gains = np.zeros(len(levels), dtype=np.int64)
    # Integers times n_u n_0, so that ties are ties.
    np.add.at(gains, level, np.where(hits[relevant], n_misses, -n_hits))
    total = np.cumsum(gains)
    highs = -levels
    if total.max() <= 0:
        return float(highs[0] + SCALE / 2)
    first, last = _runs(total == total.max())
    lows = np.append(highs[1:], 0.0)[last]
    widest = int(np.argmax(highs[first] - lows))
    return _middle(float(lows[widest]), float(highs[first][widest]))


def matched_threshold(values: np.ndarray, share: float) -> float:
    """Return the threshold, not negative, above which as near the given share of values lies as can be.

    In the middle between two neighbouring values. Equal values stay together, so that a model that says the same of
    everything is never cut by a hair.
    """
    return max(-_cut(-values, share, SCALE), 0.0)


def _cut(values: np.ndarray, share: float, margin: float) -> float:
    """Return the point below which as near the given share of values lies as can be; of equally near, the lower."""
    levels, counts = np.unique(values, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    edges = np.concatenate([[levels[0] - margin], levels, [levels[-1] + margin]])
    cut = int(np.argmin(np.abs(below - share * len(values))))
    return float((edges[cut] + edges[cut + 1]) / 2)


def _middle(low: float, high: float) -> float:
    """Return the middle of [low, high): below high, whatever the rounding."""
    middle = (low + high) / 2
    return middle if middle < high else low


def _runs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last position of each run of True."""
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1


def best_offsets(logs: np.ndarray, codes: np.ndarray) -> Offsets:
    """Return offsets on the log scores of up and down that serve balanced accuracy best.

    Coordinate ascent: along one offset balanced accuracy is a step function of known steps, searched exactly. From
    two starts, no offset and the log ratio of class sizes (as if scores held the class prior). A step is taken only
    where it gains, so that scores from which nothing can be gained keep the offsets (0, 0).

    Parameters
    ----------
    logs
        Log scores, shape (n, 3).
    codes
        True outcomes, 0, 1, 2; each occurs.
    """
    sizes = np.bincount(codes, minlength=3)
    # Integers times the product of the class sizes: gains are compared exactly.
    weights = np.array([sizes[1] * sizes[2], sizes[0] * sizes[2], sizes[0] * sizes[1]], dtype=np.int64)

    def worth(offsets: np.ndarray) -> int:
        right = vote(logs + offsets) == codes
        return int(weights[codes[right]].sum())

    best, best_worth = np.zeros(3), worth(np.zeros(3))
    for start in (np.zeros(3), np.append(np.log(sizes[_NO_CHANGE] / sizes[:2]), 0.0)):
        offsets, reached = start, worth(start)
        for _ in range(_ROUNDS):
            before = reached
            for column in (0, 1):
                moved = offsets.copy()
                moved[column] = _best_along(logs + offsets * (np.arange(3) != column), column, codes, weights)
                if (gained := worth(moved)) > reached:
                    offsets, reached = moved, gained
            if reached == before:
                break
        if reached > best_worth:
            best, best_worth = offsets, reached
    return float(best[0]), float(best[1])


def _margins(logits: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much a column must rise to win each row, and which code it takes the row from."""
    rivals = logits.copy()
    rivals[:, column] = -np.inf
    rival = vote(rivals)
    return np.take_along_axis(rivals, rival[:, None], axis=1)[:, 0] - logits[:, column], rival


def _best_along(logits: np.ndarray, column: int, codes: np.ndarray, weights: np.ndarray) -> float:
    """Return the best offset of one column, exactly: the middle of the widest best interval, the lower of equals."""
    margins, rival = _margins(logits, column)
    gain = weights[codes] * ((codes == column).astype(np.int64) - (codes == rival))
    breaks, where = np.unique(margins, return_inverse=True)
    steps = np.zeros(len(breaks), dtype=np.int64)
    np.add.at(steps, where, gain)
    total = np.concatenate([[0], np.cumsum(steps)])
    edges = np.concatenate([[breaks[0] - 2 * _MARGIN], breaks, [breaks[-1] + 2 * _MARGIN]])
    first, last = _runs(total == total.max())
    widest = int(np.argmax(edges[last + 1] - edges[first]))
    return float((edges[first][widest] + edges[last + 1][widest]) / 2)


def matched_offsets(logs: np.ndarray, shares: np.ndarray) -> Offsets:
    """Return offsets under which up and down are answered as often as the shares say.

    One offset at a time, each set given the other, until neither moves. Tied scores stay together.

    Parameters
    ----------
    logs
        Log scores, shape (n, 3).
    shares
        Shares of up and down, shape (2,).
    """
    offsets = np.zeros(3)
    for _ in range(_ROUNDS):
        before = offsets.copy()
        for column in (0, 1):
            margins, _ = _margins(logs + offsets * (np.arange(3) != column), column)
            offsets[column] = _cut(margins, float(shares[column]), 2 * _MARGIN)
        if np.array_equal(before, offsets):
            break
    return float(offsets[0]), float(offsets[1])
