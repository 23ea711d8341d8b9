"""Pictures of answers and effects show what the scorers count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase import plot
from pertbase.adapters import Calibrated, Fixed
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, Answers, Effects, Fold
from pertbase.scorers import outcome


def xy(points) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Return where points are drawn, NaN where they are not."""
    return np.ma.filled(points.get_offsets().astype(float), np.nan)


def test_confusion_shows_shares_of_each_true_outcome_and_counts(fold: Fold, said, asked: pd.DataFrame) -> None:  # type: ignore[no-untyped-def]
    ax = plot.confusion(said.answers["bilinear_ridge"], fold.truth)
    answered = said.answers["bilinear_ridge"].table.set_index("id")["outcome"].reindex(asked["id"]).to_numpy()
    counts = pd.crosstab(asked["outcome"].to_numpy(), answered).reindex(index=list(OUTCOMES), columns=list(OUTCOMES))
    told = [text.get_text() for text in ax.texts if "%" in text.get_text()]
    expected = [
        f"{counts.loc[a, b] / counts.loc[a].sum():.0%}\n{counts.loc[a, b]:,}" for a in OUTCOMES for b in OUTCOMES
    ]
    assert told == expected
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        f"{a}\n(n = {counts.loc[a].sum():,})" for a in OUTCOMES
    ]


