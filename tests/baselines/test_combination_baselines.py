from __future__ import annotations

import numpy as np
import pytest

from pertbase.baselines import Additive, MatchingMean
from pertbase.folds import Perturbation

A, B, C = (Perturbation.genetic([gene], "CRISPRi") for gene in "ABC")
AB, AC, AD = (Perturbation.genetic(genes, "CRISPRi") for genes in ("AB", "AC", "AD"))
ACTIVATED = Perturbation.genetic(["A"], "CRISPRa")


@pytest.fixture
def fold(small_fold):
    rows = [
        ("K", A, "train"),
        ("K", B, "train"),
        ("L", A, "train"),
        ("L", C, "val"),
        ("K", AC, "train"),
        ("K", AB, "test"),
        ("K", AD, "test"),
        ("L", AB, "test"),
        ("K", C, "test"),
        ("M", A, "test"),
        ("K", ACTIVATED, "test"),
        ("M", AD, "test"),
    ]
    measured = np.array([[1.0, 0.0], [2.0, 4.0], [3.0, 1.0], [-1.0, 5.0], [70.0, 90.0]])
    return small_fold(rows, np.vstack([measured, np.zeros((7, 2))]), kind="combinatorial")


EXPECTED_PARTS = {
    # Both seen in K.
    ("K", AB.name): [[1.0, 0.0], [2.0, 4.0]],
    # D never: the mean of K's singles, doubles left out.
    ("K", AD.name): [[1.0, 0.0], [1.5, 2.0]],
    # A in L; B only in K.
    ("L", AB.name): [[3.0, 1.0], [2.0, 4.0]],
    # C only in L.
    ("K", C.name): [[-1.0, 5.0]],
    # M is new: the mean of A over K and L.
    ("M", A.name): [[2.0, 0.5]],
    # Another mechanism is another part.
    ("K", ACTIVATED.name): [[1.5, 2.0]],
    # New context and unseen part: A elsewhere, and the mean of all four singles.
    ("M", AD.name): [[2.0, 0.5], [1.25, 2.5]],
}


@pytest.mark.parametrize("condition", EXPECTED_PARTS)
def test_additive_is_the_sum_and_matching_mean_the_mean_of_the_parts(condition, fold):
    parts = np.array(EXPECTED_PARTS[condition])
    for baseline, expected in ((Additive(), parts.sum(axis=0)), (MatchingMean(), parts.mean(axis=0))):
        frame = baseline.fit(fold.training).predict(fold.inputs).frame()
        np.testing.assert_allclose(frame.loc[condition], expected)


def test_additive_recovers_what_is_additive(small_fold):
    rng = np.random.default_rng(0)
    genes = list("ABCDEFGH")
    single = {gene: rng.normal(size=20) for gene in genes}
    singles = [("K", Perturbation.genetic([gene], "CRISPRa"), "train") for gene in genes]
    pairs = [(first, second) for n, first in enumerate(genes) for second in genes[n + 1 :]]
    doubles = [("K", Perturbation.genetic(pair, "CRISPRa"), "test") for pair in pairs]
    values = np.array([single[gene] for gene in genes] + [single[a] + single[b] for a, b in pairs])
    fold = small_fold([*singles, *doubles], values, kind="combinatorial")
    predicted = Additive().fit(fold.training).predict(fold.inputs)
    np.testing.assert_allclose(predicted.values, values[len(genes) :], atol=1e-12)


def test_without_singles_the_mean_of_all_conditions_stands_in(small_fold):
    rows = [("K", AB, "train"), ("K", AC, "train"), ("K", AD, "test")]
    fold = small_fold(rows, np.array([[1.0], [3.0], [0.0]]), kind="combinatorial")
    assert Additive().fit(fold.training).predict(fold.inputs).values.tolist() == [[4.0]]
    assert MatchingMean().fit(fold.training).predict(fold.inputs).values.tolist() == [[2.0]]
