"""Names that a report does not have are told, and what stands for something else says so."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from page_reader import edit

from pertbase.errors import InputError
from pertbase.runs import Report, collect, find_runs

plot = pytest.importorskip("pertbase.plot")


def _by_adapter(report: Report, name: str) -> list[Callable[[], Any]]:
    return [
        lambda: report.grid("small", adapter=name),
        lambda: report.means("small", adapter=name),
        lambda: report.differences("additive", "no_change", adapter=name),
        lambda: plot.table(report, adapter=name),
        lambda: plot.intervals(report["combinatorial"], adapter=name),
    ]


@pytest.mark.parametrize("name", ["calibratd", None, 3, ("fixed",)])
def test_an_adapter_or_data_set_that_no_run_is_of_is_told_and_no_other_shown(finished: Path, name: Any) -> None:
    report = collect(finished)
    for show in _by_adapter(report, name):
        with pytest.raises(InputError, match=r"unknown adapter .*Known: calibrated, fixed, prior_matched"):
            show()
    for show in (lambda: report.grid(name), lambda: report.means(name)):
        with pytest.raises(InputError, match=r"unknown data .*Known: small"):
            show()
    for show in (lambda: report[name], lambda: report["combinatorial"][name]):
        with pytest.raises(InputError, match=r"unknown (fold|run) .*Known: "):
            show()


def test_where_the_usual_adapter_is_lacking_it_is_said_which_one_is_shown(copied: Path) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    for run in find_runs(copied):
        edit(run.folder / "config.yaml", lambda content: content["adapters"].pop("calibrated"))
    report = collect(copied)
    shown = plot.table(report)
    (label,) = [ax.get_ylabel() for ax in shown.figure.axes if ax is not shown]
    assert label == "balanced accuracy, fixed"
    assert "balanced accuracy, fixed" in report._repr_html_()
    assert "fixed" in plot.intervals(report["combinatorial"]).get_title(loc="left")
    plt.close("all")


def test_scores_without_an_adapter_that_the_run_lists_are_told_with_what_to_do(copied: Path) -> None:
    additive = find_runs(copied)[0]
    scores = json.loads((additive.folder / "scores.json").read_text())
    del scores["adapters"]["calibrated"]
    (additive.folder / "scores.json").write_text(json.dumps(scores))
    with pytest.raises(InputError, match=r"scores\.json: adapters\.calibrated: .* Remove the run's folder"):
        collect(copied).rows()


def test_hostile_names_are_drawn_and_shown_as_they_are(copied: Path) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    nasty = '<script>alert("1")</script> $x_1$ \x07' + "w" * 300
    for run in find_runs(copied):
        name = f"{run.config['name']} {nasty}"
        edit(
            run.folder / "config.yaml",
            lambda content, name=name: content.update(name=name, data_name=nasty, fold_name=nasty),
        )
    report = collect(copied)
    (table,) = report.folds
    for one in (report, table, table.runs[0]):
        text = one._repr_html_()
        assert "<script" not in text
        # Between two dollar signs a notebook sees mathematics where it is not told otherwise.
        assert text.startswith('<div class="tex2jax_ignore mathjax_ignore">')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ax in (plot.table(report), plot.intervals(table)):
            ax.figure.canvas.draw()
            assert ax.get_window_extent().width > 60
    plt.close("all")
