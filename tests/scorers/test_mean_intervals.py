"""Two-way intervals of means: the leave-one-out they stand for, and those of confusions where both exist."""

from __future__ import annotations

import numpy as np
import pytest

from pertbase._intervals import Term, two_way_interval
from pertbase._mean_intervals import mean_interval
from pertbase._metrics import accuracy


@pytest.fixture
def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = rng.random(400)
    values[rng.random(400) < 0.1] = np.nan
    return values, rng.integers(0, 20, 400), rng.integers(0, 30, 400)


def test_the_standard_error_is_that_of_leaving_clusters_out(drawn) -> None:  # type: ignore[no-untyped-def]
    values, sets, genes = drawn
    found = mean_interval(values, sets, genes)
    there = ~np.isnan(values)
    kept, mean = values[there], float(np.nanmean(values))
    variances = []
    for side in (sets[there], genes[there]):
        names = np.unique(side)
        without = np.array([kept[side != name].mean() for name in names])
        variances.append((len(names) - 1) / len(names) * ((without - mean) ** 2).sum())
    pairs = sets[there] * 100 + genes[there]
    both = sum(((kept[pairs == pair] - mean).sum() / len(kept)) ** 2 for pair in np.unique(pairs))
    assert found.value == pytest.approx(mean, abs=1e-12)
    assert found.se == pytest.approx(np.sqrt(max(sum(variances) - both, *variances)), rel=1e-10)
    assert (found.n_sets, found.n_genes) == (20, 30)
    assert 0 < found.low < found.value < found.high < 1


def test_of_right_and_wrong_it_is_the_interval_of_accuracy(drawn, rng) -> None:  # type: ignore[no-untyped-def]
    _, sets, genes = drawn
    true, answered = rng.integers(0, 3, 400), rng.integers(0, 3, 400)
    expected = two_way_interval([Term(true, answered, sets, genes)], accuracy)
    found = mean_interval((true == answered).astype(float), sets, genes)
    assert [found.value, found.low, found.high] == pytest.approx(
        [expected.value, expected.low, expected.high], rel=1e-6
    )


def test_a_mean_of_nothing_and_one_of_a_single_cluster_say_so() -> None:
    assert "no question" in mean_interval([np.nan], [0], [0]).note
    lone = mean_interval([0.2, 0.4], [3, 3], [0, 1])
    assert lone.value == pytest.approx(0.3)
    assert np.isnan(lone.low)
    assert "target set" in lone.note
    assert "no width" in mean_interval([0.5] * 4, [0, 0, 1, 1], [0, 1, 0, 1]).note
