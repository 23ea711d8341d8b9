"""GRPO that was stopped, at whatever moment, goes on as if it had not been: the same steps, replies and weights."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("trl")

from grpo_toy import fitted, kept, weights

from pertbase.baselines.finetuned import GRPO
from pertbase.baselines.finetuned._rollouts import REPLIES, Rollouts, read_steps


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(
    stop, undisturbed, formed, training, tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    """Replies and steps are the same bytes, whether it stopped before the first checkpoint, or behind one."""
    folder = tmp_path / "data" / "fold" / "grpo" / "seed0"
    add = Rollouts.add

    def interrupted(self, step, replies):  # type: ignore[no-untyped-def]
        add(self, step, replies)
        if step == stop:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Rollouts, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(formed, training, folder)
    (home,) = (folder / "training").iterdir()
    before = [json.loads(line)["step"] for line in (home / REPLIES).read_text().splitlines()]
    assert before[-1] == stop
    fitted(formed, training, folder)
    assert kept(folder) == kept(undisturbed[0])
    assert weights(folder) == weights(undisturbed[0])


def test_a_training_that_ended_before_its_model_was_written_is_not_trained_further(
    undisturbed, formed, training, tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    from pertbase.baselines.finetuned import _grpo

    def interrupted(*_, **__):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    folder = tmp_path / "data" / "fold" / "grpo" / "seed0"
    with monkeypatch.context() as patch:
        patch.setattr(_grpo, "export", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(formed, training, folder)
    fitted(formed, training, folder)
    assert kept(folder) == kept(undisturbed[0])
    assert weights(folder) == weights(undisturbed[0])


def test_the_size_of_a_backward_pass_changes_no_draw(undisturbed, formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "data" / "fold" / "grpo" / "seed0"
    fitted(formed, training, folder, batch_size=6, steps=2)
    replies, whole = (kept(one)[REPLIES].splitlines() for one in (folder, undisturbed[0]))
    assert len(replies) == 24
    assert replies[:12] == whole[:12]


@pytest.mark.slow
def test_adapters_go_on_too(formed, training, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    how = {"lora": {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1}, "beta": 0.1, "steps": 3}
    whole, stopped = (tmp_path / name / "f" / "grpo" / "seed0" for name in ("whole", "stopped"))
    fitted(formed, training, whole, **how)
    add = Rollouts.add

    def interrupted(self, step, replies):  # type: ignore[no-untyped-def]
        add(self, step, replies)
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Rollouts, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(formed, training, stopped, **how)
    fitted(formed, training, stopped, **how)
    assert kept(stopped) == kept(whole)
    assert weights(stopped) == weights(whole)


_SCRIPT = """
import sys
from pathlib import Path
import pandas as pd
sys.path.insert(0, {here!r})
from grpo_toy import fitted
fitted(Path({start!r}), pd.read_pickle({training!r}), Path({folder!r}))
"""


@pytest.mark.slow
def test_a_killed_training_goes_on_as_if_it_had_not_been(undisturbed, formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "data" / "fold" / "grpo" / "seed0"
    pd.to_pickle(training, tmp_path / "training.pkl")
    values = {"here": str(Path(__file__).parent), "start": str(formed), "folder": str(folder)}
    script = _SCRIPT.format(**values, training=str(tmp_path / "training.pkl"))
    for wanted in (1, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        limit = time.monotonic() + 120
        while len(read_steps(next(iter((folder / "training").glob("*")), folder))) < wanted:
            assert process.poll() is None, process.stderr.read().decode()  # type: ignore[union-attr]
            assert time.monotonic() < limit
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    fitted(formed, training, folder)
    assert kept(folder) == kept(undisturbed[0])
    assert weights(folder) == weights(undisturbed[0])


def test_a_training_that_ended_is_not_done_again(undisturbed, formed, training, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    folder, model = undisturbed
    monkeypatch.setattr(GRPO, "learn", lambda *_: pytest.fail("trained again"))
    again = fitted(formed, training, folder)
    assert again.client.identity == model.client.identity
    assert again.account()["learnt"]["steps"] == 4


def test_other_seeds_draw_other_replies(undisturbed, formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    other = tmp_path / "d" / "f" / "grpo" / "seed1"
    fitted(formed, replace(training, seed=1), other, steps=1)
    assert kept(other)[REPLIES] != b"".join(kept(undisturbed[0])[REPLIES].splitlines(keepends=True)[:12])


def test_generators_of_the_process_are_left_as_they_were(formed, training, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import torch

    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    fitted(formed, training, tmp_path / "d" / "f" / "grpo" / "seed0", steps=1)
    drawn = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    assert drawn == (random.random(), np.random.rand(), torch.rand(1).item())  # noqa: NPY002
