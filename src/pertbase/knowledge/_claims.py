"""From reasons as they are written to sets of triplets: names, relations, complexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pertbase.errors import InputError
from pertbase.knowledge._names import GeneNames, complex_members, plain_name
from pertbase.knowledge._triplet_sets import UNKNOWN, Integers, PathSets, TripletSets, expand
from pertbase.knowledge._triplets import relation_sign

if TYPE_CHECKING:
    from pertbase.knowledge._graph import SignedGraph

__all__ = ["Counts", "Encoder", "Flat", "Parsed", "graph_edges"]

_PATHS = pa.list_(pa.list_(pa.list_(pa.string())))
_SHAPE = "write a list of paths, each a list of [head, relation, tail]"


@dataclass(frozen=True)
class Counts:
    """What was set aside while reasons were made into sets, one number a question, shape (n,).

    Parameters
    ----------
    given
        Triplets as they were written.
    self_loops
        Left out: head and tail are one gene.
    repeated
        Left out: the same triplet again, under whatever names.
    unknown_relations
        Kept, with a relation that is no word of any known sign.
    unresolved
        Kept, with a head or tail that is no gene and nothing that the graph, the screen or the prompt names.
    """

    given: Integers
    self_loops: Integers
    repeated: Integers
    unknown_relations: Integers
    unresolved: Integers


@dataclass(frozen=True, eq=False)
class Parsed:
    """A column of paths of triplets, as texts.

    Parameters
    ----------
    n
        How many questions there are.
    record
        The question of each path.
    path
        The path of each triplet.
    codes
        Head, relation and tail of each triplet as positions in ``words``, (triplets, 3).
    words
        The distinct texts.
    """

    n: int
    record: Integers
    path: Integers
    codes: Integers
    words: list[str]

    @property
    def names(self) -> set[str]:
        """Every head and tail."""
        return {self.words[code] for code in np.unique(self.codes[:, [0, 2]])}

    @classmethod
    def of(cls, column: Sequence[Any], key: str) -> Parsed:
        """Parse a column: for each question a list of paths, or None, each a list of [head, relation, tail].

        Raises
        ------
        InputError
            Where something else is found.
        """
        try:
            array = pa.array([() if item is None else item for item in column], type=_PATHS)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"is not a list of paths ({error})", key=key, remedy=_SHAPE) from error
        paths = array.flatten()
        triplets = paths.flatten()
        texts = triplets.flatten()
        lengths = triplets.value_lengths().to_numpy(zero_copy_only=False)
        if texts.null_count or triplets.null_count or paths.null_count or (lengths != 3).any():
            raise InputError("holds a triplet that is not three texts", key=key, remedy=_SHAPE)
        coded = texts.dictionary_encode()
        per_record, per_path = (
            side.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64) for side in (array, paths)
        )
        return cls(
            n=len(array),
            record=np.repeat(np.arange(len(per_record)), per_record),
            path=np.repeat(np.arange(len(per_path)), per_path),
            codes=coded.indices.to_numpy(zero_copy_only=False).astype(np.int64).reshape(-1, 3),
            words=coded.dictionary.to_pylist(),
        )


class Encoder:
    """Makes numbers of names: one a node, the same wherever the node is named.

    Parameters
    ----------
    names
        Bring names to symbols.
    """

    def __init__(self, names: GeneNames) -> None:
        self.names = names
        self._ids: dict[str, int] = {}
        self._resolved: list[bool] = []
        self._members: dict[str, tuple[int, ...]] = {}

    @property
    def n_nodes(self) -> int:
        """Nodes met so far."""
        return max(1, len(self._ids))

    @property
    def symbols(self) -> list[str]:
        """What each node is called."""
        return list(self._ids)

    @property
    def resolved(self) -> NDArray[np.bool_]:
        """Whether each node is a gene, or what the graph, the screen or the prompt names."""
        return np.array(self._resolved, dtype=bool)

    def members(self, name: str) -> tuple[int, ...]:
        """Return the node of a name; for a complex, those of its members."""
        if name not in self._members:
            parts = complex_members(name, self.names)
            self._members[name] = tuple(dict.fromkeys(self._node(part) for part in parts))
        return self._members[name]

    def _node(self, name: str) -> int:
        symbol = self.names.resolve(name)
        # What resolves to nothing is its own plain name, marked by what no name holds: it is never taken for a gene.
        key = symbol if symbol is not None else f"\0{plain_name(name)}"
        if key not in self._ids:
            self._ids[key] = len(self._ids)
            self._resolved.append(symbol is not None)
        return self._ids[key]

    def nodes(self, names: Iterable[str]) -> Integers:
        """Return the first node of each name: for names that are no complexes."""
        return np.array([self.members(name)[0] for name in names], dtype=np.int64)

    def flat(self, parsed: Parsed) -> Flat:
        """Return triplets as numbers, with complexes taken apart: every member of a head with every one of a tail."""
        codes, words = parsed.codes, parsed.words
        entities = np.unique(codes[:, [0, 2]])
        members: list[tuple[int, ...]] = [()] * len(words)
        for code in entities:
            members[code] = self.members(words[code])
        signs = np.zeros(len(words), dtype=np.int64)
        for code in np.unique(codes[:, 1]):
            sign = relation_sign(words[code])
            signs[code] = UNKNOWN if sign is None else sign
        sizes = np.array([len(item) for item in members], dtype=np.int64)
        first = np.cumsum(sizes) - sizes
        nodes = np.array([node for item in members for node in item], dtype=np.int64)
        n_heads, n_tails = sizes[codes[:, 0]], sizes[codes[:, 2]]
        times = n_heads * n_tails
        row = np.repeat(np.arange(len(codes)), times)
        within = expand(np.zeros(len(codes), dtype=np.int64), times)
        head = nodes[first[codes[row, 0]] + within // n_tails[row]]
        tail = nodes[first[codes[row, 2]] + within % n_tails[row]]
        return Flat(
            n=parsed.n,
            record=parsed.record,
            path=parsed.path[row],
            written=np.bincount(parsed.path, minlength=len(parsed.record)),
            product=_products(signs[codes[:, 1]], parsed.path, len(parsed.record)),
            head=head,
            tail=tail,
            sign=signs[codes[row, 1]],
        )


def graph_edges(graph: SignedGraph, encoder: Encoder) -> tuple[Integers, Integers, Integers]:
    """Return heads, tails and signs of a graph's edges as the encoder numbers nodes."""
    edges = graph.edges
    head, tail = (encoder.nodes(edges[side]) for side in ("source", "target"))
    return head, tail, edges["sign"].to_numpy(dtype=np.int64)


