"""Each dialect is recognised and read; what it does not say is asked for, never guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.folds import CONTROL, Part, Perturbation, prepare

GENES = ["AHR", "FEV", "KLF1", "HLA-A", "TP53", "MYC"]


def cells(**columns: Any) -> ad.AnnData:
    """Return one cell a row of the columns, five copies each, with counts."""
    obs = pd.concat([pd.DataFrame(columns)] * 5, ignore_index=True)
    obs.index = obs.index.map("cell{}".format)
    values = np.random.default_rng(0).poisson(3.0, (len(obs), len(GENES))).astype(np.float32) + 1
    return ad.AnnData(values, obs, pd.DataFrame(index=GENES))


def names(adata: ad.AnnData, **options: Any) -> list[str]:
    """Return the names that the first five cells get."""
    screen, _ = prepare(adata, name="s", **options)
    return list(screen.obs["perturbation"][: adata.n_obs // 5])


def test_gears_files_are_read() -> None:
    adata = cells(condition=["ctrl", "AHR+ctrl", "ctrl+AHR", "FEV+AHR", "AHR+FEV"], cell_type="K562")
    screen, report = prepare(adata, name="s", mechanism="CRISPRa")
    assert report.dialect == "gears"
    assert list(screen.obs["perturbation"][:5]) == [
        CONTROL,
        "CRISPRa:AHR",
        "CRISPRa:AHR",
        "CRISPRa:AHR+FEV",
        "CRISPRa:AHR+FEV",
    ]
    assert set(screen.perturbations) == {"CRISPRa:AHR", "CRISPRa:AHR+FEV"}
    assert screen.contexts == ("K562",)


def test_gears_symbols_are_taken_from_gene_name() -> None:
    adata = cells(condition=["ctrl", "AHR+ctrl"], cell_type="K562")
    adata.var["gene_name"] = GENES
    adata.var_names = [f"ENSG{i:011d}" for i in range(len(GENES))]
    screen, report = prepare(adata, name="s", mechanism="CRISPRa")
    assert list(screen.genes) == GENES
    assert not any("not among the genes" in line for line in report.warnings)


def test_scperturb_genetic_files_are_read() -> None:
    adata = cells(
        perturbation=["control", "AHR", "FEV_AHR", "AHR_FEV"],
        cell_line="K562",
        celltype="lymphoblasts",
        perturbation_type="CRISPR-cas9",
        nperts=[0, 1, 2, 2],
    )
    screen, report = prepare(adata, name="s")
    assert report.dialect == "scperturb"
    assert list(screen.obs["perturbation"][:4]) == [CONTROL, "CRISPR-KO:AHR", "CRISPR-KO:AHR+FEV", "CRISPR-KO:AHR+FEV"]
    assert screen.contexts == ("K562",)


def test_underscore_joins_targets_only_where_the_file_shows_it() -> None:
    about = {"cell_line": "K562", "perturbation_type": "CRISPRi"}
    known = cells(perturbation=["control", "AHR", "AHR_FEV"], **about)
    assert names(known)[2] == "CRISPRi:AHR+FEV"
    one = cells(perturbation=["control", "Y_RNA"], **about)
    assert names(one)[1] == "CRISPRi:Y_RNA"
    counted = cells(perturbation=["control", "AHR_FEV"], nperts=[0, 1], **about)
    assert names(counted)[1] == "CRISPRi:AHR_FEV"
    unsure = cells(perturbation=["control", "TP53_sg1"], **about)
    with pytest.raises(InputError, match=r"obs\['perturbation'\]: may be one name or several.*TP53_sg1.*separator="):
        prepare(unsure, name="s")
    assert names(unsure, separator="none")[1] == "CRISPRi:TP53_sg1"
    assert names(unsure, separator="_")[1] == "CRISPRi:TP53+sg1"


def test_scperturb_drugs_and_doses_are_read_in_micromolar() -> None:
    adata = cells(
        perturbation=["control", "(+)-JQ1", "JQ_1", "trametinib", "trametinib"],
        cell_line="A549",
        perturbation_type=["control", "drug", "drug", "drug", "drug"],
        dose_value=[np.nan, 10.0, 500.0, 0.5, 5.0],
        dose_unit=["nan", "nM", "nM", "uM", "µM"],
    )
    screen, report = prepare(adata, name="s")
    assert list(screen.obs["perturbation"][:5]) == [
        CONTROL,
        "drug:(+)-JQ1@0.01",
        "drug:JQ_1@0.5",
        "drug:trametinib@0.5",
        "drug:trametinib@5",
    ]
    assert any("3 of 3 compounds have no known target" in line for line in report.warnings)


def test_doses_in_units_that_cannot_be_compared_are_refused() -> None:
    adata = cells(
        perturbation=["control", "a", "b"],
        cell_line="x",
        perturbation_type="drug",
        dose_value=[0, 1.0, 2.0],
        dose_unit=["uM", "uM", "ng/ml"],
    )
    with pytest.raises(InputError, match=r"obs\['dose_value'\]: .*cannot be compared \(micromolar, ng/ml\)"):
        prepare(adata, name="s")


@pytest.mark.parametrize("dose", ["0", "-1", "high"])
def test_dose_that_is_not_above_zero_is_refused(dose: str) -> None:
    adata = cells(
        perturbation=["control", "a"], cell_line="x", perturbation_type="drug", dose_value=["1", dose], nperts=1
    )
    with pytest.raises(InputError, match=rf"obs\['dose_value'\]: is not a dose above zero \(got '{dose}'\)"):
        prepare(adata, name="s")


def test_perturbench_files_are_read() -> None:
    adata = cells(
        condition=["control", "AHR", "FEV+AHR", "control", "AHR"],
        cell_type="K562",
        perturbation_type="CRISPRi",
        treatment=["none", "none", "none", "nilotinib", "nilotinib"],
        dose=["1", "1", "1+1", "1", "1"],
    )
    screen, report = prepare(adata, name="s", targets={"nilotinib": {"ABL1": -1}})
    assert report.dialect == "perturbench"
    assert list(screen.obs["perturbation"][:5]) == [
        CONTROL,
        "CRISPRi:AHR",
        "CRISPRi:AHR+FEV",
        "drug:nilotinib",
        "CRISPRi:AHR+drug:nilotinib",
    ]
    assert screen.perturbations["CRISPRi:AHR+drug:nilotinib"].modality == "mixed"
    assert screen.perturbations["drug:nilotinib"].targets == ("ABL1",)


def test_drug_combination_is_one_only_with_a_dose_a_part() -> None:
    adata = cells(
        condition=["control", "a+b", "(+)-c"], cell_type="x", perturbation_type="drug", dose=["0", "0.1+2", "3"]
    )
    assert names(adata) == [CONTROL, "drug:a@0.1+b@2", "drug:(+)-c@3"]


@pytest.mark.parametrize("column", ["target_gene", "gene"])
def test_state_files_are_read(column: str) -> None:
    adata = cells(**{column: ["non-targeting", "AHR"]}, cell_line="jurkat", gem_group=[1, 48])
    screen, report = prepare(adata, name="s", mechanism="CRISPRi")
    assert report.dialect == "state"
    assert list(screen.obs["perturbation"][:2]) == [CONTROL, "CRISPRi:AHR"]
    assert set(screen.obs["batch"]) == {"1", "48"}


def test_columns_named_by_the_user_are_read() -> None:
    adata = cells(
        arm=["DMSO", "plate1-7", "plate1-8"],
        substance=["DMSO", "imatinib", "imatinib"],
        level=["0", "10 nM", "1uM"],
        kind="small molecule",
        day=[1, 1, 2],
    )
    screen, report = prepare(
        adata,
        name="s",
        perturbation="arm",
        control="DMSO",
        compound="substance",
        dose="level",
        mechanism="kind",
        batch="day",
        context_value="K562, parental",
    )
    assert report.dialect == "columns"
    assert list(screen.obs["perturbation"][:3]) == [CONTROL, "drug:imatinib@0.01", "drug:imatinib@1"]
    assert screen.contexts == ("K562, parental",)
    assert set(screen.obs["batch"]) == {"1", "2"}


def test_separator_and_names_and_several_controls_are_the_users_to_say() -> None:
    adata = cells(arm=["NT-1", "NT-2", "AHR|FEV", "AHR|NT-1", "p53"], line="x")
    got = names(
        adata,
        perturbation="arm",
        control="[NT-1, NT-2]",
        separator="|",
        names="{p53: TP53}",
        context="line",
        mechanism="CRISPRa",
    )
    assert got == [CONTROL, CONTROL, "CRISPRa:AHR+FEV", "CRISPRa:AHR", "CRISPRa:TP53"]
    assert names(adata, perturbation="arm", control="NT-*", separator="|", context="line", mechanism="CRISPRa")[:2] == [
        CONTROL,
        CONTROL,
    ]


def test_file_that_fits_two_dialects_is_not_guessed() -> None:
    adata = cells(
        perturbation=["control", "AHR"],
        gene=["non-targeting", "AHR"],
        cell_line="K562",
        nperts=[0, 1],
        perturbation_type="CRISPRi",
    )
    with pytest.raises(InputError) as caught:
        prepare(adata, name="s", file="replogle.h5ad")
    message = str(caught.value)
    assert message.startswith("replogle.h5ad: dialect: several dialects fit")
    assert "scperturb (obs['perturbation'] holds 'control', beside nperts)" in message
    assert "state (obs['gene'] holds 'non-targeting')" in message
    assert "dialect=scperturb or dialect=state" in message
    assert names(adata, dialect="scperturb") == names(adata, dialect="state", mechanism="CRISPRi")


def test_file_that_fits_no_dialect_says_what_it_has() -> None:
    with pytest.raises(InputError, match=r"no dialect fits.*\['arm', 'line'\].*perturbation=COLUMN control=LABEL"):
        prepare(cells(arm=["a", "b"], line="x"), name="s")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, r"does not say which context.*context_value=NAME"),
        ({"context": "lin"}, r"obs column of context.*Did you mean 'line'"),
        ({"context": "line"}, r"mechanism: does not say by which mechanism.*never guessed"),
        ({"context": "line", "mechanism": "CRISPRx"}, r"mechanism: unknown mechanism \(got 'CRISPRx'\)"),
        (
            {"context": "line", "mechanism": "CRISPRi", "control": "CTRL"},
            r"obs\['arm'\]: no cell is labelled.*\. Did you mean control=ctrl \(5 cells\)\?$",
        ),
        ({"context": "line", "mechanism": "CRISPRi", "batch": "lane"}, r"obs column of batch.*'lane'"),
    ],
)
def test_what_is_needed_and_not_said_is_asked_for(options: dict[str, str], match: str) -> None:
    adata = cells(arm=["ctrl", "AHR"], line="x")
    with pytest.raises(InputError, match=match):
        prepare(adata, name="s", perturbation="arm", **options)


@pytest.mark.parametrize(
    ("spelling", "mechanism"),
    [
        ("CRISPR_KO", "CRISPR-KO"),
        ("CRISPRko", "CRISPR-KO"),
        ("crispr-cas9", "CRISPR-KO"),
        ("Knockout", "CRISPR-KO"),
        ("CRISPRi", "CRISPRi"),
        ("CRISPR interference", "CRISPRi"),
        ("dCas9-KRAB", "CRISPRi"),
        ("crispr activation", "CRISPRa"),
        ("small molecule", "drug"),
        ("Cytokine", "ligand"),
    ],
)
def test_common_spellings_of_a_mechanism_are_known(spelling: str, mechanism: str) -> None:
    adata = cells(perturbation=["control", "AHR"], cell_line="x", perturbation_type=spelling)
    assert names(adata)[1] == f"{mechanism}:AHR"
    assert names(adata, mechanism=spelling)[1] == f"{mechanism}:AHR"


def test_spelling_that_is_unknown_or_says_too_little_is_refused() -> None:
    for spelling, problem in (("CRISPR", "does not say which"), ("TALEN", "unknown mechanism")):
        adata = cells(perturbation=["control", "AHR"], cell_line="x", perturbation_type=spelling)
        with pytest.raises(InputError, match=rf"obs\['perturbation_type'\]: {problem}.*'{spelling}'.*CRISPR-KO"):
            prepare(adata, name="s")


def test_parts_may_differ_in_mechanism() -> None:
    adata = cells(
        perturbation=["control", "AHR+b"], cell_line="x", perturbation_type=["control", "CRISPRi+drug"], dose_value="2"
    )
    assert names(adata)[1] == "CRISPRi:AHR+drug:b@2"


def test_same_target_by_two_mechanisms_is_two_perturbations() -> None:
    adata = cells(
        perturbation=["control", "AHR", "AHR"], cell_line="x", perturbation_type=["CRISPRi"] * 2 + ["CRISPRa"]
    )
    assert names(adata) == [CONTROL, "CRISPRi:AHR", "CRISPRa:AHR"]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_perturbation_is_an_error_unless_it_means_control(missing: Any) -> None:
    adata = cells(arm=["AHR", missing], line="x")
    asked = {"perturbation": "arm", "context": "line", "mechanism": "CRISPRi"}
    adata.obs.loc["cell0", "arm"] = "ctrl"
    with pytest.raises(InputError, match=r"obs\['arm'\]: 5 cells do not say what was done.*control=nan"):
        prepare(adata, name="s", control="ctrl", **asked)
    adata.obs.loc["cell0", "arm"] = "AHR"
    assert names(adata, control="nan", **asked) == ["CRISPRi:AHR", CONTROL]
    assert names(adata, control=np.nan, **asked) == ["CRISPRi:AHR", CONTROL]


@pytest.mark.parametrize("label", ["nan", "None", "NA", "<NA>"])
def test_missing_value_that_became_text_is_no_perturbation(label: str) -> None:
    adata = cells(perturbation=["control", "AHR", label], cell_line="x", perturbation_type="CRISPRi")
    with pytest.raises(InputError, match=rf"looks like a missing value \(got '{label}'\)"):
        prepare(adata, name="s")


@pytest.mark.parametrize("label", ["Control", "ctrl", "non-targeting", "NegCtrl0", "DMSO"])
def test_second_kind_of_control_is_no_perturbation(label: str) -> None:
    adata = cells(perturbation=["control", "AHR", label], cell_line="x", perturbation_type="CRISPRi")
    with pytest.raises(InputError, match=rf"looks like a control that was not named as one \(got '{label}'\)"):
        prepare(adata, name="s")
    assert names(adata, control=["control", label])[2] == CONTROL


def test_label_that_names_a_target_twice_or_not_at_all_is_refused() -> None:
    for label, problem in (("AHR+AHR", "given twice"), ("AHR+", "missing value")):
        adata = cells(condition=["ctrl", "AHR+ctrl", label], cell_type="x")
        with pytest.raises(InputError, match=rf"obs\['condition'\]: .*{problem}"):
            prepare(adata, name="s", mechanism="CRISPRa")


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_targets_of_compounds_come_from_a_table(tmp_path: Path, suffix: str, separator: str) -> None:
    path = tmp_path / f"targets{suffix}"
    rows = [("compound", "target", "sign"), ("a", "MYC", "-1"), ("a", "TP53", "1"), ("elsewhere", "AHR", "0")]
    path.write_text("\n".join(separator.join(row) for row in rows))
    adata = cells(perturbation=["control", "a", "b"], cell_line="x", perturbation_type="drug")
    screen, report = prepare(adata, name="s", targets=str(path))
    assert screen.perturbations["drug:a"] == Perturbation((Part("drug", (("MYC", -1), ("TP53", 1)), "a"),))
    assert any("1 of 2 compounds have no known target (b)" in line for line in report.warnings)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("compound,gene,sign\na,MYC,1\n", ["target", "compound, target, sign"]),
        ("compound,target,sign\na,MYC,down\n", ["line 2", "'down'", "Use 0"]),
        ("compound,target,sign\na,,1\n", ["line 2", "needs a target"]),
    ],
)
def test_table_of_targets_that_cannot_be_read_is_refused(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "targets.csv"
    path.write_text(text)
    adata = cells(perturbation=["control", "a"], cell_line="x", perturbation_type="drug")
    with pytest.raises(InputError) as caught:
        prepare(adata, name="s", targets=str(path))
    for part in ["targets.csv", *parts]:
        assert part in str(caught.value)


def test_contexts_are_renamed_on_request() -> None:
    adata = cells(condition=["ctrl", "AHR+ctrl"], cell_type="k562")
    screen, _ = prepare(adata, name="s", mechanism="CRISPRi", context_names={"k562": "K562"})
    assert screen.contexts == ("K562",)
