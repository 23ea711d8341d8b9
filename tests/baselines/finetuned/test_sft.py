"""Fine-tuning: it learns, it goes on where it stopped, and what it exports answers the same whoever asks."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import finetuned_toy as toy
import numpy as np
import pytest
import torch

from pertbase.baselines.finetuned import SFT, ExportedClient
from pertbase.baselines.finetuned._export import exported, merged_model
from pertbase.baselines.llm import TransformersClient
from pertbase.baselines.llm._clients._base import Request, Sampling
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import OUTCOMES

LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": "all-linear"}


def weights(folder: Path) -> str:
    return str(exported(toy.exported_to(folder))["weights"])


def logged(folder: Path, name: str) -> list[float]:
    import pandas as pd

    paths = sorted(folder.rglob("metrics.csv"))
    return pd.concat([pd.read_csv(path) for path in paths])[name].dropna().tolist()


# -- learning -----------------------------------------------------------------------------------------------


def test_a_model_that_is_taught_reasons_answers_questions_it_has_not_seen(reasoned, small):
    model, folder = reasoned
    answers = model.answer(small.inputs)
    untrained = toy.fitted(small.training, max_epochs=0, preset="cell_path").answer(small.inputs)
    assert toy.balanced(answers, small.truth) > 0.55 > 1 / 3 > toy.balanced(untrained, small.truth)
    losses = logged(folder, "val_loss")
    assert losses[-1] < losses[0] / 2


def test_its_reasons_to_what_it_was_taught_are_those_it_was_taught(reasoned, small):
    model, _ = reasoned
    records = model.records(small.training.inputs("train"))
    taught = small.training.questions.set_index("id")["reference_paths"]
    parsed, _ = model.said(records)
    right = {True: [], False: []}
    for record, said in zip(records, parsed, strict=True):
        paths = taught[record.id]
        right[bool(paths)].append({tuple(one) for one in said.triplets} == {tuple(e) for p in paths for e in p})
    assert np.mean(right[False]) > 0.9
    assert np.mean(right[True]) > 0.2


def test_raw_and_calibrated_answers_are_given_as_of_any_language_model(reasoned, small):
    from pertbase.adapters import Calibrated, Fixed, held_out

    model, _ = reasoned
    answers = model.answer(small.inputs)
    scores = answers.table[["score_up", "score_down", "score_no_change"]].to_numpy(dtype=float)
    assert np.allclose(scores.sum(axis=1), 1.0)
    raw = Fixed().fit(small.training, model).answer(small.inputs, answers)
    assert raw.table["outcome"].tolist() == answers.table["outcome"].tolist()
    kept = held_out(model, small.training, minimum=4)
    assert kept.how == "val"
    calibrated = Calibrated().fit(small.training, model, held_out=kept).answer(small.inputs, answers)
    assert calibrated.table["outcome"].notna().equals(answers.table["status"] == "ok")


def test_zero_epochs_leave_the_start_as_it_is(small, tmp_path):
    from transformers import AutoModelForCausalLM

    model = toy.fitted(small.training, tmp_path, max_epochs=0)
    begun = model.started(small.training, model_drafts(model, small)).model.state_dict()
    kept = AutoModelForCausalLM.from_pretrained(toy.exported_to(tmp_path)).state_dict()
    assert all(torch.equal(begun[name], kept[name]) for name in begun)


def model_drafts(model, small):  # type: ignore[no-untyped-def]
    from pertbase.baselines.finetuned import draft_examples

    return draft_examples(model, small.training, model.texts())


def test_without_val_the_last_epoch_stands(caplog):
    bare = toy.make_toy(val=False)
    with caplog.at_level(logging.WARNING, "pertbase"):
        model = toy.fitted(bare.training, max_epochs=1)
    assert "nothing in val" in caplog.text
    assert model.answer(bare.inputs).table["id"].tolist() == bare.truth["id"].tolist()


def test_selection_by_the_error_of_answers_is_the_error_of_the_likeliest_reply(small, tmp_path):
    model = toy.fitted(small.training, tmp_path, monitor="val_error", max_epochs=1)
    val = model.answer(small.training.inputs("val")).table
    truth = small.training.questions.loc[small.training.questions["split"] == "val"].set_index("id")["outcome"]
    said = [OUTCOMES[place] for place in val[[f"score_{one}" for one in OUTCOMES]].to_numpy(dtype=float).argmax(axis=1)]
    hits = np.array(said) == truth.loc[val["id"]].to_numpy()
    kinds = truth.loc[val["id"]].to_numpy()
    assert logged(tmp_path, "val_error")[-1] == pytest.approx(
        1 - np.mean([hits[kinds == one].mean() for one in OUTCOMES])
    )


def test_a_loss_that_is_no_number_stops_training_and_says_what_to_do(small, tmp_path):
    with pytest.raises(PertbaseError, match=r"learning_rate.*diverged: the loss is (nan|inf) in epoch 1.*Lower it"):
        toy.fitted(small.training, tmp_path, learning_rate=1e30, clip_norm=None)
    assert not toy.exported_to(tmp_path).exists()


# -- the same wherever it is stopped ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(small, tmp_path_factory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("undisturbed")
    toy.fitted(small.training, folder, cls=toy.Stopped)
    return folder


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", [5, 21])
def test_a_training_stopped_at_any_step_ends_as_an_undisturbed_one_bit_for_bit(
    small, undisturbed, tmp_path, step, failure
):
    trainer = {**toy.CPU, "checkpoint_every": 3}
    toy.FAIL_AT, toy.FAILURE = step, failure
    with pytest.raises(failure):
        toy.fitted(small.training, tmp_path, trainer, cls=toy.Stopped)
    toy.FAIL_AT = None
    toy.fitted(small.training, tmp_path, trainer, cls=toy.Stopped)
    assert weights(tmp_path) == weights(undisturbed)
    for metric in ("val_loss", "train_loss"):
        assert logged(tmp_path, metric)[-1] == logged(undisturbed, metric)[-1]


def test_adapters_stopped_and_taken_up_end_as_undisturbed_ones_and_checkpoints_hold_them_alone(small, tmp_path):
    options = {"lora": LORA, "max_epochs": 1, "cls": toy.Stopped}
    trainer = {**toy.CPU, "checkpoint_every": 2}
    toy.fitted(small.training, tmp_path / "whole", **options)
    toy.FAIL_AT = 9
    with pytest.raises(RuntimeError):
        toy.fitted(small.training, tmp_path / "stopped", trainer, **options)
    (last,) = (tmp_path / "stopped").rglob("last.ckpt")
    names = list(torch.load(last, weights_only=True)["state_dict"])
    assert names
    assert all("lora_" in name for name in names)
    toy.FAIL_AT = None
    toy.fitted(small.training, tmp_path / "stopped", trainer, **options)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")


def test_what_was_trained_is_not_trained_again(small, undisturbed):
    toy.FAIL_AT = 0
    before = (toy.exported_to(undisturbed) / "model.safetensors").stat().st_mtime_ns
    toy.fitted(small.training, undisturbed, cls=toy.Stopped)
    assert (toy.exported_to(undisturbed) / "model.safetensors").stat().st_mtime_ns == before


def test_another_seed_is_another_training(small, undisturbed, tmp_path):
    toy.fitted(toy.seeded(small.training, 1), tmp_path, cls=toy.Stopped)
    assert weights(tmp_path) != weights(undisturbed)


def test_settings_that_only_cost_time_or_memory_change_no_weight(small, undisturbed, tmp_path):
    trainer = {**toy.CPU, "gradient_checkpointing": True, "prefetch": 2, "checkpoint_every": 4}
    toy.fitted(small.training, tmp_path, trainer, cls=toy.Stopped)
    assert weights(tmp_path) == weights(undisturbed)


def test_mixed_precision_trains_and_goes_on_where_it_stopped(small, tmp_path):
    trainer = {**toy.CPU, "precision": "bf16-mixed", "checkpoint_every": 3}
    toy.fitted(small.training, tmp_path / "whole", trainer, cls=toy.Stopped, max_epochs=1)
    toy.FAIL_AT = 8
    with pytest.raises(RuntimeError):
        toy.fitted(small.training, tmp_path / "stopped", trainer, cls=toy.Stopped, max_epochs=1)
    toy.FAIL_AT = None
    toy.fitted(small.training, tmp_path / "stopped", trainer, cls=toy.Stopped, max_epochs=1)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    toy.fitted(small.training, tmp_path / "single", max_epochs=1)
    mixed, single = (logged(tmp_path / name, "val_loss")[0] for name in ("whole", "single"))
    assert mixed != single
    assert mixed == pytest.approx(single, rel=0.1)


@pytest.mark.gpu
def test_a_gpu_trains_in_mixed_precision_and_answers(small, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    trainer = {"accelerator": "gpu", "precision": "bf16-mixed", "gradient_checkpointing": True, "progress": False}
    for name, options in (("whole", {}), ("adapted", {"lora": LORA, "precision": "bfloat16"})):
        options |= {"export_precision": "bfloat16"}
        model = toy.fitted(small.training, tmp_path / name, trainer, **options)
        losses = logged(tmp_path / name, "val_loss")
        assert losses[-1] < losses[0]
        assert len(model.answer(small.inputs).table) == len(small.truth)


_SCRIPT = """
import sys; sys.path.insert(0, {here!r})
from pathlib import Path
import finetuned_toy as toy
toy.fitted(toy.make_toy().training, Path({folder!r}), {{**toy.CPU, "checkpoint_every": 2}}, cls=toy.Stopped)
"""


@pytest.mark.slow
def test_a_killed_process_is_taken_up_where_it_stopped(small, undisturbed, tmp_path):
    script = _SCRIPT.format(here=str(Path(__file__).parent), folder=str(tmp_path))
    path = os.pathsep.join(item for item in sys.path if item)
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path})
    until = time.monotonic() + 120
    while not list(tmp_path.rglob("last.ckpt")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (last,) = tmp_path.rglob("last.ckpt")
    assert not torch.load(last, weights_only=True)["callbacks"]["Checkpoints"]["ended"], "it was killed too late"
    toy.fitted(small.training, tmp_path, {**toy.CPU, "checkpoint_every": 2}, cls=toy.Stopped)
    assert weights(tmp_path) == weights(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"lora": {**LORA, "lora_dropout": 0.0}}])
def test_two_ranks_train_what_one_process_does(small, tmp_path, options):
    from safetensors.torch import load_file

    found = []
    for world in (1, 2):
        trainer = {**toy.CPU, "devices": world, "find_unused_parameters": False}
        toy.fitted(small.training, tmp_path / str(world), trainer, learning_rate=3e-4, max_epochs=1, **options)
        found.append(load_file(toy.exported_to(tmp_path / str(world)) / "model.safetensors"))
    apart = max(float((found[0][name] - found[1][name]).abs().max()) for name in found[0])
    assert apart < 1e-4
    assert logged(tmp_path / "1", "val_loss") == pytest.approx(logged(tmp_path / "2", "val_loss"), abs=1e-4)
    assert logged(tmp_path / "1", "val_error") == pytest.approx(logged(tmp_path / "2", "val_error"), abs=1e-6)


# -- the exported folder ------------------------------------------------------------------------------------


def test_an_exported_model_answers_the_same_asked_plainly_and_through_the_client(reasoned, small):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, folder = reasoned
    where = toy.exported_to(folder)
    network = AutoModelForCausalLM.from_pretrained(where).eval()
    tokenizer = AutoTokenizer.from_pretrained(where)
    records = model.records(small.inputs)
    requests = model.reply_requests(records)
    for response, request in zip(model.ask(requests), requests, strict=True):
        turns = [{"role": role, "content": content} for role, content in request.prompts[0]]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        with torch.no_grad():
            made = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64)
        assert tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True) == response.text
    # And through the client that anybody would name the folder to.
    client = TransformersClient(model=str(where))
    given = {}
    client.ask(requests, range(len(requests)), Sampling(max_tokens=64), lambda batch: given.update(dict(batch)))
    assert [given[row].text for row in range(len(requests))] == [one.text for one in model.ask(requests)]


def test_scores_are_the_likelihoods_of_the_three_replies(reasoned, small):
    """Computed anew, one whole text at a time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, folder = reasoned
    network = AutoModelForCausalLM.from_pretrained(toy.exported_to(folder)).eval()
    tokenizer = AutoTokenizer.from_pretrained(toy.exported_to(folder))
    records = model.records(small.inputs)[:6]
    expected = []
    for prompt in model.prompts(records):
        turns = [{"role": role, "content": content} for role, content in prompt]
        asked = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        logs = []
        for outcome in OUTCOMES:
            before = tokenizer.encode(asked, add_special_tokens=False)
            reply = tokenizer.encode(json.dumps({"triplets": [], "answer": outcome}), add_special_tokens=False)
            ids = torch.tensor([[*before, *reply, tokenizer.eos_token_id]])
            with torch.no_grad():
                table = torch.log_softmax(network(ids).logits[0].double(), dim=-1)
            logs.append(float(sum(table[at - 1, ids[0, at]] for at in range(len(before), ids.shape[1]))))
        powers = np.exp(np.array(logs) - max(logs))
        expected.append(powers / powers.sum())
    _, scores = model.said(records, replies=False)
    assert np.allclose(scores, expected, atol=1e-5)
    assert np.ptp(scores) > 0.1


