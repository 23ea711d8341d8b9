"""cell-gears in an environment of its own, for the benchmarks beside it.

Run by our Python, this module makes that environment and calls it; run by the environment's Python, it is the other
side: it knows cell-gears and not pertbase, and both talk through files in a folder.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

VERSION = "0.1.2"
# It does not say that it needs torch-geometric.
PACKAGES = (f"cell-gears=={VERSION}", "torch-geometric", "scipy<1.15", "pandas<3", "numpy<2.4", "scikit-learn<1.8")
N_PERTURBATIONS, N_PAIRS = 60, 10
DEFAULT_ENVIRONMENT = Path.home() / ".cache" / "pertbase" / "benchmarks" / f"cell-gears-{VERSION}"


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with cell-gears and our version of torch, made where it is not there."""
    import torch

    python = folder / "bin" / "python"
    works = [python, "-P", "-c", "import gears"]
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run(works, capture_output=True, check=False).returncode:
        same = re.match(r"[0-9.]+", torch.__version__)
        wanted = (*PACKAGES, f"torch=={same[0]}" if same else "torch")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        subprocess.run(works, check=True)
    return python


def ask(python: Path, task: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Run one task of this file in cell-gears' environment, in one thread, and return what it says."""
    import os

    given = json.dumps(options)
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # -P: this folder has a file of the same name as their package
    subprocess.run(
        [python, "-P", "-W", "ignore", __file__, task, folder, given], check=True, env=os.environ | one, cwd=folder
    )
    said: dict[str, Any] = json.loads((folder / f"{task}.json").read_text())
    return said


def random_graph(rng: np.random.Generator, n_nodes: int, k: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return edges (2, n) with about k sources and itself for each node, and weights; some nodes have no self-loop."""
    target = np.repeat(np.arange(n_nodes), k)
    source = rng.integers(0, n_nodes, n_nodes * k)
    looped = np.flatnonzero(rng.random(n_nodes) < 0.9)
    pairs = np.unique(np.stack([np.r_[source, looped], np.r_[target, looped]]), axis=1)
    pairs = pairs[:, (pairs[0] != pairs[1]) | np.isin(pairs[0], looped)]
    weight = np.where(pairs[0] == pairs[1], 1.0, rng.uniform(0.1, 1.0, pairs.shape[1]))
    return pairs.astype(np.int64), weight.astype(np.float32)


def made_up(*, genes: int, targets: int, n_cells: int, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return cells, their perturbations and two graphs, as arrays."""
    rng = np.random.default_rng(seed)
    level = rng.normal(-1.5, 1.3, genes)
    level[rng.choice(genes, genes // 20, replace=False)] = -np.inf  # never expressed

    def draw(n: int) -> np.ndarray:
        return np.log1p(rng.poisson(np.exp(level + rng.normal(0, 0.3, (n, genes))))).astype(np.float32)

    acted = np.full((N_PERTURBATIONS + 1, 2), -1, dtype=np.int64)
    acted[1:, 0] = rng.choice(targets, N_PERTURBATIONS, replace=False)
    acted[-N_PAIRS:, 1] = np.roll(acted[-N_PAIRS:, 0], 1)
    acted[-N_PAIRS:] = np.sort(acted[-N_PAIRS:], axis=1)
    which = rng.integers(0, len(acted), n_cells)
    control, perturbed = draw(n_cells), draw(n_cells)
    perturbed = np.maximum(perturbed + rng.normal(0, 0.2, (len(acted), genes)).astype(np.float32)[which], 0)
    perturbed[:, np.isneginf(level)] = 0
    names = np.array(["ctrl", *(f"p{number}" for number in range(N_PERTURBATIONS))])
    kept = np.stack([perturbed[which == row].sum(0) > 0 for row in range(len(acted))])
    kept[0] = True
    gene_edges, gene_weight = random_graph(rng, genes)
    target_edges, target_weight = random_graph(rng, targets)
    return {
        "control": control,
        "perturbed": perturbed.astype(np.float32),
        "targets": acted[which],
        "names": names[which],
        "kept_names": names,
        "kept": kept,
        "mean_control": control.mean(0),
        "gene_edges": gene_edges,
        "gene_weight": gene_weight,
        "target_edges": target_edges,
        "target_weight": target_weight,
        "n_targets": np.array(targets),
        "batch_size": np.array(batch),
    }


# -- the other side -------------------------------------------------------------------------------------------


def config(graphs: Any, n_genes: int, n_targets: int, *, uncertainty: bool = False) -> dict[str, Any]:
    """Return what cell-gears' model is made from, with its defaults."""
    import torch

    def tensor(name: str, kind: Any) -> Any:
        return torch.tensor(graphs[name]).to(kind)

    return {
        "hidden_size": 64,
        "num_go_gnn_layers": 1,
        "num_gene_gnn_layers": 1,
        "decoder_hidden_size": 16,
        "num_similar_genes_go_graph": 20,
        "num_similar_genes_co_express_graph": 20,
        "coexpress_threshold": 0.4,
        "uncertainty": uncertainty,
        "uncertainty_reg": 1,
        "direction_lambda": 0.1,
        "G_go": tensor("target_edges", torch.int64),
        "G_go_weight": tensor("target_weight", torch.float32),
        "G_coexpress": tensor("gene_edges", torch.int64),
        "G_coexpress_weight": tensor("gene_weight", torch.float32),
        "device": "cpu",
        "num_genes": n_genes,
        "num_perts": n_targets,
        "no_perturb": False,
    }


def cells(controls: Any, perturbed: Any, targets: Any, names: Any) -> list[Any]:
    """Return one graph object a cell, as cell-gears' loaders hold them."""
    import torch
    from torch_geometric.data import Data

    found = []
    for control, cell, acted, name in zip(controls, perturbed, targets, names, strict=True):
        index = [int(item) for item in acted if item >= 0] or [-1]
        x, y = torch.tensor(control[:, None]), torch.tensor(cell[None])
        found.append(Data(x=x, y=y, pert_idx=index, pert=str(name), de_idx=[-1]))
    return found


def prepared(data: Any) -> list[Any]:
    """Return the same from one file of arrays."""
    return cells(data["control"], data["perturbed"], data["targets"], data["names"])


def kept_genes(data: Any) -> dict[str, Any]:
    """Return the genes that each condition's cells express, by position."""
    return {str(name): np.flatnonzero(kept) for name, kept in zip(data["kept_names"], data["kept"], strict=True)}


class Trainer:
    """cell-gears' model, loss and training step on prepared cells."""

    def __init__(self, data: Any, model: Any, settings: dict[str, Any]) -> None:
        import torch

        self.model, self.settings, self.kept = model, settings, kept_genes(data)
        self.mean = torch.tensor(data["mean_control"])
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)

    def loss(self, batch: Any) -> tuple[Any, Any]:
        from gears.utils import loss_fct

        predicted = self.model(batch)
        loss = loss_fct(
            predicted,
            batch.y,
            batch.pert,
            ctrl=self.mean,
            dict_filter=self.kept,
            direction_lambda=self.settings["direction_lambda"],
        )
        return predicted, loss

    def step(self, batch: Any) -> float:
        import torch

        self.optimiser.zero_grad()
        loss = self.loss(batch)[1]
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.model.parameters(), clip_value=1.0)
        self.optimiser.step()
        return float(loss)


def parity(folder: Path, *, steps: int) -> dict[str, Any]:
    """Predict and train; weights, predictions and losses are left in the folder.

    ``curve`` are losses in float32, ``reordered`` the same with all cells of a batch but the first reordered, and
    ``double`` those in float64.
    """
    import torch
    from gears import GEARS
    from gears.model import GEARS_Model
    from torch_geometric.loader import DataLoader

    data = np.load(folder / "data.npz")
    n_genes, n_targets = data["control"].shape[1], int(data["n_targets"])
    torch.manual_seed(0)
    settings = config(data, n_genes, n_targets)
    model = GEARS_Model(settings)
    saved = GEARS.__new__(GEARS)
    saved.config, saved.best_model = settings, model
    saved.save_model(str(folder / "start"))
    batches = list(DataLoader(prepared(data), batch_size=int(data["batch_size"]), shuffle=False))
    trainer = Trainer(data, model, settings)
    model.train()
    train = [trainer.loss(batch) for batch in batches[:1]]
    found = {"train_predictions": train[0][0].detach().numpy(), "train_loss": [float(train[0][1])]}
    model.eval()
    with torch.no_grad():
        predicted, loss = trainer.loss(batches[0])
    found |= {"eval_predictions": predicted.numpy(), "eval_loss": [float(loss)]}
    start = {name: value.clone() for name, value in torch.load(folder / "start" / "model.pt").items()}
    size = int(data["batch_size"])
    order = np.concatenate(
        [
            np.r_[first, first + 1 + np.random.default_rng(0).permutation(size - 1)]
            for first in range(0, steps * size, size)
        ]
    )
    for name in ("curve", "reordered", "double"):
        torch.set_default_dtype(torch.float64 if name == "double" else torch.float32)
        held = prepared(data)
        if name == "reordered":
            held = [held[row] for row in order]
        given = config(data, n_genes, n_targets)
        if name == "double":
            given |= {key: given[key].double() for key in ("G_go_weight", "G_coexpress_weight")}
            held = [item.apply(lambda value: value.double(), "x", "y") for item in held]
        again = GEARS_Model(given)
        again.load_state_dict(start)
        again.train()
        trainer = Trainer(data, again, given)
        if name == "double":
            trainer.mean = trainer.mean.double()
        loader = list(DataLoader(held, batch_size=size, shuffle=False))
        found[name] = [trainer.step(batch) for batch in loader]
    again.eval()
    with torch.no_grad():
        found["trained"] = again(loader[0]).numpy()
    np.savez(folder / "theirs.npz", **found)
    return {"version": VERSION, "parameters": sum(item.numel() for item in model.parameters())}


def uncertain(folder: Path) -> dict[str, Any]:
    """The same with its uncertainty head, whose loss fails on a CPU: predictions only."""
    import torch
    from gears import GEARS
    from gears.model import GEARS_Model
    from torch_geometric.loader import DataLoader

    data = np.load(folder / "data.npz")
    torch.manual_seed(1)
    settings = config(data, data["control"].shape[1], int(data["n_targets"]), uncertainty=True)
    model = GEARS_Model(settings)
    saved = GEARS.__new__(GEARS)
    saved.config, saved.best_model = settings, model
    saved.save_model(str(folder / "uncertain"))
    batch = next(iter(DataLoader(prepared(data), batch_size=int(data["batch_size"]), shuffle=False)))
    model.train()
    predicted, variance = model(batch)
    np.savez(folder / "uncertain.npz", predictions=predicted.detach().numpy(), variances=variance.detach().numpy())
    return {}


def speed(folder: Path, *, warm: int, steps: int) -> dict[str, Any]:
    """Time training steps, loading included; return cells per CPU-second and memory."""
    import torch
    from gears.model import GEARS_Model
    from scipy import sparse
    from torch_geometric.loader import DataLoader

    torch.set_num_threads(1)
    before = peak()
    data = np.load(folder / "about.npz")
    matrix = sparse.load_npz(folder / "cells.npz")
    settings = config(data, matrix.shape[1], int(data["n_targets"]))
    model = GEARS_Model(settings)
    trainer = Trainer(data, model, settings)
    batch_size = int(data["batch_size"])
    n = matrix.shape[0] // 2
    about = (data["targets"], data["names"])
    held = cells(
        (matrix[row + n].toarray()[0] for row in range(n)), (matrix[row].toarray()[0] for row in range(n)), *about
    )
    loader = DataLoader(held, batch_size=batch_size, shuffle=True, drop_last=True)
    model.train()
    done, started = 0, time.process_time()
    while done < warm + steps:
        for batch in loader:
            if done == warm:
                started = time.process_time()
            trainer.step(batch)
            done += 1
            if done == warm + steps:
                break
    spent = time.process_time() - started
    return {"cells_per_second": steps * batch_size / spent, "peak_mb": peak(), "before_mb": before}


def graphs(folder: Path, *, rows: int) -> dict[str, Any]:
    """Time its graphs: similarity for some genes against all (the rest is the same again), co-expression in full."""
    import anndata
    import pandas as pd
    from gears.utils import get_coexpression_network_from_train, get_GO_edge_list
    from scipy import sparse

    table = json.loads((folder / "gene2go.json").read_text())
    gene2go = {gene: set(terms) for gene, terms in table.items()}
    started = time.process_time()
    for gene in list(gene2go)[:rows]:
        get_GO_edge_list((gene, gene2go))
    similarity = (time.process_time() - started) * len(gene2go) / rows
    controls = np.load(folder / "controls.npz")["controls"]
    adata = anndata.AnnData(
        sparse.csr_matrix(controls),
        obs=pd.DataFrame({"condition": ["ctrl"] * len(controls)}, index=[str(row) for row in range(len(controls))]),
        var=pd.DataFrame({"gene_name": [f"g{number}" for number in range(controls.shape[1])]}),
    )
    (folder / "cache").mkdir(exist_ok=True)
    started = time.process_time()
    get_coexpression_network_from_train(adata, 0.4, 20, str(folder), "cache", "x", 1, 0.75, {"train": ["ctrl"]})
    return {"similarity_s": similarity, "coexpression_s": time.process_time() - started}


def peak() -> float:
    """Return the largest resident memory of this process so far, in MB (Linux).

    Not that of ``getrusage``, in which a process starts with what its parent had.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Carry out one task and leave what it says."""
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    tasks = {"parity": parity, "uncertain": uncertain, "speed": speed, "graphs": graphs}
    said = tasks[task](folder, **options)
    (folder / f"{task}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
