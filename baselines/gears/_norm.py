"""Batch normalisation of rows that stand for several, and of linear layers without storing what they give.

Its moments are those of the whole batch, also where ranks share it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from pertbase.baselines.gears._across_ranks import summed

__all__ = ["Perceptron", "fold", "folded_by_running", "normalised", "statistics", "track"]


class _Moments(torch.autograd.Function):
    """Weighted mean and second moments over the first two axes, with one product in the backward pass, not two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        total = torch.matmul(x.new_ones(x.shape[1]), x)
        square = torch.bmm(x.transpose(1, 2), x)
        return weight @ total, torch.tensordot(weight, square, 1)

    @staticmethod
    def backward(ctx: Any, d_mean: Tensor, d_square: Tensor) -> tuple[Tensor, None]:
        x, weight = ctx.saved_tensors
        factor = weight[:, None, None] * (d_square + d_square.T)
        return torch.baddbmm((weight[:, None] * d_mean)[:, None, :], x, factor), None


def _moments(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean (n_channels,) and second moments (n_channels, n_channels) of x (n_rows, n_genes, n_channels).

    ``weight`` is that of each of a row's genes, shape (n_rows,).
    """
    mean, square = _Moments.apply(x, weight)  # type: ignore[no-untyped-call]
    return mean, square


def track(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, n: Tensor) -> None:
    """Update running statistics as batch normalisation over ``n`` rows would."""
    momentum = 0.1 if norm.momentum is None else norm.momentum
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean.detach(), momentum)
        norm.running_var.lerp_(variance.detach() * (n / (n - 1).clamp(min=1)), momentum)


def statistics(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Return factor and offset of a batch normalisation whose batch has these moments, or of its running ones."""
    if norm.training:
        track(norm, mean, variance, n)
    elif norm.running_mean is not None and norm.running_var is not None:
        mean, variance = norm.running_mean, norm.running_var
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return scale, norm.bias - mean * scale


def normalised(norm: nn.BatchNorm1d, x: Tensor, counts: Tensor) -> Tensor:
    """Return batch normalisation of rows that stand for ``counts`` rows each; shape (n_rows, n_channels)."""
    if not norm.training:
        scale, offset = statistics(norm, x[0], x[0], counts)
        return x * scale + offset
    n = summed(counts.sum())
    weight = counts / n
    mean = summed(weight @ x)
    centred = x - mean
    variance = summed(weight @ (centred * centred))
    track(norm, mean, variance, n)
    return centred * (norm.weight * torch.rsqrt(variance + norm.eps)) + norm.bias


def fold(
    weight: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, square: Tensor, *, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Return a linear layer with the batch normalisation after it folded in, from the moments of its input.

    With the mean :math:`m` and covariance :math:`S` of the input, the output :math:`Wx` has mean :math:`Wm` and
    variance :math:`\mathrm{diag}(W S W^T)`. The layer's own bias cancels.

    Parameters
    ----------
    weight
        Of the layer, shape (n_out, n_in).
    scale, offset
        Of the normalisation, shape (n_out,).
    mean, square
        Mean and second moments of the input, shapes (n_in,) and (n_in, n_in).
    eps
        Of the normalisation.

    Returns
    -------
    Weight and bias of the folded layer; mean and variance of the layer's output before normalisation, without its bias.
    """
    covariance = square - torch.outer(mean, mean)
    centre = weight @ mean
    variance = ((weight @ covariance) * weight).sum(1).clamp(min=0)
    factor = scale * torch.rsqrt(variance + eps)
    return weight * factor[:, None], offset - centre * factor, centre, variance


def _folded(linear: nn.Linear, norm: nn.BatchNorm1d, x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a linear layer with the batch normalisation after it folded in.

    ``x`` is the layer's input, shape (n_rows, n_genes, n_channels); a row stands for ``counts`` rows.
    """
    if not norm.training:
        return folded_by_running(linear, norm)
    n = summed(counts.sum()) * x.shape[1]
    # In full precision whatever the autocast: these are differences of large sums.
    with torch.autocast(x.device.type, enabled=False):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean, square = (summed(item) for item in _moments(wide, counts / n))
        weight, bias, centre, variance = fold(linear.weight, norm.weight, norm.bias, mean, square, eps=norm.eps)
        track(norm, centre + linear.bias, variance, n)
        # The layer's bias cancels. It still gets a gradient, of zero, so that weight decay acts on it as on the others.
        return weight, bias + 0 * linear.bias


def folded_by_running(linear: nn.Linear, norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """Return the same from running statistics, for evaluation."""
    scale, offset = statistics(norm, linear.bias, linear.bias, linear.bias)
    return linear.weight * scale[:, None], linear.bias * scale + offset


class Perceptron(nn.Module):
    """Linear layers, each with batch normalisation, and ReLU between them."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.norm = nn.ModuleList(nn.BatchNorm1d(size) for size in sizes[1:])

    def layers(self) -> list[tuple[nn.Linear, nn.BatchNorm1d]]:
        """Return the pairs of linear layer and normalisation."""
        return list(zip(self.linear, self.norm, strict=True))  # type: ignore[arg-type]

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Return the output of rows that stand for ``counts`` rows each, shape (n_rows, n_out)."""
        for number, (linear, norm) in enumerate(self.layers()):
            x = normalised(norm, linear(x if number == 0 else torch.relu(x)), counts)
        return x

    def wide(self, x: Tensor, counts: Tensor) -> Tensor:
        """Return the same for (n_rows, n_genes, n_in), without storing what is normalised."""
        for number, (linear, norm) in enumerate(self.layers()):
            x = x if number == 0 else torch.relu_(x)
            x = nn.functional.linear(x, *_folded(linear, norm, x, counts))
        return x
