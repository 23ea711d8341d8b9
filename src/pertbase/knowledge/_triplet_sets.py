"""Reasons as numbers: de-duplicated sets of signed, directed triplets over normalised names, all questions at once.

Sets of all questions lie in flat arrays, each row one triplet of one question, sorted; so every score is a few passes
over arrays, and a hundred thousand reasons cost seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pertbase.errors import InputError

__all__ = ["UNKNOWN", "Integers", "PathSets", "TripletSets", "contained", "distinct", "expand", "pack"]

Integers = NDArray[np.int64]

UNKNOWN = 2
"""The sign of a relation nobody knows. It is a claim that no reference makes, and it says nothing of direction."""


def contained(keys: Integers, among: Integers) -> NDArray[np.bool_]:
    """Return which keys are among others that are sorted."""
    if not len(among):
        return np.zeros(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    return np.asarray(among[at] == keys)


def distinct(keys: Integers) -> Integers:
    """Return the distinct keys, sorted. NumPy's own hashes first, which takes several times as long."""
    ordered = np.sort(keys)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]] if len(ordered) else ordered


def expand(starts: Integers, counts: Integers) -> Integers:
    """Return ``starts[i], starts[i] + 1, ...``, ``counts[i]`` numbers for each i, as one array."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)


def pack(record: Integers, node: Integers, n_nodes: int) -> Integers:
    """Return one number a (question, node)."""
    return record * n_nodes + node


@dataclass(frozen=True, eq=False)
class TripletSets:
    """One set of triplets a question.

    Parameters
    ----------
    n
        How many questions there are.
    n_nodes
        How many nodes there are.
    record, head, tail
        Question and nodes of each triplet, sorted by (record, head, tail, sign).
    sign
        -1, 0, 1 or :data:`UNKNOWN`.
    """

    n: int
    n_nodes: int
    record: Integers
    head: Integers
    tail: Integers
    sign: Integers

    @classmethod
    def of(cls, n: int, n_nodes: int, record: Integers, head: Integers, tail: Integers, sign: Integers) -> TripletSets:
        """Return sets from triplets in any order, self-loops and repetitions left out.

        Raises
        ------
        InputError
            Where there are more names than can be numbered: a million of them in ten million sets.
        """
        if 4 * n * n_nodes**2 > np.iinfo(np.int64).max:
            raise InputError("too many different names in too many reasons", key="triplets", value=(n_nodes, n))
        keep = head != tail
        keys = distinct(_signed(n_nodes, record[keep], head[keep], tail[keep], sign[keep]))
        pairs, sign = np.divmod(keys, 4)
        ends, tail = np.divmod(pairs, n_nodes)
        record, head = np.divmod(ends, n_nodes)
        return cls(n, n_nodes, record, head, tail, sign - 1)

    @cached_property
    def sizes(self) -> Integers:
        """Triplets a question, (n,)."""
        return np.bincount(self.record, minlength=self.n)

    @cached_property
    def signed(self) -> Integers:
        """One number a (question, triplet), sorted."""
        return _signed(self.n_nodes, self.record, self.head, self.tail, self.sign)

    @cached_property
    def pairs(self) -> Integers:
        """One number a (question, head, tail), sorted, each once."""
        return distinct(self.signed // 4)

    @cached_property
    def pair_sizes(self) -> Integers:
        """Distinct (head, tail) a question, (n,)."""
        return np.bincount(self.pairs // self.n_nodes**2, minlength=self.n)

    def at(self, rows: Integers) -> TripletSets:
        """Return the sets of some questions, in that order; a negative number stands for an empty set."""
        first = np.searchsorted(self.record, np.maximum(rows, 0))
        counts = np.where(rows < 0, 0, self.sizes[rows])
        from_ = expand(first, counts)
        record = np.repeat(np.arange(len(rows)), counts)
        return TripletSets(len(rows), self.n_nodes, record, self.head[from_], self.tail[from_], self.sign[from_])

    def select(self, keep: NDArray[np.bool_]) -> TripletSets:
        """Return the sets with some of their triplets."""
        return TripletSets(self.n, self.n_nodes, self.record[keep], self.head[keep], self.tail[keep], self.sign[keep])


@dataclass(frozen=True, eq=False)
class PathSets:
    """Some paths a question.

    Parameters
    ----------
    sets
        One set of triplets a path.
    record
        The question of each path, ascending.
    start
        The first head of each path, -1 for an empty path.
    sign
        Product of the signs of each path's triplets: -1, 0 or 1.
    n
        How many questions there are.
    """

    sets: TripletSets
    record: Integers
    start: Integers
    sign: Integers
    n: int

    @cached_property
    def union(self) -> TripletSets:
        """All triplets of a question's paths as one set."""
        sets = self.sets
        return TripletSets.of(self.n, sets.n_nodes, self.record[sets.record], sets.head, sets.tail, sets.sign)

    @cached_property
    def counts(self) -> Integers:
        """Paths a question, (n,)."""
        return np.bincount(self.record, minlength=self.n)

    def select(self, keep: NDArray[np.bool_]) -> PathSets:
        """Return some of the paths."""
        rows = np.flatnonzero(keep)
        return PathSets(self.sets.at(rows), self.record[rows], self.start[rows], self.sign[rows], self.n)

    def at(self, rows: Integers) -> PathSets:
        """Return the paths of some questions, in that order; a negative number stands for no paths."""
        first = np.searchsorted(self.record, np.maximum(rows, 0))
        counts = np.where(rows < 0, 0, self.counts[rows])
        paths = expand(first, counts)
        record = np.repeat(np.arange(len(rows)), counts)
        return PathSets(self.sets.at(paths), record, self.start[paths], self.sign[paths], len(rows))


def _signed(n_nodes: int, record: Integers, head: Integers, tail: Integers, sign: Integers) -> Integers:
    return ((record * n_nodes + head) * n_nodes + tail) * 4 + (sign + 1)
