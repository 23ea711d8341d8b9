"""A tiny screen, its source, and runs on it that nobody disturbed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from pertbase.folds import prepare, write_screen

sys.path.append(str(Path(__file__).parent))  # for disturbed

from disturbed import ASKED, Undisturbed, carry, left_over, multirun, scores, study


@pytest.fixture(scope="session")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.h5ad"
    write_screen(prepare(study(), name="tiny", **ASKED)[0], path)
    return path


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.h5ad"
    study().write_h5ad(path)
    return path


@pytest.fixture(scope="session")
def undisturbed(screen: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    runs = tmp_path_factory.mktemp("undisturbed") / "runs"
    started = time.monotonic()
    assert carry(multirun(screen, runs)).returncode == 0
    taken = time.monotonic() - started
    found = scores(runs)
    assert len(found) == 6
    assert left_over(runs) == []
    return Undisturbed(runs, found, taken)
