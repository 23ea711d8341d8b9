"""A fold's small part, and its questions as records: the same fold comes back, with its paths."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import FoldMaker, FoldSpec, OutcomeTable, Part, Perturbation, check_fold, load_records, open_fold
from pertbase.folds._mini import mini, mini_of
from pertbase.folds._shipped_paths import SHIPPED
from pertbase.folds._write_records import target_table, write_records

FIELDS = {
    "id": "id", "context": "meta.cell", "perturbation": "perturbation", "gene": "gene", "outcome": "answer",
    "mechanism": "how", "targets": "targets", "dose": "dose", "candidate_paths": "given",
    "reference_paths": "why.paths", "reference_text": "why.text",
}  # fmt: skip
FILES = {"train": "train.jsonl", "val": "val.jsonl", "test": "test.jsonl"}


def questions(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": [f"q{number:04d}" for number in rng.permutation(n)],
            "split": "test",
            "context": rng.choice(["K", "L"], n),
            "outcome": rng.choice(np.array(["up", "down", "no_change", None], dtype=object), n, p=[0.1, 0.1, 0.7, 0.1]),
            "regime": rng.choice(["near", "far"], n),
        }
    )


def test_a_mini_has_every_stratum_in_its_share() -> None:
    whole = questions()
    part = mini(whole, 100)
    assert len(part) == 100
    keys = ["context", "outcome", "regime"]
    share = whole.groupby(keys, dropna=False).size() / 4
    counts = part.groupby(keys, dropna=False).size()
    assert (counts >= 1).all()
    assert ((counts - share).abs() < 1).all()


def test_a_mini_follows_from_ids_and_seed_alone() -> None:
    whole = questions()
    shuffled = whole.sample(frac=1, random_state=1)
    assert set(mini(whole, 50)["id"]) == set(mini(shuffled, 50)["id"])
    assert set(mini(whole, 50)["id"]) != set(mini(whole, 50, seed=1)["id"])
    with_paths = whole.assign(conflict=np.arange(len(whole)) % 2 == 0)
    assert set(mini(with_paths, 50)["id"]) == set(mini(whole, 50)["id"])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 70))
def test_a_mini_has_as_many_as_asked_for_and_none_twice(size: int, n: int) -> None:
    part = mini(questions(size), n)
    assert len(part) == min(size, n)
    assert part["id"].is_unique


def test_a_mini_of_nothing_is_refused() -> None:
    for text in ("0", "-3", "many"):
        with pytest.raises(InputError, match="is a positive number of questions"):
            mini_of(questions(), text)


def test_a_fold_can_ask_what_paths_reach_alone(maker: FoldMaker) -> None:
    spec = FoldSpec(kind="unseen_perturbation_genetic")
    whole, reached = maker.draw(spec), maker.draw(spec.with_(reached=2))
    assert reached.name == "unseen_perturbation_genetic_reached2"
    assert reached.hash != whole.hash
    assert "val and test ask only what a path of at most 2 edges leads to, whatever its sign" in reached.notes
    following = maker.data.graph.edges.groupby("source")["target"].agg(set).to_dict()
    kept = set(reached.questions["id"])
    for row in whole.questions.itertuples():
        targets = whole.perturbations[row.perturbation].targets
        first = set().union(*(following.get(gene, ()) for gene in targets))
        within_two = first.union(*(following.get(gene, ()) for gene in first))
        assert (row.id in kept) == (row.split == "train" or row.gene in within_two)
    with pytest.raises(UnsupportedError, match=r"fold\.reached_in"):
        FoldMaker(replace(maker.data, graph=None)).draw(spec.with_(reached=2))
    assert FoldSpec.from_dict(spec.with_(reached=3, reached_in=["a", "b"]).to_dict()).reached_in == ("a", "b")
    for options, key in (({"reached": 9}, "fold.reached"), ({"reached_in": "a"}, "fold.reached_in")):
        with pytest.raises(InputError) as caught:
            spec.with_(**options)
        assert caught.value.key == key


PERTURBATIONS = [
    Perturbation.genetic(["A"], "CRISPRi"), Perturbation.genetic(["B"], "CRISPRa"),
    Perturbation.genetic(["A", "B"], "CRISPRi"), Perturbation((Part("drug", (("T", -1), ("U", 1)), "dox+", 0.5),)),
    Perturbation((Part("drug", (("T", -1), ("U", 1)), "dox+", 2.0),)), Perturbation.genetic(["C"], "CRISPRi"),
    Perturbation.genetic(["D"], "CRISPRi"), Perturbation.genetic(["E"], "CRISPR-KO"),
]  # fmt: skip
UP, DOWN = [["A", "activates", "G1"]], [["A", "inhibits", "X"], ["X", "activates", "G1"]]


@pytest.fixture
def table() -> OutcomeTable:
    rows, paths = [], []
    words = ("up", "down", "no_change")
    for number, item in enumerate(PERTURBATIONS):
        split = ("train", "val", "test")[max(0, number - len(PERTURBATIONS) + 3)]
        for column, gene in enumerate(("G1", "G2", "G3")):
            about = {"context": "K", "perturbation": item.name, "gene": gene}
            rows.append({**about, "outcome": words[(number + column) % 3], "split": split})
            shown = [UP, DOWN] if (item, gene) == (PERTURBATIONS[0], "G1") else []
            paths.append({**about, "candidate_paths": shown, "reference_paths": shown[1:], "reference_text": "so"})
    named = {item.name: item for item in PERTURBATIONS}
    beside = pd.DataFrame(paths).assign(conflict=lambda found: found["candidate_paths"].map(len) > 1)
    return OutcomeTable(name="t", table=pd.DataFrame(rows), perturbations=named, pooled=True, paths=beside)


def exported(table: OutcomeTable, folder: Path) -> Path:
    fold = FoldMaker(table).make(FoldSpec(kind="published"))
    for split in FILES:
        asked = fold.questions.loc[fold.questions["split"] == split]
        write_records(asked, folder / f"{split}.jsonl", FIELDS, perturbations=fold.perturbations)
    target_table(fold.perturbations).to_csv(folder / "targets.csv", index=False)
    return folder


def test_a_fold_written_as_records_comes_back_with_its_paths(table: OutcomeTable, tmp_path: Path) -> None:
    folder = exported(table, tmp_path)
    again = load_records(fields=FIELDS, files=FILES, path=folder, name="t", targets=str(folder / "targets.csv"))
    assert again.perturbations == table.perturbations
    pd.testing.assert_frame_equal(again.table, table.table)
    columns = ["context", "perturbation", "gene", "candidate_paths", "conflict", "reference_paths", "reference_text"]
    pd.testing.assert_frame_equal(again.paths[columns], table.paths[columns])
    ids = [FoldMaker(item).make(FoldSpec(kind="published")).questions["id"].tolist() for item in (table, again)]
    assert ids[0] == ids[1]


def test_paths_that_records_ship_stay_with_the_fold_and_references_leave_its_inputs(
    table: OutcomeTable, tmp_path: Path
) -> None:
    again = load_records(
        fields=FIELDS, files=FILES, path=exported(table, tmp_path), targets=str(tmp_path / "targets.csv")
    )
    fold = FoldMaker(again).make(FoldSpec(kind="published"))
    fold.write(tmp_path / "fold")
    kept = open_fold(tmp_path / "fold")
    assert check_fold(tmp_path / "fold").ok
    one = kept.questions.set_index(["perturbation", "gene"]).loc[("CRISPRi:A", "G1")]
    assert one["candidate_paths"] == [UP, DOWN]
    # A is knocked down: one path says down, the other up.
    assert one["conflict"]
    assert one["reference_paths"] == [DOWN]
    shown = kept.inputs("test").questions.columns
    assert {"candidate_paths", "conflict"} <= set(shown)
    assert not {"reference_paths", "reference_text"} & set(shown)


def test_records_without_paths_make_the_fold_they_made_before(table: OutcomeTable, tmp_path: Path) -> None:
    folder = exported(table, tmp_path)
    bare = {key: name for key, name in FIELDS.items() if key not in SHIPPED}
    found = load_records(fields=bare, files=FILES, path=folder, targets=str(folder / "targets.csv"))
    assert found.paths is None
    assert "candidate_paths" not in FoldMaker(found).make(FoldSpec(kind="published")).questions


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([["A", "activates", "G1"]], [UP]),
        ([{"head": "A", "relation": "activates", "tail": "G1"}], [UP]),
        ([UP, DOWN], [UP, DOWN]),
        ([], []),
        ("A -> G1", None),
        ([["A", "G1"]], None),
        ([[["A", 1, "G1"]]], None),
    ],
)
def test_shapes_of_shipped_paths_are_read_or_refused_with_a_remedy(tmp_path: Path, given, kept) -> None:  # type: ignore[no-untyped-def]
    # Some record has paths, so that an empty list is one among others.
    for split, name in (("train", "A"), ("test", "B")):
        rows = [
            {"id": f"{name}{gene}", "cell": "K", "perturbation": name, "gene": gene, "answer": "up", "given": shown}
            for gene, shown in (("G1", given), ("G2", [UP]))
        ]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {key: key for key in ("id", "perturbation", "gene")} | {
        "context": "cell", "outcome": "answer", "candidate_paths": "given",
    }  # fmt: skip
    options = {"fields": fields, "files": {"train": "train.jsonl", "test": "test.jsonl"}, "mechanism": "CRISPRi"}
    if kept is None:
        with pytest.raises(InputError, match="candidate_paths=null"):
            load_records(path=tmp_path, **options)
        return
    found = load_records(path=tmp_path, **options).paths
    assert found is not None
    assert found.set_index("gene").loc["G1", "candidate_paths"].tolist() == [kept, kept]


def test_what_a_record_cannot_hold_is_said_before_anything_is_written(table: OutcomeTable, tmp_path: Path) -> None:
    asked = FoldMaker(table).make(FoldSpec(kind="published")).questions
    for field in ("dose", "mechanism"):
        fields = {key: name for key, name in FIELDS.items() if key != field}
        with pytest.raises(InputError, match=rf"data\.fields\.{field}=KEY"):
            write_records(asked, tmp_path / "out.jsonl", fields, perturbations=table.perturbations)
    assert not list(tmp_path.iterdir())
