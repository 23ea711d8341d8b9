"""Commands in processes of their own, what they leave behind, and whether that is whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import yaml

PROGRAM = [sys.executable, "-m", "pertbase"]
BASELINES = "no_change,perturbed_mean,bilinear_ridge"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def study() -> ad.AnnData:
    rng = np.random.default_rng(0)
    x = rng.poisson(rng.uniform(0.5, 3, (960, 1)) * rng.gamma(0.5, 2, 60)).astype(np.float32)
    what = np.resize(np.array(["ctrl", *(f"G{i}" for i in range(7))], dtype=object), 960)
    for number in range(7):
        x[np.ix_(what == f"G{number}", [10 + number, 20 + number, 30 + number])] += 4
    obs = pd.DataFrame({"what": what, "line": np.resize(np.repeat(["a", "b", "c"], 8), 960)})
    obs.index = [f"c{i}" for i in range(960)]
    return ad.AnnData(x, obs, pd.DataFrame(index=[f"G{i}" for i in range(60)]))


ASKED = {"perturbation": "what", "control": "ctrl", "context": "line", "mechanism": "CRISPRi"}


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


def ordinary(command: list[str]) -> list[str]:
    """Return a command as a user whom permissions hold."""
    if os.geteuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and cannot lay that down here")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search",
            *command]  # fmt: skip
