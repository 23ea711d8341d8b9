"""Scoring predictions made elsewhere: the same numbers as a run's, and GEARS' published predictions end to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase.folds import Effects, open_fold, read_answers
from pertbase.runs import find_runs


@pytest.fixture
def run(finished: Path):  # type: ignore[no-untyped-def]
    """The finished run of the expression baseline."""
    return next(run for run in find_runs(finished) if run.config["name"] == "additive")


@pytest.fixture
def gears(pertbase, real_data, tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    """The fold of GEARS' measured effects, and its predictions as effects."""
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, _, err = pertbase("folds", "make", "data=gears_norman", "fold=published", f"output={tmp_path / 'folds'}")
    assert code == 0, err
    (folder,) = (tmp_path / "folds").glob("gears_norman-published-*")
    code, out, err = pertbase(
        "effects", f"input={real_data / 'gears_norman' / 'gears_norman.csv'}", f"output={tmp_path / 'gears.h5ad'}",
        "effect=fm_log2FC", "unit=log2", "statistic=log_mean", "context_value=K562", "mechanism=CRISPRa",
    )  # fmt: skip
    assert code == 0, err
    assert "149 conditions x 98 genes" in out
    return folder, tmp_path / "gears.h5ad"


def test_a_runs_scores_hold_the_expression_metrics_of_expression_baselines_alone(finished) -> None:  # type: ignore[no-untyped-def]
    for run in find_runs(finished):
        scores = json.loads((run.folder / "scores.json").read_text(encoding="utf-8"))
        assert scores["adapters"]["fixed"]["n"] > 0
        assert ("expression" in scores) == (run.config["name"] == "additive")


