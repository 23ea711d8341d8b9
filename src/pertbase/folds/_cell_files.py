"""Predicted cells on disk, one condition after another: memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pertbase._io import write_folder_aside
from pertbase.errors import InputError

__all__ = ["StoredCells", "read_cells", "write_cells"]

_KIND = "predicted_cells"
_CHUNK = 1 << 20
"""Numbers in a chunk: 4 MB before compression."""


def write_cells(cells: Mapping[tuple[str, str], np.ndarray], path: str | Path, *, genes: pd.Index) -> None:
    """Write predicted cells as ``cells.zarr``, whole or not at all; what has the name already makes way.

    It is an AnnData on disk: ``X`` (n_cells, n_genes), float32, ``obs`` with context and perturbation, gene names as
    ``var_names``. Each condition is looked up once, written and forgotten.

    Parameters
    ----------
    cells
        (context, perturbation) -> natural log1p, shape (n_cells, n_genes).
    path
        A ``.zarr`` folder.
    genes
        Names of the columns.

    Raises
    ------
    InputError
        Where a condition's cells have another number of genes, or are not finite.
    """
    import zarr

    with write_folder_aside(path, replace=True) as aside:
        root = zarr.open_group(aside, mode="w", zarr_format=2)
        root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        rows = max(1, _CHUNK // max(1, len(genes)))
        stored = root.create_array("X", shape=(0, len(genes)), chunks=(rows, max(1, len(genes))), dtype="float32")
        stored.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        counts: dict[tuple[str, str], int] = {}
        # Chunks are written once: what does not fill one waits for the next condition.
        waiting = np.zeros((0, len(genes)), dtype=np.float32)
        for key in cells:
            found = _checked(np.asarray(cells[key], dtype=np.float32), key, len(genes))
            counts[key] = len(found)
            waiting = np.concatenate([waiting, found])
            whole = len(waiting) // rows * rows
            if whole:
                stored.append(waiting[:whole])
                waiting = waiting[whole:].copy()
        if len(waiting):
            stored.append(waiting)
        _describe(root, counts, genes)


def _checked(found: np.ndarray, key: tuple[str, str], n_genes: int) -> np.ndarray:
    if found.ndim != 2 or found.shape[1] != n_genes:
        raise InputError(
            "predicted cells have another number of genes",
            key=" ".join(key),
            value=found.shape,
            remedy=f"expected {n_genes:,}, in the order of inputs.genes",
        )
    if not np.isfinite(found).all():
        raise InputError("predicted cells are NaN or infinite", key=" ".join(key), value=found.shape)
    return found


def _describe(root: Any, counts: Mapping[tuple[str, str], int], genes: pd.Index) -> None:
    from anndata.io import write_elem

    repeats = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    columns = {
        name: pd.Categorical.from_codes(np.repeat(codes, repeats), categories=pd.Index(names, dtype=object))
        for name, part in (("context", 0), ("perturbation", 1))
        for codes, names in [pd.factorize(np.array([key[part] for key in counts], dtype=object))]
    }
    index = pd.Index(np.arange(int(repeats.sum())).astype(str), dtype=object)
    write_elem(root, "obs", pd.DataFrame(columns, index=index))
    write_elem(root, "var", pd.DataFrame(index=pd.Index(genes, dtype=object)))
    order = {"contexts": [key[0] for key in counts], "perturbations": [key[1] for key in counts]}
    write_elem(
        root,
        "uns",
        {
            "pertbase": {
                "kind": _KIND,
                "n_cells": repeats,
                **{key: np.array(names, dtype=object) for key, names in order.items()},
            }
        },
    )


class StoredCells(Mapping[tuple[str, str], np.ndarray]):
    """(context, perturbation) -> predicted cells, read when looked up; see :func:`read_cells`.

    Attributes
    ----------
    genes
        Names of the columns.
    """

    def __init__(self, matrix: Any, bounds: Mapping[tuple[str, str], tuple[int, int]], genes: pd.Index) -> None:
        self._matrix = matrix
        self._bounds = bounds
        self.genes = genes

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        start, end = self._bounds[key]
        return np.asarray(self._matrix[start:end], dtype=np.float32)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._bounds)

    def __len__(self) -> int:
        return len(self._bounds)

    def __repr__(self) -> str:
        total = sum(end - start for start, end in self._bounds.values())
        return f"StoredCells({len(self)} conditions, {total:,} cells x {len(self.genes):,} genes)"


def read_cells(path: str | Path) -> StoredCells:
    """Open what :func:`write_cells` wrote; nothing but the names is read before it is looked up.

    Raises
    ------
    InputError
        Where the folder is not one of predicted cells.
    """
    import zarr
    from anndata.io import read_elem

    try:
        root = zarr.open_group(path, mode="r")
        about = read_elem(root["uns"])["pertbase"]
        genes = pd.Index(read_elem(root["var"]).index.astype(str), name="gene")
        matrix: Any = root["X"]
        kind, n_cells = about["kind"], np.asarray(about["n_cells"])
        keys = list(zip(map(str, about["contexts"]), map(str, about["perturbations"]), strict=True))
    except (KeyError, OSError, TypeError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"holds no predicted cells ({first})", file=path) from error
    end = np.cumsum(n_cells)
    if kind != _KIND or len(keys) != len(n_cells) or matrix.shape != (int(n_cells.sum()), len(genes)):
        raise InputError("holds no predicted cells, or not all of them", file=path, key="X", value=tuple(matrix.shape))
    bounds = {key: (int(stop - size), int(stop)) for key, stop, size in zip(keys, end, n_cells, strict=True)}
    return StoredCells(matrix, bounds, genes)
