"""Values of other people, however they are scaled and stored, become the contract, or are refused with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from prepare_study import ASKED, counts, dense, scaled, study
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds import prepare, prepare_file, read_screen


def test_raw_counts_become_natural_log1p_at_the_median_total() -> None:
    raw = counts()
    screen, report = prepare(study(raw), name="s", **ASKED)
    assert screen.total == np.median(raw.sum(axis=1)) == report.total
    np.testing.assert_allclose(dense(screen), np.log1p(scaled(raw, screen.total)), rtol=1e-6)
    assert screen.X.dtype == np.float32
    assert screen.counts is None


def test_total_given_as_text_replaces_the_median() -> None:
    raw = counts()
    screen, _ = prepare(study(raw), name="s", total="10000", **ASKED)
    np.testing.assert_allclose(np.expm1(dense(screen)).sum(axis=1), 10_000, rtol=1e-5)
    _, report = prepare(study(np.log1p(scaled(raw, 10_000))), name="s", total="10000", **ASKED)
    assert not any("cannot be checked" in line for line in report.warnings)


def test_median_total_is_of_the_kept_cells() -> None:
    raw = counts()
    screen, report = prepare(study(raw), name="s", keep="quality >= 0.4", **ASKED)
    kept = np.linspace(0, 1, 90) >= 0.4
    assert screen.total == np.median(raw[kept].sum(axis=1)) != np.median(raw.sum(axis=1))
    assert report.dropped == {"not quality>=0.4": 36}
    assert report.cells_kept == len(screen.obs) == 54


def test_logged_data_are_not_logged_again_and_their_total_is_seen() -> None:
    values = np.log1p(scaled(counts(), 10_000)).astype(np.float32)
    screen, report = prepare(study(sparse.csr_matrix(values)), name="s", **ASKED)
    assert screen.total == 10_000
    np.testing.assert_array_equal(dense(screen), values)
    assert any("natural log1p, scaled to 10000" in line for line in report.recognised)


@pytest.mark.parametrize("base", [2, 10])
@pytest.mark.parametrize("subset", [False, True])
def test_other_bases_are_recognised_and_turned_into_natural_logarithms(base: int, subset: bool) -> None:
    natural = np.log1p(scaled(counts(200), 1_000))[:, : 40 if subset else None]
    given = {"total": 1_000} if subset else {}
    screen, report = prepare(study(natural / np.log(base)), name="s", **ASKED, **given)
    np.testing.assert_allclose(dense(screen), natural, rtol=1e-5)
    assert screen.total == 1_000
    assert any(f"log{base}" in line for line in report.recognised)


def test_total_has_to_be_declared_where_genes_were_left_out_after_scaling() -> None:
    values = np.log1p(scaled(counts(), 10_000))[:, :40]
    with pytest.raises(InputError, match=r"X: seems to be logged, but the cells' totals differ .* total=10000"):
        prepare(study(values), name="s", **ASKED)
    screen, report = prepare(study(values), name="s", total=10_000, **ASKED)
    assert any("total 10000 cannot be checked" in line for line in report.warnings)
    assert screen.total == 10_000


def test_declared_total_that_the_values_contradict_is_refused() -> None:
    values = np.log1p(scaled(counts(), 10_000))
    with pytest.raises(InputError, match=r"total: was scaled to 10000 and not .*got 5000"):
        prepare(study(values), name="s", total=5_000, **ASKED)
    with pytest.raises(InputError, match=r"above the declared one \(got 3000"):
        prepare(study(values[:, :40]), name="s", total=3_000, **ASKED)


def _with(value: float) -> np.ndarray:
    raw = counts()
    raw[3, 4] = value
    return raw


LOGGED = np.log1p(scaled(counts(200), 1_000))


@pytest.mark.parametrize(
    ("values", "problem", "remedy"),
    [
        (_with(np.nan), "NaN or infinite values", "layer="),
        (_with(np.inf), "NaN or infinite values", "layer="),
        (counts() - counts().mean(axis=0), "negative values", "before scaling"),
        (scaled(counts(), 1e6), "without a logarithm", "log1p"),
        (scaled(counts(), 20.0), "without a logarithm", "log1p"),
        (np.log1p(LOGGED), "logarithm of logarithms", "expm1"),
        (np.log1p(LOGGED)[:, :40], "logarithm of logarithms", "expm1"),
        (np.log1p(counts(200)), "not scaled to a total", "undo the logarithm"),
    ],
    ids=["nan", "infinite", "z-scores", "cpm", "fractions", "log-of-log", "log-of-log-subset", "log-of-raw"],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_values_that_are_no_logarithm_of_scaled_counts_are_refused(
    values: np.ndarray, problem: str, remedy: str, kind: Any
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(study(kind(values)), name="s", file="some.h5ad", **ASKED)
    message = str(caught.value)
    assert message.startswith("some.h5ad: X: ")
    assert problem in message
    assert remedy in message


def test_log_of_log_is_refused_though_a_total_is_declared() -> None:
    with pytest.raises(InputError, match="logarithm of logarithms"):
        prepare(study(np.log1p(LOGGED)[:, :40]), name="s", total=1_000, **ASKED)


def test_estimated_counts_are_read_only_when_they_are_named_so() -> None:
    values = counts() * 37.3
    with pytest.raises(InputError, match="values=counts"):
        prepare(study(values), name="s", **ASKED)
    screen, report = prepare(study(values), name="s", values="counts", **ASKED)
    np.testing.assert_allclose(np.expm1(dense(screen)).sum(axis=1), screen.total, rtol=1e-4)
    assert any("estimated counts" in line for line in report.recognised)


def test_layer_is_read_in_place_of_x() -> None:
    raw = counts()
    adata = study(raw - raw.mean(axis=0))
    adata.layers["umis"] = raw
    screen, _ = prepare(adata, name="s", layer="umis", **ASKED)
    assert screen.hash == prepare(study(raw), name="s", **ASKED)[0].hash
    with pytest.raises(InputError, match="Did you mean 'umis'"):
        prepare(adata, name="s", layer="umi", **ASKED)


STORED = {
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
    "csr_array": sparse.csr_array,
    "dense": np.asarray,
    "float64": lambda raw: raw.astype(np.float64),
    "int16": lambda raw: sparse.csr_matrix(raw.astype(np.int16)),
    "int64": lambda raw: raw.astype(np.int64),
    "explicit zeros": lambda raw: _explicit_zeros(raw),
}


def _explicit_zeros(raw: np.ndarray) -> Any:
    matrix = sparse.csr_matrix(np.ones_like(raw))
    matrix.data = raw.ravel().copy()
    return matrix


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("where", ["memory", "h5ad", "backed", "zarr"])
def test_same_counts_give_the_same_screen_however_they_are_stored(stored: str, where: str, tmp_path: Path) -> None:
    expected, _ = prepare(study(counts()), name="s", keep="quality>0.1", **ASKED)
    adata = study(STORED[stored](counts()))
    if where == "memory":
        screen, _ = prepare(adata, name="s", keep="quality>0.1", **ASKED)
    elif where == "backed":
        adata.write_h5ad(tmp_path / "in.h5ad")
        backed = ad.read_h5ad(tmp_path / "in.h5ad", backed="r")
        screen, _ = prepare(backed, name="s", keep="quality>0.1", **ASKED)
        backed.file.close()
    else:
        source = tmp_path / f"in.{where}"
        getattr(adata, f"write_{where}")(source)
        prepare_file(source, tmp_path / "out.h5ad", name="s", keep="quality>0.1", **ASKED)
        screen = read_screen(tmp_path / "out.h5ad")
    assert screen.hash == expected.hash


def test_matrix_larger_than_one_block_is_prepared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from pertbase.folds._prepare import _blocks

    whole, _ = prepare(study(sparse.csr_matrix(counts())), name="s", **ASKED)
    monkeypatch.setattr(_blocks, "_SPARSE_ROWS", 7)
    monkeypatch.setattr(_blocks, "_BLOCK_VALUES", 500)
    for kind in (sparse.csr_matrix, np.asarray):
        assert prepare(study(kind(counts())), name="s", **ASKED)[0].hash == whole.hash


def test_what_is_given_is_left_alone() -> None:
    adata = study(sparse.csr_matrix(counts()))
    before = adata.copy()
    screen, _ = prepare(adata, name="s", **ASKED)
    assert (adata.X != before.X).nnz == 0
    pd.testing.assert_frame_equal(adata.obs, before.obs)
    assert adata.X.data.flags.writeable
    assert not screen.X.data.flags.writeable


def test_raw_counts_are_carried_when_asked_for(tmp_path: Path) -> None:
    raw = counts()
    study(sparse.csr_matrix(raw)).write_h5ad(tmp_path / "in.h5ad")
    prepare_file(tmp_path / "in.h5ad", tmp_path / "out.h5ad", keep_counts="true", **ASKED)
    np.testing.assert_array_equal(read_screen(tmp_path / "out.h5ad").counts.toarray(), raw)


def test_embeddings_of_the_kept_cells_are_carried_when_asked_for(tmp_path: Path) -> None:
    adata = study(counts())
    adata.obsm["X_emb"] = np.arange(180.0).reshape(90, 2)
    adata.obsm["X_other"] = np.full((90, 2), np.nan)
    adata.write_h5ad(tmp_path / "in.h5ad")
    asked = {**ASKED, "keep": "quality>=0.5", "embeddings": "X_emb"}
    screen, _ = prepare(adata, name="s", **asked)
    np.testing.assert_array_equal(screen.embeddings["X_emb"], adata.obsm["X_emb"][45:])
    assert list(screen.embeddings) == ["X_emb"]
    prepare_file(tmp_path / "in.h5ad", tmp_path / "out.h5ad", name="s", **asked)
    again = read_screen(tmp_path / "out.h5ad")
    np.testing.assert_array_equal(again.embeddings["X_emb"], screen.embeddings["X_emb"])
    assert again.hash == screen.hash
    for source in (
        lambda **given: prepare(adata, name="s", **given),
        lambda **given: prepare_file(tmp_path / "in.h5ad", tmp_path / "other.h5ad", **given),
    ):
        with pytest.raises(InputError, match=r"X_em'.*Did you mean 'X_emb'"):
            source(**ASKED, embeddings="X_em")
