"""The adapter that tests predicted cells as the label rule tests real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from pertbase._random import generator
from pertbase.adapters._base import Adapter, Cells
from pertbase.adapters._held_out import HeldOut, Model
from pertbase.adapters._scores import DEFAULT_THRESHOLD, answers_from_values
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import Answers, CellTable, Effects, Inputs, Training
from pertbase.folds._ranksum import rank_sum

__all__ = ["RankTest"]

_AT_ONCE = 32
"""Conditions whose predicted cells are in memory together."""


class RankTest(Adapter):
    """Wilcoxon rank-sum of predicted cells against controls the model never saw, with an effect gate.

    A test alone invents changes: with every predicted cell equal to the control mean, a true "no change", 217-227 of
    500 genes came out differentially expressed where 11-26 are, since predicted populations vary less than real ones.
    So a change needs both: an adjusted p-value (Benjamini-Hochberg within condition) below ``alpha``, and a predicted
    effect beyond ``gate``. Power grows with the number of cells, of which a model can predict any number: the test
    is at a fixed number of cells on either side.

    The model is asked with :meth:`visible` inputs, which hold half of the input controls; the other half is the
    reference. Scores are those of the effect at the threshold ``gate``, an effect that fails the test being drawn
    back to the gate.

    Parameters
    ----------
    alpha
        Bound on the adjusted p-value.
    gate
        Bound on the effect, natural log.
    n_cells
        Predicted cells, and reference controls, in each test.
    seed
        Draws the halves and the cells, for each context and condition by itself.
    """

    needs_cells: ClassVar[bool] = True

    def __init__(
        self, *, alpha: float = 0.05, gate: float = DEFAULT_THRESHOLD, n_cells: int = 50, seed: int = 0
    ) -> None:
        if not 0 < alpha < 1:
            raise InputError("alpha lies between 0 and 1", key="alpha", value=alpha)
        if gate < 0:
            raise InputError("a threshold is not negative", key="gate", value=gate)
        if n_cells < 2:
            raise InputError("a test needs at least two cells on either side", key="n_cells", value=n_cells)
        self.alpha = alpha
        self.gate = gate
        self.n_cells = n_cells
        self.seed = seed

    def fit(self, training: Training, model: Model | None = None, *, held_out: HeldOut | None = None) -> RankTest:
        """Do nothing: the test is the label rule's, and not fitted."""
        return self

    def visible(self, inputs: Inputs) -> Inputs:
        """Return inputs with the half of each context's input controls that a model may predict from.

        Basal expression is left as it is: a mean over both halves.
        """
        controls = self._controls(inputs)
        return replace(inputs, controls=controls.take(~self._reference(controls)))

    def answer(self, inputs: Inputs, given: Effects | Answers, *, cells: Cells | None = None) -> Answers:
        """Return answers by test and gate.

        Parameters
        ----------
        inputs
            All input controls, as the fold gave them.
        given
            The model's effects: the gate.
        cells
            ``model.predict_cells(adapter.visible(inputs))``. Negative values count as zero.

        Raises
        ------
        UnsupportedError
            Where the model predicts no cells, or a context has too few controls.
        InputError
            Where a condition has fewer than ``n_cells`` predicted cells, or another number of genes.
        """
        if not isinstance(given, Effects) or cells is None:
            raise UnsupportedError("rank_test needs predicted cells, and this baseline predicts none")
        values, status = given.at(inputs.questions)
        passed, tested = self._passed(inputs, cells)
        status = np.where(tested, status, "unsupported")
        values = np.where(status == "ok", values, 0.0)
        drawn_back = np.clip(values, -self.gate, self.gate)
        return answers_from_values(
            inputs.questions, np.where(passed, values, drawn_back), status, (self.gate, self.gate)
        )

    def describe(self) -> dict[str, Any]:
        """Return the test's parameters; see :meth:`Adapter.describe`."""
        about = {"fitted": "fixed", "reason": "never fitted", "flagged": False}
        return {**about, "alpha": self.alpha, "gate": self.gate, "n_cells": self.n_cells, "seed": self.seed}

    def _controls(self, inputs: Inputs) -> CellTable:
        if inputs.controls is None:
            raise UnsupportedError("rank_test needs the cells of the input controls, and the inputs hold none")
        return inputs.controls

    def _reference(self, controls: CellTable) -> np.ndarray:
        """Return which controls are the reference: a random half of each context's."""
        context = controls.obs["context"].astype(str).to_numpy()
        chosen = np.zeros(len(context), dtype=bool)
        for name in np.unique(context):
            rows = np.flatnonzero(context == name)
            chosen[generator(self.seed, "rank_test", "half", name).permutation(rows)[: len(rows) // 2]] = True
        return chosen

    def _passed(self, inputs: Inputs, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Return which questions pass the test, and which were tested at all."""
        from scipy.stats import false_discovery_control  # half a second to import

        controls = self._controls(inputs)
        reference = self._reference(controls)
        control_context = controls.obs["context"].astype(str).to_numpy()
        keys = list(zip(inputs.questions["context"], inputs.questions["perturbation"], strict=True))
        row_of: dict[tuple[str, str], int] = {}
        adjusted: list[np.ndarray] = []
        for context in dict.fromkeys(key[0] for key in keys):
            names = [key for key in dict.fromkeys(keys) if key[0] == context and key in cells]
            if not names:
                continue
            rows = self._drawn(np.flatnonzero(reference & (control_context == context)), "controls", context)
            against = _dense(controls.X[rows])
            for first in range(0, len(names), _AT_ONCE):
                some = names[first : first + _AT_ONCE]
                p_values = self._p_values(against, [self._sample(key, cells) for key in some])
                row_of.update({key: len(adjusted) + number for number, key in enumerate(some)})
                adjusted.extend(false_discovery_control(p_values, axis=1))
        rows = np.array([row_of.get(key, -1) for key in keys], dtype=np.intp)
        columns = controls.genes.get_indexer(inputs.questions["gene"])
        tested = (rows >= 0) & (columns >= 0)
        passed = np.zeros(len(keys), dtype=bool)
        if tested.any():
            passed[tested] = np.stack(adjusted)[rows[tested], columns[tested]] < self.alpha
        return passed, tested

    def _drawn(self, rows: np.ndarray, *purpose: str) -> np.ndarray:
        if len(rows) < self.n_cells:
            raise UnsupportedError(
                f"rank_test compares {self.n_cells} cells, and {' '.join(purpose)} has {len(rows)}",
                remedy="lower adapter.n_cells",
            )
        return np.sort(generator(self.seed, "rank_test", *purpose).permutation(rows)[: self.n_cells])

    def _sample(self, key: tuple[str, str], cells: Cells) -> np.ndarray:
        predicted = np.asarray(cells[key], dtype=np.float32)
        if len(predicted) < self.n_cells:
            raise InputError(
                f"rank_test compares {self.n_cells} cells, and fewer are predicted",
                key=" ".join(key),
                value=len(predicted),
                remedy="predict more cells, or lower adapter.n_cells",
            )
        drawn = predicted[self._drawn(np.arange(len(predicted)), *key)]
        return np.asarray(np.maximum(drawn, 0.0))

    def _p_values(self, reference: np.ndarray, samples: list[np.ndarray]) -> np.ndarray:
        for sample in samples:
            if sample.shape[1] != reference.shape[1]:
                raise InputError(
                    "predicted cells have another number of genes than the controls",
                    key="cells",
                    value=sample.shape[1],
                    remedy=f"expected {reference.shape[1]}, in the order of inputs.genes",
                )
        starts = self.n_cells * np.arange(len(samples) + 1)
        members = [np.arange(start, start + self.n_cells) for start in starts[1:]]
        stacked = np.concatenate([reference, *samples]).astype(np.float32)
        return np.asarray(rank_sum(stacked, reference=np.arange(self.n_cells), members=members).p_value)


def _dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)
