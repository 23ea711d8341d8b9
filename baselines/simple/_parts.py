"""Combinations from their parts: the sum, or the mean, of what each part does alone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase.baselines.base import ExpressionBaseline
from pertbase.baselines.simple._common import fitted, measured, predicted
from pertbase.folds import Effects, Inputs, Part, Training

__all__ = ["Additive", "MatchingMean"]


@dataclass(frozen=True, eq=False)
class _Singles:
    """Training effects of parts given alone, and the mean effect that stands in for the others."""

    effects: dict[Part, dict[str, np.ndarray]]
    mean_in: dict[str, np.ndarray]
    mean: np.ndarray
    genes: pd.Index

    @classmethod
    def of(cls, training: Training, owner: object) -> _Singles:
        seen = measured(training, owner)
        parts = [training.perturbations[name].parts for name in seen.conditions["perturbation"]]
        single = np.array([len(found) == 1 for found in parts])
        effects: dict[Part, dict[str, np.ndarray]] = {}
        for row in np.flatnonzero(single):
            effects.setdefault(parts[row][0], {})[str(seen.conditions.loc[row, "context"])] = seen.values[row]
        averaged = single if single.any() else np.ones(len(parts), dtype=bool)
        return cls(effects, seen.means_by_context(averaged), seen.mean(averaged), seen.genes)

    def of_part(self, part: Part, context: str) -> np.ndarray:
        """Return the part's effect in the context, else its mean over others, else the mean effect."""
        by_context = self.effects.get(part)
        if by_context is None:
            return self.mean_in.get(context, self.mean)
        found = by_context.get(context)
        return np.mean(list(by_context.values()), axis=0) if found is None else found


class _FromParts(ExpressionBaseline):
    needs_cells = False

    def __init__(self) -> None:
        self._singles: _Singles | None = None

    def fit(self, training: Training) -> _FromParts:
        """Keep the effects of the parts that were given alone, in train and val."""
        self._singles = _Singles.of(training, self)
        return self

    def predict(self, inputs: Inputs) -> Effects:
        """Put the parts' effects together."""
        singles = fitted(self._singles, self)
        rows: list[np.ndarray | None] = []
        for context, name in zip(inputs.conditions["context"], inputs.conditions["perturbation"], strict=True):
            parts = inputs.perturbations[name].parts
            rows.append(self._together(np.stack([singles.of_part(part, str(context)) for part in parts])))
        return predicted(inputs, singles.genes, rows)

    @staticmethod
    @abstractmethod
    def _together(effects: np.ndarray) -> np.ndarray:
        """Return one effect from the parts', (n_parts, n_genes) -> (n_genes,)."""


class Additive(_FromParts):
    """The sum of the effects of the parts, each given alone.

    The additive baseline of Ahlmann-Eltze, Huber and Anders (2025), which none of GEARS, scGPT and scFoundation beats
    on Norman's doubles. A part's effect is the one measured in the same context, else its unweighted mean over the
    contexts it was measured in; for a part never given alone (with that mechanism and dose), the mean effect of
    the context's single-part conditions stands in, or of all of them where the context is new. So for a single
    part it is that part elsewhere, or the mean effect.
    """

    @staticmethod
    def _together(effects: np.ndarray) -> np.ndarray:
        return np.asarray(effects.sum(axis=0))


class MatchingMean(_FromParts):
    """The mean, not the sum, of the effects of the parts: the average of their centroids.

    Systema's "matching mean" (Viñas Torné et al. 2025). Where a part was never given alone the mean effect stands in,
    as in :class:`Additive`, with which it agrees on single parts.
    """

    @staticmethod
    def _together(effects: np.ndarray) -> np.ndarray:
        return np.asarray(effects.mean(axis=0))
