r"""The wide part of GEARS: from the grid of genes and perturbations to one number of each, in little memory.

For gene terms :math:`e_g`, perturbation terms :math:`r_p` and the decoder :math:`u_g` of each gene,

.. math::

    h_{pg} = \mathrm{relu}(e_g + r_p), \qquad k_{pg} = \mathrm{relu}(\mathrm{BN}(A h_{pg})), \qquad
    o_{pg} = u_g \cdot \mathrm{BN}(B k_{pg})

Run as it is written, nine arrays of perturbations x genes x 64 or 128 are stored, and written and read again in the
backward pass: more than half of the time at 5,000 genes, and most of the memory. Here both normalisations are folded
into their weights from the moments of h and k (:func:`~pertbase.baselines.gears._norm.fold`), and all is done for a few
perturbations at a time, so that it stays in the processor's cache. h is made again each time; k alone is stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pertbase.baselines.gears._across_ranks import add_over_ranks_, summed
from pertbase.baselines.gears._norm import Perceptron, fold, folded_by_running, track

__all__ = ["trunk"]

_CACHED = 1 << 19
"""Numbers worked on at once on a processor: 2 MB. Elsewhere, 256 times as many."""


def trunk(genes: Tensor, terms: Tensor, version: Tensor, counts: Tensor, shared: Perceptron, decoder: Tensor) -> Tensor:
    """Return o, shape (n_rows, n_genes).

    Parameters
    ----------
    genes
        Gene terms, in one or two versions, shape (n_versions, n_genes, hidden).
    terms
        Perturbation terms, shape (n_rows, hidden).
    version
        Which gene terms a row uses, shape (n_rows,).
    counts
        Rows that a row stands for, shape (n_rows,).
    shared
        The perceptron A, BN, ReLU, B, BN.
    decoder
        u, shape (n_genes, hidden).
    """
    (first, first_norm), (last, last_norm) = shared.layers()
    with torch.autocast(genes.device.type, enabled=False):
        genes, terms = genes.to(decoder.dtype), terms.to(decoder.dtype)
        if not shared.training:
            inner = folded_by_running(first, first_norm)
            weight, bias = folded_by_running(last, last_norm)
            own = _evaluated(genes, terms, version, inner, decoder @ weight)
            return own + decoder @ bias
        own, *moments = _Trunk.apply(  # type: ignore[no-untyped-call]
            genes,
            terms,
            version,
            counts,
            decoder,
            *(first.weight, first.bias, first_norm.weight, first_norm.bias, first_norm.eps),
            *(last.weight, last.bias, last_norm.weight, last_norm.bias, last_norm.eps),
        )
        n = summed(counts.sum()) * genes.shape[1]
        for (linear, norm), (centre, variance) in zip(shared.layers(), (moments[:2], moments[2:]), strict=True):
            track(norm, centre + linear.bias, variance, n)
        result: Tensor = own
        return result


def _parts(n_rows: int, n_genes: int, width: int, device: torch.device) -> list[slice]:
    """Return slices of rows that are worked on at once."""
    size = max(1, (_CACHED if device.type == "cpu" else _CACHED << 8) // (n_genes * width))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


class _Grid:
    """Makes h of some rows, always in the same memory: fresh memory costs more than the sums that fill it."""

    def __init__(self, genes: Tensor, terms: Tensor, version: Tensor, parts: list[slice]) -> None:
        self.genes, self.terms, self.version = genes, terms, version
        self.rows = max((part.stop - part.start for part in parts), default=0)
        self._hidden = self.space(genes.shape[2])

    def space(self, width: int) -> Tensor:
        """Return memory for some rows."""
        return self.genes.new_empty(self.rows, self.genes.shape[1], width)

    def hidden(self, part: slice) -> Tensor:
        """Return h of some rows, until it is called again."""
        base = self.genes if len(self.genes) == 1 else self.genes[self.version[part]]
        out = self._hidden[: part.stop - part.start]
        return torch.add(base, self.terms[part, None, :], out=out).relu_()


def _flat(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[-1])


def _inner(hidden: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    torch.addmm(bias, _flat(hidden), weight.T, out=_flat(out))
    return out.relu_()


def _evaluated(genes: Tensor, terms: Tensor, version: Tensor, inner: tuple[Tensor, Tensor], decoder: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        # whoever wants gradients in evaluation gets them the plain way
        hidden = torch.relu(genes[version] + terms[:, None, :])
        return (torch.relu(nn.functional.linear(hidden, *inner)) * decoder).sum(-1)
    parts = _parts(len(terms), genes.shape[1], decoder.shape[1], genes.device)
    grid = _Grid(genes, terms, version, parts)
    space = grid.space(decoder.shape[1])
    found = []
    for part in parts:
        values = _inner(grid.hidden(part), *inner, space[: part.stop - part.start])
        found.append(values.mul_(decoder).sum(-1))
    return torch.cat(found)


def _add_moments(x: Tensor, weight: Tensor, mean: Tensor, square: Tensor) -> None:
    """Add the weighted sum and second moments of x, shape (n_rows, n_genes, n_channels), in place."""
    mean += weight @ torch.matmul(x.new_ones(x.shape[1]), x)
    square += torch.tensordot(weight, torch.bmm(x.transpose(1, 2), x), 1)


def _of_moments(x: Tensor, weight: Tensor, d_mean: Tensor, symmetric: Tensor, out: Tensor) -> Tensor:
    """Return the gradient of x where its moments have gradients; ``symmetric`` is that of the second plus its own T."""
    torch.bmm(x, weight[:, None, None] * symmetric, out=out)
    return out.add_((weight[:, None] * d_mean)[:, None, :])


def _where_positive(gradient: Tensor, x: Tensor) -> Tensor:
    """Set a gradient to zero, in place, where the ReLU that gave x is flat."""
    torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=gradient)
    return gradient


class _Trunk(torch.autograd.Function):
    """The trunk in training. Small matrices are left to autograd, wide ones are done by hand."""

    @staticmethod
    def forward(
        ctx: Any, genes: Tensor, terms: Tensor, version: Tensor, counts: Tensor, decoder: Tensor, *given: Any
    ) -> Any:
        a, _, a_scale, a_offset, a_eps, b, _, b_scale, b_offset, b_eps = given
        n_rows, n_genes, width = len(terms), genes.shape[1], a.shape[0]
        share = counts / (summed(counts.sum()) * n_genes)
        parts = _parts(n_rows, n_genes, width, genes.device)
        grid = _Grid(genes, terms, version, parts)

        mean, square = genes.new_zeros(a.shape[1]), genes.new_zeros(a.shape[1], a.shape[1])
        for part in parts:
            _add_moments(grid.hidden(part), share[part], mean, square)
        add_over_ranks_(mean, square)
        first = _leaves(a, a_scale, a_offset, mean, square)
        with torch.enable_grad():
            weight, bias, *of_a = fold(*first, eps=a_eps)

        inner = genes.new_empty(n_rows, n_genes, width)
        mean, square = genes.new_zeros(width), genes.new_zeros(width, width)
        for part in parts:
            values = _inner(grid.hidden(part), weight.detach(), bias.detach(), inner[part])
            _add_moments(values, share[part], mean, square)
        add_over_ranks_(mean, square)
        last = _leaves(b, b_scale, b_offset, mean, square)
        (leaf,) = _leaves(decoder)
        with torch.enable_grad():
            b_weight, b_bias, *of_b = fold(*last, eps=b_eps)
            per_gene, constant = leaf @ b_weight, leaf @ b_bias
        space, fixed = grid.space(width), per_gene.detach()
        own = torch.cat([torch.mul(inner[part], fixed, out=space[: part.stop - part.start]).sum(-1) for part in parts])
        own += constant.detach()

        ctx.save_for_backward(genes, terms, version, share, inner)
        ctx.first, ctx.folded = first, (weight, bias)
        ctx.last, ctx.decoded = (leaf, *last), (per_gene, constant)
        statistics = tuple(item.detach() for item in (*of_a, *of_b))
        ctx.mark_non_differentiable(*statistics)
        return own, *statistics

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_own: Tensor, *_: Tensor) -> Any:
        genes, terms, version, share, inner = ctx.saved_tensors
        per_gene = ctx.decoded[0].detach()
        weight = ctx.folded[0].detach()
        parts = _parts(len(terms), genes.shape[1], inner.shape[2], genes.device)
        grid = _Grid(genes, terms, version, parts)

        d_per_gene = torch.zeros_like(per_gene)
        for row, gradient in zip(inner, d_own, strict=True):
            d_per_gene.addcmul_(row, gradient[:, None])
        d_last = torch.autograd.grad(ctx.decoded, ctx.last, (d_per_gene, d_own.sum(0)), retain_graph=True)
        d_decoder, d_b, d_b_scale, d_b_offset, d_mean, d_square = d_last
        add_over_ranks_(d_mean, d_square)

        d_genes, d_terms = torch.zeros_like(genes), torch.zeros_like(terms)
        d_weight, d_bias = torch.zeros_like(weight), weight.new_zeros(len(weight))
        wide, narrow = grid.space(inner.shape[2]), grid.space(genes.shape[2])
        symmetric = d_square + d_square.T
        for part in parts:
            n = part.stop - part.start
            hidden = grid.hidden(part)
            d_inner = _of_moments(inner[part], share[part], d_mean, symmetric, wide[:n])
            _where_positive(d_inner.addcmul_(d_own[part, :, None], per_gene), inner[part])
            d_weight.addmm_(_flat(d_inner).T, _flat(hidden))
            d_bias += _flat(d_inner).sum(0)
            torch.mm(_flat(d_inner), weight, out=_flat(narrow[:n]))
            _accumulate(narrow[:n], hidden, version[part], d_genes, d_terms[part])
        d_first = torch.autograd.grad(ctx.folded, ctx.first, (d_weight, d_bias), retain_graph=True)
        d_a, d_a_scale, d_a_offset, d_mean, d_square = d_first
        add_over_ranks_(d_mean, d_square)
        symmetric = d_square + d_square.T
        for part in parts:
            hidden = grid.hidden(part)
            d_hidden = _of_moments(hidden, share[part], d_mean, symmetric, narrow[: part.stop - part.start])
            _accumulate(d_hidden, hidden, version[part], d_genes, d_terms[part])
        # The layers' own biases cancel. Their gradient is zero and not nothing: weight decay acts on them too.
        first = (d_a, torch.zeros_like(d_bias), d_a_scale, d_a_offset, None)
        last = (d_b, torch.zeros_like(d_b_offset), d_b_scale, d_b_offset, None)
        return d_genes, d_terms, None, None, d_decoder, *first, *last


def _leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(item.detach().requires_grad_() for item in tensors)


def _accumulate(gradient: Tensor, hidden: Tensor, version: Tensor, d_genes: Tensor, d_terms: Tensor) -> None:
    """Add what h's gradient is to gene terms and perturbation terms, in place."""
    _where_positive(gradient, hidden)
    d_terms += torch.matmul(gradient.new_ones(gradient.shape[1]), gradient)
    if len(d_genes) > 1:
        d_genes.index_add_(0, version, gradient)
        return
    for row in gradient:
        d_genes[0] += row
