"""The adapter fitted for balanced accuracy."""

from __future__ import annotations

import numpy as np

from pertbase.adapters._base import FittedAdapter
from pertbase.adapters._scores import Offsets, Thresholds
from pertbase.adapters._search import best_offsets, best_threshold

__all__ = ["Calibrated"]


class Calibrated(FittedAdapter):
    """Thresholds on effects, or offsets on log scores, that maximise balanced accuracy on held-out predictions.

    One pair a model. Thresholds are found exactly (:func:`~pertbase.adapters._search.best_threshold`), offsets by a
    search from many places (:func:`~pertbase.adapters._search.best_offsets`). They are the same whatever test holds.
    """

    def _fit_effects(self, effects: np.ndarray, codes: np.ndarray) -> Thresholds:
        up, down, no_change = (codes == code for code in range(3))
        return best_threshold(effects, up, no_change), best_threshold(-effects, down, no_change)

    def _fit_scores(self, logs: np.ndarray, codes: np.ndarray) -> Offsets:
        return best_offsets(logs, codes)
