"""The bilinear model on gene components of the training pseudobulk."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pertbase.baselines.base import ExpressionBaseline
from pertbase.baselines.simple._common import Measured, fitted, measured, predicted
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import Effects, Inputs, Perturbation, Training

__all__ = ["BilinearRidge"]


class BilinearRidge(ExpressionBaseline):
    r"""A bilinear map from the perturbed genes' components to the effects.

    The linear model of Ahlmann-Eltze, Huber and Anders (2025), :math:`Y \approx G K P^\top + b`:

    - :math:`Y`, genes x conditions: measured effects; :math:`b`, their mean over conditions, is removed first.
    - :math:`G`, genes x d: scores of the first d principal components of the training pseudobulk (mean log1p
      expression, genes as observations, each condition centred over genes).
    - :math:`P`, conditions x d: rows of :math:`G` at the perturbed genes.
    - :math:`K = (G^\top G + \lambda I)^{-1} G^\top (Y - b) P (P^\top P + \lambda I)^{-1}`.

    A combination's row of :math:`P` is the sum over its targets, each multiplied by its sign (unknown: -1), so that
    activation and interference of a gene mirror each other; where all signs agree this changes no prediction. Targets
    that were not measured are left out of the sum. A condition none of whose targets is measured takes no part in
    the fit, and is ``unsupported`` when asked.

    Parameters
    ----------
    n_components
        Gene components, d; fewer where there are fewer genes or conditions.
    ridge
        The ridge penalty :math:`\lambda`, the same on both sides.
    """

    needs_cells = False
    speaks_of = "perturbations with a target among the measured genes"

    def __init__(self, *, n_components: int = 10, ridge: float = 0.1) -> None:
        if n_components < 1:
            raise InputError("there is at least one component", key="n_components", value=n_components)
        if ridge <= 0:
            raise InputError("the ridge is positive", key="ridge", value=ridge)
        self.n_components = n_components
        self.ridge = ridge
        self._embedding: np.ndarray | None = None
        self._map: np.ndarray | None = None
        self._offset: np.ndarray | None = None
        self._genes: pd.Index | None = None

    def fit(self, training: Training) -> BilinearRidge:
        """Solve for K on train and val.

        Raises
        ------
        UnsupportedError
            Where no training condition has a measured target.
        """
        seen = measured(training, self)
        self._genes = seen.genes
        self._embedding = self._components(_pseudobulk(seen, training))
        named = [self._at(training.perturbations[name]) for name in seen.conditions["perturbation"]]
        rows = [row for row, found in enumerate(named) if found is not None]
        if not rows:
            raise UnsupportedError(f"no training condition of {training.fold} has a target among the measured genes")
        at_targets = np.stack([found for found in named if found is not None])
        effects = seen.values[rows]
        self._offset = effects.mean(axis=0)
        change = (effects - self._offset).T
        penalty = self.ridge * np.eye(self._embedding.shape[1])
        left = np.linalg.solve(self._embedding.T @ self._embedding + penalty, self._embedding.T @ change @ at_targets)
        self._map = np.linalg.solve(at_targets.T @ at_targets + penalty, left.T).T
        return self

    def predict(self, inputs: Inputs) -> Effects:
        """Predict from the components of the perturbed genes."""
        embedding, offset = fitted(self._embedding, self), fitted(self._offset, self)
        to_genes = embedding @ fitted(self._map, self)
        named = [self._at(inputs.perturbations[name]) for name in inputs.conditions["perturbation"]]
        rows = [None if found is None else to_genes @ found + offset for found in named]
        return predicted(inputs, fitted(self._genes, self), rows)

    def _components(self, pseudobulk: np.ndarray) -> np.ndarray:
        """Return the scores of the first components, genes x d, from genes x conditions."""
        centred = pseudobulk - pseudobulk.mean(axis=0)
        left, scale, _ = np.linalg.svd(centred, full_matrices=False)
        return np.asarray((left * scale)[:, : self.n_components])

    def _at(self, perturbation: Perturbation) -> np.ndarray | None:
        """Return the signed sum of the components of the measured targets, or None where there is none."""
        embedding = fitted(self._embedding, self)
        signs: Mapping[str, int] = perturbation.signs
        columns = fitted(self._genes, self).get_indexer(list(signs))
        weights = np.array([sign or -1 for sign in signs.values()], dtype=np.float64)
        known = columns >= 0
        return np.asarray(weights[known] @ embedding[columns[known]]) if known.any() else None


def _pseudobulk(seen: Measured, training: Training) -> np.ndarray:
    """Return the mean log1p expression of the training conditions, genes x conditions: basal and effect together."""
    if training.basal is None:
        raise UnsupportedError(f"{training.fold} has no basal expression, which the gene components need")
    basal = training.basal.reindex(index=seen.conditions["context"], columns=seen.genes).to_numpy()
    if training.statistic == "mean_log":
        return np.asarray((basal + seen.values).T)
    from pertbase.folds._labels import PSEUDOCOUNT  # brings scipy.stats along, half a second

    # log_mean is the log ratio of expm1 of mean log1p, with a pseudocount: undo it.
    scaled = np.exp(seen.values) * (np.expm1(basal) + PSEUDOCOUNT) - PSEUDOCOUNT
    return np.asarray(np.log1p(np.maximum(scaled, 0.0)).T)
