"""Answers that look at the past of a readout gene, or of a perturbation, and at nothing else."""

from __future__ import annotations

import numpy as np

from pertbase.baselines.base import AnswerBaseline
from pertbase.baselines.simple._common import Shares, answers, fitted
from pertbase.folds import OUTCOMES, Answers, Inputs, Training, vote

__all__ = ["GenePrior", "NoChange", "PerturbationPrior"]


class NoChange(AnswerBaseline):
    """Answers ``no_change`` to everything, with the scores (0, 0, 1).

    Its balanced accuracy is exactly 1/3 wherever all three outcomes occur, whatever its accuracy.
    """

    def fit(self, training: Training) -> NoChange:
        """Do nothing: there is nothing to learn."""
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer ``no_change``."""
        codes = np.full(len(inputs.questions), OUTCOMES.index("no_change"))
        return answers(inputs.questions, codes, np.eye(len(OUTCOMES))[codes])


class GenePrior(AnswerBaseline):
    r"""Each readout gene's most frequent training outcome, whatever was perturbed.

    With :math:`n_{gk}` training questions of gene :math:`g` and outcome :math:`k`, and :math:`p_k` the share of
    :math:`k` over all training questions, the answer is :math:`\arg\max_k n_{gk}`; balanced,
    :math:`\arg\max_k n_{gk} / p_k`, which is best for balanced accuracy. Ties go to ``no_change``, then ``down``. A
    gene never asked in training gets the most frequent outcome of all; balanced, where all three are then equally
    frequent, the tie gives ``no_change``.

    Scores are smoothed by one question spread as :math:`p`: proportional to :math:`n_{gk} + p_k`, balanced to
    :math:`n_{gk} / p_k + 1`. The outcome comes from the counts, never from the smoothed scores.

    On PerturbQA (fitted on train, all test rows; K562, RPE1, HepG2, Jurkat), where no test perturbation is seen in
    training, accuracy is .9202, .9417, .9280, .9291 and balanced accuracy .6121, .7960, .7614, .7053; balanced, the
    latter is .7637, .8543, .8161, .7927.

    Parameters
    ----------
    balanced
        Whether counts are divided by the class frequency.
    """

    def __init__(self, *, balanced: bool = False) -> None:
        self.balanced = balanced
        self._shares: Shares | None = None

    def fit(self, training: Training) -> GenePrior:
        """Count the outcomes of each gene over train and val, contexts pooled."""
        self._shares = Shares.of(training.questions, "gene")
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer each question by its gene alone."""
        shares = fitted(self._shares, self)
        counts = shares.at(inputs.questions["gene"])
        frequency = shares.frequency
        if not self.balanced:
            unseen = counts.sum(axis=1) == 0
            codes = vote(np.where(unseen[:, None], shares.total, counts))
            return answers(inputs.questions, codes, _normalised(counts + frequency))
        # A class that never occurs in training has no counts to divide, and stays at zero.
        occurs = frequency > 0
        weighted = counts / np.where(occurs, frequency, 1.0)
        return answers(inputs.questions, vote(weighted), _normalised(weighted + occurs))


class PerturbationPrior(AnswerBaseline):
    """The most frequent training outcome of the perturbation, whatever the readout gene.

    The perturbation's own training questions (in other contexts) are counted; where there are none, those of its
    target set, that is the same targets by another mechanism or the same compound at another dose; where there are none
    either, all training questions. Ties go to ``no_change``, then ``down``. ``no_change`` being the commonest
    outcome of nearly every perturbation, the outcomes say little; the scores (smoothed as in :class:`GenePrior`) rank
    strong perturbations above weak ones.
    """

    def __init__(self) -> None:
        self._by_name: Shares | None = None
        self._by_set: Shares | None = None

    def fit(self, training: Training) -> PerturbationPrior:
        """Count the outcomes of each perturbation and each target set over train and val."""
        self._by_name = Shares.of(training.questions, "perturbation")
        self._by_set = Shares.of(training.questions, "target_set")
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer each question by its perturbation alone."""
        by_name, by_set = fitted(self._by_name, self), fitted(self._by_set, self)
        counts = by_name.at(inputs.questions["perturbation"])
        for fallback in (by_set.at(inputs.questions["target_set"]), by_name.total):
            counts = np.where(counts.sum(axis=1, keepdims=True) == 0, fallback, counts)
        return answers(inputs.questions, vote(counts), _normalised(counts + by_name.frequency))


def _normalised(weights: np.ndarray) -> np.ndarray:
    total = weights.sum(axis=1, keepdims=True)
    # Only with no training question at all is there nothing to divide by.
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1.0 / len(OUTCOMES))
