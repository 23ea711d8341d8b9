"""GEARS, ours and cell-gears, side by side in one run: cells per CPU-second in training, memory, graphs.

    python benchmarks/gears.py [--environment FOLDER] [--genes 1000 5000] [--batch 32 128] [--steps 12] [--markdown]

Each figure is of one thread in a process of its own. A step is what either trains with: drawing or collating the batch,
forward, loss, backward, clipping, Adam. Cells are made up, 60 perturbations of which ten are pairs; the graphs have 20
neighbours a node and 2,000 targets. Memory is the peak of the process, beside what it had after its imports.
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
from _cell_gears import DEFAULT_ENVIRONMENT, ask, environment, made_up, peak

N_CELLS = 3000


def write_cells(folder: Path, data: dict[str, np.ndarray]) -> None:
    """Write cells as screens hold them, perturbed ones before their controls, and what is known of them."""
    from scipy import sparse

    matrix = sparse.csr_matrix(np.concatenate([data.pop("perturbed"), data.pop("control")]))
    sparse.save_npz(folder / "cells.npz", matrix, compressed=False)
    np.savez(folder / "about.npz", **data)


def ours(folder: Path, *, preset: str, warm: int, steps: int) -> dict[str, Any]:
    """Time our training steps, drawing included."""
    import pandas as pd
    import torch
    from scipy import sparse

    from pertbase.baselines.gears._module import GearsModule, Optimisation
    from pertbase.baselines.gears._nets import Adjacency, GearsNet
    from pertbase.folds import CellTable, Perturbation
    from pertbase.folds._batches import PairSampler

    torch.set_num_threads(1)
    before = peak()
    data = np.load(folder / "about.npz")
    matrix = sparse.load_npz(folder / "cells.npz")
    genes = pd.Index([f"g{number}" for number in range(matrix.shape[1])])
    vocabulary = pd.Index([f"t{number}" for number in range(int(data["n_targets"]))])
    names, targets = data["names"].astype(str), data["targets"]
    perturbations = {
        name: Perturbation.genetic([f"t{item}" for item in targets[names == name][0] if item >= 0], "CRISPRi")
        for name in np.unique(names[names != "ctrl"])
    }
    n = len(names)
    obs = pd.DataFrame(
        {
            "context": "K",
            "perturbation": np.r_[np.where(names == "ctrl", "control", names), ["control"] * n],
            "is_control": np.r_[names == "ctrl", [True] * n],
            "batch": "",
            "split": "train",
        },
        index=[str(row) for row in range(2 * n)],
    )
    cells = CellTable(matrix, obs, genes)
    net = GearsNet(
        Adjacency(torch.from_numpy(data["gene_edges"]), torch.from_numpy(data["gene_weight"]), len(genes)),
        Adjacency(torch.from_numpy(data["target_edges"]), torch.from_numpy(data["target_weight"]), len(vocabulary)),
    )
    module = GearsModule(
        net,
        genes=genes,
        vocabulary=vocabulary,
        preset=preset,
        optimisation=Optimisation(),  # type: ignore[arg-type]
    )
    sampler = PairSampler(
        cells, perturbations, batch_size=int(data["batch_size"]), seed=0, vocabulary=vocabulary, include_control=False
    )
    module.prepare(sampler)
    optimiser = module.configure_optimizers()["optimizer"]
    module.train()
    done, epoch, started = 0, 0, time.process_time()
    while done < warm + steps:
        for batch in sampler.batches(epoch):
            if done == warm:
                started = time.process_time()
            optimiser.zero_grad()
            module.training_step(batch).backward()
            torch.nn.utils.clip_grad_value_(module.parameters(), 1.0)
            optimiser.step()
            done += 1
            if done == warm + steps:
                break
        epoch += 1
    spent = time.process_time() - started
    speed = steps * sampler.batch_size / spent
    return {"cells_per_second": speed, "peak_mb": peak(), "before_mb": before}


def our_graphs(folder: Path) -> dict[str, Any]:
    """Time our graphs."""
    import pandas as pd

    from pertbase.baselines.gears._graphs import coexpression_graph, target_graph
    from pertbase.folds import CellTable

    sets: dict[str, list[str]] = {}
    for gene, terms in json.loads((folder / "gene2go.json").read_text()).items():
        for term in terms:
            sets.setdefault(term, []).append(gene)
    started = time.process_time()
    target_graph({name: tuple(genes) for name, genes in sets.items()})
    similarity = time.process_time() - started
    controls = np.load(folder / "controls.npz")["controls"]
    obs = pd.DataFrame({"context": ["K"] * len(controls)})
    cells = CellTable(controls, obs, pd.Index([f"g{number}" for number in range(controls.shape[1])]))
    started = time.process_time()
    coexpression_graph(cells)
    return {"similarity_s": similarity, "coexpression_s": time.process_time() - started}


def in_process(task: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Run one of our tasks in a process of its own, in one thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--task", task, str(folder), json.dumps(options)]
    subprocess.run(command, check=True, env=os.environ | one)
    said: dict[str, Any] = json.loads((folder / f"{task}.json").read_text())
    return said


def training_rows(python: Path, options: argparse.Namespace) -> list[list[str]]:
    """Return one row a number of genes and a batch size."""
    rows = []
    for genes in options.genes:
        for batch in options.batch:
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                write_cells(folder, made_up(genes=genes, targets=2000, n_cells=N_CELLS, batch=batch))
                theirs = ask(python, "speed", folder, warm=2, steps=options.steps)
                found = {
                    preset: in_process("ours", folder, preset=preset, warm=2, steps=3 * options.steps)
                    for preset in ("corrected", "upstream")
                }
            speed = {name: said["cells_per_second"] for name, said in found.items()}
            memory = {name: said["peak_mb"] for name, said in found.items()}
            mine = found["corrected"]["peak_mb"] - found["corrected"]["before_mb"]
            beyond = mine / (theirs["peak_mb"] - theirs["before_mb"])
            rows.append(
                [
                    f"{genes:,}",
                    str(batch),
                    f"{theirs['cells_per_second']:.0f}",
                    f"{speed['corrected']:.0f} ({speed['corrected'] / theirs['cells_per_second']:.1f}x)",
                    f"{speed['upstream']:.0f} ({speed['upstream'] / theirs['cells_per_second']:.1f}x)",
                    f"{theirs['peak_mb']:,.0f}",
                    f"{memory['corrected']:,.0f} ({memory['corrected'] / theirs['peak_mb']:.2f})",
                    f"{memory['upstream']:,.0f} ({memory['upstream'] / theirs['peak_mb']:.2f})",
                    f"{beyond:.2f}",
                ]
            )
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    return rows


def graph_row(python: Path, genes: int, rows: int) -> list[list[str]]:
    """Return the time of both graphs at some number of genes; gene sets are the first of the default ones."""
    from pertbase.knowledge import default_gene_sets

    sets = default_gene_sets()
    names = sorted({gene for members in sets.values() for gene in members})
    chosen = set(np.random.default_rng(0).permutation(names)[:genes].tolist())
    gene2go: dict[str, list[str]] = {}
    for name, members in sets.items():
        for gene in members:
            if gene in chosen:
                gene2go.setdefault(gene, []).append(name)
    data = made_up(genes=genes, targets=100, n_cells=1000, batch=32)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "gene2go.json").write_text(json.dumps(gene2go))
        np.savez(folder / "controls.npz", controls=data["control"])
        theirs = ask(python, "graphs", folder, rows=rows)
        mine = in_process("our_graphs", folder)
    return [
        [what, f"{len(gene2go):,}", f"{theirs[key]:.1f}", f"{mine[key]:.2f}", f"{theirs[key] / mine[key]:.0f}x"]
        for what, key in (("targets by gene sets", "similarity_s"), ("co-expression", "coexpression_s"))
    ]


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--task"]:
        task, folder, options = sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4])
        said = {"ours": ours, "our_graphs": our_graphs}[task](folder, **options)
        (folder / f"{task}.json").write_text(json.dumps(said))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=DEFAULT_ENVIRONMENT)
    parser.add_argument("--genes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--steps", type=int, default=12, help="of cell-gears; ours are three times as many")
    parser.add_argument("--graph-genes", type=int, default=5000)
    options = parser.parse_args()
    python = environment(options.environment.expanduser().resolve())
    header = ["genes", "batch", "cell-gears, cells/s", "corrected", "upstream", "cell-gears, peak MB"]
    header += ["corrected, MB", "upstream, MB", "beyond imports"]
    print(table(header, training_rows(python, options)), end="\n\n")
    header = ["graph", "nodes", "cell-gears, CPU-s", "ours, CPU-s", ""]
    print(table(header, graph_row(python, options.graph_genes, rows=40)))


if __name__ == "__main__":
    main()
