from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pertbase._intervals import Term, cluster, two_way_interval
from pertbase._metrics import accuracy, balanced_accuracy, confusion, macro_f1


def _term(seed: int, *, n: int = 600, n_sets: int = 30, n_genes: int = 20, weight: float = 1.0) -> Term:
    rng = np.random.default_rng(seed)
    true = rng.choice(3, n, p=[0.2, 0.2, 0.6])
    answered = np.where(rng.random(n) < 0.6, true, rng.choice(4, n))
    return Term(true, answered, rng.integers(0, n_sets, n), rng.integers(0, n_genes, n), weight)


def test_one_question_a_cluster_gives_the_binomial_standard_error() -> None:
    n = 2000
    rng = np.random.default_rng(0)
    true = rng.choice(3, n)
    answered = np.where(rng.random(n) < 0.7, true, (true + 1) % 3)
    interval = two_way_interval([Term(true, answered, np.arange(n), np.arange(n))], accuracy)
    share = interval.value
    assert interval.se == pytest.approx(math.sqrt(share * (1 - share) / n), rel=2e-3)


def test_a_readout_gene_a_question_leaves_the_one_way_jackknife() -> None:
    term = _term(1)
    hard = term.sets < 10
    answered = np.where(hard, (term.true + 1) % 3, term.answered)
    interval = two_way_interval([replace(term, answered=answered, genes=np.arange(len(hard)))], accuracy)
    right = (term.true == answered).astype(float)
    names = np.unique(term.sets)
    left_out = np.array([right[term.sets != name].mean() for name in names])
    one_way = math.sqrt((len(names) - 1) / len(names) * ((left_out - right.mean()) ** 2).sum())
    # What readout genes add and what pairs take away are the same but for the jackknife's n / (n - 1).
    assert interval.se == pytest.approx(one_way, rel=1e-3)


@pytest.mark.parametrize("metric", [accuracy, balanced_accuracy, macro_f1])
def test_the_variance_is_that_of_leaving_clusters_out_by_hand(metric) -> None:
    term = _term(2)
    whole = float(metric(confusion(term.true, term.answered)))

    def variance(codes: np.ndarray) -> float:
        names = np.unique(codes)
        left = [float(metric(confusion(term.true[codes != c], term.answered[codes != c]))) for c in names]
        return (len(names) - 1) / len(names) * sum((value - whole) ** 2 for value in left)

    v_set, v_gene, v_pair = variance(term.sets), variance(term.genes), variance(term.sets * 100 + term.genes)
    interval = two_way_interval([term], metric)
    assert interval.value == whole
    assert interval.se**2 == pytest.approx(max(v_set + v_gene - v_pair, v_set, v_gene), rel=0.02)
    assert interval.low < whole < interval.high


def test_the_interval_is_never_narrower_than_either_way_alone() -> None:
    for seed in range(20):
        term = _term(seed, n=60, n_sets=8, n_genes=8)
        two_way = two_way_interval([term], accuracy).se
        right = term.true == term.answered
        for codes in (term.sets, term.genes):
            names = np.unique(codes)
            left = np.array([right[codes != code].mean() for code in names])
            assert two_way >= math.sqrt((len(names) - 1) / len(names) * ((left - right.mean()) ** 2).sum()) - 1e-12


def test_the_order_of_questions_leaves_no_trace() -> None:
    term = _term(3)
    order = np.random.default_rng(9).permutation(len(term.true))
    moved = Term(term.true[order], term.answered[order], term.sets[order], term.genes[order])
    assert two_way_interval([term], balanced_accuracy) == two_way_interval([moved], balanced_accuracy)


def test_intervals_of_scores_stay_between_zero_and_one() -> None:
    for seed in range(10):
        term = _term(seed, n=80, n_sets=6, n_genes=6)
        good = replace(term, answered=np.where(np.arange(80) < 77, term.true, (term.true + 1) % 3))
        interval = two_way_interval([good], accuracy)
        assert 0 < interval.low < interval.value < interval.high < 1


def test_an_absent_class_has_no_value_and_says_so() -> None:
    term = _term(4)
    without = replace(term, true=np.where(term.true == 1, 2, term.true))
    interval = two_way_interval([without], balanced_accuracy)
    assert math.isnan(interval.value)
    assert math.isnan(interval.low)
    assert "class" in interval.note


def test_a_class_in_one_target_set_has_a_value_but_no_interval() -> None:
    term = _term(5)
    alone = replace(term, sets=np.where(term.true == 0, 0, 1 + term.sets))
    interval = two_way_interval([alone], balanced_accuracy)
    assert 0 < interval.value < 1
    assert math.isnan(interval.low)
    assert math.isnan(interval.se)
    assert "one target set" in interval.note


@pytest.mark.parametrize(("way", "name"), [("sets", "target set"), ("genes", "readout gene")])
def test_one_cluster_has_no_interval(way: str, name: str) -> None:
    term = _term(6)
    interval = two_way_interval([replace(term, **{way: np.zeros(len(term.true), dtype=int)})], accuracy)
    assert math.isnan(interval.low)
    assert name in interval.note


def test_no_question_has_no_value() -> None:
    none = np.array([], dtype=np.int64)
    interval = two_way_interval([Term(none, none, none, none)], accuracy)
    assert math.isnan(interval.value)
    assert (interval.n_sets, interval.n_genes) == (0, 0)


def test_the_same_fold_twice_is_no_more_certain_than_once() -> None:
    term = _term(7)
    once = two_way_interval([term], balanced_accuracy)
    twice = two_way_interval([replace(term, weight=0.5), replace(term, weight=0.5)], balanced_accuracy)
    assert twice.value == pytest.approx(once.value, abs=1e-12)
    assert twice.se == pytest.approx(once.se, rel=1e-9)


def test_folds_that_share_nothing_are_more_certain_together() -> None:
    a, b = _term(8), _term(9)
    apart = replace(b, sets=b.sets + 100, genes=b.genes + 100)
    terms = [replace(a, weight=0.5), replace(apart, weight=0.5)]
    expected = math.hypot(two_way_interval([a], accuracy).se, two_way_interval([b], accuracy).se) / 2
    assert two_way_interval(terms, accuracy).se == pytest.approx(expected, rel=0.05)


def test_names_are_coded_alike_in_every_table() -> None:
    clusters = cluster([["B", "A"], ["C", "B"]], [["x", "x"], ["y", "x"]])
    assert [codes.tolist() for codes in clusters.sets] == [[1, 0], [2, 1]]
    assert [codes.tolist() for codes in clusters.genes] == [[0, 0], [1, 0]]


def _benchmark() -> ModuleType:
    file = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
    if not file.is_file():
        pytest.skip("the benchmarks are not beside the tests")
    spec = importlib.util.spec_from_file_location("interval_coverage", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("design", ["spread", "concentrated"])
def test_intervals_cover_what_they_say(design: str) -> None:
    benchmark = _benchmark()
    table = benchmark.coverage(design, 50, 300, bootstrap=False).set_index("method")
    used = table.loc["two-way jackknife, logit (used)", list(benchmark.SCORES)].astype(float)
    # Three standard errors of a coverage over 300 repetitions: 3.8 points.
    assert used.between(91.2, 98.8).all(), used
