"""Predicted cells on disk: read back as they were, by anybody's AnnData, with memory for one condition."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.folds import read_cells, write_cells

GENES = pd.Index(["A", "B/C", "D"], name="gene")


def made(n_conditions: int = 5) -> dict[tuple[str, str], np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        (f"context {number % 2}", f"CRISPRi:{number}"): rng.random((number + 1, 3)).astype(np.float32)
        for number in range(n_conditions)
    }


def test_cells_are_read_back_as_they_were_written(tmp_path):
    cells = made()
    write_cells(cells, tmp_path / "cells.zarr", genes=GENES)
    again = read_cells(tmp_path / "cells.zarr")
    assert list(again) == list(cells)
    assert list(again.genes) == list(GENES)
    for key, values in cells.items():
        np.testing.assert_array_equal(again[key], values)
    assert "15 cells x 3 genes" in repr(again)
    with pytest.raises(KeyError):
        again["nowhere", "nothing"]


def test_they_are_an_anndata(tmp_path):
    import anndata

    write_cells(made(), tmp_path / "cells.zarr", genes=GENES)
    adata = anndata.read_zarr(tmp_path / "cells.zarr")
    assert list(adata.var_names) == list(GENES)
    assert adata.obs["perturbation"].value_counts()["CRISPRi:4"] == 5
    np.testing.assert_array_equal(adata[adata.obs["perturbation"] == "CRISPRi:3"].X, made()["context 1", "CRISPRi:3"])


def test_cells_that_fill_chunks_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("pertbase.folds._cell_files._CHUNK", 12)  # four rows
    cells = made(9)
    write_cells(cells, tmp_path / "cells.zarr", genes=GENES)
    again = read_cells(tmp_path / "cells.zarr")
    for key, values in cells.items():
        np.testing.assert_array_equal(again[key], values)


class Many(Mapping[tuple[str, str], np.ndarray]):
    """Conditions of 200 cells and 500 genes, 400 kB each, made when looked up."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        return np.full((200, 500), float(key[1]), dtype=np.float32)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (("K", str(number)) for number in range(self.n))

    def __len__(self) -> int:
        return self.n


def test_memory_does_not_grow_with_the_number_of_conditions(tmp_path):
    peaks = []
    for n in (20, 80):
        tracemalloc.start()
        write_cells(Many(n), tmp_path / f"{n}.zarr", genes=pd.Index([f"g{i}" for i in range(500)]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4e6  # 24 MB more were written


def test_nothing_predicted_is_nothing_written_and_an_old_file_makes_way(tmp_path):
    write_cells(made(), tmp_path / "cells.zarr", genes=GENES)
    write_cells({}, tmp_path / "cells.zarr", genes=GENES)
    assert len(read_cells(tmp_path / "cells.zarr")) == 0


def test_cells_that_cannot_be_are_told_and_leave_nothing_behind(tmp_path):
    for wrong, told in ((np.zeros((2, 4)), "another number of genes"), (np.full((2, 3), np.nan), "NaN")):
        with pytest.raises(InputError, match=told):
            write_cells({**made(), ("K", "CRISPRi:x"): wrong}, tmp_path / "cells.zarr", genes=GENES)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "other.zarr").mkdir()
    for path in (tmp_path / "absent.zarr", tmp_path / "other.zarr"):
        with pytest.raises(InputError, match="holds no predicted cells"):
            read_cells(path)
