"""GRPO: what it is asked, what it earns, what is kept of it, what it learns, and what stops it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("trl")

import finetuned_toy as toy
from grpo_toy import fitted, kept, policy

from pertbase.baselines.finetuned._grpo import dealt
from pertbase.baselines.finetuned._rollouts import REPLIES, STEPS, Rollouts, read_steps
from pertbase.baselines.llm._clients._chat import chat_text, chat_tokens
from pertbase.errors import InputError, PertbaseError


def test_every_step_and_every_reply_is_kept_once(undisturbed, training) -> None:  # type: ignore[no-untyped-def]
    folder, _ = undisturbed
    lines = {name: [json.loads(line) for line in text.splitlines()] for name, text in kept(folder).items()}
    assert [row["step"] for row in lines[STEPS]] == [1, 2, 3, 4]
    replies = pd.DataFrame(lines[REPLIES])
    assert replies.groupby("step").size().tolist() == [12] * 4
    assert replies.groupby(["step", "question"])["sample"].apply(list).map(tuple).unique().tolist() == [(0, 1, 2, 3)]
    # As many questions of each outcome, of train alone.
    known = training.headline.set_index("id")
    asked = known.loc[replies["question"].unique()]
    assert asked["outcome"].value_counts().tolist() == [4, 4, 4]
    assert set(asked["split"]) == {"train"}
    assert not list(folder.rglob("checkpoint-*"))


def test_the_step_has_the_means_of_its_replies(undisturbed) -> None:  # type: ignore[no-untyped-def]
    folder, _ = undisturbed
    lines = {name: [json.loads(line) for line in text.splitlines()] for name, text in kept(folder).items()}
    for step in lines[STEPS]:
        own = [row for row in lines[REPLIES] if row["step"] == step["step"]]
        shares = {name: [row["reward"][name] for row in own] for name in ("outcome", "triplets", "format", "total")}
        for name, values in shares.items():
            known = [value for value in values if value is not None]
            expected = float(np.mean(known)) if known else None
            assert step["reward" if name == "total" else name] == pytest.approx(expected)
        by_question = pd.DataFrame({"question": [row["question"] for row in own], "total": shares["total"]})
        assert step["within"] == pytest.approx(by_question.groupby("question")["total"].std(ddof=0).mean())
        assert {"loss", "entropy", "gradient_norm"} <= set(step)


def test_what_replies_earn_is_what_the_parser_reads(undisturbed, training) -> None:  # type: ignore[no-untyped-def]
    folder, _ = undisturbed
    outcome = training.headline.set_index("id")["outcome"]
    rows = [json.loads(line) for line in kept(folder)[REPLIES].splitlines()]
    assert len({row["text"] for row in rows}) > 3
    for row in rows:
        try:
            said = json.loads(row["text"])["answer"]
        except (ValueError, KeyError, TypeError):
            continue
        if said in ("up", "down", "no_change"):
            assert row["outcome"] == said
            assert row["reward"]["outcome"] == float(said == outcome[row["question"]])


def test_prompts_of_training_are_those_of_evaluation_token_by_token(formed, training, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    seen: list[list[int]] = []
    draw = Qwen3ForCausalLM.generate

    def watched(self, *arguments, **options):  # type: ignore[no-untyped-def]
        if "generation_config" in options:
            rows = zip(options["input_ids"].tolist(), options["attention_mask"].tolist(), strict=True)
            seen.extend([token for token, there in zip(ids, mask, strict=True) if there] for ids, mask in rows)
        return draw(self, *arguments, **options)

    monkeypatch.setattr(Qwen3ForCausalLM, "generate", watched)
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    model = fitted(formed, training, folder, steps=1)
    tokenizer = AutoTokenizer.from_pretrained(formed)
    inputs = training.inputs("train")
    asked = [json.loads(line)["question"] for line in kept(folder)[REPLIES].splitlines()]
    questions = inputs.questions.set_index("id").loc[asked].reset_index()
    prompts = model.prompts(model.records(replace(inputs, questions=questions)))
    expected = [chat_tokens(tokenizer, chat_text(tokenizer, prompt, thinking=None)) for prompt in prompts]
    assert seen == expected


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing. is deprecated:FutureWarning")
def test_replies_are_drawn_from_all_tokens_and_on_policy(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from pertbase.baselines.finetuned._policy import Policy
    from pertbase.baselines.finetuned._trl import _config
    from pertbase.baselines.harness import TrainerSettings

    model = policy(formed, thinking=True)
    empty = Policy(None, None, {}, [], lambda *_: None, None, {"enable_thinking": True})  # type: ignore[arg-type,return-value]
    found = _config(empty, model._policy, TrainerSettings(), tmp_path, 0)
    assert (found.top_p, found.top_k, found.min_p, found.num_iterations, found.temperature) == (1.0, 0, None, 1, 1.0)
    assert found.chat_template_kwargs == {"enable_thinking": True}
    assert (found.use_cpu, found.bf16, found.fp16) == (True, False, False)
    for name in ("draw_top_p", "top_k"):
        with pytest.raises(TypeError):
            policy(formed, **{name: 0.9})


# -- learning ---------------------------------------------------------------------------------------------------


def test_what_is_rewarded_becomes_likelier(training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Where every question of train goes up, replies soon say so."""
    taught = toy.fitted(training, tmp_path / "sft", preset="cell_path", max_epochs=4, learning_rate=0.005)
    questions = training.questions
    ups = replace(training, questions=questions.loc[(questions["split"] == "val") | (questions["outcome"] == "up")])
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    fitted(Path(taught.client.model), ups, folder, steps=14, questions=4, generations=8, learning_rate=3e-3)
    (home,) = (folder / "training").iterdir()
    said = [step["outcome"] for step in read_steps(home)]
    assert np.mean(said[-7:]) > np.mean(said[:5]) + 0.1


