"""Files laid out as the studies that can be fetched are: our options for them read what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds import Screen, data, prepare


def write(path: Path, genes: list[str], var: dict[str, Any] | None = None, **obs: Any) -> Path:
    """Write counts in which every gene is seen in every cell, but the last, which perturbed cells alone have."""
    table = pd.DataFrame(obs)
    table.index = pd.Index([f"c{i}" for i in range(len(table))])
    values = np.random.default_rng(0).poisson(3, (len(table), len(genes))).astype(np.float32) + 1
    values[table["perturbation"].isin(CONTROLS).to_numpy(), -1] = 0
    ad.AnnData(sparse.csr_matrix(values), table, pd.DataFrame(var or {}, index=genes)).write_h5ad(path)
    return path


CONTROLS = ("control", "62(mod)_pBA581", "63(mod)_pBA580", "Gal4-4(mod)_pBA582")
GENES = [f"G{i}" for i in range(1, 8)]


def load(name: str, path: Path) -> Screen:
    screen = data(name, path=path, url="", checksum=None, size=None)
    assert isinstance(screen, Screen)
    return screen


def test_norman_is_activation_with_pairs(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f.h5ad",
        [*GENES, "RARE"],
        perturbation=["control", "CBL", "CBL_UBASH3A", "UBASH3A"] * 3,
        nperts=[0, 1, 2, 1] * 3,
        perturbation_type="CRISPR",
        cell_line="K562",
        gemgroup=[1, 2, 3] * 4,
    )
    screen = load("norman", path)
    assert set(screen.perturbations) == {"CRISPRa:CBL", "CRISPRa:UBASH3A", "CRISPRa:CBL+UBASH3A"}
    assert screen.contexts == ("K562",)
    assert set(screen.obs["batch"]) == {"1", "2", "3"}
    assert list(screen.genes) == GENES


def test_adamson_names_guides_and_not_genes(tmp_path: Path) -> None:
    labels = ["63(mod)_pBA580", "62(mod)_pBA581", "Gal4-4(mod)_pBA582", "OST4_pDS353", "SPI1_pDS255", "*", None]
    path = write(
        tmp_path / "f.h5ad",
        [*GENES, "RARE"],
        perturbation=labels * 2,
        nperts=[2, 2, 2, 2, 2, 1, 0] * 2,
        perturbation_type="CRISPR",
        cell_line="K562",
    )
    screen = load("adamson", path)
    assert set(screen.perturbations) == {"CRISPRi:OST4", "CRISPRi:SPI1"}
    assert (len(screen.obs), int(screen.obs["is_control"].sum())) == (10, 6)


@pytest.mark.parametrize(("name", "context"), [("replogle_k562", "K562"), ("replogle_rpe1", "RPE1")])
def test_replogle_is_interference_in_one_line(tmp_path: Path, name: str, context: str) -> None:
    path = write(
        tmp_path / "f.h5ad",
        GENES,
        perturbation=["control", "AAAS", "AAMP"] * 2,
        gene=["non-targeting", "AAAS", "AAMP"] * 2,
        nperts=[0, 1, 1] * 2,
        perturbation_type="CRISPR",
        batch=[1, 1, 1, 2, 2, 2],
    )
    screen = load(name, path)
    assert set(screen.perturbations) == {"CRISPRi:AAAS", "CRISPRi:AAMP"}
    assert screen.contexts == (context,)
    assert set(screen.obs["batch"]) == {"1", "2"}
    assert list(screen.genes) == GENES


def test_sciplex3_is_drugs_at_doses_with_families_as_targets(tmp_path: Path) -> None:
    rows = [
        ("control", 0.0, "Vehicle", 24.0, "A549"),
        ("control", 0.0, "Vehicle", 24.0, "MCF7"),
        ("(+)-JQ1", 10.0, "Epigenetic Reader Domain", 24.0, "A549"),
        ("(+)-JQ1", 10000.0, "Epigenetic Reader Domain", 24.0, "MCF7"),
        ("Ruxolitinib (INCB018424) ", 1000.0, "JAK", 24.0, "MCF7"),
        ("CUDC-101", 1000.0, "HDAC,HER2,EGFR", 24.0, "A549"),
        ("Resveratrol", 100.0, "Autophagy,Sirtuin", 24.0, "A549"),
        ("Resveratrol", 100.0, "Autophagy,Sirtuin", 72.0, "A549"),
        (None, np.nan, None, np.nan, "A549"),
    ]
    perturbation, dose, target, hours, line = map(list, zip(*rows, strict=True))
    path = write(
        tmp_path / "f.h5ad",
        ["Actb", *GENES, "RARE"],
        {"ensembl_id": ["ENSMUSG00000029580", *(f"ENSG0000000000{i}" for i in range(8))]},
        perturbation=perturbation,
        dose_value=dose,
        dose_unit="nM",
        target=target,
        time=hours,
        cell_line=line,
        replicate=["rep1", "rep2"] * 4 + [None],
        perturbation_type="drug",
        nperts=1,
    )
    screen = load("sciplex3", path)
    assert set(screen.perturbations) == {
        "drug:(+)-JQ1@0.01",
        "drug:(+)-JQ1@10",
        "drug:CUDC-101@1",
        "drug:Resveratrol@0.1",
        "drug:Ruxolitinib (INCB018424)@1",
    }
    assert screen.perturbations["drug:(+)-JQ1@10"].signs == {"BRD2": -1, "BRD3": -1, "BRD4": -1}
    assert screen.perturbations["drug:CUDC-101@1"].signs["ERBB2"] == -1
    assert screen.perturbations["drug:Resveratrol@0.1"].signs == {"SIRT1": 0, "SIRT2": 0}
    assert screen.contexts == ("A549", "MCF7")
    assert len(screen.obs) == 7
    assert list(screen.genes) == GENES


# -- the options behind it


def study(**obs: Any) -> ad.AnnData:
    table = pd.DataFrame({"perturbation": ["control", "A", "B"] * 4, "perturbation_type": "CRISPRi", **obs})
    table.index = pd.Index([f"c{i}" for i in range(len(table))])
    values = np.random.default_rng(1).poisson(2, (len(table), 6)).astype(np.float32) + 1
    values[(table["perturbation"] == "control").to_numpy(), 5] = 0
    var = pd.DataFrame({"id": [*(f"ENSG{i}" for i in range(5)), "ENSMUSG5"]}, index=list("UVWXYZ"))
    return ad.AnnData(sparse.csr_matrix(values), table.assign(cell_line="x"), var)


def test_genes_left_out_still_count_in_the_totals() -> None:
    whole, _ = prepare(study(), name="s", dialect="scperturb", total=100)
    part, report = prepare(study(), name="s", dialect="scperturb", total=100, keep_genes=["id==ENSG*"])
    assert list(part.genes) == list("UVWXY")
    np.testing.assert_allclose(part.X.toarray(), whole.X.toarray()[:, :5], rtol=1e-6)
    assert any("1 genes left out: not id==ENSG*; totals are of all genes" in line for line in report.recognised)


def test_gene_is_kept_by_what_controls_show_and_not_by_what_happens_to_it() -> None:
    screen, _ = prepare(study(), name="s", dialect="scperturb", min_detected=0.01)
    assert list(screen.genes) == list("UVWXY")


def test_gene_seen_in_the_controls_of_one_context_is_kept() -> None:
    adata = study()
    adata.obs["cell_line"] = ["x"] * 6 + ["y"] * 6
    values = adata.X.toarray()
    values[6, 5] = 3  # a control of y
    adata.X = sparse.csr_matrix(values)
    assert "Z" in prepare(adata, name="s", dialect="scperturb", min_detected=0.5)[0].genes
    assert "Z" not in prepare(adata, name="s", dialect="scperturb", min_detected=0.6)[0].genes


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"keep_genes": ["id==XYZ*"]}, "no gene is left"),
        ({"keep_genes": ["ids==ENSG*"]}, "var column of keep_genes"),
        ({"keep_genes": ["id"]}, "a var column"),
        ({"min_detected": 1.5}, "share of cells"),
        ({"pattern": "(a"}, "regular expression"),
        ({"pattern": "a"}, "one group"),
        ({"target_names": "HDAC"}, "mapping"),
    ],
)
def test_choice_that_cannot_be_made_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        prepare(study(), name="s", dialect="scperturb", **options)


def test_label_that_does_not_fit_the_pattern_is_left_whole() -> None:
    adata = study(perturbation=["control", "A_pX1", "B_C"] * 4)
    screen, _ = prepare(adata, name="s", dialect="scperturb", pattern="(.+)_p[A-Z]+[0-9]+", separator="none")
    assert set(screen.perturbations) == {"CRISPRi:A", "CRISPRi:B_C"}
