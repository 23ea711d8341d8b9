from __future__ import annotations

import numpy as np
import pytest

from pertbase.baselines import DrugTarget, refusal
from pertbase.errors import InputError
from pertbase.folds import Part, Perturbation


def drug(name, **targets):
    return Perturbation((Part("drug", tuple(targets.items()), compound=name),))


def genetic(gene, mechanism):
    return Perturbation.genetic([gene], mechanism)


TRAINED = {
    ("K", genetic("A", "CRISPRi")): [1.0, 0.0],
    ("L", genetic("A", "CRISPR-KO")): [3.0, 2.0],
    ("K", genetic("B", "CRISPRa")): [0.0, 4.0],
    ("L", genetic("C", "CRISPRi")): [5.0, 5.0],
    ("K", genetic("C", "CRISPRa")): [7.0, 7.0],
}


@pytest.fixture
def predict(small_fold):
    def predict(context, perturbation, **options):
        rows = [(place, item, "train") for place, item in TRAINED]
        values = np.array([*TRAINED.values(), [0.0, 0.0]])
        fold = small_fold([*rows, (context, perturbation, "test")], values, kind="genetic_to_chemical")
        effects = DrugTarget(**options).fit(fold.training).predict(fold.inputs)
        return effects.values[0].tolist(), effects.status[0]

    return predict


def test_an_inhibitor_takes_the_effect_of_the_knock_down_in_the_same_context(predict):
    assert predict("K", drug("d", A=-1)) == ([1.0, 0.0], "ok")
    assert predict("L", drug("d", A=-1)) == ([3.0, 2.0], "ok")


def test_a_new_context_takes_the_mean_over_the_others(predict):
    assert predict("M", drug("d", A=-1)) == ([2.0, 1.0], "ok")


def test_an_unknown_sign_counts_as_inhibition(predict):
    assert predict("K", drug("d", A=0)) == predict("K", drug("d", A=-1))


def test_where_only_the_opposite_was_done_the_sign_turns(predict):
    assert predict("K", drug("d", A=1)) == ([-1.0, 0.0], "ok")
    assert predict("K", drug("d", B=-1)) == ([0.0, -4.0], "ok")
    assert predict("K", drug("d", B=1)) == ([0.0, 4.0], "ok")


def test_the_same_sign_elsewhere_goes_before_the_opposite_here(predict):
    assert predict("K", drug("d", C=-1)) == ([5.0, 5.0], "ok")
    assert predict("L", drug("d", C=1)) == ([7.0, 7.0], "ok")


def test_several_targets_are_averaged_or_added(predict):
    both = drug("d", A=-1, B=1)
    assert predict("K", both) == ([0.5, 2.0], "ok")
    assert predict("K", both, combine="sum") == ([1.0, 4.0], "ok")
    with pytest.raises(InputError, match="mean or sum"):
        DrugTarget(combine="max")


def test_targets_never_perturbed_are_left_out_and_none_left_is_unsupported(predict):
    assert predict("K", drug("d", A=-1, Z=-1)) == ([1.0, 0.0], "ok")
    assert predict("K", drug("d", Z=-1)) == ([0.0, 0.0], "unsupported")
    assert predict("K", drug("d")) == ([0.0, 0.0], "unsupported")


def test_folds_without_single_genetic_perturbations_are_refused(small_fold):
    rows = [("K", drug("d", A=-1), "train"), ("K", drug("e", A=-1), "test")]
    fold = small_fold(rows, np.zeros((2, 2)), kind="unseen_perturbation_chemical")
    assert "no genetic perturbation of a single target" in refusal(DrugTarget(), fold.training)
    rows = [("K", genetic("A", "CRISPRi"), "train"), ("K", genetic("B", "CRISPRi"), "test")]
    fold = small_fold(rows, np.zeros((2, 2)), kind="unseen_perturbation_genetic")
    assert "holds out every target" in refusal(DrugTarget(), fold.training)
