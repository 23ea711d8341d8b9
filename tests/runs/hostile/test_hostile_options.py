"""Configurations, options and places of any kind, and tables of one outcome: refused by name, or run to the end."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pandas as pd
import pytest
from small_runs import Pertbase, run_small

from pertbase.folds import read_questions


@pytest.mark.parametrize("group", ["data", "fold", "baseline"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "mine.yaml"),
        (b"\ta: 1", "mine.yaml"),
        (b"a: 1\na: 2", "mine.yaml"),
        (b"\xff\xfe\x00", "mine.yaml: cannot be read"),
        (b"- 1", "mine.yaml does not give a mapping"),
        (b"", ""),
        (b"# @package elsewhere\na: 1", "mine.yaml"),
        (b"defaults: [nothing]", "nothing"),
        (b"a: ${nowhere}", "nowhere"),
        (b"a: ???", ".a: needs a value"),
    ],
    ids=["bracket", "tab", "twice", "bytes", "list", "empty", "package", "default", "interpolation", "missing"],
)
def test_broken_configuration_is_refused_by_its_file(
    group: str, content: bytes, said: str, pertbase: Pertbase, small_screen: Path, tmp_path: Path
) -> None:
    (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / group / "mine.yaml").write_bytes(content)
    options = {"data": "h5ad", "fold": "combinatorial", "baseline": "no_change"} | {group: "mine"}
    paths = [] if group == "data" else [f"data.path={small_screen}"]
    code, out, err = pertbase(
        "run", "--config-dir", str(tmp_path / "conf"), *(f"{key}={value}" for key, value in options.items()), *paths,
        f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code in (1, 2)
    assert "Traceback" not in out + err
    assert said in out + err
    assert not list(tmp_path.glob("runs/[!_]*"))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("fold.seed=abc", "fold.seed: is a whole number (got 'abc')"),
        ("fold.seed=1.5", "fold.seed: is a whole number (got 1.5)"),
        ("fold.test_share=x", "fold.test_share: a share lies between 0 and 1 (got 'x')"),
        ("fold.min_controls=x", "fold.min_controls: is a whole number"),
        ("fold.rule=3", "a label rule is a name"),
        ("+fold.rule.alpha=x", "ranksum.alpha: must be a positive number (got 'x')"),
        ("fold.kind=null", "unknown fold"),
        ("seed=x", "a seed is a whole number"),
        ("runs=null", "runs: is a folder"),
        ("runs=", "runs: is a folder"),
        ("trainer=null", "unknown trainer"),
        ("data=null", "unknown data"),
        ("name=[a]", "a name is a text"),
        ("~seed", "key=value"),
    ],
)
def test_option_of_the_wrong_type_is_refused_before_anything_is_made(
    option: str, said: str, pertbase: Pertbase, small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "fold=combinatorial", "baseline=no_change", option
    )
    assert code == 2
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_runs_is_found_by_any_path_to_it(
    pertbase: Pertbase, finished: Path, small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked screen.h5ad").symlink_to(small_screen)
    monkeypatch.chdir(tmp_path / "elsewhere")
    reports = []
    for runs in (tmp_path / "real", tmp_path / "link", "../real", "../elsewhere/../link", "./../real/"):
        code, out, err = pertbase(
            "run", "data=h5ad", "data.path=../linked screen.h5ad", "data.name=small", "fold=combinatorial",
            "baseline=additive", f"runs={runs}",
        )  # fmt: skip
        assert (code, "1 already complete" in out) == (0, True), out + err
        code, out, _ = pertbase("report", f"runs={runs}", "format=csv")
        assert code == 0
        reports.append(out)
    monkeypatch.chdir(tmp_path / "real")
    reports.append(pertbase("report", "runs=.", "format=csv")[1])
    tables = [pd.read_csv(io.StringIO(text)) for text in reports]
    for table in tables:
        same = [name for name in table.columns if table[name].astype(str).str.contains("seed0").sum() == 0]
        assert len(same) == len(table.columns) - 1  # all but the folder, which is told as it was given
        pd.testing.assert_frame_equal(table[same], tables[0][same])
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("where", ["/nowhere", "a file", ""])
def test_data_folder_that_is_not_there_is_named_with_every_place(
    where: str, pertbase: Pertbase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERTBASE_DATA", str(tmp_path / where) if where == "a file" else where)
    code, out, _ = pertbase("run", "data=h5ad", "data.path=mine.h5ad", "fold=combinatorial", "baseline=no_change")
    assert code == 1
    assert "mine.h5ad: is in none of the places looked at" in out
    assert str(tmp_path / "mine.h5ad") in out
    assert "PERTBASE_DATA" in out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("present", ["no_change", "up"])
def test_outcome_table_of_one_class_runs_to_the_end_and_is_not_ranked(
    present: str, pertbase: Pertbase, tmp_path: Path
) -> None:
    genes = ["1-Mar", "NA", "nan", "007", "NO", *(f"G{i}" for i in range(25))]
    perts = [f"P{i}" for i in range(12)]
    rows = [
        (pert, gene, int(present == "up"), "test" if number % 3 == 0 else "train")
        for number, pert in enumerate(perts)
        for gene in genes
    ]
    called = pd.DataFrame(rows, columns=["pert", "gene", "label", "split"])
    called.to_csv(tmp_path / "k562-de.csv", index=False)
    called.loc[called["label"] == 1].to_csv(tmp_path / "k562-dir.csv", index=False)
    runs = tmp_path / "runs"
    code, out, err = pertbase(
        "run", "-m", "data=perturbqa", f"data.folder={tmp_path}", "data.lines=[K562]",
        "fold=published,unseen_perturbation_genetic", "baseline=no_change,gene_prior_balanced,perturbed_mean",
        f"runs={runs}",
    )  # fmt: skip
    assert code == 0, out + err
    assert "4 done, 2 skipped" in out
    assert "needs expression" in out
    for form in ("terminal", "csv", "html"):
        code, said, err = pertbase("report", f"runs={runs}", f"format={form}")
        assert code == 0, err
        assert form != "terminal" or "Baselines are not ranked: test holds only" in said
    asked = set()
    for folder in (runs / "_folds").iterdir():
        if folder.is_dir():
            asked |= set(read_questions(folder / "questions.parquet")["gene"])
    assert asked == set(genes)


def test_another_runs_folder_is_never_marked_as_failed(pertbase: Pertbase, small_screen: Path, runs: Path) -> None:
    """A run of another configuration, perhaps going on elsewhere, is refused and left as it is."""
    folder = runs / "small" / "combinatorial" / "additive" / "seed0"
    (folder / "status.json").write_text('{"state": "running"}')
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, out = run_small(pertbase, small_screen, runs, "additive", "adapters.fixed.threshold=0.5")
    assert code == 1
    assert "another configuration" in out
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
