r"""The losses of GEARS: quartic error and direction, averaged per condition.

With the conditions :math:`p` of a batch, the cells :math:`b` of each, and the genes :math:`K_p` that some training cell
of the condition expresses (all genes for controls),

.. math::

    L = \frac{1}{\#p} \sum_p \frac{1}{n_p |K_p|} \sum_{b \in p} \sum_{g \in K_p}
        (\hat y_{bg} - y_{bg})^{2 + \gamma} + \lambda D_{bg}, \qquad \gamma = 2

``upstream``: :math:`D = (\mathrm{sign}(y - m) - \mathrm{sign}(\hat y - m))^2` against the mean control :math:`m`. It is
a step function, so its gradient is zero everywhere and it teaches nothing.

``corrected``: :math:`D = (\tanh(y - x) - \tanh(\hat y - x))^2` against the cell's own control :math:`x`. It has a
gradient, and no bias: where a perturbation does nothing, y and x are drawn alike, and the expected gradient at
:math:`\hat y = x` is zero. Against the mean it would not be: most cells lie below the mean of a skewed gene.

With a predicted log variance :math:`v`, :math:`r e^{-v}(\hat y - y)^{2+\gamma}` is added, and in ``corrected`` also
:math:`r v`, without which :math:`v` grows for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pertbase.baselines.gears._across_ranks import gathered, place

__all__ = ["PRESETS", "LossTerms", "Preset", "gears_loss"]

Preset = Literal["upstream", "corrected"]
PRESETS = ("upstream", "corrected")


@dataclass(frozen=True)
class LossTerms:
    """What the loss of a batch needs beside predictions.

    Parameters
    ----------
    observed, control
        Expression of the perturbed cells and of their controls, shape (n_cells, n_genes).
    condition
        Condition of each cell, shape (n_cells,).
    kept
        Whether a gene counts in a condition, bool, shape (n_conditions, n_genes).
    mean_control
        Mean expression of the training's controls, shape (n_genes,).
    """

    observed: Tensor
    control: Tensor
    condition: Tensor
    kept: Tensor
    mean_control: Tensor


def gears_loss(
    predicted: Tensor,
    terms: LossTerms,
    *,
    preset: Preset,
    direction_weight: float,
    gamma: float = 2.0,
    log_variance: Tensor | None = None,
    uncertainty_weight: float = 1.0,
) -> Tensor:
    """Return the loss of a batch; see the module.

    Where ranks share the batch, it is this rank's part of it times their number: gradients of ranks are averaged.

    Parameters
    ----------
    predicted, log_variance
        Shape (n_cells, n_genes).
    terms
        What was observed.
    preset
        Whose direction and uncertainty terms.
    direction_weight, gamma, uncertainty_weight
        lambda, gamma and r.
    """
    kept = terms.kept[terms.condition].to(predicted.dtype)
    conditions, own = gathered(terms.condition)
    present, of_cell, n_cells = torch.unique(conditions, return_inverse=True, return_counts=True)
    # A condition without any gene left would divide by zero; it has no term, as its sum is empty.
    share = place()[1] / (len(present) * n_cells[of_cell[own]] * kept.sum(1).clamp(min=1))
    error = (predicted - terms.observed).square()
    if gamma == 2:
        error = error.square()  # a power of 4, without the logarithm that a general one takes
    elif gamma != 0:
        error = error.pow(1 + gamma / 2)
    value = error
    if log_variance is not None:
        value = value + uncertainty_weight * torch.exp(-log_variance) * error
        if preset == "corrected":
            value = value + uncertainty_weight * log_variance
    if direction_weight:
        if preset == "upstream":
            truth = torch.sign(terms.observed - terms.mean_control)
            guess = torch.sign(predicted.detach() - terms.mean_control)
        else:
            truth = torch.tanh(terms.observed - terms.control)
            guess = torch.tanh(predicted - terms.control)
        value = value + direction_weight * (truth - guess).square()
    return torch.einsum("bg,bg,b->", value, kept, share)
