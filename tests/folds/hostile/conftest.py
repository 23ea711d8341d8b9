"""The program, run in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pertbase.cli import main

sys.path.append(str(Path(__file__).parent))  # for wild_study

from wild_study import Said


@pytest.fixture
def pertbase(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the program, and return its exit code and all that it printed."""

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(item) for item in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + err

    return run
