"""Degree-preserving random graphs: the null in which a path is there because its genes have many edges."""

from __future__ import annotations

import numpy as np

__all__ = ["rewire"]


def rewire(
    source: np.ndarray,
    target: np.ndarray,
    rows: np.ndarray,
    n_nodes: int,
    rng: np.random.Generator,
    *,
    rounds: int = 20,
) -> np.ndarray:
    r"""Return new targets for some edges, each node keeping its degrees.

    In each round the edges are paired at random, and a pair :math:`a \to b, c \to d` becomes :math:`a \to d, c \to b`
    unless that makes a self-loop, an edge that is there already, or one that another pair of the round makes too
    (the switching of Maslov and Sneppen 2002, many switches at once).

    Parameters
    ----------
    source, target
        Of all edges, (n_edges,): no new edge may equal any of them.
    rows
        Which edges to switch.
    n_nodes
        Nodes of the graph.
    rng
        Draws the pairs.
    rounds
        After r rounds an edge has been switched nearly r times.

    Returns
    -------
    The new targets of ``rows``, int64.
    """
    target = target.astype(np.int64, copy=True)
    source = source.astype(np.int64)
    for _ in range(rounds):
        order = rng.permutation(rows)
        half = len(order) // 2
        first, second = order[:half], order[half : 2 * half]
        made = np.stack(
            [source[first] * n_nodes + target[second], source[second] * n_nodes + target[first]]
        )  # (2, n_pairs)
        free = (source[first] != target[second]) & (source[second] != target[first])
        # Sorted and searched: np.isin hashes its second argument anew, which takes ten times as long.
        there = np.sort(source * n_nodes + target)
        free &= (there[np.minimum(np.searchsorted(there, made), len(there) - 1)] != made).all(axis=0)
        _, where, counts = np.unique(made, return_inverse=True, return_counts=True)
        free &= (counts[where.reshape(made.shape)] == 1).all(axis=0)
        target[first[free]], target[second[free]] = target[second[free]], target[first[free]]
    return np.asarray(target[rows])
