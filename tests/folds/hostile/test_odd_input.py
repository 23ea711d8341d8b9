"""Files of the wild, through the program: odd ones are carried to the end, and those that decide nothing say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from wild_study import ASKED, GENES, LABELS, Said, carried, genes, named, options, study

from pertbase.folds import prepare, read_screen

USELESS: dict[str, tuple[Callable[[], ad.AnnData], list[str]]] = {
    "one control cell": (
        lambda: study([*LABELS[1:] * 40, "ctrl"], ["a"], n=281),
        ["no condition of s can be labelled", "truth controls, fewer than 10"],
    ),
    "one cell a perturbation": (
        lambda: study(["ctrl"] * 60 + GENES[:30], ["a"], n=90),
        ["no condition of s can be labelled", "1 cells, fewer than 25", "rule.min_cells"],
    ),
    "two cells": (lambda: study(["ctrl", "G0"], ["a"], n=2), ["no condition of s can be labelled"]),
    "one perturbation": (
        lambda: study(["ctrl", "G0"], ["a", "b"], n=400),
        ["it has 1 target sets", "at least 3 are needed", "val needs a third context"],
    ),
}


@pytest.mark.parametrize("case", USELESS)
def test_screen_that_decides_nothing_is_skipped_with_the_reason(case: str, pertbase: Said, tmp_path: Path) -> None:
    make, parts = USELESS[case]
    said = carried(pertbase, tmp_path, make(), "unseen_perturbation_genetic", "unseen_context_genetic")
    assert "0 done, 4 skipped" in said
    for part in parts:
        assert part in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "adata",
    [study(effects=False), study()[:, :1].copy(), study()[:, :2].copy(), study()[:, :7].copy()],
    ids=["nothing changes", "one gene", "two genes", "every gene is a target"],
)
def test_screen_without_a_class_runs_to_the_end_and_is_not_ranked(
    adata: ad.AnnData, pertbase: Said, tmp_path: Path
) -> None:
    carried(pertbase, tmp_path, adata, "unseen_perturbation_genetic", "unseen_context_genetic")
    code, said = pertbase("report", f"runs={tmp_path / 'runs'}")
    assert code == 0
    assert "Baselines are not ranked: test holds only" in said


# -- odd, and fine -------------------------------------------------------------------------------------------

ODD_LABELS: dict[str, tuple[dict[str, str], set[str]]] = {
    "A+ctrl, ctrl+A, A+B, B+A": (
        {"G0": "G0+ctrl", "G1": "ctrl+G0", "G2": "G3+G4", "G5": "G4+G3", "G6": "ctrl+ctrl"},
        {"CRISPRi:G0", "CRISPRi:G3", "CRISPRi:G4", "CRISPRi:G3+G4"},
    ),
    "commas, slashes, spaces, other scripts": (
        {"G0": "a, b/c [d]", "G1": "β 紫杉醇", "G2": "x=y;z"},
        {"CRISPRi:a, b/c [d]", "CRISPRi:β 紫杉醇", "CRISPRi:x=y;z"},
    ),
    "numbers": ({"G0": "1", "G1": "01", "G2": "1e5"}, {"CRISPRi:1", "CRISPRi:01", "CRISPRi:1e5"}),
    "a newline and a length": ({"G0": "G0\nG1", "G1": "G" * 400}, {"CRISPRi:G0\nG1", "CRISPRi:" + "G" * 400}),
    "words that YAML and spreadsheets change": ({"G0": "NO", "G1": "1-Mar", "G2": "true"}, {"CRISPRi:NO"}),
}


@pytest.mark.parametrize("case", ODD_LABELS)
def test_odd_names_of_perturbations_are_carried_to_the_report(case: str, pertbase: Said, tmp_path: Path) -> None:
    changes, expected = ODD_LABELS[case]
    said = carried(pertbase, tmp_path, named(**changes), "unseen_context_genetic")
    assert "2 done" in said
    assert expected <= set(read_screen(tmp_path / "screen.h5ad").perturbations)


ODD_GENES = {
    "numbers among them": ["1", "2", "3.5", "1e5", "007"],
    "words for nothing": ["NA", "nan", "None", "NULL", "true", "NO", "-"],
    "dates": ["1-Mar", "2-Sep", "2001-09-01", "MARCHF1", "SEPTIN2"],
    "paths": ["A/B", "A", "A/C", ".", "..", "_index", "index", "a.b"],
    "cases and lengths": ["g0", "g1", "x" * 3_000, "β-actin", "紫"],
}


@pytest.mark.parametrize("case", ODD_GENES)
def test_odd_gene_names_are_carried_to_the_report(case: str, pertbase: Said, tmp_path: Path) -> None:
    said = carried(pertbase, tmp_path, genes(*ODD_GENES[case]), "unseen_context_genetic")
    assert "2 done" in said
    assert list(read_screen(tmp_path / "screen.h5ad").genes)[-len(ODD_GENES[case]) :] == ODD_GENES[case]
    assert ("gene symbols are dates (such as 1-Mar)" in said) == (case == "dates")


def test_genes_named_by_position_give_way_to_the_column_of_symbols() -> None:
    adata = study()
    adata.var["gene_name"] = GENES
    adata.var_names = [str(i) for i in range(len(GENES))]
    screen, report = prepare(adata, name="s", **ASKED)
    assert list(screen.genes) == GENES
    assert any("gene_name" in line for line in report.recognised)


@pytest.mark.parametrize(
    "lines",
    [
        ("CD4+ T", "CD4- T", "CD4/T"),
        (".", "..", "~"),
        ("nan", "None", "1"),
        ("x" * 300, "x" * 299, "紫" * 100),
        ("a=b", "[c]", "d,e"),
    ],
    ids=["signs", "paths", "nothings", "lengths", "grammar"],
)
def test_contexts_of_any_name_each_get_a_fold_of_their_own(
    lines: tuple[str, ...], pertbase: Said, tmp_path: Path
) -> None:
    study(lines=lines).write_h5ad(tmp_path / "in.h5ad")
    screen = tmp_path / "screen.h5ad"
    code, said = pertbase("prepare", f"input={tmp_path / 'in.h5ad'}", f"output={screen}", *options())
    assert code == 0, said
    code, said = pertbase(
        "run", "data=h5ad", f"data.path={screen}", "data.name=s", "fold=unseen_context_genetic",
        "fold.test_context=each", "baseline=no_change", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0, said
    assert "3 done" in said
    assert len(list((tmp_path / "runs" / "s").iterdir())) == 3


def test_category_without_cells_is_no_perturbation(pertbase: Said, tmp_path: Path) -> None:
    adata = study()
    adata.obs["what"] = pd.Categorical(adata.obs["what"], categories=[*LABELS, "G30", "control", "nan"])
    adata.obs["line"] = pd.Categorical(adata.obs["line"], categories=["a", "b", "c", "nowhere"])
    assert "2 done" in carried(pertbase, tmp_path, adata, "unseen_context_genetic")
    screen = read_screen(tmp_path / "screen.h5ad")
    assert set(screen.perturbations) == {f"CRISPRi:{label}" for label in LABELS[1:]}
    assert screen.contexts == ("a", "b", "c")


@pytest.mark.parametrize("stored", ["csc", "int16", "float64", "zarr"])
def test_storage_makes_no_difference_to_a_score(stored: str, pertbase: Said, tmp_path: Path) -> None:
    scores = []
    for number, way in enumerate(("plain", stored)):
        folder = tmp_path / str(number)
        folder.mkdir()
        adata = study()
        if way in ("csc", "int16", "float64"):
            change = {"csc": sparse.csc_matrix, "int16": np.int16, "float64": np.float64}[way]
            adata.X = change(adata.X)
        source = folder / ("in.zarr" if way == "zarr" else "in.h5ad")
        adata.write_zarr(source) if way == "zarr" else adata.write_h5ad(source)
        code, said = pertbase("prepare", f"input={source}", f"output={folder / 'screen.h5ad'}", *options())
        assert code == 0, said
        code, said = pertbase(
            "run", "data=h5ad", f"data.path={folder / 'screen.h5ad'}", "data.name=s", "fold=unseen_context_genetic",
            "baseline=perturbed_mean", f"runs={folder / 'runs'}",
        )  # fmt: skip
        assert code == 0, said
        (found,) = (folder / "runs").glob("s/*/*/*/scores.json")
        scores.append(found.read_bytes())
    assert scores[0] == scores[1]
