"""Planning: each fold and each baseline composed once gives what composing every run gives; and it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pertbase.runs import _compose
from pertbase.runs._compose import Composer, compose, expand
from pertbase.runs._names import Names

_CONFIGURATIONS = {
    "baseline/plain.yaml": "_target_: somewhere.Plain\nscale: 1.0\n",
    "baseline/other.yaml": "_target_: somewhere.Other\n",
    # takes a value from the fold
    "baseline/reads.yaml": "_target_: somewhere.Reads\nseed: ${fold.seed}\n",
    # says something of other parts
    "fold/global.yaml": "# @package _global_\ndefaults:\n  - /fold@fold: combinatorial\nseed: 7\n",
    "baseline/global.yaml": "# @package _global_\nbaseline:\n  _target_: somewhere.Global\nfold:\n  seed: 5\n",
}


@pytest.fixture
def names(tmp_path: Path) -> Names:
    """Names with configurations of a user's that reach beyond their own part."""
    for name, text in _CONFIGURATIONS.items():
        place = tmp_path / "conf" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return Names((tmp_path / "conf",))


@pytest.mark.parametrize(
    "typed",
    [
        ["fold=combinatorial,published,unseen_context_genetic", "baseline=no_change,plain,other"],
        ["baseline=plain,other", "fold=combinatorial,published", "fold.seed=1,2", "baseline.scale=1,2", "seed=3"],
        ["fold=combinatorial,published", "fold.seed=1,2", "baseline=plain,reads"],
        ["fold=combinatorial,global,published", "baseline=plain,other"],
        ["fold=combinatorial,published", "baseline=plain,global,other"],
        ["fold=combinatorial,published", "baseline=plain,other", "name=x_${fold.seed}"],
        ["experiment=simple"],
    ],
)
def test_every_run_is_composed_as_if_it_were_alone(typed: list[str], names: Names) -> None:
    jobs = expand(typed, names, multirun=True)
    jobs = jobs if len(jobs) < 40 else [*jobs[:20], *jobs[-20:]]
    composer = Composer(names)
    for job in jobs:
        assert composer(job) == compose(job, names)


def test_planning_composes_each_fold_and_each_baseline_once(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = expand(["fold=glob(unseen_*)", "baseline=no_change,gene_prior,plain"], names, multirun=True)
    counted: list[Any] = []
    whole = _compose._composed
    monkeypatch.setattr(_compose, "_composed", lambda *given, **more: counted.append(given) or whole(*given, **more))
    composer = Composer(names)
    for job in jobs:
        composer(job)["baseline"]["changed"] = True
    folds = {text for job in jobs for text in job if text.startswith("fold=")}
    assert len(jobs) == 3 * len(folds)
    assert len(counted) == len(folds) + 3 - 1
    assert "changed" not in composer(jobs[0])["baseline"]


def test_what_is_planned_loaded_and_made_is_told_before_the_first_run(
    pertbase: Any, small_screen: Path, tmp_path: Path
) -> None:
    asked = ["run", "-m", "data=h5ad", f"data.path={small_screen}", "data.name=small", f"runs={tmp_path / 'runs'}"]
    asked += ["fold=combinatorial", "baseline=no_change,gene_prior"]
    code, out, err = pertbase(*asked)
    assert code == 0, err
    told = err.splitlines()
    assert told[:3] == ["planning ...", "planning 2 runs: 2 baselines", "loading data set small"]
    assert told[3:] == ["[1/2] making fold combinatorial of small"]
    assert [line[:5] for line in out.splitlines()[:2]] == ["[1/2]", "[2/2]"]
    # Nothing is made a second time, and a list of runs stays one.
    _, _, err = pertbase(*asked)
    assert "making" not in err
    _, out, _ = pertbase(*asked, "dry_run=true")
    assert len(out.splitlines()) == 2


def test_a_fold_that_cannot_be_made_is_told_once_for_all_its_baselines(pertbase: Any, tmp_path: Path) -> None:
    asked = [
        "run",
        "-m",
        "data=simulated",
        "fold=published",
        "baseline=no_change,gene_prior",
        f"runs={tmp_path / 'runs'}",
    ]
    _, out, err = pertbase(*asked)
    assert "skipped" in out
    assert err.splitlines().count("[1/2] making fold published of simulated") == 1
    assert "[2/2]" not in err
    assert "pertbase." not in err  # data sets are told by name, not by what makes them
