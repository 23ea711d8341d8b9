r"""How much of a reason is in its reference, in the graph and in the prompt.

With :math:`P` the claimed triplets of a question and :math:`R` those of all its reference paths,

.. math::

    \text{precision} = \frac{|P \cap R|}{|P|}, \qquad \text{recall} = \frac{|P \cap R|}{|R|}, \qquad
    F_1 = \frac{2 |P \cap R|}{|P| + |R|}

signed (the primary ones: a triplet with the wrong sign is wrong) and unsigned, over (head, tail) alone. ``best_path``
is the largest signed :math:`F_1` with a single reference path. An empty reason has 0 of each; where there is no
reference they are NaN, and the question is counted as excluded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pertbase.knowledge._triplet_sets import Integers, PathSets, TripletSets, contained

__all__ = ["OVERLAP", "EdgeSigns", "grounded_in_graph", "grounded_in_prompt", "overlap"]

Floats = NDArray[np.float64]

OVERLAP = ("precision", "recall", "f1", "unsigned_precision", "edge_recall", "unsigned_f1", "best_path")
"""The scores that hold a reason against its reference. ``edge_recall`` is the unsigned recall."""


def _share(part: Integers, whole: Integers) -> Floats:
    """Divide; 0 where the whole is empty."""
    return np.asarray(part / np.maximum(whole, 1), dtype=np.float64)


def overlap(claims: TripletSets, references: PathSets) -> dict[str, Floats]:
    """Return :data:`OVERLAP`, each (n,); NaN where a question has no reference."""
    union = references.union
    signed = np.bincount(union.record[contained(union.signed, claims.signed)], minlength=claims.n)
    pairs = union.pairs[contained(union.pairs, claims.pairs)]
    unsigned = np.bincount(pairs // union.n_nodes**2, minlength=claims.n)
    found = {
        "precision": _share(signed, claims.sizes),
        "recall": _share(signed, union.sizes),
        "f1": _share(2 * signed, claims.sizes + union.sizes),
        "unsigned_precision": _share(unsigned, claims.pair_sizes),
        "edge_recall": _share(unsigned, union.pair_sizes),
        "unsigned_f1": _share(2 * unsigned, claims.pair_sizes + union.pair_sizes),
        "best_path": _best_path(claims, references),
    }
    for values in found.values():
        values[union.sizes == 0] = np.nan
    return found


def _best_path(claims: TripletSets, references: PathSets) -> Floats:
    paths = references.sets
    record = references.record[paths.record]
    keys = TripletSets(claims.n, claims.n_nodes, record, paths.head, paths.tail, paths.sign).signed
    hits = np.bincount(paths.record[contained(keys, claims.signed)], minlength=paths.n)
    value = _share(2 * hits, claims.sizes[references.record] + paths.sizes)
    best = np.zeros(claims.n)
    np.maximum.at(best, references.record, value)
    return best


class EdgeSigns:
    """Which triplets some edges bear out.

    A claimed sign is borne out by the same sign, and by an edge whose sign its sources do not know; a claim without a
    sign by any edge.

    Parameters
    ----------
    pairs
        One number an edge, for its head and tail; the same pair may come with several signs.
    sign
        -1, 0, 1 or :data:`UNKNOWN` of each edge.
    """

    def __init__(self, pairs: Integers, sign: Integers) -> None:
        self._pairs, where = np.unique(pairs, return_inverse=True)
        self._bits = np.zeros(len(self._pairs), dtype=np.uint8)
        np.bitwise_or.at(self._bits, where, _BITS[sign + 1])

    def bear_out(self, pairs: Integers, sign: Integers) -> NDArray[np.bool_]:
        """Return whether each claim, numbered alike, is borne out."""
        inside = contained(pairs, self._pairs)
        bits = np.zeros(len(pairs), dtype=np.uint8)
        bits[inside] = self._bits[np.searchsorted(self._pairs, pairs[inside])]
        return np.asarray((bits & _BITS[sign + 1]) > 0)


# By sign + 1: lowers, does not say, raises, a relation nobody knows.
_BITS = np.array([0b001, 0b111, 0b100, 0b111], dtype=np.uint8)


def grounded_in_graph(claims: TripletSets, edges: EdgeSigns) -> Floats:
    """Return the share of each question's triplets that a graph bears out, (n,); 0 for an empty reason.

    Parameters
    ----------
    claims
        The reasons.
    edges
        Of the graph, a pair numbered ``head * n_nodes + tail``.
    """
    borne = edges.bear_out(claims.head * claims.n_nodes + claims.tail, claims.sign)
    return _share(np.bincount(claims.record[borne], minlength=claims.n), claims.sizes)


def grounded_in_prompt(claims: TripletSets, given: PathSets) -> Floats:
    """Return the share of each question's triplets that the paths given with it bear out, (n,).

    NaN where a question was given none; 0 for an empty reason.
    """
    shown = given.union
    borne = EdgeSigns(shown.signed // 4, shown.sign).bear_out(claims.signed // 4, claims.sign)
    share = _share(np.bincount(claims.record[borne], minlength=claims.n), claims.sizes)
    share[shown.sizes == 0] = np.nan
    return share
