r"""The scGPT network: a transformer over the genes of a cell, without positions.

Of each gene g of a cell with expression :math:`x_g`, after Cui et al. (Nature Methods 2024),

.. math::

    h^0_g = \mathrm{LN}(E_g) + \mathrm{LN}(W_2\,\mathrm{relu}(W_1 x_g)) + s_g\,p, \qquad
    \hat y_g = a(h^n_g)\,x_g + b(h^n_g)

with a sign :math:`s_g` of what is done to the gene (0 nothing), n layers of attention and perceptron, each followed by
a normalisation, and two perceptrons a and b. Genes have no order: what is said of one does not depend on where it
stands.

Attention is torch's ``scaled_dot_product_attention``, which keeps no matrix of genes by genes. The genes of a batch are
the same in all of its cells, so that their embeddings are looked up and normalised once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pertbase.baselines.scgpt._size import Size

__all__ = ["ScGPTNet"]

LARGEST_VALUE = 512.0
"""Expression is cut off there: a constant of the original."""


class ValueEncoder(nn.Module):
    """Expression -> embedding."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(1, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor) -> Tensor:
        """Return embeddings, shape (n_cells, n_genes, width)."""
        hidden = torch.relu(self.first(values.clamp(max=LARGEST_VALUE).unsqueeze(-1)))
        encoded: Tensor = self.dropout(self.norm(self.second(hidden)))
        return encoded


class Attention(nn.Module):
    """Attention of every gene to every other and itself."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, attended: Tensor | None = None) -> Tensor:
        """Return what each gene gathers from those attended to, shape of ``x``."""
        cells, genes, width = x.shape
        query, key, value = (
            self.in_proj(x).view(cells, genes, 3, self.n_heads, width // self.n_heads).permute(2, 0, 3, 1, 4)
        )
        mask = None if attended is None else attended[:, None, None, :]
        gathered = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout if self.training else 0.0
        )
        out: Tensor = self.out_proj(gathered.transpose(1, 2).reshape(cells, genes, width))
        return out


class Layer(nn.Module):
    """Attention and a perceptron, each added to its input and normalised."""

    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        width = size.embedding_size
        self.attention = Attention(width, size.n_heads, dropout)
        self.norm1 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, size.hidden_size)
        self.linear2 = nn.Linear(size.hidden_size, width)
        self.norm2 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, attended: Tensor | None = None) -> Tensor:
        """Return the next embeddings."""
        x = self.norm1(x + self.dropout(self.attention(x, attended)))
        hidden = self.dropout(torch.relu(self.linear1(x)))
        out: Tensor = self.norm2(x + self.dropout(self.linear2(hidden)))
        return out


def _perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, width), nn.LeakyReLU(), nn.Linear(width, width), nn.LeakyReLU(), nn.Linear(width, 1)
    )


class ScGPTNet(nn.Module):
    """The network.

    Parameters
    ----------
    n_tokens
        Rows of the embedding of genes.
    size
        Of the transformer.
    dropout
        Share of numbers dropped in training.
    padding
        The row that stands for genes without one of their own; it is never trained.
    trained_absence
        Whether what is added to genes nothing was done to is trained, as in the class default of the original, or
        stays zero, as in its tutorial.
    alike
        Whether all layers start with the same weights: torch's encoder copies its first layer.
    """

    def __init__(
        self,
        n_tokens: int,
        size: Size,
        *,
        dropout: float = 0.0,
        padding: int | None = None,
        trained_absence: bool = False,
        alike: bool = False,
    ) -> None:
        super().__init__()
        width = size.embedding_size
        self.size = size
        self.embedding = nn.Embedding(n_tokens, width, padding_idx=padding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.gene_norm = nn.LayerNorm(width)
        self.values = ValueEncoder(width, dropout)
        self.perturbed = nn.Parameter(torch.randn(width))
        start = torch.randn(width) if trained_absence else torch.zeros(width)
        self.untouched = nn.Parameter(start, requires_grad=trained_absence)
        self.layers = nn.ModuleList(Layer(size, dropout) for _ in range(size.n_layers))
        if alike:
            for layer in self.layers[1:]:
                layer.load_state_dict(self.layers[0].state_dict())
        self.coefficient = _perceptron(width)
        self.offset = _perceptron(width)

    def encoder(self) -> list[nn.Module]:
        """Return the parts that pretraining trains: all but what is added to perturbed genes and the decoders."""
        return [self.embedding, self.gene_norm, self.values, *self.layers]

    def embed(self, tokens: Tensor, values: Tensor, signs: Tensor) -> Tensor:
        """Return what the first layer gets, shape (n_cells, n_genes, width).

        Parameters
        ----------
        tokens
            Rows of the embedding, shape (n_genes,), or (n_cells, n_genes) where cells have other genes.
        values
            Expression, shape (n_cells, n_genes).
        signs
            What is done to each gene, and 0 for nothing; same shape.
        """
        genes = self.gene_norm(self.embedding(tokens))
        signs = signs.to(genes.dtype).unsqueeze(-1)
        done = signs * self.perturbed + (1 - signs.abs()) * self.untouched
        embedded: Tensor = self.values(values) + genes + done
        return embedded

    def decode(self, x: Tensor, values: Tensor) -> Tensor:
        """Return predicted expression from what the last layer gives, shape (n_cells, n_genes)."""
        decoded: Tensor = self.coefficient(x).squeeze(-1) * values + self.offset(x).squeeze(-1)
        return decoded

    def forward(self, tokens: Tensor, values: Tensor, signs: Tensor, attended: Tensor | None = None) -> Tensor:
        """Return predicted expression, shape (n_cells, n_genes).

        Parameters
        ----------
        tokens, values, signs
            See :meth:`embed`.
        attended
            Which genes of a cell are attended to, same shape as ``values``; all if None.
        """
        x = self.embed(tokens, values, signs)
        for layer in self.layers:
            x = layer(x, attended)
        return self.decode(x, values)
