"""What tests of several rooms share: the simulated screen, and the real data where they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pertbase._io import canonical_json
from pertbase.folds import Fold, FoldMaker, FoldSpec, Screen, data
from pertbase.simulate import Simulation, simulate_screen

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real public data; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("PERTBASE_DATA") or SHARED)
    if not (folder / "papalexi").is_dir():
        pytest.skip("the real data are not here: set PERTBASE_DATA")
    return folder


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    return simulate_screen(seed=0)


@pytest.fixture(scope="session")
def simulated(simulation: Simulation) -> Screen:
    return simulation.screen


class _OnceMaker(FoldMaker):
    """Makes each fold once: folds are never changed, and every room's tests want the same ones."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._made: dict[str, Fold] = {}

    def make(self, spec: FoldSpec) -> Fold:
        # The fold's hash alone is the same with paths and without: a test would get what another one asked for.
        key = canonical_json({"hash": self.hash(spec), "spec": spec.to_dict()})
        if key not in self._made:
            self._made[key] = super().make(spec)
        return self._made[key]


@pytest.fixture(scope="session")
def maker(simulated: Screen) -> FoldMaker:
    return _OnceMaker(simulated)


@pytest.fixture(scope="session")
def papalexi(real_data: Path) -> Screen:
    before = os.environ.get("PERTBASE_DATA")
    os.environ["PERTBASE_DATA"] = str(real_data)
    try:
        screen = data("papalexi")
    finally:
        if before is None:
            del os.environ["PERTBASE_DATA"]
        else:
            os.environ["PERTBASE_DATA"] = before
    assert isinstance(screen, Screen)
    return screen


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell that runs the tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
