"""The page: one file that loads nothing, holds every run, says what the scores say, and hides no simulation."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from pertbase.errors import InputError
from pertbase.runs import collect, find_runs
from pertbase.runs._reports._page import page, picture
from pertbase.runs._reports._published import MARK

_VOID = {"meta", "wbr"}


@dataclass(eq=False)
class Element:
    """An element with all the text in it, and the elements it lies in."""

    tag: str
    attributes: dict[str, str]
    above: list[Element]
    text: str = ""

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    @property
    def value(self) -> float:
        """The number a cell holds in full precision."""
        return float(self.attributes["data-value"] or "nan")


class Page(HTMLParser):
    """What a browser would read."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.elements: list[Element] = []
        self.unclosed: list[str] = []
        self._open: list[Element] = []
        self.feed(source)
        self.close()
        self.unclosed += [item.tag for item in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        item = Element(tag, {name: value or "" for name, value in attrs}, list(self._open))
        self.elements.append(item)
        if tag not in _VOID:
            self._open.append(item)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1].tag == tag:
            self._open.pop()
        else:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        for item in self._open:
            item.text += data

    def all(self, *tags: str, within: str | Element | None = None) -> list[Element]:
        """Return the elements with a tag, within an element or within any of some class."""
        found = [item for item in self.elements if item.tag in tags]
        if isinstance(within, Element):
            return [item for item in found if within in item.above]
        return [item for item in found if not within or any(within in above.classes for above in item.above)]

    def table(self, caption: str) -> tuple[list[str], dict[str, list[Element]]]:
        """Return the heads of the table whose caption holds some words, and its cells by row name."""
        (found,) = [item for item in self.all("caption") if caption in item.text]
        table = found.above[-1]
        heads = [item.text for item in self.all("th", within=table) if item.attributes["scope"] == "col"]
        rows = {}
        for row in self.all("tr", within=table):
            names = [item for item in self.all("th", within=row) if item.attributes["scope"] == "row"]
            if names:
                rows[names[0].text] = self.all("td", within=row)
        return heads, rows


def _edit(path: Path, change: Callable[[dict], None]) -> None:
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


