"""scGPT, ours and the package, side by side in one run: time of a training step and of a prediction, memory.

    python benchmarks/scgpt.py [--environment FOLDER] [--train CASE ...] [--predict CASE ...] [--steps 2]
        [--device cpu] [--bf16]

A case is size-genes-cells: ``small`` is 64 numbers a gene and 2 layers, ``published`` 512 and 12. A training step is
forward, loss, backward, clipping and Adam on a batch that is there; a prediction is of every gene of every cell, each
under its perturbation. Each figure is the median of ``--steps`` after one that warms up, in a process of its own: on a
processor one thread and its CPU-seconds, on a GPU (``--device cuda``) seconds. Memory is the peak of the process beside
what it had with the model and the cells in it; on a GPU, what torch allocated. The package keeps the embedding of its
60,697 tokens, and so do its users; ours keeps that of the genes it reads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from _scgpt_package import DEFAULT_ENVIRONMENT, SIZES, ask, environment, made_up, peak, timed

TRAIN = ("small-1000-8", "published-1536-4")
PREDICT = ("small-1000-8", "small-5000-8", "published-1536-4", "published-5000-2")


def ours(folder: Path, *, size: str, mode: str, steps: int, device: str, bf16: bool) -> dict[str, Any]:
    """Time our training steps or predictions."""
    import pandas as pd
    import torch
    from scgpt_parity import pairs_of

    from pertbase.baselines.scgpt._genes import genes_read
    from pertbase.baselines.scgpt._module import Optimisation, ScGPTModule
    from pertbase.baselines.scgpt._net import ScGPTNet
    from pertbase.baselines.scgpt._size import Size
    from pertbase.folds._batches import CellPairs

    torch.set_num_threads(1)
    data = dict(np.load(folder / "data.npz"))
    width, layers, heads, hidden = SIZES[size]
    genes = genes_read(pd.Index([f"t{row}" for row in range(data["control"].shape[1])]), (), None)
    net = ScGPTNet(len(genes.names), Size(width, layers, heads, hidden))
    settings = Optimisation(max_genes=len(genes.names))
    module = ScGPTModule(net, genes=genes, preset="upstream", optimisation=settings, loaded=None).to(device)
    pairs = pairs_of(data).to(device)
    before = peak(device)
    module.train(mode == "train")
    optimiser = module.configure_optimizers()["optimizer"]

    def train() -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            loss = module.training_step(pairs)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()

    step = module.at_once()
    parts = [
        CellPairs(**{about.name: getattr(pairs, about.name)[start : start + step] for about in fields(pairs)})
        for start in range(0, len(pairs), step)
    ]

    def predict() -> None:
        with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            for part in parts:
                module(part)

    spent = timed(train if mode == "train" else predict, steps, device)
    return {"seconds": spent, "cells": len(pairs), "peak_mb": peak(device), "before_mb": before}


def in_process(folder: Path, **options: Any) -> dict[str, Any]:
    """Run ours in a process of its own, in one thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--task", str(folder), json.dumps(options)]
    subprocess.run(command, check=True, env=os.environ | one)
    said: dict[str, Any] = json.loads((folder / "ours.json").read_text())
    return said


def row(python: Path, mode: str, case: str, options: argparse.Namespace) -> list[str]:
    """Return the row of one case."""
    size, genes, cells = case.split("-")
    asked = {"size": size, "mode": mode, "steps": options.steps, "device": options.device, "bf16": options.bf16}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.savez(folder / "data.npz", **made_up(genes=int(genes), cells=int(cells)))
        theirs, mine = ask(python, "speed", folder, **asked), in_process(folder, **asked)
    a, b = theirs["peak_mb"] - theirs["before_mb"], mine["peak_mb"] - mine["before_mb"]
    return [
        mode,
        size,
        f"{int(genes):,}",
        cells,
        f"{theirs['seconds']:.2f}",
        f"{mine['seconds']:.2f}",
        f"{theirs['seconds'] / mine['seconds']:.1f}",
        f"{a:,.0f}",
        f"{b:,.0f}",
        f"{b / a:.2f}",
    ]


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=DEFAULT_ENVIRONMENT)
    parser.add_argument("--train", nargs="*", default=TRAIN)
    parser.add_argument("--predict", nargs="*", default=PREDICT)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bf16", action="store_true", help="both under autocast")
    parser.add_argument("--task", nargs=2, metavar=("FOLDER", "OPTIONS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        folder = Path(options.task[0])
        (folder / "ours.json").write_text(json.dumps(ours(folder, **json.loads(options.task[1]))))
        return
    python = environment(options.environment.expanduser().resolve())
    head = ["", "size", "genes", "cells", "scgpt, s", "ours, s", "times", "scgpt, MB", "ours, MB", "share"]
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join(" --- " for _ in head) + "|")
    for mode, cases in (("train", options.train), ("predict", options.predict)):
        for case in cases:
            print("| " + " | ".join(row(python, mode, case, options)) + " |", flush=True)


if __name__ == "__main__":
    main()
