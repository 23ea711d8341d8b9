from __future__ import annotations

import numpy as np
import pytest

from pertbase.baselines import KnnGO, refusal
from pertbase.errors import InputError
from pertbase.folds import Part, Perturbation

SETS = {"AB": ("A", "B"), "ABC": ("A", "B", "C"), "CD": ("C", "D"), "E": ("E",), "F": ("F",)}
EFFECTS = {"A": [1.0, 0.0], "C": [0.0, 2.0], "E": [4.0, 4.0]}


def single(gene, mechanism="CRISPRi"):
    return Perturbation.genetic([gene], mechanism)


def drug(name, **targets):
    return Perturbation((Part("drug", tuple(targets.items()), compound=name),))


def profile(*genes):
    """Return the profile of targets that are all lowered, by hand."""
    n_genes = len({gene for members in SETS.values() for gene in members})
    vector = np.array(
        [
            -sum(gene in members for gene in genes) * (np.log(n_genes) - np.log(len(members)))
            for members in SETS.values()
        ]
    )
    return vector / np.linalg.norm(vector)


@pytest.fixture
def predict(small_fold):
    def predict(asked, *, trained=None, context="K", sets=SETS, **options):
        trained = trained or {("K", single(gene)): effect for gene, effect in EFFECTS.items()}
        rows = [(place, item, "train") for place, item in trained]
        fold = small_fold([*rows, (context, asked, "test")], np.array([*trained.values(), [0.0, 0.0]]), gene_sets=sets)
        effects = KnnGO(**options).fit(fold.training).predict(fold.inputs)
        return effects.values[0], effects.status[0]

    return predict


def test_the_nearest_perturbation_lends_its_effect(predict):
    values, status = predict(single("B"), n_neighbours=1)
    assert (values.tolist(), status) == ([1.0, 0.0], "ok")


def test_neighbours_are_weighted_by_the_cosine_of_their_profiles(predict):
    values, _ = predict(single("B"))
    a, c = profile("B") @ profile("A"), profile("B") @ profile("C")
    expected = (a * np.array([1.0, 0.0]) + c * np.array([0.0, 2.0])) / (a + c)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_raising_turns_the_effect_of_lowering(predict):
    lowered, _ = predict(single("B"))
    raised, _ = predict(single("B", "CRISPRa"))
    np.testing.assert_array_equal(raised, -lowered)
    np.testing.assert_array_equal(predict(drug("d", B=-1))[0], lowered)
    np.testing.assert_array_equal(predict(drug("d", B=0))[0], lowered)


def test_the_same_direction_goes_before_the_opposite(predict):
    trained = {("K", single("A", "CRISPRa")): [8.0, 8.0], ("K", single("C")): [0.0, 2.0]}
    assert predict(single("B"), trained=trained)[0].tolist() == [0.0, 2.0]
    assert predict(single("B", "CRISPRa"), trained=trained)[0].tolist() == [8.0, 8.0]


def test_several_targets_add_their_sets(predict):
    values, _ = predict(drug("d", B=-1, E=-1), n_neighbours=2)
    a, e = profile("B", "E") @ profile("A"), profile("B", "E") @ profile("E")
    np.testing.assert_allclose(values, (a * np.array(EFFECTS["A"]) + e * np.array(EFFECTS["E"])) / (a + e), rtol=1e-12)


def test_targets_in_no_set_or_sharing_none_are_unsupported(predict):
    for asked in (single("Z"), single("F"), drug("d")):
        values, status = predict(asked)
        assert (values.tolist(), status) == ([0.0, 0.0], "unsupported")


def test_the_same_context_goes_before_the_mean_over_the_others(predict):
    trained = {("K", single("A")): [1.0, 0.0], ("L", single("A")): [3.0, 2.0]}
    assert predict(single("B"), trained=trained, context="L")[0].tolist() == [3.0, 2.0]
    assert predict(single("B"), trained=trained, context="M")[0].tolist() == [2.0, 1.0]


def test_ties_go_by_name(predict):
    trained = {("K", single("D")): [7.0, 0.0], ("K", single("C")): [1.0, 1.0]}
    sets = {"ALL": ("A", "C", "D"), "OTHER": ("E",)}
    assert predict(single("A"), trained=trained, sets=sets, n_neighbours=1)[0].tolist() == [1.0, 1.0]


def test_a_set_of_every_gene_says_nothing(predict):
    assert predict(single("B"), sets={"ALL": ("A", "B", "C", "E")})[1] == "unsupported"


def test_folds_whose_targets_are_in_no_set_are_refused_by_name(small_fold):
    rows = [("K", single("A"), "train"), ("K", single("B"), "test")]
    training = small_fold(rows, np.zeros((2, 2)), gene_sets={"S": ("X", "Y")}).training
    assert "for example A" in refusal(KnnGO(), training)
    assert refusal(KnnGO(), small_fold(rows, np.zeros((2, 2)), gene_sets=SETS).training) is None


def test_named_sets_win_over_those_of_the_data_set(small_fold, tmp_path):
    (tmp_path / "mine.gmt").write_text("S\t\tA\tB\nT\t\tC\n", encoding="utf-8")
    rows = [("K", single("A"), "train"), ("K", single("B"), "test")]
    training = small_fold(rows, np.ones((2, 2)), gene_sets={"S": ("X", "Y"), "T": ("Z",)}).training
    assert refusal(KnnGO(), training) is not None
    assert refusal(KnnGO(gene_sets=str(tmp_path / "mine.gmt")), training) is None


def test_there_is_at_least_one_neighbour():
    with pytest.raises(InputError, match="at least one neighbour"):
        KnnGO(n_neighbours=0)
