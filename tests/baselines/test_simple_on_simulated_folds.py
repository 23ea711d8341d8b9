"""What the simple baselines are for, seen on the simulated screen."""

from __future__ import annotations

import pytest

from pertbase._metrics import balanced_accuracy, confusion
from pertbase.adapters import Calibrated
from pertbase.baselines import Additive, BilinearRidge, ContextMean, CrossContext, DrugTarget, GenePrior, MatchingMean
from pertbase.folds import FoldMaker, FoldSpec, outcome_codes
from pertbase.simulate import simulate_screen

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def maker():
    return FoldMaker(simulate_screen(seed=0).screen)


def calibrated(fold, baseline):
    """Return the balanced accuracy on test of the calibrated baseline."""
    training = fold.make_training(seed=0, cells=False)
    inputs = fold.inputs("test", cells=False)
    baseline.fit(training)
    said = baseline.answer(inputs) if baseline.answers_directly(training) else baseline.predict(inputs)
    table = Calibrated().fit(training, baseline).answer(inputs, said).table.set_index("id")
    known = fold.truth.questions.dropna(subset="outcome")
    answered = outcome_codes(table.loc[known["id"], "outcome"])
    return float(balanced_accuracy(confusion(outcome_codes(known["outcome"]), answered)))


def test_copying_from_other_contexts_beats_the_prior_in_an_unseen_context(maker):
    fold = maker.make(FoldSpec(kind="unseen_context_genetic"))
    assert calibrated(fold, CrossContext()) > calibrated(fold, GenePrior()) + 0.1
    assert calibrated(fold, DrugTarget()) > calibrated(fold, ContextMean()) + 0.1


def test_parts_beat_the_mean_on_combinations(maker):
    fold = maker.make(FoldSpec(kind="combinatorial"))
    mean = calibrated(fold, ContextMean())
    assert calibrated(fold, Additive()) > mean + 0.1
    assert calibrated(fold, MatchingMean()) > mean + 0.1
    assert calibrated(fold, BilinearRidge()) > mean
