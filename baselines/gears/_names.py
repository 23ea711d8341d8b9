"""The names cell-gears gives its parameters, and ours."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

__all__ = ["from_cell_gears", "to_cell_gears"]

_MODULES = {
    "gene": "gene_emb",
    "position": "emb_pos",
    "target": "pert_emb",
    "gene_norm": "bn_emb",
    "sum_norm": "bn_pert_base",
}
_PERCEPTRONS = {
    "gene_mlp": "emb_trans_v2",
    "fuse": "pert_fuse",
    "shared": "recovery_w",
    "cross": "cross_gene_state",
    "log_variance": "uncertainty_w",
}
_CONVOLUTIONS = {"gene_layers": "layers_emb_pos", "target_layers": "sim_layers"}
_DECODERS = {"own_weight": "indv_w1", "own_bias": "indv_b1", "final_weight": "indv_w2", "final_bias": "indv_b2"}
_LAYER = {"linear": 0, "norm": 1}


def _theirs(name: str) -> str:
    """Return cell-gears' name of one of our parameters or buffers."""
    head, _, rest = name.partition(".")
    if head in _DECODERS:
        return _DECODERS[head]
    if head in _MODULES:
        return f"{_MODULES[head]}.{rest}"
    if head in _CONVOLUTIONS:
        number, _, what = rest.partition(".")
        return f"{_CONVOLUTIONS[head]}.{number}.lin.{what}"
    kind, number, what = rest.split(".")
    # A perceptron of theirs is one list: linear, normalisation, ReLU, linear, ...
    return f"{_PERCEPTRONS[head]}.network.{3 * int(number) + _LAYER[kind]}.{what}"


def to_cell_gears(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our network's state under cell-gears' names and shapes, with the parameters it has and never uses."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        theirs = _theirs(name)
        if theirs == "indv_w1":
            value = value[..., None]
        elif theirs == "indv_w2":
            value = value[None]
        found[theirs] = value.detach().clone()
    width = found["pert_emb.weight"].shape[1]
    some = found["pert_emb.weight"]
    found["pert_w.weight"], found["pert_w.bias"] = some.new_zeros(width, 1), some.new_zeros(width)
    for what, start in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
        found[f"bn_pert_base_trans.{what}"] = some.new_full((width,), start)
    found["bn_pert_base_trans.num_batches_tracked"] = found["bn_emb.num_batches_tracked"].clone()
    return found


def from_cell_gears(state: Mapping[str, Tensor], names: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return cell-gears' state under our names and shapes, and which of ours it lacks.

    Parameters
    ----------
    state
        Of cell-gears' model, data-parallel or not.
    names
        The state of our network, for names and shapes.
    """
    plain = {name.removeprefix("module."): value for name, value in state.items()}
    found: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, ours in names.items():
        if _theirs(name) in plain and plain[_theirs(name)].numel() == ours.numel():
            found[name] = plain[_theirs(name)].reshape(ours.shape)
        else:
            missing.append(_theirs(name))
    return found, missing