def test_adapters_are_added_to_the_weights_and_say_what_they_said_beside_them(small, tmp_path):
    from transformers import AutoModelForCausalLM

    model = SFT(**{**toy.SMALL, "lora": LORA, "max_epochs": 1, "learning_rate": 0.01})
    model.workspace(tmp_path / "toy" / "fold" / "sft" / "seed0", toy.CPU, {})
    model.prepare(small.training)
    module = model.train(small.training)
    ids = torch.randint(0, 300, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        apart = module.model(ids).logits
        with module.model.disable_adapter():
            without = module.model(ids).logits
        merged = merged_model(module.model)(ids).logits
    assert torch.allclose(apart, merged, atol=1e-5)
    assert not torch.allclose(apart, without, atol=1e-2)
    model.fit(small.training)  # exports what was trained
    exported_model = AutoModelForCausalLM.from_pretrained(toy.exported_to(tmp_path)).eval()
    with torch.no_grad():
        assert torch.allclose(exported_model(ids).logits, apart, atol=1e-5)
    assert not any("lora" in name for name in exported_model.state_dict())


def test_an_exported_folder_says_where_it_comes_from_and_can_be_started_from(reasoned, small, tmp_path):
    _, folder = reasoned
    where = toy.exported_to(folder)
    about = exported(where)
    assert about["start"]["start"] == "tiny"
    assert about["texts"]["sources"] == {"outcome": 212, "rule": 48}
    assert {"fold": about["fold"], "seed": about["seed"], "preset": about["preset"]} == {
        "fold": "toy", "seed": 0, "preset": "cell_path",
    }  # fmt: skip
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in where.iterdir()
    }
    again = toy.fitted(small.training, tmp_path, start=str(where), max_epochs=0, preset="cell_path")
    assert again.account()["learnt"]["start"]["from"]["weights"] == about["weights"]
    assert exported(toy.exported_to(tmp_path))["weights"] == about["weights"]


