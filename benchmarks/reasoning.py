"""Reasoning scores of a hundred thousand answers, beside sets and networkx: CPU-seconds, peak memory, agreement.

    python benchmarks/reasoning.py                     # 100,000 answers
    python benchmarks/reasoning.py --answers 20000 --peer 500

Questions, given paths and reasons are drawn on a graph of 20,000 nodes and 150,000 edges, in a process of its own. Ours
is everything: scores, three nulls, eight controls, strata, contexts, intervals. The peer is one answer after the other
with Python sets and networkx, the scores alone, as one would write it in a notebook; both are compared on the same
answers. The aim is under 60 CPU-seconds and 2 GB.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from pertbase.folds import Answers, Perturbation, Truth
from pertbase.knowledge import SignedGraph, relation_sign
from pertbase.scorers import reasoning

N_NODES, N_EDGES, N_SETS, N_CONTEXTS, N_TARGETS = 20_000, 150_000, 5_000, 4, 500
WORDS = {1: "activates", -1: "inhibits"}
Edge = tuple[str, str, str]


def draw_graph(rng: np.random.Generator) -> tuple[SignedGraph, dict[str, list[tuple[str, int]]]]:
    """Return a graph with hubs, and the edges out of each node."""
    weight = rng.pareto(1.5, N_NODES) + 0.05
    source = rng.choice(N_NODES, N_EDGES, p=weight / weight.sum())
    table = pd.DataFrame({"source": source, "target": rng.integers(0, N_NODES, N_EDGES)})
    table = table.loc[table["source"] != table["target"]].drop_duplicates().astype(str)
    table = "N" + table
    table["sign"] = rng.choice([1, -1], len(table), p=[0.75, 0.25])
    table["evidence"] = rng.geometric(0.3, len(table))
    graph = SignedGraph.from_edges(table, name="drawn")
    out: dict[str, list[tuple[str, int]]] = {}
    for row in graph.edges.itertuples():
        out.setdefault(row.source, []).append((row.target, row.sign))
    return graph, out


def walk(start: str, out: Mapping[str, list[tuple[str, int]]], rng: np.random.Generator) -> list[Edge]:
    """Return a path of one to four edges."""
    path: list[Edge] = []
    met = {start}
    for _ in range(int(rng.integers(1, 5))):
        here = path[-1][2] if path else start
        ways = [way for way in out.get(here, ()) if way[0] not in met]
        if not ways:
            break
        target, sign = ways[int(rng.integers(len(ways)))]
        path.append((here, WORDS[sign], target))
        met.add(target)
    return path


def draw(n: int, rng: np.random.Generator) -> tuple[Truth, Answers, SignedGraph, dict[str, tuple[str, ...]]]:
    """Return a fold with given and reference paths, answers with reasons, the graph and gene sets."""
    graph, out = draw_graph(rng)
    degrees = sorted(out, key=lambda node: -len(out[node]))[: 4 * N_TARGETS]
    targets = [degrees[i] for i in rng.choice(len(degrees), N_TARGETS, replace=False)]
    meant = {f"CRISPRi:{target}": Perturbation.genetic([target], "CRISPRi") for target in targets}
    rows: list[dict[str, Any]] = []
    reasons: list[list[Edge]] = []
    met: set[tuple[str, str]] = set()
    while len(rows) < n:
        target = targets[int(rng.integers(N_TARGETS))]
        one = walk(target, out, rng)
        if not one or (target, one[-1][2]) in met:
            continue
        met.add((target, one[-1][2]))
        given = [one, *(path for path in (walk(target, out, rng) for _ in range(3)) if path)]
        for context in rng.permutation(N_CONTEXTS)[:2]:
            sign = -int(np.prod([relation_sign(word) or 0 for _, word, _ in one]))
            about = {"context": f"C{context}", "perturbation": f"CRISPRi:{target}", "target_set": f"gene:{target}"}
            rows.append(
                {
                    **about,
                    "gene": one[-1][2],
                    "outcome": "up" if sign > 0 else "down",
                    "candidate_paths": given,
                    "reference_paths": [one],
                }
            )
            claimed = [edge for path in given for edge in path if rng.random() < 0.6]
            claimed += [(edge[2], "activates", edge[0]) for edge in one if rng.random() < 0.3]
            reasons.append(claimed)
    questions = pd.DataFrame(rows[:n]).assign(regime="", effect=np.nan, p_value=np.nan)
    questions["id"] = [f"q{number}" for number in range(n)]
    said = np.where(rng.random(n) < 0.7, questions["outcome"], "no_change")
    answers = Answers(
        pd.DataFrame({"id": questions["id"], "outcome": said}),
        pd.DataFrame({"id": questions["id"], "triplets": reasons[:n], "text": ""}),
    )
    nodes = np.array(graph.nodes)
    sets = {
        f"S{i}": tuple(nodes[rng.choice(len(nodes), int(rng.integers(5, 60)), replace=False)]) for i in range(N_SETS)
    }
    return Truth(questions, "drawn", "", True, perturbations=meant), answers, graph, sets


def peer(truth: Truth, answers: Answers, graph: SignedGraph, n: int) -> pd.DataFrame:
    """Return scores of the first answers, one after the other, with sets and networkx."""
    known = {(source, target): sign for source, target, sign in graph.edges[["source", "target", "sign"]].to_numpy()}
    outcomes = answers.table["outcome"].tolist()
    rows = []
    for number, question in enumerate(truth.questions.head(n).to_dict("records")):
        claimed = {(head, relation_sign(word), tail) for head, word, tail in answers.reasons["triplets"][number]}  # type: ignore[index]
        right = {(head, relation_sign(word), tail) for head, word, tail in question["reference_paths"][0]}
        shared = len(claimed & right)
        walks = nx.DiGraph()
        for head, sign, tail in claimed:
            for before in (-1, 1):
                walks.add_edge((head, before), (tail, before * (sign or 0)))
        start = (question["perturbation"].removeprefix("CRISPRi:"), -1)
        met = nx.descendants(walks, start) if start in walks else set()
        signs = {sign for node, sign in met if node == question["gene"]}
        wanted = {"up": {1}, "down": {-1}, "no_change": set()}[outcomes[number]]
        agrees = signs == wanted or (outcomes[number] == "no_change" and signs == {1, -1})
        rows.append(
            {
                "precision": shared / len(claimed) if claimed else 0.0,
                "recall": shared / len(right),
                "f1": 2 * shared / (len(claimed) + len(right)),
                "connected": float(bool(signs)),
                "consistent": float(agrees and bool(claimed)),
                "grounded_graph": sum(known.get((h, t)) == s for h, s, t in claimed) / len(claimed) if claimed else 0.0,
            }
        )
    return pd.DataFrame(rows)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Run and return the result and the CPU-seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--peer", type=int, default=2_000)
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    truth, answers, graph, sets = draw(arguments.answers, np.random.default_rng(0))
    drawn = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    n = len(truth.questions)
    scores, ours = timed(lambda: reasoning(answers, truth, graph=graph, gene_sets=sets))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    theirs, other = timed(lambda: peer(truth, answers, graph, arguments.peer))
    worst = float(np.abs(scores.records[list(theirs)].head(len(theirs)).to_numpy() - theirs.to_numpy()).max())
    print(f"{n:,} answers, {int(scores.records['n_triplets'].sum()):,} triplets\n")
    print("| what | answers | CPU-seconds | per 100,000 |\n| --- | --- | --- | --- |")
    print(f"| pertbase: scores, nulls, controls, strata, intervals | {n:,} | {ours:.1f} | {ours / n * 1e5:.1f} |")
    print(
        f"| sets and networkx: six scores | {len(theirs):,} | {other:.1f} | {other / max(1, len(theirs)) * 1e5:.0f} |"
    )
    print(f"\npeak {peak:.1f} GB, {drawn:.1f} GB of it the questions; largest difference of a score {worst:.1e}")


if __name__ == "__main__":
    main()
