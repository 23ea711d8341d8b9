"""The page hides no simulation, and says it of nothing else."""

from __future__ import annotations

from pathlib import Path

from page_reader import Page, edit, titles, without_style

from pertbase.runs import collect
from pertbase.runs._reports._page import page, picture


def test_simulated_data_are_marked_in_every_title_table_and_plot(shown: Page) -> None:
    assert "simulated" in shown.all("title")[0].text
    told = titles(shown)
    assert len(told) > 10
    assert [title for title in told if "simulated" not in title] == []
    drawn = shown.all("svg")
    assert len(drawn) >= 5
    for item in drawn:
        marks = [text for text in shown.all("text") if item in text.above and text.text == "SIMULATED"]
        assert len(marks) == 1


def test_real_data_are_not_marked(copied: Path) -> None:
    (manifest,) = (copied / "_folds").glob("*/fold.yaml")
    edit(manifest, lambda content: content.update(simulated=False))
    assert "simulated" not in without_style(page(collect(copied), shortcuts=False)).lower()
    assert "simulated" not in picture(collect(copied)).lower()
