"""GEARS on real cells: every question is answered, beside the simple baselines."""

from __future__ import annotations

import pytest

from pertbase.cli import main
from pertbase.folds import read_truth
from pertbase.runs import find_runs

SMALL = ["baseline.hidden_size=8", "baseline.max_epochs=1", "baseline.batch_size=512"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "fold", "outside"),
    [
        ("papalexi", "unseen_perturbation_genetic", set()),
        ("kang", "unseen_context_chemical", set()),
        ("perturbench_devel", "combinatorial", set()),
        ("perturbench_devel", "unseen_context_genetic", {"CRISPRa:IER5L", "CRISPRa:NIT1"}),
    ],
)
def test_every_question_of_a_real_screen_is_answered(real_data, data, fold, outside, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    command = ["run", f"data={data}", f"fold={fold}", f"runs={tmp_path}"]
    assert main([*command, "baseline=gears", *SMALL]) == 0
    assert main([*command, "baseline=perturbed_mean"]) == 0
    (run,) = [run for run in find_runs(tmp_path) if run.config["name"] == "gears"]
    effects = run.effects()
    answers = run.answers("fixed")
    asked = read_truth(run.fold_folder).questions["id"]
    assert sorted(answers.table["id"]) == sorted(asked)
    assert answers.table["outcome"].notna().all()
    unsupported = effects.conditions.loc[effects.status == "unsupported", "perturbation"]
    assert set(unsupported) == outside
    capsys.readouterr()
    assert main(["report", f"runs={tmp_path}"]) == 0
    told = capsys.readouterr().out
    assert "gears" in told
    assert "perturbed_mean" in told
