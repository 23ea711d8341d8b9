r"""The GEARS network, evaluated once for each distinct perturbation of a batch.

In GEARS (Roohani, Huang & Leskovec, Nature Biotechnology 2024) the expression of the control cell enters at the very
end, as a term that is added: :math:`\hat y_b = x_b + \Delta(p_b)`. All that is learned is the change
:math:`\Delta(p)`, and cells of one batch under one perturbation share it. So the network is evaluated on the distinct
perturbations of a batch, and batch normalisation weighs each by how many cells it stands for. This gives the
original's numbers; with C hidden units, G genes and U distinct perturbations it costs U G C numbers where the
original's per-cell forward keeps several dozen times B G C.

Two more identities keep memory low, both exact. The sum of a gene term and a perturbation term runs over a full grid,
so its mean and variance are sums of theirs. And the mean and variance of a linear layer's output follow from the mean
and covariance of its input, so that normalisation is folded into its weights (``_trunk.py``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pertbase.baselines.gears._across_ranks import summed
from pertbase.baselines.gears._norm import Perceptron, normalised, statistics
from pertbase.baselines.gears._trunk import trunk

__all__ = ["Adjacency", "GearsNet", "Grouping", "group"]

POSITION_SHARE = 0.2
"""How much of the positional embedding is added to a gene's: a constant of the original."""


@dataclass(frozen=True)
class Grouping:
    """The distinct perturbations of a batch.

    Parameters
    ----------
    targets
        Positions of targets in the target vocabulary, padded with -1, shape (n_distinct, n_targets).
    signs
        What each target's embedding is multiplied with, same shape.
    counts
        Cells of each, float, shape (n_distinct,).
    of_cell
        The row of each cell, shape (n_cells,).
    co_expressed
        Whether a row's genes see their neighbours in the co-expression graph, shape (n_distinct,).
    """

    targets: Tensor
    signs: Tensor
    counts: Tensor
    of_cell: Tensor
    co_expressed: Tensor

    def to(self, device: torch.device) -> Grouping:
        """Return the same on a device."""
        return Grouping(**{item.name: getattr(self, item.name).to(device) for item in fields(self)})


def group(targets: Tensor, signs: Tensor, *, first_slot_only: bool = False) -> Grouping:
    """Return the distinct perturbations among cells.

    Parameters
    ----------
    targets, signs
        Of each cell, shape (n_cells, n_targets); controls are rows of -1.
    first_slot_only
        Keep the first cell as a row of its own, the only one that sees the co-expression graph: the original's
        graph is never repeated for the other cells of a batch.
    """
    signs = signs.to(targets.dtype).masked_fill(targets < 0, 0)
    keys = torch.cat([targets, signs], dim=1)
    width = targets.shape[1]
    if not first_slot_only:
        rows, of_cell, counts = torch.unique(keys, dim=0, return_inverse=True, return_counts=True)
        seen = torch.ones(len(rows), dtype=torch.bool, device=targets.device)
        return Grouping(rows[:, :width], rows[:, width:], counts.float(), of_cell, seen)
    rows, of_cell, counts = torch.unique(keys[1:], dim=0, return_inverse=True, return_counts=True)
    rows = torch.cat([keys[:1], rows])
    seen = torch.zeros(len(rows), dtype=torch.bool, device=targets.device)
    seen[0] = True
    of_cell = torch.cat([of_cell.new_zeros(1), of_cell + 1])
    return Grouping(rows[:, :width], rows[:, width:], torch.cat([counts.new_ones(1), counts]).float(), of_cell, seen)


