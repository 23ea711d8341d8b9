"""What tests of hostile input to runs share: a finished fold, answers to it, and runs to add to or to damage."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from pertbase.folds import read_questions
from pertbase.runs import find_runs

sys.path.append(str(Path(__file__).parent))  # for small_runs


@pytest.fixture(scope="module")
def fold_dir(finished: Path) -> Path:
    return find_runs(finished)[0].fold_folder


@pytest.fixture(scope="module")
def answers(fold_dir: Path) -> pd.DataFrame:
    questions = read_questions(fold_dir / "questions.parquet")
    return pd.DataFrame({"id": questions.loc[questions["split"] == "test", "id"], "outcome": "up"})


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """Finished runs to add to: their fold is there already."""
    return Path(shutil.copytree(finished, tmp_path / "runs"))
