"""Models of cell-gears, read and written without unpickling anything freely."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pertbase._io import write_aside, write_text
from pertbase._unpickle import read_pickle
from pertbase.baselines.gears._module import GearsModule, Optimisation
from pertbase.baselines.gears._names import from_cell_gears, to_cell_gears
from pertbase.baselines.gears._nets import Adjacency, GearsNet
from pertbase.errors import InputError

__all__ = ["read_cell_gears", "write_cell_gears"]

_OPTIONS = {
    "hidden_size": "hidden_size",
    "num_go_gnn_layers": "target_layers",
    "num_gene_gnn_layers": "gene_layers",
    "num_similar_genes_go_graph": "target_neighbours",
    "num_similar_genes_co_express_graph": "gene_neighbours",
    "coexpress_threshold": "coexpression_threshold",
    "uncertainty": "uncertainty",
    "uncertainty_reg": "uncertainty_weight",
    "direction_lambda": "direction_weight",
}
"""Options of cell-gears -> ours."""


def read_cell_gears(
    folder: Path, *, genes: Sequence[str], targets: Sequence[str]
) -> tuple[dict[str, Any], GearsModule]:
    """Return the options and the module of a model that cell-gears saved; see :meth:`GEARS.from_cell_gears`."""
    config = _config(folder / "config.pkl")
    state = _state(folder / "model.pt")
    options = {ours: config[theirs] for theirs, ours in _OPTIONS.items()}
    net = GearsNet(
        _adjacency(config, "G_coexpress", len(genes), folder),
        _adjacency(config, "G_go", len(targets), folder),
        hidden=int(options["hidden_size"]),
        gene_layers=int(options["gene_layers"]),
        target_layers=int(options["target_layers"]),
        uncertainty=bool(options["uncertainty"]),
    )
    found, missing = from_cell_gears(state, net.state_dict())
    if missing:
        raise InputError(
            f"does not fit {len(genes):,} genes and {len(targets):,} targets",
            file=folder / "model.pt",
            key=missing[0],
            value=tuple(state[missing[0]].shape) if missing[0] in state else None,
            remedy="give the names of adata.var['gene_name'] and pert_data.pert_names, all and in order",
        )
    net.load_state_dict(found)
    module = GearsModule(
        net,
        genes=pd.Index(genes, dtype=object, name="gene"),
        vocabulary=pd.Index(targets, dtype=object),
        preset="upstream",
        optimisation=Optimisation(
            direction_weight=float(options["direction_weight"]),
            uncertainty_weight=float(options["uncertainty_weight"]),
        ),
    )
    return options, module.eval()


def write_cell_gears(module: GearsModule, folder: Path, parameters: Mapping[str, Any]) -> Path:
    """Write a module as cell-gears reads it, and its names; see :meth:`GEARS.to_cell_gears`."""
    net = module.net
    config: dict[str, Any] = {theirs: parameters[ours] for theirs, ours in _OPTIONS.items()}
    config |= {"decoder_hidden_size": 16, "no_perturb": False, "device": "cpu"}
    config |= {"num_genes": len(module.genes), "num_perts": len(module.vocabulary)}
    for name, graph in (("G_coexpress", net.gene_graph), ("G_go", net.target_graph)):
        config[name] = torch.from_numpy(np.array(graph.edges))
        config[f"{name}_weight"] = torch.from_numpy(np.array(graph.weight))
    with write_aside(folder / "model.pt") as temporary:
        torch.save(to_cell_gears(net.state_dict()), temporary)
    with write_aside(folder / "config.pkl") as temporary, temporary.open("wb") as file:
        pickle.dump(config, file)
    write_text(folder / "genes.txt", "\n".join(module.genes) + "\n")
    write_text(folder / "targets.txt", "\n".join(module.vocabulary) + "\n")
    return folder


def _config(path: Path) -> dict[str, Any]:
    allowed: dict[tuple[str, str], Callable[..., Any]] = {
        ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
        ("torch.storage", "_load_from_bytes"): _storage,
        ("torch", "device"): torch.device,
        ("torch", "Size"): torch.Size,
    }
    try:
        config = read_pickle(path, allowed=allowed)
    except RuntimeError as error:
        # torch says so where a tensor's shape goes beyond its storage
        raise InputError(f"holds a tensor that cannot be ({_first_line(error)})", file=path) from error
    needed = [*_OPTIONS, "G_go", "G_go_weight", "G_coexpress", "G_coexpress_weight"]
    missing = [name for name in needed if not isinstance(config, Mapping) or name not in config]
    if missing:
        raise InputError("is no configuration of cell-gears", file=path, key="keys", value=missing)
    return dict(config)


def _storage(content: bytes) -> Any:
    """Return a tensor's storage from bytes, in torch's restricted reader rather than in pickle."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(
            f"is no file of weights, or holds more than tensors ({_first_line(error)})",
            file=path,
            remedy="the download may have been an error page; otherwise do not trust the file",
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError("holds something else than named tensors", file=path, value=type(state).__name__)
    return {str(name).removeprefix("module."): value for name, value in state.items()}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _adjacency(config: Mapping[str, Any], name: str, n_nodes: int, folder: Path) -> Adjacency:
    edges, weight = config[name], config[f"{name}_weight"]
    right = (
        isinstance(edges, Tensor)
        and isinstance(weight, Tensor)
        and edges.dim() == 2
        and edges.shape == (2, len(weight))
        and (edges.numel() == 0 or (int(edges.min()) >= 0 and int(edges.max()) < n_nodes))
    )
    if not right:
        raise InputError(
            f"is no graph of {n_nodes:,} nodes",
            file=folder / "config.pkl",
            key=name,
            value=None if not isinstance(edges, Tensor) else tuple(edges.shape),
            remedy="give the names of adata.var['gene_name'] and pert_data.pert_names, all and in order",
        )
    return Adjacency(edges.to("cpu", torch.int64), weight.to("cpu", torch.float32), n_nodes)
