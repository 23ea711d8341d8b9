"""Answers that look at the basal level of the readout gene, and at nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase.baselines.base import AnswerBaseline
from pertbase.baselines.simple._common import answers, fitted
from pertbase.errors import UnsupportedError
from pertbase.folds import OUTCOMES, Answers, Inputs, Training, outcome_codes, vote

__all__ = ["BasalExpression"]

_LOG_SHIFT = 0.01
"""Added before the logarithm of a basal level; about the mean log1p of a gene seen in one cell of a hundred."""


class BasalExpression(AnswerBaseline):
    """How often genes of this basal level change, and which way.

    Detecting a change takes expression: on Papalexi the basal level alone separates genes that ever change with an
    AUC of .90. A multinomial logistic regression, classes weighted to be equally frequent, on the level b (mean log1p
    of the input controls of the context), its square and log(b + 0.01), each standardised over the training questions;
    L2 penalty 1 (scikit-learn's ``C``). The answer is the most probable outcome, ties to ``no_change``, then ``down``.
    A question in a context without input controls is ``unsupported``.
    """

    needs_expression = True
    speaks_of = "contexts with input controls"

    def __init__(self) -> None:
        self._weights: np.ndarray | None = None
        self._centre = np.zeros(3)
        self._scale = np.ones(3)

    def refuses(self, training: Training) -> str | None:
        """Refuse where no input control was measured."""
        return None if training.basal is not None else f"{training.fold} has no basal expression"

    def fit(self, training: Training) -> BasalExpression:
        """Fit the regression to the headline questions of train and val.

        Raises
        ------
        UnsupportedError
            Where there is no basal expression, or training holds fewer than two outcomes.
        """
        known = training.headline
        features, covered = _features(training.basal, known)
        codes = outcome_codes(known["outcome"])[covered]
        if len(np.unique(codes)) < 2:
            raise UnsupportedError(f"the training questions of {training.fold} have fewer than two outcomes")
        features = features[covered]
        self._centre, self._scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-12)
        self._weights = _logistic((features - self._centre) / self._scale, codes)
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer each question by the basal level of its gene."""
        weights = fitted(self._weights, self)
        features, covered = _features(inputs.basal, inputs.questions)
        standard = np.where(covered[:, None], (features - self._centre) / self._scale, 0.0)
        logits = np.column_stack([standard, np.ones(len(standard))]) @ weights
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        return answers(inputs.questions, vote(scores), scores, supported=covered)


def _features(basal: pd.DataFrame | None, questions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return b, its square and its logarithm for each question, and whether its level is known."""
    if basal is None:
        raise UnsupportedError("there is no basal expression of input controls")
    rows = basal.index.get_indexer(questions["context"])
    columns = basal.columns.get_indexer(questions["gene"])
    covered = (rows >= 0) & (columns >= 0)
    level = np.zeros(len(questions))
    level[covered] = basal.to_numpy()[rows[covered], columns[covered]]
    return np.column_stack([level, level**2, np.log(level + _LOG_SHIFT)]), covered


def _logistic(features: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return weights of shape (n_features + 1, 3), the intercept last; a class never seen gets -inf there."""
    from sklearn.linear_model import LogisticRegression

    # Many questions share a (context, gene), and so their features: counted once each, with a weight.
    points, where = np.unique(features, axis=0, return_inverse=True)
    counts = np.zeros((len(points), len(OUTCOMES)))
    np.add.at(counts, (where.ravel(), codes), 1.0)
    point, outcome = np.nonzero(counts)
    share = counts.sum(axis=0)
    weight = counts[point, outcome] / share[outcome] * (share.sum() / np.count_nonzero(share))
    model = LogisticRegression(max_iter=1000).fit(points[point], outcome, sample_weight=weight)
    weights = np.zeros((features.shape[1] + 1, len(OUTCOMES)))
    weights[-1] = -np.inf
    fitted_weights = np.vstack([model.coef_.T, model.intercept_])
    if len(model.classes_) == 2:
        # One column for the second class against the first.
        fitted_weights = np.column_stack([np.zeros(len(fitted_weights)), fitted_weights])
    weights[:, model.classes_] = fitted_weights
    return weights
