"""Answers laid beside the truth, question by question."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase._intervals import Interval, Metric, Term, cluster, two_way_interval
from pertbase._metrics import MIN_CLASS_QUESTIONS, N_OUTCOMES, NO_OUTCOME, balanced_accuracy, confusion
from pertbase.errors import InputError
from pertbase.folds._answers import OUTCOMES, SCORES, Answers, outcome_codes
from pertbase.folds._views import Truth

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FEW_CLUSTERS", "Aligned", "align", "cluster_notes", "joint_interval", "too_few"]

AMBIGUOUS = "ambiguous"
FEW_CLUSTERS = 20
"""With fewer target sets or readout genes than this, an interval comes with a warning."""

_NEEDED = ("id", "regime", "context", "target_set", "gene", "outcome", "effect")


@dataclass(frozen=True, eq=False)
class Aligned:
    """The headline questions of one fold with one baseline's answers, and the ambiguous ones apart.

    Parameters
    ----------
    questions
        The questions that are not ambiguous: ``id``, ``regime``, ``context``, ``target_set``, ``gene`` and, where paths
        were given, ``conflict``; n rows.
    true
        Outcome codes, shape (n,).
    answered
        Outcome codes, 3 where an answer has no outcome, shape (n,).
    scores
        Shape (n, 3). An answer with an outcome and no scores has 1 for its outcome; one with neither has NaN.
    status
        Shape (n,).
    missing
        Whether there was no answer at all (its status is ``no_answer``), shape (n,).
    ambiguous_effect, ambiguous_scores
        Of the ambiguous questions, shapes (m,) and (m, 3).
    sets, genes
        Codes of the target sets and readout genes, in the order of their names, shape (n,).
    """

    questions: pd.DataFrame
    true: np.ndarray
    answered: np.ndarray
    scores: np.ndarray
    status: np.ndarray
    missing: np.ndarray
    ambiguous_effect: np.ndarray
    ambiguous_scores: np.ndarray
    sets: np.ndarray
    genes: np.ndarray

    @property
    def confusion(self) -> np.ndarray:
        """Counts of the headline questions, (3, 4)."""
        return confusion(self.true, self.answered)

    def part(self, rows: np.ndarray) -> Aligned:
        """Return some of the headline questions, by mask."""
        return Aligned(
            self.questions[rows],
            self.true[rows],
            self.answered[rows],
            self.scores[rows],
            self.status[rows],
            self.missing[rows],
            self.ambiguous_effect,
            self.ambiguous_scores,
            self.sets[rows],
            self.genes[rows],
        )


def _refuse_others(answers: object, truth: object) -> None:
    """Say what to give in place of what is easily given instead."""
    if not isinstance(answers, Answers):
        by_type = {
            "DataFrame": "make them so: pertbase.Answers(table), with the columns id and outcome",
            "Effects": "turn effects into answers first: pertbase.adapters.Fixed().fit(fold.training).answer(inputs, "
            "effects)",
        }
        kind = type(answers).__name__
        raise InputError(
            "are not Answers", key="answers", value=kind, remedy=by_type.get(kind, "give pertbase.Answers")
        )
    if not isinstance(truth, Truth):
        raise InputError("is not a Truth", key="truth", value=type(truth).__name__, remedy="give fold.truth")


def align(answers: Answers, truth: Truth) -> Aligned:
    """Match answers with the truth by id; a question without an answer has one without an outcome.

    Raises
    ------
    InputError
        Where one of the two is something else, an answer's id is not asked, or the truth lacks a column, repeats an id,
        or has an outcome where it is ambiguous or none where it is not.
    """
    _refuse_others(answers, truth)
    questions = truth.questions
    absent = [column for column in _NEEDED if column not in questions.columns]
    if absent:
        raise InputError(f"the truth of fold {truth.name!r} lacks columns", key="questions", value=absent)
    rows = answers.rows(questions["id"].to_numpy(dtype=object))
    # Where every answer is found once, and nothing else is asked, no id repeats: the answers' do not.
    paired = len(rows) == len(answers) and bool((np.bincount(rows[rows >= 0], minlength=len(rows)) == 1).all())
    if not paired and questions["id"].duplicated().any():
        raise InputError(
            f"the truth of fold {truth.name!r} repeats a question",
            key="id",
            value=questions.loc[questions["id"].duplicated(), "id"].iloc[0],
        )
    for column in ("context", "target_set", "gene", "regime"):
        if questions[column].isna().any():
            raise InputError(
                f"the truth of fold {truth.name!r} has questions without a {column}",
                key=column,
                value=questions.loc[questions[column].isna(), "id"].iloc[0],
            )
    codes = outcome_codes(questions["outcome"]).astype(np.int64)
    ambiguous = questions["regime"].to_numpy(dtype=object) == AMBIGUOUS
    torn = ambiguous != (codes < 0)
    if torn.any():
        raise InputError(
            f"the truth of fold {truth.name!r} contradicts itself: ambiguous questions have no outcome, others have",
            key="outcome",
            value=questions.loc[torn, ["id", "regime", "outcome"]].iloc[0].tolist(),
        )
    table = answers.to(questions)
    answered = outcome_codes(table["outcome"]).astype(np.int64)
    scores = table[list(SCORES)].to_numpy(dtype=np.float64)
    bare = np.isnan(scores).all(axis=1) & (answered >= 0)
    scores[bare] = np.eye(N_OUTCOMES)[answered[bare]]
    headline = ~ambiguous
    clusters = cluster([questions["target_set"].to_numpy()[headline]], [questions["gene"].to_numpy()[headline]])
    return Aligned(
        questions=_about(questions.loc[headline]),
        true=codes[headline],
        answered=np.where(answered < 0, NO_OUTCOME, answered)[headline],
        scores=scores[headline],
        status=table["status"].to_numpy(dtype=object)[headline],
        missing=(rows < 0)[headline],
        ambiguous_effect=questions["effect"].to_numpy(dtype=np.float64)[ambiguous],
        ambiguous_scores=scores[ambiguous],
        sets=clusters.sets[0],
        genes=clusters.genes[0],
    )


def _about(questions: pd.DataFrame) -> pd.DataFrame:
    """Return what questions are grouped by: ``conflict`` too, where paths were given with them."""
    names = ["id", "regime", "context", "target_set", "gene"]
    if "conflict" not in questions.columns:
        return questions[names].reset_index(drop=True)
    told = np.where(questions["conflict"].fillna(value=False).astype(bool), "conflict", "no conflict")
    return questions[names].assign(conflict=told).reset_index(drop=True)


def too_few(counts: np.ndarray) -> str:
    """Return why balanced accuracy is not printed for a confusion, or an empty text."""
    rare = [
        f"{int(n)} {outcome}" for outcome, n in zip(OUTCOMES, counts.sum(-1), strict=True) if n < MIN_CLASS_QUESTIONS
    ]
    if not rare:
        return ""
    return (
        f"only {' and '.join(rare)} among the questions: below {MIN_CLASS_QUESTIONS} of a class in test, balanced "
        "accuracy is not printed and baselines are not ranked"
    )


def joint_interval(folds: Sequence[Sequence[tuple[Aligned, float]]], metric: Metric, *, level: float) -> Interval:
    """Return the mean over folds of a weighted sum of metrics, with its two-way interval.

    Parameters
    ----------
    folds
        Per fold, answers with their weights: one with 1, or two with 1 and -1 for a difference. For balanced
        accuracy, folds with :func:`too_few` of a class must be left out before; with none left, the value is NaN.
    metric
        From confusions to numbers.
    level
        What the interval is meant to cover.
    """
    parts = [(answers, weight / len(folds)) for fold in folds for answers, weight in fold]
    if not parts:
        return Interval(math.nan, level=level, note="no fold has it")
    if len(parts) == 1:
        ((answers, weight),) = parts
        terms = [Term(answers.true, answers.answered, answers.sets, answers.genes, weight)]
        return _checked(two_way_interval(terms, metric, level=level), metric, [answers])
    clusters = cluster(
        [answers.questions["target_set"].to_numpy(dtype=object) for answers, _ in parts],
        [answers.questions["gene"].to_numpy(dtype=object) for answers, _ in parts],
    )
    terms = [
        Term(answers.true, answers.answered, sets, genes, weight)
        for (answers, weight), sets, genes in zip(parts, clusters.sets, clusters.genes, strict=True)
    ]
    return _checked(two_way_interval(terms, metric, level=level), metric, [answers for answers, _ in parts])


def _checked(interval: Interval, metric: Metric, parts: Sequence[Aligned]) -> Interval:
    """Return the interval, or none of it where balanced accuracy is not to be printed."""
    if metric is balanced_accuracy:
        reasons = [reason for answers in parts if (reason := too_few(answers.confusion))]
        if reasons:
            nan = math.nan
            return replace(interval, value=nan, low=nan, high=nan, se=nan, note=reasons[0])
    return interval


def cluster_notes(interval: Interval) -> list[str]:
    """Return the warning that goes with few clusters, if it applies."""
    few = [
        f"{n} {name}"
        for n, name in ((interval.n_sets, "target sets"), (interval.n_genes, "readout genes"))
        if n < FEW_CLUSTERS
    ]
    return [f"only {' and '.join(few)} (fewer than {FEW_CLUSTERS}): intervals are rough"] if few else []