def test_another_precision_is_that_of_every_weight_and_ties_stay(small, tmp_path):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    toy.fitted(small.training, tmp_path, max_epochs=0, export_precision="bfloat16")
    kept = load_file(toy.exported_to(tmp_path) / "model.safetensors")
    assert {value.dtype for value in kept.values()} == {torch.bfloat16}
    assert "lm_head.weight" not in kept
    loaded = AutoModelForCausalLM.from_pretrained(toy.exported_to(tmp_path), dtype="auto")
    assert loaded.dtype == torch.bfloat16
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()


def test_a_disk_that_is_full_leaves_no_half_of_a_model(small, tmp_path, monkeypatch):
    import safetensors.torch

    def full(*arguments, **options):  # type: ignore[no-untyped-def]
        raise OSError(28, "No space left on device")

    import transformers.modeling_utils as saving

    with monkeypatch.context() as patch:
        patch.setattr(saving, "safe_save_file", full)
        patch.setattr(safetensors.torch, "save_file", full)
        with pytest.raises(PertbaseError, match="No space left"):
            toy.fitted(small.training, tmp_path, max_epochs=1)
    assert not toy.exported_to(tmp_path).exists()
    assert not list(toy.exported_to(tmp_path).parent.glob(".*part"))
    # What was trained is not trained again, only written.
    (last,) = tmp_path.rglob("last.ckpt")
    before = last.stat().st_mtime_ns
    toy.fitted(small.training, tmp_path, max_epochs=1)
    assert toy.exported_to(tmp_path).exists()
    assert last.stat().st_mtime_ns == before


