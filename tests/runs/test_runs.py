"""Runs: complete or taken up again, refused where they differ, skipped with a reason, failed alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pertbase as pb
from pertbase.folds import Answers, Effects, open_fold
from pertbase.runs import collect, find_runs
from pertbase.runs._commands._new import new_baseline
from pertbase.scorers import outcome


def _small(small_screen: Path) -> list[str]:
    return ["data=h5ad", f"data.path={small_screen}", "data.name=small"]


def test_a_run_leaves_everything_a_number_can_be_traced_to(finished: Path) -> None:
    for run in find_runs(finished):
        assert run.complete
        assert run.status["versions"]["pertbase"]
        assert run.config["fold_hash"] == open_fold(run.fold_folder).hash
        fold = open_fold(run.fold_folder)
        for adapter in run.adapters:
            scored = outcome(run.answers(adapter), fold.truth)
            kept = run.scores["adapters"][adapter]
            assert kept["accuracy"]["value"] == scored.accuracy.value
            assert kept["balanced_accuracy"]["value"] == scored.balanced_accuracy.value
        has_effects = (run.folder / "effects.h5ad").exists()
        assert has_effects == (run.config["name"] == "additive")
        if has_effects:
            assert isinstance(run.effects(), Effects)


def test_the_report_shows_whether_a_baseline_says_the_same_of_every_perturbation(pertbase, finished: Path) -> None:  # type: ignore[no-untyped-def]
    (table,) = collect(finished).folds
    rows = table.rows().set_index(["baseline", "adapter"])
    (run,) = [run for run in table.runs if run.config["name"] == "additive"]
    effects = run.effects()
    pairs = effects.conditions.assign(row=range(len(effects.conditions)))
    pairs = pairs.merge(pairs, on="context").query("row_x < row_y")
    own = [set(name.split(":")[1].split("+")) for name in effects.conditions["perturbation"]]
    expected = []
    for i, j in zip(pairs["row_x"], pairs["row_y"], strict=True):
        kept = ~effects.genes.isin(own[i] | own[j])
        expected.append(np.corrcoef(effects.values[i, kept], effects.values[j, kept])[0, 1])
    told = rows.loc[("additive", "calibrated")]
    assert told["pairwise_predicted"] == pytest.approx(np.mean(expected))
    assert told["pairwise_measured"] == run.scores["expression"]["pairwise"]["measured"]
    others = rows.index.get_level_values("baseline") != "additive"
    assert rows.loc[others, "pairwise_measured"].isna().all()  # those that answer directly predict no effects
    _, out, _ = pertbase("report", f"runs={finished}", "format=md")
    head, *_ = [line for line in out.splitlines() if line.startswith("| baseline")]
    lines = [line for line in out.splitlines() if line.startswith("| additive ")]
    assert head.split("|")[-2].strip() == "pairwise r (measured)"
    shown = f"{told['pairwise_predicted']:.3f} ({told['pairwise_measured']:.3f})"
    assert lines[0].split("|")[-2].strip() == shown


def test_scores_hold_no_time_and_no_path(finished: Path) -> None:
    for run in find_runs(finished):
        text = (run.folder / "scores.json").read_text()
        assert str(finished) not in text
        assert "NaN" not in text
        assert "finished" not in text
        assert str(finished) not in (run.folder / "config.yaml").read_text()


def test_the_same_command_again_says_complete_and_changes_nothing(pertbase, finished: Path, small_screen: Path) -> None:  # type: ignore[no-untyped-def]
    before = {path: path.read_bytes() for path in finished.rglob("*.json")}
    code, out, _ = pertbase("run", *_small(small_screen), "fold=combinatorial", "baseline=additive", f"runs={finished}")
    assert code == 0
    assert "already" in out
    assert {path: path.read_bytes() for path in finished.rglob("*.json")} == before


def test_a_run_cut_short_is_taken_up_and_scores_the_same_bytes(pertbase, finished: Path, small_screen: Path) -> None:  # type: ignore[no-untyped-def]
    (run,) = [run for run in find_runs(finished) if run.config["name"] == "additive"]
    before = (run.folder / "scores.json").read_bytes()
    (run.folder / "scores.json").unlink()
    run.mark("running")
    code, out, _ = pertbase("run", *_small(small_screen), "fold=combinatorial", "baseline=additive", f"runs={finished}")
    assert code == 0
    assert "done in" in out
    assert (run.folder / "scores.json").read_bytes() == before


def test_another_configuration_under_the_same_name_is_refused_with_the_difference(
    pertbase, finished: Path, small_screen: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(finished, runs := tmp_path / "runs")
    command = ["run", *_small(small_screen), "fold=combinatorial", f"runs={runs}"]
    code, out, _ = pertbase(*command, "baseline=gene_prior", "name=gene_prior_balanced")
    assert code == 1
    assert "another configuration" in out
    assert str(runs / "small" / "combinatorial" / "gene_prior_balanced") in out
    assert "baseline.balanced is True there and False here" in out
    code, out, _ = pertbase(*command, "baseline=gene_prior", "name=mine")
    assert code == 0


def test_a_failing_baseline_is_recorded_and_the_others_go_on(
    pertbase, small_screen: Path, tmp_path: Path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "broken_models.py").write_text(
        "import pertbase as pb\n\n"
        "class Broken(pb.ExpressionBaseline):\n"
        "    def fit(self, training):\n        raise RuntimeError('the model broke')\n"
        "    def predict(self, inputs):\n        raise NotImplementedError\n\n"
        "class Odd(pb.ExpressionBaseline):\n"
        "    def fit(self, training):\n        pass\n"
        "    def predict(self, inputs):\n        return 42\n"
    )
    for name in ("Broken", "Odd"):
        path = tmp_path / "conf" / "baseline" / f"{name.lower()}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"_target_: broken_models.{name}\n")
    (tmp_path / "conf" / "baseline" / "absent.yaml").write_text("_target_: broken_models.Absent\n")
    code, out, _ = pertbase(
        "run", "-m", "--config-dir", str(tmp_path / "conf"), *_small(small_screen), "fold=combinatorial",
        "baseline=broken,odd,absent,no_change", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 1
    assert "1 done, 3 failed" in out
    assert "RuntimeError: the model broke" in out
    assert "Effects or Answers" in out
    assert "Absent" in out
    failed = {run.config["name"]: run for run in find_runs(tmp_path / "runs") if run.status["state"] == "failed"}
    assert "raise RuntimeError('the model broke')" in (failed["broken"].folder / "error.txt").read_text()
    code, out, err = pertbase("report", f"runs={tmp_path / 'runs'}")
    assert code == 0
    assert "2 failed" in err
    code, out, _ = pertbase("status", f"runs={tmp_path / 'runs'}")
    assert "the model broke" in out


def test_what_cannot_be_is_skipped_with_its_reason_and_exit_code_zero(
    pertbase, small_screen: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase(
        "run",
        "-m",
        *_small(small_screen),
        "fold=genetic_to_chemical,published",
        "baseline=no_change",
        f"runs={tmp_path / 'r'}",
    )
    assert code == 0
    assert "it has no chemical perturbations" in out
    assert "it ships no split of its own" in out
    assert "0 done, 2 skipped" in out


def test_a_report_refuses_to_mix_folds_of_different_content(pertbase, small_screen: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command = ["run", *_small(small_screen), "fold=combinatorial", f"runs={tmp_path}"]
    assert pertbase(*command, "baseline=no_change")[0] == 0
    assert pertbase(*command, "baseline=gene_prior", "fold.input_share=0.4")[0] == 0
    code, _, err = pertbase("report", f"runs={tmp_path}")
    assert code == 2
    assert "2 different folds" in err


def test_the_report_shows_the_ceiling_first_and_no_change_at_a_third(pertbase, finished: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase("report", f"runs={finished}", "format=md")
    assert code == 0
    (section,) = [part for part in out.split("## ") if part.startswith("small (simulated): combinatorial")]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| replicate ceiling |")
    assert any(row.startswith("| no_change |") and "0.333 [0.333, 0.333]" in row for row in rows)
    assert "published" not in out
    table = collect(finished).rows()
    assert (table.loc[table["baseline"] == "no_change", "balanced_accuracy"] == 1 / 3).all()


def test_a_comparison_is_paired_and_antisymmetric(pertbase, finished: Path) -> None:  # type: ignore[no-untyped-def]
    report = collect(finished)
    forth = report.differences("additive", "no_change").iloc[0]
    back = report.differences("no_change", "additive").iloc[0]
    assert forth["difference"] == pytest.approx(-back["difference"], abs=1e-12)
    assert forth["low"] == pytest.approx(-back["high"], abs=1e-12)
    means = {
        run.config["name"]: run.scores["adapters"]["calibrated"]["balanced_accuracy"]["value"]
        for run in find_runs(finished)
    }
    assert forth["difference"] == pytest.approx(means["additive"] - means["no_change"], abs=1e-12)
    code, _, err = pertbase("report", f"runs={finished}", "compare=additive,no_chang")
    assert code == 2
    assert "Did you mean 'no_change'?" in err


def test_measured_effects_with_the_rules_own_thresholds_score_one(maker, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from pertbase.adapters import Fixed
    from pertbase.folds import FoldSpec

    fold = maker.make(FoldSpec(kind="combinatorial"))
    effects = fold.truth.effects
    assert effects is not None
    answers = Fixed(threshold=fold.spec.rule.tau).fit(fold.training).answer(fold.inputs("test"), effects)
    scores = outcome(answers, fold.truth)
    truth_effects = fold.truth.questions["effect"]
    assert (scores.per_outcome.loc[["up", "down"], "recall"] == 1).all()
    # The rule says no_change by p alone: one question in 100,000 has a large effect all the same.
    unchanged = truth_effects[fold.truth.questions["outcome"] == "no_change"]
    beyond = int((abs(unchanged) > fold.spec.rule.tau).sum())
    assert beyond <= 1
    assert scores.balanced_accuracy.value == pytest.approx(1 - beyond / len(unchanged) / 3, abs=1e-12)


def test_answers_shuffled_over_conditions_and_genes_score_at_chance(maker) -> None:  # type: ignore[no-untyped-def]
    from pertbase.folds import FoldSpec

    fold = maker.make(FoldSpec(kind="combinatorial"))
    truth = fold.truth
    asked = truth.questions.loc[truth.questions["outcome"].notna()]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(50):
        shuffled = Answers(pd.DataFrame({"id": asked["id"], "outcome": rng.permutation(asked["outcome"].to_numpy())}))
        found.append(outcome(shuffled, truth).balanced_accuracy.value)
    assert np.mean(found) == pytest.approx(1 / 3, abs=0.01)


def test_a_new_baseline_runs_as_it_is_written(pertbase, small_screen: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase("new", "baseline", "my_first_idea", f"output={tmp_path}")
    assert code == 0
    assert len(out.splitlines()) == 3
    code, out, _ = pertbase(
        "run", "--config-dir", str(tmp_path / "conf"), *_small(small_screen), "fold=combinatorial",
        "baseline=my_first_idea", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0, out
    (run,) = find_runs(tmp_path / "runs")
    assert json.loads((run.folder / "scores.json").read_text())["adapters"]["calibrated"]["n"] > 0
    code, _, err = pertbase("new", "baseline", "my_first_idea", f"output={tmp_path}")
    assert code == 2
    assert "is there already" in err


def test_a_new_baseline_predicts_what_it_says(small_screen: Path, tmp_path: Path) -> None:
    path, *_ = new_baseline("my_second_idea", tmp_path)
    made: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), made)
    model = made["MySecondIdea"]
    assert model.__doc__.startswith(
        "Predicts the mean effect of all training conditions, scaled, whatever the context."
    )
    fold = pb.make_fold(pb.read_screen(small_screen), kind="combinatorial")
    training, inputs = fold.training, fold.inputs("test")
    values = model(scale=0.5).fit(training).predict(inputs).values
    assert training.conditions["context"].nunique() > 1
    assert np.allclose(values, 0.5 * training.effects.values.mean(axis=0))


_WITH_PRESET = """
import pertbase as pb

