"""Help and refusals of every command: what it takes is what its help names, and a misspelled option is told."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pertbase.cli import _COMMANDS
from pertbase.runs._commands._help import COMMANDS, options_of

_ROOMS = sorted({name.partition(" ")[0] for name in COMMANDS})
# What a command needs before it looks at its options.
_FIRST = {"new baseline": ["some_name"]}
_NOT_OPTIONS = ("list",)


def test_every_command_of_the_program_has_help() -> None:
    assert set(_ROOMS) == set(_COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_of_that_command_alone_and_names_every_option_with_a_line_and_two_examples(
    command: str, pertbase: Any
) -> None:
    code, out, err = pertbase(*command.split(), "--help")
    assert code == 0, err
    assert out.startswith(f"pertbase {command}: ")
    lines = out.splitlines()
    flags = [key for key in COMMANDS[command].options if key.startswith("-")]
    for key in (*options_of(command), *flags):
        (line,) = [line for line in lines if re.match(rf"  {re.escape(key)}(  |$)", line)]
        assert len(line.split(maxsplit=1)) == 2, f"{key} is not explained"
    examples = lines[lines.index("examples") + 1 :]
    assert len(examples) == 2
    assert all(example.startswith(f"  pertbase {command}") for example in examples)
    assert not [line for line in lines if re.match(r"\s+pertbase ", line) and f"pertbase {command}" not in line]
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in _NOT_OPTIONS])
def test_what_a_command_says_that_it_knows_is_what_its_help_names(command: str, pertbase: Any) -> None:
    code, _, err = pertbase(*command.split(), *_FIRST.get(command, ()), "+zzzz=1" if command == "run" else "zzzz=1")
    assert code == 2
    assert "unknown option" in err
    known = set(re.split(r", ", err.strip().rpartition("Known: ")[2].rstrip(".")))
    assert known
    assert known <= set(options_of(command))
    # Composed for a run are also what says which runs: these are taken before anything is composed.
    assert command == "run" or known == set(options_of(command))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in (*_NOT_OPTIONS, "run")])
def test_a_misspelled_option_is_told_before_one_that_is_missing(command: str, pertbase: Any) -> None:
    for key in options_of(command):
        wrong = f"{key}x" if len(key) > 2 else ""
        if wrong:
            code, _, err = pertbase(*command.split(), *_FIRST.get(command, ()), f"{wrong}=x")
            assert code == 2
            assert "Did you mean" in err, err
            assert "is missing" not in err


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_help_use_options_that_there_are(command: str) -> None:
    for example in COMMANDS[command].examples:
        typed = [text.partition("=")[0] for text in example.split() if "=" in text and text[0] != "'"]
        assert {key.partition(".")[0] for key in typed} <= set(options_of(command)), example


@pytest.mark.parametrize("room", [name for name in _ROOMS if name not in COMMANDS])
def test_help_of_a_room_names_its_actions_and_their_options(room: str, pertbase: Any) -> None:
    code, out, _ = pertbase(room, "--help")
    assert code == 0
    for command in (name for name in COMMANDS if name.startswith(f"{room} ")):
        assert f"pertbase {command}: {COMMANDS[command].about}" in out
        assert all(key in out for key in COMMANDS[command].options)
    code, _, err = pertbase(room, "zzzz", "--help")
    assert code == 2
    assert "unknown" in err


@pytest.mark.parametrize("command", [["run", "-m"], ["report"], ["list"], ["folds", "make"], ["paths", "show"]])
def test_a_folder_of_configurations_that_is_not_there_is_refused_by_name(
    command: list[str], pertbase: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_conf").mkdir()
    code, _, err = pertbase(*command, "--config-dir", "my_cnf")
    assert code == 2
    assert "my_cnf: --config-dir: there is no such folder. Did you mean 'my_conf'?" in err
