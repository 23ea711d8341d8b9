"""One effect for everything: the mean over training conditions or cells."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase.baselines.base import ExpressionBaseline
from pertbase.baselines.simple._common import fitted, measured, predicted
from pertbase.folds import Effects, Inputs, Training

__all__ = ["ContextMean", "PerturbedMean"]


class ContextMean(ExpressionBaseline):
    """The unweighted mean of the training conditions' effects in the context.

    In a context without training conditions, the unweighted mean over all of them.
    """

    needs_cells = False

    def __init__(self) -> None:
        self._means: dict[str, np.ndarray] | None = None
        self._mean: np.ndarray | None = None
        self._genes: pd.Index | None = None

    def fit(self, training: Training) -> ContextMean:
        """Average the effects of train and val within each context."""
        seen = measured(training, self)
        everything = np.ones(len(seen.conditions), dtype=bool)
        self._means, self._mean = seen.means_by_context(everything), seen.mean(everything)
        self._genes = seen.genes
        return self

    def predict(self, inputs: Inputs) -> Effects:
        """Predict the context's mean effect, whatever was perturbed."""
        means, mean = fitted(self._means, self), fitted(self._mean, self)
        rows: list[np.ndarray | None] = [means.get(context, mean) for context in inputs.conditions["context"]]
        return predicted(inputs, fitted(self._genes, self), rows)


class PerturbedMean(ExpressionBaseline):
    r"""The mean of all perturbed training cells, against control.

    Systema's "perturbed mean" (Viñas Torné et al. 2025) averages expression over cells. Against each cell's own
    context's control that is the mean of the conditions' effects :math:`e_c` weighted by their numbers of cells
    :math:`n_c`, :math:`\sum_c n_c e_c / \sum_c n_c`: exactly for ``mean_log``, which is linear in cells; for
    ``log_mean`` it is the same average of log ratios and no longer that of cells. One prediction for every
    condition and context.
    """

    needs_cells = False

    def __init__(self) -> None:
        self._mean: np.ndarray | None = None
        self._genes: pd.Index | None = None

    def fit(self, training: Training) -> PerturbedMean:
        """Average the effects of train and val, weighted by cells."""
        seen = measured(training, self)
        weights = seen.conditions["n_cells"].to_numpy(dtype=np.float64)
        self._mean, self._genes = np.average(seen.values, axis=0, weights=weights), seen.genes
        return self

    def predict(self, inputs: Inputs) -> Effects:
        """Predict the same effect for every condition."""
        mean = fitted(self._mean, self)
        return predicted(inputs, fitted(self._genes, self), [mean] * len(inputs.conditions))