class Constant(pb.AnswerBaseline):
    def __init__(self, *, preset="plain", other=0):
        self.preset, self.other = preset, other
    def fit(self, training):
        pass
    def answer(self, inputs):
        return pb.Answers(inputs.questions[["id"]].assign(outcome="no_change"))
"""


def test_a_run_is_named_after_its_baseline_and_the_preset_that_is_not_the_default(
    pertbase, small_screen: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "constant_models.py").write_text(_WITH_PRESET)
    (tmp_path / "conf" / "baseline").mkdir(parents=True)
    (tmp_path / "conf" / "baseline" / "constant.yaml").write_text(
        "_target_: constant_models.Constant\npreset: plain\nother: 0\n"
    )
    command = [
        "run", "-m", "--config-dir", str(tmp_path / "conf"), *_small(small_screen), "fold=combinatorial",
        "baseline=constant", f"runs={tmp_path / 'runs'}",
    ]  # fmt: skip
    code, out, _ = pertbase(*command, "baseline.preset=plain,fancy")
    assert code == 0, out
    assert sorted(run.config["name"] for run in find_runs(tmp_path / "runs")) == ["constant", "constant_fancy"]
    # The preset named is the default, so it is the run that is there already.
    assert "1 already complete" in pertbase(*command)[1]
    code, out, _ = pertbase(*command, "baseline.preset=fancy", "name=mine", "dry_run=true")
    assert out.splitlines()[0] == "small combinatorial mine seed=0"
    code, out, _ = pertbase("run", "baseline=gears", "baseline.preset=upstream", "dry_run=true")
    assert out.splitlines()[0] == "simulated unseen_perturbation_genetic gears_upstream seed=0"
    assert "gears seed" in pertbase("run", "baseline=gears", "baseline.preset=corrected", "dry_run=true")[1]
    assert "gears seed" in pertbase("run", "baseline=gears", "baseline.hidden_size=32", "dry_run=true")[1]


def test_two_screens_of_one_name_are_refused_with_both_files(
    pertbase, finished: Path, small_screen: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    from pertbase.folds import read_screen, write_screen

    shutil.copytree(finished, runs := tmp_path / "runs")
    screen = read_screen(small_screen)
    other = tmp_path / "other.h5ad"
    write_screen(screen.subset(np.arange(len(screen.obs)) % 10 != 0), other)
    before = sorted(runs.rglob("*"))
    # Another baseline and another fold: neither is there to be compared.
    for fold, baseline in (("combinatorial", "gene_prior"), ("unseen_perturbation_genetic", "no_change")):
        command = ["run", "data=h5ad", f"data.path={other}", f"fold={fold}", f"baseline={baseline}", f"runs={runs}"]
        code, out, _ = pertbase(*command, "data.name=small")
        assert code == 1
        assert str(small_screen) in out
        assert str(other) in out
        assert "data.name=NAME" in out
    assert sorted(runs.rglob("*")) == before
    code, out, _ = pertbase(*command, "data.name=smaller")
    assert code == 0, out
    # The same screen from another place is the same.
    shutil.copy(small_screen, tmp_path / "copy.h5ad")
    code, out, _ = pertbase(
        "run", "data=h5ad", f"data.path={tmp_path / 'copy.h5ad'}", "data.name=small", "fold=combinatorial",
        "baseline=gene_prior", f"runs={runs}",
    )  # fmt: skip
    assert code == 0, out


def test_a_run_that_nobody_is_at_any_more_is_called_interrupted(pertbase, finished: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(finished, copied := tmp_path / "runs")
    run = find_runs(copied)[0]
    run.mark("running")
    assert "0 running, 1 interrupted" in pertbase("status", f"runs={copied}")[1]
    with run.lock():
        assert "1 running, 0 interrupted" in pertbase("status", f"runs={copied}")[1]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("paths.hop=2", "unknown option of paths=own. Did you mean 'hops'? Known there: gate, graph, hops"),
        ("trainer.precison=32-true", "unknown option of trainer=cpu"),
        ("baseline.max_epochs=2", "unknown option of baseline=no_change"),
    ],
)
def test_an_unknown_option_is_told_with_whose_it_is_not(pertbase, tmp_path: Path, option: str, told: str) -> None:  # type: ignore[no-untyped-def]
    paths = ["paths=own"] if option.startswith("paths") else []
    code, out, err = pertbase("run", "data=simulated", "baseline=no_change", *paths, option, f"runs={tmp_path}")
    assert code != 0
    assert told in out + err


def test_what_preparing_a_screen_warns_of_is_said_once_a_command(
    pertbase, real_data, caplog, monkeypatch, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, _, err = pertbase(
        "run", "-m", "data=papalexi", "fold=unseen_perturbation_genetic", "fold.seed=0,1",
        "baseline=no_change,gene_prior", f"runs={tmp_path}",
    )  # fmt: skip
    assert code == 0, err
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("targeted panel" in line for line in said)
    assert len(said) == len(set(said))