def test_weights_that_were_changed_by_hand_are_refused(small, tmp_path):
    toy.fitted(small.training, tmp_path, max_epochs=0)
    path = toy.exported_to(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(InputError, match=r"other weights than it says.*Remove the folder"):
        toy.fitted(small.training, tmp_path, max_epochs=0)


def test_responses_are_kept_under_the_weights_not_under_the_folder():
    one, moved = (ExportedClient(model=path, name="sft", weights="w") for path in ("a/model", "b/model"))
    other = ExportedClient(model="a/model", name="sft", weights="v")
    request = Request("reply", ((("user", "up?"),),), "q")
    assert request.key(one.identity, Sampling()) == request.key(moved.identity, Sampling())
    assert request.key(one.identity, Sampling()) != request.key(other.identity, Sampling())
    assert one.title == "sft"


# -- configuration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sft_outcome", "sft_reasoned"])
def test_every_configuration_composes_and_names_its_parameters(name):
    from pertbase.runs._compose import compose
    from pertbase.runs._execute import instantiate
    from pertbase.runs._names import Names

    config = compose([f"baseline={name}"], Names(()))["baseline"]
    made = instantiate(config, "baseline")
    given = {key: value for key, value in config.items() if key != "_target_"}
    assert made.parameters() == given
    assert name not in Names(()).match("baseline", ["*"])
    assert name in Names(()).match("baseline", [name, "no_change"])


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"thinking": True}, "thinking"),
        ({"pack": 100, "max_length": 200}, "pack"),
        ({"balance": "weight"}, "balance"),
        ({"reasons": "rules"}, "reasons"),
        ({"per_outcome": 0}, "per_outcome"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"schedule": "step"}, "schedule"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"warmup": 1}, "warmup"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(small, options, key):
    with pytest.raises(InputError, match=key):
        SFT(**options)


