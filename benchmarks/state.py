"""STATE, ours and arc-state, side by side in one run: the same numbers, CPU-seconds a step, memory, loading.

    python benchmarks/state.py [--environment FOLDER] [--sizes 128/2/8 base] [--steps 10] [--cells 20000] [--markdown]

Makes a virtual environment with arc-state 0.11.1 (in FOLDER, which is kept). First lets it save five small models and
reads them with :meth:`STATE.from_arc_state`; exits with 1 where a prediction or a loss differs by more than 1e-4. Then
each figure is of one thread in a process of its own, medians of ``--steps`` steps on batches at hand: forward, loss,
backward, clipping, Adam. Memory is the peak of the process beyond what it had after its imports. The loaders draw sets
of 32 of made-up cells, 10% of 2,000 genes seen: theirs 20 batches from a file, as it is made to, ours an epoch from
memory, with and without the time to read the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _arc_state import DEFAULT_ENVIRONMENT, GENES, SIZES, VARIANTS, ask, environment, peak

CLOSE = 1e-4
LOADED_GENES = 2000


def sets_of(data: Any, n_sets: int, n_batches: int, latent: bool) -> Any:
    """Return their batch as ours."""
    import torch

    from pertbase.folds._sets import CellSets

    def shaped(name: str) -> torch.Tensor:
        return torch.as_tensor(data[name]).view(n_sets, -1, data[name].shape[1])

    cells, measured = ("ctrl_cell_counts", "pert_cell_counts") if latent else ("ctrl_cell_emb", "pert_cell_emb")
    control = shaped(cells)
    return CellSets(
        control=control,
        perturbed=shaped(measured),
        real=torch.ones(control.shape[:2], dtype=torch.bool),
        padded=False,
        features=shaped("pert_emb")[:, 0],
        condition=torch.zeros(n_sets, dtype=torch.int64),
        context=torch.zeros(n_sets, dtype=torch.int64),
        batch=shaped("batch").argmax(dim=-1),
        control_embedding=shaped("ctrl_cell_emb") if latent else None,
        perturbed_embedding=shaped("pert_cell_emb") if latent else None,
    )


def parity(python: Path) -> list[tuple[str, float]]:
    """Return what was compared and the largest difference, for every variant of the model."""
    import torch

    from pertbase.baselines.state import STATE

    found = []
    with tempfile.TemporaryDirectory() as name:
        ask(python, "parity", Path(name))
        for variant, about in VARIANTS.items():
            place = Path(name) / variant.replace(" ", "_")
            batches = [f"b{number}" for number in range(3)] if about.get("batch_encoder") else []
            genes = [f"g{number}" for number in range(GENES)]
            module: Any = STATE.from_arc_state(place / "model.ckpt", genes=genes, batches=batches).module
            data = np.load(place / "theirs.npz")
            latent = bool(about.get("latent"))
            sets = sets_of(data, 5, 3, latent)
            with torch.no_grad():
                cells = module(sets)
                gap = np.abs(cells.reshape(-1, cells.shape[-1]).numpy() - data["predicted"]).max()
                found.append((f"{variant}: predicted cells", float(gap)))
                if latent:
                    decoded = module.decoder(cells).reshape(-1, GENES).numpy()
                    found.append((f"{variant}: decoded cells", float(np.abs(decoded - data["decoded"]).max())))
                loss = float(module.training_step(sets))
                found.append((f"{variant}: loss", abs(loss - float(data["loss"]))))
    return found


def our_speed(folder: Path, *, size: str, warm: int, steps: int) -> dict[str, Any]:
    """Time our training steps on batches at hand."""
    import pandas as pd
    import torch
    from _arc_state import batch_of

    from pertbase.baselines.state._features import OneHot
    from pertbase.baselines.state._module import Optimisation, StateModule
    from pertbase.baselines.state._net import StateNet
    from pertbase.baselines.state._sizes import Shape

    torch.set_num_threads(1)
    about = SIZES[size]
    n_sets, cells, n_genes = about["sets"], about["cells"], about["genes"]
    shape = Shape(
        hidden_size=about["hidden"],
        layers=about["layers"],
        heads=about["heads"],
        encoder_layers=about["encoder"],
        decoder_layers=about["encoder"],
        set_size=cells,
    )
    features = OneHot(tuple(f"CRISPRi:g{number}" for number in range(49)))
    genes = pd.Index([f"g{number}" for number in range(n_genes)])

    def made(size: Shape) -> StateModule:
        net = StateNet(size, n_in=n_genes, n_out=n_genes, n_features=50, residual="token")
        return StateModule(net, features=features, genes=genes, set_size=cells, optimisation=Optimisation())

    batches = [sets_of(batch_of(n_sets, cells, n_genes, 50, n_genes, seed), n_sets, 3, False) for seed in range(4)]
    tiny = made(Shape(hidden_size=16, layers=1, heads=2, encoder_layers=1, decoder_layers=1, set_size=cells))
    tiny.configure_optimizers()
    before = peak()
    torch.manual_seed(0)
    module = made(shape).train()
    optimiser = module.configure_optimizers()
    spent = []
    for step in range(warm + steps):
        started = time.process_time()
        optimiser.zero_grad()
        module.training_step(batches[step % 4]).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 10.0)
        optimiser.step()
        spent.append(time.process_time() - started)
    top = peak()
    path = folder / "ours.ckpt"
    torch.save({"state_dict": module.state_dict(), "optimizer_states": [optimiser.state_dict()]}, path)
    kept = folder / "best.ckpt"
    torch.save({"state_dict": module.state_dict()}, kept)
    return {
        "step_s": float(np.median(spent[warm:])),
        "memory_mb": top - before,
        "checkpoint_mb": path.stat().st_size / 1e6,
        "kept_mb": kept.stat().st_size / 1e6,
        "weights": sum(item.numel() for item in module.parameters()),
    }


def write_cells(folder: Path, n_cells: int) -> None:
    """Write made-up cells of two contexts and 40 perturbations, dense and as CSR, the way cell-load reads them."""
    import pandas as pd
    from anndata import AnnData
    from scipy import sparse

    rng = np.random.default_rng(0)
    matrix = sparse.random(n_cells, LOADED_GENES, density=0.1, format="csr", dtype=np.float32, rng=rng)
    number = np.arange(n_cells)
    obs = pd.DataFrame(
        {
            "gene": np.where(number % 5 == 0, "non-targeting", np.char.add("P", (number % 40).astype(str))),
            "cell_type": np.where(number // 7 % 10 == 0, "B", "A"),
            "gem_group": rng.integers(0, 4, n_cells).astype(str),
        },
        index=[f"c{item}" for item in number],
    ).astype("category")
    var = pd.DataFrame(index=[f"g{item}" for item in range(LOADED_GENES)])
    for kind, values in (("csr", matrix), ("dense", matrix.toarray())):
        (folder / kind / "made_up").mkdir(parents=True)
        AnnData(values, obs=obs, var=var).write_h5ad(folder / kind / "made_up" / "cells.h5ad")


def our_loader(folder: Path, *, kind: str, sets: int, cells: int) -> dict[str, Any]:
    """Time one epoch of our sampler, with and without reading the file."""
    import anndata
    import torch

    from pertbase.folds import CellTable
    from pertbase.folds._sets import SetSampler

    torch.set_num_threads(1)
    started = time.process_time()
    adata = anndata.read_h5ad(folder / kind / "made_up" / "cells.h5ad")
    read = time.process_time() - started
    control = (adata.obs["gene"] == "non-targeting").to_numpy()
    obs = adata.obs.rename(columns={"gene": "perturbation", "cell_type": "context", "gem_group": "batch"}).astype(str)
    obs["perturbation"] = obs["perturbation"].mask(control, "control")
    table = CellTable(adata.X, obs.assign(is_control=control, split=np.where(obs["context"] == "A", "train", "")), None)
    names = sorted(set(obs["perturbation"]))
    features = dict(zip(names, np.eye(len(names), dtype=np.float32), strict=True))
    sampler = SetSampler(table, features, set_size=cells, batch_size=sets, seed=0)
    drawn = sampler.batches(0)
    next(drawn)
    started, count = time.process_time(), 0
    for batch in drawn:
        count += 2 * int(batch.real.sum())
    spent = time.process_time() - started
    return {"cells_per_second": count / spent, "with_reading": count / (spent + read)}


def alone(task: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Run one of our tasks in a process of its own, in one thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--task", task, str(folder), json.dumps(options)]
    ran = subprocess.run(command, env=os.environ | one, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Compare, print, and return 1 where the numbers are not the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", type=Path, default=DEFAULT_ENVIRONMENT)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--cells", type=int, default=20000)
    parser.add_argument("--task", nargs=3)
    given = parser.parse_args()
    if given.task:
        task, folder, options = given.task
        tasks = {"speed": our_speed, "loader": our_loader}
        print(json.dumps(tasks[task](Path(folder), **json.loads(options))))
        return 0
    python = environment(given.environment)
    found = parity(python)
    print(table(["carried over from arc-state", "largest difference"], [[what, f"{gap:.1e}"] for what, gap in found]))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in given.sizes:
            options = {"size": size, "warm": 3, "steps": given.steps}
            theirs, mine = ask(python, "speed", folder, **options), alone("speed", folder, **options)
            for what, unit in (("step_s", "ms"), ("memory_mb", "MB"), ("checkpoint_mb", "MB"), ("weights", "")):
                scale = 1000.0 if unit == "ms" else 1.0
                ratio = theirs[what] / mine[what]
                figures = [f"{scale * item[what]:,.1f} {unit}".strip() for item in (mine, theirs)]
                rows.append([size, what.removesuffix("_s").removesuffix("_mb"), *figures, f"{ratio:.2f}"])
            rows.append([size, "weights to predict with", f"{mine['kept_mb']:,.1f} MB", "", ""])
            print(*rows[-5:], sep="\n", file=sys.stderr, flush=True)
        write_cells(folder, given.cells)
        for kind in ("csr", "dense"):
            options = {"kind": kind, "sets": 8, "cells": 32}
            theirs, mine = ask(python, "loader", folder, **options, batches=20), alone("loader", folder, **options)
            for what, ours in (("from memory", "cells_per_second"), ("reading counted", "with_reading")):
                figures = [mine[ours], theirs["cells_per_second"]]
                shown = [f"{item:,.0f}/s" for item in figures]
                rows.append([kind, f"cells, {what}", *shown, f"{figures[0] / figures[1]:.1f}"])
    print()
    print(table(["size or storage", "figure", "ours", "arc-state", "ratio"], rows))
    wrong = [what for what, gap in found if not gap <= CLOSE]
    if wrong:
        print(f"differs by more than {CLOSE:g}: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
