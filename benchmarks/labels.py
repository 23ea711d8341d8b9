"""Rank-sum tests of many conditions against shared controls: pertbase beside scanpy, on the same cells.

    python benchmarks/labels.py                                           # 100,000 cells x 2,000 genes x 200 groups
    python benchmarks/labels.py --cells 20000 --genes 500 --groups 50

Each package runs in a process of its own, so that its peak memory is its own. Times are CPU-seconds (all threads), the
median over repeats, after a first run on few cells that pays for imports and compilation. scanpy's include its means
and fold changes; so do ours. Peak memory is the largest resident set less that before the first timed run, which holds
the cells.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

Results = tuple[np.ndarray, np.ndarray, np.ndarray]


def cells(n_cells: int, n_genes: int, n_groups: int, controls: float) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Return log1p counts of cells of unequal depth, and each cell's group; group 0 is the control."""
    rng = np.random.default_rng(0)
    mean = rng.lognormal(-2.5, 1.5, n_genes)
    depth = rng.lognormal(0.0, 0.4, n_cells)
    blocks = []
    for start in range(0, n_cells, 2000):
        size = depth[start : start + 2000, None]
        blocks.append(sparse.csr_matrix(np.log1p(rng.poisson(mean * size) / size).astype(np.float32)))
    group = rng.integers(1, n_groups + 1, n_cells)
    group[: int(controls * n_cells)] = 0
    return sparse.vstack(blocks, format="csr"), group


def by_pertbase(X: sparse.csr_matrix, group: np.ndarray) -> Results:
    """Return p-values, adjusted p-values and fold changes (base 2), each groups x genes."""
    from pertbase.folds._condition_tests import condition_tests

    rows = {("a", f"{number:04}"): np.flatnonzero(group == number) for number in range(1, group.max() + 1)}
    tests = condition_tests(X, controls={"a": np.flatnonzero(group == 0)}, conditions=rows)
    return tests.p_value, tests.p_adjusted, tests.effect("log_mean") / np.log(2)


def by_scanpy(X: sparse.csr_matrix, group: np.ndarray) -> Results:
    """Return the same three from ``rank_genes_groups``."""
    import anndata
    import scanpy

    names = pd.Categorical([f"{number:04}" for number in group])
    genes = pd.Index([f"g{number}" for number in range(X.shape[1])])
    adata = anndata.AnnData(X, obs=pd.DataFrame({"group": names}, index=np.arange(len(group)).astype(str)))
    adata.var_names = genes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fragmented table
        scanpy.tl.rank_genes_groups(adata, "group", reference="0000", method="wilcoxon", tie_correct=True)
    found = adata.uns["rank_genes_groups"]
    out = []
    for key in ("pvals", "pvals_adj", "logfoldchanges"):
        rows = [pd.Series(found[key][name], found["names"][name]).reindex(genes) for name in names.categories[1:]]
        out.append(np.stack([row.to_numpy(dtype=np.float64) for row in rows]))
    return out[0], out[1], out[2]


PACKAGES: dict[str, Callable[[sparse.csr_matrix, np.ndarray], Results]] = {
    "pertbase": by_pertbase,
    "scanpy": by_scanpy,
}


def peak_megabytes() -> float:
    """Return the largest resident set of this process so far; Linux counts it in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(package: str, folder: Path, repeats: int) -> None:
    """Time one package on the cells in the folder; leave its results there and print its figures."""
    X, group = sparse.load_npz(folder / "X.npz"), np.load(folder / "group.npy")
    PACKAGES[package](sparse.csr_matrix(np.eye(60, 5, dtype=np.float32)), np.repeat([0, 1, 2], 20))
    before, seconds = peak_megabytes(), []
    for _ in range(repeats):
        start = time.process_time()
        results = PACKAGES[package](X, group)
        seconds.append(time.process_time() - start)
    np.savez(folder / f"{package}.npz", *results)
    print(json.dumps({"seconds": statistics.median(seconds), "megabytes": peak_megabytes() - before}))


def main() -> None:
    """Make the cells, run each package on them and print figures and differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--genes", type=int, default=2_000)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--controls", type=float, default=0.1, help="share of cells that are controls")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scanpy-repeats", type=int, default=1)
    parser.add_argument("--measure", nargs=2, metavar=("PACKAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]), options.repeats)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X, group = cells(options.cells, options.genes, options.groups, options.controls)
        sparse.save_npz(folder / "X.npz", X, compressed=False)
        np.save(folder / "group.npy", group)
        shape = f"{options.cells:,} cells x {options.genes:,} genes x {options.groups} groups"
        print(f"{shape}, {X.nnz / np.prod(X.shape):.1%} non-zero, {np.sum(group == 0):,} controls")
        figures, results = {}, {}
        for package, repeats in (("pertbase", options.repeats), ("scanpy", options.scanpy_repeats)):
            command = [sys.executable, __file__, "--measure", package, name, "--repeats", str(repeats)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            figures[package] = json.loads(done.stdout.splitlines()[-1])
            results[package] = list(np.load(folder / f"{package}.npz").values())
    for package, figure in figures.items():
        print(f"{package:9} {figure['seconds']:9.2f} CPU-s   {figure['megabytes']:8.0f} MB above the cells")
    print(f"ratio     {figures['scanpy']['seconds'] / figures['pertbase']['seconds']:9.1f}")
    for key, ours, theirs in zip(("p", "adjusted p", "log2 fold change"), *results.values(), strict=True):
        # Fold changes run to 20 and scanpy stores them in float32.
        print(f"largest difference, {key}: {np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))):.1e}")


if __name__ == "__main__":
    main()
