"""What was seen, or merely asked, in another context."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase.baselines.base import AnswerBaseline, ExpressionBaseline
from pertbase.baselines.simple._common import Measured, Shares, answers, fitted, measured, predicted
from pertbase.folds import OUTCOMES, Answers, Effects, Inputs, Training, vote

__all__ = ["AskedElsewhere", "CrossContext"]


def _pair(questions: pd.DataFrame) -> pd.Series:
    return questions["perturbation"].astype(str) + "\x1f" + questions["gene"].astype(str)


def _nothing_elsewhere(training: Training) -> str | None:
    if training.kind.startswith("unseen_context"):
        return None
    return f"no perturbation that {training.fold} asks about is in training, so none was asked in another context"


class CrossContext(ExpressionBaseline, AnswerBaseline):
    """What the same perturbation did in the training contexts.

    On folds with expression it predicts the perturbation's mean effect over its training conditions, each against
    the controls of its own context, and the mean effect over all training conditions for a perturbation never seen.

    On outcome tables it answers: the most frequent outcome of the same perturbation and readout gene over the
    training contexts, ties to ``no_change``, then ``down``. A pair not covered there is ``unsupported``, so that the
    covered share is counted. Scores are smoothed as in :class:`~pertbase.baselines.GenePrior`.
    """

    needs_cells = False
    needs_expression = False
    speaks_of = "perturbations and readout genes that were asked of a training context"

    def __init__(self) -> None:
        self._effects: dict[str, np.ndarray] | None = None
        self._mean: np.ndarray | None = None
        self._genes: pd.Index | None = None
        self._shares: Shares | None = None

    def answers_directly(self, training: Training) -> bool:
        """Return whether the data set is an outcome table."""
        return training.effects is None

    def refuses(self, training: Training) -> str | None:
        """Refuse an outcome table whose fold holds out perturbations: no pair could be covered."""
        return _nothing_elsewhere(training) if self.answers_directly(training) else None

    def fit(self, training: Training) -> CrossContext:
        """Average the effects, or count the outcomes, of each perturbation over train and val."""
        self._effects = self._mean = self._genes = self._shares = None
        if self.answers_directly(training):
            self._shares = Shares.of(training.questions.assign(pair=_pair(training.questions)), "pair")
            return self
        seen: Measured = measured(training, self)
        names = seen.conditions["perturbation"].to_numpy()
        self._effects = {str(name): seen.mean(names == name) for name in pd.unique(names)}
        self._mean = seen.mean(np.ones(len(names), dtype=bool))
        self._genes = seen.genes
        return self

    def predict(self, inputs: Inputs) -> Effects:
        """Predict the perturbation's mean training effect."""
        effects, mean = fitted(self._effects, self), fitted(self._mean, self)
        rows: list[np.ndarray | None] = [effects.get(name, mean) for name in inputs.conditions["perturbation"]]
        return predicted(inputs, fitted(self._genes, self), rows)

    def answer(self, inputs: Inputs) -> Answers:
        """Answer with the pair's most frequent training outcome."""
        shares = fitted(self._shares, self)
        counts = shares.at(_pair(inputs.questions))
        covered = counts.sum(axis=1) > 0
        smoothed = counts + shares.frequency
        scores = smoothed / np.where(covered, smoothed.sum(axis=1), 1.0)[:, None]
        return answers(inputs.questions, vote(counts), scores, supported=covered)


class AskedElsewhere(AnswerBaseline):
    """A control row: takes having been asked in another context for a sign of change.

    In curated tables the pairs that recur across contexts were mostly chosen because something changes: 59-70% of
    recurring PerturbQA pairs are differentially expressed, against 11% of the others. A pair (perturbation, readout
    gene) asked in any training context, whatever the outcome there, is answered with the gene's most frequent
    direction in training (``down`` on ties; a gene that never changed takes the commonest direction of all). A pair
    never asked is ``unsupported``, so that the covered share is counted.

    Scores of covered pairs are the gene's shares of up and down, smoothed by one call, and 0 for ``no_change``.
    """

    speaks_of = "perturbations and readout genes that were asked of a training context"

    def __init__(self) -> None:
        self._asked: pd.Index | None = None
        self._directions: Shares | None = None

    def refuses(self, training: Training) -> str | None:
        """Refuse where no pair could be covered, and on a screen, where every pair is asked in every context."""
        if training.effects is not None:
            return "every measured gene is asked of every condition of a screen: being asked says nothing"
        return _nothing_elsewhere(training)

    def fit(self, training: Training) -> AskedElsewhere:
        """Note what was asked, ambiguous questions too, and count each gene's directions."""
        self._asked = pd.Index(_pair(training.questions).unique())
        called = training.questions.loc[training.questions["outcome"].isin(OUTCOMES[:2])]
        self._directions = Shares.of(called, "gene")
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer a recurring pair with its gene's usual direction."""
        asked, directions = fitted(self._asked, self), fitted(self._directions, self)
        counts = directions.at(inputs.questions["gene"])[:, :2]
        never = counts.sum(axis=1, keepdims=True) == 0
        codes = np.where(np.greater(*np.where(never, directions.total[:2], counts).T), 0, 1)
        frequency = directions.frequency[:2] if directions.total.any() else np.full(2, 0.5)
        scores = (counts + frequency) / (counts.sum(axis=1, keepdims=True) + 1.0)
        scores = np.column_stack([scores, np.zeros(len(scores))])
        covered = _pair(inputs.questions).isin(asked).to_numpy()
        return answers(inputs.questions, codes, scores, supported=covered)
