"""True paths: of the generating network, active in the context, with the sign of the outcome, and the strongest."""

from __future__ import annotations

import math

import networkx as nx
import pandas as pd
import pytest

from pertbase.knowledge import relation_sign
from pertbase.simulate import Simulation, true_paths


@pytest.fixture(scope="module")
def questions(simulation: Simulation) -> pd.DataFrame:
    """Every gene asked of some perturbations in two contexts, as if it had gone up, and as if down."""
    names = sorted(simulation.screen.perturbations)[::10]
    rows = [
        {"context": context, "perturbation": name, "gene": gene, "outcome": outcome}
        for context in simulation.screen.contexts[:2]
        for name in names
        for gene in simulation.screen.genes[::6]
        for outcome in ("up", "down")
    ]
    return pd.DataFrame(rows)


def test_a_true_path_is_the_strongest_that_implies_the_outcome(simulation: Simulation, questions: pd.DataFrame) -> None:
    found = true_paths(simulation, questions, max_hops=3)
    inputs = simulation.truth.inputs
    active = dict(list(simulation.truth.active.groupby("context")))
    graphs = {
        context: nx.from_pandas_edgelist(rows, edge_attr=True, create_using=nx.DiGraph)
        for context, rows in active.items()
    }
    met = 0
    for row, paths in zip(questions.itertuples(), found, strict=True):
        graph = graphs[row.context]
        own = inputs.loc[(inputs["perturbation"] == row.perturbation) & inputs["annotated"]]
        signs = dict(zip(own["gene"], own["strength"].map(lambda value: 1 if value > 0 else -1), strict=True))
        strongest = 0.0
        for start, sign in signs.items():
            if start not in graph or row.gene not in graph or row.gene in signs:
                continue
            for path in nx.all_simple_edge_paths(graph, start, row.gene, cutoff=3):
                if any(target in signs for _, target in path):
                    continue
                change = sign * math.prod(graph.edges[edge]["sign"] for edge in path)
                if change == {"up": 1, "down": -1}[row.outcome]:
                    strongest = max(strongest, math.prod(graph.edges[edge]["weight"] for edge in path))
        if not strongest:
            assert paths == []
            continue
        met += 1
        (path,) = paths
        edges = [graph.edges[head, tail] for head, _, tail in path]
        assert [relation_sign(word) for _, word, _ in path] == [edge["sign"] for edge in edges]
        assert math.prod(edge["weight"] for edge in edges) == pytest.approx(strongest)
        assert path[0].head in signs
        assert path[-1].tail == row.gene
        assert [step.tail for step in path[:-1]] == [step.head for step in path[1:]]
    assert met > 60


def test_where_nothing_changed_there_is_no_path(simulation: Simulation, questions: pd.DataFrame) -> None:
    assert not any(true_paths(simulation, questions.head(200).assign(outcome="no_change")))
    assert not any(true_paths(simulation, questions.head(200).assign(outcome=None)))
