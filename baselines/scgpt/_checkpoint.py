"""Published checkpoints: ``best_model.pt``, ``vocab.json`` and ``args.json`` in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pertbase._io import read_json
from pertbase.baselines.scgpt._genes import PAD, read_vocabulary
from pertbase.baselines.scgpt._size import Size
from pertbase.errors import InputError
from pertbase.folds._download import Origin, fetch

if TYPE_CHECKING:
    from torch import Tensor

    from pertbase.baselines.scgpt._net import ScGPTNet

__all__ = ["FILES", "Checkpoint", "LoadReport", "load", "open_checkpoint"]

WEIGHTS, VOCABULARY, ARGUMENTS = FILES = ("best_model.pt", "vocab.json", "args.json")

_SIZE = {"embedding_size": "embsize", "n_layers": "nlayers", "n_heads": "nheads", "hidden_size": "d_hid"}
"""Ours -> their names in ``args.json``."""

_ENCODER = ("encoder.", "value_encoder.", "transformer_encoder.")
"""What the weights of pretraining begin with: each has to find its place."""
_DECODER = ("decoder.coeff_decoder.", "decoder.bias_decoder.", "pert_encoder.")
"""What those of a model trained on perturbations have beside."""

_STYLES = {"Wqkv": "self_attn.Wqkv.", "in_proj": "self_attn.in_proj_", "_impl": "self_attn._impl.Wqkv."}
"""How the weights of an attention may be named: by FlashAttention 1, by torch, by their wrapper of FlashAttention 2."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with a published model, its weights not read yet.

    Parameters
    ----------
    folder
        Where it lies.
    size
        Of its transformer.
    vocabulary
        Token -> row of its embedding.
    """

    folder: Path
    size: Size
    vocabulary: Mapping[str, int]

    @property
    def weights(self) -> Path:
        """The file of weights."""
        return self.folder / WEIGHTS

    def __repr__(self) -> str:
        return f"Checkpoint({self.folder}: {self.size}, {len(self.vocabulary):,} tokens)"


@dataclass(frozen=True)
class LoadReport:
    """What was taken from a checkpoint.

    Parameters
    ----------
    file
        The file of weights.
    style
        How its attention weights are named: ``Wqkv``, ``in_proj`` or ``_impl``.
    loaded
        Our weights that were loaded.
    fresh
        Our weights that start at random.
    ignored
        Weights of the file that have no place here: heads that perturbations do not use.
    """

    file: Path
    style: str
    loaded: tuple[str, ...]
    fresh: tuple[str, ...]
    ignored: tuple[str, ...]

    def __str__(self) -> str:
        parts = sorted({name.partition(".")[0] for name in self.fresh})
        left = sorted({name.partition(".")[0] for name in self.ignored})
        told = f"{len(self.loaded)} weights loaded from {self.file} ({self.style} names)"
        told += f"; {len(self.fresh)} start at random: {', '.join(parts)}" if parts else "; none starts at random"
        return told + (f"; {len(self.ignored)} of the file are not used: {', '.join(left)}" if left else "")


def open_checkpoint(folder: str | Path, *, url: str | None = None) -> Checkpoint:
    """Return what a folder holds; where an address is given, what it lacks is fetched first.

    Parameters
    ----------
    folder
        With the three files, or where they are to lie.
    url
        Address of a folder that offers them under their names. A fetch that was cut goes on where it ended.

    Raises
    ------
    InputError
        Where a file is absent and no address given, or ``args.json`` describes no model that can be loaded.
    PertbaseError
        Where a file cannot be fetched.
    """
    folder = Path(folder).expanduser()
    for name in FILES:
        if url is not None:
            fetch(Origin.of(url=f"{url.rstrip('/')}/{name}"), folder / name)
        elif not (folder / name).is_file():
            raise InputError(
                "there is no such file",
                file=folder / name,
                remedy=f"lay {', '.join(FILES)} of a published checkpoint there; their authors link to them in the "
                "section 'Pretrained scGPT Model Zoo' of the README of bowang-lab/scGPT. Or give checkpoint_url, the "
                "address of a folder that offers them",
            )
    return Checkpoint(folder, _size(folder / ARGUMENTS), read_vocabulary(folder / VOCABULARY))


def _size(path: Path) -> Size:
    about = read_json(path)
    missing = [theirs for theirs in _SIZE.values() if not isinstance(about, dict) or theirs not in about]
    if missing:
        raise InputError("does not say how large the model is", file=path, key=missing[0], value=None)
    if about.get("pre_norm"):
        raise InputError("is of a model that normalises first, which is not supported", file=path, key="pre_norm")
    if about.get("input_emb_style", "continuous") != "continuous":
        raise InputError(
            "is of a model of binned expression, and perturbations are learnt from continuous expression",
            file=path,
            key="input_emb_style",
            value=about["input_emb_style"],
        )
    try:
        return Size(**{ours: about[theirs] for ours, theirs in _SIZE.items()})
    except InputError as error:
        raise InputError(error.problem, file=path, key=_SIZE[str(error.key)], value=error.value) from error


def load(net: ScGPTNet, checkpoint: Checkpoint, tokens: np.ndarray) -> LoadReport:
    """Load a checkpoint's weights, and return what was loaded.

    The encoder's have to fit one by one: a weight of either side without its partner is an error. Those of a decoder
    and of the mark of perturbed genes are loaded where the file is of a model trained on perturbations.

    Parameters
    ----------
    net
        Of the checkpoint's size.
    checkpoint
        Where from.
    tokens
        Row of the checkpoint's embedding for each row of ours, int64, shape (n_tokens,); -1 for that of padding.

    Raises
    ------
    InputError
        Where the file holds anything but tensors, or a weight is missing, misshapen or unknown.
    """
    import torch

    state = _state(checkpoint.weights)
    style = _style(state, checkpoint.weights)
    wanted = _names(net, style)
    if not any(name.startswith(_DECODER) for name in state):
        wanted = {ours: theirs for ours, theirs in wanted.items() if theirs.startswith(_ENCODER)}
    unknown = sorted(
        name for name in state if name.startswith((*_ENCODER, *_DECODER)) and name not in set(wanted.values())
    )
    missing = sorted(name for name in set(wanted.values()) if name not in state)
    if missing or unknown:
        raise InputError(
            "lacks a weight of the model" if missing else "holds a weight that has no place in the model",
            file=checkpoint.weights,
            key=(missing or unknown)[0],
            value=f"{len(missing)} missing, {len(unknown)} without a place",
            remedy=f"{ARGUMENTS} must be of the same model as {WEIGHTS}",
        )
    rows = torch.from_numpy(np.where(tokens < 0, checkpoint.vocabulary.get(PAD, 0), tokens))
    found = {ours: _taken(theirs, ours, state[theirs], rows, checkpoint) for ours, theirs in wanted.items()}
    ours = net.state_dict()
    for name, value in found.items():
        if value.shape != ours[name].shape:
            raise InputError(
                f"is not of the shape {tuple(ours[name].shape)} that the model has",
                file=checkpoint.weights,
                key=wanted[name],
                value=tuple(state[wanted[name]].shape),
                remedy=f"{ARGUMENTS} must be of the same model as {WEIGHTS}",
            )
    net.load_state_dict(found, strict=False)
    return LoadReport(
        file=checkpoint.weights,
        style=style,
        loaded=tuple(sorted(found)),
        fresh=tuple(sorted(set(ours) - set(found))),
        ignored=tuple(sorted(set(state) - set(wanted.values()))),
    )


def _taken(theirs: str, ours: str, value: Tensor, rows: Tensor, checkpoint: Checkpoint) -> Tensor:
    """Return what of one of their tensors is ours: of the embeddings, the rows of our genes."""
    if ours == "embedding.weight":
        least = max(checkpoint.vocabulary.values()) + 1
        if value.dim() != 2 or len(value) < least:
            raise InputError(
                f"has fewer rows than the {least:,} that {VOCABULARY} speaks of",
                file=checkpoint.weights,
                key=theirs,
                value=tuple(value.shape),
                remedy=f"{VOCABULARY} must be of the same model as {WEIGHTS}",
            )
        return value[rows]
    if theirs == "pert_encoder.weight":
        if value.dim() != 2 or len(value) != 3:
            raise InputError("has not three rows", file=checkpoint.weights, key=theirs, value=tuple(value.shape))
        return value[1 if ours == "perturbed" else 0]
    return value


def _names(net: ScGPTNet, style: str) -> dict[str, str]:
    """Return our name -> theirs, of every weight."""
    attention = _STYLES[style]
    out = "self_attn._impl.out_proj." if style == "_impl" else "self_attn.out_proj."
    heads = {
        "embedding.": "encoder.embedding.",
        "gene_norm.": "encoder.enc_norm.",
        "values.first.": "value_encoder.linear1.",
        "values.second.": "value_encoder.linear2.",
        "values.norm.": "value_encoder.norm.",
        "coefficient.": "decoder.coeff_decoder.fc.",
        "offset.": "decoder.bias_decoder.fc.",
    }
    found = {"perturbed": "pert_encoder.weight", "untouched": "pert_encoder.weight"}
    for name in net.state_dict():
        if name.startswith("layers."):
            theirs = f"transformer_encoder.{name}"
            theirs = theirs.replace("attention.in_proj.", attention).replace("attention.out_proj.", out)
            found[name] = theirs
        for ours, theirs in heads.items():
            if name.startswith(ours):
                found[name] = theirs + name.removeprefix(ours)
    return found


def _style(state: Mapping[str, Any], path: Path) -> str:
    styles = [name for name, part in _STYLES.items() if any(part in key for key in state)]
    if len(styles) != 1:
        raise InputError(
            "names the weights of its attention in no way that is known"
            if not styles
            else "names the weights of its attention in several ways",
            file=path,
            key="self_attn",
            value=styles or [name for name in state if "attn" in name][:3],
            remedy=f"known are {', '.join(part + 'weight' for part in _STYLES.values())}",
        )
    return styles[0]


def _state(path: Path) -> dict[str, Tensor]:
    import pickle

    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"is no file of weights, or holds more than tensors ({first})",
            file=path,
            remedy="the download may have been an error page or cut short; otherwise do not trust the file",
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InputError("holds something else than named tensors", file=path, value=type(state).__name__)
    return {str(name).removeprefix("module."): value.float() for name, value in state.items()}
