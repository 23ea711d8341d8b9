from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.knowledge import SignedGraph
from pertbase.knowledge._gates import EXPRESSED, Gate, chosen_gate, ks_gate, node_gates


def table(levels, outcomes, *, context="C", split="train"):
    """Return basal levels, and one question a gene with its outcome."""
    genes = [f"G{number:03d}" for number in range(len(levels))]
    basal = pd.DataFrame([levels], index=[context], columns=genes)
    return basal, pd.DataFrame({"context": context, "gene": genes, "outcome": outcomes, "split": split})


def test_a_gate_is_a_tenth_at_low_and_nine_tenths_at_high():
    gate = Gate(0.2, 0.6)
    np.testing.assert_allclose(gate(np.array([0.2, 0.4, 0.6])), [0.1, 0.5, 0.9], rtol=1e-12)
    extremes = gate(np.array([-1e9, 0.0, 1e9]))
    assert ((extremes > 0) & (extremes <= 1)).all()
    assert (np.diff(extremes) > 0).all()
    with pytest.raises(InputError, match="low level lies below"):
        Gate(0.5, 0.5)


def test_the_ks_gate_lies_where_the_populations_part_most():
    levels = np.concatenate([np.linspace(0.0, 1.0, 200), np.linspace(0.5, 1.5, 200)])
    basal, questions = table(levels, ["no_change"] * 200 + ["up"] * 100 + ["down"] * 100)
    gate = ks_gate(basal, questions, matched=False)
    from scipy.stats import ks_2samp

    assert gate.kind == "ks"
    assert gate.gap == pytest.approx(ks_2samp(levels[:200], levels[200:], alternative="greater").statistic, abs=1e-12)
    # D rises to 0.5, stays there from 0.5 to 1, and falls.
    assert 0.4 < gate.low < 0.6
    assert 0.9 < gate.high < 1.1


def test_matched_populations_of_one_context_have_nothing_left_to_part():
    rng = np.random.default_rng(0)
    levels = np.concatenate([rng.uniform(0.0, 1.0, 300), rng.uniform(0.5, 1.5, 100)])
    basal, questions = table(levels, ["no_change"] * 300 + ["up"] * 100)
    gate = ks_gate(basal, questions)
    assert (gate.kind, gate.low, gate.high) == ("expressed", EXPRESSED.low, EXPRESSED.high)
    assert "within chance" in gate.reason
    assert gate.gap < ks_gate(basal, questions, matched=False).gap


def test_matched_populations_still_part_where_expression_in_this_context_matters():
    rng = np.random.default_rng(0)
    n_genes = 300
    genes = [f"G{number:03d}" for number in range(n_genes)]
    on = rng.random((2, n_genes)) < 0.5
    basal = pd.DataFrame(np.where(on, 1.0, 0.1) + rng.uniform(0, 0.05, on.shape), index=["C", "D"], columns=genes)
    questions = pd.DataFrame(
        {
            "context": np.repeat(["C", "D"], n_genes),
            "gene": genes * 2,
            "outcome": np.where(on.ravel() & (rng.random(2 * n_genes) < 0.6), "up", "no_change"),
            "split": "train",
        }
    )
    gate = ks_gate(basal, questions)
    assert gate.kind == "ks"
    assert 0.1 <= gate.low < gate.high <= 1.05


def test_only_labels_of_train_are_looked_at():
    rng = np.random.default_rng(1)
    levels = np.concatenate([rng.uniform(0.0, 1.0, 100), rng.uniform(0.5, 1.5, 100)])
    basal, questions = table(levels, ["no_change"] * 100 + ["up"] * 100)
    other = questions.assign(split="val", outcome=questions["outcome"].to_numpy()[::-1])
    both = pd.concat([questions, other], ignore_index=True)
    assert ks_gate(basal, both, matched=False) == ks_gate(basal, questions, matched=False)
    assert "no genes that respond" in ks_gate(basal, questions.assign(split="val")).reason


@pytest.mark.parametrize("outcome", ["up", "no_change", None])
def test_without_two_populations_the_gate_is_that_of_expression(outcome):
    basal, questions = table(np.linspace(0, 1, 20), [outcome] * 20)
    assert ks_gate(basal, questions).kind == "expressed"


def test_populations_that_one_level_parts_give_a_step():
    basal, questions = table([0.1] * 40 + [0.9] * 40, ["no_change"] * 40 + ["up"] * 40)
    gate = ks_gate(basal, questions, matched=False)
    assert (gate.low, gate.high) == (0.1, 0.9)


def test_a_gate_is_expressed_fitted_given_or_none():
    basal, questions = table([0.1] * 40 + [0.9] * 40, ["no_change"] * 40 + ["up"] * 40)
    assert chosen_gate("expressed", basal, questions) is EXPRESSED
    assert chosen_gate("ks", basal, questions, matched=False) == ks_gate(basal, questions, matched=False)
    assert chosen_gate((0.2, 0.6), basal, questions) == Gate(0.2, 0.6, "given")
    assert chosen_gate("none", basal, questions) is None
    assert chosen_gate((0.2, 0.6), None, questions) is None


def test_nodes_that_were_not_measured_have_gate_one():
    edges = pd.DataFrame({"source": ["A", "DRUG"], "target": ["B", "A"], "sign": [1, -1]})
    graph = SignedGraph.from_edges(edges, name="small")
    level = pd.Series({"a": 0.0, "B": 10.0, "ELSEWHERE": 0.0})
    gates = dict(zip(graph.nodes, node_gates(graph, level, EXPRESSED), strict=True))
    assert gates["DRUG"] == 1.0
    assert gates["A"] == pytest.approx(float(EXPRESSED(np.array([0.0]))[0]))
    assert gates["B"] > 0.999
    assert (node_gates(graph, level, None) == 1).all()
    assert (node_gates(graph, None, EXPRESSED) == 1).all()
