"""The preset ``upstream`` of our GEARS beside cell-gears itself: same weights, same cells, same numbers.

    python benchmarks/gears_parity.py [--environment FOLDER] [--genes 500] [--targets 300] [--batch 32] [--steps 50]

Makes a virtual environment with cell-gears 0.1.2 and SciPy below 1.15 (in FOLDER, which is kept), lets cell-gears make
a model, save it, predict, and train it; reads its two files with :meth:`GEARS.from_cell_gears` and does the same. Exits
with 1 where

- predictions of any batch slot, in training or in evaluation, or the loss differ by more than 1e-5,
- one of the losses of ``--steps`` training steps on the same batches differs by more than 1e-4 of itself in float64, or
  in float32 by more than three times what cell-gears differs from itself by when a batch's cells are reordered,
- a model of ours, written with :meth:`GEARS.to_cell_gears` and read back, is not the same.

Cells are made up: what is compared is arithmetic. Some are controls, some have two targets, and some genes are never
expressed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from _cell_gears import DEFAULT_ENVIRONMENT, ask, environment, made_up

from pertbase.baselines.gears import GEARS
from pertbase.baselines.gears._module import GearsModule
from pertbase.baselines.gears._nets import Adjacency
from pertbase.folds._batches import CellPairs

CLOSE, CURVE = 1e-5, 1e-4


def module_of(folder: Path, data: dict[str, np.ndarray]) -> tuple[GEARS, GearsModule]:
    """Return the model that cell-gears left in a folder, with what its loss needs of the cells."""
    genes = [f"g{number}" for number in range(data["control"].shape[1])]
    targets = [f"t{number}" for number in range(int(data["n_targets"]))]
    model = GEARS.from_cell_gears(folder, genes=genes, targets=targets)
    module = model.module
    if not isinstance(module, GearsModule):
        raise TypeError(type(module).__name__)
    module.kept = torch.from_numpy(data["kept"])
    module.mean_control = torch.from_numpy(data["mean_control"])
    return model, module


def batches_of(data: dict[str, np.ndarray]) -> list[CellPairs]:
    """Return the cells in batches, in order."""
    size = int(data["batch_size"])
    condition = {str(name): row for row, name in enumerate(data["kept_names"])}
    codes = torch.tensor([condition[str(name)] for name in data["names"]])
    targets = torch.from_numpy(data["targets"])
    zero = torch.zeros(size, dtype=torch.int64)
    parts = [slice(start, start + size) for start in range(0, len(codes), size)]
    return [
        CellPairs(
            control=torch.from_numpy(data["control"][part]),
            perturbed=torch.from_numpy(data["perturbed"][part]),
            condition=codes[part],
            targets=targets[part],
            signs=(targets[part] >= 0).to(torch.int8),
            context=zero,
            batch=zero,
        )
        for part in parts
    ]


def curve(module: GearsModule, batches: list[CellPairs]) -> list[float]:
    """Return the loss of each of some training steps."""
    optimiser = module.configure_optimizers()["optimizer"]
    module.train()
    losses = []
    for batch in batches:
        optimiser.zero_grad()
        loss = module.training_step(batch)
        loss.backward()
        torch.nn.utils.clip_grad_value_(module.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def in_double(module: GearsModule) -> GearsModule:
    """Return a module in float64, the normalisation of its graphs included."""
    module.double()
    for graph in (module.net.gene_graph, module.net.target_graph):
        weight = torch.from_numpy(graph.weight).double()
        graph.value = Adjacency(torch.from_numpy(graph.edges), weight, graph.n_nodes).value
    return module


def gap_of(one: list[float] | np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two curves, relative to the second."""
    return float(np.max(np.abs(np.asarray(one) - other) / np.abs(other)))


def differences(folder: Path, data: dict[str, np.ndarray], steps: int) -> dict[str, tuple[float, float]]:
    """Return what was compared: the largest difference, and what is allowed."""
    theirs = np.load(folder / "theirs.npz")
    batches = batches_of(data)
    found: dict[str, tuple[float, float]] = {}
    model, module = module_of(folder / "start", data)
    for mode in ("train", "eval"):
        module.train(mode == "train")
        with torch.no_grad():
            predicted = module(batches[0]).numpy()
            # a second forward in training moves the running statistics only
            loss = float(module.training_step(batches[0]))
        if mode == "train":
            _, module = module_of(folder / "start", data)
            module.train()
            with torch.no_grad():
                module(batches[0])
        gap = np.abs(predicted - theirs[f"{mode}_predictions"])
        found[f"{mode}: predictions, slot 0"] = (float(gap[0].max()), CLOSE)
        found[f"{mode}: predictions, other slots"] = (float(gap[1:].max()), CLOSE)
        found[f"{mode}: loss"] = (abs(loss - float(theirs[f"{mode}_loss"][0])), CLOSE)
    _, module = module_of(folder / "start", data)
    double = gap_of(curve(in_double(module), batches), theirs["double"])
    found[f"loss curve over {steps} steps, float64"] = (double, CURVE)
    module.eval()
    with torch.no_grad():
        gap = np.abs(module(batches[0]).numpy() - theirs["trained"])
    found[f"eval after {steps} steps, float64: predictions"] = (float(gap.max()), CLOSE)
    model, module = module_of(folder / "start", data)
    single = gap_of(curve(module, batches), theirs["curve"])
    # In float32 no two orders of summation agree: the direction term jumps, and Adam makes steps of rounding errors
    # where a gradient is zero. What cell-gears differs from itself by is the measure.
    floor = gap_of(theirs["reordered"], theirs["curve"])
    found[f"loss curve over {steps} steps, float32"] = (single, 3 * max(floor, CURVE))
    found["(cell-gears, cells of a batch in another order)"] = (floor, float("inf"))
    model.to_cell_gears(folder / "ours")
    _, again = module_of(folder / "ours", data)
    states = zip(module.state_dict().values(), again.state_dict().values(), strict=True)
    same = max(float((a - b).abs().max()) for a, b in states)
    found["written for cell-gears and read back"] = (same, 0.0)
    uncertain = np.load(folder / "uncertain.npz")
    _, module = module_of(folder / "uncertain", data)
    module.train()
    grouping = module._group(batches[0].targets, batches[0].signs)
    with torch.no_grad():
        change, variance = module.net(grouping)
    if variance is None:
        raise TypeError("the uncertainty head was lost")
    gap = np.abs((batches[0].control + change[grouping.of_cell]).numpy() - uncertain["predictions"])
    found["uncertainty head: predictions"] = (float(gap.max()), CLOSE)
    gap = np.abs(variance[grouping.of_cell].numpy() - uncertain["variances"])
    # its batch normalisation divides by a deviation of about 0.02, and rounding with it
    found["uncertainty head: log variances"] = (float(gap.max()), 10 * CLOSE)
    return found


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=DEFAULT_ENVIRONMENT)
    parser.add_argument("--genes", type=int, default=500)
    parser.add_argument("--targets", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    python = environment(options.environment.expanduser().resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = made_up(
            genes=options.genes, targets=options.targets, n_cells=options.batch * options.steps, batch=options.batch
        )
        np.savez(folder / "data.npz", **data)
        ask(python, "parity", folder, steps=options.steps)
        ask(python, "uncertain", folder)
        found = differences(folder, data, options.steps)
    width = max(map(len, found))
    for name, (value, limit) in found.items():
        print(f"{name:{width}}  {value:.1e}  {'ok' if value <= limit else f'MORE THAN {limit:g}'}")
    return int(any(value > limit for value, limit in found.values()))


if __name__ == "__main__":
    sys.exit(main())
