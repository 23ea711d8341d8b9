"""An outcome table keeps every question once; PerturbQA's two files become one outcome a row."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.folds import OutcomeTable, Perturbation, read_perturbqa

SHARED = Path(__file__).parents[3] / "shared" / "data" / "perturbqa"

DE = [
    ("A", "G1", 1, "train"),
    ("A", "NA", 0, "train"),
    ("B", "G1", 1, "test"),
    ("B", "G2", 0, "test"),
]
DIRECTION = [("B", "G1", 0, "test"), ("A", "G1", 1, "train")]


def write(folder: Path, de: list[tuple[str, str, int, str]], direction: list[tuple[str, str, int, str]]) -> Path:
    for kind, rows in (("de", de), ("dir", direction)):
        lines = ["pert,gene,label,split", *(",".join(map(str, row)) for row in rows)]
        (folder / f"k562-{kind}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_whether_and_where_to_become_three_outcomes(tmp_path: Path) -> None:
    table = read_perturbqa(write(tmp_path, DE, DIRECTION), lines=("K562",))
    rows = table.table.astype(str).itertuples(index=False, name=None)
    assert list(rows) == [
        ("K562", "CRISPRi:A", "G1", "up", "train"),
        ("K562", "CRISPRi:A", "NA", "no_change", "train"),
        ("K562", "CRISPRi:B", "G1", "down", "test"),
        ("K562", "CRISPRi:B", "G2", "no_change", "test"),
    ]
    assert list(table.genes) == ["G1", "G2", "NA"]
    assert list(table.conditions.itertuples(index=False, name=None)) == [
        ("K562", "CRISPRi:A", 0, "genetic", "CRISPRi", "A", "gene:A", 1),
        ("K562", "CRISPRi:B", 0, "genetic", "CRISPRi", "B", "gene:B", 1),
    ]


@pytest.mark.parametrize(
    ("de", "direction", "parts"),
    [
        (DE, DIRECTION[:1], ["k562-de.csv", "line 2", "no direction in k562-dir.csv", "'A', 'G1'"]),
        (DE, [*DIRECTION, ("B", "G2", 1, "test")], ["k562-dir.csv", "line 4", "does not call"]),
        (DE, [*DIRECTION, ("B", "G9", 1, "test")], ["k562-dir.csv", "line 4", "'G9'"]),
        ([*DE, DE[1]], DIRECTION, ["k562-de.csv", "line 6", "given twice"]),
        (DE, [*DIRECTION, DIRECTION[0]], ["k562-dir.csv", "line 4", "given twice"]),
        (DE, [("B", "G1", 0, "train"), DIRECTION[1]], ["k562-dir.csv", "line 2", "another split"]),
        ([*DE, ("A", "G2", 0, "test")], DIRECTION, ["k562-de.csv", "train and test", "['A']"]),
        ([*DE, ("C", "G2", 2, "test")], DIRECTION, ["k562-de.csv", "line 6", "not 0 or 1"]),
    ],
)
def test_files_that_disagree_are_refused_by_line(
    tmp_path: Path,
    de: list[tuple[str, str, int, str]],
    direction: list[tuple[str, str, int, str]],
    parts: list[str],
) -> None:
    write(tmp_path, de, direction)
    with pytest.raises(InputError) as caught:
        read_perturbqa(tmp_path, lines=("K562",))
    for part in parts:
        assert part in str(caught.value)


def test_absent_file_and_unknown_line_and_missing_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"k562-de\.csv: there is no such file"):
        read_perturbqa(tmp_path, lines=("K562",))
    with pytest.raises(InputError, match=r"unknown line.*Did you mean 'K562'"):
        read_perturbqa(tmp_path, lines=("k562",))
    (tmp_path / "k562-de.csv").write_text("pert,gene,label\nA,G1,1\n")
    with pytest.raises(InputError, match=r"k562-de\.csv: split: lacks columns"):
        read_perturbqa(tmp_path, lines=("K562",))


PERTURBATIONS = {item.name: item for item in (Perturbation.genetic([gene], "CRISPRi") for gene in "AB")}
TABLE = pd.DataFrame(
    {
        "context": ["x", "x", "y"],
        "perturbation": ["CRISPRi:B", "CRISPRi:A", "CRISPRi:A"],
        "gene": ["G1", "G1", "G2"],
        "outcome": ["up", "no_change", "down"],
    }
)


def make(table: pd.DataFrame) -> OutcomeTable:
    return OutcomeTable(name="t", table=table, perturbations=PERTURBATIONS)


def test_hash_depends_on_what_is_said_and_not_on_order_or_storage() -> None:
    first = make(TABLE)
    assert make(TABLE.iloc[::-1].astype("category")).hash == first.hash
    for column, value in (("outcome", "up"), ("gene", "G3"), ("context", "z")):
        changed = TABLE.copy()
        changed.loc[2, column] = value
        assert make(changed).hash != first.hash
    with_split = make(TABLE.assign(split="train"))
    assert with_split.hash != first.hash
    assert with_split.has_split
    assert not first.has_split
    weaker = PERTURBATIONS | {"CRISPRi:A": Perturbation.genetic("A", "CRISPRa")}
    assert OutcomeTable(name="t", table=TABLE, perturbations=weaker).hash != first.hash


def test_repr_counts_the_outcomes() -> None:
    assert repr(make(TABLE)) == (
        "OutcomeTable 't': 3 questions (1 up, 1 down, 1 no_change), 2 contexts, 2 perturbations, 2 readout genes, "
        "no split"
    )
    assert list(make(TABLE).counts().loc["y"]) == [0, 1, 0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"outcome": "higher"}, r"unknown outcome \(got 'higher'\)"),
        ({"outcome": None}, "outcome: has empty values"),
        ({"gene": ""}, "gene: has empty values"),
        ({"perturbation": "C"}, r"unknown perturbation \(got 'C'\)"),
        ({"split": "holdout"}, r"unknown split \(got 'holdout'\)"),
        ({"context": "x", "gene": "G1"}, "asked more than once"),
    ],
)
def test_table_that_breaks_the_contract_is_refused(change: dict[str, str | None], match: str) -> None:
    table = TABLE.assign(split="train")
    for column, value in change.items():
        table.loc[2, column] = value
    with pytest.raises(InputError, match=match):
        make(table)
    with pytest.raises(InputError, match=r"lacks columns.*outcome"):
        make(TABLE.drop(columns="outcome"))


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
def test_perturbqa_is_read_whole_and_fast() -> None:
    start = time.process_time()
    table = read_perturbqa(SHARED)
    assert time.process_time() - start < 5
    assert len(table) == 157_679 + 187_089 + 126_889 + 142_822
    assert table.contexts == ("HepG2", "Jurkat", "K562", "RPE1")
    counts = table.counts().groupby("context", observed=True).sum()
    assert list(counts.loc["K562"]) == [13_571, 6_409, 137_699]
    assert list(counts.loc["RPE1"]) == [10_502, 16_150, 160_437]
    shared = table.conditions.groupby("perturbation", observed=True).size()
    assert (shared == 4).sum() == 827
