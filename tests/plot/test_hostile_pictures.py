"""Pictures of odd things: what cannot be drawn is told with a remedy, and no name breaks what can."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pertbase import plot
from pertbase.errors import PertbaseError
from pertbase.folds import Answers, Fold
from pertbase.scorers import outcome

LONG = "<script>alert(1)</script>$_{x}$ " + "w" * 300
ODD = {"S1": LONG, "S2": r"\$\frac_", "S3": "a\nb\tc", "S4": "Ünïcøde_$"}
OF_FOLDS = (plot.split_map, plot.outcome_balance, plot.effect_distribution, plot.controls, plot.coverage)


def refused(draw: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Hold that a picture is refused as an error a user can mend."""
    with pytest.raises(PertbaseError) as caught:
        draw(*args, **kwargs)
    assert caught.value.remedy, str(caught.value)


@pytest.mark.parametrize("draw", OF_FOLDS)
def test_a_fold_of_nothing_is_told_with_what_to_do(fold: Fold, draw: Callable[..., Any]) -> None:
    nothing = {name: getattr(fold, name).iloc[:0] for name in ("questions", "conditions", "controls")}
    refused(draw, replace(fold, **nothing))


def test_answers_to_no_question_are_told_with_what_to_do(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    truth = replace(fold.truth, questions=fold.truth.questions.iloc[:0])
    none = Answers(said.answers["no_change"].table.iloc[:0])
    refused(plot.confusion, none, truth)
    refused(plot.accuracy_by, none, truth)
    refused(plot.disagreement, {"a": none, "b": none}, truth)
    refused(plot.effects_against_truth, said.effects["bilinear_ridge"], truth)
    for metric in ("accuracy", "balanced_accuracy"):
        refused(plot.intervals, {"a": outcome(none, truth)}, metric=metric)


@pytest.mark.parametrize("given", [None, 3, "text", [], {}, [1], {"a": 1}, pd.DataFrame()])
def test_what_is_something_else_is_told_with_what_to_give(fold: Fold, said, given: object) -> None:  # type: ignore[no-untyped-def]
    answers, truth, effects = said.answers["no_change"], fold.truth, said.effects["bilinear_ridge"]
    for draw in (*OF_FOLDS, plot.thresholds, plot.intervals, plot.table, plot.shortcuts, plot.reason_axes):
        refused(draw, given)
    for draw in (plot.confusion, plot.accuracy_by):
        refused(draw, given, truth)
        refused(draw, answers, given)
    refused(plot.disagreement, given, truth)
    refused(plot.disagreement, {"a": answers, "b": answers}, given)
    refused(plot.effects_against_truth, given, truth)
    refused(plot.effects_against_truth, effects, given)
    refused(plot.paths, given)
    if given is not None:
        refused(plot.paths, [], claimed=given)
        refused(plot.controls, fold, ax=given)
        refused(plot.coverage, fold, given)
        refused(plot.effects_against_truth, effects, truth, thresholds=given)


@pytest.mark.parametrize("count", [0, -1, None, "3", 2.5, True])
def test_counts_are_whole_numbers_from_one(fold: Fold, said, count: Any) -> None:  # type: ignore[no-untyped-def]
    refused(plot.outcome_balance, fold, by="gene", most=count)
    refused(plot.accuracy_by, said.answers["no_change"], fold.truth, most=count)
    refused(plot.effects_against_truth, said.effects["bilinear_ridge"], fold.truth, most=count)
    refused(plot.effect_distribution, fold, bins=count)
    refused(plot.thresholds, said.adapters["bilinear_ridge"], bins=count)


def renamed(fold: Fold) -> Fold:
    tables = {name: getattr(fold, name) for name in ("questions", "conditions", "controls")}
    changed = {name: table.assign(context=table["context"].map(ODD)) for name, table in tables.items()}
    changed["questions"] = changed["questions"].assign(gene=changed["questions"]["gene"] + "_$\\alpha" + "y" * 60)
    return replace(fold, data=LONG, **changed)


def test_names_of_any_kind_leave_room_for_what_is_drawn(fold: Fold, said) -> None:  # type: ignore[no-untyped-def]
    odd = renamed(fold)
    scores = {name: outcome(said.answers["gene_prior"], fold.truth) for name in ODD.values()}
    drawn: list[Callable[[], Any]] = [lambda draw=draw: draw(odd) for draw in OF_FOLDS]  # type: ignore[misc]
    drawn += [lambda by=by: plot.outcome_balance(odd, by=by) for by in ("context", "gene")]  # type: ignore[misc]
    drawn += [lambda: plot.intervals(scores), lambda: plot.paths([[[LONG, "activates", ODD["S2"]]]], title=LONG)]
    for draw in drawn:
        with warnings.catch_warnings():
            # Where names leave no room, matplotlib says so in a warning.
            warnings.simplefilter("error")
            ax = draw()
            ax.figure.canvas.draw()
        for label in ax.get_yticklabels():
            assert label.get_text().endswith(")") or "(n = " not in label.get_text()
        size = ax.get_window_extent()
        assert size.width > 80, ax.get_title(loc="left")
        assert size.height > 40, ax.get_title(loc="left")


def test_effects_that_are_no_numbers_do_not_stretch_an_axis(fold: Fold) -> None:
    effects = fold.questions["effect"].to_numpy(copy=True)
    whole = plot.effect_distribution(fold).get_xlim()
    effects[::7] = np.inf
    effects[1::7] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = plot.effect_distribution(replace(fold, questions=fold.questions.assign(effect=effects)))
    assert ax.get_xlim() == pytest.approx(whole, rel=0.5)


def test_thousands_of_perturbations_and_hundreds_of_contexts_stay_on_a_page(fold: Fold) -> None:
    one = fold.conditions.iloc[:1]
    many = pd.concat([one.assign(perturbation=f"p{number}") for number in range(5000)])
    square = pd.concat(
        [one.assign(perturbation=f"p{number}", context=f"c{number}") for number in range(300)]
        + [one.assign(perturbation=f"p{number}", context="c0") for number in range(300, 350)]
    )
    for conditions in (many, square):
        ax = plot.split_map(replace(fold, conditions=conditions))
        ax.figure.canvas.draw()
        width, height = ax.figure.get_size_inches()
        assert width <= 9
        assert height <= 20
    assert not ax.get_yticklabels()
    assert ax.get_ylabel() == "300 contexts"
