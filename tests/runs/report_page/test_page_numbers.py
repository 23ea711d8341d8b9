"""The page holds every run, and its numbers are those of the scores."""

from __future__ import annotations

import json
import re
from pathlib import Path

from page_reader import Page, edit, short

from pertbase.runs import collect, find_runs
from pertbase.runs._reports._published import MARK


def test_every_complete_run_is_scored_and_its_provenance_given(finished: Path, shown: Page) -> None:
    _, rows = shown.table("scores on")
    _, provenance = shown.table("Every run of this page")
    runs = find_runs(finished)
    assert len(runs) == 3
    assert set(rows) - {"replicate ceiling"} == {run.config["name"] for run in runs}
    for run in runs:
        cells = provenance["/".join(run.folder.parts[-4:])]
        told = " ".join(cell.text for cell in cells)
        assert run.config["baseline"]["_target_"] in told
        assert run.config["fold_hash"][:12] in told
    environment = [item.text for item in shown.all("code") if "numpy: " in item.text]
    assert environment
    assert f"pertbase: {runs[0].status['versions']['pertbase']}" in environment[0]


def test_numbers_equal_those_of_scores_json(finished: Path, shown: Page) -> None:
    heads, rows = shown.table("scores on")
    columns = {head: position for position, head in enumerate(heads[1:])}
    for run in find_runs(finished):
        scores = json.loads((run.folder / "scores.json").read_text())["adapters"]
        cells = rows[run.config["name"]]
        for name in run.config["adapters"]:
            assert cells[columns[f"BA {name}"]].value == scores[name]["balanced_accuracy"]["value"]
        main, cell = scores["calibrated"], cells[columns["BA calibrated"]]
        ends = f"{main['balanced_accuracy']['low']:.3f} to {main['balanced_accuracy']['high']:.3f}"
        assert ends in cell.text
        assert cells[columns["accuracy"]].value == main["accuracy"]["value"]
        assert cells[columns["macro F1"]].value == main["macro_f1"]
        assert cells[columns["coverage"]].value == main["coverage"]
        assert cells[columns["ambiguous"]].value == main["ambiguous"]["share"]


def test_confusions_equal_those_of_scores_json(finished: Path, shown: Page) -> None:
    for run in find_runs(finished):
        counts = json.loads((run.folder / "scores.json").read_text())["adapters"]["calibrated"]["confusion"]
        (title,) = [item for item in shown.all("title") if f"confusion of {run.config['name']}, " in item.text]
        (about,) = [item for item in shown.all("desc") if item.above == title.above]
        told = [int(number) for number in re.findall(r": (\d+)", about.text)]
        # The column of answers without an outcome is left out where no baseline has any.
        assert told == [count for row in counts for count in row[:3]]


def test_statuses_add_up_to_the_questions(finished: Path, shown: Page) -> None:
    heads, rows = shown.table("answers by status")
    for run in find_runs(finished):
        scores = json.loads((run.folder / "scores.json").read_text())["adapters"]["calibrated"]
        cells = dict(zip(heads[1:], rows[run.config["name"]], strict=True))
        assert {name: cells[name].value for name in scores["status"]} == scores["status"]
        assert cells["without outcome"].value == scores["n_without_outcome"]


def test_effects_are_drawn_of_those_who_predicted_effects(shown: Page) -> None:
    titles = [item.text for item in shown.all("title") if "predicted and measured" in item.text]
    assert len(titles) == 1
    assert "additive" in titles[0]


def test_shortcut_gains_are_shown_for_all_but_the_shortcuts(finished: Path, shown: Page) -> None:
    found = collect(finished)
    heads, rows = shown.table("nested shortcuts")
    expected = found.decomposition(found.folds[0])
    assert set(rows) == {"additive", "no_change"}
    gains = expected.loc[expected["baseline"] == "additive", "gain"].tolist()
    assert [cell.value for cell in rows["additive"]] == gains
    assert heads[1:] == ["over nothing", "+ gene_prior_balanced"]


def test_published_figures_stand_beside_runs_on_their_own_data_alone_and_are_marked(shown: Page, copied: Path) -> None:
    assert not [item for item in shown.all("section") if item.attributes.get("id") == "published"]
    assert MARK not in shown.source
    for run in find_runs(copied):
        edit(run.folder / "config.yaml", lambda config: config.update(data_name="perturbqa"))
    shown = short(copied)
    (section,) = [item for item in shown.all("section") if item.attributes.get("id") == "published"]
    inside = [item for item in shown.elements if section in item.above and item.tag in ("h2", "h3", "caption")]
    assert len(inside) >= 3
    assert all(MARK in item.text for item in inside)
