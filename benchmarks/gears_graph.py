"""What the graph of targets is worth to GEARS on the simulated screen: given gene sets, none, and the truth's.

    python benchmarks/gears_graph.py [--rows unseen-given unseen-none ...] [--epochs 8]

First, whether targets of one gene set act alike at all: the mean cosine of their true effects (noise-free, turned by
the perturbation's sign, means over contexts, own target left out), within a set and elsewhere. Then a small GEARS on
the frozen folds with each graph, beside ``perturbed_mean`` on the same questions. ``none`` is ``target_neighbours=0``;
``truth`` replaces gene sets by each target's five nearest by that cosine, which no model may see: what a perfect source
of gene sets would be worth. Columns are those of ``train_size.py``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from train_size import configured, table, tried

from pertbase.folds import FoldMaker, FoldSpec
from pertbase.scorers import average, compare
from pertbase.simulate import Simulation, simulate_screen

FOLDS = {"unseen": "unseen_perturbation_genetic", "combinatorial": "combinatorial"}
ROWS = ("unseen-given", "unseen-none", "unseen-truth", "combinatorial-given", "combinatorial-none")
SMALL = ("hidden_size=16", "batch_size=256", "learning_rate=0.005", "decay=0.8")
NEIGHBOURS, LEAST = 5, 0.15


def similarity(simulation: Simulation) -> pd.DataFrame:
    """Return the cosine of the true effects of targets that were perturbed alone by guides, targets x targets."""
    effects, perturbations = simulation.truth.effects, simulation.screen.perturbations
    found: dict[str, list[np.ndarray]] = {}
    for name, values in zip(effects.conditions["perturbation"], effects.values, strict=True):
        item = perturbations[name]
        if item.modality == "genetic" and not item.is_combination:
            (target,) = item.targets
            own = effects.genes == target
            found.setdefault(target, []).append(item.signs[target] * np.where(own, 0.0, values))
    names = sorted(found)
    mean = np.stack([np.mean(found[name], axis=0) for name in names])
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return pd.DataFrame(unit @ unit.T, index=names, columns=names)


def alignment(simulation: Simulation, cosine: pd.DataFrame) -> list[list[str]]:
    """Return mean cosines of pairs that share a gene set, of those that share none, and of the nearest."""
    names = list(cosine.index)
    together = np.zeros(cosine.shape, dtype=bool)
    for genes in simulation.gene_sets.values():
        inside = np.isin(names, genes)
        together |= np.outer(inside, inside)
    values, off = cosine.to_numpy(), ~np.eye(len(names), dtype=bool)
    nearest = np.sort(np.where(off, values, -1.0), axis=1)[:, -NEIGHBOURS:]
    rows = [("share a gene set", values[together & off]), ("share none", values[~together & off])]
    rows.append((f"nearest {NEIGHBOURS} of each", nearest.ravel()))
    return [[what, f"{len(found):,}", f"{found.mean():.3f}"] for what, found in rows]


def write_nearest(cosine: pd.DataFrame, path: Path) -> None:
    """Write one gene set a target: itself and its nearest."""
    with path.open("w") as file:
        for name, row in cosine.iterrows():
            near = row.drop(name).nlargest(NEIGHBOURS)
            genes = sorted({str(name), *near.index[near > LEAST]})
            file.write("\t".join([f"like {name}", "", *genes]) + "\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    simulation = simulate_screen(seed=0)
    cosine = similarity(simulation)
    print(table(["pairs of targets", "", "mean cosine of true effects"], alignment(simulation, cosine)), end="\n\n")
    maker = FoldMaker(simulation.screen)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        write_nearest(cosine, Path(temporary, "truth.gmt"))
        graphs = {"given": [], "none": ["target_neighbours=0"], "truth": [f"gene_sets={temporary}/truth.gmt"]}
        for label in options.rows:
            name, graph = label.split("-")
            fold = maker.make(FoldSpec(kind=FOLDS[name]))
            training = fold.make_training(seed=0, cells=True)
            given = [f"gears.{text}" for text in (*SMALL, f"max_epochs={options.epochs}", *graphs[graph])]
            about = argparse.Namespace(data="simulated", fold=FOLDS[name], set=given)
            gears, mean = (tried(fold, training, configured(about, item)) for item in ("gears", "perturbed_mean"))
            if isinstance(gears, str) or isinstance(mean, str):
                raise TypeError(f"{label}: {gears} {mean}")
            scores = [average([(item.answers, fold.truth)]).balanced_accuracy for item in (gears, mean)]
            less = compare(gears.answers, mean.answers, fold.truth).balanced_accuracy
            rows.append([FOLDS[name], graph, *map(str, scores), str(less)])
            rows[-1] += [f"{gears.explained:.3f}", f"{mean.explained:.3f}"]
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["fold", "graph", "gears", "perturbed_mean", "gears less perturbed_mean"]
    print(table([*header, "gears, explained", "perturbed_mean, explained"], rows))


if __name__ == "__main__":
    main()
