"""The k cheapest signed paths of many pairs, beside igraph and networkx on the same graph: CPU-seconds and agreement.

    python benchmarks/paths.py                    # 20,000 nodes, 150,000 edges, 10,000 pairs
    python benchmarks/paths.py --pairs 1000 --peer-pairs 50

The graph is drawn: out- and in-degrees are log-normal and go together, so that it has hubs as curated graphs have them;
signs are +1, -1 and 0, evidence is geometric. Each source is asked about 40 readouts, as in a screen; sources are drawn
in proportion to their out-degree and readouts to their in-degree, so that most pairs have paths. Peers have no k
cheapest paths of bounded length. igraph and networkx list all simple paths up to the length, and the k cheapest are
chosen from them; networkx's ``shortest_simple_paths`` yields paths by cost, without a bound on length, until k of them
are short enough or 200 were looked at, which at four hops takes it minutes a pair, so that it is left out there. Peers
are run on fewer pairs, drawn from the same, and scaled; how many is printed.

Agreement is on pairs drawn apart: igraph lists every path of each, and the k best in full order have to be the same.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from importlib import metadata

import igraph
import networkx as nx
import numpy as np
import pandas as pd

from pertbase.knowledge import PathFinder, SignedGraph

K = 5
HOPS = (3, 4)
READOUTS = 40
"""Asked of each source."""
GIVEN_UP = 200
SHARES = {"igraph": 1.0, "all simple": 0.05, "shortest": 0.005}
"""Of the peers' pairs, by what is slow."""

Pairs = np.ndarray
Keys = list[tuple[int, int, tuple[int, ...]]]
"""(cost, edges, nodes) of each path, in order."""


def draw(n_nodes: int, n_edges: int, rng: np.random.Generator) -> SignedGraph:
    """Return a graph with hubs."""
    studied = rng.standard_normal(n_nodes)
    out, into = (np.exp(1.5 * (0.7 * studied + 0.7 * rng.standard_normal(n_nodes))) for _ in range(2))
    # No node is without an edge.
    pairs = {
        (node, (node + 1 + int(step)) % n_nodes) for node, step in enumerate(rng.integers(0, n_nodes - 1, n_nodes))
    }
    first = np.array(sorted(pairs))
    while len(pairs) < n_edges:
        source = rng.choice(n_nodes, n_edges, p=out / out.sum())
        target = rng.choice(n_nodes, n_edges, p=into / into.sum())
        pairs.update((a, b) for a, b in zip(source.tolist(), target.tolist(), strict=True) if a != b)
    others = rng.permutation(np.array(sorted(pairs - set(map(tuple, first.tolist())))))
    chosen = np.concatenate([first, others])[:n_edges]
    table = pd.DataFrame(
        {side: [f"G{node:05d}" for node in chosen[:, at]] for at, side in ((0, "source"), (1, "target"))}
    )
    table["sign"] = rng.choice([1, -1, 0], n_edges, p=[0.65, 0.25, 0.1])
    table["evidence"] = rng.geometric(0.4, n_edges)
    return SignedGraph.from_edges(table, name="drawn")


