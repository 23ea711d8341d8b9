"""The network evaluated per perturbation against the plain one, evaluated cell by cell."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import SGConv

from pertbase.baselines.gears import _trunk
from pertbase.baselines.gears._nets import GearsNet, group

TARGETS = torch.tensor([[3, -1], [3, -1], [-1, -1], [2, 5], [-1, -1], [2, 5], [7, -1], [0, -1]])
SIGNS = torch.tensor([[1, 0], [1, 0], [0, 0], [-1, 1], [0, 0], [-1, 1], [-1, 0], [1, 0]])


def plain_norm(norm: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)


def plain_mlp(mlp, x: torch.Tensor) -> torch.Tensor:
    for number, (linear, norm) in enumerate(mlp.layers()):
        x = plain_norm(norm, linear(torch.relu(x) if number else x))
    return x


def convolved(graph, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    convolution = SGConv(x.shape[1], x.shape[1], 1).double()
    convolution.lin.weight, convolution.lin.bias = layer.weight, layer.bias
    return convolution(x, torch.from_numpy(graph.edges), torch.from_numpy(graph.weight))


def plain(net: GearsNet, targets: torch.Tensor, signs: torch.Tensor, *, first_slot_only: bool):
    """The formulas of the paper for every cell and gene, nothing shared."""
    n_cells, n_genes = len(targets), len(net.gene.weight)
    short = nn.Embedding.from_pretrained(net.gene.weight.detach().clone(), freeze=False, max_norm=1.0)
    gene = short(torch.arange(n_genes)).repeat(n_cells, 1)
    base = torch.relu(plain_norm(net.gene_norm, gene))
    place = nn.Embedding.from_pretrained(net.position.weight.detach().clone(), freeze=False, max_norm=1.0)(
        torch.arange(n_genes)
    )
    seen = convolved(net.gene_graph, net.gene_layers[0], place)
    unseen = net.gene_layers[0](place)
    others = unseen if first_slot_only else seen
    base = plain_mlp(net.gene_mlp, base + 0.2 * torch.cat([seen, *[others] * (n_cells - 1)]))
    nodes = nn.Embedding.from_pretrained(net.target.weight.detach().clone(), freeze=False, max_norm=1.0)(
        torch.arange(9)
    )
    nodes = convolved(net.target_graph, net.target_layers[0], nodes)
    perturbed = [cell for cell in range(n_cells) if targets[cell, 0] >= 0]
    summed = torch.stack(
        [sum(signs[c, j] * nodes[targets[c, j]] for j in range(2) if targets[c, j] >= 0) for c in perturbed]
    )
    terms = torch.zeros(n_cells, nodes.shape[1], dtype=torch.float64)
    terms[perturbed] = plain_mlp(net.fuse, summed)
    grid = base + terms.repeat_interleave(n_genes, 0)
    hidden = torch.relu(plain_norm(net.sum_norm, grid))
    shared = plain_mlp(net.shared, hidden).view(n_cells, n_genes, -1)
    own = (shared * net.own_weight).sum(2) + net.own_bias[:, 0]
    cross = plain_mlp(net.cross, own)[:, None, :].expand(-1, n_genes, -1)
    change = (torch.cat([own[..., None], cross], 2) * net.final_weight).sum(2) + net.final_bias
    return change, plain_mlp(net.log_variance, hidden).view(n_cells, n_genes)


def short_embeddings(net: GearsNet) -> None:
    """Leave embeddings as a first forward would: none longer than 1."""
    with torch.no_grad():
        net(group(TARGETS, SIGNS))


def per_cell(net: GearsNet, *, first_slot_only: bool):
    grouping = group(TARGETS, SIGNS, first_slot_only=first_slot_only)
    change, variance = net(grouping)
    return change[grouping.of_cell], variance[grouping.of_cell]


@pytest.mark.parametrize("first_slot_only", [False, True])
@pytest.mark.parametrize("cached", [1, 1 << 20])
def test_network_per_perturbation_equals_the_network_per_cell(net, first_slot_only, cached, monkeypatch):
    monkeypatch.setattr(_trunk, "_CACHED", cached)
    short_embeddings(net)
    ours, expected = (
        per_cell(net, first_slot_only=first_slot_only),
        plain(net, TARGETS, SIGNS, first_slot_only=first_slot_only),
    )
    for one, other in zip(ours, expected, strict=True):
        assert other.std() > 0.1
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
    weights = torch.rand_like(expected[0])
    found = [
        torch.autograd.grad(
            (change * weights).sum() + (variance * weights**2).sum(), tuple(net.parameters()), allow_unused=True
        )
        for change, variance in (ours, expected)
    ]
    names = [name for name, _ in net.named_parameters()]
    used = 0
    for name, one, other in zip(names, *found, strict=True):
        if name in ("gene.weight", "position.weight", "target.weight"):
            continue  # the plain network's are copies; what follows them is compared
        assert one is not None, name
        used += 1
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9, msg=name)
    assert used > 30


def test_gradients_reach_the_embeddings(net):
    short_embeddings(net)

    def of(gene, position, target):
        change, _ = torch.func.functional_call(
            net, {"gene.weight": gene, "position.weight": position, "target.weight": target}, (group(TARGETS, SIGNS),)
        )
        return change

    # shorter than 1, so that the limit on their length is not met while they are varied
    given = [(0.5 * item.weight).detach().requires_grad_() for item in (net.gene, net.position, net.target)]
    net.log_variance = None
    assert torch.autograd.gradcheck(of, tuple(given), atol=1e-5)


@pytest.mark.parametrize("first_slot_only", [False, True])
def test_running_statistics_are_those_of_the_network_per_cell(net, first_slot_only):
    short_embeddings(net)
    norms = {name: item for name, item in net.named_modules() if isinstance(item, nn.BatchNorm1d)}
    for norm in norms.values():
        norm.reset_running_stats()
    seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def watch(norm: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
        seen[id(norm)] = (x.mean(0), x.var(0, correction=1))
        return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plain_mlp.__globals__, "plain_norm", watch)
        plain(net, TARGETS, SIGNS, first_slot_only=first_slot_only)
    per_cell(net, first_slot_only=first_slot_only)
    assert len(norms) == len(seen) == 13
    for name, norm in norms.items():
        mean, variance = seen[id(norm)]
        torch.testing.assert_close(norm.running_mean, 0.1 * mean, rtol=1e-9, atol=1e-12, msg=name)
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance, rtol=1e-9, atol=1e-12, msg=name)
        assert norm.num_batches_tracked == 1


def test_identical_cells_in_different_slots_get_identical_predictions(net):
    change, variance = per_cell(net, first_slot_only=False)
    for one, other in ((0, 1), (2, 4), (3, 5)):
        assert torch.equal(change[one], change[other])
        assert torch.equal(variance[one], variance[other])


def test_upstream_only_the_first_slot_sees_the_coexpression_graph(net):
    change, _ = per_cell(net, first_slot_only=True)
    assert (change[0] - change[1]).abs().max() > 1e-3
    assert torch.equal(change[3], change[5])


def test_evaluation_uses_running_statistics_and_rows_do_not_meet(net):
    per_cell(net, first_slot_only=False)
    net.eval()
    together, _ = net(group(TARGETS, SIGNS))
    with torch.no_grad():
        alone = torch.cat([net(group(TARGETS[[row]], SIGNS[[row]]))[0] for row in range(len(TARGETS))])
    torch.testing.assert_close(together[group(TARGETS, SIGNS).of_cell], alone, rtol=1e-10, atol=1e-12)


def test_settled_statistics_between_perturbations_are_those_of_the_weights_as_they_are(net):
    """Two cells of one perturbation and a control: in training, its term is what is left where nothing varies."""
    batch = group(TARGETS[:3], SIGNS[:3])
    net(batch)
    with torch.no_grad():
        net.target.weight.add_(0.1)  # as a step would move them, before which running statistics were taken
    row = int(batch.of_cell[0])
    left = net.fuse.norm[-1].bias
    off = net.eval()._perturbations(batch, batch.counts.double())[row] - left
    assert off.abs().max() > 1
    momentum = [norm.momentum for norm in net.fuse.norm]
    net.train().settle(batch)
    assert net.training
    assert [norm.momentum for norm in net.fuse.norm] == momentum
    torch.testing.assert_close(net.eval()._perturbations(batch, batch.counts.double())[row], left, rtol=0, atol=1e-9)


def test_a_batch_of_controls_alone_has_no_perturbation_term(net):
    change, _ = net(group(TARGETS[[2, 4]], SIGNS[[2, 4]]))
    assert change.shape == (1, 11)
    change.sum().backward()
    assert net.target.weight.grad is None


@pytest.mark.parametrize("layers", [0, 2])
def test_deeper_and_missing_graph_convolutions_give_finite_changes(net, layers):
    deep = GearsNet(net.gene_graph, net.target_graph, hidden=6, gene_layers=layers, target_layers=layers).double()
    change, variance = deep(group(TARGETS, SIGNS))
    assert torch.isfinite(change).all()
    assert variance is None
    assert len(torch.unique(change, dim=0)) == 5


def test_two_graph_convolutions_equal_those_of_torch_geometric(net):
    deep = GearsNet(net.gene_graph, net.target_graph, hidden=6, target_layers=2).double()
    short_embeddings(deep)
    nodes = deep.target.weight
    nodes = torch.relu(convolved(deep.target_graph, deep.target_layers[0], nodes))
    nodes = convolved(deep.target_graph, deep.target_layers[1], nodes)
    grouping = group(TARGETS[[0, 6, 7]], torch.ones(3, 2, dtype=torch.int64))
    got = deep._perturbations(grouping, grouping.counts.double())
    rows = grouping.targets[:, 0]
    torch.testing.assert_close(got, plain_mlp(deep.fuse, nodes[rows]), rtol=1e-9, atol=1e-10)