def test_confusion_has_a_column_for_answers_without_an_outcome_only_where_there_are_some(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    whole = said.answers["no_change"]
    assert [text.get_text() for text in plot.confusion(whole, fold.truth).get_xticklabels()] == list(OUTCOMES)
    some = Answers(whole.table.iloc[: len(whole) // 2])
    ax = plot.confusion(some, fold.truth)
    assert [text.get_text() for text in ax.get_xticklabels()] == [*OUTCOMES, "none"]
    none = outcome(some, fold.truth).n_without_outcome
    told = [int(text.get_text().split("\n")[1].replace(",", "")) for text in ax.texts if "%" in text.get_text()]
    assert sum(told[3::4]) == none


def test_every_point_is_a_question_s_measured_and_predicted_effect(fold: Fold, said, asked: pd.DataFrame) -> None:  # type: ignore[no-untyped-def]
    effects, adapter = said.effects["bilinear_ridge"], said.adapters["bilinear_ridge"]
    ax = plot.effects_against_truth(effects, fold.truth, thresholds=adapter.thresholds, most=10**6)
    limit = ax.get_xlim()[1]
    beyond = (asked["effect"].abs() > limit) | (np.abs(effects.at(asked)[0]) > limit)
    assert beyond.any()
    assert ax.get_xlabel().endswith(f"on the edge, beyond the axes: {beyond.sum():,}")
    for points in ax.collections:
        name = points.get_label().split(" (n = ")[0]
        own = asked.loc[asked["outcome"] == name]
        expected = np.column_stack([own["effect"], effects.at(own)[0]]).clip(-limit, limit)
        drawn = xy(points)
        assert points.get_label() == f"{name} (n = {len(own):,})"
        assert np.allclose(drawn[np.lexsort(drawn.T)], expected[np.lexsort(expected.T)])
    levels = sorted(float(line.get_ydata()[0]) for line in ax.lines if line.get_linestyle() == "--")
    assert levels == pytest.approx([-adapter.thresholds[1], adapter.thresholds[0]])


def test_the_same_few_questions_of_each_outcome_are_drawn_for_every_baseline(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    names = ("bilinear_ridge", "perturbed_mean")
    first, second = (plot.effects_against_truth(said.effects[name], fold.truth, most=40) for name in names)
    assert all(len(points.get_offsets()) == 40 for points in first.collections)
    for a, b in zip(first.collections, second.collections, strict=True):
        limit = min(first.get_xlim()[1], second.get_xlim()[1])
        assert np.allclose(np.clip(xy(a)[:, 0], -limit, limit), np.clip(xy(b)[:, 0], -limit, limit))


def test_unsupported_effects_are_counted_in_the_title_and_not_drawn_at_zero(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    given = said.effects["bilinear_ridge"]
    status = np.where(np.arange(len(given.conditions)) % 2, "ok", "unsupported").astype(object)
    values = np.where((status == "ok")[:, None], given.values, 0.0)
    half = Effects(values, given.conditions, given.genes, given.statistic, status)
    ax = plot.effects_against_truth(half, fold.truth, most=50)
    drawn = sum(len(points.get_offsets()) for points in ax.collections)
    assert f"{150 - drawn} unsupported" in ax.get_title(loc="left")
    assert 0 < drawn < 150
    none = Effects(values * 0, given.conditions, given.genes, given.statistic, np.full(len(status), "unsupported"))
    with pytest.raises(InputError, match="of none of these questions"):
        plot.effects_against_truth(none, fold.truth)


@pytest.mark.parametrize("by", ["gene", "perturbation", "regime"])
def test_right_answers_are_shares_of_a_group_s_questions(fold: Fold, said, asked: pd.DataFrame, by: str) -> None:  # type: ignore[no-untyped-def]
    ax = plot.accuracy_by(said.answers["bilinear_ridge"], fold.truth, by=by, most=9)
    answered = said.answers["bilinear_ridge"].table.set_index("id")["outcome"].reindex(asked["id"]).to_numpy()
    right = (answered == asked["outcome"]).to_numpy()
    changed = asked["outcome"].isin(("up", "down")).to_numpy()
    names = [text.get_text().split("  (")[0] for text in ax.get_yticklabels()]
    n_changed = asked.loc[changed].groupby(by).size()
    assert [n_changed.get(name, 0) for name in names] == sorted(n_changed, reverse=True)[: len(names)]
    for points, kind in zip(ax.collections, (~changed, changed), strict=True):
        expected = [right[kind & (asked[by] == name).to_numpy()].mean() for name in names]
        assert list(xy(points)[:, 0]) == pytest.approx(expected, nan_ok=True)
        assert f"n = {kind.sum():,}, {right[kind].mean():.2f} in all" in points.get_label()


def test_a_cell_less_its_mirror_image_is_the_difference_in_balanced_accuracy(
    fold: Fold, said, asked: pd.DataFrame
) -> None:  # type: ignore[no-untyped-def]
    ax = plot.disagreement(said.answers, fold.truth)
    names = [text.get_text() for text in ax.get_yticklabels()]
    (mesh,) = [mesh for mesh in ax.collections if mesh.get_array() is not None]
    grid = np.asarray(mesh.get_array().filled(np.nan)).reshape(len(names), len(names))
    assert np.isnan(np.diag(grid)).all()
    accuracy = np.array([outcome(said.answers[name], fold.truth).balanced_accuracy.value for name in names])
    off = ~np.eye(len(names), dtype=bool)
    assert (grid - grid.T)[off] == pytest.approx((accuracy[:, None] - accuracy[None])[off], abs=1e-12)
    right = {
        name: said.answers[name].table.set_index("id")["outcome"].reindex(asked["id"]).to_numpy() == asked["outcome"]
        for name in names
    }
    for row, column in ((0, 1), (1, 0), (2, 3)):
        only = right[names[row]] & ~right[names[column]]
        assert grid[row, column] == pytest.approx(only.groupby(asked["outcome"]).mean().mean())
    with pytest.raises(InputError, match="nobody to disagree with"):
        plot.disagreement({"alone": said.answers["no_change"]}, fold.truth)


def test_thresholds_lie_where_the_adapter_calls(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    adapter = said.adapters["bilinear_ridge"]
    ax = plot.thresholds(adapter, bins=30)
    up, down = adapter.thresholds
    lines = sorted(float(line.get_xdata()[0]) for line in ax.lines if len(line.get_xdata()) == 2)
    assert lines == pytest.approx([-down, up])
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert told == [f"{name} (n = {count:,})" for name, count in adapter.held_out.counts.items()]
    assert f"{len(adapter.held_out.codes):,} held-out predictions, of val" in ax.get_title(loc="left")


def test_what_lies_beyond_the_axis_of_thresholds_is_counted_and_not_piled_up(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    adapter = said.adapters["bilinear_ridge"]
    held = adapter.held_out
    # One gene in 280 far out: they must not stand as a bar at the end, nor stretch the axis.
    far = replace(held.given, values=np.where(np.arange(len(held.given.genes)) == 7, 40.0, held.given.values))
    stretched = Calibrated().fit(fold.training, held_out=replace(held, given=far))
    ax = plot.thresholds(stretched, bins=20)
    low, high = ax.get_xlim()
    values = stretched.held_out.values
    below, above = int((values < low).sum()), int((values > high).sum())
    assert above > 0
    assert f"beyond the axis: {below:,} on the left, {above:,} on the right" in ax.get_xlabel()
    edges = np.linspace(low, high, 21)
    for code, patch in enumerate(reversed(ax.collections)):
        own = values[stretched.held_out.codes == code]
        heights = np.histogram(own, edges)[0] / len(own) / (edges[1] - edges[0])
        x, y = patch.get_paths()[0].vertices.T
        assert y.max() == pytest.approx(heights.max()), OUTCOMES[code]
        assert y[x > edges[-2] + 1e-9].max() == pytest.approx(heights[-1]), OUTCOMES[code]


def test_a_threshold_beyond_the_axis_is_told_and_makes_no_room_for_itself(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    for far in (50.0, np.inf):
        adapter = Calibrated().fit(fold.training, held_out=said.adapters["bilinear_ridge"].held_out)
        adapter.thresholds = (far, adapter.thresholds[1])
        ax = plot.thresholds(adapter)
        ax.figure.canvas.draw()
        assert f"up above {far:.3g}: beyond the axis" in ax.get_xlabel()
        assert len([line for line in ax.lines if len(line.get_xdata()) == 2]) == 1
        assert ax.get_xlim() == plot.thresholds(said.adapters["bilinear_ridge"]).get_xlim()


def test_borders_between_scores_part_the_plane_as_the_adapter_answers(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    adapter = said.adapters["gene_prior"]
    ax = plot.thresholds(adapter)
    borders = [line.get_xydata() for line in ax.lines if line.get_linestyle() == "--"]
    corner = np.array([-adapter.offsets[0], -adapter.offsets[1]])
    assert len(borders) == 3
    assert all(np.isclose(border, corner).all(axis=1).any() for border in borders)
    # A step off each border, to either side, the answer is another one.
    answers = []
    for border, normal in zip(borders, ([1, 0], [0, 1], [1, -1]), strict=True):
        far = border[~np.isclose(border, corner).all(axis=1)][0]
        for side in (-1e-6, 1e-6):
            up, down = far + np.array(normal) * side + np.array(adapter.offsets)
            answers.append(int(np.argmax([up, down, 0.0])))
    assert answers == [2, 0, 2, 1, 1, 0]


def test_an_adapter_without_held_out_predictions_says_why_there_is_nothing_to_draw(fold: Fold) -> None:
    with pytest.raises(InputError, match="not fitted"):
        plot.thresholds(Calibrated())
    with pytest.raises(InputError, match="no thresholds that are fitted"):
        plot.thresholds(Fixed())  # type: ignore[arg-type]


def test_answers_to_another_fold_are_refused(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    foreign = Answers(pd.DataFrame({"id": ["x"], "outcome": ["up"]}))
    for draw in (plot.confusion, plot.accuracy_by):
        with pytest.raises(InputError, match="not asked"):
            draw(foreign, fold.truth)
    with pytest.raises(InputError, match="are not Answers"):
        plot.confusion(said.effects["bilinear_ridge"], fold.truth)
