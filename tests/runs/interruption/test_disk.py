"""A full disk, files that may not grow, folders in the way or closed: each is a reason, and it goes on afterwards."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from disturbed import (
    ASKED,
    PROGRAM,
    Undisturbed,
    assert_whole,
    carry,
    left_over,
    multirun,
    ordinary,
    scores,
    single,
)  # fmt: skip

from pertbase.folds import read_screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="mounts and limits are posix's"),
]


# -- a disk without space ------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[], None]]:
    """Mount a disk of a size; what is yielded gives it more space. Skips where that is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")

    def grow() -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)

    try:
        yield grow
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


can_mount = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a disk"
)


def _used(folder: Path) -> int:
    return sum(path.stat().st_blocks for path in folder.rglob("*")) // 2


@can_mount
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.85])
def test_full_disk_fails_runs_with_a_reason_and_they_complete_once_there_is_space(
    share: float, screen: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    kilobytes = max(8, int(share * _used(undisturbed.runs)))
    with small_disk(tmp_path / "disk", kilobytes) as grow:
        runs = tmp_path / "disk" / "runs"
        done = carry(multirun(screen, runs))
        assert done.returncode == 1
        assert "No space left on device" in done.stdout
        assert "failed" in done.stdout.splitlines()[-1]
        if runs.exists():
            assert_whole(runs)
            assert left_over(runs) == []
            if any(runs.glob("*/*/*/*/config.yaml")):
                assert carry([*PROGRAM, "status", f"runs={runs}"]).returncode == 0
        grow()
        assert carry(multirun(screen, runs)).returncode == 0
        assert scores(runs) == undisturbed.scores
        assert left_over(runs) == []


@can_mount
@pytest.mark.parametrize("kilobytes", [4, 16, 40, 80])
@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_full_disk_is_said_by_prepare_and_leaves_nothing(
    suffix: str, kilobytes: int, source: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", kilobytes) as grow:
        output = tmp_path / "disk" / f"out{suffix}"
        command = [
            *PROGRAM,
            "prepare",
            f"input={source}",
            f"output={output}",
            *(f"{key}={value}" for key, value in ASKED.items()),
        ]
        done = carry(command)
        assert done.returncode == 2
        assert f"{output}: cannot write" in done.stderr
        assert "No space left" in done.stderr
        assert list(output.parent.iterdir()) == []
        grow()
        assert carry(command).returncode == 0
        read_screen(output)


LIMITED = """
import resource, signal, sys
import h5py, numpy as np, pandas as pd
from pertbase.errors import PertbaseError
from pertbase.folds import Effects
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
values = np.random.default_rng(0).random((50, 400))
effects = Effects(values, pd.DataFrame({"context": "a", "perturbation": map(str, range(50))}),
                  pd.Index([f"G{i}" for i in range(400)]))
for limit in (1_000, 10_000, 50_000, 150_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        effects.write(sys.argv[1])
    except PertbaseError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with h5py.File("other.h5", "w") as other:  # a file of somebody else's can still be closed
        other["x"] = values
effects.write(sys.argv[1])
assert np.array_equal(Effects.read(sys.argv[1]).values, values)
"""


def test_file_that_may_not_grow_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    # HDF5 left to itself dies by a segmentation fault here, when it closes its next file.
    done = carry([sys.executable, "-c", LIMITED, "effects.h5ad"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("effects.h5ad: cannot write (File too large)") == 4
    assert sorted(item.name for item in tmp_path.iterdir()) == ["effects.h5ad", "other.h5"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


# -- folders that cannot be used -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["runs", "runs/_folds", "runs/tiny", "runs/tiny/unseen_context_genetic/no_change"])
def test_file_in_the_place_of_a_folder_is_a_reason(where: str, screen: Path, tmp_path: Path) -> None:
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).write_text("in the way")
    done = carry(single(screen, tmp_path / "runs"))
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "remove what stands in its place" in done.stdout.lower()
    assert str(tmp_path / where) in done.stdout
    assert (tmp_path / where).read_text() == "in the way"
    (tmp_path / where).unlink()
    assert carry(single(screen, tmp_path / "runs")).returncode == 0


@pytest.mark.parametrize("where", ["", "_folds", "tiny/unseen_context_genetic/no_change/seed0"])
def test_folder_that_may_not_be_written_is_a_reason(where: str, screen: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / where
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    try:
        done = carry(ordinary(single(screen, tmp_path / "runs")))
        assert done.returncode == 1
        assert "Permission denied" in done.stdout
        assert str(folder) in done.stdout
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
    assert carry(ordinary(single(screen, tmp_path / "runs"))).returncode == 0


@pytest.mark.parametrize("command", ["prepare", "report", "score", "folds"])
def test_output_that_may_not_be_written_is_said_with_its_name(
    command: str, screen: Path, source: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    run = undisturbed.runs / "tiny" / "unseen_context_genetic" / "no_change" / "seed0"
    fold = undisturbed.runs / "_folds" / yaml.safe_load((run / "config.yaml").read_text())["fold_folder"]
    prepared = [f"{key}={value}" for key, value in ASKED.items()]
    arguments = {
        "prepare": [f"input={source}", f"output={closed / 'x.h5ad'}", *prepared],
        "report": [f"runs={undisturbed.runs}", f"output={closed / 'x.html'}"],
        "score": [f"answers={run / 'answers' / 'fixed.parquet'}", f"fold_dir={fold}", f"output={closed / 'x.json'}"],
        "folds": ["make", "data=h5ad", f"data.path={screen}", "fold=unseen_context_genetic", f"output={closed}"],
    }
    closed.chmod(0o555)
    try:
        done = carry(ordinary([*PROGRAM, command, *arguments[command]]))
    finally:
        closed.chmod(0o755)
    assert done.returncode == 2, done.stdout
    assert str(closed) in done.stderr
    assert "Permission denied" in done.stderr
    assert list(closed.iterdir()) == []
