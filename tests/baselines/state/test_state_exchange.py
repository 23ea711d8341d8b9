"""Models of arc-state: carried over weight by weight, or refused by the name of what has no place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pertbase.baselines.state import STATE
from pertbase.baselines.state._exchange import _theirs
from pertbase.baselines.state._net import LatentDecoder, StateNet
from pertbase.baselines.state._sizes import Shape
from pertbase.errors import InputError
from pertbase.folds import Perturbation
from pertbase.folds._sets import CellSets

GENES = [f"g{number}" for number in range(10)]
NAMES = ["non-targeting", "g1", "g2", "CRISPRa:g3"]
SHAPE = Shape(hidden_size=12, layers=2, heads=3, encoder_layers=2, decoder_layers=2, set_size=4)


def hyper_parameters(**more):
    backbone = {"num_attention_heads": 3, "bidirectional_attention": True}
    return {
        "cell_set_len": 4, "transformer_backbone_kwargs": backbone, "transformer_backbone_key": "llama",
        "control_pert": "non-targeting", "predict_residual": True, "embed_key": None, "loss_fn": nn.MSELoss(), **more,
    }  # fmt: skip


def network(**options) -> StateNet:
    torch.manual_seed(0)
    return StateNet(SHAPE, **{"n_in": 10, "n_out": 10, "n_features": 4, "residual": "token", **options}).eval()


def their_state(net: StateNet, decoder: LatentDecoder | None = None) -> dict[str, torch.Tensor]:
    """Return weights under arc-state's names, with an embedding of words that it has and never uses."""
    ours = dict(net.state_dict())
    if decoder is not None:
        ours |= {f"decoder.{name}": item for name, item in decoder.state_dict().items()}
    state = {"transformer_backbone.embed_tokens.weight": torch.zeros(50, 12)}
    for name, item in ours.items():
        theirs = _theirs(name)
        state |= dict(zip(theirs, item.chunk(len(theirs)), strict=True))
    return state


def write(folder: Path, state, about=None, names=True) -> Path:
    folder = folder / "run" / "checkpoints"
    folder.mkdir(parents=True)
    kept = {"state_dict": state, "hyper_parameters": hyper_parameters() if about is None else about}
    torch.save(kept, folder / "last.ckpt")
    if names:
        torch.save({name: torch.eye(4)[row] for row, name in enumerate(NAMES)}, folder.parent / "pert_onehot_map.pt")
    return folder / "last.ckpt"


def given(features: torch.Tensor | None = None) -> CellSets:
    cells = torch.rand(3, 4, 10, generator=torch.Generator().manual_seed(1))
    zero = torch.zeros(3, dtype=torch.int64)
    return CellSets(
        control=cells,
        perturbed=cells,
        real=torch.ones(3, 4, dtype=torch.bool),
        padded=False,
        features=torch.eye(4)[:3] if features is None else features,
        condition=zero,
        context=zero,
        batch=torch.tensor([[0, 1, 1, 0]] * 3),
        control_embedding=cells,
        perturbed_embedding=cells,
    )


def test_weights_are_carried_over(tmp_path):
    net = network()
    model = STATE.from_arc_state(write(tmp_path, their_state(net)), genes=GENES, n_controls=7)
    sets = given()
    with torch.no_grad():
        assert torch.equal(model.module(sets), net(sets.control, sets.features))
    assert (model.preset, model.residual, model.hidden_size, model.n_controls) == ("upstream", "token", 12, 7)
    assert model.shape == SHAPE


def test_perturbations_are_known_with_and_without_their_mechanism(tmp_path):
    module = STATE.from_arc_state(write(tmp_path, their_state(network())), genes=GENES).module
    spoken = {name: module.speaks_to(Perturbation.genetic([name[1]], name[0])) for name in (
        ("CRISPRi", "g1"), ("CRISPRa", "g1"), ("CRISPRa", "g3"), ("CRISPRi", "g3"), ("CRISPRi", "g9"),
    )}  # fmt: skip
    assert list(spoken.values()) == [True, True, True, False, False]
    np.testing.assert_array_equal(module.features.of(None), [1, 0, 0, 0])


@pytest.mark.parametrize("residual", ["bottleneck", "token"])
def test_every_kind_of_output_is_carried_over(residual, tmp_path):
    net = network(residual=residual, n_batches=2)
    path = write(tmp_path, their_state(net))
    model = STATE.from_arc_state(path, genes=GENES, batches=["one", "two"])
    sets = given()
    with torch.no_grad():
        assert torch.equal(model.module(sets), net(sets.control, sets.features, batch=sets.batch))
    assert (model.residual, model.batch_embedding) == (residual, True)
    with pytest.raises(InputError, match="names are not in the file"):
        STATE.from_arc_state(path, genes=GENES)