def timed(call: Callable[[], object], repeats: int) -> float:
    """Return the median CPU-seconds of a call."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def best(finder: PathFinder, paths: Iterable[tuple[int, ...]], costs: dict[tuple[int, int], int]) -> Keys:
    """Return the k best of some paths, given as nodes, in the order that ours come in."""
    keys = [(sum(costs[pair] for pair in itertools.pairwise(path)), len(path) - 1, tuple(path)) for path in paths]
    return sorted(keys)[: finder.k]


def ours(finder: PathFinder, pairs: Pairs) -> list[Keys]:
    """Return what the search finds, in the same form."""
    graph = finder.graph
    edges, costs = finder.search(pairs[:, 0], pairs[:, 1])
    return [
        [
            (int(cost), int((row >= 0).sum()), (int(source), *graph.target[row[row >= 0]].tolist()))
            for row, cost in zip(rows, found, strict=True)
            if row[0] >= 0
        ]
        for source, rows, found in zip(pairs[:, 0].tolist(), edges, costs, strict=True)
    ]


def peers(finder: PathFinder, costs: dict[tuple[int, int], int]) -> dict[str, Callable[[Pairs], list[Keys]]]:
    """Return each peer as a function from pairs to their k best paths."""
    graph = finder.graph
    ends = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    dense = igraph.Graph(n=len(graph.nodes), edges=ends, directed=True)
    named = nx.DiGraph()
    named.add_nodes_from(range(len(graph.nodes)))
    named.add_weighted_edges_from((a, b, costs[a, b]) for a, b in ends)

    def with_igraph(pairs: Pairs) -> list[Keys]:
        return [
            best(finder, map(tuple, dense.get_all_simple_paths(a, to=b, maxlen=finder.hops)), costs)
            for a, b in pairs.tolist()
        ]

    def with_networkx(pairs: Pairs) -> list[Keys]:
        found = []
        for a, b in pairs.tolist():
            listed = nx.all_simple_edge_paths(named, a, b, cutoff=finder.hops)
            found.append(best(finder, [(a, *(end for _, end in path)) for path in listed], costs))
        return found

    def with_shortest(pairs: Pairs) -> list[Keys]:
        found = []
        for a, b in pairs.tolist():
            kept: list[tuple[int, ...]] = []
            try:
                for path in itertools.islice(nx.shortest_simple_paths(named, a, b, weight="weight"), GIVEN_UP):
                    if len(path) - 1 <= finder.hops:
                        kept.append(tuple(path))
                    if len(kept) == finder.k:
                        break
            except nx.NetworkXNoPath:
                pass
            found.append(best(finder, kept, costs))
        return found

    return {
        f"igraph {igraph.__version__}, all simple paths, k best chosen": with_igraph,
        f"networkx {metadata.version('networkx')}, all simple paths, k best chosen": with_networkx,
        f"networkx {metadata.version('networkx')}, shortest_simple_paths": with_shortest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=150_000)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--peer-pairs", type=int, default=300)
    parser.add_argument("--checked", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    graph = draw(arguments.nodes, arguments.edges, rng)
    degrees = graph.degrees
    leaving, arriving = (degrees[side].to_numpy() / len(graph) for side in ("out", "in"))
    n_sources = -(-arguments.pairs // READOUTS)
    asked = rng.choice(arguments.nodes, n_sources * READOUTS, p=arriving)
    pairs = np.column_stack([np.repeat(rng.choice(arguments.nodes, n_sources, p=leaving), READOUTS), asked])
    pairs = pairs[: arguments.pairs]
    checked = np.column_stack([rng.choice(arguments.nodes, arguments.checked, p=p) for p in (leaving, arriving)])
    print(f"{graph!r}; largest out-degree {degrees['out'].max():,}, in-degree {degrees['in'].max():,}\n")
    print("| hops | what | pairs timed | CPU-seconds for 10,000 pairs | times ours | agreement |")
    print("| --- | --- | --- | --- | --- | --- |")
    PathFinder(graph, k=K).search(pairs[:1, 0], pairs[:1, 1])  # compiled, or read from the cache
    for hops in HOPS:
        finder = PathFinder(graph, hops=hops, k=K)
        costs = dict(
            zip(zip(graph.source.tolist(), graph.target.tolist(), strict=True), finder.cost.tolist(), strict=True)
        )
        seconds = timed(lambda finder=finder: finder.search(pairs[:, 0], pairs[:, 1]), arguments.repeats)  # type: ignore[misc]
        per_10k = seconds * 10_000 / len(pairs)
        others = peers(finder, costs)
        mine = ours(finder, checked)
        listed = next(iter(others.values()))(checked)
        same = sum(a == b for a, b in zip(mine, listed, strict=True))
        agreed = f"{same}/{len(checked)} with every path listed"
        print(f"| {hops} | pertbase | {len(pairs):,} | {per_10k:.2f} | 1 | {agreed} |", flush=True)
        for label, call in others.items():
            if hops == max(HOPS) and "shortest" in label:
                continue  # minutes a pair
            # networkx goes through every path in Python; by cost, some pairs take it a minute.
            share = next(part for word, part in SHARES.items() if word in label)
            share = max(round(share * arguments.peer_pairs), 1)
            some = pairs[rng.permutation(len(pairs))[:share]]
            peer = timed(lambda call=call, some=some: call(some), 1) * 10_000 / len(some)  # type: ignore[misc]
            agree = sum(a == b for a, b in zip(call(some[:20]), ours(finder, some[:20]), strict=True))
            row = f"| {hops} | {label} | {len(some):,} | {peer:.1f} | {peer / per_10k:.0f} |"
            print(f"{row} {agree}/{len(some[:20])} with ours |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\nk {K}; peak of the process {peak:.2f} GB, its peers' graphs included")


if __name__ == "__main__":
    main()