class Adjacency(nn.Module):
    r"""A graph with the normalisation of graph convolutions, as a CSR matrix target x source.

    With weights :math:`w`, self-loops of weight 1 where there are none, and :math:`d_i = \sum_j w_{ji}`, the entries
    are :math:`w_{ji} / \sqrt{d_j d_i}`. They are buffers, so that they follow the module to its device, and no part of
    a checkpoint: the graph is made again from the training.

    Parameters
    ----------
    edges
        Source and target of each edge, int64, shape (2, n_edges).
    weight
        Weight of each edge, shape (n_edges,); its precision is that of the normalisation.
    n_nodes
        Nodes.
    """

    crow: Tensor
    column: Tensor
    value: Tensor

    def __init__(self, edges: Tensor, weight: Tensor, n_nodes: int) -> None:
        super().__init__()
        self.edges = edges.numpy()
        self.weight = weight.numpy()
        looped, normalised = gcn_norm(edges, weight, n_nodes, dtype=weight.dtype)
        order = torch.argsort(looped[1] * n_nodes + looped[0])
        counts = torch.bincount(looped[1], minlength=n_nodes)
        self.register_buffer("crow", torch.cat([counts.new_zeros(1), counts.cumsum(0)]), persistent=False)
        self.register_buffer("column", looped[0][order], persistent=False)
        self.register_buffer("value", normalised[order], persistent=False)
        self.gather = SimpleConv(aggr="sum")

    @property
    def n_nodes(self) -> int:
        """Nodes of the graph."""
        return len(self.crow) - 1

    def forward(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the weighted sum over the sources of each node, or of some nodes, shape (n_rows, n_channels)."""
        crow, column, value = self.crow, self.column, self.value
        if rows is not None:
            counts = crow[rows + 1] - crow[rows]
            start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            within = torch.arange(int(start[-1]), device=rows.device) - start[:-1].repeat_interleave(counts)
            chosen = crow[rows].repeat_interleave(counts) + within
            crow, column, value = start, column[chosen], value[chosen]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse ")  # that CSR is in beta, and that it is not checked
            matrix = torch.sparse_csr_tensor(
                crow, column, value.to(x.dtype), (len(crow) - 1, self.n_nodes), check_invariants=False
            )
        gathered: Tensor = self.gather((x, None), matrix)
        return gathered


class GearsNet(nn.Module):
    r"""Change of every gene under each of some perturbations.

    .. math::

        e_g &= \mathrm{MLP}(\mathrm{relu}(\mathrm{BN}(E_g)) + 0.2\, \mathrm{SGC}(P)_g) \\
        q_p &= \mathrm{MLP}(\textstyle\sum_{t \in p} s_t \, \mathrm{SGC}(T)_t), \qquad q_\text{control} = 0 \\
        h_{pg} &= \mathrm{relu}(\mathrm{BN}(e_g + q_p)) \\
        o_{pg} &= u_g \cdot \mathrm{MLP}(h_{pg}) + c_g \\
        \Delta_{pg} &= v_g\, o_{pg} + w_g \cdot \mathrm{MLP}(o_p) + d_g

    Parameters
    ----------
    gene_graph, target_graph
        Co-expression of genes and similarity of targets; their nodes are the genes and the target vocabulary.
    hidden
        Hidden units.
    gene_layers, target_layers
        Graph convolutions on either graph.
    uncertainty
        Whether a log variance is predicted too.
    """

    def __init__(
        self,
        gene_graph: Adjacency,
        target_graph: Adjacency,
        *,
        hidden: int = 64,
        gene_layers: int = 1,
        target_layers: int = 1,
        uncertainty: bool = False,
    ) -> None:
        super().__init__()
        n_genes, n_targets = gene_graph.n_nodes, target_graph.n_nodes
        self.gene_graph, self.target_graph = gene_graph, target_graph
        self.gene = nn.Embedding(n_genes, hidden)
        self.position = nn.Embedding(n_genes, hidden)
        self.target = nn.Embedding(n_targets, hidden)
        self.gene_norm = nn.BatchNorm1d(hidden)
        self.gene_layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(gene_layers))
        self.target_layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(target_layers))
        self.gene_mlp = Perceptron(hidden, hidden, hidden)
        self.fuse = Perceptron(hidden, hidden, hidden)
        self.sum_norm = nn.BatchNorm1d(hidden)
        self.shared = Perceptron(hidden, 2 * hidden, hidden)
        self.own_weight = nn.Parameter(torch.empty(n_genes, hidden))
        self.own_bias = nn.Parameter(torch.empty(n_genes, 1))
        self.cross = Perceptron(n_genes, hidden, hidden)
        self.final_weight = nn.Parameter(torch.empty(n_genes, hidden + 1))
        self.final_bias = nn.Parameter(torch.empty(1, n_genes))
        self.log_variance = Perceptron(hidden, 2 * hidden, hidden, 1) if uncertainty else None
        self._reset()

    def _reset(self) -> None:
        # Glorot with the fans that the shapes of the original's tensors imply: (G, C, 1), (1, G, C + 1).
        n_genes, hidden = self.own_weight.shape
        for weight, fan in (
            (self.own_weight, (n_genes + 1) * hidden),
            (self.own_bias, n_genes + 1),
            (self.final_weight, (n_genes + 1) * (hidden + 1)),
            (self.final_bias, n_genes + 1),
        ):
            nn.init.normal_(weight, std=(2.0 / fan) ** 0.5)

    def forward(self, batch: Grouping) -> tuple[Tensor, Tensor | None]:
        """Return the change of every gene, shape (n_distinct, n_genes), and its log variance or None.

        In full precision whatever the autocast: nearly all of it is moments, which are differences of large sums.
        """
        with torch.autocast(self.gene.weight.device.type, enabled=False):
            return self._forward(batch)

    def _forward(self, batch: Grouping) -> tuple[Tensor, Tensor | None]:
        counts = batch.counts.to(self.gene.weight.dtype)
        genes, version = self._genes(batch, counts)
        genes, terms = self._summands(genes, self._perturbations(batch, counts), version, counts)
        own = trunk(genes, terms, version, counts, self.shared, self.own_weight) + self.own_bias[:, 0]
        across = self.cross(own, counts) @ self.final_weight[:, 1:].T
        change = own * self.final_weight[:, 0] + across + self.final_bias
        if self.log_variance is None:
            return change, None
        hidden = torch.relu_(genes[version] + terms[:, None, :])
        return change, self.log_variance.wide(hidden, counts)[..., 0]

    @torch.no_grad()
    def settle(self, batch: Grouping) -> None:
        """Take the statistics of normalisations between perturbations from these: all of train's, with their cells.

        Running statistics lag behind the weights. Between perturbations that is no detail: where train has one, or few
        in a batch, the variance is next to nothing, and what the mean lags by is divided by its root. On a screen of
        one perturbation predicted effects were up to 400 times the measured ones.
        """
        parts = (self.fuse, self.cross)
        momenta = [(norm, norm.momentum) for part in parts for _, norm in part.layers()]
        training = self.training
        self.eval()
        try:
            for part in parts:
                part.train()
            for norm, _ in momenta:
                norm.momentum = 1.0
            self(batch)
        finally:
            for norm, momentum in momenta:
                norm.momentum = momentum
            self.train(training)

    def _genes(self, batch: Grouping, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return gene terms with and without the co-expression graph, as used, and the version of each row."""
        _limit(self.gene.weight)
        _limit(self.position.weight)
        total = counts.sum()
        base = self.gene.weight
        base = torch.relu(normalised(self.gene_norm, base, total.expand(len(base))))
        seen = batch.co_expressed
        used = [flag for flag in (True, False) if bool((seen == flag).any())]
        weights = torch.stack([(counts * (seen == flag)).sum() for flag in used])
        versions = []
        for flag in used:
            place = self.position.weight
            for number, layer in enumerate(self.gene_layers):
                place = layer(self.gene_graph(place) if flag else place)
                place = torch.relu(place) if number < len(self.gene_layers) - 1 else place
            versions.append(base + POSITION_SHARE * place)
        n_genes, width = base.shape
        stacked = torch.cat(versions)
        mixed = self.gene_mlp(stacked, weights.repeat_interleave(n_genes)).view(len(used), n_genes, width)
        version = torch.zeros_like(batch.of_cell[:1]).expand(len(seen)) if len(used) == 1 else (~seen).long()
        return mixed, version

    def _perturbations(self, batch: Grouping, counts: Tensor) -> Tensor:
        """Return the perturbation term of each row, zero for controls, shape (n_distinct, hidden)."""
        _limit(self.target.weight)
        present = batch.targets >= 0
        perturbed = present.any(1)
        term = self.target.weight.new_zeros(len(batch.targets), self.target.embedding_dim)
        # Of a batch that ranks share, all of them or none go on: the normalisation asks each for its sums.
        n = counts[perturbed].sum()
        if not (summed(n) if self.training else n):
            return term
        asked, position = torch.unique(batch.targets[present], return_inverse=True)
        nodes = self.target.weight
        for number, layer in enumerate(self.target_layers):
            # Only the targets of this batch are needed after the last convolution.
            final = number == len(self.target_layers) - 1
            nodes = layer(self.target_graph(nodes, asked if final else None))
            nodes = nodes if final else torch.relu(nodes)
        if len(self.target_layers) == 0:
            nodes = nodes[asked]
        row = present.nonzero()[:, 0]
        total = term.index_add(0, row, nodes[position] * batch.signs[present].to(nodes.dtype)[:, None])
        fused = self.fuse(total[perturbed], counts[perturbed])
        return term.masked_scatter(perturbed[:, None], fused.to(term.dtype))

    def _summands(self, genes: Tensor, terms: Tensor, version: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the terms of genes and of rows whose sum is the batch normalisation of their sum."""
        if self.sum_norm.training:
            mean, variance = _grid_moments(genes, terms, version, counts)
            scale, offset = statistics(self.sum_norm, mean, variance, summed(counts.sum()) * genes.shape[1])
        else:
            scale, offset = statistics(self.sum_norm, terms[0], terms[0], counts)
        return genes * scale, terms * scale + offset


def _grid_moments(genes: Tensor, terms: Tensor, version: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of all sums of a gene term and a perturbation term, weighted by counts."""
    means, variances, weights = [], [], []
    for number in range(len(genes)):
        weight = counts * (version == number)
        total = weight.sum()
        share = weight / total
        centre = share @ terms
        means.append(genes[number].mean(0) + centre)
        variances.append(genes[number].var(0, correction=0) + share @ (terms - centre).square())
        weights.append(total)
    weight = torch.stack(weights)
    weight = (weight / summed(weight.sum()))[:, None]
    mean = torch.stack(means)
    overall = summed((weight * mean).sum(0))
    return overall, summed((weight * (torch.stack(variances) + (mean - overall).square())).sum(0))


def _limit(weight: Tensor) -> None:
    """Scale embeddings longer than 1 down to 1, in place, as a lookup with ``max_norm`` does.

    Behind autograd's back: nothing changes between two evaluations of the same weights.
    """
    length = weight.detach().norm(dim=1, keepdim=True)
    weight.data.mul_(torch.where(length > 1, 1 / (length + 1e-7), torch.ones_like(length)))
