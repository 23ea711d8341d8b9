"""Reasons in answers' files: what comes back, what is refused, and by which id."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertbase.errors import InputError
from pertbase.folds import Answers, read_answers
from pertbase.folds._reasons import MOST_TRIPLETS, write_reasons

TABLE = pd.DataFrame({"id": ["a", "b", "c"], "outcome": ["up", "no_change", None]})
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
TRIPLETS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=4)


def reasons(*triplets: object, ids: tuple[str, ...] = ("a", "b", "c"), **more: object) -> pd.DataFrame:
    rows = np.empty(len(triplets), dtype=object)
    rows[:] = triplets
    return pd.DataFrame({"id": ids[: len(triplets)], "triplets": rows, **more})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TRIPLETS, min_size=1, max_size=3), st.data(), st.sampled_from([".jsonl", ".parquet"]))
def test_reasons_come_back_as_they_were(tmp_path: Path, triplets, data, suffix) -> None:  # type: ignore[no-untyped-def]
    texts = data.draw(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=len(triplets), max_size=3))
    answers = Answers(TABLE, reasons(*triplets, text=texts[: len(triplets)]))
    answers.write(tmp_path / f"mine{suffix}")
    again = read_answers(tmp_path / f"mine{suffix}")
    pd.testing.assert_frame_equal(again.table, answers.table)
    assert again.reasons is not None
    pd.testing.assert_frame_equal(again.reasons, answers.reasons)
    again.write(tmp_path / f"again{suffix}")
    assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"mine{suffix}").read_bytes()


def test_triplets_are_triplets_and_not_every_answer_has_a_reason(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "outcome": "up", "triplets": [["A", "activates", "B"]]},
        {"id": "b", "outcome": "down", "text": "said in words"},
        {"id": "c", "outcome": "down"},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = read_answers(path).reasons
    assert kept is not None
    assert kept["id"].tolist() == ["a", "b"]
    assert kept["triplets"][0][0].head == "A"
    assert kept["triplets"][1] == ()
    assert kept["text"].tolist() == ["", "said in words"]


def test_answers_without_reasons_are_files_as_before(tmp_path: Path) -> None:
    for suffix in (".jsonl", ".parquet", ".csv"):
        Answers(TABLE).write(tmp_path / f"mine{suffix}")
        assert read_answers(tmp_path / f"mine{suffix}").reasons is None
    assert "triplets" not in (tmp_path / "mine.jsonl").read_text()


def test_reasons_may_be_named_by_what_they_are_about(tmp_path: Path) -> None:
    asked = pd.DataFrame({"id": ["a", "b"], "context": "K", "perturbation": ["P", "Q"], "gene": "G"})
    line = {"context": "K", "perturbation": "Q", "gene": "G", "outcome": "up", "triplets": [["A", "activates", "G"]]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(line) + "\n")
    kept = read_answers(tmp_path / "mine.jsonl", questions=asked).reasons
    assert kept is not None
    assert kept["id"].tolist() == ["b"]


def test_a_text_alone_is_no_reason(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"id": "a", "outcome": "up", "text": ["whatever", "it", "is"]}) + "\n")
    assert read_answers(path).reasons is None


def test_csv_does_not_lose_reasons_in_silence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="CSV does not hold reasons"):
        Answers(TABLE, reasons([("A", "activates", "B")])).write(tmp_path / "mine.csv")
    (tmp_path / "given.csv").write_text("id,outcome,triplets\na,up,A activates B\n")
    with pytest.raises(InputError, match="CSV does not hold reasons"):
        read_answers(tmp_path / "given.csv")


def test_answers_never_stand_beside_the_reasons_of_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    Answers(TABLE, reasons([("A", "activates", "B")])).write(path)
    Answers(TABLE).write(path)
    assert read_answers(path).reasons is None
    assert [item.name for item in tmp_path.iterdir()] == ["mine.parquet"]


def test_answers_of_one_folder_may_share_their_reasons(tmp_path: Path) -> None:
    shared = Answers(TABLE, reasons([("A", "activates", "B")]))
    for name in ("fixed", "calibrated"):
        Answers(TABLE).write(tmp_path / f"{name}.parquet")
    assert shared.reasons is not None
    write_reasons(shared.reasons, tmp_path / "reasons.parquet")
    for name in ("fixed", "calibrated"):
        kept = read_answers(tmp_path / f"{name}.parquet").reasons
        assert kept is not None
        pd.testing.assert_frame_equal(kept, shared.reasons)


@pytest.mark.parametrize(
    ("triplets", "said"),
    [
        ("A activates B", "not a list"),
        ({"head": "A"}, "not a list"),
        (["A", "activates", "B"], "not three texts"),
        ([["A", "activates"]], "not three texts"),
        ([["A", "activates", "B", "C"]], "not three texts"),
        ([["A", "activates", None]], "not three texts"),
        ([["A", "activates", 7]], "not three texts"),
        ([["A", "activates", " "]], "not three texts"),
        (["abc"], "not three texts"),
        ([[]], "not three texts"),
        ([["A", "activates", "B"]] * (MOST_TRIPLETS + 1), "10,001 triplets"),
    ],
)
def test_what_is_no_reason_is_refused_by_its_id(tmp_path: Path, triplets, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=said) as raised:
        Answers(TABLE, reasons([], triplets))
    assert "b" in str(raised.value)
    path = tmp_path / "mine.jsonl"
    lines = [{"id": "a", "outcome": "up"}, {"id": "b", "outcome": "up", "triplets": triplets}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=said) as raised:
        read_answers(path)
    assert "mine.jsonl" in str(raised.value)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (reasons([], ids=("z",)), "of no answer"),
        (reasons([], [], ids=("a", "a")), "1 reasons repeat an id.*'a'.*each answer one reason"),
        (pd.DataFrame({"id": ["a"]}), "lack a column"),
        (reasons([], text=[5]), "not a text"),
    ],
)
def test_reasons_belong_to_answers(table: pd.DataFrame, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Answers(TABLE, table)


def test_a_damaged_file_of_reasons_is_named(tmp_path: Path) -> None:
    Answers(TABLE).write(tmp_path / "mine.parquet")
    (tmp_path / "reasons.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(InputError, match=r"reasons\.parquet"):
        read_answers(tmp_path / "mine.parquet")
