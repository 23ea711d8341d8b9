"""The expression scorer: cell-eval's numbers, and what it does where cell-eval has none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from pertbase.errors import InputError
from pertbase.folds import Effects, Truth
from pertbase.scorers import EXPRESSION_METRICS, expression
from pertbase.scorers import _expression_metrics as metrics

GOLDEN = Path(__file__).with_name("cell_eval_golden.json")


def truth_of(
    values: np.ndarray,
    p_adjusted: np.ndarray,
    *,
    targets: list[str] | None = None,
    contexts: list[str] | None = None,
    matrix: bool = True,
    known: np.ndarray | None = None,
) -> Truth:
    """Return a truth with a condition a row; own targets, where they are readouts, are not asked about."""
    n, n_genes = values.shape
    genes = [f"G{number}" for number in range(n_genes)]
    targets = targets or [f"T{number}" for number in range(n)]
    conditions = pd.DataFrame(
        {"context": contexts or ["K"] * n, "perturbation": [f"CRISPRi:{target}" for target in targets]}
    )
    rows = []
    for row in range(n):
        for column, gene in enumerate(genes):
            if gene in targets[row].split("+") or (known is not None and not known[row, column]):
                continue
            rows.append((*conditions.iloc[row], targets[row], gene, values[row, column], p_adjusted[row, column]))
    names = ["context", "perturbation", "targets", "gene", "effect", "p_adjusted"]
    questions = pd.DataFrame(rows, columns=names).assign(regime=lambda t: np.where(t["gene"] == "G0", "ambiguous", "r"))
    effects = Effects(values, conditions, pd.Index(genes)) if matrix else None
    return Truth(questions=questions, name="toy", hash="h", effects=effects)


@pytest.fixture
def random(rng: np.random.Generator):  # type: ignore[no-untyped-def]
    measured = rng.normal(0, 0.5, (8, 30))
    p_adjusted = np.where(rng.random((8, 30)) < 0.3, 0.01, 0.6)
    predicted = measured + rng.normal(0, 0.5, measured.shape)
    truth = truth_of(measured, p_adjusted)
    return truth, Effects(predicted, truth.effects.conditions, truth.effects.genes), p_adjusted


@pytest.fixture(scope="module")
def golden() -> dict[str, object]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_numbers_are_cell_evals_on_the_same_files(golden) -> None:  # type: ignore[no-untyped-def]
    measured = np.array(golden["measured"])
    conditions = pd.DataFrame({"context": golden["context"], "perturbation": golden["perturbations"]})
    genes = pd.Index(golden["genes"])
    p_adjusted = np.array(golden["p_adjusted"], dtype=float)
    row, column = np.nonzero(np.isfinite(p_adjusted))
    questions = pd.DataFrame(
        {
            **{name: conditions[name].to_numpy()[row] for name in conditions},
            "targets": [name.split(":")[1] for name in conditions["perturbation"].to_numpy()[row]],
            "gene": genes[column],
            "effect": measured[row, column],
            "p_adjusted": p_adjusted[row, column],
            "regime": "",
        }
    )
    truth = Truth(questions=questions, effects=Effects(measured, conditions, genes))
    ours = expression(Effects(np.array(golden["predicted"]), conditions, genes), truth)
    for metric in EXPRESSION_METRICS:
        theirs = np.array(golden["cell_eval"][metric], dtype=float)
        assert np.isfinite(theirs).sum() >= 10
        assert np.ptp(theirs[np.isfinite(theirs)]) > 0 or metric == "de_spearman_sig"
        if metric == "de_spearman_sig":
            assert ours.by_context[metric].item() == pytest.approx(theirs[0], abs=1e-6)
            continue
        mine = ours.conditions[metric].to_numpy()
        if metric == "overlap_at_N":
            # Where nothing is significant, cell-eval has 0 and we have no value.
            assert (theirs[np.isnan(mine)] == 0).all()
            theirs = np.where(np.isnan(mine), np.nan, theirs)
        np.testing.assert_allclose(mine, theirs, atol=1e-6, err_msg=metric)


def test_areas_are_scikit_learns_with_ties(rng: np.random.Generator) -> None:
    labels = rng.random(200) < 0.3
    scores = np.round(rng.random(200) + 0.3 * labels, 1)
    assert metrics.roc_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert metrics.average_precision(labels, scores) == pytest.approx(
        average_precision_score(labels, scores), abs=1e-12
    )


def test_a_perfect_prediction_has_the_best_of_everything(random) -> None:  # type: ignore[no-untyped-def]
    truth, _, p_adjusted = random
    scores = expression(truth.effects, truth, p_adjusted=p_adjusted).summary["mean"]
    assert scores["mse"] == scores["mae"] == 0
    others = [name for name in EXPRESSION_METRICS if name not in ("mse", "mae")]
    np.testing.assert_allclose(scores[others], 1.0)


def test_discrimination_leaves_out_the_own_target() -> None:
    # Only by the targets, which every prediction gets right, could the two be told apart.
    measured = np.array([[-3.0, 0.0, 0.5, 0.1], [0.0, -3.0, -0.5, 0.2]])
    swapped = np.array([[-3.0, 0.0, -0.5, 0.2], [0.0, -3.0, 0.5, 0.1]])
    truth = truth_of(measured, np.ones((2, 4)), targets=["G0", "G1"])
    effects = Effects(swapped, truth.effects.conditions, truth.effects.genes)
    own = np.array([[True, False, False, False], [False, True, False, False]])
    for distance in metrics.DISTANCES:
        with_target = metrics.discrimination(measured, swapped, np.zeros((2, 4), dtype=bool), distance)
        without = metrics.discrimination(measured, swapped, own, distance)
        assert with_target.tolist() == [1.0, 1.0]
        expected = [brute(measured, swapped, own, distance, row) for row in range(2)]
        assert without.tolist() == expected
        assert expression(effects, truth).conditions[f"discrimination_score_{distance}"].tolist() == expected


def brute(measured: np.ndarray, predicted: np.ndarray, own: np.ndarray, distance: str, row: int) -> float:
    keep = ~own[row]
    gaps = []
    for other in measured:
        a, b = other[keep], predicted[row, keep]
        if distance == "cosine":
            gaps.append(1 - a @ b / math.sqrt((a @ a) * (b @ b)))
        else:
            gaps.append(float((np.abs(a - b) ** (1 if distance == "l1" else 2)).sum()))
    return 1 - sum(gap < gaps[row] for gap in gaps) / len(gaps)


def test_discrimination_of_a_prediction_that_says_nothing_is_chance(rng: np.random.Generator) -> None:
    measured = rng.normal(size=(20, 15))
    none = np.zeros_like(measured)
    own = np.zeros(measured.shape, dtype=bool)
    assert (metrics.discrimination(measured, none, own, "cosine") == 1 - 19 / 2 / 20).all()
    for distance in metrics.DISTANCES:
        assert metrics.discrimination(measured, none, own, distance).mean() == pytest.approx(1 - 19 / 2 / 20)


def test_conditions_are_told_apart_within_their_context(rng: np.random.Generator) -> None:
    measured = rng.normal(size=(6, 12))
    # In each context the own effects come last in distance, but before every one of the other context.
    measured[3:] += 50
    predicted = measured[[1, 0, 2, 4, 3, 5]]
    truth = truth_of(measured, np.ones((6, 12)), contexts=["A"] * 3 + ["B"] * 3)
    scores = expression(Effects(predicted, truth.effects.conditions, truth.effects.genes), truth).conditions
    assert scores["discrimination_score_l1"].max() <= 1
    assert scores["discrimination_score_l1"].min() >= 1 / 3 - 1e-12  # of three, not of six
    assert expression(truth.effects, truth).by_context.index.tolist() == ["A", "B"]


def test_what_has_no_value_is_left_out_of_the_mean_and_counted(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, p_adjusted = random
    p_adjusted = p_adjusted.copy()
    p_adjusted[0] = 0.9
    changed = truth_of(truth.effects.values, p_adjusted)
    summary = expression(effects, changed).summary
    for metric in ("overlap_at_N", "de_direction_match", "de_sig_genes_recall", "pr_auc", "roc_auc"):
        assert summary.loc[metric, ["n", "n_nan"]].tolist() == [7, 1]
        assert math.isfinite(summary.loc[metric, "mean"])
    # Calls where nothing is significant are wrong calls, not missing ones.
    assert summary.loc["precision_at_N", "n_nan"] == 0
    assert expression(effects, changed).conditions["precision_at_N"].iloc[0] == 0


def test_calling_nothing_has_precision_zero(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    nothing = Effects(np.zeros_like(effects.values), effects.conditions, effects.genes)
    summary = expression(nothing, truth).summary
    assert summary.loc["precision_at_N", "mean"] == 0
    assert summary.loc["overlap_at_N", "mean"] == 0
    assert summary.loc["pearson_delta", ["n", "n_nan"]].tolist() == [0, 8]
    assert math.isnan(summary.loc["pearson_delta", "mean"])
    assert summary.loc["roc_auc", "mean"] == 0.5


def test_unsupported_conditions_count_as_zero_and_stand_beside(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    # One is marked, one is not there at all.
    status = np.array(["ok"] * 7, dtype=object)
    status[2] = "unsupported"
    part = Effects(effects.values[:7], effects.conditions[:7], effects.genes, status=status)
    scores = expression(part, truth)
    assert scores.n_unsupported == 2
    zero = effects.values.copy()
    zero[[2, 7]] = 0
    assert (
        scores.summary.loc["mse", "mean"]
        == expression(Effects(zero, effects.conditions, effects.genes), truth).summary.loc["mse", "mean"]
    )
    whole = expression(effects, truth).conditions["mse"].drop([2, 7])
    assert scores.summary.loc["mse", "supported"] == pytest.approx(whole.mean())
    assert "2 of 8 conditions are unsupported" in scores.notes[0]


def test_missing_predictions_count_as_zero_and_are_counted(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    known = np.ones(effects.values.shape, dtype=bool)
    known[0, :3] = False
    holed = Effects(effects.values[:, :-1], effects.conditions, effects.genes[:-1], known=known[:, :-1])
    scores = expression(holed, truth)
    assert scores.n_missing == 3 + 8
    zero = effects.values.copy()
    zero[~known] = 0
    zero[:, -1] = 0
    expected = expression(Effects(zero, effects.conditions, effects.genes), truth)
    pd.testing.assert_frame_equal(scores.summary, expected.summary)


def test_genes_and_conditions_are_matched_by_name(random, rng) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    row, column = rng.permutation(8), rng.permutation(30)
    shuffled = Effects(effects.values[np.ix_(row, column)], effects.conditions.iloc[row], effects.genes[column])
    pd.testing.assert_frame_equal(expression(shuffled, truth).conditions, expression(effects, truth).conditions)


def test_effects_of_questions_do_where_there_is_no_matrix(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, p_adjusted = random
    without = truth_of(truth.effects.values, p_adjusted, matrix=False)
    pd.testing.assert_frame_equal(expression(effects, without).summary, expression(effects, truth).summary)
    known = np.ones(p_adjusted.shape, dtype=bool)
    known[0, :10] = False
    holed = expression(effects, truth_of(truth.effects.values, p_adjusted, matrix=False, known=known))
    assert holed.n_pairs == 8 * 30 - 10
    a, b = effects.values[0, 10:], truth.effects.values[0, 10:]
    assert holed.conditions["pearson_delta"].iloc[0] == pytest.approx(np.corrcoef(a, b)[0, 1])


@pytest.mark.parametrize("matrix", [True, False])
def test_an_effect_that_is_not_known_is_scored_as_if_it_were_not_there(random, matrix) -> None:  # type: ignore[no-untyped-def]
    truth, effects, p_adjusted = random
    known = np.ones(p_adjusted.shape, dtype=bool)
    known[0, 3:12] = known[5, 20] = False
    # A question, with a p-value or without, whose effect is not known: as if it had not been asked.
    asked = truth_of(np.where(known, truth.effects.values, np.nan), p_adjusted, matrix=False)
    absent = truth_of(truth.effects.values, p_adjusted, matrix=False, known=known)
    if matrix:
        measured = Effects(truth.effects.values, effects.conditions, effects.genes, known=known)
        asked, absent = (replace(one, effects=measured) for one in (asked, absent))
    left, right = expression(effects, asked), expression(effects, absent)
    assert left.n_pairs == known.sum()
    pd.testing.assert_frame_equal(left.conditions, right.conditions)
    pd.testing.assert_frame_equal(left.summary, right.summary)


def test_what_is_asked_has_a_place_among_the_measured_effects(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    measured = truth.effects
    fewer_genes = Effects(measured.values[:, :-1], measured.conditions, measured.genes[:-1])
    fewer_conditions = Effects(measured.values[1:], measured.conditions.iloc[1:], measured.genes)
    for held, name in ((fewer_genes, "G29"), (fewer_conditions, "CRISPRi:T0")):
        with pytest.raises(InputError, match=f"effects: is asked, and is not among .*{name}"):
            expression(effects, replace(truth, effects=held))


@pytest.mark.parametrize("value", [np.nan, -0.1, 1.5, np.inf])
def test_a_predicted_p_value_is_one_or_the_effect_is_not_known(random, value) -> None:  # type: ignore[no-untyped-def]
    truth, effects, p_adjusted = random
    p = p_adjusted.copy()
    p[2, 4] = value
    with pytest.raises(InputError, match=r"p_adjusted: a p-value is from 0 to 1 .*CRISPRi:T2.*G4.*known="):
        expression(effects, truth, p_adjusted=p)
    known = np.ones(p.shape, dtype=bool)
    known[2, 4] = False
    holed = Effects(effects.values, effects.conditions, effects.genes, known=known)
    assert expression(holed, truth, p_adjusted=p).n_missing == 1


def test_a_mean_of_a_part_stands_beside_the_number_it_is_over(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, p_adjusted = random
    p = p_adjusted.copy()
    p[[1, 4]] = 0.6  # nothing is significant: no recall, no areas
    truth = truth_of(truth.effects.values, p, contexts=["A"] * 4 + ["B"] * 4)
    scores = expression(Effects(effects.values, truth.effects.conditions, effects.genes), truth)
    for table, column in ((scores.by_context, "context"), (scores.by_regime, "regime")):
        for name, part in scores.conditions.groupby(column):
            for metric in set(EXPRESSION_METRICS) - {"de_spearman_sig"}:
                assert table.loc[name, f"n_{metric}"] == part[metric].notna().sum()
                assert table.loc[name, metric] == pytest.approx(part[metric].mean(), nan_ok=True)
    assert scores.by_context["n_de_sig_genes_recall"].tolist() == [3, 3]


def test_predicted_p_values_replace_the_threshold(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    p = np.full(effects.values.shape, 0.5)
    p[:, 0] = 1e-4
    scores = expression(effects, truth, p_adjusted=p)
    assert scores.threshold is None
    assert (scores.conditions["n_called"] == 1).all()


def test_another_statistic_and_outcomes_without_effects_are_refused(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    other = Effects(effects.values, effects.conditions, effects.genes, "log_mean")
    with pytest.raises(InputError, match="another statistic"):
        expression(other, truth)
    bare = Truth(questions=truth.questions.assign(effect=np.nan), name="toy")
    with pytest.raises(InputError, match="no measured effects"):
        expression(effects, bare)


def test_scores_are_plain_values_by_context_and_regime(random) -> None:  # type: ignore[no-untyped-def]
    truth, effects, _ = random
    scores = expression(effects, truth).to_dict()
    assert set(scores["metrics"]) == set(EXPRESSION_METRICS)
    assert list(scores["by_regime"]) == ["r"]  # that of the questions that are not ambiguous
    assert scores["by_context"]["K"]["n_conditions"] == 8
    json.dumps(scores)


def test_correlation_of_every_two_rows_is_numpys_on_the_genes_that_both_keep(rng: np.random.Generator) -> None:
    values, kept = rng.normal(3, 1, (7, 40)), rng.random((7, 40)) < 0.7
    found = metrics.pairwise(values, kept)
    pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
    expected = [
        np.corrcoef(values[i, both], values[j, both])[0, 1] for i, j in pairs if (both := kept[i] & kept[j]).any()
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    values[0] = 0.1  # constant, if not exactly so once its mean is taken off
    values[1, kept[1] & kept[2]] = 2.0  # constant on the genes of one pair only
    found = dict(zip(pairs, metrics.pairwise(values, kept), strict=True))
    assert {pair for pair, value in found.items() if math.isnan(value)} == {(0, j) for j in range(1, 7)} | {(1, 2)}


def test_a_collapsed_prediction_shows_beside_the_truth(rng: np.random.Generator) -> None:
    measured = rng.normal(0, 0.5, (6, 50))
    truth = truth_of(measured, np.ones((6, 50)), contexts=["A"] * 3 + ["B"] * 3)
    conditions, genes = truth.effects.conditions, truth.effects.genes
    # The same of every perturbation, and another thing in each context, which is none of a pair's business.
    collapsed = Effects(np.repeat(rng.normal(0, 1, (2, 50)), 3, axis=0), conditions, genes)
    pairwise = expression(collapsed, truth).pairwise
    within = [np.corrcoef(measured[i], measured[j])[0, 1] for i, j in ((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5))]
    assert pairwise["predicted"] == pytest.approx(1.0)
    assert pairwise["measured"] == pytest.approx(np.mean(within))
    assert (pairwise["n"], pairwise["n_nan"]) == (6, 0)
    own = expression(truth.effects, truth).pairwise
    assert own["predicted"] == own["measured"]


def test_own_targets_and_unsupported_conditions_make_no_pair_alike(rng: np.random.Generator) -> None:
    measured = rng.normal(0, 0.1, (4, 30))
    measured[[0, 1], [0, 0]] = -9.0  # two perturbations of one target are no more alike for its own effect
    truth = truth_of(measured, np.ones((4, 30)), targets=["G0", "G0+G1", "T2", "T3"])
    status = np.array(["ok", "ok", "unsupported", "unsupported"], dtype=object)
    values = np.where((status == "ok")[:, None], measured, 0.0)
    pairwise = expression(Effects(values, truth.effects.conditions, truth.effects.genes, status=status), truth).pairwise
    assert pairwise["n"] == 1
    assert pairwise["predicted"] == pytest.approx(np.corrcoef(measured[0, 2:], measured[1, 2:])[0, 1])
    none = Effects(np.zeros_like(measured), truth.effects.conditions, truth.effects.genes)
    found = expression(none, truth).pairwise
    assert math.isnan(found["predicted"])
    assert (found["n"], found["n_nan"]) == (6, 6)


def test_a_single_condition_has_no_pair() -> None:
    truth = truth_of(np.ones((1, 4)), np.ones((1, 4)))
    pairwise = expression(truth.effects, truth).pairwise
    assert math.isnan(pairwise["predicted"])
    assert math.isnan(pairwise["measured"])
    assert pairwise["n"] == 0
