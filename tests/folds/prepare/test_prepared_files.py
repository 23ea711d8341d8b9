"""Cells, names, options and files of other people become the contract, or are refused with a remedy."""

from __future__ import annotations

from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from prepare_study import ASKED, counts, study

from pertbase.errors import InputError
from pertbase.folds import CONTROL, prepare, prepare_file, read_screen

SHARED = Path(__file__).parents[4] / "shared" / "data"


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


def test_a_context_of_controls_alone_has_no_smallest_condition() -> None:
    adata = study(counts())
    adata.obs.loc[adata.obs["line"] == "b", "what"] = "ctrl"
    _, report = prepare(adata, name="s", **ASKED)
    assert report.conditions.loc["b"].tolist() == [45, 45, 0, pd.NA]
    assert report.conditions.loc["a", "smallest"] == 15
    assert "<NA>" in str(report)


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
