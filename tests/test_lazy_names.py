"""Modules that load their names when they are first used do so as other modules have theirs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import pertbase


def _packages() -> list[str]:
    """Return every public package of pertbase, and pertbase itself."""
    found = ["pertbase"]
    for name in found:
        for item in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
            if item.ispkg and not item.name.rpartition(".")[2].startswith("_"):
                found.append(item.name)
    return found


LAZY = [name for name in _packages() if "__getattr__" in vars(importlib.import_module(name))]


@pytest.fixture(params=LAZY)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_the_lazy_modules_are_found() -> None:
    assert {"pertbase", "pertbase.plot", "pertbase.runs", "pertbase.baselines.harness"} <= set(LAZY)


def test_a_misspelt_name_is_told_with_the_one_that_was_meant(module: ModuleType) -> None:
    for name in module.__all__:
        misspelt = f"{name[:-1]}{name[-1] * 2}q"
        told = f"module '{module.__name__}' has no attribute '{misspelt}'"
        with pytest.raises(AttributeError, match=told) as caught:
            getattr(module, misspelt)
        assert "; did you mean '" in str(caught.value)
        assert caught.value.name == misspelt
        assert not hasattr(module, misspelt)
    assert getattr(module, "__no_such_thing__", None) is None
    with pytest.raises(AttributeError) as caught:
        module.qxzqxz  # noqa: B018
    assert "did you mean" not in str(caught.value)


def test_every_name_is_listed_before_it_is_loaded() -> None:
    for name in LAZY:
        code = f"import {name} as m; assert set(m.__all__) <= set(dir(m)), sorted(set(m.__all__) - set(dir(m)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"


def test_every_name_can_be_had(module: ModuleType) -> None:
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert pertbase.__all__ == sorted(pertbase.__all__)
