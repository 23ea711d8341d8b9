r"""How alike two sets of genes are by the gene sets they are in: three numbers, since each hides what another shows.

With :math:`T(g)` the gene sets of gene :math:`g`, :math:`T(A)` their union over the genes of :math:`A`, and
:math:`\mathrm{IC}(t) = -\log(|t| / N)` for a set of :math:`|t|` of all :math:`N` annotated genes,

.. math::

    \text{union} &= \frac{|T(P) \cap T(R)|}{|T(P) \cup T(R)|}, \qquad
    \text{weighted} = \frac{\sum_{t \in T(P) \cap T(R)} \mathrm{IC}(t)}{\sum_{t \in T(P) \cup T(R)} \mathrm{IC}(t)} \\
    \text{best match} &= \frac{\sum_{p \in P} \max_{r \in R} J(p, r) + \sum_{r \in R} \max_{p \in P} J(p, r)}
    {|P| + |R|}, \qquad J(p, r) = \frac{|T(p) \cap T(r)|}{|T(p) \cup T(r)|}

over intermediate nodes alone: what is perturbed and what is asked about stand in every reason and would make all alike.
Genes in no set are left out, and counted. Where the reference has no intermediate gene in a set the numbers are NaN;
where it has and the reason has none, they are 0. A set of one gene is averaged like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from pertbase.knowledge._claims import Encoder
from pertbase.knowledge._gene_sets import GeneSets, membership
from pertbase.knowledge._triplet_sets import Integers, TripletSets, contained, distinct, expand, pack
from pertbase.knowledge._walks import Starts

__all__ = ["SIMILARITY", "Annotations", "Similarity", "intermediates", "similarity"]

Floats = NDArray[np.float64]

SIMILARITY = ("go_union", "go_weighted", "go_best_match")
_AT_ONCE = 2_000_000
"""Pairs of genes compared at a time: some 100 MB."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """Which node is in which gene set.

    Parameters
    ----------
    member
        Nodes x sets, ones.
    information
        IC of each set.
    """

    member: sparse.csr_matrix
    information: Floats

    @classmethod
    def of(cls, sets: GeneSets, encoder: Encoder) -> Annotations:
        """Return the annotations of an encoder's nodes; IC is over all genes that the sets hold.

        Sets may have symbols of another year than the nodes: both are brought to the same, and a set that has a gene by
        two names has it once.
        """
        resolve = encoder.names.resolve
        named = {gene: resolve(gene) or gene for gene in {gene for genes in sets.values() for gene in genes}}
        held = {name: tuple({named[gene]: None for gene in genes}) for name, genes in sets.items()}
        sizes = np.array([len(genes) for genes in held.values()], dtype=np.float64)
        member = membership(held, pd.Index(encoder.symbols)).astype(np.float64)
        # Adding zero makes the -0.0 of a set of all genes a plain zero.
        return cls(member, -np.log(sizes / len(set(named.values()))) + 0.0)

    @property
    def annotated(self) -> NDArray[np.bool_]:
        """Whether each node is in a set."""
        return np.asarray(self.member.getnnz(axis=1) > 0)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes a question: ``record`` and ``node``, sorted, each pair once; ``n`` questions, ``n_nodes`` nodes."""

    n: int
    n_nodes: int
    record: Integers
    node: Integers

    @property
    def sizes(self) -> Integers:
        """Nodes a question, (n,)."""
        return np.bincount(self.record, minlength=self.n)

    def select(self, keep: NDArray[np.bool_]) -> Nodes:
        """Return some of the nodes."""
        return Nodes(self.n, self.n_nodes, self.record[keep], self.node[keep])


def intermediates(sets: TripletSets, starts: Starts) -> Nodes:
    """Return the nodes of each question's triplets that are neither perturbed nor asked about."""
    n_nodes = sets.n_nodes
    ends = distinct(
        np.concatenate(
            [
                pack(starts.record, starts.node, n_nodes),
                pack(np.arange(sets.n), starts.readout, n_nodes),
            ]
        )
    )
    keys = distinct(np.concatenate([pack(sets.record, sets.head, n_nodes), pack(sets.record, sets.tail, n_nodes)]))
    record, node = np.divmod(keys[~contained(keys, ends)], n_nodes)
    return Nodes(sets.n, n_nodes, record, node)


