"""What a training goes on from, or starts from, is whole or refused by name; and the remedy that is told works."""

from __future__ import annotations

import shutil
from dataclasses import replace

import finetuned_toy as toy
import numpy as np
import pytest

pytest.importorskip("trl")

from grpo_toy import fitted, kept, policy, weights

from pertbase.baselines.finetuned import GRPO, _grpo, start_model
from pertbase.baselines.finetuned._rollouts import REPLIES, STEPS, Rollouts
from pertbase.baselines.llm._record import example_questions
from pertbase.errors import InputError, PertbaseError


@pytest.fixture(scope="module")
def stopped(formed, training, tmp_path_factory):
    """The folder of a run that was stopped behind its first checkpoint, of two steps."""
    folder = tmp_path_factory.mktemp("stopped") / "data" / "fold" / "grpo" / "seed0"
    add = Rollouts.add

    def interrupted(self, step, replies):
        add(self, step, replies)
        if step == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rollouts, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(formed, training, folder)
    return folder


FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "config.json")


def copied(folder, tmp_path):
    again = tmp_path / "data" / "fold" / "grpo" / "seed0"
    shutil.copytree(folder, again)
    (home,) = (again / "training").iterdir()
    return again, home


@pytest.mark.parametrize("how", ["gone", "torn", "empty"])
@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_with_a_damaged_file_is_refused_by_name(name, how, stopped, formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder, home = copied(stopped, tmp_path)
    path = home / "checkpoint-2" / name
    whole = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(b"" if how == "empty" else whole[: len(whole) // 2])
    with pytest.raises(PertbaseError, match=rf"checkpoint is damaged: {name}.*Remove it; the same command"):
        fitted(formed, training, folder)


@pytest.mark.parametrize("name", [STEPS, REPLIES])
def test_a_curve_of_which_a_part_is_gone_is_refused_by_name(name, stopped, formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder, home = copied(stopped, tmp_path)
    others = {path: path.read_bytes() for path in home.glob("*.jsonl") if path.name != name}
    (home / name).unlink()
    with pytest.raises(PertbaseError, match=rf"{name}: step: lacks 2 of the 2 steps.*Remove .*{home.name}"):
        fitted(formed, training, folder)
    assert {path: path.read_bytes() for path in others} == others  # nothing was changed


def test_what_is_told_of_a_damaged_checkpoint_works(stopped, undisturbed, formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder, home = copied(stopped, tmp_path)
    (home / "checkpoint-2" / "optimizer.pt").unlink()
    shutil.rmtree(home / "checkpoint-2")
    fitted(formed, training, folder)
    assert (kept(folder), weights(folder)) == (kept(undisturbed[0]), weights(undisturbed[0]))


@pytest.mark.parametrize("where", ["checkpoint", "export", "start"])
def test_a_full_disk_is_told_of_and_costs_no_step_that_was_kept(
    where, undisturbed, formed, training, tmp_path, monkeypatch
) -> None:
    """Writers of weights raise an error of their own, which is no ``OSError``."""
    import transformers.modeling_utils as saving
    from safetensors import SafetensorError

    folder = tmp_path / "data" / "fold" / "grpo" / "seed0"
    how = {"beta": 0.1} if where == "start" else {}
    write, count = saving.safe_save_file, {"checkpoint": 1, "export": 2, "start": 0}[where]
    written = []

    def full(*arguments, **options):
        written.append(arguments)
        if len(written) > count:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        return write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(saving, "safe_save_file", full)
        with pytest.raises(PertbaseError, match=r"cannot be written \(.*No space left.*Make room"):
            fitted(formed, training, folder, **how)
    assert not (folder / "model").exists()
    fitted(formed, training, folder, **how)
    if not how:
        assert (kept(folder), weights(folder)) == (kept(undisturbed[0]), weights(undisturbed[0]))


def test_checkpoints_that_a_kill_left_behind_a_finished_training_go_on_the_next_look(
    undisturbed, formed, training, tmp_path, monkeypatch
) -> None:
    folder = tmp_path / "data" / "fold" / "grpo" / "seed0"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_grpo, "remove_checkpoints", killed)
        with pytest.raises(KeyboardInterrupt):
            fitted(formed, training, folder)
    assert (folder / "model").exists()
    assert list(folder.rglob("checkpoint-*"))
    with monkeypatch.context() as patch:
        patch.setattr(GRPO, "learn", lambda *_: pytest.fail("trained again"))
        fitted(formed, training, folder)
    assert not list(folder.rglob("checkpoint-*"))
    assert kept(folder) == kept(undisturbed[0])


# -- starts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(formed, tmp_path):
    """A folder of runs with one that exported a model, and the folder of one that is to begin with it."""
    run = tmp_path / "data" / "fold" / "taught" / "seed0"
    shutil.copytree(formed, run / "model")
    (run / "status.json").write_text('{"state": "complete"}')
    return run, tmp_path / "data" / "fold" / "grpo" / "seed0"


def changed(path) -> None:  # type: ignore[no-untyped-def]
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(bytes(whole))


def torn(path) -> None:  # type: ignore[no-untyped-def]
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize("damage", [changed, torn])
def test_weights_that_are_not_those_that_were_exported_start_nothing(damage, runs, training) -> None:  # type: ignore[no-untyped-def]
    run, own = runs
    damage(run / "model" / "model.safetensors")
    with pytest.raises(InputError, match=rf"other weights than it says.*Remove {run}, and run taught again"):
        policy("run:taught").workspace(own, {}, {})
    with pytest.raises(InputError, match="other weights than it says"):
        fitted(run / "model", training, own)


def test_torn_weights_that_say_nothing_of_themselves_cannot_be_loaded(runs) -> None:  # type: ignore[no-untyped-def]
    run, _ = runs
    (run / "model" / "pertbase.json").unlink()
    torn(run / "model" / "model.safetensors")
    with pytest.raises(InputError, match=r"start: cannot be loaded"):
        start_model(str(run / "model"))


def test_a_run_that_is_complete_and_has_no_model_is_not_to_be_run_but_removed(runs) -> None:  # type: ignore[no-untyped-def]
    run, own = runs
    shutil.rmtree(run / "model")
    with pytest.raises(InputError, match=rf"the run is here, and its model is not.*Remove {run}, and run taught again"):
        policy("run:taught").workspace(own, {}, {})


# -- files, and what is too long ------------------------------------------------------------------------------


def test_a_template_that_changed_is_another_training(small, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from importlib.resources import files

    shipped = files("pertbase.baselines.llm").joinpath("templates", "short_no_path.txt").read_text()
    own = tmp_path / "own.txt"
    own.write_text(shipped)
    how = {"template": str(own), "max_epochs": 0}
    keys = [toy.fitted(small.training, tmp_path, **how).training_key(small.training) for _ in range(2)]
    own.write_text(shipped + "Now.\n")
    later = toy.fitted(small.training, tmp_path, **how)
    assert keys[0] == keys[1] != later.training_key(small.training)
    assert later._about["template"] == later.prompt_template.hash


def test_what_is_too_long_to_be_taught_is_not_asked_and_counted(reasoned, small, caplog) -> None:  # type: ignore[no-untyped-def]
    model, _ = reasoned
    records = model.records(small.inputs)
    whole = model.ask(model.reply_requests(records))
    lengths = [one.prompt_tokens for one in whole]
    client = replace(model.client, max_length=int(np.median(lengths)) + 20)
    asked: dict[int, object] = {}
    requests = [*model.reply_requests(records), *model.letter_requests(records)]
    with caplog.at_level("WARNING", "pertbase"):
        client.ask(requests, range(len(requests)), model._asker.sampling, lambda rows: asked.update(rows))
    rejected = {row for row, one in asked.items() if one.finish == "rejected"}
    assert sorted(asked) == list(range(len(requests)))
    assert 0 < len(rejected & set(range(len(records)))) < len(records)
    for row in range(len(records)):
        # The others are what they are without them.
        assert row in rejected or asked[row].text == whole[row].text
    longest = min(lengths[row] for row in rejected if row < len(records))
    assert all(length < longest for row, length in enumerate(lengths) if row not in rejected)
    assert f"{len(rejected & set(range(len(records))))} of {len(records)} prompts are too long" in caplog.text
    assert client.identity != model.client.identity


def test_paths_that_are_missing_are_missing_however_a_table_says_so(training) -> None:  # type: ignore[no-untyped-def]
    """Parquet gives back NaN where None was written."""
    table = training.questions
    cells = {kind: table["reference_paths"].astype(object).copy() for kind in ("none", "nan")}
    for kind, value in (("none", None), ("nan", float("nan"))):
        cells[kind].iloc[::2] = value
    one, other = (
        example_questions(replace(training, questions=table.assign(reference_paths=column)), 6)["id"].tolist()
        for column in cells.values()
    )
    assert one == other
    assert len(one) == 6
