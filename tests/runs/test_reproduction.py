"""An experiment beside the published table: every number of ours names its runs, and what was not run says so."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from pertbase.errors import InputError
from pertbase.runs import Names, find_runs
from pertbase.runs._experiment import read_experiment
from pertbase.runs._reports._figures import Figure
from pertbase.runs._reports._published import read_published
from pertbase.runs._reports._reproduction import Reproduction, reproduce
from pertbase.scorers import average

SHIPPED = ("norman_doubles", "pertreasonqa_outcome", "perturbqa_auroc")
PUBLISHED = {
    "title": "Somebody's table",
    "source": "a paper",
    "data": "small",
    "columns": ["accuracy", "BA", "speed"],
    "rows": {"Additive": [0.9, 0.8, 3.5], "Their model": [0.95, None, 1.0]},
    "sources": {"Their model": "a letter"},
    "differs": ["theirs is another screen"],
}
TABLE = {
    "published": "theirs",
    "columns": {
        "BA": {"score": "balanced_accuracy"},
        "accuracy": {"score": "accuracy", "adapter": "fixed"},
        "pearson": {"score": "expression.pearson_delta"},
    },
    "rows": {"Additive": {"run": "additive"}, "Their model": {"note": "its weights are not public"}},
}

Setting = Callable[..., Path]


@pytest.fixture
def conf(small_screen: Path, tmp_path: Path) -> Setting:
    """Write a user's experiment and published figures, and return their folder."""

    def write(
        *, table: Mapping[str, Any] = TABLE, published: Mapping[str, Any] = PUBLISHED, runs: list[dict] | None = None
    ) -> Path:
        shared = {"data": "h5ad", "data.path": str(small_screen), "data.name": "small", "fold": "combinatorial"}
        default = [{"baseline": ["no_change", "additive"]}, {"part": "gpu", "baseline": "gears"}]
        entries = [{**shared, **entry} for entry in (runs or default)]
        about = {"title": "Ours", "cost": {"gpu": _COST}, "runs": entries, "table": dict(table)}
        for folder, content in (("experiment", about), ("published", dict(published))):
            (tmp_path / "conf" / folder).mkdir(parents=True, exist_ok=True)
            name = "mine" if folder == "experiment" else "theirs"
            (tmp_path / "conf" / folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return tmp_path / "conf"

    return write


_COST = {"hardware": "one GPU", "hours": 2, "disk": 1, "estimated": "guessed"}


def _found(conf: Path, runs: Path) -> Reproduction:
    names = Names((conf,))
    return reproduce(read_experiment("mine", names), runs, names)


def _copied(runs: Path, tmp_path: Path) -> Path:
    shutil.copytree(runs, tmp_path / "runs")
    return tmp_path / "runs"


def _figure(found: Reproduction, label: str, column: str) -> Figure | str:
    (row,) = [row for row in found.rows if row.label == label]
    return row.ours[column]


def test_ours_theirs_and_the_difference_stand_by_row_and_column(conf: Setting, finished: Path) -> None:
    found = _found(conf(), finished)
    assert found.columns == ("accuracy", "BA", "speed", "pearson")
    assert [row.label for row in found.rows] == ["Additive", "Their model", "no_change", "gears"]
    (run,) = [run for run in find_runs(finished) if run.config["name"] == "additive"]
    scores = run.scores
    accuracy = _figure(found, "Additive", "accuracy")
    assert isinstance(accuracy, Figure)
    assert accuracy.value == scores["adapters"]["fixed"]["accuracy"]["value"]
    assert accuracy.low == scores["adapters"]["fixed"]["accuracy"]["low"]
    assert accuracy.runs == (run,)
    pearson = _figure(found, "Additive", "pearson")
    assert isinstance(pearson, Figure)
    assert pearson.value == scores["expression"]["metrics"]["pearson_delta"]["mean"]
    table = found.table().set_index(["row", "column"])
    calibrated = scores["adapters"]["calibrated"]["balanced_accuracy"]["value"]
    assert table.loc[("Additive", "BA"), "difference"] == pytest.approx(calibrated - 0.8, abs=1e-12)
    assert math.isnan(table.loc[("no_change", "BA"), "difference"])
    assert table.loc[("no_change", "BA"), "ours"] == pytest.approx(1 / 3, abs=1e-12)
    # An answer baseline predicts no effects: no number, and no zero.
    assert math.isnan(table.loc[("no_change", "pearson"), "ours"])
    assert table.loc[("Their model", "BA"), "state"] == "not run"
    assert math.isnan(table.loc[("Their model", "BA"), "published"])


def test_every_number_of_ours_names_the_run_it_comes_from(conf: Setting, finished: Path) -> None:
    table = _found(conf(), finished).table()
    ours = table.loc[table["ours"].notna()]
    assert len(ours) > 3
    for line in ours.itertuples():
        assert (Path(line.runs) / "scores.json").is_file()
        assert Path(line.runs).parent.name == line.run
    assert (table.loc[table["state"] != "run", "runs"] == "").all()


def test_what_was_not_run_is_said_with_the_command_and_its_cost(pertbase, conf: Setting, finished: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = pertbase("report", "--config-dir", str(conf()), "experiment=mine", f"runs={finished}", "format=md")
    assert code == 0, err
    assert "| gears, not published here | not run | not run | – | not run |" in out
    assert "- not run: gears; pertbase run -m experiment=mine part=gpu" in out
    assert "- part=gpu takes one GPU; 2 h, 1 GB of disk (guessed)" in out
    assert "- Their model: its weights are not public" in out
    assert "- source of Their model: a letter" in out
    assert "- not the same: theirs is another screen" in out
    assert "- no score of ours stands in speed" in out
    assert out.startswith("## Ours (simulated) (published, not reproduced here")
    assert "| Additive, published | 0.9 | 0.8 | 3.5 | – |" in out


def test_where_nothing_was_run_yet_the_published_figures_stand_with_the_command(
    pertbase, conf: Setting, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    code, out, err = pertbase(
        "report", "--config-dir", str(conf()), "experiment=mine", f"runs={tmp_path / 'none'}", "format=md"
    )
    assert code == 0, err
    assert "| Additive, published | 0.9 | 0.8 | 3.5 | – |" in out
    assert "pertbase run -m experiment=mine" in out
    assert f"there is no folder {tmp_path / 'none'}: nothing was run" in out


def test_what_an_experiment_takes_is_told_before_it_is_run(pertbase, conf: Setting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command = ["run", "-m", "--config-dir", str(conf()), "experiment=mine", "dry_run=true", f"runs={tmp_path / 'r'}"]
    code, out, err = pertbase(*command)
    assert code == 0
    assert "experiment=mine part=gpu: one GPU; 2 h, 1 GB of disk (guessed)" in err
    assert "GPU" not in out


def test_every_format_holds_the_same_numbers(pertbase, conf: Setting, finished: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command = ["report", "--config-dir", str(conf()), "experiment=mine", f"runs={finished}"]
    shown = {form: pertbase(*command, f"format={form}")[1] for form in ("terminal", "md", "csv", "html")}
    rows = pd.read_csv(io.StringIO(shown["csv"])).set_index(["row", "column"])
    difference = f"{rows.loc[('Additive', 'BA'), 'difference']:+.3f}"
    for form in ("terminal", "md", "html"):
        assert difference in shown[form]
    assert str(finished.parent) not in shown["html"]
    code, _, err = pertbase(*command, f"output={tmp_path / 'table.html'}")
    assert code == 0, err
    assert (tmp_path / "table.html").read_text(encoding="utf-8") == shown["html"]
    assert shown["html"].count("simulated") >= 3
    code, _, err = pertbase(*command, "format=svg")
    assert code == 2
    assert "format=html" in err
    code, _, err = pertbase(*command, "compare=additive,no_change")
    assert code == 2
    assert "is not taken beside experiment" in err


def test_several_seeds_are_a_mean_with_its_spread(conf: Setting, finished: Path, tmp_path: Path) -> None:
    runs = _copied(finished, tmp_path)
    (run,) = [run for run in find_runs(runs) if run.config["name"] == "additive"]
    values = [run.scores["adapters"]["fixed"]["accuracy"]["value"]]
    for seed, shift in ((1, 0.02), (2, -0.05)):
        other = run.folder.parent / f"seed{seed}"
        shutil.copytree(run.folder, other)
        config = yaml.safe_load((other / "config.yaml").read_text())
        (other / "config.yaml").write_text(yaml.safe_dump({**config, "seed": seed}, sort_keys=False))
        scores = json.loads((other / "scores.json").read_text())
        scores["adapters"]["fixed"]["accuracy"]["value"] += shift
        values.append(scores["adapters"]["fixed"]["accuracy"]["value"])
        (other / "scores.json").write_text(json.dumps(scores))
    entries = [{"baseline": "additive", "seed": [0, 1, 2, 3]}]
    found = _found(conf(runs=entries), runs)
    figure = _figure(found, "Additive", "accuracy")
    assert isinstance(figure, Figure)
    assert figure.value == pytest.approx(sum(values) / 3, abs=1e-12)
    assert figure.spread == pytest.approx(pd.Series(values).std(), abs=1e-12)
    assert math.isnan(figure.low)
    assert [run.config["seed"] for run in figure.runs] == [0, 1, 2]
    assert "additive: 3 of 4 seeds were run; not seed 3" in found.notes
    # A seed that the experiment does not list is not taken in.
    of_two = _figure(_found(conf(runs=[{"baseline": "additive", "seed": [0, 1]}]), runs), "Additive", "accuracy")
    assert isinstance(of_two, Figure)
    assert of_two.n_seeds == 2


def test_a_run_with_other_settings_is_told_apart(conf: Setting, finished: Path, tmp_path: Path) -> None:
    assert _found(conf(), finished).notes == ()
    runs = _copied(finished, tmp_path)
    (run,) = [run for run in find_runs(runs) if run.config["name"] == "additive"]
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    config["adapters"]["fixed"]["threshold"] = 0.5
    config["fold"]["test_share"] = 0.3
    (run.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (note,) = _found(conf(), runs).notes
    assert note.startswith("additive, seed 0: other settings: ")
    assert "adapters.fixed.threshold is 0.5, and 0.25 in the experiment" in note
    assert "fold.test_share is 0.3, and 0.25 in the experiment" in note


def test_a_run_that_failed_or_is_half_done_gives_no_number(conf: Setting, finished: Path, tmp_path: Path) -> None:
    runs = _copied(finished, tmp_path)
    (run,) = [run for run in find_runs(runs) if run.config["name"] == "additive"]
    run.mark("failed")
    found = _found(conf(), runs)
    assert _figure(found, "Additive", "BA") == "failed"
    run.mark("running")
    assert _figure(_found(conf(), runs), "Additive", "BA") == "interrupted"


def test_a_mean_over_folds_has_no_difference_until_all_are_there(conf: Setting, finished: Path, tmp_path: Path) -> None:
    def table(mean_of: int) -> dict[str, Any]:
        return {**TABLE, "data": "small*", "fold": "combinatorial", "mean_of": mean_of}

    runs = _copied(finished, tmp_path)
    shutil.copytree(runs / "small", runs / "small_2")
    for path in (runs / "small_2").rglob("config.yaml"):
        config = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**config, "data_name": "small_2"}, sort_keys=False))
    found = _found(conf(table=table(3)), runs)
    (additive, *_) = found.rows
    figure = additive.ours["BA"]
    assert isinstance(figure, Figure)
    assert figure.n_folds == 2
    assert math.isnan(found.difference(additive, "BA"))
    assert "additive, no_change: a mean over 2 of 3 folds, and so without a difference" in found.notes
    found = _found(conf(table=table(2)), runs)
    assert found.difference(found.rows[0], "BA") == pytest.approx(figure.value - 0.8, abs=1e-12)
    # The interval is joint over the folds, not that of one of them.
    from pertbase.folds import read_truth

    pairs = [(run.answers("calibrated"), read_truth(run.fold_folder)) for run in figure.runs]
    assert (figure.low, figure.high) == (average(pairs).balanced_accuracy.low, average(pairs).balanced_accuracy.high)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": {"Aditive": {"run": "additive"}}}, "Did you mean 'Additive'?"),
        ({"rows": {"Additive": {"run": "aditive"}}}, "Did you mean 'additive'?"),
        ({"rows": {"Additive": {"runs": "additive"}}}, "Did you mean 'run'?"),
        ({"published": "thiers"}, "Did you mean 'theirs'?"),
        ({"columns": {"BA": {"score": "balanced_acuracy"}}}, "Did you mean 'balanced_accuracy'?"),
        ({"columns": {"BA": {"score": "expression.pearson"}}}, "Did you mean 'expression.pearson_delta'?"),
        ({"columns": {"BA": {"adapter": "fixed"}}}, "score"),
        ({"columns": {"BA": "balanced_accuracy"}}, "is a mapping of"),
        ({"columns": {}}, "names no column"),
        ({"colums": {}}, "Did you mean 'columns'?"),
        ({"columns": ["BA"]}, "is a mapping"),
        ({"rows": ["Additive"]}, "is a mapping"),
    ],
)
def test_a_mistake_in_the_table_is_named_with_the_file(conf: Setting, finished: Path, change, said) -> None:  # type: ignore[no-untyped-def]
    folder = conf(table={**TABLE, **change})
    with pytest.raises(InputError) as caught:
        _found(folder, finished)
    assert said in str(caught.value)
    assert "mine.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": {"Additive": [0.9]}}, "is a list of 3 figures"),
        ({"rows": {"Additive": [0.9, "high", 1]}}, "is a list of 3 figures"),
        ({"source": ""}, "source"),
        ({"rows": [0.9]}, "is a mapping"),
        ({"columns": "BA"}, "is a list"),
        ({"sources": ["a letter"]}, "is a mapping"),
        ({"sorce": "x"}, "Did you mean 'source'?"),
    ],
)
def test_a_mistake_in_published_figures_is_named_with_the_file(conf: Setting, finished: Path, change, said) -> None:  # type: ignore[no-untyped-def]
    folder = conf(published={**PUBLISHED, **change})
    with pytest.raises(InputError) as caught:
        _found(folder, finished)
    assert said in str(caught.value)
    assert "theirs.yaml" in str(caught.value)


