"""Runs as notebooks read them: lazily, by name, with reprs that escape, and errors that say what there is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pertbase as pb
from pertbase.errors import InputError, PertbaseError
from pertbase.runs import find_runs
from pertbase.scorers import outcome

HOSTILE = "<script>alert('x')</script>&\"$<b>"


class Tags(HTMLParser):
    """The tags and the text of a piece of HTML."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def run(finished: Path) -> pb.Run:
    return pb.read_run(finished / "small" / "combinatorial" / "additive" / "seed0")


def test_a_run_is_read_by_its_folder_and_its_parts_when_they_are_asked_for(run: pb.Run, tmp_path: Path) -> None:
    assert run.config["name"] == "additive"
    assert run.fold.hash == run.config["fold_hash"]
    scored = outcome(run.answers(), run.fold.truth)
    assert scored.balanced_accuracy.value == run.scores["adapters"]["calibrated"]["balanced_accuracy"]["value"]
    assert run.answers().table.equals(run.answers("calibrated").table)
    assert not run.answers("fixed").table.equals(run.answers().table)
    assert run.effects().conditions.shape[0] == len(run.fold.inputs("test").conditions)
    assert run.reasons is None
    about = run.scores["adapters"]["calibrated"]["adapter"]
    assert run.thresholds() == (about["tau_up"], about["tau_down"])
    # Nothing else is read to name it.
    shutil.copytree(run.folder, tmp_path / "seed0", ignore=shutil.ignore_patterns("scores.json", "answers", "*.h5ad"))
    assert pb.read_run(tmp_path / "seed0").config == run.config


def test_thresholds_of_a_run_make_its_answers_again(run: pb.Run) -> None:
    thresholds = run.thresholds()
    assert thresholds is not None
    asked = run.fold.inputs("test").questions
    values, _ = run.effects().at(asked)
    told = np.select([values > thresholds[0], values < -thresholds[1]], ["up", "down"], "no_change")
    assert (run.answers().to(asked)["outcome"].to_numpy() == told).all()


def test_a_run_without_effects_says_that_it_answers(finished: Path) -> None:
    other = pb.read_runs(finished)["combinatorial"]["no_change"]
    assert other.thresholds() is None
    with pytest.raises(InputError, match="answers questions itself"):
        other.effects()
    with pytest.raises(InputError, match="Did you mean 'calibrated'"):
        other.answers("calibratd")


def test_a_run_that_did_not_end_says_so_in_place_of_its_scores(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, runs := tmp_path / "runs")
    run = next(run for run in find_runs(runs) if run.config["name"] == "no_change")
    run.mark("failed")
    run.fail("Traceback\nValueError: <i>the model</i> broke")
    for ask in (run.answers, run.effects, run.thresholds):
        with pytest.raises(InputError, match="not complete, but failed: ValueError"):
            ask()
    shown = Tags(run._repr_html_())
    assert "i" not in shown.tags
    assert "<i>the model</i> broke" in shown.text
    report = pb.read_runs(runs)
    assert "1 not in the tables" in repr(report)
    assert "failed: ValueError" in Tags(report._repr_html_()).text


