"""Language baselines as runs: configuration, interruption, records and report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from pertbase.cli import main
from pertbase.runs import find_runs
from pertbase.runs._compose import compose
from pertbase.runs._names import Names

LANGUAGE = (
    "smollm2_135m",
    "qwen3_4b",
    "biomistral_7b",
    "naturelm_8x7b",
    "gpt",
    "summer",
    "retrieval_vote",
    "majority_of_options",
)


def pertbase(capsys, *arguments):
    capsys.readouterr()
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def plugin(tiny_model, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """A configuration folder whose baseline ``llm/tiny`` is the model with random weights."""
    folder = tmp_path_factory.mktemp("plugin") / "conf"
    (folder / "baseline" / "llm").mkdir(parents=True)
    config = {
        "defaults": ["/baseline/llm/_model@_here_", "_self_"],
        "client": {"_target_": "pertbase.baselines.llm.TransformersClient", "model": str(tiny_model)},
        "examples": 1,
        "max_tokens": 6,
        "orders": 1,
    }
    (folder / "baseline" / "llm" / "tiny.yaml").write_text("# random weights\n" + yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def small(simulated, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """Two contexts of the simulated screen, genetic conditions only, with the screen's own graph."""
    from pertbase.folds import write_screen

    obs = simulated.obs
    genetic = {name for name, item in simulated.perturbations.items() if item.modality == "genetic"}
    keep = obs["context"].isin(simulated.contexts[:2]) & (obs["is_control"] | obs["perturbation"].isin(genetic))
    path = tmp_path_factory.mktemp("screen") / "small.h5ad"
    write_screen(simulated.subset(keep.to_numpy()), path)
    return path


def command(small, plugin, runs, *more, n=30):  # type: ignore[no-untyped-def]
    return [
        "run", "-m", "data=h5ad", f"data.path={small}", "data.name=small", "fold=unseen_perturbation_genetic",
        f"fold.per_outcome={n}", "baseline=llm/tiny", f"runs={runs}", "--config-dir", str(plugin), *more,
    ]  # fmt: skip


@pytest.mark.parametrize("name", LANGUAGE)
def test_every_language_baseline_composes_and_names_its_parameters(name):
    from pertbase.runs._execute import instantiate

    more = ["baseline.client.model=m"] if name == "gpt" else []
    config = compose([f"baseline=llm/{name}", *more], Names(()))["baseline"]
    made = instantiate(config, "baseline")
    given = {key: value for key, value in config.items() if key not in ("_target_", "client")}
    assert {key: value for key, value in vars(made).items() if key in given} == given


def test_a_pattern_over_baselines_never_means_language_models():
    assert not any(name.startswith("llm/") for name in Names(()).match("baseline", ["*"]))
    assert {f"llm/{name}" for name in LANGUAGE} <= set(Names(()).options("baseline"))


def test_a_mini_fold_asks_as_many_of_each_outcome_and_keeps_the_ids_of_the_whole(maker):
    from pertbase.folds import FoldSpec

    spec = FoldSpec(kind="unseen_perturbation_genetic")
    whole, mini = maker.draw(spec), maker.draw(spec.with_(per_outcome=20))
    counts = mini.questions.groupby(["split", "outcome"]).size()
    assert (counts[["val", "test"]] == 20).all()
    train = [fold.questions.loc[fold.questions["split"] == "train", "id"].tolist() for fold in (whole, mini)]
    assert train[0] == train[1]
    merged = mini.questions.merge(whole.questions, on="id", suffixes=("", "_whole"))
    assert (merged["outcome"].fillna("") == merged["outcome_whole"].fillna("")).all()
    assert len(merged) == len(mini.questions)
    assert mini.hash != whole.hash
    assert "per_outcome" not in spec.to_dict()


