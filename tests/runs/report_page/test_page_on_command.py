"""The page as it is asked for: by suffix, for a comparison, for several folds."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from page_reader import Page, short, titles

from pertbase.runs import collect, find_runs
from pertbase.runs._reports._page import page


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
    assert [title for title in titles(shown) if "simulated" not in title] == []


def test_several_folds_stand_in_one_map_and_in_means_over_them(pertbase, copied: Path, small_screen: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase(
        "run", "-m", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=unseen_perturbation_genetic",
        "baseline=no_change,gene_prior_balanced", f"runs={copied}",
    )  # fmt: skip
    assert code == 0, err
    shown = short(copied)
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
