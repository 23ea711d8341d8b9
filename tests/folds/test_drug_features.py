"""Fingerprints of compounds, and the tables that say what compounds act on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError, PertbaseError
from pertbase.folds import Part, Perturbation, drug_features, prepare

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
SMILES = {"aspirin": ASPIRIN, "ethanol": "CCO", "left": "C[C@H](N)C(=O)O", "right": "C[C@@H](N)C(=O)O"}


def drug(*names: str) -> Perturbation:
    return Perturbation(tuple(Part("drug", (), name, 0.5) for name in names))


class TestFingerprints:
    @pytest.fixture(autouse=True)
    def _needs_rdkit(self) -> None:
        pytest.importorskip("rdkit")

    def test_rows_are_compounds_and_columns_are_bits(self) -> None:
        table = drug_features(["ethanol", "aspirin", "ethanol"], smiles=SMILES, bits=512)
        assert list(table.index) == ["aspirin", "ethanol"]
        assert table.shape == (2, 512)
        assert set(np.unique(table)) == {0, 1}
        assert table.loc["aspirin"].sum() > table.loc["ethanol"].sum() > 0

    def test_one_molecule_written_in_two_ways_has_one_fingerprint(self) -> None:
        table = drug_features(["a", "b", "c"], smiles={"a": ASPIRIN, "b": "O=C(C)Oc1ccccc1C(O)=O", "c": "CCO"})
        assert (table.loc["a"] == table.loc["b"]).all()
        assert (table.loc["a"] != table.loc["c"]).any()

    def test_mirror_images_differ_only_where_asked(self) -> None:
        plain = drug_features(["left", "right"], smiles=SMILES)
        chiral = drug_features(["left", "right"], smiles=SMILES, chirality=True)
        assert (plain.loc["left"] == plain.loc["right"]).all()
        assert (chiral.loc["left"] != chiral.loc["right"]).any()

    def test_perturbations_give_their_compounds_whatever_the_dose_and_genes_give_none(self) -> None:
        given = {
            item.name: item
            for item in (drug("ethanol", "aspirin"), drug("left"), Perturbation.genetic(["A"], "CRISPRi"))
        }
        table = drug_features(given, smiles=SMILES)
        assert list(table.index) == ["aspirin", "ethanol", "left"]
        assert table.loc[list(drug("ethanol", "aspirin").compounds)].shape == (2, 2048)

    def test_table_of_smiles_is_read_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "smiles.tsv"
        path.write_text(f"smiles\tcompound\tsource\n{ASPIRIN}\taspirin\tPubChem\nCCO\tNA\tPubChem\n")
        table = drug_features(["aspirin", "NA"], smiles=path)
        assert (table.loc["aspirin"] == drug_features(["aspirin"], smiles=SMILES).loc["aspirin"]).all()

    @pytest.mark.parametrize("text", ["C1CC", "not a molecule", "C(C)(C)(C)(C)(C)C"])
    def test_invalid_smiles_is_named_by_its_compound(self, text: str, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(InputError, match="the SMILES of 'broken' cannot be read") as caught:
            drug_features(["ethanol", "broken"], smiles={**SMILES, "broken": text})
        assert repr(text) in str(caught.value)
        assert capfd.readouterr().err == ""

    def test_compound_without_smiles_is_an_error_unless_it_may_be_left_out(self) -> None:
        asked = ["ethanol", "unheard of"]
        with pytest.raises(InputError, match=r"1 of 2 compounds have no SMILES \(got \['unheard of'\]\)"):
            drug_features(asked, smiles={**SMILES, "unheard of": " "})
        assert list(drug_features(asked, smiles=SMILES, missing="omit").index) == ["ethanol"]

    def test_screen_of_genes_has_no_drug_features(self) -> None:
        with pytest.raises(InputError, match="names no compound"):
            drug_features({"CRISPRi:A": Perturbation.genetic(["A"], "CRISPRi")}, smiles=SMILES)


def test_without_rdkit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(PertbaseError, match=r"pip install 'pertbase\[drugs\]'"):
        drug_features(["ethanol"], smiles=SMILES)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("name,smiles\na,C\n", ["compound", "It needs compound, smiles"]),
        ("compound,smiles\na,C\na,CC\n", ["line 3", "two SMILES", "'CC'"]),
    ],
)
def test_table_of_smiles_that_cannot_be_read_is_refused(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "smiles.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        drug_features(["a"], smiles=path)
    for part in ["smiles.csv", *parts]:
        assert part in str(caught.value)


# -- targets named in the file


def study(**obs: Any) -> ad.AnnData:
    names = obs["perturbation"]
    values = np.random.default_rng(0).poisson(3, (len(names), 6)).astype(np.float32) + 1
    genes = ["EGFR", "MYC", "JAK1", "JAK2", "Actb", "TP53"]
    table = pd.DataFrame(
        {"cell_line": "x", "perturbation_type": "drug", **obs}, index=[f"c{i}" for i in range(len(names))]
    )
    var = pd.DataFrame({"id": ["ENSG1", "ENSG2", "ENSG3", "ENSG4", "ENSMUSG5", "ENSG6"]}, index=genes)
    return ad.AnnData(values, table, var)


JAK = {"JAK": {"JAK1": -1, "JAK2": -1}}


def test_targets_are_read_from_a_column_of_obs() -> None:
    adata = study(
        perturbation=["control", "a", "b", "c"],
        target=[None, "JAK, EGFR", "Others", "MYC;TP53"],
        dose_value=[0, 1, 1, 1],
    )
    screen, report = prepare(adata, name="s", targets="obs:target", target_names=JAK)
    assert {name: item.signs for name, item in screen.perturbations.items()} == {
        "drug:a@1": {"EGFR": 0, "JAK1": -1, "JAK2": -1},
        "drug:b@1": {},
        "drug:c@1": {"MYC": 0, "TP53": 0},
    }
    warnings = "\n".join(report.warnings)
    assert (
        "1 names in obs['target'] are neither genes measured nor in target_names, and were left out (Others)"
        in warnings
    )
    assert "1 of 3 compounds have no known target (b)" in warnings


def test_families_that_disagree_on_a_gene_leave_its_sign_unknown() -> None:
    adata = study(perturbation=["control", "a"], target=["", "up,down"])
    screen, _ = prepare(
        adata, name="s", targets="obs:target", target_names={"up": {"MYC": 1}, "down": {"MYC": -1, "TP53": -1}}
    )
    assert screen.perturbations["drug:a"].signs == {"MYC": 0, "TP53": -1}


def test_one_compound_with_two_lists_of_targets_is_refused() -> None:
    adata = study(perturbation=["control", "a", "a"], target=["", "MYC", "TP53"], dose_value=[0, 1, 10])
    with pytest.raises(InputError, match=r"obs\['target'\]: cells of 'a' name different targets"):
        prepare(adata, name="s", targets="obs:target")


def test_column_cannot_say_what_two_drugs_given_at_once_act_on() -> None:
    adata = study(perturbation=["control", "a+b"], target=["", "MYC"], dose_value=["0", "1+1"])
    with pytest.raises(InputError, match="given at once, which cannot be told apart"):
        prepare(adata, name="s", targets="obs:target")


def test_unknown_column_of_targets_answers_with_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'target'"):
        prepare(study(perturbation=["control", "a"], target=["", "MYC"]), name="s", targets="obs:targets")


@pytest.mark.parametrize("form", ["table", "mapping"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_targets_are_read_from_uns(tmp_path: Path, form: str, on_disk: bool) -> None:
    adata = study(perturbation=["control", "a", "b"])
    rows = [("a", "JAK1", -1, "ChEMBL"), ("a", "MYC", 0, "ChEMBL"), ("b", "TP53", 1, "a paper")]
    table = pd.DataFrame(rows, columns=["compound", "target", "sign", "source"])
    adata.uns["drugs"] = table if form == "table" else {"a": {"JAK1": -1, "MYC": 0}, "b": {"TP53": 1}}
    if on_disk:
        adata.write_h5ad(tmp_path / "study.h5ad")
        from pertbase.folds._prepare import prepare_path

        screen, _ = prepare_path(tmp_path / "study.h5ad", targets="uns:drugs")
    else:
        screen, _ = prepare(adata, name="s", targets="uns:drugs")
    assert screen.perturbations["drug:a"].signs == {"JAK1": -1, "MYC": 0}
    assert screen.perturbations["drug:b"].signs == {"TP53": 1}


def test_uns_without_such_a_table_is_refused() -> None:
    with pytest.raises(InputError, match=r"uns\['drugs'\]: holds no table of targets"):
        prepare(study(perturbation=["control", "a"]), name="s", targets="uns:drugs")


def test_table_that_gives_one_target_two_signs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "targets.csv"
    path.write_text("compound,target,sign,source\na,MYC,-1,one\na,MYC,1,two\n")
    with pytest.raises(InputError, match="line 3: one target of one compound has two signs"):
        prepare(study(perturbation=["control", "a"]), name="s", targets=str(path))
