from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase._metrics import balanced_accuracy, confusion
from pertbase.adapters._search import best_offsets, best_threshold, matched_offsets, matched_threshold
from pertbase.folds import vote

# Few distinct values, so that ties and empty intervals are common.
EFFECTS = st.lists(
    st.tuples(st.integers(-6, 6).map(lambda number: number / 4), st.integers(0, 2)), min_size=3, max_size=40
)


def score(effects, codes, tau_up, tau_down):
    answered = np.select([effects > tau_up, effects < -tau_down], [0, 1], 2)
    return float(balanced_accuracy(confusion(codes, answered)))


@given(EFFECTS)
@settings(max_examples=300, deadline=None)
def test_the_two_sides_together_reach_the_best_pair_of_thresholds(pairs):
    effects, codes = np.array([e for e, _ in pairs]), np.array([c for _, c in pairs] + [0, 1, 2])
    effects = np.append(effects, [0.3, -0.3, 0.0])
    found = (
        best_threshold(effects, codes == 0, codes == 2),
        best_threshold(-effects, codes == 1, codes == 2),
    )
    assert min(found) >= 0
    grid = np.concatenate([[0.0], np.unique(np.abs(effects)), [9.0]])
    best = max(score(effects, codes, up, down) for up in grid for down in grid)
    assert score(effects, codes, *found) == pytest.approx(best, abs=1e-12)


def test_a_threshold_lies_in_the_middle_of_the_widest_best_interval():
    effects = np.array([0.1, 0.2, 0.9, 1.0])
    hits = np.array([False, False, True, True])
    assert best_threshold(effects, hits, ~hits) == pytest.approx(0.55)
    # [0, .1) and [.3, 1) are equally good: the wider is taken.
    effects = np.array([0.1, 0.3, 1.0])
    assert best_threshold(effects, np.array([True, False, True]), np.array([False, True, False])) == pytest.approx(0.65)


def test_where_calling_does_not_help_nothing_is_called():
    effects = np.array([0.5, 0.5, 0.7, 0.2])
    hits = np.array([True, False, False, True])
    assert best_threshold(effects, hits, ~hits) > 0.7
    constant = np.full(6, 0.4)
    hits = np.arange(6) < 3
    assert best_threshold(constant, hits, ~hits) > 0.4
    assert best_threshold(-constant, hits, ~hits) > 0


def test_neighbouring_floats_are_told_apart():
    low = 0.3
    high = np.nextafter(low, 1.0)
    tau = best_threshold(np.array([low, high]), np.array([False, True]), np.array([True, False]))
    assert low <= tau < high


@given(st.lists(st.integers(-8, 8).map(lambda number: number / 4), min_size=1, max_size=40), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_a_matched_threshold_calls_as_near_the_share_as_ties_and_zero_allow(values, share):
    effects = np.array(values)
    tau = matched_threshold(effects, share)
    possible = [(effects > cut).mean() for cut in [*np.unique(effects[effects >= 0]), 0.0, effects.max()] if cut >= 0]
    best = min(abs(found - share) for found in possible)
    assert tau >= 0
    assert abs((effects > tau).mean() - share) == pytest.approx(best, abs=1e-9)


def test_a_matched_threshold_without_ties_calls_exactly_the_share():
    effects = np.random.default_rng(0).normal(size=1000)
    for share in (0.0, 0.01, 0.2, 0.4):
        assert (effects > matched_threshold(effects, share)).sum() == round(share * 1000)


@pytest.fixture
def scored():
    rng = np.random.default_rng(3)
    codes = rng.choice(3, size=600, p=[0.08, 0.05, 0.87])
    logits = rng.normal(size=(600, 3)) + 1.2 * np.eye(3)[codes] + np.array([0.0, 0.0, 3.0])
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), codes