def test_effects_scored_by_hand_have_the_runs_scores(pertbase, run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = pertbase(
        "score", f"effects={run.folder / 'effects.h5ad'}", f"fold_dir={run.fold_folder}",
        f"output={tmp_path / 'scores.json'}", f"answers_output={tmp_path / 'answers.parquet'}",
    )  # fmt: skip
    assert code == 0, err
    assert "pearson_delta" in out
    again = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    before = json.loads((run.folder / "scores.json").read_text(encoding="utf-8"))
    assert again["expression"] == before["expression"]
    assert again["adapters"]["fixed"] == before["adapters"]["fixed"]
    pd.testing.assert_frame_equal(
        read_answers(tmp_path / "answers.parquet").table, read_answers(run.folder / "answers" / "fixed.parquet").table
    )


def test_effects_that_do_not_cover_val_leave_the_adapter_flagged(pertbase, run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase(
        "score", f"effects={run.folder / 'effects.h5ad'}", f"fold_dir={run.fold_folder}", "adapter=calibrated",
        f"output={tmp_path / 's.json'}",
    )  # fmt: skip
    assert code == 0, err
    adapter = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["adapters"]["calibrated"]["adapter"]
    assert adapter["flagged"]
    assert adapter["fitted"] == "fixed"


def test_files_for_cell_eval_are_written_with_the_screen_at_hand(pertbase, run, small_screen, tmp_path) -> None:  # type: ignore[no-untyped-def]
    arguments = [
        "score", f"effects={run.folder / 'effects.h5ad'}", f"fold_dir={run.fold_folder}",
        f"cell_eval={tmp_path / 'out'}",
    ]  # fmt: skip
    code, _, err = pertbase(*arguments)
    assert code == 2
    assert "data=NAME" in err
    code, out, err = pertbase(*arguments, "data=h5ad", f"data.path={small_screen}", "data.name=small")
    assert code == 0, err
    assert "cell-eval run -ar real.h5ad" in out
    names = {"de_pred.csv", "de_real.csv", "predicted.h5ad", "real.h5ad"}
    for folder in (tmp_path / "out").iterdir():
        assert {file.name for file in folder.iterdir()} == names


def test_the_same_fold_is_needed(pertbase, run, gears) -> None:  # type: ignore[no-untyped-def]
    _, effects = gears
    code, _, err = pertbase("score", f"effects={effects}", f"fold_dir={run.fold_folder}")
    assert code == 2
    assert "another statistic" in err


def test_questions_with_a_column_of_effects_become_effects_without_an_option(pertbase, run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    asked = tmp_path / "asked.csv"
    code, _, err = pertbase("folds", "questions", f"fold_dir={run.fold_folder}", f"output={asked}")
    assert code == 0, err
    table = pd.read_csv(asked)
    table["effect"], _ = run.effects().at(table)
    table.to_csv(asked, index=False)
    code, _, err = pertbase("score", f"effects={asked}", f"fold_dir={run.fold_folder}")
    assert code == 2
    assert f"pertbase effects input={asked} output=" in err
    code, _, err = pertbase("effects", f"input={asked}", f"output={tmp_path / 'mine.h5ad'}")
    assert code == 0, err
    code, _, err = pertbase(
        "score", f"effects={tmp_path / 'mine.h5ad'}", f"fold_dir={run.fold_folder}", f"output={tmp_path / 's.json'}"
    )
    assert code == 0, err
    scores = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert scores["adapters"]["fixed"]["confusion"] == run.scores["adapters"]["fixed"]["confusion"]


@pytest.mark.parametrize(("kept", "leads"), [(0.3, True), (0.8, False)])
def test_where_most_questions_have_no_answer_that_is_said_first(pertbase, run, tmp_path, kept, leads) -> None:  # type: ignore[no-untyped-def]
    table = run.answers("fixed").table
    share = table.sample(frac=kept, random_state=0).copy()
    share.to_csv(tmp_path / "some.csv", index=False)
    code, out, err = pertbase("score", f"answers={tmp_path / 'some.csv'}", f"fold_dir={run.fold_folder}")
    assert code == 0, err
    first = out.splitlines()[0]
    assert ("of the questions have no answer and count as wrong" in first) == leads
    if leads:
        n = run.scores["adapters"]["fixed"]["n"]
        asked = open_fold(run.fold_folder).truth.questions
        asked = asked.loc[asked["outcome"].notna(), "id"]
        missing = n - int(asked.isin(share["id"]).sum())
        assert first.startswith(f"{missing / n:.1%} ")
        assert f"{missing:,} are not in {tmp_path / 'some.csv'}, and 0 are there without an outcome" in first


@pytest.mark.parametrize("column", ["context", "perturbation", "gene"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_an_id_of_another_question_than_its_row_names_is_refused(pertbase, run, tmp_path, column, suffix) -> None:  # type: ignore[no-untyped-def]
    asked = tmp_path / "asked.csv"
    assert pertbase("folds", "questions", f"fold_dir={run.fold_folder}", f"output={asked}")[0] == 0
    table = pd.read_csv(asked, dtype=str).assign(outcome="no_change")[
        ["id", "context", "perturbation", "gene", "outcome"]
    ]
    mine = tmp_path / f"mine{suffix}"

    def scored(torn: pd.DataFrame) -> tuple[int, str, str]:
        torn.to_csv(mine, index=False) if suffix == ".csv" else torn.to_json(mine, orient="records", lines=True)
        return pertbase("score", f"answers={mine}", f"fold_dir={run.fold_folder}")

    shuffled = np.random.default_rng(0).permutation(table[column].to_numpy())
    code, _, err = scored(table.assign(**{column: shuffled}))
    changed = int((shuffled != table[column]).sum())
    if changed:
        assert code == 2
        assert f"{changed:,} answers have the id of another question" in err
        assert str(mine) in err
    assert scored(table)[0] == 0
    assert scored(table.drop(columns=column))[0] == 0


def test_the_folder_above_a_fold_names_the_folds_in_it(pertbase, run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    for above in (run.fold_folder.parent, run.fold_folder.parents[1]):
        code, _, err = pertbase("folds", "show", f"fold_dir={above}")
        assert code == 2
        assert f"Name one of {run.fold_folder.relative_to(above)}" in err
    code, _, err = pertbase("folds", "show", f"fold_dir={tmp_path}")
    assert code == 2
    assert "no such file" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["answers=a.csv", "effects=e.h5ad", "fold_dir=x"], "either answers=FILE or effects=FILE"),
        (["fold_dir=x"], "either answers=FILE or effects=FILE"),
        (["effects=e.h5ad"], "fold_dir"),
        (["effects=e.h5ad", "fold_dir=x", "split=tst"], "Did you mean 'test'?"),
        (["effects=e.h5ad", "fold_dir=x", "beside=gene_prio"], "Did you mean 'gene_prior'?"),
        (["answers=a.csv", "fold_dir=x", "adapter=fixed"], "goes with effects=FILE"),
        (["effects=e.h5ad", "fold_dir=x", "preset=axes"], "goes with answers=FILE"),
        (["effects=e.h5ad", "fold_dr=x"], "Did you mean 'fold_dir'?"),
        (["effects=e.h5ad", "fold_dir=x"], "no such file"),
    ],
)
def test_a_bad_command_says_what_is_wrong(pertbase, tmp_path, monkeypatch, arguments, said) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    code, out, err = pertbase("score", *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in out + err


def test_gears_does_worse_than_the_genes_prior_on_perturbations_it_never_saw(pertbase, gears, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder, effects = gears
    code, out, err = pertbase(
        "score", f"effects={effects}", f"fold_dir={folder}", "beside=no_change,gene_prior_balanced",
        f"output={tmp_path / 's.json'}",
    )  # fmt: skip
    assert code == 0, err
    scores = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert set(scores["adapters"]["fixed"]["by_regime"]) == {"combo_seen0", "combo_seen1", "single_unseen"}
    assert scores["adapters"]["fixed"]["balanced_accuracy"]["value"] == pytest.approx(0.567, abs=5e-4)
    assert scores["expression"]["n_conditions"] == 47
    first = next(line for line in out.splitlines() if line.startswith("all "))
    ours, none, prior = map(float, first.split()[-3:])
    assert none == pytest.approx(1 / 3, abs=5e-4)
    assert prior > ours > none


def test_gears_missing_predictions_are_counted(pertbase, gears, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder, effects = gears
    code, out, err = pertbase(
        "score", f"effects={effects}", f"fold_dir={folder}", "split=train,val", "beside=no_change",
        f"output={tmp_path / 's.json'}",
    )  # fmt: skip
    assert code == 0, err
    scores = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert set(scores["adapters"]["fixed"]["by_regime"]) == {"single_seen", "combo_in_train"}
    fold = open_fold(folder)
    asked = fold.truth_of("train", "val").questions
    values, status = Effects.read(effects).at(asked)
    missing = int((status == "unsupported").sum())
    assert missing == scores["expression"]["n_missing"] == 8
    headline = asked["outcome"].notna().to_numpy()
    assert np.isnan(values).sum() == 8
    assert scores["adapters"]["fixed"]["status"]["unsupported"] == (np.isnan(values) & headline).sum()
    assert "our baselines were fitted on train and val" in out


def test_the_prior_beside_is_the_runs_row(pertbase, gears, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder, _ = gears
    code, _, err = pertbase(
        "run", "data=gears_norman", "fold=published", "baseline=gene_prior", f"runs={tmp_path / 'runs'}"
    )
    assert code == 0, err
    (run,) = find_runs(tmp_path / "runs")
    answers = run.folder / "answers" / "fixed.parquet"
    code, out, err = pertbase("score", f"answers={answers}", f"fold_dir={folder}", "beside=gene_prior")
    assert code == 0, err
    for line in out.splitlines():
        if line.startswith(("all ", "combo", "single")):
            assert line.split()[-1] == line.split()[-2]
