"""What follows from a reason: which nodes its triplets lead to from the perturbed ones, and with which sign.

Every node gets the set of signs with which some walk from a start reaches it: breadth-first over (node, sign), all
questions at once, until nothing changes. Walks may come back: a negative feedback loop reaches what lies behind it with
both signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pertbase.knowledge._triplet_sets import Integers, TripletSets, contained, distinct, expand, pack

__all__ = ["BOTH", "LOWERED", "RAISED", "UNSAID", "Reach", "Starts", "reach", "restates"]

RAISED, LOWERED, UNSAID = 1, 2, 4
"""Bits: reached as raised, as lowered, or in a direction that some triplet on the way does not say."""
BOTH = RAISED | LOWERED

_BIT = {1: RAISED, -1: LOWERED, 0: UNSAID}
# What becomes of a set of bits behind a triplet of sign -1, 0, 1 or unknown (rows, sign + 1).
_BEHIND = np.array(
    [
        [(bits & RAISED) << 1 | (bits & LOWERED) >> 1 | bits & UNSAID for bits in range(8)],
        [UNSAID if bits else 0 for bits in range(8)],
        list(range(8)),
        [UNSAID if bits else 0 for bits in range(8)],
    ],
    dtype=np.uint8,
)


@dataclass(frozen=True, eq=False)
class Starts:
    """What each question perturbs, and what it asks about.

    Parameters
    ----------
    record, node, sign
        One row a (question, target); sign -1, 0 or 1.
    readout
        The readout gene's node, one a question, (n,).
    """

    record: Integers
    node: Integers
    sign: Integers
    readout: Integers

    def at(self, rows: Integers) -> Starts:
        """Return those of some questions, in that order."""
        order = np.argsort(self.record, kind="stable")
        counts = np.bincount(self.record, minlength=len(self.readout))
        first = np.cumsum(counts) - counts
        taken = order[expand(first[rows], counts[rows])]
        record = np.repeat(np.arange(len(rows)), counts[rows])
        return Starts(record, self.node[taken], self.sign[taken], self.readout[rows])

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether a question has a start at all, (n,)."""
        return np.bincount(self.record, minlength=len(self.readout)) > 0

    @property
    def signed(self) -> NDArray[np.bool_]:
        """Whether a question has a start whose sign is known, (n,)."""
        return np.bincount(self.record, weights=self.sign != 0, minlength=len(self.readout)) > 0


@dataclass(frozen=True, eq=False)
class Reach:
    """Where reasons lead.

    Parameters
    ----------
    signs
        Bits with which each question's readout gene is reached, 0 where it is not, (n,).
    on_path
        Whether each triplet lies on a walk from a start to the readout gene, one a row of the sets.
    """

    signs: NDArray[np.uint8]
    on_path: NDArray[np.bool_]


def reach(sets: TripletSets, starts: Starts) -> Reach:
    """Return where the triplets of each question lead from its starts."""
    n_nodes = sets.n_nodes
    heads, tails = pack(sets.record, sets.head, n_nodes), pack(sets.record, sets.tail, n_nodes)
    places = distinct(np.concatenate([heads, tails]))
    head, tail = np.searchsorted(places, heads), np.searchsorted(places, tails)
    bits = np.zeros(len(places), dtype=np.uint8)
    begun = pack(starts.record, starts.node, n_nodes)
    inside = contained(begun, places)
    first = np.array([_BIT[-1], _BIT[0], _BIT[1]], dtype=np.uint8)[starts.sign[inside] + 1]
    np.bitwise_or.at(bits, np.searchsorted(places, begun[inside]), first)
    bits = _spread(bits, head, tail, _BEHIND[sets.sign + 1])
    ends = pack(np.arange(sets.n), starts.readout, n_nodes)
    reached = contained(ends, places)
    at_end = np.searchsorted(places, ends[reached])
    signs = np.zeros(sets.n, dtype=np.uint8)
    signs[reached] = bits[at_end]
    leads = np.zeros(len(places), dtype=np.uint8)
    leads[at_end] = 1
    # Backwards, any bit is as good as another.
    leads = _spread(leads, tail, head, np.broadcast_to(np.arange(8, dtype=np.uint8), (len(head), 8)))
    return Reach(signs, (bits[head] > 0) & (leads[tail] > 0))


def restates(claims: TripletSets, compounds: tuple[Integers, Integers], starts: Starts) -> NDArray[np.bool_]:
    """Return which triplets only say that the compound of the question acts on one of its targets.

    A reason for a drug starts at the drug's targets; that it starts there is known from the question.

    Parameters
    ----------
    claims
        The reasons.
    compounds
        One row a (question, compound): question and node.
    starts
        What each question perturbs.
    """
    heads = distinct(pack(*compounds, claims.n_nodes))
    tails = distinct(pack(starts.record, starts.node, claims.n_nodes))
    return contained(pack(claims.record, claims.head, claims.n_nodes), heads) & contained(
        pack(claims.record, claims.tail, claims.n_nodes), tails
    )


def _spread(bits: NDArray[np.uint8], from_: Integers, to: Integers, behind: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the bits once every edge has carried what it can.

    Parameters
    ----------
    bits
        Of each node.
    from_, to
        Of each edge.
    behind
        What each edge makes of bits, (edges, 8).
    """
    bits = bits.copy()
    # Only edges out of nodes that changed carry anything new.
    order = np.argsort(from_, kind="stable")
    counts = np.bincount(from_, minlength=len(bits))
    first = np.cumsum(counts) - counts
    changed = np.flatnonzero(bits)
    while len(changed):
        edges = order[expand(first[changed], counts[changed])]
        before = bits[to[edges]]
        np.bitwise_or.at(bits, to[edges], behind[edges, bits[from_[edges]]])
        changed = distinct(to[edges][bits[to[edges]] != before])
    return bits
