"""The rank-sum test equals scipy's and scanpy's, however the matrix is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.stats import mannwhitneyu

from pertbase.errors import InputError
from pertbase.folds._ranksum import group_means, group_moments, rank_sum

FORMS = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "array": sparse.csr_array, "dense": np.asarray}


def cells(rng: np.random.Generator, n_cells: int, n_genes: int, dtype: Any = np.float32) -> np.ndarray:
    """Log1p of counts from silent to abundant genes: many ties, many zeros, one constant gene that is not zero."""
    values = np.log1p(rng.poisson(np.geomspace(0.01, 20, n_genes), size=(n_cells, n_genes)))
    values[:, 0], values[:, 1] = 0.0, 0.5
    return values.astype(dtype)


def by_scipy(X: np.ndarray, reference: np.ndarray, group: np.ndarray) -> np.ndarray:
    X = X.astype(np.float64)  # scipy's p-values are float32 for float32 data
    with np.errstate(invalid="ignore", divide="ignore"):
        p_value = mannwhitneyu(X[group], X[reference], method="asymptotic", use_continuity=False).pvalue
    # scipy has NaN for a constant gene; it carries no evidence.
    return np.nan_to_num(p_value, nan=1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("form", FORMS)
def test_p_values_equal_scipys_on_data_full_of_ties(form: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = cells(rng, 230, 25, dtype)
    order = rng.permutation(230)
    reference, members = order[:80], [order[80:83], order[83:150], order[150:220]]
    result = rank_sum(FORMS[form](X), reference=reference, members=members)
    for p_value, group in zip(result.p_value, members, strict=True):
        np.testing.assert_allclose(p_value, by_scipy(X, reference, group), rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    X=hnp.arrays(
        np.float32,
        st.tuples(st.integers(2, 25), st.integers(1, 3)),
        elements=st.sampled_from([0.0, 0.25, 1.0, 1.0000001, 7.5]),
    ),
    data=st.data(),
)
def test_p_values_equal_scipys_for_any_values_and_sizes(X: np.ndarray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(X) - 1))
    reference, group = np.arange(cut), np.arange(cut, len(X))
    for form in (np.asarray, sparse.csr_matrix):
        p_value = rank_sum(form(X), reference=reference, members=[group]).p_value[0]
        np.testing.assert_allclose(p_value, by_scipy(X, reference, group), rtol=1e-9)


def test_z_is_positive_where_the_group_lies_above_and_changes_sign_with_the_roles() -> None:
    rng = np.random.default_rng(1)
    X = cells(rng, 60, 12)
    X[:20, 5:] += 1
    high, low = np.arange(20), np.arange(20, 60)
    z = rank_sum(X, reference=low, members=[high]).z
    assert (z[0, 5:] > 2).all()
    np.testing.assert_allclose(rank_sum(X, reference=high, members=[low]).z, -z, atol=1e-12)


def test_constant_genes_have_z_zero_and_p_one() -> None:
    X = cells(np.random.default_rng(2), 50, 5)
    result = rank_sum(X, reference=np.arange(20), members=[np.arange(20, 50)])
    np.testing.assert_array_equal(result.z[0, :2], 0.0)
    np.testing.assert_array_equal(result.p_value[0, :2], 1.0)


def test_a_groups_result_does_not_depend_on_the_other_groups() -> None:
    rng = np.random.default_rng(3)
    X = sparse.csr_matrix(cells(rng, 120, 15))
    reference, members = np.arange(40), [np.arange(40, 60), np.arange(50, 90), np.arange(90, 120)]
    together = rank_sum(X, reference=reference, members=members)
    for number, group in enumerate(members):
        alone = rank_sum(X, reference=reference, members=[group])
        np.testing.assert_array_equal(alone.z[0], together.z[number])


def test_stored_zeros_count_as_zeros() -> None:
    X = sparse.csr_matrix(cells(np.random.default_rng(4), 60, 10))
    stored = X.copy()
    stored.data[::3] = 0
    rows = {"reference": np.arange(25), "members": [np.arange(25, 60)]}
    np.testing.assert_array_equal(rank_sum(stored, **rows).z, rank_sum(stored.toarray(), **rows).z)


def test_a_dense_matrix_wider_than_one_block_is_tested_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    X = cells(np.random.default_rng(5), 40, 30)
    rows = {"reference": np.arange(15), "members": [np.arange(15, 40)]}
    whole = rank_sum(X, **rows).z
    means = group_moments(X, rows["members"]).mean_log
    monkeypatch.setattr("pertbase.folds._ranksum._BLOCK_ENTRIES", 170)
    np.testing.assert_array_equal(rank_sum(X, **rows).z, whole)
    np.testing.assert_allclose(group_moments(X, rows["members"]).mean_log, means, rtol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_moments_are_the_plain_ones_in_double_precision(form: str) -> None:
    X = cells(np.random.default_rng(6), 90, 20)
    members = [np.arange(5), np.arange(5, 90)]
    moments = group_moments(FORMS[form](X), members)
    for number, rows in enumerate(members):
        part = X[rows].astype(np.float64)
        np.testing.assert_allclose(moments.mean_log[number], part.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(moments.var_log[number], part.var(axis=0, ddof=1), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(moments.mean_count[number], np.expm1(part).mean(axis=0), rtol=1e-12)
    mean_log, mean_count = group_means(FORMS[form](X), members)
    np.testing.assert_array_equal(mean_log, moments.mean_log)
    np.testing.assert_array_equal(mean_count, moments.mean_count)


def test_a_single_cell_has_no_variance() -> None:
    moments = group_moments(np.ones((2, 3), dtype=np.float32), [np.array([0])])
    assert np.isnan(moments.var_log).all()


@pytest.mark.parametrize("value", [-0.5, np.nan])
@pytest.mark.parametrize("form", ["csr", "dense"])
def test_negative_values_and_nan_are_refused(form: str, value: float) -> None:
    X = np.ones((6, 2), dtype=np.float32)
    X[4, 1] = value
    with pytest.raises(InputError, match="non-negative and without NaN"):
        rank_sum(FORMS[form](X), reference=np.arange(3), members=[np.arange(3, 6)])


@pytest.mark.parametrize(
    ("reference", "members", "problem"),
    [
        ([], [[1, 2]], "reference: has no cells"),
        ([0, 1], [[2], []], r"members\[1\]: has no cells"),
        ([0, 1], [[2, 3], [1, 4]], r"members\[1\]: shares 1 cells with the reference"),
    ],
)
def test_empty_and_overlapping_groups_are_refused(reference: list[int], members: list[list[int]], problem: str) -> None:
    groups = [np.array(rows, dtype=int) for rows in members]
    with pytest.raises(InputError, match=problem):
        rank_sum(np.ones((6, 2), dtype=np.float32), reference=np.array(reference, dtype=int), members=groups)
