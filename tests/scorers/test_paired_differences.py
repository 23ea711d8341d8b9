from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pertbase import scorers
from pertbase.errors import InputError
from pertbase.folds import Answers


def _scarce(truth):
    gone = truth.questions.index[truth.questions["outcome"] == "up"][3:]
    return replace(truth, questions=truth.questions.drop(index=gone))


def _known(answers, truth):
    return Answers(answers.table[answers.table["id"].isin(truth.questions["id"])])


def test_a_baseline_does_not_differ_from_itself(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    difference = scorers.compare(answers, answers, truth)
    for interval in (difference.balanced_accuracy, difference.accuracy):
        assert (interval.value, interval.low, interval.high, interval.se) == (0, 0, 0, 0)
        assert "no width" in interval.note
    assert difference.n == scorers.outcome(answers, truth).n


def test_a_difference_is_that_of_the_two_scores_and_turns_its_sign(rng, make_fold) -> None:
    truth, a = make_fold(rng, right=0.7)
    b = make_fold(np.random.default_rng(0), right=0.4)[1]
    one, other = scorers.outcome(a, truth), scorers.outcome(b, truth)
    there, back = scorers.compare(a, b, truth), scorers.compare(b, a, truth)
    for name in ("balanced_accuracy", "accuracy"):
        forth = getattr(there, name)
        assert forth.value == pytest.approx(getattr(one, name).value - getattr(other, name).value, abs=1e-12)
        assert getattr(back, name).value == pytest.approx(-forth.value, abs=1e-12)
        assert getattr(back, name).se == pytest.approx(forth.se, rel=1e-9)
        assert getattr(back, name).low == pytest.approx(-forth.high, abs=1e-12)


def test_what_two_baselines_share_is_not_in_their_difference(rng, make_fold) -> None:
    truth, a = make_fold(rng)
    table = a.table.copy()
    few = table.index[table["status"] == "ok"][:20]
    table.loc[few, "outcome"] = "no_change"
    difference = scorers.compare(a, Answers(table), truth)
    assert 0 < difference.accuracy.se < 0.3 * scorers.outcome(a, truth).accuracy.se


def test_a_mean_over_folds_is_plain_whatever_their_size(rng, make_fold) -> None:
    small = make_fold(rng, n_sets=10, right=0.9, name="small")
    large = make_fold(rng, n_sets=60, right=0.3, name="large")
    mean = scorers.average([(answers, truth) for truth, answers in (small, large)])
    each = [scorers.outcome(answers, truth) for truth, answers in (small, large)]
    expected = np.mean([scores.balanced_accuracy.value for scores in each])
    assert mean.balanced_accuracy.value == pytest.approx(expected, abs=1e-12)
    assert mean.n == sum(scores.n for scores in each)
    assert (mean.n_folds, mean.n_dropped) == (2, 0)
    assert mean.balanced_accuracy.n_sets == 60


def test_a_fold_asked_twice_is_as_certain_as_once(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    once = scorers.outcome(answers, truth).balanced_accuracy
    twice = scorers.average([(answers, truth), (answers, truth)]).balanced_accuracy
    assert twice.se == pytest.approx(once.se, rel=1e-9)


def test_folds_without_balanced_accuracy_are_dropped_and_counted(rng, make_fold) -> None:
    truth, answers = make_fold(rng, name="a")
    other, others = make_fold(rng, name="b")
    scarce = _scarce(other)
    mean = scorers.average([(answers, truth), (_known(others, scarce), scarce)])
    alone = scorers.outcome(answers, truth)
    assert mean.balanced_accuracy.value == pytest.approx(alone.balanced_accuracy.value, abs=1e-12)
    assert mean.balanced_accuracy.low == pytest.approx(alone.balanced_accuracy.low, abs=1e-9)
    assert (mean.n_folds, mean.n_dropped) == (2, 1)
    assert any("1 of 2 folds" in note for note in mean.notes)
    assert mean.accuracy.value != pytest.approx(alone.accuracy.value, abs=1e-6)


def test_with_every_fold_dropped_there_is_no_mean(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    scarce = _scarce(truth)
    known = _known(answers, scarce)
    for found in (scorers.average([(known, scarce)]), scorers.compare(known, known, scarce)):
        assert math.isnan(found.balanced_accuracy.value)
        assert found.n_dropped == 1
        assert "not ranked" in found.balanced_accuracy.note


def test_a_difference_over_folds_is_the_mean_of_theirs(rng, make_fold) -> None:
    folds = []
    for name in ("a", "b", "c"):
        truth, a = make_fold(rng, name=name)
        folds.append((a, Answers(a.table.assign(outcome="no_change", status="ok")), truth))
    together = scorers.compare_many(folds)
    each = [scorers.compare(*fold).balanced_accuracy.value for fold in folds]
    assert together.balanced_accuracy.value == pytest.approx(np.mean(each), abs=1e-12)
    assert together.n_folds == 3


def test_simulated_and_real_folds_are_never_averaged(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    with pytest.raises(InputError, match="simulated and real"):
        scorers.average([(answers, truth), (answers, replace(truth, simulated=True))])
    with pytest.raises(InputError, match="no fold"):
        scorers.average([])


def test_a_difference_reads_well_and_becomes_plain(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    difference = scorers.compare(answers, answers, truth)
    assert repr(difference).startswith("PairedDifference: ")
    assert difference.to_dict()["balanced_accuracy"]["value"] == 0
    assert difference.to_dict()["notes"] == list(difference.notes)
