"""Fine-tuned baselines from the command line to the report: taught, rewarded, asked, and compared with their start."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase.baselines.finetuned._export import weights_hash
from pertbase.runs import find_runs
from pertbase.runs._reports._finetuned import curves, fifths
from pertbase.runs._reports._report import collect

pytest.importorskip("trl")

SIZES = {"hidden_size": 32, "layers": 2, "heads": 2, "vocabulary": 400, "positions": 512}
ASKED = ("baseline.template=short", "baseline.max_length=256", "baseline.max_tokens=48")
TINY = ("baseline.start=tiny", *(f"baseline.tiny.{key}={value}" for key, value in SIZES.items()))
TAUGHT = (
    "baseline.per_outcome=40", "baseline.max_epochs=8", "baseline.learning_rate=0.005", "baseline.batch_size=8",
    "baseline.explain=false", "baseline.pack=256", "baseline.selection_per_outcome=5",
)  # fmt: skip
REWARDED = (
    "baseline.steps=6", "baseline.questions=3", "baseline.generations=4", "baseline.per_outcome=20",
    "baseline.learning_rate=0.001", "baseline.patience=50",
)  # fmt: skip


def asking(small_screen: Path, runs: Path, *more: str) -> list[str]:
    return [
        "run", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=unseen_perturbation_genetic",
        "fold.per_outcome=30", "fold.reached=2", "paths=own", "paths.hops=2", "paths.k=2", f"runs={runs}", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def tuned(small_screen, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """An untrained model, one taught outcomes, one taught reasons, and that one rewarded: a demonstration in small."""
    from pertbase.cli import main

    runs = tmp_path_factory.mktemp("tuned") / "runs"
    for command in (
        ("baseline=sft_reasoned", *TINY, *TAUGHT, "baseline.max_epochs=0", "name=untrained"),
        ("baseline=sft_outcome", *TINY, *TAUGHT),
        ("baseline=sft_reasoned", *TINY, *TAUGHT),
        ("baseline=grpo", *REWARDED),
    ):
        assert main(asking(small_screen, runs, *command, *ASKED)) == 0
    return runs


def section(report: str, title: str) -> str:
    """Return the part of a Markdown report whose heading holds a title."""
    return next(part for part in report.split("## ") if title in part.partition("\n")[0])


def named(runs: Path, name: str):  # type: ignore[no-untyped-def]
    return next(run for run in find_runs(runs) if run.config["name"] == name)


def test_runs_go_from_one_model_to_the_next(tuned) -> None:  # type: ignore[no-untyped-def]
    assert {run.config["name"]: run.state for run in find_runs(tuned)} == dict.fromkeys(
        ("untrained", "sft_outcome", "sft_reasoned", "grpo"), "complete"
    )
    grpo, start = named(tuned, "grpo"), named(tuned, "sft_reasoned")
    about = [json.loads((run.folder / "model" / "pertbase.json").read_text()) for run in (grpo, start)]
    assert grpo.config["trainer"]["start"] == about[1]["weights"] != about[0]["weights"]
    assert about[0]["steps"] == 6
    assert about[0]["start"]["from"]["weights"] == about[1]["weights"]
    assert {"trl", "transformers", "torch"} <= set(grpo.status["versions"])
    assert grpo.status["asked"]["learnt"]["train"]["by_outcome"]["up"]["kept"] == 20
    assert not list(grpo.folder.rglob("checkpoint-*"))


def test_a_run_of_another_start_under_its_name_is_refused(pertbase, tuned, small_screen) -> None:  # type: ignore[no-untyped-def]
    about = named(tuned, "sft_reasoned").folder / "model" / "pertbase.json"
    before = about.read_text()
    code, _, err = pertbase(*asking(small_screen, tuned, "baseline=grpo", *REWARDED, *ASKED, "baseline.start=run:sft"))
    assert (code, "there is" in err + _) == (1, True)
    code, out, _ = pertbase(*asking(small_screen, tuned, "baseline=grpo", *REWARDED, *ASKED))
    assert (code, "already" in out) == (0, True)
    config = named(tuned, "sft_reasoned").folder / "model" / "generation_config.json"
    weights = named(tuned, "sft_reasoned").folder / "model" / "config.json"
    kept = weights.read_text()
    try:
        # Not what it was when it was exported: nothing begins from it, and what is complete does not want it.
        weights.write_text(kept + " ")
        code, out, _ = pertbase(*asking(small_screen, tuned, "baseline=grpo", *REWARDED, *ASKED))
        assert (code, "already" in out) == (0, True)
        code, out, err = pertbase(*asking(small_screen, tuned, "baseline=grpo", *REWARDED, *ASKED, "name=grpo_anew"))
        assert code == 1
        assert "holds other weights than it says" in out + err
        # Taught anew: another model, of which the run that is there knows nothing.
        about.write_text(json.dumps({**json.loads(before), "weights": weights_hash(about.parent)}))
        code, out, err = pertbase(*asking(small_screen, tuned, "baseline=grpo", *REWARDED, *ASKED))
        assert code == 1
        assert "trainer.start" in out + err
    finally:
        weights.write_text(kept)
        about.write_text(before)
        shutil.rmtree(about.parents[3] / "grpo_anew", ignore_errors=True)
    assert config.is_file()
    assert about.read_text() == before


def test_the_report_shows_how_rewards_went(pertbase, tuned) -> None:  # type: ignore[no-untyped-def]
    code, out, err = pertbase("report", f"runs={tuned}", "format=md")
    assert code == 0, err
    part = section(out, "rewards in training")
    lines = [line for line in part.splitlines() if line.startswith("| grpo |")]
    assert len(lines) == 1
    (table,) = collect(tuned).folds
    ((run, steps),) = curves(table)
    assert (run.config["name"], len(steps), sum(step["n"] for step in steps)) == ("grpo", 6, 72)
    first, last = steps[0]["reward"], steps[-1]["reward"]
    assert f"| {first:.3f} ± 0.000 | {last:.3f} ± 0.000 | {last - first:+.3f} |" in lines[0]


def test_the_report_shows_right_answers_with_wrong_reasons_before_and_after(pertbase, tuned) -> None:  # type: ignore[no-untyped-def]
    """Counted anew from the records of both runs, with the controls beside."""
    code, out, _ = pertbase("report", f"runs={tuned}", "format=md")
    assert code == 0
    part = section(out, "before and after training")
    names, _, *rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    shown = pd.DataFrame(rows, columns=names).set_index(["answers", "adapter"])
    row = shown.loc[("grpo", "fixed")]
    cells = [
        pd.read_parquet(named(tuned, name).folder / "reasoning" / "fixed.parquet").set_index("id")["cell"]
        for name in ("sft_reasoned", "grpo")
    ]
    shares = [float((cell == "right_answer_wrong_reason").mean()) for cell in cells]
    assert [row["from"], row["before"], row["after"]] == ["sft_reasoned", *(f"{share:.3f}" for share in shares)]
    assert row["difference"].startswith(f"{shares[1] - shares[0]:+.3f}")
    assert int(row["questions"]) == len(cells[0]) > 20
    controls = [name for name, _ in shown.index if name.startswith("control: ")]
    assert {"control: copied", "control: invented", "control: reference"} <= set(controls)
    assert shown.loc[("control: reference", "–"), "after"] == "0.000"
    assert shown.loc[("control: invented", "–"), "after"] != "0.000"


def test_the_page_draws_the_rewards(pertbase, tuned, tmp_path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase("report", f"runs={tuned}", f"output={tmp_path / 'r.html'}", "shortcuts=false")
    assert code == 0, err
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<summary>Fine-tuning</summary>" in page
    picture = re.search(r"<svg[^>]*fold-1-rewards-0-title.*?</svg>", page, flags=re.DOTALL)
    assert picture is not None
    assert "6 steps; reward from" in picture[0]
    assert picture[0].count("<path") >= 3 + 2 * 3
    assert "before and after training" in page


def test_fifths_are_the_ends_of_what_is_there() -> None:
    first, last = fifths([1.0, None, *np.arange(9.0)])
    assert (first.tolist(), last.tolist()) == ([1.0, 0.0], [7.0, 8.0])
    assert [part.tolist() for part in fifths([None, 2.0])] == [[2.0], [2.0]]
    assert not any(len(part) for part in fifths([None]))
