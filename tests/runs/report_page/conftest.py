"""The page of the finished runs, and runs to be changed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for page_reader

from page_reader import Page

from pertbase.runs import collect
from pertbase.runs._reports._page import page


@pytest.fixture(scope="session")
def shown(finished: Path) -> Page:
    return Page(page(collect(finished)))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The finished runs, to be changed."""
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"
