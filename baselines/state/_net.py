"""The network: encoders of cell and perturbation, a transformer over a set of cells without positions, an output."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pertbase.baselines.state._sizes import Shape

__all__ = ["Block", "LatentDecoder", "StateNet", "perceptron"]

_EPSILON = 1e-6
_SPREAD = 0.02
"""Standard deviation of the transformer's weights before training."""

Call = Callable[..., Tensor]


def _called(function: Call, *arguments: Tensor | None) -> Tensor:
    return function(*arguments)


def perceptron(n_in: int, hidden: int, n_out: int, layers: int, dropout: float) -> nn.Sequential:
    """Return some linear layers, with GELU and dropout between them."""
    widths = [n_in, *[hidden] * (layers - 1), n_out]
    parts: list[nn.Module] = []
    for number in range(layers):
        parts.append(nn.Linear(widths[number], widths[number + 1]))
        if number < layers - 1:
            parts += [nn.GELU(), nn.Dropout(dropout)]
    return nn.Sequential(*parts)


class Block(nn.Module):
    r"""One layer of the transformer: attention over the set, then a gated feed-forward part, each on its own residual.

    .. math::
        a &= x + W_o \, \mathrm{attention}(W_{qkv} \, \mathrm{rms}(x)) \\
        y &= a + W_d \, (\mathrm{silu}(g) \odot u), \qquad (g, u) = W_{gu} \, \mathrm{rms}(a)

    Attention is between all cells of a set and knows no positions, so that the layer commutes with every permutation of
    the set. Normalisation is by the root mean square (Zhang & Sennrich 2019), the feed-forward part SwiGLU (Shazeer
    2020).
    """

    def __init__(self, hidden: int, heads: int, intermediate: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.RMSNorm(hidden, eps=_EPSILON)
        self.query_key_value = nn.Linear(hidden, 3 * hidden, bias=False)
        self.attended = nn.Linear(hidden, hidden, bias=False)
        self.feed_norm = nn.RMSNorm(hidden, eps=_EPSILON)
        self.gate_up = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)
        for item in (self.query_key_value, self.attended, self.gate_up, self.down):
            nn.init.normal_(item.weight, std=_SPREAD)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """Return the set after the layer, shape (B, S, H); ``visible`` (B, 1, 1, S) leaves out repeated cells."""
        sets, cells, hidden = x.shape
        projected = self.query_key_value(self.attention_norm(x)).view(sets, cells, 3, self.heads, hidden // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        x = x + self.attended(mixed.transpose(1, 2).reshape(sets, cells, hidden))
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, dim=-1)
        out: Tensor = x + self.down(F.silu(gate) * up)
        return out


class StateNet(nn.Module):
    """Predicts a set of perturbed cells from a set of control cells and the features of a perturbation.

    Parameters
    ----------
    shape
        Its size.
    n_in, n_out
        Dimensions of a cell, and of what is predicted of it.
    n_features
        Features of a perturbation.
    n_batches
        Batches with an embedding of their own, added to their cells' tokens; none where 0.
    dropout
        In the encoders and the output.
    residual
        ``token``: the output is read off the sum of the transformer's output and the control cell's token.
        ``cell``: it is what is added to the control cell itself; before training, that is nothing.
        ``bottleneck``: as ``cell``, and the sum then passes through a layer of an eighth of its width.
    positive
        Whether predictions below zero become zero.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        n_in: int,
        n_out: int,
        n_features: int,
        n_batches: int = 0,
        dropout: float = 0.1,
        residual: str = "cell",
        positive: bool = True,
    ) -> None:
        super().__init__()
        hidden = shape.hidden_size
        self.residual = residual
        self.positive = positive
        self.perturbation = perceptron(n_features, hidden, hidden, shape.encoder_layers, dropout)
        self.cell = perceptron(n_in, hidden, hidden, shape.encoder_layers, dropout)
        self.batch = nn.Embedding(n_batches, hidden) if n_batches else None
        self.blocks = nn.ModuleList(Block(hidden, shape.heads, shape.intermediate_size) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(hidden, eps=_EPSILON)
        self.out = perceptron(hidden, hidden, n_out, shape.decoder_layers, dropout)
        last = self.out[-1]
        self.bottleneck: nn.Sequential | None = None
        if residual == "bottleneck":
            narrow = max(1, n_out // 8)
            self.bottleneck = nn.Sequential(nn.Linear(n_out, narrow), nn.GELU(), nn.Linear(narrow, n_out))
        if residual == "cell" and isinstance(last, nn.Linear):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(
        self,
        cells: Tensor,
        features: Tensor,
        *,
        visible: Tensor | None = None,
        batch: Tensor | None = None,
        through: Callable[..., Tensor] = _called,
    ) -> Tensor:
        """Return the predicted cells, shape (B, S, n_out).

        Parameters
        ----------
        cells
            Control cells, shape (B, S, n_in).
        features
            Of each set's perturbation, shape (B, P).
        visible
            Which cells the others of their set see, shape (B, S), bool; all where None.
        batch
            Number of each cell's batch, shape (B, S); -1 stands for the mean of all batches.
        through
            Calls each layer with its arguments.
        """
        token = self.cell(cells)
        x = token + self.perturbation(features)[:, None]
        if self.batch is not None and batch is not None:
            known = self.batch(batch.clamp(min=0))
            x = x + torch.where((batch >= 0)[..., None], known, self.batch.weight.mean(dim=0))
        mask = None if visible is None else visible[:, None, None, :]
        for block in self.blocks:
            x = through(block, x, mask)
        x = self.norm(x)
        found: Tensor = self.out(x + token if self.residual == "token" else x)
        if self.residual != "token":
            found = found + cells
        if self.bottleneck is not None:
            found = self.bottleneck(found)
        return torch.relu(found) if self.positive else found


class LatentDecoder(nn.Module):
    """Reads expression off a cell's embedding: three layers of 1,024, 1,024 and 512, each normalised, and an output."""

    WIDTHS = (1024, 1024, 512)

    def __init__(self, n_in: int, n_genes: int, dropout: float = 0.1) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for width in self.WIDTHS:
            parts += [nn.Linear(n_in, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(dropout)]
            n_in = width
        self.layers = nn.Sequential(*parts, nn.Linear(n_in, n_genes), nn.ReLU())

    def forward(self, embedding: Tensor) -> Tensor:
        """Return expression, natural log1p, shape (..., n_genes)."""
        found: Tensor = self.layers(embedding)
        return found
