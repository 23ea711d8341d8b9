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


PATHS = ("paths=own", "paths.gate=[0.2,0.6]", "paths.shut=true", "fold.reached=3")
"""Questions that paths lead to, some of them through genes that are off."""


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
        more = ("baseline.preset=no_path,global_path,cell_path", *PATHS)
        code = main(command(small, plugin, runs, *more))
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
    assert "| letters |" not in out
    assert "| replies |" in out
    (line,) = [line for line in out.splitlines() if line.startswith("| tiny_cell_path - tiny |")]
    assert line.count("[") == 4
    _, page, _ = pertbase(capsys, "report", f"runs={finished}", "format=html", "shortcuts=false")
    assert "Language models" in page


def test_the_demo_asks_enough_for_every_table_of_its_report(maker):
    from pertbase.knowledge._candidates import find_candidates
    from pertbase.runs._compose import expand
    from pertbase.runs._plan import fold_spec

    jobs = expand(["experiment=language"], Names(()), multirun=True)
    configs = [compose(job, Names(())) for job in jobs]
    (spec,) = {fold_spec(config) for config in configs}
    assert {config["baseline"].get("preset") for config in configs} >= {"no_path", "global_path", "cell_path"}
    assert all(config["baseline"]["guided"] for config in configs if "preset" in config["baseline"])
    fold = maker.draw(spec)
    asked = maker._lay(fold, spec.paths).join(fold.questions)
    asked = asked.loc[asked["split"] == "test"].reset_index(drop=True)
    changed = asked["outcome"].isin(("up", "down"))
    assert (changed & (asked["reference_paths"].map(len) > 0)).sum() >= 30
    assert 0 < asked["conflict"].sum() < len(asked)
    ungated = find_candidates(asked, fold.perturbations, maker.data.graph, hops=spec.paths.hops, k=spec.paths.k)
    assert sum(len(ungated.paths(row)) != len(paths) for row, paths in enumerate(asked["candidate_paths"])) > 3


def of(runs, name):  # type: ignore[no-untyped-def]
    return next(run for run in find_runs(runs) if run.config["name"] == name)


def test_the_report_scores_reasons_beside_nulls_and_controls_and_shows_conflicts_with_their_number(finished, capsys):
    _, out, _ = pertbase(capsys, "report", f"runs={finished}", "format=md")
    reasons = out.split("each: reasons\n")[1].split("##")[0]
    for told in (
        "| tiny |",
        "| tiny_cell_path |",
        "F1 over labels",
        "control: copied",
        "control: invented",
        "in prompt",
    ):
        assert told in reasons
    assert "in graph, in prompt: share of triplets" in reasons
    assert of(finished, "tiny").scores["adapters"]["fixed"]["reasoning"]["n"] >= 10
    conflict = out.split("where the paths imply both up and down")[1].split("##")[0]
    parts = of(finished, "tiny").scores["adapters"]["calibrated"]["by_conflict"]
    for name in ("conflict", "no conflict"):
        n = parts[name]["n"]
        assert f" of {n} |" in conflict
    assert parts["conflict"]["n"] > 0
    # A row each, language models and whatever else answered.
    assert sum(line.startswith("| tiny") for line in conflict.splitlines()) == 3


def test_each_preset_is_measured_against_what_it_was_shown(finished, capsys):
    from pertbase.runs._reports._shown import SHOWN, read_shown

    shown = {
        name: read_shown(of(finished, name).folder / SHOWN) for name in ("tiny", "tiny_global_path", "tiny_cell_path")
    }
    assert set(shown["tiny"].values()) == {None}
    fold = of(finished, "tiny_cell_path").fold
    laid = fold.inputs("test").questions.set_index("id")["candidate_paths"]
    for name, paths in shown["tiny_cell_path"].items():
        assert [[list(edge) for edge in path] for path in paths] == [
            [list(edge) for edge in path] for path in laid[name]
        ]
    differ = sum(set(paths) != set(shown["tiny_cell_path"][name]) for name, paths in shown["tiny_global_path"].items())
    assert 0 < differ < 90
    _, out, _ = pertbase(capsys, "report", f"runs={finished}", "format=md")
    assert f"- tiny_cell_path and tiny_global_path: other paths with {differ} of 90 questions" in out
    assert "- tiny_global_path: 90 of 90 questions came with paths" in out
    grounded = {
        name: of(finished, name).scores["adapters"]["fixed"]["reasoning"]["scores"]["grounded_prompt"] for name in shown
    }
    n = of(finished, "tiny").scores["adapters"]["fixed"]["reasoning"]["n"]
    assert [grounded[name]["n"] for name in shown] == [0, n, n]


def test_the_same_prompts_under_another_name_are_never_asked_again(finished, small, plugin, capsys):
    more = ("baseline.preset=no_path", *PATHS, "name=again", "baseline.answer_from=options")
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
