"""Models that arc-state trained, read without running anything that their files may hold."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from pertbase._io import read_mapping
from pertbase.baselines.state._features import Listed
from pertbase.baselines.state._module import Optimisation, StateModule
from pertbase.baselines.state._net import LatentDecoder, StateNet
from pertbase.baselines.state._sizes import Shape
from pertbase.errors import InputError

__all__ = ["read_arc_state"]

Rows = Mapping[str, Any]

_MODULES = {
    "perturbation": "pert_encoder",
    "cell": "basal_encoder",
    "batch": "batch_encoder",
    "out": "project_out",
    "bottleneck": "final_down_then_up",
    "norm": "transformer_backbone.norm",
}
_LAYERS = {
    "attention_norm": ("input_layernorm",),
    "query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attended": ("self_attn.o_proj",),
    "feed_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_UNUSED = "transformer_backbone.embed_tokens."
"""An embedding of words that no cell is ever looked up in."""
_EXPRESSION = (None, "X_hvg")
"""What its ``embed_key`` says of models of expression."""
_REFUSED = ("mask_attn", "use_effect_gating_token", "transformer_decoder", "use_batch_token", "confidence_token")
"""Options that change the arithmetic."""
_MAP = "pert_onehot_map.pt"


class _Inert:
    """Stands for whatever a file wants made: takes anything, does nothing."""

    def __new__(cls, *arguments: Any, **options: Any) -> _Inert:
        return object.__new__(cls)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def read_arc_state(
    checkpoint: Path,
    *,
    genes: Sequence[str],
    perturbations: Sequence[str] | Rows | None,
    batches: Sequence[str],
    hyper_parameters: Mapping[str, Any] | str | Path | None,
) -> tuple[dict[str, Any], StateModule]:
    """Return the options and the module of a model that arc-state trained; see :meth:`STATE.from_arc_state`."""
    kept = _load(checkpoint)
    state = kept.get("state_dict", kept)
    if not isinstance(state, Mapping) or not all(isinstance(item, Tensor) for item in state.values()):
        raise InputError("holds no named tensors", file=checkpoint, key="state_dict", value=type(state).__name__)
    about = _hyper_parameters(checkpoint, kept, hyper_parameters)
    shape = _shape(state, about, checkpoint)
    embedding = about.get("embed_key") if about.get("embed_key") not in _EXPRESSION else None
    state = {name: item for name, item in state.items() if not name.startswith(_UNUSED)}
    if embedding is None:  # then it is built, and never used
        state = {name: item for name, item in state.items() if not name.startswith("gene_decoder.")}
    features = _features(checkpoint, perturbations, str(about.get("control_pert", "non-targeting")))
    width = _weight(state, "basal_encoder.0.weight", checkpoint).shape[1]
    if "batch_encoder.weight" in state and not batches:
        raise InputError(
            "the model has an embedding of batches, and their names are not in the file",
            file=checkpoint,
            key="batches",
            value=tuple(state["batch_encoder.weight"].shape),
            remedy="give their names in its order",
        )
    net = StateNet(
        shape,
        n_in=width,
        n_out=width,
        n_features=features.width,
        n_batches=len(batches),
        residual="bottleneck" if "final_down_then_up.0.weight" in state else "token",
        positive=embedding is None,
    )
    decoder = None if embedding is None else LatentDecoder(width, len(genes))
    _carry_over(net, decoder, state, checkpoint)
    if embedding is None and width != len(genes):
        raise InputError(f"the model has {width:,} genes", file=checkpoint, key="genes", value=f"{len(genes):,} genes")
    module = StateModule(
        net,
        features=features,
        genes=pd.Index(genes, dtype=object, name="gene"),
        set_size=shape.set_size,
        optimisation=Optimisation(),
        embedding=embedding,
        decoder=decoder,
        anchored=False,
        reads_measured=False,
    )
    module.batch_names = pd.Index(batches, dtype=object)
    return _options(shape, module), module.eval()


def _options(shape: Shape, module: StateModule) -> dict[str, Any]:
    names = ("hidden_size", "layers", "heads", "intermediate_size", "encoder_layers", "decoder_layers", "set_size")
    return {
        **{name: getattr(shape, name) for name in names},
        "embedding": module.embedding,
        "batch_embedding": module.net.batch is not None,
        "residual": module.net.residual,
    }


# -- files --------------------------------------------------------------------------------------------------


def _load(path: Path) -> dict[str, Any]:
    """Read a file of torch's: tensors and plain values as they are, anything else as something inert."""
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        stand_ins: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
            (type("_Inert", (_Inert,), {"__module__": __name__}), name) for name in names
        ]
        with torch.serialization.safe_globals(stand_ins):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, AttributeError, TypeError) as error:
        raise InputError(
            "is no file of torch's, or holds what cannot be read without running it",
            file=path,
            remedy="the download may have been an error page; otherwise do not trust the file",
        ) from error
    if not isinstance(found, dict):
        raise InputError("does not hold what a checkpoint holds", file=path, value=type(found).__name__)
    return found


