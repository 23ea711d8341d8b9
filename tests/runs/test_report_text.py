"""The report in a terminal: it fits, says what it leaves out, and says why it ranks nothing where it cannot."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from pertbase.folds import FoldSpec, remedies
from pertbase.runs import collect, find_runs
from pertbase.runs._reports._page._view import FoldView
from pertbase.runs._reports._published import MARK, published
from pertbase.runs._reports._render import render, sections
from pertbase.runs._reports._section import Section

FEW = {"up": 2, "down": 3, "no_change": 900}


@pytest.fixture
def unranked(finished: Path, tmp_path: Path) -> Path:
    """The finished runs, on a fold that says it holds too few of a class; its scores say so too."""
    shutil.copytree(finished, tmp_path / "runs")
    for path in (tmp_path / "runs" / "_folds").glob("*/fold.yaml"):
        about = yaml.safe_load(path.read_text())
        about["certificate"]["questions"]["test"] |= FEW
        about["certificate"]["ranks_baselines"] = False
        about["certificate"]["verdict"] = "cannot rank baselines: test holds only 2 up and 3 down questions"
        path.write_text(yaml.safe_dump(about))
    return tmp_path / "runs"


def _section(text: str, title: str) -> str:
    (found,) = [part for part in text.split("## ") if part.startswith(title)]
    return found


def _lines(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_a_fold_that_cannot_rank_says_why_and_what_may_help_before_its_table(pertbase, unranked: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase("report", f"runs={unranked}", "format=md")
    assert code == 0
    section = _section(out, "small (simulated): combinatorial")
    assert section.index("Baselines are not ranked: test holds only 2 up and 3 down") < section.index("| baseline |")
    for option in ("fold.combination_test_share=", "fold.rule.threshold=", "fold.seed=1"):
        assert option in section
    assert "| replicate ceiling |" not in section
    (folder,) = [path.parent for path in (unranked / "_folds").glob("*/fold.yaml")]
    code, out, _ = pertbase("folds", "show", f"fold_dir={folder}")
    assert code == 0
    assert "what may help:\n  ask more in test: fold.combination_test_share=0.75 (now 0.5)" in out


def test_a_row_without_fitted_thresholds_is_starred_wherever_it_stands_and_below_those_with(
    finished: Path,
    tmp_path: Path,
) -> None:
    shutil.copytree(finished, tmp_path / "runs")
    (best,) = (tmp_path / "runs").glob("*/*/additive/seed0/scores.json")
    about = json.loads(best.read_text())
    about["adapters"]["calibrated"]["adapter"]["flagged"] = True
    best.write_text(json.dumps(about))
    report = collect(tmp_path / "runs")
    (part, *_) = sections(report)
    rows = part.table.set_index("baseline")["BA calibrated"]
    assert rows.index[-1] == "additive"
    # And on the page as in the terminal.
    page = FoldView(report.folds[0], ident="", adapter="calibrated", domain=(0.0, 1.0))
    assert page.runs[-1].config["name"] == "additive"
    assert [name for name, cell in rows.items() if cell.endswith(" *")] == ["additive"]
    assert any(note.startswith("* thresholds could not be fitted") for note in part.notes)
    (table,) = report.folds
    twice = replace(report, folds=(table, replace(table, fold="again")))
    (by_fold,) = [part for part in sections(twice) if "balanced accuracy by fold" in part.title]
    shown = by_fold.table.set_index("baseline")
    assert all(cell.endswith(" *") for cell in shown.loc["additive"])
    assert not any(cell.endswith("*") for cell in shown.drop(index="additive").to_numpy().ravel())
    means = twice.means("small").set_index("baseline")["n_flagged"]
    assert means["additive"] == 2
    assert means.drop("additive").eq(0).all()
    (mean,) = [part for part in sections(twice) if "mean balanced accuracy over folds" in part.title]
    assert mean.table.set_index("baseline").loc["additive", "mean BA"].endswith(" *")


def test_no_column_of_dashes_stands_under_a_fold_that_cannot_rank(unranked: Path) -> None:
    (part, *_) = sections(collect(unranked))
    assert not [name for name in part.table.columns if (part.table[name] == "–").all()]
    assert "accuracy" in part.table.columns


def test_a_fold_that_can_rank_has_nothing_to_mend(finished: Path) -> None:
    assert collect(finished).folds[0].remedies == []
    (part, *_) = sections(collect(finished))
    assert not part.lead


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (FoldSpec(kind="unseen_perturbation_genetic"), {"fold.test_share=0.5", "fold.rule.threshold=0.125"}),
        (FoldSpec(kind="unseen_both_chemical"), {"fold.both_share=0.45", "fold.test_context=NAME,", "fold.seed=1"}),
        (FoldSpec(kind="unseen_context_genetic", seed=4), {"fold.test_context=NAME,", "fold.seed=5"}),
        (FoldSpec(kind="genetic_to_chemical"), {"fold.seed=1"}),
        (FoldSpec(kind="published"), set()),
        (FoldSpec(kind="combinatorial", combination_test_share=0.8), {"fold.seed=1"}),
    ],
)  # fmt: skip
def test_what_may_help_is_an_option_of_that_kind_of_fold(spec: FoldSpec, options: set[str]) -> None:
    told = remedies(spec, FEW)
    named = {word for line in told for word in line.split() if word.startswith("fold.")}
    assert options <= named
    assert told
    for word in named:
        key, _, value = word.removeprefix("fold.").rstrip(",").partition("=")
        if "share" in key:
            # The larger share is one that such a fold takes.
            assert getattr(spec.with_(**{key: float(value)}), key) > getattr(spec, key)


def test_a_lower_threshold_is_no_remedy_where_no_change_is_what_is_missing() -> None:
    told = remedies(FoldSpec(kind="combinatorial"), {"up": 50, "down": 50, "no_change": 3})
    assert not [line for line in told if "threshold" in line]


def test_the_parameters_of_a_label_rule_are_options(pertbase, small_screen: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command = [
        "folds", "make", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        f"output={tmp_path}",
    ]  # fmt: skip
    code, _, err = pertbase(*command, "fold.rule.threshold=0.1")
    assert code == 0, err
    (folder,) = [path.parent for path in tmp_path.glob("*/fold.yaml")]
    assert yaml.safe_load((folder / "fold.yaml").read_text())["spec"]["rule"]["threshold"] == 0.1
    code, _, err = pertbase(*command, "fold.rule.treshold=0.1")
    assert code == 2
    assert "Did you mean 'threshold'?" in err


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_table_fits_the_terminal_and_says_what_it_left_out(pertbase, finished, monkeypatch, width) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = pertbase("report", f"runs={finished}")
    assert code == 0
    assert _lines(out) <= width
    header = next(line for line in out.splitlines() if line.startswith(" baseline"))
    assert "BA calibrated" in header
    assert "supported BA" not in header
    assert "supported BA" in out[out.index("left out for want of room") :]


def test_what_is_no_terminal_gets_every_column(pertbase, finished, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("COLUMNS", raising=False)
    _, out, _ = pertbase("report", f"runs={finished}")
    assert "supported BA" in out
    assert "left out" not in out
    monkeypatch.setenv("COLUMNS", "80")
    assert pertbase("report", f"runs={finished}", f"output={tmp_path / 'r.txt'}")[0] == 0
    assert "left out" not in (tmp_path / "r.txt").read_text()
    _, out, _ = pertbase("report", f"runs={finished}", "format=md")
    assert "| supported BA |" in out


def test_a_table_that_is_still_too_wide_goes_on_below() -> None:
    table = pd.DataFrame([["row", *("0.851 [0.809, 0.885]" for _ in range(6))]])
    table.columns = ["baseline", *(f"fold {number}" for number in range(6))]
    text = render([Section("t", table)], "terminal", width=80)
    assert _lines(text) <= 80
    assert text.count(" baseline ") > 1
    assert all(f"fold {number}" in text for number in range(6))
    assert "left out" not in text


def test_optional_columns_go_one_by_one_in_their_order() -> None:
    table = pd.DataFrame([["row", "x" * 30, "y" * 30, "z" * 30]], columns=["baseline", "one", "two", "three"])
    text = render([Section("t", table, optional=("two", "three"))], "terminal", width=90)
    assert "csv: two\n" in text
    assert "three" in text


def test_a_mean_is_over_several_folds(pertbase, finished: Path) -> None:  # type: ignore[no-untyped-def]
    assert "mean balanced accuracy" not in pertbase("report", f"runs={finished}", "format=md")[1]
    assert len(collect(finished).means("small")) == 3


def test_the_columns_and_the_adapters_in_use_are_explained_in_a_line_each(pertbase, finished: Path) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = pertbase("report", f"runs={finished}", "format=md")
    told = _section(out, "How to read")
    assert "- AUROC: called: up or down against no_change; direction: up against down." in told
    # What stands below a fold's table is explained under the same words.
    assert "; two baselines need a difference of about " in out
    assert "- Difference needed: how far apart in balanced accuracy two baselines must be" in told
    (line,) = [line for line in told.splitlines() if line.startswith("- adapters:")]
    assert all(f"{name}: " in line for name in ("fixed", "calibrated", "prior_matched"))
    assert "rank_test" not in line


def test_published_figures_stand_beside_runs_on_their_own_data_alone(finished: Path) -> None:
    assert published(["small", "simulated"]) == []
    assert [one.title.split(",")[0] for one in published(["perturbqa"])] == ["PerturbQA"]
    assert [one.title.split(",")[0] for one in published(["pertreasonqa", "small"])] == ["PertReasonQA"]
    assert MARK not in render(sections(collect(finished)), "md")
    assert find_runs(finished)


def test_what_a_baseline_could_not_speak_to_is_said_below_the_table(
    pertbase, small_screen: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    """Half of the targets are taken out of the measured genes: the bilinear model does not speak of them."""
    from pertbase.folds import read_screen, write_screen

    screen = read_screen(small_screen)
    targets = {gene for item in screen.perturbations.values() for gene in item.targets}
    held = sorted(targets)[: len(targets) // 2]
    kept = ~screen.genes.isin(held)
    write_screen(replace(screen, X=screen.X[:, kept], genes=screen.genes[kept], counts=None), tmp_path / "screen.h5ad")
    code, _, err = pertbase(
        "run", "-m", "data=h5ad", f"data.path={tmp_path / 'screen.h5ad'}", "data.name=part",
        "fold=unseen_perturbation_genetic", "baseline=bilinear_ridge,no_change", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0, err
    _, out, _ = pertbase("report", f"runs={tmp_path / 'runs'}", "format=md")
    (line,) = [line for line in out.splitlines() if "speaks of" in line]
    run = next(run for run in find_runs(tmp_path / "runs") if run.config["name"] == "bilinear_ridge")
    scores = run.scores["adapters"]["calibrated"]
    spoken = scores["n"] - scores["status"]["unsupported"]
    assert 0 < spoken < scores["n"]
    assert line == (
        f"- bilinear_ridge speaks of perturbations with a target among the measured genes: {spoken:,} of "
        f"{scores['n']:,} questions"
    )
    _, page, _ = pertbase("report", f"runs={tmp_path / 'runs'}", "format=html", "shortcuts=false")
    assert line.removeprefix("- ") in page
