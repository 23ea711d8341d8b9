"""Numbers that follow from a confusion, and the two areas under the curve that cancel the gene prior.

A *confusion* is an array of shape (..., 3, 4) that counts questions: true outcome by answered outcome, both in the
order of :data:`pertbase.folds.OUTCOMES` (up, down, no_change), with a fourth column for answers without an outcome.
Those are wrong and stay in every denominator; they are never a fourth class, since a fourth label in a macro average
invents a class nobody asked about, and leaving them out rewards silence.

Every function of a confusion works over its leading axes at once, so that a jackknife over thousands of target sets
is one call. Where scikit-learn has the same number, it is the same to rounding with ``labels=[0, 1, 2]`` and
``zero_division=0``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MIN_CLASS_QUESTIONS",
    "N_ANSWERED",
    "N_OUTCOMES",
    "NO_OUTCOME",
    "GeneAuroc",
    "accuracy",
    "balanced_accuracy",
    "confusion",
    "confusion_by",
    "f1",
    "gene_auroc",
    "gene_auroc_called",
    "gene_auroc_direction",
    "macro_f1",
    "micro_f1",
    "precision",
    "recall",
    "weighted_f1",
]

N_OUTCOMES = 3
N_ANSWERED = 4
NO_OUTCOME = 3
"""The answered column of answers without an outcome."""

MIN_CLASS_QUESTIONS = 10
"""Below this many questions of a class, balanced accuracy is not printed and baselines are not ranked."""

Floats = NDArray[np.float64]

# Below the smallest positive double there is nothing to tell apart; log(0) would make inf - inf.
_TINY = np.nextafter(0.0, 1.0)


def confusion(true: ArrayLike, answered: ArrayLike) -> Floats:
    """Return the confusion of shape (3, 4).

    Parameters
    ----------
    true
        Outcome codes 0, 1, 2, shape (n,).
    answered
        Outcome codes 0, 1, 2, shape (n,); 3 or a negative code where there is no outcome.
    """
    return confusion_by(np.zeros(np.shape(true), dtype=np.int64), 1, true, answered).reshape(N_OUTCOMES, N_ANSWERED)


def confusion_by(groups: ArrayLike, n_groups: int, true: ArrayLike, answered: ArrayLike) -> Floats:
    """Return one confusion a group, shape (n_groups, 3, 4).

    Parameters
    ----------
    groups
        Group codes 0 ... n_groups - 1, shape (n,).
    n_groups
        How many groups there are; some may have no question.
    true, answered
        As for :func:`confusion`.
    """
    columns = np.asarray(answered, dtype=np.int64)
    columns = np.where(columns < 0, NO_OUTCOME, columns)
    cells = (np.asarray(groups, dtype=np.int64) * N_OUTCOMES + np.asarray(true)) * N_ANSWERED + columns
    counts = np.bincount(cells, minlength=n_groups * N_OUTCOMES * N_ANSWERED)
    return counts.astype(np.float64).reshape(n_groups, N_OUTCOMES, N_ANSWERED)


def _ratio(numerator: Floats, denominator: Floats, *, otherwise: float) -> Floats:
    """Divide; where the denominator is zero, ``otherwise``."""
    safe = np.where(denominator == 0, 1.0, denominator)
    return np.where(denominator == 0, otherwise, numerator / safe)


def _right(counts: ArrayLike) -> tuple[Floats, Floats]:
    """Return the counts and the rightly answered of each outcome, (..., 3)."""
    table = np.asarray(counts, dtype=np.float64)
    return table, np.diagonal(table[..., :N_OUTCOMES], axis1=-2, axis2=-1)


def accuracy(counts: ArrayLike) -> Floats:
    """Return the share of questions answered right, (...); NaN where there is no question."""
    table, right = _right(counts)
    return _ratio(right.sum(-1), table.sum((-2, -1)), otherwise=np.nan)


def balanced_accuracy(counts: ArrayLike) -> Floats:
    """Return the plain mean of the three recalls, (...); NaN where a class is absent from the truth."""
    table, right = _right(counts)
    return np.asarray(_ratio(right, table.sum(-1), otherwise=np.nan).mean(-1))


def recall(counts: ArrayLike) -> Floats:
    """Return the recall of each outcome, (..., 3); 0 where the class is absent."""
    table, right = _right(counts)
    return _ratio(right, table.sum(-1), otherwise=0.0)


def precision(counts: ArrayLike) -> Floats:
    """Return the precision of each outcome, (..., 3); 0 where it is never answered."""
    table, right = _right(counts)
    return _ratio(right, table[..., :N_OUTCOMES].sum(-2), otherwise=0.0)


def f1(counts: ArrayLike) -> Floats:
    """Return the F1 of each outcome, (..., 3): ``2 TP / (2 TP + FP + FN)``; 0 where it is neither true nor answered."""
    table, right = _right(counts)
    return _ratio(2 * right, table.sum(-1) + table[..., :N_OUTCOMES].sum(-2), otherwise=0.0)


def macro_f1(counts: ArrayLike) -> Floats:
    """Return the plain mean of the three F1, (...)."""
    return np.asarray(f1(counts).mean(-1))


def weighted_f1(counts: ArrayLike) -> Floats:
    """Return the mean of the three F1, weighted by how often each outcome is true, (...)."""
    table, _ = _right(counts)
    support = table.sum(-1)
    return _ratio((f1(table) * support).sum(-1), support.sum(-1), otherwise=0.0)


def micro_f1(counts: ArrayLike) -> Floats:
    """Return the F1 over pooled counts, (...): the accuracy, unless answers lack an outcome.

    An answer without an outcome misses a true class but claims none: it is one FN and no FP.
    """
    table, right = _right(counts)
    return _ratio(2 * right.sum(-1), table.sum((-2, -1)) + table[..., :N_OUTCOMES].sum((-2, -1)), otherwise=0.0)


@dataclass(frozen=True)
class GeneAuroc:
    """Area under the receiver operating characteristic within each readout gene, averaged over genes.

    Parameters
    ----------
    value
        The plain mean over counted genes; NaN where none counts.
    n_genes
        Readout genes with both classes: those averaged over.
    n_genes_asked
        Readout genes with any question.
    """

    value: float
    n_genes: int
    n_genes_asked: int


def gene_auroc(genes: ArrayLike, positive: ArrayLike, score: ArrayLike) -> GeneAuroc:
    """Return the mean over readout genes of each gene's own AUROC.

    Within a gene a prior over genes says nothing, so this number shows what is known beyond it. Ties count half:
    the Mann-Whitney statistic on midranks, ``(R+ - n+(n+ + 1)/2) / (n+ n-)``.

    Parameters
    ----------
    genes
        Codes of the readout genes, non-negative, shape (n,).
    positive
        Whether the question is of the positive class, shape (n,).
    score
        Larger means more likely positive, shape (n,). A missing score (NaN) is on the wrong side of every
        comparison: it is an answer that was not given, and those are wrong.
    """
    group = np.asarray(genes, dtype=np.int64)
    is_positive = np.asarray(positive, dtype=bool)
    if not len(group):
        return GeneAuroc(float("nan"), 0, 0)
    n_positive = np.bincount(group, is_positive)
    n_negative = np.bincount(group, ~is_positive)
    both = (n_positive > 0) & (n_negative > 0)
    n_asked = int(((n_positive + n_negative) > 0).sum())
    if not both.any():
        return GeneAuroc(float("nan"), 0, n_asked)
    # Sorting is what costs; genes that do not count need none.
    keep = both[group]
    group, is_positive, values = group[keep], is_positive[keep], np.asarray(score, dtype=np.float64)[keep]
    values = np.where(np.isnan(values), np.where(is_positive, -np.inf, np.inf), values)
    ranks = _midranks(group, values)
    rank_sum = np.bincount(group[is_positive], ranks[is_positive], minlength=len(both))[both]
    positives, negatives = n_positive[both], n_negative[both]
    areas = (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
    return GeneAuroc(float(areas.mean()), int(both.sum()), n_asked)


def _midranks(group: NDArray[np.int64], values: Floats) -> Floats:
    """Return the rank of each value within its group, from 1, tied values sharing their mean rank."""
    order = np.lexsort((values, group))
    sorted_group, sorted_values = group[order], values[order]
    new_group = np.r_[True, sorted_group[1:] != sorted_group[:-1]]
    new_run = new_group | np.r_[True, sorted_values[1:] != sorted_values[:-1]]
    run_start = np.flatnonzero(new_run)
    run_end = np.r_[run_start[1:], len(values)]
    group_start = np.flatnonzero(new_group)
    first = group_start[(np.cumsum(new_group) - 1)[run_start]]
    middle = (run_start + run_end + 1) / 2 - first
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(middle, run_end - run_start)
    return ranks


def gene_auroc_called(genes: ArrayLike, true: ArrayLike, scores: ArrayLike) -> GeneAuroc:
    """Return the per-gene AUROC of up or down against no_change, by ``-score_no_change``.

    The score is negated, not taken from 1: below 1e-16 the subtraction would tie what is ordered.

    Parameters
    ----------
    genes
        Codes of the readout genes, shape (n,).
    true
        Outcome codes 0, 1, 2, shape (n,).
    scores
        Scores in the order of the outcomes, shape (n, 3).
    """
    table = np.asarray(scores, dtype=np.float64)
    return gene_auroc(genes, np.asarray(true) != 2, -table[:, 2])


def gene_auroc_direction(genes: ArrayLike, true: ArrayLike, scores: ArrayLike) -> GeneAuroc:
    """Return the per-gene AUROC of up against down, among questions that are either.

    By ``log(score_up) - log(score_down)``, so that how likely no_change was thought plays no part. Parameters as
    for :func:`gene_auroc_called`.
    """
    called = np.asarray(true) != 2
    logs = np.log(np.maximum(np.asarray(scores, dtype=np.float64)[called, :2], _TINY))
    return gene_auroc(np.asarray(genes)[called], np.asarray(true)[called] == 0, logs[:, 0] - logs[:, 1])
