"""The transformer: genes without order, masks that hide, layers as torch has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pertbase.baselines.scgpt._net import LARGEST_VALUE, ScGPTNet
from pertbase.baselines.scgpt._size import SIZES, Size, sized

SIZE = Size(16, 2, 4, 12)


@pytest.fixture
def net() -> ScGPTNet:
    torch.manual_seed(0)
    made = ScGPTNet(30, SIZE, trained_absence=True).double()
    with torch.no_grad():
        for name, item in made.named_parameters():
            if "norm" in name or name.endswith("bias"):
                item.add_(0.3 * torch.randn_like(item))
    return made.eval()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    signs = torch.zeros(5, 30)
    signs[0, 3], signs[1, [4, 9]], signs[2, 7] = 1, 1, -1
    return torch.arange(30), torch.rand(5, 30).double() * 3, signs


def test_predictions_follow_the_genes_whatever_their_order(net, batch):
    tokens, values, signs = batch
    order = torch.randperm(30)
    turned = net(tokens[order], values[:, order], signs[:, order])
    torch.testing.assert_close(turned, net(*batch)[:, order], rtol=0, atol=1e-12)


def test_other_cells_make_no_difference(net, batch):
    tokens, values, signs = batch
    torch.testing.assert_close(net(tokens, values[2:3], signs[2:3])[0], net(*batch)[2], rtol=0, atol=1e-12)


def test_a_gene_that_is_not_attended_to_changes_nothing_for_others(net, batch):
    tokens, values, signs = batch
    attended = torch.ones(5, 30, dtype=torch.bool)
    attended[:, 20:] = False
    masked = net(tokens, values, signs, attended)
    changed = values.clone()
    changed[:, 20:] = 7
    torch.testing.assert_close(net(tokens, changed, signs, attended)[:, :20], masked[:, :20], rtol=0, atol=1e-12)
    absent = net(tokens[:20], values[:, :20], signs[:, :20])
    torch.testing.assert_close(masked[:, :20], absent, rtol=0, atol=1e-12)
    assert (net(*batch)[:, :20] - masked[:, :20]).abs().max() > 1e-3


def test_layers_are_torchs_own(net):
    """The weights of torch's encoder layer, in their places, give the same numbers."""
    theirs = nn.TransformerEncoderLayer(16, 4, 12, dropout=0.0, batch_first=True).double().eval()
    layer = net.layers[0]
    names = {"attention.in_proj.weight": "self_attn.in_proj_weight", "attention.in_proj.bias": "self_attn.in_proj_bias"}
    state = {
        names.get(name, name.replace("attention.", "self_attn.")): value for name, value in layer.state_dict().items()
    }
    theirs.load_state_dict(state)
    x = torch.randn(3, 11, 16).double()
    hidden = torch.zeros(3, 11, dtype=torch.bool)
    hidden[:, 8:] = True
    torch.testing.assert_close(layer(x), theirs(x), rtol=0, atol=1e-12)
    masked = theirs.train()(x, src_key_padding_mask=hidden)
    torch.testing.assert_close(layer(x, ~hidden)[:, :8], masked[:, :8], rtol=0, atol=1e-12)


def test_opposite_signs_get_opposite_marks(net, batch):
    tokens, values, signs = batch
    untouched = net.embed(tokens, values, torch.zeros_like(signs))
    marked = net.embed(tokens, values, signs) - untouched
    mark = net.perturbed - net.untouched
    torch.testing.assert_close(marked[0, 3], mark, rtol=0, atol=1e-12)
    torch.testing.assert_close(marked[2, 7], -net.perturbed - net.untouched, rtol=0, atol=1e-12)
    assert int((marked.abs().sum(-1) > 0).sum()) == 4


def test_the_mark_of_nothing_is_zero_and_stays_so_unless_it_is_trained():
    net = ScGPTNet(5, SIZE)
    assert not net.untouched.any()
    assert not net.untouched.requires_grad
    assert ScGPTNet(5, SIZE, trained_absence=True).untouched.requires_grad


def test_padding_is_never_trained(batch):
    net = ScGPTNet(4, SIZE, padding=3)
    tokens = torch.tensor([0, 1, 2, 3, 3])
    net(tokens, torch.rand(2, 5), torch.zeros(2, 5)).sum().backward()
    assert net.embedding.weight[3].any()
    assert not net.embedding.weight.grad[3].any()
    assert net.embedding.weight.grad[:3].any()


def test_layers_start_alike_where_the_original_has_them_so():
    def first(alike: bool) -> list[np.ndarray]:
        return [layer.linear1.weight.detach().numpy() for layer in ScGPTNet(5, SIZE, alike=alike).layers]

    np.testing.assert_array_equal(*first(True))
    assert (first(False)[0] != first(False)[1]).any()


def test_expression_is_cut_off_where_the_original_does(net, batch):
    values = torch.full((1, 3), LARGEST_VALUE).double()
    torch.testing.assert_close(net.values(values), net.values(values * 4))


def test_sizes_are_changed_by_number():
    assert sized("published") == SIZES["published"] == Size(512, 12, 8, 512)
    assert sized("small", n_layers=3, hidden_size=None) == Size(64, 3, 2, 64)


@pytest.mark.gpu
def test_a_gpu_predicts_what_a_processor_does(batch):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    net = ScGPTNet(30, SIZE).eval()
    tokens, values, signs = (item.float() if item.dtype == torch.float64 else item for item in batch)
    there = net.cuda()(tokens.cuda(), values.cuda(), signs.cuda()).cpu()
    torch.testing.assert_close(there, net.cpu()(tokens, values, signs), rtol=0, atol=1e-4)
