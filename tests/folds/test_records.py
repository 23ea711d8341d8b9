"""Somebody else's question-answer records, by a map of their fields."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from pertbase.errors import InputError, PertbaseError
from pertbase.folds import FieldMap, FoldMaker, FoldSpec, OutcomeTable, check_fold, data, load_records, read_records

FIELDS = {"id": "id", "context": "meta.cell", "perturbation": "perturbation", "gene": "gene", "outcome": "answer"}
FILES = {"train": "train.jsonl", "test": "test/*.jsonl"}
GENES = ("G1", "G2", "G3", "G4", "G5")


def write(path: Path, *records: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def record(perturbation: Any, gene: str = "G1", answer: Any = "up", cell: str = "K562", **more: Any) -> dict[str, Any]:
    return {
        "id": f"{perturbation}-{gene}-{cell}",
        "meta": {"cell": cell},
        "perturbation": perturbation,
        "gene": gene,
        "answer": answer,
        **more,
    }


def asked(perturbations: str, cell: str) -> list[dict[str, Any]]:
    """Return five questions of each perturbation, named by one letter."""
    words = ("up", "down", "no_change")
    return [
        record(name, gene, words[(row + column) % 3], cell)
        for row, name in enumerate(perturbations)
        for column, gene in enumerate(GENES)
    ]


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Train on K562; one test fold asks about new genes, one about a new cell line."""
    write(tmp_path / "train.jsonl", *asked("ABCDEFGH", "K562"))
    write(tmp_path / "test" / "unseen_gene.jsonl", *asked("PQ", "K562"))
    write(tmp_path / "test" / "unseen_cell.jsonl", *asked("ABC", "RPE1"))
    return tmp_path


def load(folder: Path, **options: Any) -> OutcomeTable:
    return load_records(**{"fields": FIELDS, "files": FILES, "path": folder, "mechanism": "CRISPRi", **options})


