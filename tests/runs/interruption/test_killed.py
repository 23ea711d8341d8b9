"""Killed, interrupted, or started twice: nothing half-written is ever taken for whole, and it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from disturbed import (
    ASKED,
    ENVIRONMENT,
    PROGRAM,
    Undisturbed,
    assert_whole,
    carry,
    kill_while_writing,
    left_over,
    multirun,
    scores,
)  # fmt: skip

from pertbase.folds import read_answers, read_screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals are posix's"),
]


def test_run_killed_at_random_moments_scores_the_same_bytes_in_the_end(
    screen: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2024)
    kills, rounds = 0, 0
    while kills < 10:
        rounds += 1
        runs = tmp_path / f"runs {rounds}"
        while True:
            process = subprocess.Popen(
                multirun(screen, runs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
            )
            try:
                process.wait(timeout=float(rng.uniform(0.45, 1.0)) * undisturbed.seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                if runs.exists():
                    assert_whole(runs)
            else:
                assert process.returncode == 0
                break
            if kills >= 10:
                break
        assert carry(multirun(screen, runs)).returncode == 0
        assert scores(runs) == undisturbed.scores
        assert_whole(runs)


# -- killed while it writes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_prepare_killed_while_it_writes_leaves_nothing_under_the_name_and_works_again(
    suffix: str, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / f"out{suffix}"
    command = [
        *PROGRAM,
        "prepare",
        f"input={source}",
        f"output={output}",
        *(f"{key}={value}" for key, value in ASKED.items()),
    ]
    assert kill_while_writing(command, tmp_path)
    assert not output.exists()
    assert left_over(tmp_path)
    assert carry(command).returncode == 0
    assert [item.name for item in tmp_path.iterdir()] == [output.name]
    first = read_screen(output).hash
    # And over a screen that is there: the old one stays until the new one is whole.
    assert kill_while_writing(command, tmp_path)
    assert read_screen(output).hash == first
    assert carry(command).returncode == 0
    assert [item.name for item in tmp_path.iterdir()] == [output.name]


def test_folds_make_killed_while_it_writes_leaves_no_fold_and_works_again(screen: Path, tmp_path: Path) -> None:
    folds = tmp_path / "folds"
    command = [
        *PROGRAM, "folds", "make", "data=h5ad", f"data.path={screen}", "data.name=tiny", "fold=unseen_context_genetic",
        f"output={folds}",
    ]  # fmt: skip
    assert kill_while_writing(command, folds)
    assert [item for item in folds.iterdir() if not item.name.startswith(".")] == []
    assert left_over(folds)
    assert carry(command).returncode == 0
    (folder,) = [item for item in folds.iterdir() if not item.name.startswith(".")]
    assert left_over(folds) == []
    assert "sound: content hashes" in carry([*PROGRAM, "folds", "check", f"fold_dir={folder}"]).stdout


def test_report_killed_while_it_writes_leaves_nothing_under_the_name(undisturbed: Undisturbed, tmp_path: Path) -> None:
    output = tmp_path / "report" / "page.html"
    command = [*PROGRAM, "report", f"runs={undisturbed.runs}", f"output={output}"]
    for _ in range(5):  # it is written in a few milliseconds
        if kill_while_writing(command, output.parent):
            break
        output.unlink()
    else:
        pytest.fail("the report could not be caught while it was written")
    assert not output.exists()
    assert carry(command).returncode == 0
    assert [item.name for item in output.parent.iterdir()] == [output.name]
    assert_whole(output.parent)


def test_what_a_living_writer_put_aside_is_left_to_it(tmp_path: Path) -> None:
    from pertbase._io import write_aside, write_text

    path = tmp_path / "scores.json"
    with write_aside(path) as first:
        first.write_text("first")
        write_text(path, "second")
        assert first.exists()
    assert path.read_text() == "first"
    assert [item.name for item in tmp_path.iterdir()] == ["scores.json"]


# -- at the same time ----------------------------------------------------------------------------------------


def test_two_processes_at_once_end_with_the_same_bytes_as_one(
    screen: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    processes = [
        subprocess.Popen(
            multirun(screen, runs), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
        )
        for _ in range(3)
    ]
    told = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], told
    assert scores(runs) == undisturbed.scores
    assert_whole(runs)
    assert left_over(runs) == []
    # Each run was carried out by one of them, and found complete by the others.
    assert sum(text.count("done in") for text in told) == 6
    assert all(read_answers(path).table["id"].is_unique for path in runs.rglob("fixed.parquet"))


def test_interrupt_from_the_keyboard_says_how_to_go_on(screen: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    process = subprocess.Popen(
        multirun(screen, runs), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    while not (runs / "_folds").exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command takes up where this one stopped" in err
    assert "Traceback" not in err
    assert left_over(runs) == []
    assert carry(multirun(screen, runs)).returncode == 0
    assert scores(runs) == undisturbed.scores
