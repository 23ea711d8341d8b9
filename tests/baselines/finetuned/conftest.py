"""A small fold, and models taught on it, once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for processes that are started too

pytest.importorskip("transformers")

import finetuned_toy as toy


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    yield
    toy.FAIL_AT, toy.FAILURE = None, RuntimeError


@pytest.fixture(scope="session")
def small() -> toy.Toy:
    return toy.make_toy()


@pytest.fixture(scope="session")
def reasoned(small, tmp_path_factory):  # type: ignore[no-untyped-def]
    """A model taught reasons, and the folder above its run's."""
    folder = tmp_path_factory.mktemp("reasoned")
    options = {"reasons": "rule", "preset": "cell_path", "max_epochs": 6, "learning_rate": 0.005, "explain": False}
    return toy.fitted(small.training, folder, **options), folder


@pytest.fixture(scope="session")
def training(small):  # type: ignore[no-untyped-def]
    return small.training


@pytest.fixture(scope="session")
def formed(reasoned) -> Path:  # type: ignore[no-untyped-def]
    """A model that was taught reasons, and hardly more than their form."""
    model, _ = reasoned
    return Path(model.client.model)


@pytest.fixture(scope="session")
def undisturbed(formed, training, tmp_path_factory):  # type: ignore[no-untyped-def]
    """A training by rewards that nobody stopped, and its run's folder."""
    import grpo_toy

    folder = tmp_path_factory.mktemp("runs") / "data" / "fold" / "grpo" / "seed0"
    return folder, grpo_toy.fitted(formed, training, folder)