def test_records_become_questions_by_the_map(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", record("MYC+TP53", "CDKN1A", "Up-regulated"), record("MYC", "G2", "no change"))
    found = read_records(path, FIELDS, mechanism="CRISPR interference")
    assert found.table.to_dict("records") == [
        {
            "context": "K562",
            "perturbation": "CRISPRi:MYC+TP53",
            "gene": "CDKN1A",
            "outcome": "up",
            "id": "MYC+TP53-CDKN1A-K562",
        },
        {"context": "K562", "perturbation": "CRISPRi:MYC", "gene": "G2", "outcome": "no_change", "id": "MYC-G2-K562"},
    ]
    assert found.perturbations["CRISPRi:MYC+TP53"].is_combination


def test_drugs_have_targets_and_doses_and_mechanisms_of_their_own(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.jsonl",
        record("trametinib", kind="small molecule", target=["MAP2K1", "MAP2K2"], dose=0.5),
        record(["MYC", "TP53"], kind="CRISPRa"),
        record("nutlin", kind="drug", target="MDM2, TP53", dose=None),
    )
    keys = {**FIELDS, "mechanism": "kind", "targets": "target", "dose": "dose"}
    found = read_records(path, keys).perturbations
    assert set(found) == {"drug:trametinib@0.5", "CRISPRa:MYC+TP53", "drug:nutlin"}
    assert found["drug:trametinib@0.5"].signs == {"MAP2K1": 0, "MAP2K2": 0}
    assert found["drug:nutlin"].targets == ("MDM2", "TP53")
    signed = read_records(path, keys, targets={"nutlin": {"MDM2": -1}}).perturbations
    assert signed["drug:nutlin"].signs == {"MDM2": -1}


def test_paths_and_texts_are_kept_as_they_are_and_may_be_absent(tmp_path: Path) -> None:
    paths = [["A", "activates", "B"]]
    path = write(tmp_path / "r.jsonl", record("A", why={"paths": paths}), record("B"))
    table = read_records(path, {**FIELDS, "reference_paths": "why.paths"}, mechanism="CRISPRi").table
    assert list(table["reference_paths"]) == [paths, None]


def test_numbers_spell_outcomes_with_their_sign(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", record("A", answer=1), record("B", answer=-1), record("C", answer=0))
    words = {"up": ["1"], "down": ["-1"], "no_change": ["0"]}
    assert list(read_records(path, FIELDS, mechanism="CRISPRi", outcomes=words).table["outcome"]) == [
        "up",
        "down",
        "no_change",
    ]


def test_field_the_records_lack_lists_the_keys_they_have(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", record("A"))
    with pytest.raises(InputError) as caught:
        read_records(path, {**FIELDS, "context": "cell_line"}, mechanism="CRISPRi")
    for part in ("r.jsonl", "line 1: cell_line", "no field for context", "'meta.cell'", "Say fields.context=KEY"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "parts"),
    [("sideways", ["line 2: answer", "'sideways'", "Say which it is with outcomes="]), (None, ["line 2: answer"])],
)
def test_answer_that_is_no_outcome_is_refused(tmp_path: Path, answer: Any, parts: list[str]) -> None:
    path = write(tmp_path / "r.jsonl", record("A"), record("B", answer=answer))
    with pytest.raises(InputError) as caught:
        read_records(path, FIELDS, mechanism="CRISPRi")
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"id": 1}\n\n{"id": \n', ["line 1", "perturbation"]),
        ("{not json\n", ["line 1", "is not JSON"]),
        ("[1, 2]\n", ["line 1", "is not a record"]),
        ("", ["holds no records"]),
        (json.dumps(record("A+A")), ["line 1: perturbation", "a part is given twice"]),
        (json.dumps(record("")), ["line 1: perturbation", "is not the text of a perturbation"]),
    ],
)
def test_line_that_cannot_be_read_is_named(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_records(path, FIELDS, mechanism="CRISPRi")
    for part in ["r.jsonl", *parts]:
        assert part in str(caught.value)


def test_mechanism_is_never_guessed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="never guessed"):
        read_records(write(tmp_path / "r.jsonl", record("A")), FIELDS)


@pytest.mark.parametrize(
    ("fields", "match"), [({"genes": "g"}, "Did you mean 'gene'"), ({"gene": "g"}, "fields.context")]
)
def test_map_with_an_unknown_or_missing_field_is_refused(fields: dict[str, str], match: str) -> None:
    with pytest.raises(InputError, match=match):
        FieldMap.of(fields)


# -- shipped folds


def test_each_shipped_test_fold_is_a_table_with_the_shared_train(shipped: Path) -> None:
    with pytest.raises(InputError, match="ships 2 test folds") as caught:
        load(shipped)
    assert "Name one: unseen_cell, unseen_gene" in str(caught.value)
    table = load(shipped, name="qa", fold="unseen_gene")
    assert (table.name, len(table), table.contexts) == ("qa_unseen_gene", 50, ("K562",))
    assert table.table.groupby("split", observed=True).size().to_dict() == {"train": 40, "test": 10}
    with pytest.raises(InputError, match="Did you mean 'unseen_cell'"):
        load(shipped, fold="unseen_cells")


@pytest.mark.parametrize("name", ["unseen_gene", "unseen_cell"])
def test_shipped_split_becomes_one_sound_fold(shipped: Path, tmp_path: Path, name: str) -> None:
    table = load(shipped, fold=name)
    maker = FoldMaker(table)
    (spec,) = maker.expand(FoldSpec(kind="published"))
    fold = maker.build(spec, tmp_path / "folds")
    test = fold.questions.loc[fold.questions["split"] == "test"]
    assert set(test["context"]) == {"RPE1" if name == "unseen_cell" else "K562"}
    assert set(test["targets"]) == set("ABC" if name == "unseen_cell" else "PQ")
    assert set(fold.questions["split"]) == {"train", "val", "test"}
    assert fold.folder is not None
    assert check_fold(fold.folder).problems == ()