def test_a_folder_above_runs_names_those_below_it(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds some.*small/combinatorial/additive/seed0.*read_runs"):
        pb.read_run(finished)
    with pytest.raises(InputError, match="Name one of seed0"):
        pb.read_run(finished / "small" / "combinatorial" / "additive")
    with pytest.raises(InputError, match="holds no run"):
        pb.read_run(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        pb.read_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "asked", [{"fold": "combinatorail"}, {"fold": ["combinatorial", "combinatorail"]}, {"data": ["small", "smal"]}]
)
def test_a_name_that_no_run_has_is_refused_beside_others_that_runs_have(
    finished: Path, asked: dict[str, object]
) -> None:
    with pytest.raises(InputError, match=r"unknown (fold|data).*Did you mean '(combinatorial|small)'"):
        pb.read_runs(finished, **asked)  # type: ignore[arg-type]


def test_a_report_is_asked_by_fold_and_by_run(finished: Path) -> None:
    report = pb.read_runs(finished, data="small")
    assert repr(report) == "Report: 3 runs on 1 fold of small (simulated)"
    table = report["combinatorial"]
    assert table["additive"].config["name"] == "additive"
    assert "additive" in repr(table)
    with pytest.raises(InputError, match="Did you mean 'additive'"):
        table["additiv"]
    with pytest.raises(InputError, match="Known: combinatorial"):
        report["published"]


def test_a_report_as_a_grid_holds_the_scores_best_first_and_the_ceiling_on_top(finished: Path) -> None:
    report = pb.read_runs(finished)
    grid = report.grid("small")
    table = report["combinatorial"]
    expected = {
        run.config["name"]: run.scores["adapters"]["calibrated"]["balanced_accuracy"]["value"] for run in table.runs
    }
    order = sorted(expected, key=lambda name: -expected[name])
    assert list(grid.index) == ["replicate ceiling", *order]
    assert grid["combinatorial"].iloc[1:].tolist() == [expected[name] for name in order]
    for shown in (report, table):
        text = Tags(shown._repr_html_()).text
        assert all(f"{value:.3f}" in text for value in expected.values())
        assert "(simulated)" in text
    run = table[order[0]]
    assert f"{expected[order[0]]:.3f}" in Tags(run._repr_html_()).text
    assert f"{expected[order[0]]:.3f}" in repr(run.scores)
    assert "95%" in Tags(table._repr_html_()).text


def test_a_fold_s_table_is_drawn_best_first_with_ceiling_and_chance(finished: Path) -> None:
    pytest.importorskip("matplotlib").use("agg")
    report = pb.read_runs(finished)
    table = report["combinatorial"]
    grid = report.grid("small")["combinatorial"].iloc[1:]
    ax = pb.plot.intervals(table)
    assert [text.get_text() for text in ax.get_yticklabels()] == list(grid.index)
    assert ax.collections[-1].get_offsets()[:, 0].tolist() == pytest.approx(grid.tolist())
    lines = sorted(float(line.get_xdata()[0]) for line in ax.lines if line.get_linestyle() != "-")
    assert lines == pytest.approx([1 / 3, table.certificate["ceiling"]["corrected"]])
    assert "small (simulated): combinatorial, calibrated" in ax.get_title(loc="left")
    other = pb.plot.intervals(table, adapter="fixed").get_title(loc="left")
    assert other.endswith("fixed")
    drawn = pb.plot.table(report)
    told = [text.get_text() for text in drawn.texts if text.get_gid() != "simulated"]
    assert told == [f"{value:.3f}" for value in report.grid("small")["combinatorial"]]
    with pytest.raises(InputError, match="Known: small"):
        pb.plot.table(report, data="large")


# -- running ------------------------------------------------------------------------------------------------


def test_runs_are_made_as_the_command_makes_them_and_told_again(
    small_screen: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "runs")
    (tmp_path / "conf" / "baseline").mkdir(parents=True)
    (tmp_path / "conf" / "baseline" / "mine.yaml").write_text("_target_: reading_runs_models.Mine\n")
    (tmp_path / "reading_runs_models.py").write_text(
        "import pertbase as pb\n\nclass Mine(pb.AnswerBaseline):\n    def fit(self, training):\n        pass\n"
        "    def answer(self, inputs):\n        return pb.Answers(inputs.questions[['id']].assign(outcome='up'))\n"
    )
    asked = ["data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial", "runs=runs"]
    said: list[str] = []
    session = pb.run(*asked, "baseline=mine,no_change", config_dir="conf", say=said.append)
    assert repr(session) == "1 done, 1 already complete"
    assert said[:2] == ["planning 2 runs: 2 baselines", "loading data set small"]
    assert [line[:5] for line in said[2:]] == ["[1/2]", "[2/2]"]
    assert set(pb.read_runs("runs")["combinatorial"]["mine"].answers().table["outcome"]) == {"up"}
    assert "2 already complete" in repr(pb.run(*asked, "baseline=mine,no_change", config_dir="conf", say=said.append))
    with pytest.raises(InputError, match="baseline"):
        pb.run(*asked, "baseline=nobody", say=said.append)
    before = sorted(tmp_path.rglob("*"))
    assert repr(pb.run(*asked, "baseline=perturbed_mean", dry_run=True, say=said.append)) == "0 done"
    assert "perturbed_mean" in said[-1]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_fails_is_raised_after_the_others_are_done(
    small_screen: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "runs")
    asked = ["data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial", "runs=runs"]
    (tmp_path / "conf" / "baseline").mkdir(parents=True)
    (tmp_path / "conf" / "baseline" / "absent.yaml").write_text("_target_: nowhere.Absent\n")
    with pytest.raises(PertbaseError, match="1 of 2 runs failed, the first of them small combinatorial absent"):
        pb.run(*asked, "baseline=absent,gene_prior", config_dir=["conf"], say=lambda line: None)
    assert pb.read_runs("runs")["combinatorial"]["gene_prior"].complete


# -- names that are no markup -------------------------------------------------------------------------------


@pytest.fixture
def fold(run: pb.Run, small_screen: Path) -> pb.Fold:
    return pb.open_fold(run.fold_folder, screen=pb.read_screen(small_screen))


def test_no_name_becomes_a_tag(fold: pb.Fold) -> None:
    screen = replace(
        fold.screen, name=HOSTILE, obs=fold.screen.obs.replace({"context": {"S1": HOSTILE}}), _checked=True
    )
    conditions = pd.DataFrame({"context": [HOSTILE], "perturbation": [HOSTILE]})
    objects = [
        screen,
        replace(fold, data=HOSTILE, notes=(HOSTILE,)),
        pb.Effects(np.ones((1, 1)), conditions, pd.Index([HOSTILE])),
        pb.Answers(pd.DataFrame({"id": [HOSTILE], "outcome": ["up"]})),
        replace(
            outcome(pb.Answers(pd.DataFrame({"id": [], "outcome": []})), fold.truth), fold=HOSTILE, notes=(HOSTILE,)
        ),
        pb.runs.RunScores({"adapters": {HOSTILE: {"skipped": HOSTILE}}, "fold_hash": HOSTILE}),
        pb.scorers.Shortcuts(pd.DataFrame(), 0, 0, 0.95, HOSTILE),
    ]
    for one in objects:
        shown = Tags(one._repr_html_())
        assert not {"script", "b"} & shown.tags, type(one).__name__
        assert "<script>" in shown.text, type(one).__name__


def test_what_objects_show_in_a_notebook_is_short(fold: pb.Fold) -> None:
    for one in (fold, fold.screen, fold.effects, fold.training, fold.truth, fold.inputs("test")):
        assert len(repr(one).splitlines()) <= 5
        if hasattr(one, "_repr_html_"):
            assert len(one._repr_html_()) < 6000
    assert "the first 6 conditions and 8 genes" in Tags(fold.effects._repr_html_()).text