def test_a_model_of_an_embedding_is_carried_over_with_its_decoder(tmp_path):
    net, decoder = network(positive=False), LatentDecoder(10, 6).eval()
    about = hyper_parameters(embed_key="X_state")
    model = STATE.from_arc_state(write(tmp_path, their_state(net, decoder), about), genes=GENES[:6])
    sets = given()
    with torch.no_grad():
        cells = net(sets.control, sets.features)
        assert cells.min() < 0
        assert torch.equal(model.module(sets), cells)
        assert torch.equal(model.module.decoder(cells), decoder(cells))
    assert model.embedding == "X_state"


def test_a_decoder_that_is_never_used_is_left_behind(tmp_path):
    state = their_state(network()) | {"gene_decoder.decoder.0.weight": torch.zeros(3)}
    assert STATE.from_arc_state(write(tmp_path, state), genes=GENES).module.decoder is None


def test_names_of_the_columns_and_numbers_of_the_network_may_be_given(tmp_path):
    path = write(tmp_path, their_state(network()), about={}, names=False)
    with pytest.raises(InputError, match="hyper_parameters"):
        STATE.from_arc_state(path, genes=GENES, perturbations=NAMES)
    about = {key: value for key, value in hyper_parameters().items() if key != "loss_fn"}
    with pytest.raises(InputError, match=r"no pert_onehot_map.pt"):
        STATE.from_arc_state(path, genes=GENES, hyper_parameters=about)
    model = STATE.from_arc_state(path, genes=GENES, perturbations=NAMES, hyper_parameters=about)
    assert model.module.speaks_to(Perturbation.genetic(["g2"], "CRISPRi"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.update({"confidence_token.confidence_token": torch.zeros(1)}), "confidence_token"),
        (lambda state: state.pop("transformer_backbone.layers.1.mlp.up_proj.weight"), r"layers\.1\.mlp\.up_proj"),
        (lambda state: state.pop("project_out.0.bias"), r"project_out\.0\.bias"),
        (lambda state: state.update({"basal_encoder.3.weight": torch.zeros(5, 12)}), r"basal_encoder\.3\.weight"),
    ],
)
def test_a_weight_without_a_place_is_named(change, told, tmp_path):
    state = their_state(network())
    change(state)
    with pytest.raises(InputError, match=told):
        STATE.from_arc_state(write(tmp_path, state), genes=GENES)


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"transformer_backbone_key": "GPT2"}, "transformer_backbone_key"),
        ({"predict_residual": False}, "predict_residual"),
        ({"transformer_backbone_kwargs": {"num_attention_heads": 3}}, "bidirectional_attention"),
        ({"mask_attn": True}, "mask_attn"),
    ],
)
def test_arithmetic_that_is_not_known_is_named(about, told, tmp_path):
    path = write(tmp_path, their_state(network()), hyper_parameters(**about))
    with pytest.raises(InputError, match=told):
        STATE.from_arc_state(path, genes=GENES)


def test_other_genes_are_refused(tmp_path):
    with pytest.raises(InputError, match="10 genes"):
        STATE.from_arc_state(write(tmp_path, their_state(network())), genes=GENES[:9])


class Dangerous:
    def __init__(self, function, file: Path) -> None:
        self.function, self.file = function, file

    def __reduce__(self):
        return (self.function, (__file__, str(self.file)))


def test_nothing_in_a_file_is_run(tmp_path):
    about = hyper_parameters(loss_fn=Dangerous(shutil.copyfile, tmp_path / "ran"), more=[Path("/"), np.float64(3.0)])
    path = write(tmp_path, their_state(network()), about)
    assert STATE.from_arc_state(path, genes=GENES).module is not None
    torch.save(hyper_parameters(loss_fn=Dangerous(os.link, tmp_path / "ran")), path)
    with pytest.raises(InputError, match="without running it"):
        STATE.from_arc_state(path, genes=GENES)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x03\x04broken"])
def test_a_file_that_is_no_checkpoint_is_told(content, tmp_path):
    (tmp_path / "model.ckpt").write_bytes(content)
    with pytest.raises(InputError, match="no file of torch"):
        STATE.from_arc_state(tmp_path / "model.ckpt", genes=GENES)
    with pytest.raises(InputError, match="no such file"):
        STATE.from_arc_state(tmp_path / "absent.ckpt", genes=GENES)