def test_adapters_learn_and_are_merged_into_what_answers(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from safetensors.torch import load_file

    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    fitted(formed, training, folder, steps=2, lora=lora, beta=0.1, learning_rate=0.05)
    before, after = load_file(formed / "model.safetensors"), load_file(folder / "model" / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name.split(".")[-2] for name in before if not before[name].equal(after[name])}
    assert changed == {"q_proj", "v_proj"}
    (home,) = (folder / "training").iterdir()
    assert [step["kl"] for step in read_steps(home)][1] > 0


def test_the_divergence_from_the_start_is_logged_where_it_counts(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    fitted(formed, training, folder, steps=2, beta=0.1, learning_rate=0.01)
    (home,) = (folder / "training").iterdir()
    kl = [step["kl"] for step in read_steps(home)]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[1] > 0
    assert not (home / "start").exists()


# -- nothing to learn from ------------------------------------------------------------------------------------


def test_equal_rewards_stop_the_run_and_say_why(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """At a temperature near zero, all replies to a question are one."""
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    with pytest.raises(PertbaseError, match=r"last 2 steps, all replies to a question earned the same.*raise") as told:
        fitted(formed, training, folder, draw_temperature=1e-4, patience=2)
    assert "12 replies" in str(told.value)
    assert not (folder / "model").exists()


def test_a_training_that_earns_all_there_is_ends_well_and_stays_ended(formed, training, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from pertbase.baselines.finetuned import _grpo
    from pertbase.baselines.finetuned._rewards import Reward, Rewards

    monkeypatch.setattr(Rewards, "__call__", lambda self, ids, replies: [Reward(1.0, 1.0, 1.0, 1.0) for _ in ids])
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    with monkeypatch.context() as patch:
        patch.setattr(_grpo, "export", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fitted(formed, training, folder, patience=3, steps=6)
    model = fitted(formed, training, folder, patience=3, steps=6)
    assert len(kept(folder)[STEPS].splitlines()) == 3
    assert model.account()["learnt"]["steps"] == 3


def test_no_rewards_at_all_stop_the_run_and_say_why(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    bare = replace(training, questions=training.questions.assign(reference_paths=[()] * len(training.questions)))
    with pytest.raises(PertbaseError, match=r"none of their questions has a reference.*rewards\.outcome"):
        fitted(formed, bare, tmp_path / "d" / "f" / "grpo" / "seed0", rewards={"outcome": 0, "format": 0}, patience=2)


def test_a_start_that_does_not_know_the_form_is_told_of(training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PertbaseError, match=r"run:sft_reasoned.*max_tokens: all were cut off"):
        fitted("tiny", training, tmp_path / "d" / "f" / "grpo" / "seed0", tiny=toy.TINY, patience=2)  # type: ignore[arg-type]


def test_a_loss_that_is_no_number_stops_the_run(formed, training, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from trl import GRPOTrainer

    compute = GRPOTrainer.compute_loss
    monkeypatch.setattr(GRPOTrainer, "compute_loss", lambda *one, **two: compute(*one, **two) * float("nan"))
    with pytest.raises(PertbaseError, match=r"loss is nan.*learning_rate|learning_rate.*loss is nan"):
        fitted(formed, training, tmp_path / "d" / "f" / "grpo" / "seed0")


# -- what cannot be -------------------------------------------------------------------------------------------


def test_the_model_of_another_run_is_found_among_its_neighbours(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    grpo = formed.parents[2] / "grpo" / "seed0"
    model = policy(f"run:{formed.parents[1].name}")
    assert model.workspace(grpo, {}, {})["start"] == json.loads((formed / "pertbase.json").read_text())["weights"]
    assert model.source == str(formed)
    with pytest.raises(InputError, match=r"there is .*[Rr]un it first.*baseline=sft_resoned"):
        policy("run:sft_resoned").workspace(grpo, {}, {})
    with pytest.raises(InputError, match="another run's model is looked for among runs"):
        policy(f"run:{formed.parents[1].name}").fit(training)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"generations": 1}, "generations"), ({"steps": 0}, "steps"), ({"batch_size": 5}, "divides the 12 replies"),
        ({"loss": "ppo"}, "loss"), ({"scale_rewards": "all"}, "scale_rewards"), ({"balance": "weights"}, "balance"),
        ({"beta": -1}, "beta"), ({"learning_rate": 0}, "learning_rate"), ({"draw_temperature": 0}, "draw_temperature"),
        ({"rewards": {"outcomes": 1}}, "Did you mean 'outcome'"), ({"referred": 2}, "referred"),
        ({"selection_per_outcome": 3}, "selection_per_outcome"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(how, told) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=told):
        policy("tiny", **how)


def test_several_devices_and_absent_servers_are_refused(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    with pytest.raises(InputError, match=r"trainer\.devices"):
        policy(formed).workspace(folder, {"devices": 2}, {})
    with pytest.raises(InputError, match="vLLM is not installed"):
        fitted(formed, training, folder, vllm={"mode": "colocate"})


def test_a_fold_without_references_is_refused_where_reasons_are_rewarded(formed, training) -> None:  # type: ignore[no-untyped-def]
    bare = replace(training, questions=training.questions.drop(columns="reference_paths"))
    assert "paths=own" in (policy(formed).refuses(bare) or "")
    assert policy(formed, rewards={"triplets": 0}).refuses(bare) is None


def test_prompts_that_leave_no_room_are_refused_with_what_they_need(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=r"every prompt of train is longer .*baseline\.max_length="):
        fitted(formed, training, tmp_path / "d" / "f" / "grpo" / "seed0", max_length=40)


def test_prompts_that_are_too_long_are_left_out_and_counted(formed, training, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    from transformers import AutoTokenizer

    tokenizer, asked = AutoTokenizer.from_pretrained(formed), policy(formed).prepare(training)
    prompts = asked.prompts(asked.records(training.inputs("train")))
    lengths = [len(chat_tokens(tokenizer, chat_text(tokenizer, prompt))) for prompt in prompts]
    room = int(np.median(lengths))
    with caplog.at_level(logging.WARNING, "pertbase"):
        model = fitted(formed, training, tmp_path / "d" / "f" / "grpo" / "seed0", steps=1, max_length=room + 48)
    counts = pd.DataFrame(model.account()["learnt"]["train"]["by_outcome"]).T
    assert (counts["questions"] == counts["kept"] + counts["too_long"]).all()
    assert counts["too_long"].sum() == sum(length > room for length in lengths) > 0
    assert f"{counts.loc['up', 'too_long']} up" in caplog.text


def test_a_start_that_was_taught_to_think_otherwise_is_refused(formed, training, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=r"baseline\.thinking=null"):
        fitted(formed, training, tmp_path / "d" / "f" / "grpo" / "seed0", thinking=True)
    with caplog.at_level(logging.WARNING, "pertbase"):
        fitted(formed, training, tmp_path / "d" / "f" / "other" / "seed0", steps=1, preset="global_path")
    assert "another preset" in caplog.text


# -- parts ------------------------------------------------------------------------------------------------------


def test_members_are_dealt_in_turn_and_none_comes_twice_before_all_came() -> None:
    groups = [["a", "b"], [], ["c", "d", "e", "f"]]
    drawn = list(islice(dealt(groups, np.random.default_rng(0)), 16))
    assert all(one in "ab" for one in drawn[::2])
    assert all(one in "cdef" for one in drawn[1::2])
    assert all(set(drawn[start : start + 4 : 2]) == {"a", "b"} for start in range(0, 16, 4))
    assert set(drawn[1:9:2]) == set(drawn[9:17:2]) == set("cdef")
    half = list(islice(dealt(groups, np.random.default_rng(0), preferred={"c"}, share=0.5), 40))
    assert half[1::2].count("c") == 10
    # What is rare comes four times as often at most.
    rare = [[str(number) for number in range(100)]]
    assert list(islice(dealt(rare, np.random.default_rng(0), preferred={"7"}, share=0.5), 100)).count("7") == 4
    assert list(dealt([[], []], np.random.default_rng(0))) == []


def test_half_a_line_is_forgotten_and_a_broken_one_is_told_of(tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = [json.dumps({"step": step, "within": 0.1, "reward": 0.5}) for step in (1, 2, 3)]
    (tmp_path / STEPS).write_text("\n".join(lines) + '\n{"step": 4, "wi')
    (tmp_path / REPLIES).write_text("\n".join(lines) + "\n")
    rollouts = Rollouts(tmp_path, patience=3)
    rollouts.rewind(2)
    assert [step["step"] for step in rollouts.steps] == [1, 2]
    assert (tmp_path / STEPS).read_text() == "\n".join(lines[:2]) + "\n"
    (tmp_path / STEPS).write_text('{"stop": 1}\n')
    with pytest.raises(InputError, match="line 1"):
        rollouts.rewind(2)


def test_steps_that_earn_all_there_is_are_no_failure(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def at(*steps: tuple[float, float]) -> Rollouts:
        found = Rollouts(tmp_path, patience=2)
        found.steps = [{"within": within, "reward": reward} for within, reward in steps]
        return found

    assert at((0.0, 1.0), (0.0, 1.0)).converged
    assert not at((0.0, 1.0), (0.0, 0.9)).converged
    assert [at(*[(0.0, 1.0)] * count).done for count in (1, 2, 3)] == [False, True, True]
    assert [at(*steps).silent for steps in (((0.1, 0.5),), ((0.1, 0.5), (0.0, 0.5), (0.0, 0.5)), ())] == [0, 2, 0]


@pytest.mark.gpu
def test_bfloat16_on_a_gpu_learns_and_answers(formed, small, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    folder = tmp_path / "d" / "f" / "grpo" / "seed0"
    model = policy(formed, steps=2, export_precision="bfloat16")
    model.workspace(folder, {"accelerator": "gpu", "precision": "bf16-mixed"}, {"device": "cuda"})
    model.fit(small.training)
    assert len(kept(folder)[STEPS].splitlines()) == 2
    assert len(model.answer(small.inputs).table) == len(small.inputs.questions)
