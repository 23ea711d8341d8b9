"""Killed, cut off from the disk, or started twice: nothing half-written is ever taken for whole, and it goes on."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import yaml

from pertbase.folds import prepare, read_answers, read_screen, write_screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals, mounts and limits are posix's"),
]

PROGRAM = [sys.executable, "-m", "pertbase"]
BASELINES = "no_change,perturbed_mean,bilinear_ridge"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _study() -> ad.AnnData:
    rng = np.random.default_rng(0)
    x = rng.poisson(rng.uniform(0.5, 3, (960, 1)) * rng.gamma(0.5, 2, 60)).astype(np.float32)
    what = np.resize(np.array(["ctrl", *(f"G{i}" for i in range(7))], dtype=object), 960)
    for number in range(7):
        x[np.ix_(what == f"G{number}", [10 + number, 20 + number, 30 + number])] += 4
    obs = pd.DataFrame({"what": what, "line": np.resize(np.repeat(["a", "b", "c"], 8), 960)})
    obs.index = [f"c{i}" for i in range(960)]
    return ad.AnnData(x, obs, pd.DataFrame(index=[f"G{i}" for i in range(60)]))


ASKED = {"perturbation": "what", "control": "ctrl", "context": "line", "mechanism": "CRISPRi"}


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.h5ad"
    write_screen(prepare(_study(), name="tiny", **ASKED)[0], path)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.h5ad"
    _study().write_h5ad(path)
    return path


def multirun(screen: Path, runs: Path, *more: str) -> list[str]:
    return [
        *PROGRAM, "run", "-m", "data=h5ad", f"data.path={screen}", "data.name=tiny",
        "fold=unseen_perturbation_genetic,unseen_context_genetic", f"baseline={BASELINES}", f"runs={runs}", *more,
    ]  # fmt: skip


def single(screen: Path, runs: Path) -> list[str]:
    return [
        *PROGRAM, "run", "data=h5ad", f"data.path={screen}", "data.name=tiny", "fold=unseen_context_genetic",
        "baseline=no_change", f"runs={runs}",
    ]  # fmt: skip


def carry(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, **options)  # type: ignore[call-overload]
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
    return done  # type: ignore[no-any-return]


def scores(runs: Path) -> dict[str, bytes]:
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.glob("*/*/*/*/scores.json")}


@dataclass(frozen=True)
class Undisturbed:
    """A multirun that nobody disturbed: its folder, scores, and how long it took."""

    runs: Path
    scores: dict[str, bytes]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(screen: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    runs = tmp_path_factory.mktemp("undisturbed") / "runs"
    started = time.monotonic()
    assert carry(multirun(screen, runs)).returncode == 0
    taken = time.monotonic() - started
    found = scores(runs)
    assert len(found) == 6
    assert left_over(runs) == []
    return Undisturbed(runs, found, taken)


def left_over(folder: Path) -> list[str]:
    """Return what writers put aside and did not take away."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*") if ".part" in path.name]


READERS: dict[str, Callable[[Path], object]] = {
    ".json": lambda path: json.loads(path.read_text()),
    ".yaml": lambda path: yaml.safe_load(path.read_text())["format" if path.name == "fold.yaml" else "data"],
    ".parquet": pd.read_parquet,
    ".h5ad": ad.read_h5ad,
    ".txt": lambda path: path.read_text(),
    ".html": lambda path: path.read_text().rindex("</html>"),
}


def assert_whole(folder: Path) -> None:
    """Read every file that carries its own name, and not one that a writer has put aside."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            READERS[path.suffix](path)
    for fold in folder.glob("_folds/[!.]*"):
        assert {"fold.yaml", "questions.parquet", "conditions.parquet"} <= {item.name for item in fold.iterdir()}


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


def kill_while_writing(command: list[str], folder: Path) -> bool:
    """Kill a process as soon as a writer has put something aside in a folder; False where it ended before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    while process.poll() is None:
        if folder.exists() and any(".part" in name for name in os.listdir(folder)):
            process.kill()
            process.wait()
            return True
        time.sleep(0.0005)
    return False


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


def _ordinary(command: list[str]) -> list[str]:
    """Return a command as a user whom permissions hold."""
    if os.geteuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and cannot lay that down here")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search",
            *command]  # fmt: skip


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
        done = carry(_ordinary(single(screen, tmp_path / "runs")))
        assert done.returncode == 1
        assert "Permission denied" in done.stdout
        assert str(folder) in done.stdout
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
    assert carry(_ordinary(single(screen, tmp_path / "runs"))).returncode == 0


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
        done = carry(_ordinary([*PROGRAM, command, *arguments[command]]))
    finally:
        closed.chmod(0o755)
    assert done.returncode == 2, done.stdout
    assert str(closed) in done.stderr
    assert "Permission denied" in done.stderr
    assert list(closed.iterdir()) == []


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
