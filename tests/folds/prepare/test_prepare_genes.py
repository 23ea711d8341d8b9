"""Gene symbols and cell names of other people's files become unique by stated rules, or are refused."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pytest
from prepare_study import ASKED, counts, dense, scaled, study
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds import prepare

IDS = [f"ENSG{i:011d}" for i in range(60)]


def test_ensembl_ids_give_way_to_the_column_of_symbols() -> None:
    adata = study(counts(), genes=IDS)
    adata.var["gene_name"] = [f"G{i}" for i in range(59)] + [None]
    screen, report = prepare(adata, name="s", **ASKED)
    assert list(screen.genes) == [f"G{i}" for i in range(59)] + [IDS[59]]
    assert any("gene_name" in line for line in report.recognised)
    assert any("1 genes without a symbol" in line for line in report.recognised)


def test_ensembl_ids_without_symbols_are_refused() -> None:
    adata = study(counts(), genes=[f"{name}.2" for name in IDS])
    adata.var["length"] = 1.0
    with pytest.raises(
        InputError, match=r"f.h5ad: var_names: are Ensembl ids.*ENSG00000000000.*symbols=COLUMN.*length"
    ):
        prepare(adata, name="s", file="f.h5ad", **ASKED)


def test_mouse_symbols_are_warned_about() -> None:
    adata = study(counts(), genes=[f"Abc{i}" for i in range(60)])
    _, report = prepare(adata, name="s", **ASKED)
    assert any("mouse" in line and "Abc0" in line for line in report.warnings)


def _repeated() -> ad.AnnData:
    adata = study(counts())
    adata.var["symbol"] = ["TBCE", "G1", "TBCE", *(f"G{i}" for i in range(3, 60))]
    return adata


def test_genes_that_occur_twice_are_named() -> None:
    with pytest.raises(InputError, match=r"var\['symbol'\]: 1 gene symbols .*\['TBCE'\].*duplicates=sum"):
        prepare(_repeated(), name="s", symbols="symbol", **ASKED)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("logged", [False, True])
def test_copies_of_a_gene_are_added_as_counts_or_the_first_is_kept(kind: Any, logged: bool) -> None:
    raw = counts()
    adata = _repeated()
    adata.X = kind(np.log1p(scaled(raw, 500)) if logged else raw)
    total = 500 if logged else np.median(raw.sum(axis=1))
    linear = scaled(raw, total)
    expected = np.delete(linear, 2, axis=1)
    first, _ = prepare(adata, name="s", symbols="symbol", duplicates="first", **ASKED)
    np.testing.assert_allclose(dense(first), np.log1p(expected), rtol=1e-5, atol=1e-7)
    expected[:, 0] = linear[:, 0] + linear[:, 2]
    added, report = prepare(adata, name="s", symbols="symbol", duplicates="sum", **ASKED)
    np.testing.assert_allclose(dense(added), np.log1p(expected), rtol=1e-5, atol=1e-7)
    assert any("TBCE" in line for line in report.recognised)


def test_cell_names_that_occur_twice_are_numbered_and_reported() -> None:
    adata = study(counts())
    adata.obs_names = ["x"] * 90
    screen, report = prepare(adata, name="s", **ASKED)
    assert screen.obs.index.is_unique
    assert any("cell names" in line for line in report.warnings)
