"""What an adapter is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from pertbase.adapters._held_out import HeldOut, Model
from pertbase.adapters._held_out import held_out as make_held_out
from pertbase.adapters._scores import (
    DEFAULT_THRESHOLD,
    Offsets,
    Thresholds,
    answers_from_effects,
    shifted_answers,
)
from pertbase.errors import InputError
from pertbase.folds import Answers, Effects, Inputs, Training

__all__ = ["Adapter", "Cells", "FittedAdapter"]

Cells = Mapping[tuple[str, str], np.ndarray]
"""(context, perturbation) -> predicted cells, natural log1p, shape (n_cells, n_genes)."""


class Adapter(ABC):
    """Turns effects, or option scores, into outcomes.

    Each answer depends on what was said of its own question alone: never on which others were asked.

    Attributes
    ----------
    needs_held_out
        Whether ``fit`` wants held-out predictions: computed from the model, or handed in to share them.
    needs_cells
        Whether ``answer`` wants predicted cells.
    """

    needs_held_out: ClassVar[bool] = False
    needs_cells: ClassVar[bool] = False

    @abstractmethod
    def fit(self, training: Training, model: Model | None = None, *, held_out: HeldOut | None = None) -> Self:
        """Fit to held-out predictions of train and val; forget any earlier fit."""

    @abstractmethod
    def answer(self, inputs: Inputs, given: Effects | Answers, *, cells: Cells | None = None) -> Answers:
        """Return an answer for each question, from what a model gave for it."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return how it was fitted, for the run's scores and the report: plain values.

        ``fitted`` is ``val``, ``cross_fitted`` or ``fixed``; ``reason`` says why it is not ``val``; ``flagged`` is
        true where it should have been fitted and could not be; then its thresholds or offsets.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.describe().items())})"


class FittedAdapter(Adapter):
    """An adapter with two numbers fitted to held-out predictions: thresholds on effects, offsets on log scores."""

    needs_held_out: ClassVar[bool] = True

    def __init__(self) -> None:
        self.thresholds: Thresholds = (DEFAULT_THRESHOLD, DEFAULT_THRESHOLD)
        self.offsets: Offsets = (0.0, 0.0)
        self._held_out: HeldOut | None = None

    @property
    def held_out(self) -> HeldOut | None:
        """The predictions it was fitted to; None before it is fitted."""
        return self._held_out

    @abstractmethod
    def _fit_effects(self, effects: np.ndarray, codes: np.ndarray) -> Thresholds:
        """Return thresholds from held-out effects, (n,), and true outcome codes, (n,)."""

    @abstractmethod
    def _fit_scores(self, logs: np.ndarray, codes: np.ndarray) -> Offsets:
        """Return offsets from held-out log scores, (n, 3), and true outcome codes, (n,)."""

    def fit(self, training: Training, model: Model | None = None, *, held_out: HeldOut | None = None) -> Self:
        """Fit to the held-out predictions, or, where there are none, fall back to :class:`Fixed` and say so.

        Parameters
        ----------
        training
            What the model was fitted on.
        model
            Whose held-out predictions to make, where ``held_out`` is not given.
        held_out
            From :func:`pertbase.adapters.held_out`; computed once, it serves every adapter of the model.

        Raises
        ------
        InputError
            Where neither is given.
        """
        if held_out is None:
            if model is None:
                raise InputError(
                    f"{type(self).__name__} is fitted to held-out predictions",
                    key="model",
                    value=None,
                    remedy="give fit the model, or held_out=pertbase.adapters.held_out(model, training)",
                )
            held_out = make_held_out(model, training)
        self.thresholds, self.offsets = (DEFAULT_THRESHOLD, DEFAULT_THRESHOLD), (0.0, 0.0)
        self._held_out = held_out
        if isinstance(held_out.given, Effects):
            self.thresholds = self._fit_effects(held_out.values, held_out.codes)
        elif isinstance(held_out.given, Answers):
            self.offsets = self._fit_scores(held_out.values, held_out.codes)
        return self

    def answer(self, inputs: Inputs, given: Effects | Answers, *, cells: Cells | None = None) -> Answers:
        """Return answers by the thresholds (effects) or with the offsets (scores).

        Raises
        ------
        InputError
            Where it is not fitted, or was fitted to effects and is given scores, or the other way round.
        """
        held = self._held_out
        if held is None:
            raise InputError(f"this {type(self).__name__} is not fitted", remedy="call fit(training, model) first")
        if held.given is not None and isinstance(held.given, Effects) != isinstance(given, Effects):
            raise InputError(
                f"this {type(self).__name__} was fitted to {type(held.given).__name__} and is given "
                f"{type(given).__name__}",
                key="given",
                remedy="fit it to the same model's held-out predictions",
            )
        if isinstance(given, Effects):
            return answers_from_effects(inputs.questions, given, self.thresholds)
        return shifted_answers(given, self.offsets)

    def describe(self) -> dict[str, Any]:
        """Return how it was fitted; see :meth:`Adapter.describe`."""
        held = self._held_out
        if held is None:
            return {"fitted": "fixed", "reason": "not fitted yet", "flagged": True}
        none = held.how == "none"
        about = {"fitted": "fixed" if none else held.how, "reason": held.reason, "flagged": none}
        counts = {f"n_{outcome}": number for outcome, number in held.counts.items()}
        return {**about, **counts, **self._numbers(held)}

    def _numbers(self, held: HeldOut) -> dict[str, float]:
        if isinstance(held.given, Answers):
            return {"offset_up": self.offsets[0], "offset_down": self.offsets[1]}
        return {"tau_up": self.thresholds[0], "tau_down": self.thresholds[1]}