@dataclass(frozen=True, eq=False)
class Similarity:
    """Scores :data:`SIMILARITY`, each (n,), and how many intermediate nodes of each reason are in no gene set."""

    scores: dict[str, Floats]
    unannotated: Integers


def similarity(claimed: Nodes, referred: Nodes, annotations: Annotations) -> Similarity:
    """Return how alike claimed and reference nodes are."""
    known = annotations.annotated
    left, right = claimed.select(known[claimed.node]), referred.select(known[referred.node])
    asked = (right.sizes > 0) & (left.sizes > 0)
    terms = [_terms(side, annotations) for side in (left, right)]
    shared = terms[0].multiply(terms[1])
    ones = np.ones(terms[0].shape[1])
    scores = {}
    for name, weight in (("go_union", ones), ("go_weighted", annotations.information)):
        both = shared @ weight
        scores[name] = _ratio(both, terms[0] @ weight + terms[1] @ weight - both)
    scores["go_best_match"] = _best_match(left, right, annotations)
    for values in scores.values():
        values[~asked] = 0.0
        values[right.sizes == 0] = np.nan
    return Similarity(scores, claimed.sizes - left.sizes)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0))


def _terms(nodes: Nodes, annotations: Annotations) -> sparse.csr_matrix:
    """Return which question's nodes are in which set, questions x sets, ones."""
    ones = np.ones(len(nodes.record))
    rows = sparse.csr_matrix((ones, (nodes.record, nodes.node)), shape=(nodes.n, annotations.member.shape[0]))
    found = (rows @ annotations.member).tocsr()
    found.data[:] = 1.0
    return found


def _best_match(left: Nodes, right: Nodes, annotations: Annotations) -> Floats:
    """Return the average over both sides of each gene's best match on the other."""
    pairs = left.sizes * right.sizes
    total = np.zeros(left.n)
    ends = np.cumsum(pairs)
    begin = 0
    while begin < left.n:
        # Questions are taken together until they have enough pairs, one at least.
        so_far = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, so_far + _AT_ONCE)))
        total[begin:end] = _matched(left, right, annotations, begin, end)
        begin = end
    return _ratio(total, (left.sizes + right.sizes).astype(np.float64))


def _matched(left: Nodes, right: Nodes, annotations: Annotations, begin: int, end: int) -> Floats:
    """Return the sum of best matches of questions ``begin`` to ``end``."""
    first, stop = np.searchsorted(left.record, [begin, end])
    other_sizes = right.sizes
    other_first = np.cumsum(other_sizes) - other_sizes
    own = np.arange(first, stop)
    times = other_sizes[left.record[own]]
    one = np.repeat(own, times)
    two = expand(other_first[left.record[own]], times)
    value = _gene_similarity(left.node[one], right.node[two], annotations)
    total = np.zeros(end - begin)
    for side, rows in ((left, one), (right, two)):
        low = int(rows.min()) if len(rows) else 0
        best = np.zeros(int(rows.max()) - low + 1 if len(rows) else 0)
        np.maximum.at(best, rows - low, value)
        met = distinct(rows)
        total += np.bincount(side.record[met] - begin, weights=best[met - low], minlength=end - begin)
    return total


def _gene_similarity(one: Integers, two: Integers, annotations: Annotations) -> Floats:
    """Return the Jaccard of the sets of two genes, pair by pair; each distinct pair is worked out once."""
    member = annotations.member
    sizes = np.asarray(member.getnnz(axis=1), dtype=np.float64)
    keys, where = np.unique(np.minimum(one, two) * member.shape[0] + np.maximum(one, two), return_inverse=True)
    low, high = np.divmod(keys, member.shape[0])
    both = np.empty(len(keys))
    step = 200_000
    for begin in range(0, len(keys), step):
        part = slice(begin, begin + step)
        both[part] = np.asarray(member[low[part]].multiply(member[high[part]]).sum(axis=1)).ravel()
    return np.asarray((both / (sizes[low] + sizes[high] - both))[where])
