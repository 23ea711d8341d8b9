"""Plug-ins that break what they promise fail alone, with the reason, and change nobody else's numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_runs import PLUGINS, Pertbase, run_small

from pertbase.runs import find_runs


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with a plug-in for each class of PLUGINS, in a module of its own name."""
    module = f"plugins_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "conf" / "baseline"
    folder.mkdir(parents=True)
    for line in PLUGINS.splitlines():
        if line.startswith("class "):
            name = line.removeprefix("class ").partition("(")[0]
            (folder / f"{name.lower()}.yaml").write_text(f"_target_: {module}.{name}\n")
    return folder.parent


def _scores(runs: Path, name: str) -> Any:
    return json.loads((runs / "small" / "combinatorial" / name / "seed0" / "scores.json").read_text())["adapters"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("naneffects", "an effect is NaN or infinite"),
        ("twice", "a condition has two rows of effects"),
        ("otherstatistic", "of another statistic than the fold's"),
        ("othershape", "effects do not fit their conditions and genes"),
        ("words", "could not convert string to float: 'x' (see error.txt)"),
        ("exits", "SystemExit: 3 (see error.txt)"),
        ("recursive", "RecursionError"),
        ("refuses", "ZeroDivisionError: while refusing"),
        ("readsafile", "No such file or directory: '/nowhere/weights.bin' (see error.txt)"),
        ("otherids", "1 answers have ids that are not asked (got 'x')"),
        ("trainingids", "answers have ids that are not asked"),
    ],
)
def test_plug_in_that_breaks_the_contract_fails_alone_with_the_reason(
    name: str, said: str, pertbase: Pertbase, small_screen: Path, plugins: Path, runs: Path
) -> None:
    code, out = run_small(pertbase, small_screen, runs, f"{name},gene_prior", conf=plugins)
    assert code == 1
    assert "1 done, 1 failed" in out
    assert said in out
    failed = [run for run in find_runs(runs) if run.status["state"] == "failed"]
    if name != "refuses":
        assert "see error.txt" not in out or "Traceback" in (failed[0].folder / "error.txt").read_text()
        assert failed[0].reason


def test_order_of_genes_and_conditions_and_what_nobody_asked_make_no_difference(
    pertbase: Pertbase, small_screen: Path, plugins: Path, runs: Path
) -> None:
    code, out = run_small(pertbase, small_screen, runs, "plain,reversed,missing", conf=plugins)
    assert code == 0, out
    assert _scores(runs, "plain") == _scores(runs, "reversed")
    for scores in _scores(runs, "missing").values():
        assert scores["coverage"] == 0
        assert scores["status"] == {"unsupported": scores["n"]}


def test_plug_in_that_writes_into_what_it_is_given_changes_nobodys_numbers(
    pertbase: Pertbase, finished: Path, small_screen: Path, plugins: Path, tmp_path: Path
) -> None:
    code, out = run_small(pertbase, small_screen, tmp_path / "runs", "writes,plain,additive,no_change", conf=plugins)
    assert code == 0, out
    for name in ("additive", "no_change"):
        assert _scores(tmp_path / "runs", name) == _scores(finished, name)
    # Nor its own: the adapters are fitted on, and answer, what it was given as it was given.
    assert _scores(tmp_path / "runs", "writes") == _scores(tmp_path / "runs", "plain")


@pytest.mark.parametrize("name", ["nan", "1", "true", "1e5"])
def test_plug_in_may_have_a_name_that_yaml_reads_as_something_else(
    name: str, pertbase: Pertbase, small_screen: Path, plugins: Path, runs: Path
) -> None:
    shutil.copy(plugins / "baseline" / "plain.yaml", plugins / "baseline" / f"{name}.yaml")
    code, out = run_small(pertbase, small_screen, runs, name, conf=plugins)
    assert code == 0, out
    assert (runs / "small" / "combinatorial" / name / "seed0" / "scores.json").exists()
