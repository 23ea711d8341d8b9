"""Answers made elsewhere that the fold would spell otherwise: what the fold writes is told; tables by tabs are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest


@pytest.fixture
def asked(pertbase: Any, finished: Path, tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """A fold's folder, and its questions with an answer each, named by context, perturbation and gene."""
    (folder,) = (finished / "_folds").glob("small-*")
    code, _, err = pertbase("folds", "questions", f"fold_dir={folder}", f"output={tmp_path / 'asked.csv'}")
    assert code == 0, err
    table = pd.read_csv(tmp_path / "asked.csv", dtype=str, keep_default_na=False)
    return folder, table[["context", "perturbation", "gene"]].assign(outcome="no_change")


def test_answers_in_a_table_by_tabs_have_the_scores_of_one_by_commas(pertbase: Any, asked: Any, tmp_path: Path) -> None:
    folder, table = asked
    found = {}
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        table.to_csv(tmp_path / f"mine{suffix}", sep=separator, index=False)
        code, _, err = pertbase(
            "score", f"answers={tmp_path / f'mine{suffix}'}", f"fold_dir={folder}", f"output={tmp_path / 'scores.json'}"
        )
        assert code == 0, err
        found[suffix] = json.loads((tmp_path / "scores.json").read_text())
    assert found[".csv"] == found[".tsv"]


_LONGER = "{}x".format


def _bare(name: str) -> str:
    return "+".join(part.rpartition(":")[2] for part in name.split("+"))


# only perturbations have a mechanism before their target, and letters that are not capital already
@pytest.mark.parametrize(
    ("column", "change"),
    [
        *(("perturbation", change) for change in (_bare, str.upper)),
        *((column, change) for column in ("context", "perturbation", "gene") for change in (str.lower, _LONGER)),
    ],
)
def test_a_name_that_the_fold_spells_otherwise_is_told_as_the_fold_writes_it(
    column: str, change: Any, pertbase: Any, asked: Any, tmp_path: Path
) -> None:
    folder, table = asked
    changed = [change(name) for name in table[column]]
    meant = next(name for name, other in zip(table[column], changed, strict=True) if name != other)
    table.assign(**{column: changed}).to_csv(tmp_path / "mine.csv", index=False)
    code, _, err = pertbase("score", f"answers={tmp_path / 'mine.csv'}", f"fold_dir={folder}")
    assert code == 2
    told = f"The fold writes {column} as {meant!r}, not {change(meant)!r}"
    assert (told if change is not _LONGER else f"The fold has no {column} {change(meant)!r}, and writes for") in err
    assert "folds questions" in err


@pytest.mark.parametrize("lacking", ["outcome", "context", "perturbation", "gene"])
def test_a_column_that_is_missing_is_told_with_what_the_fold_writes(
    lacking: str, pertbase: Any, asked: Any, tmp_path: Path
) -> None:
    folder, table = asked
    table.drop(columns=lacking).to_csv(tmp_path / "mine.csv", index=False)
    code, _, err = pertbase("score", f"answers={tmp_path / 'mine.csv'}", f"fold_dir={folder}")
    assert code == 2
    assert "answers lack a column" in err
    assert "context, perturbation, gene" in err
    assert "`pertbase folds questions` writes what is asked" in err
