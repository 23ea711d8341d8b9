"""The k cheapest simple paths of bounded length, exactly: compiled, imported where it is called."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["FAR", "search"]

FAR = np.int64(2**62)
"""The cost of what cannot be reached."""


@njit(cache=True)
def search(  # type: ignore[no-untyped-def]
    out_start, out_edge_target, in_start, in_edge, edge_source, edge_target, cost, sources, targets, allowed, hops, k
):
    """Return the k cheapest simple paths of at most ``hops`` edges of each query, cheapest first.

    From each source the least cost G[r][v] of a *walk* of at most r edges to v is worked out by dynamic programming
    over (hop, node). It is a lower bound for simple paths, and with it the paths are gone through backwards from the
    target: whatever cannot beat the k-th best found so far is cut off, and equal costs are not. So the result is
    exact, ties included: they go by fewer edges, then by the positions of the nodes from the source on.

    Parameters
    ----------
    out_start, out_edge_target
        Edges sorted by source: where each node's begin (n_nodes + 1), and where they lead.
    in_start, in_edge
        Where each node's incoming edges begin, and their numbers, cheapest first.
    edge_source, edge_target, cost
        Of each edge; costs are whole numbers, not negative, so that sums are exact whatever their order.
    sources, targets
        Positions, one a query; queries of one source are best put together.
    allowed
        Which nodes may stand between source and target.

    Returns
    -------
    Numbers of edges, int32 (n_queries, k, hops), -1 beyond a path's end, and costs, int64 (n_queries, k), :data:`FAR`
    where there are fewer paths.
    """
    n_nodes = len(out_start) - 1
    edges = np.full((len(sources), k, hops), -1, dtype=np.int32)
    costs = np.full((len(sources), k), FAR, dtype=np.int64)
    reach = np.full((hops, n_nodes), FAR, dtype=np.int64)
    touched = np.empty(n_nodes, dtype=np.int64)
    n_touched = 0
    at = -1
    node = np.empty(hops + 1, dtype=np.int64)
    pointer = np.empty(hops + 1, dtype=np.int64)
    spent = np.empty(hops + 1, dtype=np.int64)
    taken = np.empty(hops, dtype=np.int64)
    for query in range(len(sources)):
        start, end = sources[query], targets[query]
        if start < 0 or end < 0 or start == end:
            continue
        if start != at:
            for number in range(n_touched):
                reach[:, touched[number]] = FAR
            at = start
            n_touched = _fill(out_start, out_edge_target, cost, start, allowed, reach, touched)
        depth = 0
        node[0], pointer[0], spent[0] = end, in_start[end], 0
        while depth >= 0:
            here = node[depth]
            if pointer[depth] == in_start[here + 1]:
                depth -= 1
                continue
            edge = in_edge[pointer[depth]]
            pointer[depth] += 1
            total = spent[depth] + cost[edge]
            bound = costs[query, k - 1]
            if total > bound:
                # Those that follow cost no less.
                pointer[depth] = in_start[here + 1]
                continue
            before = edge_source[edge]
            taken[depth] = edge
            if before == start:
                _insert(edges[query], costs[query], taken, depth + 1, total, edge_target)
                continue
            left = hops - depth - 1
            if left == 0 or not allowed[before]:
                continue
            least = reach[left, before]
            if least == FAR or total + least > bound:
                continue
            seen = False
            for number in range(depth + 1):
                if node[number] == before:
                    seen = True
                    break
            if not seen:
                depth += 1
                node[depth], pointer[depth], spent[depth] = before, in_start[before], total
    return edges, costs


@njit(cache=True)
def _fill(out_start, out_edge_target, cost, start, allowed, reach, touched):  # type: ignore[no-untyped-def]
    """Fill ``reach[r, v]``, the least cost of a walk of at most r edges, and return how many nodes were touched."""
    hops = len(reach)
    reach[:, start] = 0
    touched[0] = start
    n_touched = 1
    for step in range(1, hops):
        known = n_touched
        for number in range(known):
            here = touched[number]
            if reach[step - 1, here] < reach[step, here]:
                reach[step:, here] = reach[step - 1, here]
        for number in range(known):
            here = touched[number]
            # Only what got cheaper in the last step can make anything cheaper in this one.
            if step > 1 and reach[step - 1, here] == reach[step - 2, here]:
                continue
            if here != start and not allowed[here]:
                continue
            base = reach[step - 1, here]
            for edge in range(out_start[here], out_start[here + 1]):
                there = out_edge_target[edge]
                if base + cost[edge] < reach[step, there]:
                    if reach[hops - 1, there] == FAR:
                        touched[n_touched] = there
                        n_touched += 1
                    reach[step:, there] = np.minimum(reach[step:, there], base + cost[edge])
    return n_touched


@njit(cache=True)
def _insert(edges, costs, taken, length, total, edge_target):  # type: ignore[no-untyped-def]
    """Put a path among the best, which are kept in order; ``taken`` holds its edges from the target on."""
    k = len(costs)
    place = k
    while place > 0 and _before(edges[place - 1], costs[place - 1], taken, length, total, edge_target):
        place -= 1
    if place == k:
        return
    for row in range(k - 1, place, -1):
        costs[row] = costs[row - 1]
        edges[row] = edges[row - 1]
    costs[place] = total
    edges[place] = -1
    for number in range(length):
        edges[place, number] = taken[length - 1 - number]


@njit(cache=True)
def _before(kept, kept_cost, taken, length, total, edge_target):  # type: ignore[no-untyped-def]
    """Return whether the path in ``taken`` goes before one that is kept."""
    if total != kept_cost:
        return total < kept_cost
    kept_length = 0
    while kept_length < len(kept) and kept[kept_length] >= 0:
        kept_length += 1
    if length != kept_length:
        return length < kept_length
    for number in range(length):
        mine, other = edge_target[taken[length - 1 - number]], edge_target[kept[number]]
        if mine != other:
            return mine < other
    return False
