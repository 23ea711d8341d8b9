"""The adapter that matches how often each outcome occurs."""

from __future__ import annotations

import numpy as np

from pertbase.adapters._base import FittedAdapter
from pertbase.adapters._scores import Offsets, Thresholds
from pertbase.adapters._search import matched_offsets, matched_threshold

__all__ = ["PriorMatched"]


class PriorMatched(FittedAdapter):
    """Thresholds, or offsets, under which up and down are answered as often as they are true.

    Both shares are those of held-out predictions, and the quantiles too: never test's, so that an answer does not
    depend on which other questions were asked. A threshold is never negative: a model that predicts fewer rises
    than there are is matched only as far as zero.
    """

    def _fit_effects(self, effects: np.ndarray, codes: np.ndarray) -> Thresholds:
        up, down = _shares(codes)
        return matched_threshold(effects, up), matched_threshold(-effects, down)

    def _fit_scores(self, logs: np.ndarray, codes: np.ndarray) -> Offsets:
        return matched_offsets(logs, _shares(codes))


def _shares(codes: np.ndarray) -> np.ndarray:
    """Return the shares of up and down, shape (2,)."""
    return np.bincount(codes, minlength=3)[:2] / len(codes)