def test_an_unknown_experiment_and_one_without_a_table_are_refused(pertbase, finished: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase("report", "experiment=perturbqa_aurok", f"runs={finished}")
    assert code == 2
    assert "Did you mean 'perturbqa_auroc'?" in err
    code, _, err = pertbase("report", "experiment=demo", f"runs={finished}")
    assert code == 2
    assert "is held against no published table" in err


def test_a_part_of_an_experiment_is_run_when_asked_for(pertbase, conf: Setting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command = ["run", "-m", "--config-dir", str(conf()), "experiment=mine", "dry_run=true", f"runs={tmp_path / 'r'}"]
    parts = {part: pertbase(*command, *([f"part={part}"] if part else []))[1] for part in ("", "cpu", "gpu", "all")}
    assert parts[""] == parts["cpu"]
    assert "gears" not in parts[""]
    assert "gears" in parts["gpu"]
    assert "additive" not in parts["gpu"]
    assert len(parts["all"].splitlines()) == 3
    code, _, err = pertbase(*command, "part=gpus")
    assert code == 2
    assert "Did you mean 'gpu'?" in err
    code, _, err = pertbase("run", "baseline=additive", "part=gpu")
    assert code == 2
    assert "experiment=NAME" in err


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_table_names_what_there_is_and_what_it_costs(name: str, tmp_path: Path) -> None:
    experiment = read_experiment(name, Names())
    assert experiment.table is not None
    assert set(experiment.costs) == set(experiment.parts)
    found = reproduce(experiment, tmp_path, Names())
    figures = read_published(experiment.table.published, file=experiment.file).table
    # Every published row and column is held against something of ours, or says why not.
    assert set(experiment.table.rows) == set(figures.index)
    assert set(figures.columns) <= set(experiment.table.columns)
    assert all(row.run or row.note for row in found.rows)
    assert found.figures == []


@pytest.mark.slow
def test_the_published_table_of_perturbqa_is_met_by_runs_of_ours(pertbase, real_data, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, _, err = pertbase("run", "-m", "experiment=perturbqa_auroc", "fold.context=K562", f"runs={tmp_path}")
    assert code == 0, err
    code, out, err = pertbase("report", "experiment=perturbqa_auroc", f"runs={tmp_path}", "format=csv")
    assert code == 0, err
    table = pd.read_csv(io.StringIO(out)).set_index(["row", "column"])
    row = "SUMMER's retrieval alone"
    assert table.loc[(row, "K562 called"), "ours"] == pytest.approx(0.5905, abs=5e-4)
    assert table.loc[(row, "K562 called"), "difference"] == pytest.approx(0.0105, abs=5e-4)
    assert table.loc[(row, "K562 direction"), "ours"] == pytest.approx(0.701, abs=5e-4)
    assert table.loc[(row, "RPE1 called"), "state"] == "not run"
    assert table.loc[("SUMMER", "K562 called"), "state"] == "not run"
