"""Pictures of baselines beside one another, and of reasons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pertbase import plot
from pertbase.errors import InputError
from pertbase.folds import Answers, Fold
from pertbase.scorers import outcome, shortcuts


def rows(ax) -> list[str]:  # type: ignore[no-untyped-def]
    return [text.get_text() for text in ax.get_yticklabels()]


def test_each_score_lies_on_its_interval_in_the_order_given(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    scores = {name: outcome(answers, fold.truth) for name, answers in said.answers.items()}
    for metric in ("balanced_accuracy", "accuracy"):
        ax = plot.intervals(scores, metric=metric)
        assert rows(ax) == list(scores)
        (dots,) = ax.collections
        found = [getattr(one, metric) for one in scores.values()]
        assert dots.get_offsets()[:, 0].tolist() == pytest.approx([one.value for one in found])
        whiskers = {int(line.get_ydata()[0]): line.get_xdata() for line in ax.lines if line.get_alpha()}
        for row, one in enumerate(found):
            assert whiskers[row] == pytest.approx([one.low, one.high])
    assert "95% intervals" in ax.get_xlabel()
    assert f"n = {next(iter(scores.values())).n:,}" in ax.get_xlabel()


def test_scores_of_two_folds_do_not_stand_in_one_picture(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    scores = outcome(said.answers["no_change"], fold.truth)
    with pytest.raises(InputError, match="different folds"):
        plot.intervals({"a": scores, "b": replace(scores, fold_hash="another")})
    with pytest.raises(InputError, match="no scores to draw"):
        plot.intervals({})
    with pytest.raises(InputError, match="Did you mean 'accuracy'"):
        plot.intervals({"a": scores}, metric="acuracy")


def test_a_fold_that_cannot_rank_is_told_and_not_drawn_empty(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    some = fold.truth.questions.groupby("outcome", dropna=False).head(5)
    truth = replace(fold.truth, questions=some)
    answers = Answers(said.answers["gene_prior"].table.loc[said.answers["gene_prior"].table["id"].isin(some["id"])])
    scores = {"gene_prior": outcome(answers, truth)}
    with pytest.raises(InputError, match=r'no baseline has a balanced accuracy here: only 5 up.*metric="accuracy"'):
        plot.intervals(scores)
    ax = plot.intervals(scores, metric="accuracy")
    assert ax.collections[-1].get_offsets()[0, 0] == pytest.approx(scores["gene_prior"].accuracy.value)


def test_gains_over_shortcuts_are_drawn_step_by_step(gains) -> None:  # type: ignore[no-untyped-def]
    ax = plot.shortcuts(gains)
    assert rows(ax) == ["over nothing", "+ gene_prior"]
    dots = {points.get_label(): points.get_offsets() for points in ax.collections if points.get_label() in gains}
    for name, one in gains.items():
        assert dots[name][:, 0].tolist() == pytest.approx(one.table["gain"].tolist())
        assert np.rint(dots[name][:, 1]).tolist() == [0, 1]
    assert f"n = {gains['bilinear_ridge'].n:,} questions" in ax.get_title(loc="left")


def test_a_decomposition_that_cannot_be_had_is_told_with_its_reason(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    few = fold.truth.questions.loc[fold.truth.questions["target_set"] == fold.truth.questions["target_set"].iloc[0]]
    truth = replace(fold.truth, questions=few)
    answers = {name: Answers(one.table.loc[one.table["id"].isin(few["id"])]) for name, one in said.answers.items()}
    found = shortcuts({"gene_prior": answers["gene_prior"]}, answers["no_change"], truth, seed=0)
    with pytest.raises(InputError, match=r"there is no decomposition to draw: (needs 5|only)"):
        plot.shortcuts(found)


def test_reasons_are_drawn_beside_their_nulls_and_controls(reasoned) -> None:  # type: ignore[no-untyped-def]
    ax = plot.reason_axes(reasoned)
    drawn = {points.get_label(): np.asarray(points.get_offsets()) for points in ax.collections}
    own = drawn["answers"][:, 0].tolist()
    table = reasoned.scores
    assert own[:3] == pytest.approx([interval.value for interval in reasoned.axes.values()])
    assert own[3] == pytest.approx(table.loc["f1", "value"])
    f1 = rows(ax).index("signed F1")
    for label, value in (
        ("null: rewired graph", table.loc["f1", "rewired"]),
        ("control: all given paths copied", reasoned.controls.loc["copied", "f1"]),
        ("control: one invented edge", reasoned.controls.loc["invented", "f1"]),
    ):
        (at,) = [x for x, y in drawn[label] if round(y) == f1]
        assert at == pytest.approx(value)
    assert f"n = {reasoned.n:,} questions" in ax.get_title(loc="left")


def test_no_null_and_no_control_of_reasons_lies_on_the_answers_dot(reasoned) -> None:  # type: ignore[no-untyped-def]
    ax = plot.reason_axes(reasoned)
    ax.figure.canvas.draw()
    row = ax.get_window_extent().height / ax.figure.dpi * 72 / len(rows(ax))
    radius = {points.get_label(): np.sqrt(points.get_sizes()[0]) / 2 for points in ax.collections}
    drawn = {points.get_label(): np.asarray(points.get_offsets())[:, 1] for points in ax.collections}
    middle = radius.pop("answers")
    shifts = {label: drawn[label][0] - np.rint(drawn[label][0]) for label in radius}
    assert len(shifts) == 5
    for label, shift in shifts.items():
        assert abs(shift) * row >= middle + radius[label] - 0.5, label
        others = [abs(shift - other) * row for name, other in shifts.items() if name != label]
        assert min(others) >= 0.8 * 2 * radius[label], label


def test_reasons_as_a_run_keeps_them_make_the_same_picture(reasoned) -> None:  # type: ignore[no-untyped-def]
    import json

    kept = json.loads(json.dumps(reasoned.to_dict()).replace("NaN", "null"))
    first, second = plot.reason_axes(reasoned), plot.reason_axes(kept)
    for a, b in zip(first.collections, second.collections, strict=True):
        assert a.get_label() == b.get_label()
        assert np.allclose(a.get_offsets(), b.get_offsets())
