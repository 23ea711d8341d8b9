"""`pertbase prepare` of a large sparse file: CPU-seconds and peak memory, in a process of its own.

    python benchmarks/prepare.py                  # 1,000,000 cells x 2,000 genes, about 100 million counts
    python benchmarks/prepare.py --cells 100000

The aim is a peak under 4 GB for a million cells. The file is drawn and written in blocks, so that the machine needs no
more memory than what is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

N_GENES = 2_000
PER_CELL = 100
BLOCK = 50_000

CHILD = """
import json, resource, sys, time
from pertbase.cli import main
start = time.process_time()
code = main(sys.argv[1:])
used = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps({"code": code, "seconds": used, "peak": peak}))
"""


def draw(path: Path, n_cells: int, rng: np.random.Generator) -> int:
    """Write raw counts as CSR with obs columns as cell-load names them; return the number of values."""
    with h5py.File(path, "w") as file:
        matrix = file.create_group("X")
        matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_cells, N_GENES]})
        total = n_cells * PER_CELL
        data = matrix.create_dataset("data", (total,), "f4", chunks=(1 << 20,))
        indices = matrix.create_dataset("indices", (total,), "i4", chunks=(1 << 20,))
        matrix.create_dataset("indptr", data=np.arange(0, total + 1, PER_CELL, dtype=np.int64))
        for start in range(0, n_cells, BLOCK):
            rows = min(BLOCK, n_cells - start)
            steps = rng.integers(1, 2 * N_GENES // PER_CELL - 1, size=(rows, PER_CELL))
            genes = np.minimum(np.cumsum(steps, axis=1) - 1, N_GENES - PER_CELL + np.arange(PER_CELL))
            block = slice(start * PER_CELL, (start + rows) * PER_CELL)
            indices[block] = genes.ravel()
            data[block] = 1 + rng.poisson(1.5, size=rows * PER_CELL)
        names = np.array(["non-targeting", *(f"T{number}" for number in range(499))], dtype=object)
        columns = {
            "gene": (rng.integers(0, len(names), n_cells), names),
            "cell_line": (rng.integers(0, 4, n_cells), np.array(["A", "B", "C", "D"], dtype=object)),
            "gem_group": (rng.integers(0, 8, n_cells), np.array([str(number) for number in range(8)], dtype=object)),
        }
        frame(file, "obs", np.array([f"cell{number}" for number in range(n_cells)], dtype=object), columns)
        frame(file, "var", np.array([f"G{number}" for number in range(N_GENES)], dtype=object), {})
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        return total


def frame(file: h5py.File, name: str, index: np.ndarray, columns: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Write a data frame in AnnData's layout, its columns categorical."""
    group = file.create_group(name)
    group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
    group.attrs["column-order"] = np.array(list(columns), dtype=h5py.string_dtype())
    text(group, "_index", index)
    for column, (codes, categories) in columns.items():
        part = group.create_group(column)
        part.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
        part.create_dataset("codes", data=codes.astype(np.int16)).attrs.update(
            {"encoding-type": "array", "encoding-version": "0.2.0"}
        )
        text(part, "categories", categories)


def text(group: h5py.Group, name: str, values: np.ndarray) -> None:
    """Write an array of text in AnnData's layout."""
    written = group.create_dataset(name, data=values, dtype=h5py.string_dtype())
    written.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.h5ad", Path(folder) / "out.h5ad"
        n_values = draw(source, arguments.cells, np.random.default_rng(0))
        command = ["prepare", f"input={source}", f"output={target}", "mechanism=CRISPRi"]
        done = subprocess.run([sys.executable, "-c", CHILD, *command], capture_output=True, text=True, check=True)
        report, _, last = done.stdout.strip().rpartition("\n")
        found = json.loads(last)
        print(report)
        print("\n| cells | values | CPU-seconds | peak, GB | written, GB |\n| --- | --- | --- | --- | --- |")
        size = target.stat().st_size / 1e9
        print(f"| {arguments.cells:,} | {n_values:,} | {found['seconds']:.0f} | {found['peak']:.1f} | {size:.2f} |")


if __name__ == "__main__":
    main()
