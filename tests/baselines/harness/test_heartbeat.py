"""A training that takes long says that it goes on."""

from __future__ import annotations

import logging
import re

import pytest
from harness_toy import CPU, fitted, val_mse

from pertbase.baselines.harness._callbacks import Heartbeat
from pertbase.cli import main


def _said(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pertbase.training"]


def test_a_training_says_when_it_starts_and_how_good_its_first_and_last_epochs_are(training, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="pertbase.training"):
        fitted(training, tmp_path)
    start, first, last = _said(caplog)
    assert re.fullmatch(r"training on cpu: at most 3 epochs of \d+ steps", start)
    values = val_mse(tmp_path)
    assert re.fullmatch(rf"epoch 1 of 3: val_mse {values[0]:.4g}, \d+ s", first)
    assert re.fullmatch(rf"epoch 3 of 3: val_mse {values[-1]:.4g}, \d+ s", last)


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_between_them_it_says_so_every_so_many_seconds(training, tmp_path, caplog, monkeypatch, every):
    monkeypatch.setattr("pertbase.baselines.harness._train.Heartbeat", lambda monitor: Heartbeat(monitor, every=every))
    with caplog.at_level(logging.INFO, logger="pertbase.training"):
        fitted(training, tmp_path)
    said = _said(caplog)
    steps = [line for line in said if "step " in line.partition(": ")[2] and line.startswith("epoch")]
    assert bool(steps) == (every == 0.0)
    assert sum("val_mse" in line for line in said) == (3 if every == 0.0 else 2)


def test_where_a_progress_bar_shows_it_nothing_is_said(training, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="pertbase.training"):
        fitted(training, tmp_path, {**CPU, "progress": True})
    assert _said(caplog) == []


def test_a_run_that_trains_prints_them_under_the_name_of_its_screen_and_others_print_their_end_alone(
    command, tmp_path, capsys
):
    assert main([*command, "baseline=shift,perturbed_mean", f"runs={tmp_path}"]) == 0
    out = capsys.readouterr().out
    shift = [line for line in out.splitlines() if line.startswith("[1/2]")]
    assert shift[0] == "[1/2] small unseen_perturbation_genetic shift seed=0: started"
    assert shift[1].startswith("[1/2]   training on cpu: at most 3 epochs of ")
    assert shift[2].startswith("[1/2]   epoch 1 of 3: val_mse ")
    assert shift[-1].startswith("[1/2] small unseen_perturbation_genetic shift seed=0: done in ")
    (other,) = [line for line in out.splitlines() if line.startswith("[2/2]")]
    assert "perturbed_mean seed=0: done in " in other
    # Whoever trains in a notebook is not talked to by what a run left behind.
    assert logging.getLogger("pertbase.training").handlers == []
