"""Searches for thresholds on effects, which are exact, and for offsets on log scores."""

from __future__ import annotations

import numpy as np

from pertbase.adapters._scores import SCALE, Offsets
from pertbase.folds import vote

__all__ = ["best_offsets", "best_threshold", "matched_offsets", "matched_threshold"]

_NO_CHANGE = 2
# How far beyond the last break point an offset goes where nothing bounds it, in log units.
_MARGIN = 1.0
_ROUNDS = 25
# Of so many different rows, every line counts; how far beside one another is laid, in log units.
_ALL = 400
_BESIDE = 1e-7
# Of more, lines through the plane of offsets for each outcome; and from how many points on them the search goes on.
_LINES = 33
_CLIMBS = 8


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

    Along a line balanced accuracy is a step function of known steps, searched exactly. Lines are laid through the
    plane of the two offsets where either outcome overtakes ``no_change``; from the best points on them, lines along
    either offset and along both at once are followed until none gains. Each part of the plane in which no answer
    changes has a corner on such a line, so that with one on either side of each the best part is found. Of more than
    400 different rows, lines at quantiles stand for all, and that none is better is not proven. Nothing is measured
    from a zero: a constant added to an outcome's log scores is taken off by its offset. A point is left only for a
    better one, so that scores from which nothing can be gained keep the offsets (0, 0).

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
    # Priors say the same of many questions: what each answer to such a row earns is counted once.
    rows, where = np.unique(logs, axis=0, return_inverse=True)
    earns = np.zeros((len(rows), 3), dtype=np.int64)
    np.add.at(earns, (where.ravel(), codes), weights[codes])

    best, best_worth = np.zeros(3), _worth(rows, earns)
    for start in _starts(rows, earns):
        offsets, reached = _ascended(rows, earns, start)
        if reached > best_worth:
            best, best_worth = offsets, reached
    return float(best[0]), float(best[1])


def _worth(logits: np.ndarray, earns: np.ndarray) -> int:
    return int(earns[np.arange(len(earns)), vote(logits)].sum())


def _starts(rows: np.ndarray, earns: np.ndarray) -> list[np.ndarray]:
    """Return the best points on lines through the plane of offsets, the best first."""
    found: dict[tuple[float, ...], int] = {}
    for column in (0, 1):
        # Quantiles of what is earned: of all classes alike, though calls are few.
        breaks, where = np.unique(rows[:, _NO_CHANGE] - rows[:, column], return_inverse=True)
        if len(rows) <= _ALL:
            lines = np.concatenate([breaks - _BESIDE, breaks + _BESIDE])
        else:
            mass = np.cumsum(np.bincount(where.ravel(), weights=earns.sum(axis=1)))
            edges = np.concatenate([[breaks[0] - 2 * _MARGIN], breaks, [breaks[-1] + 2 * _MARGIN]])
            cuts = np.searchsorted(mass, np.linspace(0.0, mass[-1], _LINES), side="left")
            cuts = np.unique(np.concatenate([[0], cuts + 1]))
            lines = (edges[cuts] + edges[cuts + 1]) / 2
        for line in lines:
            offsets = np.zeros(3)
            offsets[column] = line
            offsets[1 - column] = _best_along(rows + offsets, 1 - column, earns)
            found[tuple(offsets)] = _worth(rows + offsets, earns)
    best = sorted(found, key=lambda point: -found[point])[:_CLIMBS]
    return [np.zeros(3), *map(np.array, best)]


def _ascended(rows: np.ndarray, earns: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, int]:
    """Return where lines along either offset, and along both, lead to, and what it is worth."""
    offsets, reached = start, _worth(rows + start, earns)
    for _ in range(_ROUNDS):
        before = reached
        for column in range(3):
            moved = offsets.copy()
            moved[column] += _best_along(rows + offsets, column, earns)
            # A rise of no_change is a fall of both others.
            moved -= moved[_NO_CHANGE]
            if (gained := _worth(rows + moved, earns)) > reached:
                offsets, reached = moved, gained
        if reached == before:
            break
    # In the middle of what is as good, and not beside an edge of it.
    for column in (0, 1):
        moved = offsets.copy()
        moved[column] += _best_along(rows + offsets, column, earns)
        if _worth(rows + moved, earns) == reached:
            offsets = moved
    return offsets, reached


def _margins(logits: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much a column must rise to win each row, and which code it takes the row from."""
    rivals = logits.copy()
    rivals[:, column] = -np.inf
    rival = vote(rivals)
    return np.take_along_axis(rivals, rival[:, None], axis=1)[:, 0] - logits[:, column], rival


def _best_along(logits: np.ndarray, column: int, earns: np.ndarray) -> float:
    """Return the best rise of one column, exactly: the middle of the widest best interval, the lower of equals."""
    margins, rival = _margins(logits, column)
    gain = earns[:, column] - np.take_along_axis(earns, rival[:, None], axis=1)[:, 0]
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

    One offset at a time, each set given the other, until neither moves; the first as if the other outcome were never
    answered. Tied scores stay together.

    Parameters
    ----------
    logs
        Log scores, shape (n, 3).
    shares
        Shares of up and down, shape (2,).
    """
    offsets = np.array([0.0, -np.inf, 0.0])
    for _ in range(_ROUNDS):
        before = offsets.copy()
        for column in (0, 1):
            margins, _ = _margins(logs + np.where(np.arange(3) == column, 0.0, offsets), column)
            offsets[column] = _cut(margins, float(shares[column]), 2 * _MARGIN)
        if np.array_equal(before, offsets):
            break
    return float(offsets[0]), float(offsets[1])