def test_adapters_that_fit_no_layer_are_refused(small):
    with pytest.raises(InputError, match=r"lora.*nothing_of_this_name"):
        toy.fitted(small.training, lora={"r": 2, "target_modules": ["nothing_of_this_name"]}, max_epochs=1)


# -- runs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_records_what_was_learnt_from_and_is_not_carried_out_twice(tmp_path, capsys):
    from pertbase.cli import main
    from pertbase.runs import find_runs

    command = [
        "run", "data=simulated", "fold=unseen_context_genetic", "fold.per_outcome=12", f"runs={tmp_path}",
        "baseline=sft_outcome", "baseline.start=tiny", "baseline.template=short", "baseline.per_outcome=20",
        "baseline.max_epochs=1",
    ]  # fmt: skip
    assert main(command) == 0
    (run,) = find_runs(tmp_path)
    learnt = run.status["asked"]["learnt"]
    assert {key: value["kept"] for key, value in learnt["train"]["by_outcome"].items()} == dict.fromkeys(OUTCOMES, 20)
    assert learnt["weights"] == exported(run.folder / "model")["weights"]
    capsys.readouterr()
    assert main(command) == 0
    assert "already" in capsys.readouterr().out
    assert main(["report", f"runs={tmp_path}"]) == 0
    told = capsys.readouterr().out
    assert "what fine-tuned models learnt from" in told
    assert "20 up, 20 down, 20 no_change" in told
    assert main([*command, "baseline.max_epochs=2"]) == 1
    assert "max_epochs" in capsys.readouterr().out
