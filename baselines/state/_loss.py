"""How far a predicted set of cells is from the measured one."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

__all__ = ["LOSSES", "LossName", "SetLoss"]

LossName = Literal["energy", "sinkhorn", "mix", "mse"]
LOSSES = get_args(LossName)
SINKHORN_SHARE = 0.01
"""Weight of the Sinkhorn divergence in ``mix``."""


class SetLoss(nn.Module):
    r"""Mean, over the sets of a batch, of a distance between predicted and measured cells.

    ``energy`` is the energy distance (Székely & Rizzo 2013), with :math:`\|\cdot\|` the Euclidean norm,

    .. math:: \mathbb{E}\|X-Y\| - \tfrac12 \mathbb{E}\|X-X'\| - \tfrac12 \mathbb{E}\|Y-Y'\|,

    ``sinkhorn`` the debiased Sinkhorn divergence of quadratic cost (Feydy et al. 2019), both by geomloss; ``mix`` is
    energy plus 0.01 of Sinkhorn; ``mse`` the mean squared error of a cell and the measured one it was drawn with.
    Repeated cells have no weight.

    Parameters
    ----------
    name
        One of :data:`LOSSES`.
    blur
        Finest scale that Sinkhorn sees.
    """

    def __init__(self, name: LossName, *, blur: float = 0.05) -> None:
        super().__init__()
        self.name = name
        # Imported here: geomloss costs a second, and a module that only predicts needs none of it.
        from geomloss import SamplesLoss

        def samples(kind: str) -> Any:
            return SamplesLoss(loss=kind, blur=blur, backend="tensorized")

        self.energy = samples("energy") if name in ("energy", "mix") else None
        self.sinkhorn = samples("sinkhorn") if name in ("sinkhorn", "mix") else None

    def forward(self, predicted: Tensor, measured: Tensor, real: Tensor | None) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        predicted, measured
            Cells, shape (B, S, D).
        real
            Which cells count, shape (B, S); all where None.
        """
        # In full precision: under autocast, squared distances of like cells would be rounding errors.
        with torch.autocast(predicted.device.type, enabled=False):
            predicted, measured = predicted.float(), measured.float()
            if self.name == "mse":
                error = ((predicted - measured) ** 2).mean(dim=-1)
                return error.mean() if real is None else _set_means(error, real).mean()
            return self._distances(predicted, measured, real).mean()

    def _distances(self, predicted: Tensor, measured: Tensor, real: Tensor | None) -> Tensor:
        given = (predicted, measured)
        if real is not None:
            weight = real.float() / real.sum(dim=1, keepdim=True)
            given = (weight, predicted, weight, measured)  # type: ignore[assignment]
        total = predicted.new_zeros(len(predicted))
        if self.energy is not None:
            total = total + self.energy(*given)
        if self.sinkhorn is not None:
            total = total + (SINKHORN_SHARE if self.name == "mix" else 1.0) * self.sinkhorn(*given)
        return total


def _set_means(error: Tensor, real: Tensor) -> Tensor:
    return (error * real).sum(dim=1) / real.sum(dim=1)
