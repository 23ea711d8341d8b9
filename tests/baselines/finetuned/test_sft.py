"""Fine-tuning: it learns, it goes on where it stopped bit for bit, and refuses what cannot be."""

from __future__ import annotations

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

from pertbase.baselines.finetuned import SFT
from pertbase.baselines.finetuned._export import exported
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


@pytest.mark.parametrize("option", ["per_outcome=many", "max_epochs=few", "max_tokens=1.5", "letters=true"])
def test_values_of_all_it_derives_from_are_checked_before_a_run(option, tmp_path, capsys):
    from pertbase.cli import main

    assert main(["run", "data=simulated", "baseline=sft_outcome", f"baseline.{option}", f"runs={tmp_path}"]) != 0
    told = "".join(capsys.readouterr())
    assert f"baseline.{option.partition('=')[0]}: " in told
    assert "cannot be made" not in told


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
    asked = [f"fold_dir={run.fold_folder}", "baseline=sft_outcome", "baseline.start=tiny", "baseline.template=short"]
    assert main(["prompts", "show", *asked, "n=1"]) == 0
    assert '{"triplets": [], "answer": "up"}' in capsys.readouterr().out
    assert main(["prompts", "follow", *asked, "baseline.preset=global_path", "data=simulated"]) == 2
    assert "Ask what its run exported" in capsys.readouterr().err