def _hyper_parameters(
    path: Path, kept: Mapping[str, Any], given: Mapping[str, Any] | str | Path | None
) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        given = read_mapping(given)
    found = given if given is not None else kept.get("hyper_parameters")
    if not isinstance(found, Mapping) or not isinstance(found.get("transformer_backbone_kwargs"), Mapping):
        raise InputError(
            "the numbers of the network are not in the file",
            file=path,
            key="hyper_parameters",
            remedy="give hyper_parameters, with cell_set_len and transformer_backbone_kwargs",
        )
    backbone = found["transformer_backbone_kwargs"]
    for key, value, right in (
        ("transformer_backbone_key", found.get("transformer_backbone_key", "llama"), ("llama",)),
        ("predict_residual", found.get("predict_residual", True), (True,)),
        ("bidirectional_attention", backbone.get("bidirectional_attention", False), (True,)),
        *((key, found.get(key, False), (False, None)) for key in _REFUSED),
    ):
        if value not in right:
            raise InputError(
                "the model has arithmetic that is not known here", file=path, key=key, value=value, remedy="retrain it"
            )
    return found


def _features(path: Path, given: Sequence[str] | Rows | None, control: str) -> Listed:
    if given is None:
        places = [folder / _MAP for folder in path.resolve().parents[:2]]
        place = next((item for item in places if item.is_file()), None)
        if place is None:
            raise InputError(
                f"there is no {_MAP} beside it or above",
                file=path,
                key="perturbations",
                value=None,
                remedy="give the names of the columns of its perturbation encoder, in order",
            )
        given = _load(place)
    if isinstance(given, Mapping):
        names = [str(name) for name in given]
        values = np.stack([np.asarray(row, dtype=np.float32).ravel() for row in given.values()])
    else:
        names, values = [str(name) for name in given], np.eye(len(given), dtype=np.float32)
    return Listed(pd.Index(["control" if name == control else name for name in names], dtype=object), values)


# -- weights ------------------------------------------------------------------------------------------------


def _weight(state: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    if name not in state:
        raise InputError("lacks a weight", file=path, key=name)
    return state[name]


def _shape(state: Mapping[str, Tensor], about: Mapping[str, Any], path: Path) -> Shape:
    def count(prefix: str, part: int) -> int:
        return len({name.split(".")[part] for name in state if name.startswith(prefix)})

    backbone = about["transformer_backbone_kwargs"]
    try:
        return Shape(
            hidden_size=int(_weight(state, "transformer_backbone.norm.weight", path).shape[0]),
            layers=count("transformer_backbone.layers.", 2),
            heads=int(backbone["num_attention_heads"]),
            intermediate_size=int(_weight(state, "transformer_backbone.layers.0.mlp.up_proj.weight", path).shape[0]),
            encoder_layers=count("pert_encoder.", 1),
            decoder_layers=count("project_out.", 1),
            set_size=int(about["cell_set_len"]),
        )
    except KeyError as error:
        raise InputError("lacks a number of the network", file=path, key=f"hyper_parameters.{error.args[0]}") from error


def _theirs(name: str) -> tuple[str, ...]:
    """Return arc-state's name of one of our weights; several, where ours is theirs one below the other."""
    head, _, rest = name.partition(".")
    if head == "decoder":
        return (f"gene_decoder.decoder.{rest.removeprefix('layers.')}",)
    if head != "blocks":
        return (f"{_MODULES[head]}.{rest}",)
    number, part, what = rest.split(".")
    return tuple(f"transformer_backbone.layers.{number}.{theirs}.{what}" for theirs in _LAYERS[part])


def _carry_over(net: StateNet, decoder: LatentDecoder | None, state: Mapping[str, Tensor], path: Path) -> None:
    ours = dict(net.state_dict())
    if decoder is not None:
        ours |= {f"decoder.{name}": item for name, item in decoder.state_dict().items()}
    found: dict[str, Tensor] = {}
    for name, item in ours.items():
        found[name] = torch.cat([_weight(state, theirs, path) for theirs in _theirs(name)])
        if found[name].shape != item.shape:
            raise InputError(
                "a weight has another shape than it should",
                file=path,
                key=_theirs(name)[0],
                value=tuple(found[name].shape),
                remedy=f"expected {tuple(item.shape)}: check the genes, the perturbations and the batches",
            )
    left = sorted(set(state) - set(_all(map(_theirs, ours))))
    if left:
        raise InputError(
            f"{len(left)} weights have no place here", file=path, key=left[0], value=left, remedy="retrain the model"
        )
    _fill(net, found, "")
    if decoder is not None:
        _fill(decoder, found, "decoder.")


def _all(names: Iterable[tuple[str, ...]]) -> Iterable[str]:
    return (one for some in names for one in some)


def _fill(module: nn.Module, found: Mapping[str, Tensor], prefix: str) -> None:
    module.load_state_dict({name: found[prefix + name] for name in module.state_dict()})