@pytest.fixture(scope="module")
def finished(small, plugin, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    runs = tmp_path_factory.mktemp("language") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        code = main(command(small, plugin, runs, "baseline.preset=no_path,global_path", "paths=own"))
    assert code == 0
    return runs


def test_a_run_says_what_was_asked_and_what_it_took(finished):
    run = next(run for run in find_runs(finished) if run.config["name"] == "tiny")
    asked = run.status["asked"]
    assert asked["requests"] == asked["asked"] == 2 * 90 + 90
    assert asked["model"] == "tiny-qwen3"
    assert sum(asked["finish"].values()) == 90
    assert sum(asked["answers_read_from"].values()) == 90
    assert asked["prompt_tokens"] > asked["reply_tokens"] > 0
    assert {"torch", "transformers"} <= set(run.status["versions"])
    assert "asking" not in run.config


def test_the_report_shows_presets_side_by_side_raw_and_calibrated_with_what_was_asked(finished, capsys):
    code, out, _ = pertbase(capsys, "report", f"runs={finished}", "format=md")
    assert code == 0
    assert "what showing paths changes" in out
    assert "tiny_global_path - tiny" in out
    assert "BA fixed" in out
    assert "BA calibrated" in out
    assert "what language models were asked" in out
    # A mini fold this small has too few questions with a reference for scores of reasons.
    assert "with a change and a reference" in out
    assert "no score of reasons is printed below 10 questions" in out
    _, page, _ = pertbase(capsys, "report", f"runs={finished}", "format=html", "shortcuts=false")
    assert "Language models" in page


def test_the_same_prompts_under_another_name_are_never_asked_again(finished, small, plugin, capsys):
    more = ("baseline.preset=no_path", "paths=own", "name=again", "baseline.answer_from=options")
    code, _, err = pertbase(capsys, *command(small, plugin, finished, *more))
    assert code == 0, err
    run = next(run for run in find_runs(finished) if run.config["name"] == "again")
    assert run.status["asked"]["asked"] == 0
    assert set(run.scores["adapters"]["fixed"]["status"]) == {"ok"}


def test_prompts_are_shown_as_they_are_sent(finished, plugin, capsys):
    (fold,) = (finished / "_folds").glob("small-*")
    arguments = ("prompts", "show", f"fold_dir={fold}", "baseline=llm/tiny", "baseline.preset=cell_path", "n=2")
    code, out, err = pertbase(capsys, *arguments, "--config-dir", str(plugin))
    assert code == 0, err
    assert out.count("for a reply") == 2
    assert "Known regulatory paths" in out
    kept = [json.loads(line) for path in finished.glob("_responses/*/*.jsonl") for line in path.open(encoding="utf-8")]
    _, out, _ = pertbase(capsys, *arguments[:4], "n=1", "--config-dir", str(plugin))
    question = out.split("=== ")[1].split(",")[0]
    sent = [row["prompt"][-1][1] for row in kept if row["question"] == question and row["kind"] == "reply"]
    assert any(text in out for text in sent)


def test_whether_answers_follow_is_a_score_with_its_interval(finished, plugin, capsys):
    (fold,) = (finished / "_folds").glob("small-*")
    arguments = [
        "prompts", "follow", f"fold_dir={fold}", "baseline=llm/tiny", "baseline.preset=cell_path", "n=3",
        f"runs={finished}", "--config-dir", str(plugin),
    ]  # fmt: skip
    code, out, err = pertbase(capsys, *arguments)
    assert code == 0, err
    assert "flipped" in out
    assert "deleted" in out
    code, _, err = pertbase(capsys, *(text for text in arguments if "preset" not in text))
    assert code == 2
    assert "shows no paths that could be edited" in err


@pytest.mark.slow
def test_killed_while_it_asks_500_questions_it_goes_on_and_asks_none_twice(small, plugin, tmp_path):
    more = ("paths=own", "baseline.max_tokens=3", "asking.batch_size=4", "baseline.examples=0")
    arguments = command(small, plugin, tmp_path / "runs", *more, n=84)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "pertbase", *arguments]

    def kept() -> list[dict[str, object]]:
        rows = []
        for path in (tmp_path / "runs").glob("_responses/*/*.jsonl"):
            for line in path.read_bytes().split(b"\n"):
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
        return rows

    for goal in (60, 200, 420):
        process = subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while len(kept()) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(kept()) < 252 + 252 + 252
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # test: replies and letters; val: letters
    counts = Counter((row["kind"], row["question"]) for row in kept())
    assert len(counts) == 2 * 252 + 252
    assert set(counts.values()) == {1}
    undisturbed = command(small, plugin, tmp_path / "other", *more, n=84)
    assert (
        subprocess.run([sys.executable, "-m", "pertbase", *undisturbed], env=environment, check=False).returncode == 0
    )
    (one,), (two,) = (find_runs(tmp_path / name) for name in ("runs", "other"))
    assert one.scores == two.scores
    for name in ("fixed", "calibrated"):
        assert one.answers(name).table.equals(two.answers(name).table)
