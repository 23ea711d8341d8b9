"""The README's own text: its plug-in is written to disk and run, its notebook cell is executed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pertbase.cli import main

README = Path(__file__).resolve().parents[2] / "README.md"


def _section(title: str) -> str:
    parts = re.split(r"^## ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (found,) = [part for part in parts if part.startswith(title)]
    return found


def _blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)


def test_the_plug_in_of_the_readme_runs_and_stands_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = _section("Plug in a model")
    files = [*_blocks(section, "python"), *_blocks(section, "yaml")]
    assert len(files) == 2
    for text in files:
        path = Path(text.splitlines()[0].removeprefix("# "))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    commands = _blocks(section, "bash")[0]
    for line in commands.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "pertbase"
        capsys.readouterr()
        assert main(arguments) == 0
    table = capsys.readouterr().out
    assert re.search(r"^\s*my_model\s+0\.\d+", table, flags=re.MULTILINE)
    assert re.search(r"^\s*no_change\s+0\.333", table, flags=re.MULTILINE)


def test_the_notebook_cell_of_the_readme_runs(
    small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("screen.h5ad").symlink_to(small_screen)
    (cell,) = _blocks(_section("In Jupyter"), "python")
    *lines, last = cell.strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    scores = eval(last, names)
    assert 0 < scores.balanced_accuracy.value < 1
    assert "balanced accuracy" in repr(scores)


def test_every_command_the_readme_names_exists() -> None:
    from pertbase.cli import _COMMANDS

    named = set(re.findall(r"pertbase ([a-z]+)\b", "\n".join(_blocks(README.read_text(encoding="utf-8"), "bash"))))
    assert named
    assert named <= set(_COMMANDS)


@pytest.mark.slow
def test_the_table_of_the_readme_is_what_its_commands_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = _section("A table")
    (commands,) = _blocks(section, "bash")
    for line in commands.strip().splitlines():
        _, *arguments = shlex.split(line)
        capsys.readouterr()
        assert main(arguments) == 0
    given = {line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")}
    shown = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(shown) > 10
    assert [line for line in shown if line not in given] == []
