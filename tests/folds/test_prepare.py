"""Values, genes, cells and files of other people become the contract, or are refused with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds import CONTROL, Screen, prepare, prepare_file, read_screen

SHARED = Path(__file__).parents[3] / "shared" / "data"
ASKED = {
    "perturbation": "what",
    "control": "ctrl",
    "context": "line",
    "mechanism": "CRISPRi",
}


def counts(n_cells: int = 90, n_genes: int = 60, seed: int = 0) -> np.ndarray:
    """Return sparse counts whose totals differ between cells."""
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.5, 3.0, (n_cells, 1))
    return rng.poisson(depth * rng.gamma(0.5, 2.0, n_genes)).astype(np.float32)


def study(values: Any, genes: list[str] | None = None) -> ad.AnnData:
    """Return cells of two lines under two perturbations and control, with these values."""
    n_cells, n_genes = values.shape
    obs = pd.DataFrame(
        {
            "what": np.resize(["ctrl", "G1", "G2"], n_cells),
            "line": np.repeat(["a", "b"], [n_cells // 2, n_cells - n_cells // 2]),
            "quality": np.linspace(0, 1, n_cells),
        },
        index=[f"cell{i}" for i in range(n_cells)],
    )
    return ad.AnnData(values, obs, pd.DataFrame(index=genes or [f"G{i}" for i in range(n_genes)]))


def scaled(values: np.ndarray, total: float) -> np.ndarray:
    return values.astype(float) * (total / values.sum(axis=1, keepdims=True))


def dense(screen: Screen) -> np.ndarray:
    return np.asarray(screen.X.toarray() if sparse.issparse(screen.X) else screen.X)


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


def test_cells_are_dropped_by_stated_rules_only_and_counted() -> None:
    raw = counts()
    raw[5] = 0
    raw[7] = 0
    raw[7, 0] = 3
    screen, report = prepare(study(raw), name="s", min_counts=4, keep=["quality<0.9", "line!=c"], **ASKED)
    assert report.dropped == {"not quality<0.9": 9, "no expression at all": 1, "fewer than 4 counts": 1}
    assert report.cells_read == 90
    assert report.cells_kept == len(screen.obs) == 79
    assert not {"cell5", "cell7"} & set(screen.obs.index)


def test_nothing_is_made_of_cells_without_expression() -> None:
    with pytest.raises(InputError, match=r"no expression at all: no cell is left"):
        prepare(study(counts() * 0), name="s", **ASKED)


def test_missing_value_never_passes_a_comparison() -> None:
    adata = study(counts())
    adata.obs["flag"] = pd.Categorical(["x", None, "y"] * 30)
    adata.obs["number"] = [1.0, 2.0, np.nan] * 30
    adata.obs["what"] = np.repeat(["ctrl", "G1"] * 2, [25, 20, 25, 20])
    _, report = prepare(adata, name="s", keep=["flag!=x"], **ASKED)
    assert report.cells_kept == 30
    _, report = prepare(adata, name="s", keep=["number!=1"], **ASKED)
    assert report.cells_kept == 30


@pytest.mark.parametrize(
    ("keep", "parts"),
    [
        ("qualty>=0.5", ["keep", "'qualty'", "Did you mean 'quality'"]),
        ("quality=0.5", ["keep", "'quality=0.5'", "COLUMN>=VALUE"]),
        ("quality>=high", ["keep", "'quality>=high'", "number"]),
        ("line>=a", ["keep", "'line>=a'", "== or !="]),
        ("quality>2", ["not quality>2: no cell is left", "keep="]),
    ],
)
def test_comparison_that_cannot_be_made_is_refused(keep: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        prepare(study(counts()), name="s", keep=keep, **ASKED)
    for part in parts:
        assert part in str(caught.value)


def test_context_without_controls_is_an_error_unless_it_may_be_dropped() -> None:
    adata = study(counts())
    adata.obs.loc[adata.obs["line"] == "b", "what"] = "G1"
    with pytest.raises(InputError, match=r"no control cells \(got \['b'\]\).*drop_contexts_without_control=true"):
        prepare(adata, name="s", **ASKED)
    screen, report = prepare(adata, name="s", drop_contexts_without_control="true", **ASKED)
    assert screen.contexts == ("a",)
    assert sum(report.dropped.values()) == 45
    # The median is that of the cells that stay.
    assert screen.total == np.median(counts()[:45].sum(axis=1))


def test_missing_context_is_an_error() -> None:
    adata = study(counts())
    adata.obs["line"] = pd.Categorical(["a", None] * 45)
    with pytest.raises(InputError, match=r"obs\['line'\]: 45 cells have no context"):
        prepare(adata, name="s", **ASKED)


def test_targeted_panel_is_warned_about_and_a_transcriptome_is_not() -> None:
    _, small = prepare(study(counts()), name="s", **ASKED)
    assert any("targeted panel" in line for line in small.warnings)
    _, large = prepare(study(counts(n_genes=1_200)), name="s", **ASKED)
    assert not any("targeted panel" in line for line in large.warnings)


def test_report_reads_as_text() -> None:
    _, report = prepare(study(counts()), name="mine", file="there.h5ad", batch=None, **ASKED)
    text = str(report)
    for part in (
        "mine",
        "there.h5ad",
        "obs['what']",
        "raw counts",
        "90 read, 90 kept",
        "smallest condition: CRISPRi:G",
    ):
        assert part in text
    assert report.conditions.loc["a", "controls"] == 15
    assert report.conditions.loc["a", "conditions"] == 2


def test_names_with_commas_slashes_spaces_and_other_scripts_survive(tmp_path: Path) -> None:
    adata = study(counts())
    odd = {"ctrl": "ctrl", "G1": "2-[4,5-di/hydro] β-estradiol, (+)", "G2": "紫杉醇"}
    adata.obs["what"] = adata.obs["what"].map(odd)
    adata.obs["line"] = adata.obs["line"].map({"a": "T cell, naïve/CD4+", "b": "b"})
    adata.write_h5ad(tmp_path / "in.h5ad")
    prepare_file(tmp_path / "in.h5ad", tmp_path / "out.h5ad", **(ASKED | {"mechanism": "drug"}))
    screen = read_screen(tmp_path / "out.h5ad")
    assert screen.contexts == ("T cell, naïve/CD4+", "b")
    assert {item.compounds for item in screen.perturbations.values()} == {(odd["G1"],), (odd["G2"],)}


def test_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    adata = study(counts())
    adata.write_h5ad(tmp_path / "in.h5ad")
    with pytest.raises(InputError, match="no cell is labelled"):
        prepare_file(tmp_path / "in.h5ad", tmp_path / "out.h5ad", **(ASKED | {"control": "none of them"}))
    assert [item.name for item in tmp_path.iterdir()] == ["in.h5ad"]
    report = prepare_file(input=tmp_path / "in.h5ad", output=tmp_path / "new" / "out.zarr", **ASKED)
    screen = read_screen(tmp_path / "new" / "out.zarr")
    assert screen.name == report.name == "in"
    assert set(screen.obs["perturbation"]) == {CONTROL, "CRISPRi:G1", "CRISPRi:G2"}


def test_input_is_never_overwritten_and_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.h5ad"
    study(counts()).write_h5ad(path)
    with pytest.raises(InputError, match="would overwrite the input"):
        prepare_file(path, tmp_path / "." / "in.h5ad", **ASKED)
    with pytest.raises(InputError, match=r"output: .*\.h5ad or \.zarr"):
        prepare_file(path, tmp_path / "out.csv", **ASKED)


def test_screen_is_not_prepared_twice(tmp_path: Path) -> None:
    study(counts()).write_h5ad(tmp_path / "in.h5ad")
    prepare_file(tmp_path / "in.h5ad", tmp_path / "out.h5ad", **ASKED)
    with pytest.raises(InputError, match=r"out.h5ad: .* is a screen already.*read_screen"):
        prepare_file(tmp_path / "out.h5ad", tmp_path / "again.h5ad", **ASKED)


@pytest.mark.parametrize("content", [b"", b"no hdf5 at all"])
def test_broken_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in.h5ad"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"in\.h5ad: cannot be read as AnnData"):
        prepare_file(path, tmp_path / "out.h5ad", **ASKED)


def test_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "in.h5ad"
    study(counts()).write_h5ad(path)
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(InputError, match=r"in\.h5ad: cannot be read as AnnData"):
        prepare_file(path, tmp_path / "out.h5ad", **ASKED)


@pytest.mark.parametrize(
    ("option", "value", "parts"),
    [
        ("contxt", "line", ["option", "'contxt'", "Did you mean 'context'"]),
        ("total", "many", ["total", "number", "'many'"]),
        ("total", "0", ["total", "positive"]),
        ("keep_counts", "maybe", ["keep_counts", "true or false"]),
        ("dialect", "gear", ["dialect", "Did you mean 'gears'"]),
        ("duplicates", "mean", ["duplicates", "'mean'"]),
        ("names", "a:b", ["names", "{old: new}"]),
        ("context_value", "x", ["context_value", "twice"]),
    ],
)
def test_option_that_cannot_be_read_is_refused(option: str, value: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        prepare(study(counts()), name="s", **(ASKED | {option: value}))
    for part in parts:
        assert part in str(caught.value)


needs_data = pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")


@needs_data
def test_perturbench_file_is_recognised_and_needs_its_total_only() -> None:
    adata = ad.read_h5ad(SHARED / "perturbench" / "devel.h5ad")
    with pytest.raises(InputError, match="Declare it, for example total=10000"):
        prepare(adata, name="devel")
    screen, report = prepare(adata, name="devel", total=10_000)
    assert report.dialect == "perturbench"
    assert (len(screen.obs), len(screen.genes), len(screen.conditions)) == (5_961, 500, 60)
    mechanisms = screen.conditions.groupby("context")["mechanism"].unique().map(list).to_dict()
    assert mechanisms == {"A172": ["CRISPRi"], "T98G": ["CRISPRi"], "U87MG": ["CRISPRi"], "k562": ["CRISPRa"]}
    assert (screen.conditions["n_parts"] == 2).sum() == 15
    np.testing.assert_allclose(screen.X.toarray(), adata.X.toarray(), rtol=1e-6)


@needs_data
def test_papalexi_file_is_recognised_as_scperturb() -> None:
    adata = ad.read_h5ad(SHARED / "papalexi" / "papalexi_thp1_eccite.h5ad")
    screen, report = prepare(adata, name="papalexi", keep="grna_dominance>=0.8", batch="bio_rep")
    assert report.dialect == "scperturb"
    assert (report.cells_read, report.cells_kept, screen.total) == (20_729, 16_192, 188)
    assert set(screen.conditions["mechanism"]) == {"CRISPR-KO"}
    assert set(screen.obs["batch"]) == {"rep_1", "rep_2", "rep_3"}
