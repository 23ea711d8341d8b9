"""The page of failed, unfinished and hostile runs: each is told, none becomes markup."""

from __future__ import annotations

import json
import math
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from page_reader import Page, edit, short

from pertbase.runs import collect, find_runs
from pertbase.runs._reports._page import page, picture

_NASTY = '<script>alert("1")</script> & <b>\x07'


def test_names_notes_and_errors_never_become_markup(copied: Path) -> None:
    before = len(short(copied).all("script"))
    additive, prior, nothing = find_runs(copied)
    edit(additive.folder / "config.yaml", lambda content: content.update(name=_NASTY))
    edit(prior.folder / "config.yaml", lambda content: content.update(adapters={**content["adapters"], _NASTY: {}}))
    scores = json.loads((prior.folder / "scores.json").read_text())
    scores["adapters"][_NASTY] = scores["adapters"]["fixed"]
    (prior.folder / "scores.json").write_text(json.dumps(scores))
    nothing.fail(f"Traceback\nValueError: {_NASTY}")
    nothing.mark("failed")
    for run in find_runs(copied):
        edit(run.folder / "config.yaml", lambda content: content.update(data_name=_NASTY, fold_name=_NASTY))
    (manifest,) = (copied / "_folds").glob("*/fold.yaml")
    edit(manifest, lambda content: content.update(notes=[_NASTY]))
    shown = short(copied)
    assert shown.unclosed == []
    assert len(shown.all("script")) == before == 1
    assert not shown.all("b")
    assert "\x07" not in shown.source
    assert shown.source.count("alert(&quot;1&quot;)") > 10
    assert "<script>alert" not in shown.source
    ElementTree.fromstring(picture(collect(copied)))


def test_failed_and_unfinished_runs_are_listed_and_not_scored(copied: Path) -> None:
    additive, prior, nothing = find_runs(copied)
    additive.fail("Traceback (most recent call last):\nMemoryError: no room for <100 GB")
    additive.mark("failed")
    prior.mark("running")
    shown = short(copied)
    _, rows = shown.table("scores on")
    assert set(rows) - {"replicate ceiling"} == {nothing.config["name"]}
    _, left = shown.table("failed, did not finish")
    told = {name: [cell.text for cell in cells] for name, cells in left.items()}
    assert told == {
        "/".join(additive.folder.parts[-4:]): ["failed", "MemoryError: no room for <100 GB"],
        "/".join(prior.folder.parts[-4:]): ["running", ""],
    }


def test_page_of_failures_alone_still_says_so(copied: Path) -> None:
    for run in find_runs(copied):
        run.fail("boom")
        run.mark("failed")
    shown = short(copied)
    _, left = shown.table("failed, did not finish")
    assert len(left) == 3


def test_run_that_lacks_an_adapter_keeps_its_row(copied: Path) -> None:
    additive = find_runs(copied)[0]
    scores = json.loads((additive.folder / "scores.json").read_text())
    scores["adapters"]["calibrated"] = {"skipped": "it does not fit"}
    (additive.folder / "scores.json").write_text(json.dumps(scores))
    shown = Page(page(collect(copied)))
    heads, rows = shown.table("scores on")
    cells = rows["additive"]
    assert math.isnan(cells[heads.index("BA calibrated") - 1].value)
    assert cells[heads.index("BA fixed") - 1].value == scores["adapters"]["fixed"]["balanced_accuracy"]["value"]


def test_seeds_are_told_apart(copied: Path) -> None:
    additive = find_runs(copied)[0]
    shutil.copytree(additive.folder, additive.folder.with_name("seed1"))
    edit(additive.folder.with_name("seed1") / "config.yaml", lambda content: content.update(seed=1))
    _, rows = short(copied).table("scores on")
    assert {"additive, seed 0", "additive, seed 1", "no_change, seed 0"} <= set(rows)
