"""A signed directed graph of genes: who raises and who lowers whom, by how much evidence, and who says so."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pertbase._frozen import FrozenMapping
from pertbase._io import canonical_json, sha256_text
from pertbase.errors import InputError
from pertbase.knowledge._rewire import rewire

__all__ = ["COLUMNS", "SignedGraph", "clean_name"]

COLUMNS = ("source", "target", "sign", "evidence", "sources", "conflict")


def clean_name(name: object) -> str:
    """Return a name in Unicode's compatibility form, without surrounding spaces; its case is kept."""
    return unicodedata.normalize("NFKC", str(name)).strip()


@dataclass(frozen=True, eq=False, repr=False)
class SignedGraph:
    """Edges between named nodes, each ordered pair once.

    Make one with :meth:`from_edges`, :meth:`merged` or :func:`pertbase.knowledge.signed_graph`.

    Parameters
    ----------
    nodes
        Names, sorted, each once.
    source, target
        Positions in ``nodes``, int32, shape (n_edges,), sorted by source, then target.
    sign
        int8: +1 raises, -1 lowers, 0 where nobody says or the sources contradict each other or themselves.
    evidence
        int32: pieces of evidence, at least 1.
    sources
        Who says so, names joined by ``;``.
    conflict
        bool: both signs were said; the sign is then 0, and stays 0 whatever else is merged.
    meta
        ``name``; ``licences``, source -> terms; ``counts`` of what was dropped or merged, of edges in conflict
        (``conflicts``) and of edges whose sign is 0 for whatever reason (``unknown_signs``).
    """

    nodes: pd.Index
    source: np.ndarray
    target: np.ndarray
    sign: np.ndarray
    evidence: np.ndarray
    sources: np.ndarray
    conflict: np.ndarray
    meta: Mapping[str, Any] = field(default_factory=lambda: FrozenMapping({}))

    def __post_init__(self) -> None:
        for array in (self.source, self.target, self.sign, self.evidence, self.sources, self.conflict):
            array.flags.writeable = False

    # -- making ---------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        table: pd.DataFrame,
        *,
        name: str,
        licence: str = "",
        counts: Mapping[str, int] | None = None,
        file: str | None = None,
    ) -> SignedGraph:
        """Return the graph of a table of edges.

        Self-loops are dropped. Rows of one ordered pair are merged: evidence adds up, sources are joined, a known sign
        wins over a 0 of which nothing is known, and a pair with both signs is a *conflict* and gets 0, which no other
        row overrules. All of it is counted in ``meta``.

        Parameters
        ----------
        table
            ``source``, ``target``, ``sign`` (-1, 0, +1) and, optionally, ``evidence`` (1 where not given), ``sources``
            (the name where not given; ``;`` between several) and ``conflict`` (true where both signs were said already,
            whatever the row's; false where not given).
        name
            Of the graph.
        licence
            The terms its source states.
        counts
            What a reader dropped before, to be kept in ``meta["counts"]``.
        file
            Named in errors.

        Raises
        ------
        InputError
            Where a column is missing, a name is empty, a sign is not one of the three, a conflict is neither true nor
            false, or no edge is left.
        """
        rows = _checked(table, name, file)
        loops = rows["source"] == rows["target"]
        kept = rows.loc[~loops]
        if kept.empty:
            raise InputError("holds no edges", file=file, key="graph", value=name)
        found = {
            "rows": len(rows),
            "self_loops": int(loops.sum()),
            **{str(key): int(value) for key, value in (counts or {}).items()},
        }
        return cls._merge(kept, name, {name: licence} if licence else {}, found)

    @classmethod
    def merged(cls, graphs: Sequence[SignedGraph]) -> SignedGraph:
        """Return the union of graphs, pairs merged as in :meth:`from_edges`; one graph is returned as it is.

        The edges are those of all rows merged at once, in whatever order and whatever was merged before: a graph keeps
        which of its edges are in conflict.

        Raises
        ------
        InputError
            Where there are none.
        """
        if not graphs:
            raise InputError("there are no graphs to merge", key="graph", value=[])
        if len(graphs) == 1:
            return graphs[0]
        rows = pd.concat([graph.edges for graph in graphs], ignore_index=True)
        licences = {key: text for graph in graphs for key, text in graph.meta.get("licences", {}).items()}
        parts = {graph.name: dict(graph.meta.get("counts", {})) for graph in graphs}
        return cls._merge(rows, "+".join(graph.name for graph in graphs), licences, {"rows": len(rows)}, parts)

    @classmethod
    def _merge(
        cls,
        rows: pd.DataFrame,
        name: str,
        licences: Mapping[str, str],
        counts: Mapping[str, int],
        parts: Mapping[str, Any] | None = None,
    ) -> SignedGraph:
        nodes = pd.Index(np.unique(rows[["source", "target"]].to_numpy(dtype=str)).astype(object), name="gene")
        keys = nodes.get_indexer(rows["source"]).astype(np.int64) * len(nodes) + nodes.get_indexer(rows["target"])
        pairs, where = np.unique(keys, return_inverse=True)
        sign = rows["sign"].to_numpy()
        up, down = (np.bincount(where, sign == one, minlength=len(pairs)) > 0 for one in (1, -1))
        both = (up & down) | (np.bincount(where, rows["conflict"].to_numpy(dtype=bool), minlength=len(pairs)) > 0)
        merged = np.where(both, 0, up.astype(np.int8) - down.astype(np.int8)).astype(np.int8)
        evidence = np.bincount(where, rows["evidence"].to_numpy(), minlength=len(pairs))
        said: list[set[str]] = [set() for _ in range(len(pairs))]
        for pair, text in zip(where.tolist(), rows["sources"], strict=True):
            said[pair].update(part for part in text.split(";") if part)
        tally = {
            **counts,
            "duplicates": len(rows) - len(pairs),
            "conflicts": int(both.sum()),
            "unknown_signs": int((merged == 0).sum()),
        }
        meta = {"name": name, "licences": dict(licences), "counts": tally, **({"parts": parts} if parts else {})}
        return cls(
            nodes=nodes,
            source=(pairs // len(nodes)).astype(np.int32),
            target=(pairs % len(nodes)).astype(np.int32),
            sign=merged,
            evidence=np.minimum(evidence, np.iinfo(np.int32).max).astype(np.int32),
            sources=np.array([";".join(sorted(names)) for names in said], dtype=object),
            conflict=both,
            meta=FrozenMapping(meta),
        )

    @classmethod
    def stored(cls, edges: pd.DataFrame, *, meta: Mapping[str, Any]) -> SignedGraph:
        """Return the graph whose :attr:`edges` and :attr:`meta` were kept: nothing is merged or counted again.

        Edges that were kept without ``conflict``, as older files hold them, are of unknown sign where it is 0.
        """
        conflict = edges["conflict"].to_numpy(dtype=bool) if "conflict" in edges.columns else np.zeros(len(edges), bool)
        nodes = pd.Index(np.unique(edges[["source", "target"]].to_numpy(dtype=str)).astype(object), name="gene")
        return cls(
            nodes=nodes,
            source=nodes.get_indexer(edges["source"]).astype(np.int32),
            target=nodes.get_indexer(edges["target"]).astype(np.int32),
            sign=edges["sign"].to_numpy(dtype=np.int8).copy(),
            evidence=edges["evidence"].to_numpy(dtype=np.int32).copy(),
            sources=edges["sources"].to_numpy(dtype=object).copy(),
            conflict=conflict.copy(),
            meta=FrozenMapping(dict(meta)),
        )

    # -- reading --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The graph's name; those of its parts joined by ``+``."""
        return str(self.meta.get("name", "graph"))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def edges(self) -> pd.DataFrame:
        """A table of the edges, made anew each time: ``source``, ``target``, and what is known of each."""
        names = self.nodes.to_numpy()
        return pd.DataFrame(
            {
                "source": names[self.source],
                "target": names[self.target],
                "sign": self.sign.copy(),
                "evidence": self.evidence.copy(),
                "sources": self.sources.copy(),
                "conflict": self.conflict.copy(),
            }
        )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of nodes and edges; of no name and no licence, nor of why a sign is 0: paths do not depend on it."""
        columns = (self.source, self.target, self.sign, self.evidence, self.sources)
        return sha256_text(canonical_json([list(self.nodes), *(column.tolist() for column in columns)]))

    @cached_property
    def out_start(self) -> np.ndarray:
        """Where each node's outgoing edges begin, int64, shape (n_nodes + 1,): edges are sorted by source."""
        return _starts(self.source, len(self.nodes))

    @cached_property
    def in_order(self) -> np.ndarray:
        """The edges sorted by target, then source: positions, int64, shape (n_edges,)."""
        order = np.lexsort((self.source, self.target))
        order.flags.writeable = False
        return order

    @cached_property
    def in_start(self) -> np.ndarray:
        """Where each node's incoming edges begin in :attr:`in_order`, int64, shape (n_nodes + 1,)."""
        return _starts(self.target[self.in_order], len(self.nodes))

    @cached_property
    def degrees(self) -> pd.DataFrame:
        """Edges ``out`` of and ``in`` to each node, and the ``evidence`` of both: how well a gene is studied."""
        size = len(self.nodes)
        evidence = np.bincount(self.source, self.evidence, size) + np.bincount(self.target, self.evidence, size)
        return pd.DataFrame(
            {
                "out": np.bincount(self.source, minlength=size),
                "in": np.bincount(self.target, minlength=size),
                "evidence": evidence.astype(np.int64),
            },
            index=self.nodes,
        )

    @cached_property
    def _folded(self) -> dict[str, int]:
        """Upper-case name -> position, of names that no other shares in upper case."""
        found: dict[str, int] = {}
        for position, name in enumerate(self.nodes):
            key = str(name).upper()
            found[key] = -1 if key in found else position
        return found

    def locate(self, names: Iterable[object]) -> np.ndarray:
        """Return the position of each name, -1 where there is none, int64.

        A name is looked for as it is, then in upper case where one node alone has it: ``Stat1`` finds ``STAT1``. That
        is orthology by name, right for most mouse genes and no more.
        """
        cleaned = [clean_name(name) for name in names]
        found = self.nodes.get_indexer(cleaned) if cleaned else np.zeros(0)
        folded = [self._folded.get(name.upper(), -1) for name in cleaned]
        return np.where(found >= 0, found, np.array(folded, dtype=np.int64)).astype(np.int64)

    # -- others ---------------------------------------------------------------------------------------------

    def rewired(self, rng: np.random.Generator, *, rounds: int = 20) -> SignedGraph:
        """Return a random graph in which each node has as many edges of each sign, out and in, as here.

        Targets are exchanged between pairs of edges of one sign, which keeps no pair and no path but by chance; see
        :func:`pertbase.knowledge._rewire.rewire`.
        """
        target = self.target.astype(np.int64)
        for one in (-1, 0, 1):
            rows = np.flatnonzero(self.sign == one)
            target[rows] = rewire(self.source, target, rows, len(self.nodes), rng, rounds=rounds)
        order = np.lexsort((target, self.source))
        meta = {**self.meta, "name": f"{self.name} (rewired)"}
        return SignedGraph(
            nodes=self.nodes,
            source=self.source[order],
            target=target[order].astype(np.int32),
            sign=self.sign[order],
            evidence=self.evidence[order],
            sources=self.sources[order],
            conflict=self.conflict[order],
            meta=FrozenMapping(meta),
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> SignedGraph:
        # Nothing of it can be changed, so that copies of a model share it.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.edges, _plain(self.meta))

    def __repr__(self) -> str:
        up, down, unknown = (int((self.sign == one).sum()) for one in (1, -1, 0))
        return (
            f"SignedGraph {self.name!r}: {len(self.nodes):,} nodes, {len(self):,} edges ({up:,} raise, {down:,} lower, "
            f"{unknown:,} without a sign, {self.meta.get('counts', {}).get('conflicts', 0):,} of these in conflict)"
        )


def _restored(edges: pd.DataFrame, meta: Mapping[str, Any]) -> SignedGraph:
    return SignedGraph.stored(edges, meta=meta)


def _plain(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in meta.items()}


def _starts(ordered: np.ndarray, size: int) -> np.ndarray:
    starts = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(ordered, minlength=size), out=starts[1:])
    starts.flags.writeable = False
    return starts


def _checked(table: pd.DataFrame, name: str, file: str | None) -> pd.DataFrame:
    missing = [column for column in COLUMNS[:3] if column not in table.columns]
    if missing:
        raise InputError("the edges lack columns", file=file, key=", ".join(missing), value=list(table.columns))
    if table.empty:
        raise InputError("holds no edges", file=file, key="graph", value=name)
    rows = pd.DataFrame({side: [clean_name(value) for value in table[side]] for side in ("source", "target")})
    for side in ("source", "target"):
        empty = (table[side].isna().to_numpy()) | (rows[side] == "").to_numpy()
        if empty.any():
            raise InputError(
                "an edge has no name at one end",
                file=file,
                key=side,
                value=f"row {int(np.flatnonzero(empty)[0]) + 1}",
                remedy="leave the row out, or name the node",
            )
    sign = pd.to_numeric(table["sign"], errors="coerce").to_numpy()
    if not np.isin(sign, (-1, 0, 1)).all():
        bad = table["sign"].to_numpy()[~np.isin(sign, (-1, 0, 1))][0]
        raise InputError("a sign is -1, 0 or +1", file=file, key="sign", value=bad)
    rows["sign"] = sign.astype(np.int8)
    rows["evidence"] = _evidence(table, file)
    given = table["sources"].to_numpy() if "sources" in table.columns else [name] * len(table)
    rows["sources"] = ["" if value is None or value != value else str(value) for value in given]
    rows["conflict"] = _conflict(table, file)
    return rows


def _conflict(table: pd.DataFrame, file: str | None) -> np.ndarray:
    if "conflict" not in table.columns:
        return np.zeros(len(table), dtype=bool)
    given = table["conflict"].to_numpy()
    said = [isinstance(value, (bool, np.bool_, int, float, np.number)) and value in (0, 1) for value in given]
    if not all(said):
        bad = given[said.index(False)]
        raise InputError("a conflict is true or false", file=file, key="conflict", value=bad)
    return np.asarray(given, dtype=bool)


def _evidence(table: pd.DataFrame, file: str | None) -> np.ndarray:
    if "evidence" not in table.columns:
        return np.ones(len(table), dtype=np.int64)
    numbers = pd.to_numeric(table["evidence"], errors="coerce").to_numpy(dtype=np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers)))
    if wrong.any():
        bad = table["evidence"].to_numpy()[wrong][0]
        raise InputError("evidence is a whole number of pieces", file=file, key="evidence", value=bad)
    # An edge that is listed has been said once at least.
    return np.asarray(np.maximum(numbers, 1), dtype=np.int64)
