"""The program: names, paths, exit codes, and what it never imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pertbase.folds import read_questions


@pytest.mark.parametrize("arguments", [["--help"], ["list", "baselines"], ["list"], ["run", "--help"]])
def test_help_and_lists_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from pertbase.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'numpy', 'pandas', 'scipy', 'anndata', 'torch', 'sklearn', 'scanpy', 'hydra'};"
        "print('HEAVY', sorted(heavy & set(sys.modules)));"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "baseline=gene_prio"], "Did you mean 'gene_prior'?"),
        (["run", "fold=combinatorail"], "Did you mean 'combinatorial'?"),
        (["run", "data=simulatd"], "Did you mean 'simulated'?"),
        (["run", "experiment=dmo", "-m"], "Did you mean 'demo'?"),
        (["rum"], "Did you mean 'run'?"),
        (["list", "baseline"], "Did you mean 'baselines'?"),
        (["report", "run=x"], "Did you mean 'runs'?"),
        (["folds", "chek"], "Did you mean 'check'?"),
        (["run", "fold.test_shar=0.3"], "Did you mean 'test_share'?"),
        (["run", "fold.rule.name=ranksums"], "Did you mean 'ranksum'?"),
        (["run", "-m", "baseline=glob(zzz*)"], "matches nothing"),
        (["run", "baseline=no_change,gene_prior"], "Add -m"),
        (["run", "seed=-1"], "seed"),
        (["run", "nonsense"], "key=value"),
        (["report", "runs=there/is/nothing"], "There is no such folder".lower()),
        (["score", "answers=x.csv"], "fold_dir: is missing"),
        (["folds", "show", "fold_dir=nowhere"], "no such file"),
        (["new", "baseline", "Not A Name"], "is not a name"),
        (["run", "data=h5ad"], "data.path"),
        (["run", "-m", "data=h5ad", "data.path=scren.h5ad", "baseline=no_change,gene_prior"], "Check the path, or set"),
        (["prepare", "input=nowhere.h5ad", "output=x.h5ad"], "no such file"),
        (["report", "output=r.pdf"], "output: no report is written as .pdf (got 'r.pdf'). End it in .md, .csv, .html"),
        (["report", "format=pdf"], "unknown format"),
        (["folds", "questions", "fold_dir=x", "output=q.txt"], "End it in .csv or .jsonl or .parquet"),
        (["folds", "questions", "fold_dir=x", "output=q"], "questions are not written as a file without an ending"),
        (
            ["paths", "show", "context=S1", "perturbation=P", "gene=G", "graph=mine.csv"],
            "Check the path, or set PERTBASE",
        ),
    ],
)
def test_a_bad_command_says_what_is_wrong_without_a_traceback(pertbase, tmp_path, monkeypatch, arguments, said) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    code, out, err = pertbase(*arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []


def test_of_several_baselines_an_option_goes_to_those_that_have_it(pertbase, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = ["run", "-m", "fold=combinatorial", "baseline=bilinear_ridge,no_change", f"runs={tmp_path}", "dry_run=true"]
    code, out, err = pertbase(*asked, "baseline.ridge=1")
    assert code == 0, err
    assert [line.split()[2] for line in out.splitlines()] == ["bilinear_ridge", "no_change"]
    from pertbase.runs._compose import expand
    from pertbase.runs._names import Names

    jobs = expand([*asked[2:4], "baseline.ridge=1,2", "seed=3"], Names(()), multirun=True)
    assert [sorted(text for text in job if "ridge" in text) for job in jobs] == [
        ["baseline.ridge=1", "baseline=bilinear_ridge"], ["baseline.ridge=2", "baseline=bilinear_ridge"], []
    ]  # fmt: skip
    assert all("seed=3" in job for job in jobs)
    # One that none has is refused by name, and so is one that the only baseline does not have.
    code, _, err = pertbase(*asked, "baseline.rigde=1")
    assert code == 2
    assert "baseline.rigde: unknown option" in err
    code, _, err = pertbase("run", "fold=combinatorial", "baseline=no_change", "baseline.ridge=1", "dry_run=true")
    assert code == 2
    assert "baseline.ridge: unknown option of baseline=no_change" in err


def test_the_module_is_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "pertbase", "--help"], capture_output=True, text=True, check=True)
    assert "pertbase run data=" in done.stdout


def test_a_dry_run_lists_the_runs_and_makes_nothing(pertbase, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase(
        "run", "-m", "fold=glob(unseen_*)", "baseline=no_change", "dry_run=true", f"runs={tmp_path / 'r'}"
    )
    assert code == 0
    assert len(out.splitlines()) == 6
    assert not (tmp_path / "r").exists()


def test_language_baselines_are_never_globbed_by_accident(tmp_path: Path) -> None:
    from pertbase.runs._names import Names

    (tmp_path / "baseline" / "llm").mkdir(parents=True)
    (tmp_path / "baseline" / "llm" / "costly.yaml").write_text("_target_: somewhere.Costly\n")
    (tmp_path / "baseline" / "mine.yaml").write_text("# a row of mine\n_target_: somewhere.Mine\n")
    names = Names((tmp_path,))
    assert "llm/costly" in names.options("baseline")
    assert names.options("baseline")["mine"] == "a row of mine"
    assert "llm/costly" not in names.match("baseline", ["*"])
    assert names.match("baseline", ["llm/cost*"]) == ["llm/costly"]
    assert "mine" in names.match("baseline", ["*"])


def test_every_path_may_hold_equals_signs_spaces_commas_and_brackets(
    pertbase, finished: Path, small_screen: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    awkward = tmp_path / "out = [1], 2 'quoted'"
    code, out, err = pertbase("report", f"runs={finished}", f"output={awkward / 'table.csv'}")
    assert code == 0, err
    table = pd.read_csv(awkward / "table.csv")
    assert set(table["baseline"]) >= {"no_change", "additive"}

    code, out, err = pertbase(
        "folds",
        "make",
        "data=h5ad",
        f"data.path={small_screen}",
        "data.name=small",
        "fold=combinatorial",
        f"output={awkward / 'folds'}",
    )
    assert code == 0, err
    (folder,) = [path for path in (awkward / "folds").iterdir() if path.is_dir()]
    code, out, err = pertbase(
        "folds", "check", f"fold_dir={folder}", "data=h5ad", f"data.path={small_screen}", "data.name=small"
    )
    assert code == 0, out + err
    assert "made again from the data set" in out

    questions = read_questions(folder / "questions.parquet")
    test = questions.loc[questions["split"] == "test"]
    asked = awkward / "asked.csv"
    code, _, err = pertbase("folds", "questions", f"fold_dir={folder}", f"output={asked}")
    assert code == 0, err
    assert not {"outcome", "effect", "p_value", "regime"} & set(pd.read_csv(asked).columns)
    named = awkward / "named.csv"
    pd.read_csv(asked)[["context", "perturbation", "gene"]].assign(outcome="no_change").to_csv(named, index=False)
    code, out, err = pertbase("score", f"answers={named}", f"fold_dir={folder}")
    assert code == 0, err
    assert "0.333" in out

    answers = awkward / "my answers = [all].csv"
    test.assign(outcome="no_change")[["id", "outcome"]].to_csv(answers, index=False)
    code, out, err = pertbase("score", f"answers={answers}", f"fold_dir={folder}", f"output={awkward / 'scores.json'}")
    assert code == 0, err
    scores = json.loads((awkward / "scores.json").read_text())
    assert scores["balanced_accuracy"]["value"] == pytest.approx(1 / 3, abs=1e-12)


def test_a_tampered_fold_fails_the_check_with_exit_code_one(pertbase, small_screen: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pertbase(
        "folds",
        "make",
        "data=h5ad",
        f"data.path={small_screen}",
        "data.name=small",
        "fold=combinatorial",
        f"output={tmp_path}",
    )
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    controls = pd.read_parquet(folder / "controls.parquet")
    controls["role"] = "input"
    controls.to_parquet(folder / "controls.parquet", index=False)
    code, out, _ = pertbase("folds", "check", f"fold_dir={folder}")
    assert code == 1
    assert "problem: controls.parquet is not what fold.yaml says" in out


def test_a_pattern_over_data_sets_fetches_nothing() -> None:
    from pertbase.runs._names import Names

    names = Names()
    assert "norman" in names.options("data")
    assert "norman" not in names.match("data", ["*"])
    assert names.match("data", ["norman"]) == ["norman"]
    assert "simulated" in names.match("data", ["*"])


def test_a_fold_is_written_as_records_of_every_split(pertbase, finished: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (fold,) = (finished / "_folds").glob("small-*")
    code, out, err = pertbase("folds", "records", f"fold_dir={fold}", f"output={tmp_path / 'out'}", "mini=50")
    assert code == 0, err
    assert "to read them: data=pertreasonqa" in out
    questions = read_questions(fold / "questions.parquet")
    known = questions.loc[questions["outcome"].notna()]
    for split in ("train", "val", "test"):
        lines = (tmp_path / "out" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        asked = int((known["split"] == split).sum())
        assert len(lines) == (asked if split != "test" else min(asked, len(lines)))
        assert 0 < len(lines) <= asked
        assert isinstance(json.loads(lines[0]), dict)
    code, _, err = pertbase("folds", "records", f"fold_dir={fold}")
    assert code == 2
    assert "output: is missing" in err
    code, _, err = pertbase("folds", "records", f"fold_dir={fold}", f"output={tmp_path}", "data=papalexi")
    assert code == 2
    assert "no data set of records" in err
