"""What a perturbation is to STATE: something of its own, or nothing that it speaks of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from pertbase.baselines.state._features import (
    Described,
    Listed,
    OneHot,
    expression_features,
    read_features,
    set_features,
)
from pertbase.errors import InputError
from pertbase.folds import CellTable, Part, Perturbation

LOWER, RAISE = Perturbation.genetic(["A"], "CRISPRi"), Perturbation.genetic(["A"], "CRISPRa")
PAIR = Perturbation.genetic(["A", "B"], "CRISPRi")
DRUG = Perturbation((Part("drug", (("A", 0), ("B", 1)), "x", 3.0),))
BARE = Perturbation((Part("drug", (), "y"),))
TABLE = Described(pd.Index(["A", "B"]), np.array([[1.0, 2.0], [0.0, 5.0]], dtype=np.float32))


def test_one_hot_has_a_column_a_part_and_adds_them_up():
    features = OneHot.trained([LOWER, RAISE, Perturbation.genetic(["B"], "CRISPRi")])
    assert features.width == 4
    assert features.of(None).tolist() == [1, 0, 0, 0]
    np.testing.assert_array_equal(
        features.of(PAIR), features.of(LOWER) + features.of(Perturbation.genetic(["B"], "CRISPRi"))
    )
    assert not np.array_equal(features.of(LOWER), features.of(RAISE))
    assert features.of(DRUG) is None
    assert features.of(Perturbation.genetic(["C"], "CRISPRi")) is None


def test_targets_have_signs_and_a_drug_its_dose():
    assert TABLE.of(None).tolist() == [1, 0, 0, 0]
    assert TABLE.of(LOWER).tolist() == [0, 0, -1, -2]
    assert TABLE.of(RAISE).tolist() == [0, 0, 1, 2]
    assert TABLE.of(PAIR).tolist() == [0, 0, -1, -7]
    np.testing.assert_allclose(TABLE.of(DRUG), [0, np.log(4), -1, 3], rtol=1e-6)


def test_what_is_not_described_has_no_features_rather_than_zeros():
    assert TABLE.of(BARE) is None
    assert TABLE.of(Perturbation.genetic(["A", "C"], "CRISPRi")) is None


def test_the_closest_description_is_taken():
    rows = pd.Index(["A", "B", "x", "x@3", "drug:x@3", LOWER.name])
    told = Described(rows, np.arange(6, dtype=np.float32)[:, None] + 1)
    assert told.of(DRUG)[2] == 5
    assert Described(rows[:4], told.values[:4]).of(DRUG)[2] == 4
    assert Described(rows[:3], told.values[:3]).of(DRUG)[2] == 3
    assert told.of(LOWER)[2] == 6  # a row of its own has no sign


def test_listed_perturbations_may_leave_out_their_mechanism():
    listed = Listed(pd.Index(["control", "A+B", "CRISPRi:A"]), np.eye(3, dtype=np.float32))
    assert listed.of(None).tolist() == [1, 0, 0]
    assert listed.of(PAIR).tolist() == [0, 1, 0]
    assert listed.of(LOWER).tolist() == [0, 0, 1]
    assert listed.of(RAISE) is None


def test_genes_of_the_same_sets_have_like_features():
    sets = {
        "one": ("A", "B", "C"),
        "two": ("A", "B"),
        "three": ("D", "E"),
        "four": ("D", "E", "F"),
        "all": tuple("ABCDEF"),
    }
    features = set_features(sets, n=3)
    rows = dict(zip(features.names, features.values, strict=True))
    np.testing.assert_allclose(rows["A"], rows["B"], atol=1e-5)
    np.testing.assert_allclose((features.values**2).mean(axis=1), 1, rtol=1e-5)
    assert rows["A"] @ rows["C"] > rows["A"] @ rows["D"]
    np.testing.assert_array_equal(features.values, set_features(sets, n=3).values)


def test_genes_that_vary_together_have_like_features():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(200, 2))
    values = np.maximum(3 + common[:, [0, 0, 1, 1]] + 0.1 * rng.normal(size=(200, 4)), 0)
    values = np.column_stack([values, np.ones(200)]).astype(np.float32)
    obs = pd.DataFrame({"context": ["K"] * 200})
    features = expression_features(CellTable(values, obs, pd.Index([*"ABCD", "constant"])), n=2)
    rows = dict(zip(features.names, features.values, strict=True))
    assert "constant" not in rows
    assert rows["A"] @ rows["B"] > 1.9
    assert abs(rows["A"] @ rows["C"]) < 0.5


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".pt"])
def test_features_are_read_from_every_format(suffix, tmp_path):
    table = pd.DataFrame({"one": [0.5, 1.5], "two": [2.0, 3.0]}, index=pd.Index(["A", "NA"], name="name"))
    path = tmp_path / f"features{suffix}"
    if suffix == ".parquet":
        table.to_parquet(path)
    elif suffix == ".pt":
        torch.save({name: torch.tensor(row.to_numpy()) for name, row in table.iterrows()}, path)
    else:
        table.to_csv(path, sep="," if suffix == ".csv" else "\t")
    features = read_features(path)
    assert list(features.names) == ["A", "NA"]
    np.testing.assert_array_equal(features.values, table.to_numpy(dtype=np.float32))


class Dangerous:
    def __reduce__(self):
        return (pytest.fail, ("the file was run",))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "name,one\nA,1\nA,2\n", "two rows"),
        ("a.csv", "name,one\nA,x\n", "something else than numbers"),
        ("a.csv", "name,one\nA,\n", "NaN"),
        ("a.csv", "name\nA\n", "no features"),
        ("a.csv", "", "cannot be read"),
        ("a.xlsx", "", "no table of features"),
        ("a.parquet", "name", "cannot be read"),
        ("a.pt", "nothing", "no file of tensors"),
        ("absent.csv", None, "absent.csv"),
    ],
)
def test_a_file_that_holds_no_features_is_told(name, content, told, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=told):
        read_features(path)


def test_nothing_in_a_file_of_tensors_is_run(tmp_path):
    torch.save({"A": Dangerous()}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="more than that"):
        read_features(tmp_path / "a.pt")
