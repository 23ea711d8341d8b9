"""The package: what git tracks is what a wheel holds, and no room can be imported flat."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("adapters", "baselines", "conf", "scorers")


def _tracked() -> set[str]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return set(done.stdout.splitlines())


@pytest.mark.slow
def test_a_wheel_made_from_the_sdist_holds_every_tracked_file_of_the_package(tmp_path: Path) -> None:
    tracked = _tracked()
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True, check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for name in tracked:
        first, _, rest = name.partition("/")
        if first in ROOMS:
            expected.add(f"pertbase/{name}")
        elif first == "src" and name not in {f"src/pertbase/{room}" for room in ROOMS}:
            expected.add(rest)
    assert held == expected


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_refuses_to_be_imported_flat(room: str) -> None:
    spec = importlib.util.spec_from_file_location(room, ROOT / room / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=f"pertbase.{room}"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_every_public_name_can_be_reached() -> None:
    import pertbase

    for name in pertbase.__all__:
        assert getattr(pertbase, name) is not None
    with pytest.raises(AttributeError):
        _ = pertbase.nothing_of_the_kind


def test_the_versions_agree() -> None:
    from importlib.metadata import version

    import pertbase

    assert pertbase.__version__ == version("pertbase")
    assert f"version: {pertbase.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_package_names_what_it_has_and_says_when_a_checkout_has_no_links(monkeypatch):
    import importlib

    import pertbase

    assert {"folds", "baselines", "make_fold"} <= set(dir(pertbase))
    with pytest.raises(AttributeError, match="no attribute 'bolds'"):
        pertbase.bolds  # noqa: B018

    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"core\.symlinks true"):
        pertbase._room("scorers")


def test_the_module_is_the_program(monkeypatch, capsys):
    import runpy

    monkeypatch.setattr(sys, "argv", ["pertbase", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("pertbase", run_name="__main__")
    assert not ended.value.code
    assert "pertbase run" in capsys.readouterr().out


@pytest.mark.parametrize("room", ["", ".baselines", ".folds", ".knowledge", ".adapters", ".scorers", ".runs", ".plot"])
def test_every_public_name_of_a_room_is_there(room: str) -> None:
    module = importlib.import_module(f"pertbase{room}")
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