def test_offsets_come_near_the_best_of_a_fine_grid(scored):
    logs, codes = scored

    def worth(up, down):
        return float(balanced_accuracy(confusion(codes, vote(logs + np.array([up, down, 0.0])))))

    found = worth(*best_offsets(logs, codes))
    grid = np.linspace(-1, 6, 71)
    best = max(worth(up, down) for up in grid for down in grid)
    assert found > worth(0.0, 0.0) + 0.1
    assert found >= best - 0.01


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_offsets_never_lose(seed):
    rng = np.random.default_rng(seed)
    codes = np.append(rng.integers(0, 3, 30), [0, 1, 2])
    logs = np.log(rng.dirichlet(np.ones(3), 33).round(1).clip(1e-12))
    up, down = best_offsets(logs, codes)
    fitted, plain = (float(balanced_accuracy(confusion(codes, vote(logs + shift)))) for shift in ([up, down, 0], 0))
    assert fitted >= plain
    assert fitted > plain or (up, down) == (0.0, 0.0)


def _balanced(logs, codes, offsets):
    return float(balanced_accuracy(confusion(codes, vote(logs + np.append(offsets, 0.0)))))


@given(st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_no_offsets_are_better_where_rows_are_few(seed):
    """Every part of the plane in which answers do not change touches a corner: all places beside corners are tried."""
    rng = np.random.default_rng(seed)
    codes = np.append(rng.choice(3, rng.integers(3, 20), p=[0.2, 0.2, 0.6]), [0, 1, 2])
    logs = np.log(rng.dirichlet(np.ones(3), len(codes))) + rng.exponential(0.5, (len(codes), 1)) * np.eye(3)[codes]
    beside = np.array([-1e-6, 1e-6])
    up, down, between = (
        (logs[:, first] - logs[:, second])[:, None] + width * beside
        for first, second, width in ((2, 0, 1), (2, 1, 1), (1, 0, 2))
    )
    pairs = [(a, b) for a in up.ravel() for b in down.ravel()]
    pairs += [(a, a - c) for a in up.ravel() for c in between.ravel()]
    pairs += [(b + c, b) for b in down.ravel() for c in between.ravel()]
    best = max(_balanced(logs, codes, pair) for pair in pairs)
    assert _balanced(logs, codes, best_offsets(logs, codes)) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("n", [40, 2_000])
@pytest.mark.parametrize("seed", range(5))
def test_a_constant_added_to_an_outcomes_log_scores_changes_no_answer(n, seed):
    """A prior and the same prior divided by class frequencies are one model once offsets are fitted."""
    rng = np.random.default_rng(seed)
    codes = np.append(rng.choice(3, n, p=[0.06, 0.05, 0.89]), [0, 1, 2])
    logs = np.log(rng.dirichlet(np.ones(3), len(codes))) + rng.exponential(0.8, (len(codes), 1)) * np.eye(3)[codes]
    shares = np.bincount(codes, minlength=3)[:2] / len(codes)
    for fit in (lambda given: best_offsets(given, codes), lambda given: matched_offsets(given, shares)):
        plain = vote(logs + np.append(fit(logs), 0.0))
        for shift in ([-3.0, -3.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, 5.0]):
            moved = logs + np.array(shift)
            np.testing.assert_array_equal(vote(moved + np.append(fit(moved), 0.0)), plain)


def test_matched_offsets_answer_as_often_as_the_shares_say(scored):
    logs, _ = scored
    up, down = matched_offsets(logs, np.array([0.1, 0.07]))
    answered = np.bincount(vote(logs + np.array([up, down, 0.0])), minlength=3)
    np.testing.assert_allclose(answered[:2], [60, 42], atol=1)


def test_scores_that_never_differ_are_left_alone():
    logs = np.log(np.tile([0.1, 0.2, 0.7], (50, 1)))
    codes = np.arange(50) % 3
    assert best_offsets(logs, codes) == (0.0, 0.0)
    up, down = matched_offsets(logs, np.array([0.2, 0.2]))
    # By a wide margin: a model refitted on a little more says nearly, not exactly, the same.
    assert (vote(logs + np.array([up + 0.5, down + 0.5, 0.0])) == 2).all()
