from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pertbase import _metrics as metrics

CONFUSIONS = arrays(np.int64, (3, 4), elements=st.integers(0, 40))


def _coded(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.choice(3, n, p=[0.1, 0.05, 0.85]), rng.choice(4, n, p=[0.2, 0.1, 0.6, 0.1])


@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_those_of_scikit_learn_with_missing_outcomes_kept(seed: int) -> None:
    from sklearn import metrics as reference

    true, answered = _coded(np.random.default_rng(seed), 500)
    counts = metrics.confusion(true, answered)
    kept = {"labels": [0, 1, 2], "zero_division": 0}
    for ours, theirs in (
        (metrics.accuracy(counts), reference.accuracy_score(true, answered)),
        (metrics.balanced_accuracy(counts), reference.recall_score(true, answered, average="macro", **kept)),
        (metrics.macro_f1(counts), reference.f1_score(true, answered, average="macro", **kept)),
        (metrics.micro_f1(counts), reference.f1_score(true, answered, average="micro", **kept)),
        (metrics.weighted_f1(counts), reference.f1_score(true, answered, average="weighted", **kept)),
        (metrics.f1(counts), reference.f1_score(true, answered, average=None, **kept)),
        (metrics.precision(counts), reference.precision_score(true, answered, average=None, **kept)),
        (metrics.recall(counts), reference.recall_score(true, answered, average=None, **kept)),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_an_outcome_never_answered_and_one_never_true_follow_zero_division_of_zero() -> None:
    from sklearn import metrics as reference

    true, answered = np.array([0, 0, 2, 2]), np.array([0, 2, 2, 3])
    counts = metrics.confusion(true, answered)
    kept = {"labels": [0, 1, 2], "zero_division": 0}
    np.testing.assert_allclose(metrics.f1(counts), reference.f1_score(true, answered, average=None, **kept))
    np.testing.assert_allclose(
        metrics.precision(counts), reference.precision_score(true, answered, average=None, **kept)
    )
    assert np.isnan(metrics.balanced_accuracy(counts))


def test_an_answer_without_an_outcome_is_never_a_fourth_class() -> None:
    silent = metrics.confusion(np.array([0, 1, 2, 2]), np.array([0, 1, 2, 3]))
    assert metrics.macro_f1(silent) == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert metrics.balanced_accuracy(silent) == pytest.approx((1 + 1 + 0.5) / 3)


def test_negative_codes_are_answers_without_an_outcome() -> None:
    true = np.array([0, 1, 2])
    np.testing.assert_array_equal(
        metrics.confusion(true, np.array([-1, 1, -1])), metrics.confusion(true, np.array([3, 1, 3]))
    )


@given(CONFUSIONS)
def test_silence_never_scores_better_than_a_wrong_answer_is_recalled(counts: np.ndarray) -> None:
    silenced = counts.copy()
    for row in range(3):
        for column in range(3):
            if row != column:
                silenced[row, 3] += counts[row, column]
                silenced[row, column] = 0
    np.testing.assert_allclose(metrics.recall(silenced), metrics.recall(counts))
    np.testing.assert_array_equal(metrics.accuracy(silenced), metrics.accuracy(counts))


@given(CONFUSIONS)
def test_every_number_lies_between_zero_and_one_or_is_nan(counts: np.ndarray) -> None:
    for metric in (
        metrics.accuracy,
        metrics.balanced_accuracy,
        metrics.micro_f1,
        metrics.macro_f1,
        metrics.weighted_f1,
    ):
        value = float(metric(counts))
        assert np.isnan(value) or 0 <= value <= 1
    absent = (counts.sum(1) == 0).any()
    assert np.isnan(metrics.balanced_accuracy(counts)) == absent


@given(arrays(np.int64, (3, 3, 4), elements=st.integers(0, 9)))
def test_leading_axes_are_handled_one_by_one(stack: np.ndarray) -> None:
    for metric in (metrics.accuracy, metrics.balanced_accuracy, metrics.macro_f1, metrics.micro_f1, metrics.f1):
        np.testing.assert_array_equal(metric(stack), np.stack([metric(counts) for counts in stack]))


def test_confusions_of_groups_sum_to_the_whole() -> None:
    rng = np.random.default_rng(3)
    true, answered = _coded(rng, 300)
    parts = metrics.confusion_by(rng.integers(0, 7, 300), 8, true, answered)
    assert parts.shape == (8, 3, 4)
    assert not parts[7].any()
    np.testing.assert_array_equal(parts.sum(0), metrics.confusion(true, answered))


def test_per_gene_auroc_is_that_of_scikit_learn_with_ties() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    genes, true = rng.integers(0, 40, 1500), rng.choice(3, 1500, p=[0.1, 0.1, 0.8])
    scores = rng.integers(1, 6, (1500, 3)).astype(float)
    scores /= scores.sum(1, keepdims=True)
    called, direction = [], []
    for gene in range(40):
        here = genes == gene
        if len(np.unique(true[here] != 2)) == 2:
            called.append(roc_auc_score(true[here] != 2, -scores[here, 2]))
        either = here & (true != 2)
        if len(np.unique(true[either])) == 2:
            logs = np.log(scores[either])
            direction.append(roc_auc_score(true[either] == 0, logs[:, 0] - logs[:, 1]))
    ours = metrics.gene_auroc_called(genes, true, scores)
    assert ours.value == pytest.approx(np.mean(called), abs=1e-12)
    assert (ours.n_genes, ours.n_genes_asked) == (len(called), 40)
    ours = metrics.gene_auroc_direction(genes, true, scores)
    assert ours.value == pytest.approx(np.mean(direction), abs=1e-12)
    assert ours.n_genes == len(direction)


def test_a_prior_over_genes_has_a_per_gene_auroc_of_one_half() -> None:
    rng = np.random.default_rng(1)
    genes, true = rng.integers(0, 20, 800), rng.choice(3, 800)
    prior = rng.dirichlet(np.ones(3), 20)[genes]
    assert metrics.gene_auroc_called(genes, true, prior).value == 0.5
    assert metrics.gene_auroc_direction(genes, true, prior).value == 0.5


def test_tiny_scores_keep_their_order() -> None:
    genes, true = np.zeros(4, dtype=int), np.array([0, 0, 2, 2])
    tiny = np.array([1e-300, 1e-200, 1e-100, 1e-50])
    scores = np.column_stack([1 - tiny, np.zeros(4), tiny])
    assert metrics.gene_auroc_called(genes, true, scores).value == 1.0
    direction = np.column_stack([tiny, tiny[::-1], 1 - tiny])
    assert metrics.gene_auroc_direction(genes, np.array([1, 1, 0, 0]), direction).value == 1.0


def test_a_missing_score_loses_every_comparison() -> None:
    genes, true = np.zeros(4, dtype=int), np.array([0, 0, 2, 2])
    scores = np.array([[0.8, 0.1, 0.1], [np.nan] * 3, [0.1, 0.1, 0.8], [np.nan] * 3])
    assert metrics.gene_auroc_called(genes, true, scores).value == 0.25


def test_without_a_gene_of_both_classes_there_is_no_auroc() -> None:
    found = metrics.gene_auroc(np.array([0, 1]), np.array([True, False]), np.array([0.1, 0.2]))
    assert np.isnan(found.value)
    assert (found.n_genes, found.n_genes_asked) == (0, 2)
    assert metrics.gene_auroc(np.array([], dtype=int), [], []).n_genes_asked == 0


@pytest.mark.slow
def test_five_million_questions_take_seconds() -> None:
    rng = np.random.default_rng(0)
    n = 5_000_000
    genes, true = rng.integers(0, 5000, n), rng.choice(3, n, p=[0.07, 0.07, 0.86])
    scores = rng.random((n, 3))
    start = time.process_time()
    metrics.confusion(true, true)
    assert metrics.gene_auroc_called(genes, true, scores).value == pytest.approx(0.5, abs=0.01)
    assert metrics.gene_auroc_direction(genes, true, scores).value == pytest.approx(0.5, abs=0.01)
    assert time.process_time() - start < 15
