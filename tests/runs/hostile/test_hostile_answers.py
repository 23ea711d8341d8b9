"""Answers that others hand in, through the program: refused with file, place and remedy, or scored all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_runs import Pertbase


def _scored(table: pd.DataFrame, **scores: Any) -> pd.DataFrame:
    return table.assign(**{"score_up": 0.5, "score_down": 0.25, "score_no_change": 0.25, **scores})


def _first(table: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    table = table.astype({column: object})
    table.iloc[0, table.columns.get_loc(column)] = value
    return table


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False)


def _lines(table: pd.DataFrame) -> str:
    return table.to_json(orient="records", lines=True)


Made = Callable[[pd.DataFrame], "str | bytes | pd.DataFrame"]
ROW = '{"id": "x", "outcome": '

REFUSED: dict[str, tuple[str, Made, list[str]]] = {
    "an id twice": ("a.csv", lambda t: pd.concat([t, t.head(1)]), ["id: 1 answers repeat an id", "one answer a"]),
    "an id nobody asked": ("a.csv", lambda t: _first(t, "id", "x"), ["id: 1 answers have ids that are not", "'x'"]),
    "another fold's ids": ("a.csv", lambda t: t.assign(id=range(len(t))), ["answers have ids that are not asked"]),
    "no id, csv": ("a.csv", lambda t: _first(t, "id", None), ["id: an answer has no id"]),
    "no id, jsonl": ("a.jsonl", lambda t: _first(t, "id", None), ["id: an answer has no id"]),
    "no id, parquet": ("a.parquet", lambda t: _first(t, "id", None), ["id: an answer has no id"]),
    "no column": ("a.csv", lambda t: t.rename(columns={"outcome": "answer"}), ["outcome: answers lack a column"]),
    "an unknown word": ("a.csv", lambda t: _first(t, "outcome", "rise"), ["outcome: unknown outcome", "'rise'"]),
    "upper case": (
        "a.csv",
        lambda t: _first(t, "outcome", "UP"),
        ["outcome: unknown outcome", "Did you mean 'up'? Use up, down, no_change, or leave it empty."],
    ),
    "a number": ("a.jsonl", lambda t: ROW + "1}", ["outcome: unknown outcome", "got 1"]),
    "a list": ("a.jsonl", lambda t: ROW + '["up"]}', ["outcome: an outcome is one word", "['up']"]),
    "a status that is a list": ("a.jsonl", lambda t: ROW + '"up", "status": ["ok"]}', ["status: a status is one word"]),
    "an unknown status": ("a.csv", lambda t: t.assign(status="fine"), ["status: unknown status", "'fine'", "refusal"]),
    "a refusal that answers": ("a.csv", lambda t: t.assign(status="refusal"), ["status and outcome contradict"]),
    "scores above one": ("a.csv", lambda t: _scored(t, score_up=0.9), ["sum to one", "0.9", "divide by their sum"]),
    "a negative score": ("a.csv", lambda t: _scored(t, score_up=-0.5, score_down=1.25), ["non-negative", "-0.5"]),
    "an infinite score": ("a.csv", lambda t: _scored(t, score_up=np.inf), ["sum to one", "inf"]),
    "half of a row's scores": ("a.csv", lambda t: _scored(t, score_up=np.nan), ["sum to one", "nan"]),
    "two scores of three": ("a.csv", lambda t: _scored(t).drop(columns="score_up"), ["score_up: answers have some"]),
    "a score in words": ("a.csv", lambda t: _scored(t, score_up="high"), ["score_up: a score is not a number", "high"]),
    "a score in words, parquet": ("a.parquet", lambda t: _scored(t, score_up="high"), ["score_up: a score is not"]),
    "a score that is a list": (
        "a.jsonl",
        lambda t: ROW + '"up", "score_up": [1], "score_down": 0, "score_no_change": 0}',
        ["score_up: a score is not a number", "[1]"],
    ),
    "a line cut off": ("a.jsonl", lambda t: _lines(t)[:-10], ["line {n}", "is not valid JSON", "cut off"]),
    "a line that is no object": ("a.jsonl", lambda t: "[1, 2]\n", ["line 1: is not an object"]),
    "brackets without end": ("a.jsonl", lambda t: "[" * 100_000, ["line 1: is not valid JSON"]),
    "a misspelled reason": ("a.jsonl", lambda t: ROW + '"up", "triplet": []}', ["triplet: is no column", "'triplets'"]),
    "a misspelled status": ("a.csv", lambda t: t.assign(statuss="ok"), ["statuss: is no column", "'status'"]),
    "an empty jsonl": ("a.jsonl", lambda t: "", ["id: answers lack a column"]),
    "an empty csv": ("a.csv", lambda t: "", ["cannot be read"]),
    "an empty parquet": ("a.parquet", lambda t: b"", ["cannot be read"]),
    "half a parquet": ("a.parquet", lambda t: b"PAR1" + b"\0" * 50, ["cannot be read"]),
    "semicolons": ("a.csv", lambda t: t.to_csv(index=False, sep=";"), ["answers lack a column", "'id;outcome'"]),
    "utf-16": ("a.csv", lambda t: _csv(t).encode("utf-16"), ["cannot be read", "utf-8"]),
    "ragged lines": ("a.csv", lambda t: _csv(t) + "x,up,1,2\n", ["cannot be read", "Expected 2 fields"]),
    "an open quote": ("a.csv", lambda t: _csv(t) + '"x,up\n', ["cannot be read"]),
    "a spreadsheet": ("a.xlsx", lambda t: b"PK", ["answers are .parquet, .jsonl, .csv or .tsv", "'.xlsx'"]),
}


def _write(path: Path, made: str | bytes | pd.DataFrame) -> None:
    if isinstance(made, pd.DataFrame):
        if path.suffix == ".parquet":
            made.to_parquet(path, index=False)
            return
        made = _csv(made) if path.suffix == ".csv" else _lines(made)
    path.write_bytes(made if isinstance(made, bytes) else made.encode())


@pytest.mark.parametrize("case", REFUSED)
def test_answers_that_break_the_contract_are_refused_with_file_place_and_remedy(
    case: str, pertbase: Pertbase, answers: pd.DataFrame, fold_dir: Path, tmp_path: Path
) -> None:
    name, make, parts = REFUSED[case]
    _write(tmp_path / name, make(answers))
    code, out, err = pertbase("score", f"answers={tmp_path / name}", f"fold_dir={fold_dir}")
    assert code == 2
    assert "Traceback" not in out + err
    for part in (str(tmp_path / name), *parts):
        assert part.format(n=len(answers)).lower() in err.lower()


FINE: dict[str, tuple[str, Made]] = {
    "byte-order mark, csv": ("a.csv", lambda t: "\ufeff" + _csv(t)),
    "byte-order mark, jsonl": ("a.jsonl", lambda t: "\ufeff" + _lines(t)),
    "Windows' line ends": ("a.csv", lambda t: _csv(t).replace("\n", "\r\n")),
    "blank lines": ("a.jsonl", lambda t: _lines(t).replace("\n", "\n\n")),
    "columns of somebody's own": ("a.csv", lambda t: t.assign(note="é, \n?")),
    "rows in another order": ("a.parquet", lambda t: t.sample(frac=1, random_state=0)),
    "empty scores": ("a.csv", lambda t: _scored(t, score_up=None, score_down=None, score_no_change=None)),
    "scores as text": ("a.jsonl", lambda t: _scored(t).astype({"score_up": str})),
}


@pytest.mark.parametrize("case", FINE)
def test_answers_that_are_only_written_oddly_score_the_same(
    case: str, pertbase: Pertbase, answers: pd.DataFrame, fold_dir: Path, tmp_path: Path
) -> None:
    name, make = FINE[case]
    found = []
    for made, path in ((answers, tmp_path / "plain.csv"), (make(answers), tmp_path / name)):
        _write(path, made)
        output = tmp_path / f"{path.stem}.json"
        code, _, err = pertbase("score", f"answers={path}", f"fold_dir={fold_dir}", f"output={output}")
        assert code == 0, err
        found.append(json.loads(output.read_text()))
    assert found[0]["confusion"] == found[1]["confusion"]
    assert found[0]["balanced_accuracy"] == found[1]["balanced_accuracy"]


def test_missing_answers_count_as_wrong_and_are_told(
    pertbase: Pertbase, answers: pd.DataFrame, fold_dir: Path, tmp_path: Path
) -> None:
    for table in (answers.head(3), answers.head(0)):
        _csv_path = tmp_path / "few.csv"
        _write(_csv_path, table)
        code, out, _ = pertbase("score", f"answers={_csv_path}", f"fold_dir={fold_dir}")
        assert code == 0
        assert "they count as wrong" in out
