"""The graphs: what is in them, and what they are made from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.baselines.gears import GEARS, _graphs
from pertbase.baselines.gears._graphs import coexpression_graph, target_graph, training_controls
from pertbase.errors import InputError
from pertbase.folds import CellTable, FoldMaker, FoldSpec


def edges(graph) -> dict[tuple[str, str], float]:
    return {
        (graph.nodes[s], graph.nodes[t]): float(w)
        for s, t, w in zip(graph.source, graph.target, graph.weight, strict=True)
    }


@pytest.fixture
def sets():
    rng = np.random.default_rng(1)
    genes = np.array([f"G{number:02d}" for number in range(40)])
    return {f"S{number}": tuple(sorted(rng.choice(genes, 6, replace=False))) for number in range(25)}


def controls(values: np.ndarray, contexts: list[str] | None = None) -> CellTable:
    obs = pd.DataFrame({"context": contexts or ["K"] * len(values)}, index=[f"c{row}" for row in range(len(values))])
    return CellTable(values.astype(np.float32), obs, pd.Index([f"G{number}" for number in range(values.shape[1])]))


@pytest.mark.parametrize("block", [7, 1024])
def test_target_graph_holds_the_largest_jaccard_indices(sets, block, monkeypatch):
    monkeypatch.setattr(_graphs, "_BLOCK", block)
    graph = target_graph(sets, k=3, threshold=0.1)
    of = {gene: {name for name, genes in sets.items() if gene in genes} for gene in graph.nodes}
    expected = {}
    for target in graph.nodes:
        index = {s: len(of[s] & of[target]) / len(of[s] | of[target]) for s in graph.nodes}
        ranked = sorted(graph.nodes, key=lambda s: (s != target, -np.float32(index[s]), s))
        expected.update({(s, target): index[s] for s in ranked[:4] if index[s] > 0.1})
    assert list(graph.nodes) == sorted({gene for genes in sets.values() for gene in genes})
    assert edges(graph).keys() == expected.keys()
    assert edges(graph) == pytest.approx(expected)


def test_target_graph_keeps_a_node_among_its_own_neighbours_whatever_the_ties():
    graph = target_graph({"all": tuple(f"G{number}" for number in range(9))}, k=2)
    assert {(gene, gene) for gene in graph.nodes} <= edges(graph).keys()
    assert np.bincount(graph.target).tolist() == [3] * 9


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("block", [3, 1024])
def test_coexpression_graph_holds_the_largest_absolute_correlations(layout, block, monkeypatch):
    monkeypatch.setattr(_graphs, "_BLOCK", block)
    rng = np.random.default_rng(0)
    values = rng.poisson(1.0, (60, 12)).astype(float)
    values[:, 3] = 5 - values[:, 0] + 0.5 * values[:, 1]
    values[:, 7] = 2.0  # does not vary
    cells = controls(values)
    graph = coexpression_graph(CellTable(layout(cells.X), cells.obs, cells.genes), k=2, threshold=0.3, by_context=False)
    with np.errstate(invalid="ignore"):
        correlation = np.nan_to_num(np.abs(np.corrcoef(values.T)))
    expected = {}
    for target in range(12):
        ranked = sorted(range(12), key=lambda s: (s != target, -correlation[target, s]))
        expected.update(
            {(f"G{s}", f"G{target}"): correlation[target, s] for s in ranked[:3] if correlation[target, s] > 0.3}
        )
    assert edges(graph).keys() == expected.keys()
    assert edges(graph) == pytest.approx(expected, abs=1e-5)
    assert ("G3", "G0") in expected
    assert not any("G7" in pair for pair in expected)


def test_genes_that_differ_between_contexts_alone_are_no_neighbours_within_them():
    rng = np.random.default_rng(0)
    values = rng.poisson(1.0, (200, 5)).astype(float)
    values[100:, :2] += 6
    cells = controls(values, ["A"] * 100 + ["B"] * 100)
    assert ("G0", "G1") in edges(coexpression_graph(cells, by_context=False))
    assert ("G0", "G1") not in edges(coexpression_graph(cells, by_context=True))


def test_coexpression_is_learnt_from_training_controls_alone(training):
    cells = training.cells
    control = cells.obs["is_control"].to_numpy() & (cells.obs["split"] == "train").to_numpy()
    assert len(training_controls(cells)) == control.sum()
    other = cells.X.toarray().copy()
    other[~control] = np.random.default_rng(0).random((int((~control).sum()), other.shape[1]), dtype=np.float32)
    changed = CellTable(other, cells.obs, cells.genes)
    model = GEARS()
    assert edges(model._gene_graph(replace(training, cells=changed))) == edges(model._gene_graph(training))


def test_controls_of_a_context_that_only_val_has_are_not_used(training):
    cells = training.cells
    obs = cells.obs.copy()
    control = obs["is_control"] & (obs["context"] == obs["context"].unique()[0])
    obs.loc[control, "split"] = "val"
    kept = training_controls(CellTable(cells.X, obs, cells.genes))
    assert set(kept.obs["context"]) == {obs["context"].unique()[1]}


def test_no_training_control_is_an_error(training):
    cells = training.cells.take(~training.cells.obs["is_control"].to_numpy())
    with pytest.raises(InputError, match="no control cells"):
        training_controls(cells)


def test_a_second_fold_never_sees_the_graph_of_the_first(training, tmp_path):
    cells = training_controls(training.cells)
    half = cells.take(np.arange(len(cells)) % 2 == 0)
    first = coexpression_graph(cells, threshold=0.05, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    second = coexpression_graph(half, threshold=0.05, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert edges(second) != edges(first)
    assert edges(second) == edges(coexpression_graph(half, threshold=0.05))


def test_a_second_folds_model_is_the_same_whether_or_not_a_first_fold_left_its_graph(
    training, small_fold, tmp_path, monkeypatch
):
    spec = FoldSpec(kind="unseen_context_genetic")
    second = FoldMaker(small_fold.screen).make(spec).make_training(seed=0, cells=True)
    assert len(training_controls(second.cells)) != len(training_controls(training.cells))

    def graph(of, cache: str):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
        module = GEARS(hidden_size=4, coexpression_threshold=0.05).build(of)
        return module.net.gene_graph.edges, module.net.gene_graph.weight

    first, after, alone = graph(training, "shared"), graph(second, "shared"), graph(second, "own")
    for one, other in zip(after, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(after[0], first[0])


@pytest.mark.parametrize(("changed", "value"), [("k", 3), ("threshold", 0.2), ("by_context", False)])
def test_other_parameters_are_another_graph_in_the_cache(training, tmp_path, changed, value):
    cells = training_controls(training.cells)
    coexpression_graph(cells, cache=tmp_path)
    coexpression_graph(cells, cache=tmp_path, **{changed: value})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_graph_in_the_cache_is_read_and_a_broken_one_made_again(sets, tmp_path, monkeypatch, caplog):
    made = edges(target_graph(sets, cache=tmp_path))
    (path,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(_graphs, "membership", lambda *_: pytest.fail("made again"))
        assert edges(target_graph(sets, cache=tmp_path)) == made
    path.write_bytes(path.read_bytes()[:100])
    assert edges(target_graph(sets, cache=tmp_path)) == made
    assert "made again" in caplog.text
    assert edges(target_graph(sets, cache=tmp_path)) == made


def test_a_cache_that_cannot_be_written_is_done_without(sets, tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert edges(target_graph(sets, cache=blocked / "graphs")) == edges(target_graph(sets))
    assert "not kept" in caplog.text
