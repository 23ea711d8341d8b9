"""Runs made once for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pertbase.cli import main

Pertbase = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pertbase(capsys: pytest.CaptureFixture[str]) -> Pertbase:
    """Run the program in this process; return exit code, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="session")
def small_screen(simulated, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """Two contexts of the simulated screen, genetic conditions only, as a file in the contract."""
    from pertbase.folds import write_screen

    obs = simulated.obs
    genetic = {name for name, item in simulated.perturbations.items() if item.modality == "genetic"}
    keep = obs["context"].isin(simulated.contexts[:2]) & (obs["is_control"] | obs["perturbation"].isin(genetic))
    path = tmp_path_factory.mktemp("a folder = with [brackets], commas") / "my screen = 1.h5ad"
    write_screen(simulated.subset(keep.to_numpy()), path)
    return path


@pytest.fixture(scope="session")
def finished(small_screen: Path, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """A folder of finished runs on the small screen, its name as awkward as a path may be."""
    runs = tmp_path_factory.mktemp("finished") / "runs, [all] = mine"
    code = main(
        [
            "run", "-m", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
            "baseline=no_change,gene_prior_balanced,additive", f"runs={runs}",
        ]
    )  # fmt: skip
    assert code == 0
    return runs
