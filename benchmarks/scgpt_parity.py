"""The preset ``upstream`` of our scGPT beside the package itself: same weights, same cells, same numbers.

    python benchmarks/scgpt_parity.py [--environment FOLDER] [--genes 300] [--cells 12] [--steps 30]

Makes a virtual environment with scgpt 0.2.4 (in FOLDER, which is kept), lets the package make a model for
perturbations, write a checkpoint, predict, and train; loads the checkpoint and does the same. It does so for
checkpoints in each of the three styles in which attention weights are named, and for both ways in which genes that are
not perturbed are marked. Exits with 1 where

- predictions in train or predict mode, of masked sequences too, differ by more than 1e-5,
- one of the losses of ``--steps`` training steps differs by more than 1e-4 of itself,
- a weight of a checkpoint stays unloaded, or one from which an attention weight was taken, or in which one has another
  shape, is not refused by its name.

Cells are made up: what is compared is arithmetic. Some genes are not in the vocabulary, some cells have two targets.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _scgpt_package import DEFAULT_ENVIRONMENT, STYLES, ask, environment, made_up

from pertbase.baselines.scgpt._checkpoint import LoadReport, load, open_checkpoint
from pertbase.baselines.scgpt._genes import genes_read
from pertbase.baselines.scgpt._module import Optimisation, ScGPTModule
from pertbase.baselines.scgpt._net import ScGPTNet
from pertbase.errors import InputError
from pertbase.folds._batches import CellPairs

CLOSE, CURVE = 1e-5, 1e-4
SIZE = [48, 3, 4, 40]


def module_of(folder: Path, genes: pd.Index, *, trained_absence: bool) -> tuple[ScGPTModule, LoadReport]:
    """Return the module of the checkpoint in a folder, preset ``upstream``."""
    checkpoint = open_checkpoint(folder)
    read = genes_read(genes, (), checkpoint.vocabulary, padded=True)
    n_own = int((~read.padded).sum())
    net = ScGPTNet(n_own + 1, checkpoint.size, padding=n_own, trained_absence=trained_absence)
    report = load(net, checkpoint, np.append(read.tokens[~read.padded], -1))
    settings = Optimisation(learning_rate=1e-4, decay=1.0, max_genes=len(genes))
    return ScGPTModule(net, genes=read, preset="upstream", optimisation=settings, loaded=report), report


def pairs_of(data: dict[str, np.ndarray]) -> CellPairs:
    """Return the cells as one batch."""
    targets = torch.from_numpy(data["targets"])
    zero = torch.zeros(len(targets), dtype=torch.int64)
    return CellPairs(
        control=torch.from_numpy(data["control"]),
        perturbed=torch.from_numpy(data["perturbed"]),
        condition=zero,
        targets=targets,
        signs=-(targets >= 0).to(torch.int8),
        context=zero,
        batch=zero,
    )


def differences(folder: Path, data: dict[str, np.ndarray], *, absence: int) -> dict[str, tuple[float, float]]:
    """Return what was compared: the largest difference, and what is allowed."""
    theirs, pairs = np.load(folder / "theirs.npz"), pairs_of(data)
    module, report = module_of(folder / "checkpoint", pd.Index(data["genes"]), trained_absence=absence != 0)
    left = [name for name in report.ignored if not name.startswith("cls_decoder.")]
    found: dict[str, tuple[float, float]] = {"weights not loaded": (float(len(report.fresh) + len(left)), 0.0)}
    seen = torch.from_numpy(~data["padded"])
    for mode in ("train", "eval"):
        module.train(mode == "train")
        with torch.no_grad():
            whole = module(pairs).numpy()
            masked = module.net(module.rows, pairs.control, module._signs(pairs), seen).numpy()
        found[f"{mode}: predictions"] = (float(np.abs(whole - theirs[mode]).max()), CLOSE)
        gap = np.abs(masked - theirs[f"{mode}_padded"])[~data["padded"]]
        found[f"{mode}: predictions, some genes masked"] = (float(gap.max()), CLOSE)
    found["eval: beside pred_perturb"] = (float(np.abs(whole - theirs["pred_perturb"]).max()), CLOSE)
    optimiser = module.configure_optimizers()["optimizer"]
    module.train()
    losses = []
    for _ in theirs["curve"]:
        optimiser.zero_grad()
        loss = module.training_step(pairs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    gap = np.abs(np.array(losses) - theirs["curve"]) / theirs["curve"]
    found[f"loss curve over {len(losses)} steps"] = (float(gap.max()), CURVE)
    return found


def refused(folder: Path, genes: pd.Index) -> dict[str, tuple[float, float]]:
    """Return whether a checkpoint without an attention weight, or with one of another shape, is refused by name."""
    path = folder / "checkpoint" / "best_model.pt"
    whole = torch.load(path, weights_only=True)
    name = next(key for key in whole if "layers.1" in key and ("in_proj_weight" in key or "Wqkv.weight" in key))
    damages = {
        "missing": {key: value for key, value in whole.items() if key != name},
        "misshapen": whole | {name: whole[name][:-1]},
    }
    found = {}
    for damage, state in damages.items():
        torch.save(state, path)
        try:
            module_of(folder / "checkpoint", genes, trained_absence=False)
            told = "loaded"
        except InputError as error:
            told = str(error.key)
        found[f"{damage} {name.split('self_attn.')[1]} refused by name"] = (float(told != name), 0.0)
    return found


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=DEFAULT_ENVIRONMENT)
    parser.add_argument("--genes", type=int, default=300)
    parser.add_argument("--cells", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    python = environment(options.environment.expanduser().resolve())
    data = made_up(genes=options.genes, cells=options.cells)
    rng = np.random.default_rng(1)
    data["genes"] = np.array([f"g{number}" for number in range(options.genes)])
    data["padded"] = rng.random(data["control"].shape) < 0.2
    # every tenth gene is not in the vocabulary, whose other tokens no gene has
    tokens = [name for row, name in enumerate(data["genes"]) if row % 10] + [f"other{row}" for row in range(200)]
    vocabulary = {str(token): row for row, token in enumerate(rng.permutation([*tokens, "<cls>", "<eoc>"]))}
    vocabulary["<pad>"] = len(vocabulary)
    found: dict[str, tuple[float, float]] = {}
    for style, absence in (*((style, 0) for style in STYLES), ("in_proj", 2)):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            np.savez(folder / "data.npz", **data)
            (folder / "tokens.json").write_text(json.dumps(vocabulary))
            ask(python, "parity", folder, size=SIZE, absence=absence, style=style, steps=options.steps)
            here = differences(folder, data, absence=absence) | refused(folder, pd.Index(data["genes"]))
            found |= {f"{style}, pert_pad_id {absence}; {name}": value for name, value in here.items()}
    width = max(map(len, found))
    for name, (value, limit) in found.items():
        print(f"{name:{width}}  {value:.1e}  {'ok' if value <= limit else f'MORE THAN {limit:g}'}")
    return int(any(value > limit for value, limit in found.values()))


if __name__ == "__main__":
    sys.exit(main())