@pytest.fixture(scope="module")
def shown(finished: Path) -> Page:
    return Page(page(collect(finished)))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The finished runs, to be changed."""
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def _short(runs: Path) -> Page:
    return Page(page(collect(runs), shortcuts=False))


# -- one file -----------------------------------------------------------------------------------------------


def test_page_loads_nothing_from_anywhere(shown: Page) -> None:
    for item in shown.elements:
        assert item.tag not in ("link", "img", "iframe", "object", "embed", "image", "use", "base")
        for name, value in item.attributes.items():
            assert name not in ("src", "srcset", "xlink:href", "action", "background")
            assert name != "href" or value.startswith("#")
            assert "url(" not in value
    (style,) = shown.all("style")
    assert not re.search(r"url\(|@import|https?:", style.text)
    (script,) = shown.all("script")
    assert not re.search(r"https?:|fetch|XMLHttpRequest|import\b|eval", script.text)


def test_page_allows_its_own_script_and_no_other(shown: Page) -> None:
    (policy,) = [
        item.attributes["content"]
        for item in shown.all("meta")
        if item.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (script,) = shown.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_page_is_well_formed_and_its_links_and_pictures_find_their_targets(shown: Page) -> None:
    assert shown.unclosed == []
    idents = [item.attributes["id"] for item in shown.elements if "id" in item.attributes]
    assert len(idents) == len(set(idents))
    for link in shown.all("a"):
        assert link.attributes["href"][1:] in idents
    for drawn in shown.all("svg"):
        assert drawn.attributes.get("role") == "img"
        assert set(drawn.attributes["aria-labelledby"].split()) <= set(idents)


def test_same_runs_give_the_same_bytes_wherever_they_lie(finished: Path, copied: Path) -> None:
    assert page(collect(finished)) == page(collect(copied))
    assert str(copied.parent) not in page(collect(copied), shortcuts=False)


# -- its numbers --------------------------------------------------------------------------------------------


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
        _edit(run.folder / "config.yaml", lambda config: config.update(data_name="perturbqa"))
    shown = _short(copied)
    (section,) = [item for item in shown.all("section") if item.attributes.get("id") == "published"]
    inside = [item for item in shown.elements if section in item.above and item.tag in ("h2", "h3", "caption")]
    assert len(inside) >= 3
    assert all(MARK in item.text for item in inside)


# -- simulated and real -------------------------------------------------------------------------------------


def _titles(shown: Page) -> list[str]:
    heads = shown.all("h2", "h3", "h4", "caption", "figcaption", within="data")
    # Of many small plots of one fold, the plot itself is marked.
    return [item.text for item in heads if not any("multiples" in above.classes for above in item.above)]


def test_simulated_data_are_marked_in_every_title_table_and_plot(shown: Page) -> None:
    assert "simulated" in shown.all("title")[0].text
    titles = _titles(shown)
    assert len(titles) > 10
    assert [title for title in titles if "simulated" not in title] == []
    drawn = shown.all("svg")
    assert len(drawn) >= 5
    for item in drawn:
        marks = [text for text in shown.all("text") if item in text.above and text.text == "SIMULATED"]
        assert len(marks) == 1


def test_real_data_are_not_marked(copied: Path) -> None:
    (manifest,) = (copied / "_folds").glob("*/fold.yaml")
    _edit(manifest, lambda content: content.update(simulated=False))
    assert "simulated" not in _without_style(page(collect(copied), shortcuts=False)).lower()
    assert "simulated" not in picture(collect(copied)).lower()


def _without_style(text: str) -> str:
    return re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)


# -- what a fold cannot decide ------------------------------------------------------------------------------


def _refuse(runs: Path) -> None:
    (manifest,) = (runs / "_folds").glob("*/fold.yaml")

    def change(content: dict) -> None:
        content["certificate"] |= {"ranks_baselines": False, "verdict": "cannot rank baselines: too few & none"}

    _edit(manifest, change)


def test_baselines_are_not_ranked_where_the_certificate_refuses(copied: Path) -> None:
    _refuse(copied)
    shown = _short(copied)
    _, rows = shown.table("scores on")
    assert list(rows) == sorted(rows)
    assert "replicate ceiling" not in rows
    sortable = [item.text for item in shown.all("button", within="fold")]
    assert set(sortable) == {"baseline"}
    assert not [item for item in shown.all("title") if "balanced accuracy of each baseline" in item.text]
    assert not [item for item in shown.all("caption") if "baselines by folds" in item.text]
    assert "cannot rank baselines: too few &amp; none" in shown.source
    with pytest.raises(InputError, match="nothing to draw"):
        picture(collect(copied))


def test_baselines_are_shown_best_first_where_they_are_ranked(shown: Page) -> None:
    _, rows = shown.table("scores on")
    names = list(rows)
    assert names.pop(0) == "replicate ceiling"
    values = [rows[name][0].value for name in names]
    assert values == sorted(values, reverse=True)


@pytest.mark.slow
def test_papalexi_with_few_calls_is_not_ranked(pertbase, real_data: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, _, _ = pertbase(
        "run", "-m", "data=papalexi", "fold=unseen_perturbation_genetic", "baseline=no_change,gene_prior,context_mean",
        f"runs={tmp_path}",
    )  # fmt: skip
    assert code == 0
    shown = _short(tmp_path)
    assert "Baselines are not ranked on this fold." in shown.source
    heads, rows = shown.table("scores on")
    assert len(rows) == 3
    assert not [name for name in heads if name.startswith("BA")]
    assert "simulated" not in _without_style(shown.source).lower()


# -- whatever lies among the runs ---------------------------------------------------------------------------

_NASTY = '<script>alert("1")</script> & <b>\x07'


def test_names_notes_and_errors_never_become_markup(copied: Path) -> None:
    before = len(_short(copied).all("script"))
    additive, prior, nothing = find_runs(copied)
    _edit(additive.folder / "config.yaml", lambda content: content.update(name=_NASTY))
    _edit(prior.folder / "config.yaml", lambda content: content.update(adapters={**content["adapters"], _NASTY: {}}))
    scores = json.loads((prior.folder / "scores.json").read_text())
    scores["adapters"][_NASTY] = scores["adapters"]["fixed"]
    (prior.folder / "scores.json").write_text(json.dumps(scores))
    nothing.fail(f"Traceback\nValueError: {_NASTY}")
    nothing.mark("failed")
    for run in find_runs(copied):
        _edit(run.folder / "config.yaml", lambda content: content.update(data_name=_NASTY, fold_name=_NASTY))
    (manifest,) = (copied / "_folds").glob("*/fold.yaml")
    _edit(manifest, lambda content: content.update(notes=[_NASTY]))
    shown = _short(copied)
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
    shown = _short(copied)
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
    shown = _short(copied)
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
    _edit(additive.folder.with_name("seed1") / "config.yaml", lambda content: content.update(seed=1))
    _, rows = _short(copied).table("scores on")
    assert {"additive, seed 0", "additive, seed 1", "no_change, seed 0"} <= set(rows)


# -- asked for on the command line --------------------------------------------------------------------------


def test_suffix_of_the_output_chooses_page_or_picture(pertbase, finished: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name in ("report.html", "picture.svg"):
        assert pertbase("report", f"runs={finished}", "shortcuts=false", f"output={tmp_path / name}")[0] == 0
    assert (tmp_path / "report.html").read_text() == page(collect(finished), shortcuts=False)
    drawn = ElementTree.parse(tmp_path / "picture.svg").getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    about = drawn.findtext("{http://www.w3.org/2000/svg}desc") or ""
    for run in find_runs(finished):
        value = run.scores["adapters"]["calibrated"]["balanced_accuracy"]["value"]
        assert f"{run.config['name']}: {value:.3f}" in about


def test_comparison_page_shows_the_paired_difference(finished: Path) -> None:
    report = collect(finished)
    shown = Page(page(report, compare=("additive", "no_change")))
    (row,) = report.differences("additive", "no_change").itertuples()
    _, rows = shown.table("additive minus no_change")
    assert rows["combinatorial"][0].value == row.difference
    assert f"{row.low:+.3f} to {row.high:+.3f}" in rows["combinatorial"][0].text
    assert [title for title in _titles(shown) if "simulated" not in title] == []


def test_several_folds_stand_in_one_map_and_in_means_over_them(pertbase, copied: Path, small_screen: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase(
        "run", "-m", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=unseen_perturbation_genetic",
        "baseline=no_change,gene_prior_balanced", f"runs={copied}",
    )  # fmt: skip
    assert code == 0, err
    shown = _short(copied)
    heads, rows = shown.table("baselines by folds")
    assert heads[1:] == ["combinatorial", "unseen_perturbation_genetic"]
    assert set(rows) == {"additive", "gene_prior_balanced", "no_change"}
    assert math.isnan(rows["additive"][1].value)
    assert [cell.value for cell in rows["no_change"]] == pytest.approx([1 / 3, 1 / 3])
    _, means = shown.table("mean balanced accuracy over folds")
    assert means["no_change"][0].value == pytest.approx(1 / 3)
    assert means["gene_prior_balanced"][0].value == pytest.approx(
        sum(cell.value for cell in rows["gene_prior_balanced"]) / 2
    )
    assert [means[name][1].value for name in ("gene_prior_balanced", "additive")] == [2, 1]
