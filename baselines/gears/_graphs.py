"""The two graphs of GEARS: similarity of targets by gene sets, and co-expression of genes in training controls.

Both keep, for each node, the ``k`` nodes most like it and itself. They are kept in the user's cache under a hash of all
they are made from: cells, genes, sets and parameters. A fold with other training controls has another hash, so that it
never meets the first one's graph; the file name alone decided that in the original, and was the same for all folds.
"""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._io import canonical_json, sha256_text, write_aside
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import CellTable
from pertbase.folds._cells import hash_matrix
from pertbase.knowledge import GeneSets, membership

__all__ = ["Graph", "cache_folder", "coexpression_graph", "target_graph", "training_controls"]

_log = logging.getLogger("pertbase")
_BLOCK = 1024
"""Nodes whose similarity to all others is worked out at once: 60 MB at 15,000 nodes."""


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Weighted directed edges between named nodes.

    Parameters
    ----------
    nodes
        Unique names.
    source, target
        Positions in ``nodes``, int64, shape (n_edges,); sorted by target, then source.
    weight
        Similarity, float32, shape (n_edges,).
    """

    nodes: pd.Index
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.source, self.target, self.weight):
            array.flags.writeable = False

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes):,} nodes, {len(self.source):,} edges)"


def cache_folder() -> Path:
    """Return where graphs are kept: ``pertbase/graphs`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pertbase" / "graphs"


def target_graph(sets: GeneSets, *, k: int = 20, threshold: float = 0.1, cache: Path | None = None) -> Graph:
    """Return the graph of all genes of some gene sets by the Jaccard index of the sets they are in.

    With M the genes x sets membership matrix, the sizes of intersections are :math:`M M^T`, one sparse product, and
    those of unions follow from the diagonal.

    Parameters
    ----------
    sets
        Name -> genes; the nodes are all genes in them, sorted.
    k
        Neighbours kept for each node, beside itself. Ties go to the node itself, then by name.
    threshold
        Only larger indices are kept.
    cache
        Folder to keep it in; not kept if None.
    """
    nodes = pd.Index(sorted({gene for genes in sets.values() for gene in genes}), dtype=object, name="gene")

    def build() -> Graph:
        member = membership(sets, nodes)
        size = np.asarray(member.sum(axis=1)).ravel()
        blocks = []
        for start in range(0, len(nodes), _BLOCK):
            shared = (member[start : start + _BLOCK] @ member.T).tocoo()
            row = shared.row + start
            index = shared.data / (size[row] + size[shared.col] - shared.data)
            keep = index > threshold
            blocks.append(_top(row[keep], shared.col[keep], index[keep], k + 1))
        return _graph(nodes, blocks)

    key = {"kind": "jaccard", "k": k, "threshold": threshold, "sets": {name: list(sets[name]) for name in sorted(sets)}}
    return _cached(build, nodes, key, cache)


def coexpression_graph(
    cells: CellTable, *, k: int = 20, threshold: float = 0.4, by_context: bool = True, cache: Path | None = None
) -> Graph:
    """Return the graph of genes by the absolute Pearson correlation of their expression.

    Parameters
    ----------
    cells
        Control cells; see :func:`training_controls`. All of them are used.
    k
        Neighbours kept for each gene, beside itself.
    threshold
        Only larger correlations are kept. A gene that does not vary has none.
    by_context
        Whether means are taken within each context, so that genes are not neighbours for differing between contexts.
    cache
        Folder to keep it in; not kept if None.
    """
    context = cells.obs["context"].astype(str).to_numpy() if by_context else np.full(len(cells), "")

    def build() -> Graph:
        values = _standardised(cells, context)
        blocks = []
        for start in range(0, values.shape[1], _BLOCK):
            similarity = np.abs(values[:, start : start + _BLOCK].T @ values)
            # A gene is its own nearest neighbour, rounding or not.
            rows = np.arange(similarity.shape[0])
            own = similarity[rows, rows + start]
            similarity[rows, rows + start] = np.where(own > 0.5, 1.0, own)
            row, column = np.nonzero(similarity > threshold)
            blocks.append(_top(row + start, column, similarity[row, column], k + 1))
        return _graph(cells.genes, blocks)

    key = {
        "kind": "pearson",
        "k": k,
        "threshold": threshold,
        "context": sha256_text("\x1f".join(context)),
        "genes": list(cells.genes),
        "cells": hash_matrix(cells.X),
    }
    return _cached(build, cells.genes, key, cache)


def training_controls(cells: CellTable) -> CellTable:
    """Return the input controls of the contexts that training has a condition in: all a fitted graph may see.

    Raises
    ------
    InputError
        Where there is none.
    """
    rows = cells.obs["is_control"].to_numpy(dtype=bool) & (cells.obs["split"] == "train").to_numpy()
    if not rows.any():
        raise InputError("there are no control cells to learn co-expression from", key="training.cells", value=0)
    return cells.take(rows)


def _standardised(cells: CellTable, context: np.ndarray) -> np.ndarray:
    """Return expression centred (within contexts) and scaled to unit length per gene, float32, cells x genes."""
    values = cells.X.toarray() if sparse.issparse(cells.X) else np.array(cells.X)
    values = np.asarray(values, dtype=np.float32)
    for name in np.unique(context):
        rows = context == name
        values[rows] -= values[rows].mean(axis=0, dtype=np.float64).astype(np.float32)
    length = np.sqrt(np.einsum("cg,cg->g", values, values, dtype=np.float64))
    # What rounding leaves of a gene that does not vary is no correlation.
    length[length < 1e-4 * np.sqrt(len(values))] = np.inf
    return np.asarray(values / length.astype(np.float32))


def _top(row: np.ndarray, column: np.ndarray, weight: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ``n`` heaviest entries of each row: itself first, then by weight, then by column."""
    order = np.lexsort((column, -weight, column != row, row))
    row, column, weight = row[order], column[order], weight[order]
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])) if len(row) else np.zeros(0, dtype=np.int64)
    rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.append(starts, len(row))))
    keep = rank < n
    return row[keep], column[keep], weight[keep]


def _graph(nodes: pd.Index, blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Graph:
    target, source, weight = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    order = np.lexsort((source, target))
    return Graph(
        nodes, source[order].astype(np.int64), target[order].astype(np.int64), weight[order].astype(np.float32)
    )


def _cached(build: Callable[[], Graph], nodes: pd.Index, key: Mapping[str, object], cache: Path | None) -> Graph:
    """Return a graph from the cache, or build it and keep it there; a cache that cannot be used is done without."""
    if cache is None:
        return build()
    path = cache / f"{key['kind']}-{sha256_text(canonical_json(dict(key)))[:32]}.npz"
    try:
        with np.load(path, allow_pickle=False) as kept:
            return Graph(nodes, kept["source"], kept["target"], kept["weight"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        _log.warning("the graph kept in %s cannot be read (%s) and is made again", path, error)
    graph = build()
    try:
        with write_aside(path) as temporary, temporary.open("wb") as file:
            np.savez(file, source=graph.source, target=graph.target, weight=graph.weight)
    except PertbaseError as error:
        _log.warning("the graph is not kept: %s", error)
    return graph
