"""Tests of conditions agree with scanpy's, and label rules keep to their invariants."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.errors import InputError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._labels import (
    RULES,
    ConditionTests,
    Evidence,
    LabelRule,
    Ranksum,
    VCWorld,
    condition_tests,
    effect,
    label_rule,
    power,
)

PAPALEXI = Path(__file__).parents[3] / "shared" / "data" / "papalexi" / "papalexi_thp1_eccite.h5ad"
UP, DOWN, NO_CHANGE, AMBIGUOUS = 0, 1, 2, -1

needs_papalexi = pytest.mark.skipif(not PAPALEXI.is_file(), reason="the shared data are not here")


def papalexi(*, total: float | None, dominance: float) -> Any:
    """THP-1 cells with guides assigned surely enough, natural log1p of counts scaled to a total (None: the median)."""
    import anndata

    screen = anndata.read_h5ad(PAPALEXI)
    screen = screen[screen.obs["grna_dominance"] >= dominance].copy()
    sums = np.asarray(screen.X.sum(axis=1)).ravel()
    scaled = screen.X.multiply(((np.median(sums) if total is None else total) / sums)[:, None])
    screen.X = scaled.tocsr().astype(np.float32).log1p()
    return screen


def against_controls(screen: Any, *, X: Any = None) -> ConditionTests:
    named = screen.obs["perturbation"].astype(str).to_numpy()
    rows = {name: np.flatnonzero(named == name) for name in sorted(set(named))}
    return condition_tests(
        screen.X if X is None else X,
        controls={"THP-1": rows.pop("control")},
        conditions={("THP-1", name): cells for name, cells in rows.items()},
    )


@pytest.fixture(scope="module")
def thp1() -> Any:
    return papalexi(total=None, dominance=0.0)


@needs_papalexi
def test_p_values_and_log_mean_effects_equal_scanpys_on_papalexi(thp1: Any) -> None:
    scanpy = pytest.importorskip("scanpy")
    tests = against_controls(thp1)
    assert (len(tests), set(tests.conditions["n_controls"])) == (25, {2386})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scanpy's own: a fragmented table, float32 fold changes
        scanpy.tl.rank_genes_groups(
            thp1, "perturbation", method="wilcoxon", tie_correct=True, reference="control", use_raw=False
        )
    for row, name in enumerate(tests.conditions["perturbation"]):
        theirs = scanpy.get.rank_genes_groups_df(thp1, name).set_index("names").loc[thp1.var_names]
        np.testing.assert_allclose(tests.p_value[row], theirs["pvals"], atol=1e-6)
        # To a relative 1e-6 too: small p-values would pass the other comparison whatever they are.
        np.testing.assert_allclose(tests.p_value[row], theirs["pvals"], rtol=1e-6)
        np.testing.assert_allclose(tests.p_adjusted[row], theirs["pvals_adj"], rtol=1e-6)
        base_two = tests.effect("log_mean")[row] / np.log(2)
        np.testing.assert_allclose(base_two, theirs["logfoldchanges"], rtol=1e-6, atol=1e-6)


@needs_papalexi
def test_storage_does_not_change_the_tests(thp1: Any) -> None:
    sparse, dense = against_controls(thp1), against_controls(thp1, X=thp1.X.toarray())
    columns = against_controls(thp1, X=thp1.X.tocsc())
    for other in (dense, columns):
        np.testing.assert_array_equal(other.p_value, sparse.p_value)
        np.testing.assert_allclose(other.effect(), sparse.effect(), atol=1e-12)


@needs_papalexi
def test_knocking_out_the_interferon_receptor_or_its_kinase_lowers_ube2l6(thp1: Any) -> None:
    labels = Ranksum(statistic="log_mean").label(tests := against_controls(thp1))
    names = list(tests.conditions["perturbation"])
    for knock_out in ("IFNGR1", "IFNGR2", "JAK2", "STAT1"):
        assert labels[names.index(knock_out), list(thp1.var_names).index("UBE2L6")] == "down"


@needs_papalexi
def test_the_statistic_and_the_total_decide_the_number_of_calls() -> None:
    calls = {}
    for total in (None, 1e4):
        tests = against_controls(papalexi(total=total, dominance=0.8))
        for statistic in ("mean_log", "log_mean"):
            rule = label_rule("ranksum", statistic=statistic)
            calls[total, statistic] = int(np.isin(rule.codes(tests.evidence(statistic)), (UP, DOWN)).sum())
    assert calls == {(1e4, "mean_log"): 323, (1e4, "log_mean"): 511, (None, "mean_log"): 67, (None, "log_mean"): 454}


def test_effects_are_differences_of_logs_and_logs_of_ratios() -> None:
    mean, control = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_array_equal(effect(mean, control), [-1, 0, 1])
    ratio = effect(mean, control, statistic="log_mean")
    np.testing.assert_allclose(ratio[1:], [0, np.log(np.expm1(2) / np.expm1(1))], atol=1e-8)
    assert ratio[0] == pytest.approx(np.log(1e-9 / np.expm1(1)))
    with pytest.raises(InputError, match="mean_log"):
        effect(mean, control, statistic="mean_lgo")


def small_screen(rng: np.random.Generator) -> np.ndarray:
    return np.log1p(rng.poisson(2.0, size=(200, 30))).astype(np.float32)


def test_a_condition_is_tested_against_the_controls_of_its_own_context() -> None:
    X = small_screen(np.random.default_rng(0))
    X[100:] += 1  # a second context, in which everything is higher
    both = condition_tests(
        X,
        controls={"a": np.arange(50), "b": np.arange(100, 150)},
        conditions={("b", "x"): np.arange(150, 200), ("a", "x"): np.arange(50, 100)},
    )
    assert list(both.conditions["context"]) == ["b", "a"]
    assert (np.abs(both.effect()) < 0.5).all()
    alone = condition_tests(X, controls={"a": np.arange(50)}, conditions={("a", "x"): np.arange(50, 100)})
    np.testing.assert_array_equal(alone.p_adjusted[0], both.p_adjusted[1])


def test_conditions_that_are_too_small_are_dropped_with_the_reason() -> None:
    X = small_screen(np.random.default_rng(0))
    rows = {("a", "many"): np.arange(50, 90), ("a", "few"): np.arange(90, 95), ("z", "many"): np.arange(100, 150)}
    tests = condition_tests(X, controls={"a": np.arange(50)}, conditions=rows, min_cells=25)
    assert list(tests.conditions["perturbation"]) == ["many"]
    assert dict(zip(tests.dropped["context"], tests.dropped["reason"], strict=True)) == {
        "a": "5 cells, fewer than 25",
        "z": "context 'z' has 0 truth controls, fewer than 2",
    }


def test_no_condition_at_all_is_an_empty_result() -> None:
    tests = condition_tests(small_screen(np.random.default_rng(0)), controls={"a": np.arange(50)}, conditions={})
    assert (len(tests), tests.p_adjusted.shape, Ranksum().label(tests).shape) == (0, (0, 30), (0, 30))


@pytest.mark.parametrize("statistic", ["mean_log", "log_mean"])
def test_standard_errors_are_the_spread_of_effects_over_repeated_screens(statistic: str) -> None:
    rng = np.random.default_rng(7)
    effects, errors = [], []
    for _ in range(300):
        X = np.log1p(rng.negative_binomial(2, 2 / (2 + np.array([0.5, 2.0, 8.0])), size=(220, 3))).astype(np.float32)
        tests = condition_tests(X, controls={"a": np.arange(120)}, conditions={("a", "x"): np.arange(120, 220)})
        effects.append(tests.effect(statistic)[0])
        errors.append(tests.standard_error(statistic)[0])
    np.testing.assert_allclose(np.mean(errors, axis=0), np.std(effects, axis=0), rtol=0.12)


def test_power_is_the_share_of_repeated_screens_in_which_the_effect_is_significant() -> None:
    rng, rule = np.random.default_rng(8), Ranksum()
    mean = np.full(40, 3.0)
    treated = mean * np.repeat([1.0, 1.35], [39, 1])
    found, expected = [], []
    for _ in range(150):
        X = np.log1p(np.concatenate([rng.poisson(mean, size=(80, 40)), rng.poisson(treated, size=(60, 40))]))
        tests = condition_tests(X, controls={"a": np.arange(80)}, conditions={("a", "x"): np.arange(80, 140)})
        found.append(tests.p_adjusted[0, -1] < rule.alpha)
        expected.append(power(tests, rule, true_effect=0.254)[0, -1])  # the difference of mean log1p at these rates
    assert 0.3 < np.mean(expected) < 0.9
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=0.12)


def test_power_grows_with_the_effect_and_is_zero_for_silent_genes() -> None:
    X = small_screen(np.random.default_rng(9))
    X[:, 3] = 0
    tests = condition_tests(X, controls={"a": np.arange(60)}, conditions={("a", "x"): np.arange(60, 100)})
    small, large = (power(tests, Ranksum(), true_effect=size)[0] for size in (0.2, 0.4))
    assert small[3] == large[3] == 0
    expressed = np.arange(30) != 3
    assert (small[expressed] < large[expressed]).all()
    np.testing.assert_array_equal(power(tests, Ranksum()), power(tests, Ranksum(), true_effect=-0.25))


rules = st.sampled_from([rule() for rule in RULES.values()])
sizes = st.floats(0, 3)
p_values = st.floats(0, 1)


def decide(rule: LabelRule, size: float, raw: float, adjusted: float, error: float = 0.1, base: float = 20.0) -> int:
    values = (np.array([value]) for value in (size, raw, max(raw, adjusted), error, base))
    return int(rule.codes(Evidence(*values))[0])


@given(rule=rules, size=sizes, more=sizes, raw=p_values, adjusted=p_values, error=st.floats(0, 1))
def test_a_larger_effect_never_takes_a_call_back(
    rule: LabelRule, size: float, more: float, raw: float, adjusted: float, error: float
) -> None:
    before = decide(rule, size, raw, adjusted, error)
    after = decide(rule, size + more, raw, adjusted, error)
    if before == UP:
        assert after == UP
    if before == AMBIGUOUS:
        assert after != NO_CHANGE


@given(rule=rules, size=sizes, raw=p_values, adjusted=p_values, factor=st.floats(0, 1))
def test_a_smaller_p_value_never_turns_a_call_into_no_change(
    rule: LabelRule, size: float, raw: float, adjusted: float, factor: float
) -> None:
    before = decide(rule, size, raw, adjusted)
    after = decide(rule, size, raw * factor, max(raw, adjusted) * factor)
    if before == UP:
        assert after == UP
    if before == AMBIGUOUS:
        assert after != NO_CHANGE


@given(rule=rules, size=sizes, raw=p_values, adjusted=p_values, error=st.floats(0, 1))
def test_changing_the_sign_of_the_effect_swaps_up_and_down(
    rule: LabelRule, size: float, raw: float, adjusted: float, error: float
) -> None:
    swapped = {UP: DOWN, DOWN: UP, NO_CHANGE: NO_CHANGE, AMBIGUOUS: AMBIGUOUS}
    assert decide(rule, -size, raw, adjusted, error) == swapped[decide(rule, size, raw, adjusted, error)]


@settings(max_examples=50)
@given(size=sizes, raw=p_values, adjusted=p_values, error=st.floats(0, 1), power_of_two=st.integers(-4, 4))
def test_scaling_effect_error_and_threshold_together_changes_nothing(
    size: float, raw: float, adjusted: float, error: float, power_of_two: int
) -> None:
    scale = 2.0**power_of_two
    for name in ("ranksum", "equivalence", "vcworld"):
        scaled = label_rule(name, threshold=0.25 * scale)
        assert decide(scaled, size * scale, raw, adjusted, error * scale) == decide(
            label_rule(name), size, raw, adjusted, error
        )


@given(rule=rules, size=st.floats(-3, 3), raw=p_values, adjusted=p_values)
def test_a_call_always_passes_the_rules_own_thresholds(
    rule: LabelRule, size: float, raw: float, adjusted: float
) -> None:
    tau_up, tau_down = rule.thresholds
    called = decide(rule, size, raw, adjusted)
    assert called != UP or size >= tau_up
    assert called != DOWN or size <= -tau_down


def test_rules_decide_as_they_are_written() -> None:
    ranksum, equivalence, pertmind = label_rule("ranksum"), label_rule("equivalence"), label_rule("pertmind")
    assert decide(ranksum, 0.26, 0.001, 0.049) == UP
    assert decide(ranksum, 0.24, 0.001, 0.049) == AMBIGUOUS
    assert decide(ranksum, 0.26, 0.05, 0.051) == AMBIGUOUS
    assert decide(ranksum, 2.0, 0.11, 0.9) == NO_CHANGE
    # Not significant and not precise: lack of power is no evidence of no change.
    assert decide(equivalence, 0.0, 0.9, 1.0, error=0.2) == AMBIGUOUS
    assert decide(equivalence, 0.0, 0.9, 1.0, error=0.1) == NO_CHANGE
    assert decide(equivalence, 0.1, 1e-9, 1e-9, error=0.01) == NO_CHANGE
    assert decide(label_rule("vcworld"), 0.2, 0.001, 0.01) == UP  # .2 natural is .289 in base 2
    assert decide(pertmind, 0.585 * np.log(2), 0.001, 0.05) == UP
    assert decide(pertmind, 0.1, 0.6, 0.8, base=10.0) == NO_CHANGE
    assert decide(pertmind, 0.1, 0.6, 0.8, base=9.9) == AMBIGUOUS
    assert pertmind.min_cells == 30


def test_labels_are_outcomes_and_none() -> None:
    X = small_screen(np.random.default_rng(10))
    X[60:100, :5] += 1
    tests = condition_tests(X, controls={"a": np.arange(60)}, conditions={("a", "x"): np.arange(60, 100)})
    labels, codes = Ranksum().label(tests), Ranksum().codes(tests.evidence())
    assert (labels[0, :5] == "up").all()
    for label, code in zip(labels.ravel(), codes.ravel(), strict=True):
        assert label is None if code == AMBIGUOUS else label == OUTCOMES[code]


def test_vcworld_keeps_every_call_and_so_many_no_change_a_condition() -> None:
    codes = np.full((2, 300), NO_CHANGE, dtype=np.int8)
    codes[0, :20], codes[1, 50:] = UP, DOWN
    keep = VCWorld().keep(codes, rng=np.random.default_rng(0))
    assert keep[codes != NO_CHANGE].all()
    assert [int((keep & (codes == NO_CHANGE))[row].sum()) for row in (0, 1)] == [200, 50]
    assert Ranksum().keep(codes, rng=np.random.default_rng(0)).all()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_comes_back_from_its_dictionary(name: str) -> None:
    rule = label_rule(name, alpha=0.01, min_cells=40)
    assert label_rule(rule.to_dict()) == rule
    assert rule.to_dict()["name"] == name


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"name": "ranksun"}, "did you mean 'ranksum'"),
        ({"name": "ranksum", "treshold": 1.0}, "did you mean 'threshold'"),
        ({"name": "ranksum", "alpha": 0.2}, "no_change_p"),
        ({"name": "ranksum", "threshold": -1.0}, "ranksum.threshold"),
        ({"name": "pertmind", "log2_no_change": 1.0}, "log2_no_change"),
        ({"name": "equivalence", "statistic": "log"}, "unknown statistic"),
        ({"name": "vcworld", "min_cells": 1}, "min_cells"),
    ],
)
def test_unknown_and_contradictory_parameters_are_refused(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match="(?i)" + problem):
        label_rule(rule)