def _products(sign: Integers, path: Integers, n_paths: int) -> Integers:
    """Return the product of each path's signs; a complex in it counts once, however many members it has."""
    product = np.ones(n_paths, dtype=np.int64)
    np.multiply.at(product, path, np.where(sign == UNKNOWN, 0, sign))
    return product


@dataclass(frozen=True, eq=False)
class Flat:
    """Triplets of paths of questions, as they came.

    Parameters
    ----------
    n
        How many questions there are.
    record
        The question of each path.
    path
        The path of each triplet.
    written
        How many triplets each path was written with, complexes whole.
    product
        The product of each path's signs.
    head, tail, sign
        Of each triplet.
    """

    n: int
    record: Integers
    path: Integers
    written: Integers
    product: Integers
    head: Integers
    tail: Integers
    sign: Integers

    def paths(self, n_nodes: int) -> PathSets:
        """Return them as paths; one in which a complex was taken apart is the set of what it means."""
        n_paths = len(self.record)
        sets = TripletSets.of(n_paths, n_nodes, self.path, self.head, self.tail, self.sign)
        start = np.full(n_paths, -1, dtype=np.int64)
        # The first triplet of each path is the last to be written.
        start[self.path[::-1]] = self.head[::-1]
        return PathSets(sets, self.record, start, self.product, self.n)

    def claims(self, n_nodes: int, resolved: NDArray[np.bool_]) -> tuple[TripletSets, Counts]:
        """Return all triplets of a question as one set, and what was set aside."""
        record = self.record[self.path]
        sets = TripletSets.of(self.n, n_nodes, record, self.head, self.tail, self.sign)
        loops = np.bincount(record[self.head == self.tail], minlength=self.n)
        total = np.bincount(record, minlength=self.n)
        lost = ~(resolved[sets.head] & resolved[sets.tail]) if len(sets.head) else np.zeros(0, dtype=bool)
        given = np.bincount(self.record, weights=self.written, minlength=self.n).astype(np.int64)
        return sets, Counts(
            given=given,
            self_loops=loops,
            repeated=total - loops - sets.sizes,
            unknown_relations=np.bincount(sets.record[sets.sign == UNKNOWN], minlength=self.n),
            unresolved=np.bincount(sets.record[lost], minlength=self.n),
        )
