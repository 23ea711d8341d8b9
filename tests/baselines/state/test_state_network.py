"""The network and its loss: a set has no order, repeated cells do not count, and effects start at nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pertbase.baselines.state._loss import LOSSES, SetLoss
from pertbase.baselines.state._net import LatentDecoder, StateNet
from pertbase.baselines.state._sizes import SIZES, Shape, shape_of
from pertbase.errors import InputError

SHAPE = Shape(hidden_size=24, layers=2, heads=3, encoder_layers=2, decoder_layers=2, set_size=9)
RESIDUALS = ("cell", "token", "bottleneck")


def network(**options) -> StateNet:
    torch.manual_seed(0)
    net = StateNet(SHAPE, n_in=11, n_out=11, n_features=5, n_batches=3, **options).eval()
    for item in net.parameters():  # of a size that matters, the last layer's too
        torch.nn.init.normal_(item, std=0.3)
    return net


def given(n_sets: int = 4, cells: int = 9):
    rng = torch.Generator().manual_seed(1)
    batch = torch.randint(-1, 3, (n_sets, cells), generator=rng)
    return torch.rand(n_sets, cells, 11, generator=rng), torch.rand(n_sets, 5, generator=rng), batch


@pytest.mark.parametrize("residual", RESIDUALS)
def test_permuting_a_set_permutes_its_predictions(residual):
    net, (cells, features, batch) = network(residual=residual), given()
    order = torch.randperm(cells.shape[1], generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        plain = net(cells, features, batch=batch)
        permuted = net(cells[:, order], features, batch=batch[:, order])
    assert plain.std() > 0.1
    assert (plain[:, order] - permuted).abs().max() < 1e-6 * plain.abs().max().clamp(min=1)


@pytest.mark.parametrize("residual", RESIDUALS)
def test_repeated_cells_change_no_prediction(residual):
    net, (cells, features, batch) = network(residual=residual), given()
    visible = torch.arange(9) < 6
    visible = visible.expand(4, 9)
    with torch.no_grad():
        alone = net(cells[:, :6], features, batch=batch[:, :6])
        hidden = net(cells, features, batch=batch, visible=visible)[:, :6]
        seen = net(cells, features, batch=batch)[:, :6]
    assert (alone - hidden).abs().max() < 1e-6 * alone.abs().max().clamp(min=1)
    assert (alone - seen).abs().max() > 1e-3


def test_cells_of_a_set_see_each_other_and_no_other_set():
    net, (cells, features, batch) = network(), given()
    with torch.no_grad():
        plain = net(cells, features, batch=batch)
        other = cells.clone()
        other[0, 3] += 1.0
        moved = (net(other, features, batch=batch) - plain).abs().amax(dim=2)
    assert (moved[0] > 1e-5).all()
    assert moved[1:].max() == 0


def test_before_training_a_change_of_the_cell_is_no_change():
    net = StateNet(SHAPE, n_in=11, n_out=11, n_features=5, residual="cell").eval()
    cells, features, _ = given()
    assert torch.equal(net(cells, features), cells)


def test_an_unknown_batch_is_the_mean_of_all():
    net, (cells, features, batch) = network(), given()
    with torch.no_grad():
        unknown = net(cells, features, batch=torch.full_like(batch, -1))
        net.batch.weight.copy_(net.batch.weight.mean(dim=0).expand_as(net.batch.weight))
        assert torch.allclose(unknown, net(cells, features, batch=torch.zeros_like(batch)), atol=1e-6)


def test_expression_is_never_negative_and_an_embedding_may_be():
    cells, features, batch = given()
    with torch.no_grad():
        assert network()(cells, features, batch=batch).min() == 0
        assert network(positive=False)(cells, features, batch=batch).min() < 0
    assert LatentDecoder(11, 7)(cells).shape == (4, 9, 7)


def test_the_published_sizes_are_those_of_the_paper():
    paper = {"small": (672, 4, 8, 128), "base": (768, 8, 12, 512), "large": (1488, 6, 12, 512)}
    assert {name: (size.hidden_size, size.layers, size.heads, size.set_size) for name, size in SIZES.items()} == paper
    assert [size.intermediate_size for size in SIZES.values()] == [2688, 3072, 5952]
    assert shape_of("base", hidden_size=96).intermediate_size == 384


@pytest.mark.parametrize(("option", "value"), [("heads", 5), ("layers", 0), ("set_size", True), ("size", "smal")])
def test_a_size_that_cannot_be_is_told(option, value):
    with pytest.raises(InputError, match=option):
        shape_of(**{"size": "small", option: value})


# -- loss -----------------------------------------------------------------------------------------------------


def sets(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(3, 8, 6, generator=rng), 0.5 + torch.rand(3, 8, 6, generator=rng)


def test_the_energy_distance_is_that_of_its_definition():
    one, other = (item.double().numpy() for item in sets())
    expected = []
    for x, y in zip(one, other, strict=True):
        between, within_x, within_y = (
            np.linalg.norm(a[:, None] - b[None], axis=2).mean() for a, b in ((x, y), (x, x), (y, y))
        )
        expected.append(between - within_x / 2 - within_y / 2)
    assert float(SetLoss("energy")(*sets(), None)) == pytest.approx(np.mean(expected), abs=1e-3)


def test_mix_is_energy_and_a_hundredth_of_sinkhorn():
    parts = {name: float(SetLoss(name)(*sets(), None)) for name in LOSSES}
    assert parts["mix"] == pytest.approx(parts["energy"] + 0.01 * parts["sinkhorn"], rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_repeated_cells_have_no_weight_in_the_loss(name):
    predicted, measured = sets()
    real = torch.tensor([8, 5, 1])[:, None] > torch.arange(8)
    expected = [SetLoss(name)(p[None, r], m[None, r], None) for p, m, r in zip(predicted, measured, real, strict=True)]
    last = torch.tensor([7, 4, 0])
    position = torch.minimum(torch.arange(8)[None], last[:, None])
    repeated = [torch.gather(item, 1, position[..., None].expand_as(item)) for item in (predicted, measured)]
    found = SetLoss(name)(*repeated, real)
    assert float(found) == pytest.approx(float(torch.stack(expected).mean()), abs=2e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_finite_gradients_where_sets_are_equal(name):
    predicted = sets()[0].requires_grad_()
    SetLoss(name)(predicted, predicted.detach().clone(), None).backward()
    assert torch.isfinite(predicted.grad).all()


@pytest.mark.parametrize("name", ["energy", "sinkhorn", "mix"])
def test_distances_of_sets_do_not_look_at_order(name):
    predicted, measured = sets()
    assert float(SetLoss(name)(predicted, measured.flip(1), None)) == pytest.approx(
        float(SetLoss(name)(predicted, measured, None)), abs=1e-5
    )