def test_shipped_val_is_taken_as_it_is(shipped: Path) -> None:
    write(shipped / "val.jsonl", *asked("XY", "K562"))
    table = load(shipped, fold="unseen_gene", files={**FILES, "val": "val.jsonl"})
    fold = FoldMaker(table).make(FoldSpec(kind="published"))
    by_split = fold.conditions.groupby("split")["targets"].agg(set).to_dict()
    assert by_split == {"train": set("ABCDEFGH"), "val": set("XY"), "test": set("PQ")}


def test_records_may_name_their_split_and_fold_themselves(tmp_path: Path) -> None:
    rows = [
        *({**row, "part": "train"} for row in asked("ABCDEF", "K562")),
        *({**row, "part": "validation"} for row in asked("XY", "K562")),
        *({**row, "part": "test", "set": "one"} for row in asked("P", "K562")),
        *({**row, "part": "test", "set": "two"} for row in asked("Q", "K562")),
    ]
    path = write(tmp_path / "all.jsonl", *({"set": "", **row} for row in rows))
    keys = {**FIELDS, "split": "part", "fold": "set"}
    table = load(path, fields=keys, files={"all": "*"}, fold="two")
    assert table.table.groupby("split", observed=True)["perturbation"].agg(lambda found: len(set(found))).to_dict() == {
        "train": 6,
        "val": 2,
        "test": 1,
    }
    assert set(table.table.loc[table.table["split"] == "test", "perturbation"]) == {"CRISPRi:Q"}


def test_condition_in_two_splits_is_refused(shipped: Path) -> None:
    write(shipped / "val.jsonl", record("A", "G9", "up"))
    with pytest.raises(InputError, match=r"1 conditions lie in two splits.*[Ss]ay files\.val=null"):
        load(shipped, fold="unseen_gene", files={**FILES, "val": "val.jsonl"})
    write(shipped / "test" / "leak.jsonl", record("A", "G9", "up"))
    with pytest.raises(InputError, match=r"test and train.*cannot be trained on"):
        load(shipped, fold="leak")


def test_question_with_two_outcomes_is_refused_and_a_repeated_one_is_asked_once(shipped: Path) -> None:
    write(shipped / "test" / "twice.jsonl", record("P", "G1", "up"), record("P", "G1", "up"))
    assert (load(shipped, fold="twice").table["split"] == "test").sum() == 1
    write(shipped / "test" / "torn.jsonl", record("P", "G1", "up"), record("P", "G1", "down"))
    with pytest.raises(InputError, match=r"1 questions have two outcomes.*CRISPRi:P"):
        load(shipped, fold="torn")


def test_pattern_that_fits_no_file_lists_the_files_there_are(shipped: Path) -> None:
    with pytest.raises(
        InputError, match=r"holds no file for val.*test/unseen_cell\.jsonl, test/unseen_gene\.jsonl, train"
    ):
        load(shipped, files={**FILES, "val": "val*.jsonl"}, fold="unseen_gene")


def test_shipped_configuration_names_every_field_and_reads_a_folder(shipped: Path) -> None:
    text = files("pertbase.conf").joinpath("data", "pertreasonqa.yaml").read_text()
    config = yaml.safe_load(text)
    assert set(config["fields"]) == set(FieldMap.__dataclass_fields__)
    with pytest.raises(InputError, match=r"files\.val"):
        data("pertreasonqa", path=shipped)
    table = data("pertreasonqa", path=shipped, files=FILES, fields=FIELDS, mechanism="CRISPRi", fold="unseen_cell")
    assert isinstance(table, OutcomeTable)
    assert table.name == "pertreasonqa_unseen_cell"


def test_without_the_hub_the_extra_and_the_way_around_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PertbaseError, match=r"pertbase\[hub\].*path=FOLDER"):
        data("pertreasonqa")


def test_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(PertbaseError, match=r"datasets/yiminggao618/PertReasonQA could not be fetched.*path=FOLDER"):
        data("pertreasonqa")
