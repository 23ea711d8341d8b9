"""What a report calls its columns is told where they stand; answers without an outcome stand beside coverage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pertbase.runs import collect
from pertbase.runs._reports._render import sections
from pertbase.runs._reports._terms import LEGEND, TERMS

_SHARE = 0.99


@pytest.fixture
def silent(finished: Path, tmp_path: Path) -> Path:
    """The finished runs, one of which has hardly any answer with an outcome: its coverage stays 1."""
    shutil.copytree(finished, tmp_path / "runs")
    (path,) = (tmp_path / "runs").glob("*/*/additive/seed0/scores.json")
    scores = json.loads(path.read_text())
    for one in scores["adapters"].values():
        assert one["coverage"] == 1
        without = int(_SHARE * one["n"])
        one |= {"n_without_outcome": without, "status": {"ok": one["n"] - without, "no_answer": without}}
    path.write_text(json.dumps(scores))
    return tmp_path / "runs"


def test_every_column_and_row_that_needs_it_is_explained_below_the_first_table(finished: Path, silent: Path) -> None:
    for runs in (finished, silent):
        first, *_, last = sections(collect(runs))
        shown = [*first.table.columns, *first.table["baseline"]]
        told = [note.partition(": ")[0] for note in first.notes]
        for word in shown:
            plain = word.removesuffix(" (measured)")
            elsewhere = plain.startswith(("BA ", "AUROC ")) or plain in (
                "baseline",
                "accuracy",
                *first.table["baseline"],
            )
            assert plain in told or (elsewhere and (plain in LEGEND) <= (plain in told)), word
        assert {word.partition(" (")[0] for word in TERMS} <= {
            note.partition(" (")[0].partition(":")[0] for note in last.notes
        }
        assert set(told) & set(LEGEND) == {word for word in LEGEND if word in shown}


def test_the_share_without_an_answer_stands_beside_coverage(silent: Path, finished: Path, pertbase: Any) -> None:
    table = sections(collect(silent))[0].table.set_index("baseline")
    columns = list(table.columns)
    assert columns.index("unanswered") == columns.index("coverage") + 1
    assert table.loc["additive", "coverage"] == "1.000"
    assert float(table.loc["additive", "unanswered"]) == pytest.approx(_SHARE, abs=1e-2)
    assert table.loc["no_change", "unanswered"] == "0.000"
    _, page, _ = pertbase("report", f"runs={silent}", "format=html", "shortcuts=false")
    _, csv, _ = pertbase("report", f"runs={silent}", "format=csv")
    assert ">unanswered" in page
    assert "unanswered" in csv
    assert "unanswered" in collect(silent).folds[0]._repr_html_()
    # Where everything is answered there is nothing to say.
    assert "unanswered" not in sections(collect(finished))[0].table
    assert "unanswered" not in collect(finished).folds[0]._repr_html_()


def test_a_narrow_terminal_does_not_show_coverage_without_the_unanswered(
    silent: Path, pertbase: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in range(60, 260, 20):
        monkeypatch.setenv("COLUMNS", str(width))
        _, out, _ = pertbase("report", f"runs={silent}")
        heads = [line for line in out.splitlines() if line.split()[:1] == ["baseline"]]
        assert not any("coverage" in line for line in heads) or any("unanswered" in line for line in heads)
