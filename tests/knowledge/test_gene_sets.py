"""Gene sets: read from files and packages, refused where they are none, and carried by a screen that brings its own."""

from __future__ import annotations

import gzip
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError, PertbaseError
from pertbase.folds import FoldMaker, FoldSpec, read_screen, write_screen
from pertbase.knowledge import default_gene_sets, gene_sets, membership, read_gene2go, read_gmt


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["sets.gmt", "sets.gmt.gz"])
def test_gmt_files_are_read(tmp_path, name):
    path = write(tmp_path / name, "one\tabout it\tB\tA,0.5\tA\t\n\ntwo\t\tC\r\n")
    assert dict(read_gmt(path)) == {"one": ("A", "B"), "two": ("C",)}
    assert dict(gene_sets(path)) == dict(read_gmt(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no gene sets"),
        ("one\tabout\n", "line 1"),
        ("one\t\tA\none\t\tB\n", "a set comes twice"),
        ("<html>403</html>\n", "line 1"),
    ],
)
def test_what_is_no_gmt_file_is_told_with_the_line(tmp_path, text, told):
    with pytest.raises(InputError, match=told):
        read_gmt(write(tmp_path / "sets.gmt", text))


def test_an_absent_and_a_broken_file_are_told(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_gmt(tmp_path / "none.gmt")
    (tmp_path / "cut.gmt.gz").write_bytes(gzip.compress("".join(f"s{n}\t\tG{n}\n" for n in range(99)).encode())[:60])
    with pytest.raises(InputError, match="cannot be read as text"):
        read_gmt(tmp_path / "cut.gmt.gz")
    with pytest.raises(InputError, match="places looked at"):
        gene_sets("absent.gmt")


NCBI = (
    "#tax_id\tGeneID\tGO_ID\tEvidence\tQualifier\tGO_term\tPubMed\tCategory\n"
    "9606\t1\tGO:1\tIEA\tinvolved_in\tx\t-\tProcess\n"
    "9606\t2\tGO:1\tIEA\tinvolved_in\tx\t-\tProcess\n"
    "9606\t2\tGO:1\tIDA\tinvolved_in\tx\t-\tProcess\n"
    "9606\t3\tGO:1\tIEA\tNOT involved_in\tx\t-\tProcess\n"
    "9606\t1\tGO:2\tIEA\tenables\tx\t-\tFunction\n"
    "10090\t1\tGO:3\tIEA\tinvolved_in\tx\t-\tProcess\n"
    "9606\t4\tGO:1\tIEA\tinvolved_in\tx\t-\tProcess\n"
)


@pytest.mark.parametrize("name", ["gene2go", "gene2go.gz"])
def test_gene2go_of_ncbi_needs_symbols_and_takes_human_processes(tmp_path, name):
    path = write(tmp_path / name, NCBI)
    with pytest.raises(InputError, match=r"Homo_sapiens\.gene_info"):
        read_gene2go(path)
    assert dict(read_gene2go(path, symbols={1: "A", 2: "B", 3: "C"})) == {"GO:1": ("A", "B")}
    write(tmp_path / "Homo_sapiens.gene_info.gz", "#tax_id\tGeneID\tSymbol\n9606\t1\tA\n9606\t2\tB\n9606\t3\tC\n")
    assert dict(gene_sets(path)) == {"GO:1": ("A", "B")}


@pytest.mark.parametrize(("name", "separator"), [("sets.tsv", "\t"), ("sets.csv", ","), ("sets.tsv.gz", "\t")])
def test_a_table_of_genes_and_sets_is_read_with_names_that_look_like_nothing(tmp_path, name, separator):
    rows = [("gene", "set"), ("NA", "s"), ("B", "s"), ("B", "s"), ("B", "1")]
    path = write(tmp_path / name, "".join(separator.join(row) + "\n" for row in rows))
    assert dict(gene_sets(path)) == {"1": ("B",), "s": ("B", "NA")}


def test_a_table_without_the_columns_is_told(tmp_path):
    with pytest.raises(InputError, match="no table of annotations"):
        read_gene2go(write(tmp_path / "t.tsv", "symbol\tterm\nA\tx\n"))


def test_the_pickle_of_cell_gears_is_read_and_never_run(tmp_path):
    path = tmp_path / "gene2go.pkl"
    path.write_bytes(pickle.dumps({"A": {"GO:1", "GO:2"}, "B": {"GO:1"}}))
    assert dict(gene_sets(path)) == {"GO:1": ("A", "B"), "GO:2": ("A",)}
    mark = tmp_path / "ran"

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(mark),)

    path.write_bytes(pickle.dumps({"A": Malicious()}))
    with pytest.raises(InputError, match="would run code"):
        gene_sets(path)
    assert not mark.exists()
    path.write_bytes(b"<html>403 Forbidden</html>")
    with pytest.raises(InputError, match="cannot be read as a pickle"):
        gene_sets(path)
    path.write_bytes(pickle.dumps(["A"]))
    with pytest.raises(InputError, match="does not map genes to terms"):
        gene_sets(path)


def test_default_sets_come_with_a_package():
    sets = default_gene_sets()
    genes = {gene for members in sets.values() for gene in members}
    assert (len(sets), len(genes)) == (5407, 14698)
    assert {"TP53", "STAT1", "IRF1"} <= genes
    assert gene_sets("GO_Biological_Process_2023").keys() == sets.keys()


def test_the_sets_of_msigdb_are_named_and_a_copy_is_asked_for_its_checksum(tmp_path, monkeypatch):
    monkeypatch.setenv("PERTBASE_DATA", str(tmp_path))
    path = tmp_path / "msigdb" / "c5.go.bp.v2023.2.Hs.symbols.gmt"
    path.parent.mkdir()
    path.write_text("GOBP_ONE\thttp://x\tA\tB\r\n", encoding="utf-8")
    assert dict(gene_sets("c5.go.bp.v2023.2")) == {"GOBP_ONE": ("A", "B")}
    path.write_text("GOBP_ONE\thttp://x\tA\tC\r\n", encoding="utf-8")
    with pytest.raises(PertbaseError, match="sha256"):
        gene_sets("c5.go.bp.v2023.2")


def test_a_mistyped_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="id you mean"):
        gene_sets("GO_Biological_Process_2022")


def test_membership_is_a_matrix_of_genes_and_sets():
    found = membership({"x": ("A", "B", "Z"), "y": ("B",)}, pd.Index(["B", "C", "A"]))
    np.testing.assert_array_equal(found.toarray(), [[1, 1], [0, 0], [1, 0]])


def test_a_screen_carries_its_gene_sets_to_training_and_through_files(simulation, tmp_path):
    screen = simulation.screen
    assert dict(screen.gene_sets) == dict(simulation.gene_sets)
    keep = screen.obs["context"].isin(screen.contexts[:1]).to_numpy()
    small = screen.subset(keep)
    write_screen(small, tmp_path / "s.h5ad")
    again = read_screen(tmp_path / "s.h5ad")
    assert dict(again.gene_sets) == dict(screen.gene_sets)
    assert again.hash == small.hash
    fold = FoldMaker(again).make(FoldSpec(kind="unseen_perturbation_genetic"))
    training = fold.make_training(seed=0, cells=False)
    assert dict(training.gene_sets) == dict(screen.gene_sets)
    assert dict(training.part("train").gene_sets) == dict(screen.gene_sets)


def test_other_gene_sets_make_another_screen(simulated):
    other = replace(simulated, gene_sets={"S": ("SG001", "SG002")})
    none = replace(simulated, gene_sets=None)
    assert len({other.hash, none.hash, simulated.hash}) == 3
