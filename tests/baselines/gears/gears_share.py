"""A rank's share of a training step, in a file of its own: ``python gears_share.py RANK WORLD PORT FILE``."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from pertbase.baselines.gears._module import GearsModule, Optimisation
from pertbase.baselines.gears._nets import Adjacency, GearsNet
from pertbase.folds._batches import CellPairs

N_GENES, N_TARGETS = 11, 9
CONDITION = [3, 0, 3, 1, 0, 1, 2, 0]
"""The second of two ranks gets controls and one perturbation."""
OF_CONDITION = torch.tensor([[-1, -1], [2, 5], [7, -1], [3, -1]])


def adjacency(rng: np.random.Generator, n_nodes: int) -> Adjacency:
    edges = np.unique(np.stack([rng.integers(0, n_nodes, 4 * n_nodes), np.repeat(np.arange(n_nodes), 4)]), axis=1)
    return Adjacency(torch.from_numpy(edges), torch.from_numpy(rng.uniform(0.1, 1, edges.shape[1])), n_nodes)


def module(preset: str) -> GearsModule:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    net = GearsNet(adjacency(rng, N_GENES), adjacency(rng, N_TARGETS), hidden=6, uncertainty=True).double()
    names = [pd.Index([f"{kind}{number}" for number in range(n)]) for kind, n in (("g", N_GENES), ("t", N_TARGETS))]
    made = GearsModule(net, genes=names[0], vocabulary=names[1], preset=preset, optimisation=Optimisation())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    made.kept = torch.from_numpy(rng.random((4, N_GENES)) < 0.8)
    made.mean_control = torch.from_numpy(rng.random(N_GENES))
    return made


def batch(condition: list[int] = CONDITION) -> CellPairs:
    rng = np.random.default_rng(1)
    codes = torch.tensor(condition)
    targets = OF_CONDITION[codes]
    cells = torch.from_numpy(rng.random((2, len(codes), N_GENES)))
    zero = torch.zeros_like(codes)
    return CellPairs(cells[0], cells[1], codes, targets, (targets >= 0).to(torch.int8), zero, zero)


def step(preset: str, pairs: CellPairs) -> dict[str, np.ndarray]:
    """Return loss, gradients and running statistics of one training step."""
    made = module(preset)
    made.train()
    loss = made.training_step(pairs)
    loss.backward()
    found = {f"gradient of {name}": item.grad for name, item in made.net.named_parameters() if item.grad is not None}
    found |= {name: item for name, item in made.net.named_buffers() if "running" in name or "tracked" in name}
    return {"loss": loss.detach().numpy()} | {name: item.numpy() for name, item in found.items()}


def share(pairs: CellPairs, rank: int, world: int) -> CellPairs:
    return CellPairs(*(item[rank::world] for item in vars(pairs).values()))


if __name__ == "__main__":
    rank, world, port, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    store = dist.TCPStore("127.0.0.1", port, world, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    steps = {
        f"{preset}/{name}/{key}": value
        for preset in ("corrected", "upstream")
        for name, condition in (("mixed", CONDITION), ("controls on one", [3, 0, 2, 0]), ("controls", [0, 0, 0, 0]))
        for key, value in step(preset, share(batch(condition), rank, world)).items()
    }
    np.savez(path, **steps)
    dist.destroy_process_group()
