"""The adapter that is not fitted."""

from __future__ import annotations

from typing import Any

from pertbase.adapters._base import Adapter, Cells
from pertbase.adapters._held_out import HeldOut, Model
from pertbase.adapters._scores import DEFAULT_THRESHOLD, answers_from_effects
from pertbase.errors import InputError
from pertbase.folds import Answers, Effects, Inputs, Training

__all__ = ["Fixed"]


class Fixed(Adapter):
    """One threshold for every model, and answers as they were given.

    Parameters
    ----------
    threshold
        An effect beyond it, either way, is a change. In the fold's statistic, natural log.
    """

    def __init__(self, *, threshold: float = DEFAULT_THRESHOLD) -> None:
        if threshold < 0:
            raise InputError("a threshold is not negative", key="threshold", value=threshold)
        self.threshold = threshold

    def fit(self, training: Training, model: Model | None = None, *, held_out: HeldOut | None = None) -> Fixed:
        """Do nothing: nothing is fitted."""
        return self

    def answer(self, inputs: Inputs, given: Effects | Answers, *, cells: Cells | None = None) -> Answers:
        """Return answers by the threshold; answers given are returned unchanged."""
        if isinstance(given, Answers):
            return given
        return answers_from_effects(inputs.questions, given, (self.threshold, self.threshold))

    def describe(self) -> dict[str, Any]:
        """Return the threshold; see :meth:`Adapter.describe`."""
        return {
            "fitted": "fixed",
            "reason": "never fitted",
            "flagged": False,
            "tau_up": self.threshold,
            "tau_down": self.threshold,
        }
