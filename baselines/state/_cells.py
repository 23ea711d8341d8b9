"""Predicted cells, made when they are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pertbase.baselines.harness._predict import autocast, reproducible
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.folds import CellTable, Inputs

if TYPE_CHECKING:
    from pertbase.baselines.state._module import StateModule

__all__ = ["SetCells"]


class SetCells(Mapping[tuple[str, str], np.ndarray]):
    """(context, perturbation) -> predicted cells, float32 (n_cells, n_genes), predicted anew at each look-up.

    No condition is kept: together they would be conditions x controls x genes.

    Parameters
    ----------
    module
        The trained module.
    inputs
        Conditions it speaks to, and the controls to predict from.
    settings
        What to predict on.
    """

    def __init__(self, module: StateModule, inputs: Inputs, settings: TrainerSettings) -> None:
        self._module = module
        self._inputs = inputs
        self._settings = settings
        conditions = inputs.conditions
        keys = zip(conditions["context"].astype(str), conditions["perturbation"].astype(str), strict=True)
        self._keys = dict.fromkeys(keys)
        controls = self._controls
        context = controls.obs["context"].astype(str).to_numpy()
        self._rows = {name: np.flatnonzero(context == name) for name in {key[0] for key in self._keys}}

    @property
    def _controls(self) -> CellTable:
        controls = self._inputs.controls
        if controls is None:
            raise TypeError("cells are predicted from controls")
        return controls

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        if key not in self._keys:
            raise KeyError(key)
        perturbation = self._inputs.perturbations[key[1]]
        device = self._settings.device()
        self._module.to(device)
        with reproducible(self._settings), autocast(self._settings, device):
            found = list(self._module.predicted_cells(self._controls, self._rows[key[0]], perturbation))
        return np.concatenate(found)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
