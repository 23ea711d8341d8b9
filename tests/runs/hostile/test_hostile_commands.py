"""Values, names and places that a command could take for something else: refused by key, or carried as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd
import pytest
from small_runs import Pertbase, run_small

import pertbase as pb
from pertbase._io import write_aside
from pertbase.errors import InputError, PertbaseError
from pertbase.runs import find_runs, read_run, read_runs
from pertbase.runs._plan import DataShelf


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("seed=range(0)", "seed: gives no value"),
        ("fold.seed=range(3,3)", "fold.seed: gives no value"),
        ("seed=range(1000000000000)", "seed: gives more than 10,000 values"),
        ("cells=no", "cells: is true or false (got 'no')"),
        ("cells=5", "cells: is true or false (got 5)"),
        ("adapters=null", "adapters: are a mapping of adapters (got None)"),
        ("adapters.fixed=null", "adapters.fixed._target_: names no class (got None)"),
        ("+adapters.mine=3", "adapters.mine._target_: names no class (got 3)"),
        ("baseline._target_=3", "baseline._target_: names no class (got 3)"),
        ("+sead=3", "Did you mean 'seed'?"),
        ("runs=a\0b", "runs: is a folder"),
    ],
)
def test_value_that_would_be_taken_for_another_is_refused_before_anything_is_loaded(
    option: str, said: str, pertbase: Pertbase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DataShelf, "maker", lambda *_: pytest.fail("a data set was loaded"))
    code, out, err = pertbase("run", "-m", "data=simulated", "fold=combinatorial", "baseline=no_change", option)
    assert (code, out) == (2, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [3, None, b"seed=1", ["seed=1"], {"seed": 1}, "", "seed"])
def test_what_is_no_option_is_refused_by_the_function_too(given: object) -> None:
    with pytest.raises(InputError, match="is not of the form key=value"):
        pb.run(given, say=lambda line: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["true", "3.5", "1e5", "nan", "007", "null"])
def test_name_of_a_row_stays_the_text_that_was_typed(name: str, pertbase: Pertbase, tmp_path: Path) -> None:
    code, out, err = pertbase(
        "run", "fold=combinatorial", "baseline=no_change", f"name={name}", f"runs={tmp_path}", "dry_run=true"
    )
    assert code == 0, err
    assert out.split()[2] == ("no_change" if name == "null" else name)


@pytest.mark.parametrize("name", ["_small", "..", "_folds"])
def test_data_set_of_any_name_is_in_the_report(name: str, pertbase: Pertbase, small_screen: Path, runs: Path) -> None:
    code, out, err = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", f"data.name={name}", "fold=combinatorial",
        "baseline=no_change", f"runs={runs}",
    )  # fmt: skip
    assert code == 0, out + err
    assert name in {run.config["data_name"] for run in find_runs(runs)}
    assert name in set(read_runs(runs).rows()["data"])


@pytest.mark.parametrize("name", ["x" * 300, "a file", "a\0b"])
def test_place_that_can_be_no_folder_is_a_reason(
    name: str, pertbase: Pertbase, small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    for command in ("status", "report"):
        code, _, err = pertbase(command, f"runs={name}")
        assert code == 2
        assert "there is no such folder of runs" in err
    for read in (read_run, read_runs):
        with pytest.raises(InputError, match="there is no such folder"):
            read(name)
    code, out, err = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "fold=combinatorial", "baseline=no_change", f"runs={name}"
    )
    assert code in (1, 2)
    assert name[:20] in out + err or "\0" in name
    assert [item.name for item in tmp_path.iterdir()] == ["a file"]


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["folds", "show"], "question=q.csv"),
        (["folds", "show"], "split=val"),
        (["folds", "questions", "output=q.csv"], "splt=val"),
        (["folds", "split", "output=s.toml"], "data_foldr=x"),
        (["folds", "check"], "dat=simulated"),
        (["folds", "check"], "fold=combinatorial"),
        (["folds", "check", "data=simulated"], "baseline=no_change"),
        (["effects", "input=e.csv", "output=e.h5ad"], "path=x"),
    ],
)
def test_option_that_a_command_does_not_have_is_never_passed_over(
    command: list[str], option: str, pertbase: Pertbase, fold_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DataShelf, "maker", lambda *_: pytest.fail("a data set was loaded"))
    of = [f"fold_dir={fold_dir}"] if command[0] == "folds" else []
    code, out, err = pertbase(*command, *of, option)
    assert (code, out) == (2, "")
    assert option.partition("=")[0] in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["numpy", "pertbase", "json", "sys", "pytest"])
def test_new_baseline_never_hides_a_module_and_is_never_hidden_by_one(
    name: str, pertbase: Pertbase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for where in ([], [f"output={tmp_path / 'there'}"]):
        code, _, err = pertbase("new", "baseline", name, *where)
        assert code == 2
        assert "a module of this name is there already" in err
    assert list(tmp_path.iterdir()) == []
    # One's own is none to be hidden: what is there is said of the file.
    monkeypatch.syspath_prepend(str(tmp_path))
    assert pertbase("new", "baseline", "an_idea")[0] == 0
    assert "is there already" in pertbase("new", "baseline", "an_idea")[2]
    assert "an_idea" not in sys.modules


def test_complete_run_whose_scores_were_removed_is_carried_out_again(
    pertbase: Pertbase, small_screen: Path, runs: Path
) -> None:
    path = runs / "small" / "combinatorial" / "additive" / "seed0" / "scores.json"
    before = path.read_bytes()
    path.unlink()
    code, out = run_small(pertbase, small_screen, runs, "additive")
    assert (code, "done in" in out) == (0, True), out
    assert path.read_bytes() == before


def test_adapter_that_a_run_does_not_have_is_refused_whatever_is_asked_of_it(finished: Path) -> None:
    run = next(run for run in find_runs(finished) if run.config["name"] == "additive")
    for asked in (run.answers, run.thresholds):
        for name in ("calibratd", 3):
            with pytest.raises(InputError, match=r"unknown adapter .*Known: calibrated, fixed"):
                asked(name)
    assert isinstance(run.answers("fixed").table, pd.DataFrame)
    assert run.thresholds("calibrated") == run.thresholds()


@pytest.mark.parametrize("key", ["fold_dir", "runs"])
def test_a_name_that_no_file_system_takes_is_said_and_no_traceback(key: str, pertbase: Pertbase) -> None:
    command = {"fold_dir": ["folds", "show"], "runs": ["report"]}[key]
    code, _, err = pertbase(*command, f"{key}={'long' * 100}")
    assert code == 2
    assert "long" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_never_replaced_by_one(kind: str, tmp_path: Path) -> None:
    target = {"pipe": tmp_path / "pipe", "folder": tmp_path / "folder", "device": Path("/dev/null")}[kind]
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    before = os.stat(target).st_ino
    with pytest.raises(PertbaseError, match="is not a file"), write_aside(target) as path:
        path.write_text("text")
    assert os.stat(target).st_ino == before
    assert kind == "device" or list(tmp_path.iterdir()) == [target]
