"""The program ``pertbase``: a subcommand, then ``key=value``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pertbase.errors import InputError, PertbaseError, nearest, unknown_name

__all__ = ["main"]

USAGE = """\
pertbase: perturbation-model baselines on the same folds, with the same answers and the same scores

  pertbase run data=simulated fold=combinatorial baseline=gene_prior seed=0
  pertbase run -m data=papalexi baseline='glob(*)' fold='glob(*)'
  pertbase run -m experiment=simple data=... every simple baseline on every fold; `list experiments`: more
  pertbase status runs=runs                  what ran
  pertbase report runs=runs                  tables; format=terminal|md|csv|html|svg, output=FILE
  pertbase report runs=runs output=r.html    one page with plots; .svg: balanced accuracy as a picture
  pertbase report compare=A,B                paired difference on the same questions
  pertbase report experiment=NAME            ours beside a published table: perturbqa_auroc, norman_doubles, ...
  pertbase score answers=FILE fold_dir=FOLDER        somebody else's answers; beside=gene_prior, split=test
  pertbase score answers=FILE fold_dir=FOLDER records=FILE.csv   with its reasons; preset=joined, names=FILE, mini=N
  pertbase score effects=FILE fold_dir=FOLDER        somebody else's effects; adapter=fixed, cell_eval=FOLDER data=...
  pertbase effects input=FILE output=FILE ...        a table of predicted effects -> effects
  pertbase prepare input=FILE output=FILE ...        any h5ad -> screen
  pertbase folds make data=... fold=...      make folds; output=FOLDER
  pertbase folds show fold_dir=FOLDER        who is in which split, and the certificate
  pertbase folds questions fold_dir=FOLDER output=FILE.csv   what is asked, for answers made elsewhere
  pertbase folds records fold_dir=FOLDER output=FOLDER   questions and paths as JSONL by data=pertreasonqa's map; mini=N
  pertbase folds split fold_dir=FOLDER output=FILE.toml   its split as cell-load reads it, for STATE's own package
  pertbase folds check fold_dir=FOLDER       prove that nothing leaks; data=... makes it again and compares
  pertbase folds check manifest=NAME         the folds behind a published table, made again: are they the same
  pertbase folds manifest data=... fold=... output=FILE.yaml   write such a manifest
  pertbase paths show context=.. perturbation=.. gene=..     signed paths from one to the other; data=.. graph=.. hops=3
  pertbase prompts show fold_dir=FOLDER baseline=llm/NAME n=3      what a language model is asked
  pertbase prompts follow fold_dir=FOLDER baseline=llm/NAME baseline.preset=cell_path   does it follow what it is shown
  pertbase prompts write fold_dir=FOLDER baseline=llm/NAME n=50 output=FILE.jsonl   reasons to fine-tune on, checked
  pertbase folds difficulty data=A,B         how hard each data set's folds are, side by side
  pertbase list baselines|folds|data|adapters|trainers|experiments|manifests|graphs|paths
  pertbase list baselines NAME               its options, with defaults and meaning; so for folds, data, adapters, ...
  pertbase new baseline NAME                 a plug-in to start from, with its test
  pertbase COMMAND --help                    every option of a command, with examples: `pertbase folds make --help`

Options of run and folds: --config-dir FOLDER (a folder of yours with baseline/, data/, ...), dry_run=true; of an
experiment, part=gpu or part=all for what it leaves to a GPU.
Beside the questions of a fold, paths=own|human lays candidate and reference paths; paths.hops=2 and so on.
Options of a part are given as part.key=value, for example fold.seed=1 data.path=my.h5ad baseline.ridge=1;
of several baselines, an option goes to those that have it.
"""

Command = Callable[[list[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code: 0, 1 for failed runs or problems found, 2 for a bad command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(version("pertbase"))
        return 0
    try:
        name = arguments[0]
        if name not in _COMMANDS:
            raise unknown_name("command", name, _COMMANDS)
        if any(text in ("-h", "--help") for text in arguments[1:]):
            from pertbase.runs._commands._help import help_text

            print(help_text(arguments))
            return 0
        return _COMMANDS[name](arguments[1:])
    except PertbaseError as error:
        print(f"pertbase: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, `head` for example, has left; what it wanted was written.
        sys.stderr.close()
        return 0
    except OSError as error:
        # What no reader or writer of ours foresaw, such as a name that is too long for the file system.
        named = f"{error.filename}: " if error.filename else ""
        print(f"pertbase: {named}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pertbase: interrupted; the same command takes up where this one stopped", file=sys.stderr)
        return 130


def _options(arguments: Sequence[str], known: Sequence[str], required: Sequence[str] = ()) -> dict[str, str]:
    """Return ``key=value`` arguments; the first ``=`` parts them, so that a value may hold anything."""
    found = {}
    for text in arguments:
        key, sign, value = text.partition("=")
        if not sign:
            raise InputError("is not of the form key=value", key="command line", value=text)
        if key not in known:
            raise unknown_name("option", key, known)
        found[key] = value
    for key in required:
        if not found.get(key):
            raise InputError("is missing", key=key, remedy=f"add {key}=...; with --help the command shows examples")
    return found


def _config_dirs(arguments: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Take ``--config-dir FOLDER`` and ``--config-dir=FOLDER`` out of the arguments."""
    rest: list[str] = []
    folders: list[Path] = []
    remaining = iter(arguments)
    for text in remaining:
        flag, sign, value = text.partition("=")
        if flag != "--config-dir":
            rest.append(text)
            continue
        folder = value if sign else next(remaining, "")
        if not folder:
            raise InputError("needs a folder", key="--config-dir")
        folders.append(_folder(Path(folder)))
    return rest, folders


def _folder(path: Path) -> Path:
    """Return a folder of configurations, or raise with the one beside it that may have been meant."""
    if path.is_dir():
        return path
    above = path.resolve().parent
    close = nearest(path.name, [item.name for item in above.iterdir() if item.is_dir()]) if above.is_dir() else None
    raise InputError(
        "is no folder" if path.exists() else "there is no such folder",
        file=path,
        key="--config-dir",
        remedy=f"did you mean {str(path.parent / close)!r}?"
        if close
        else "check the name; it holds baseline/, data/, ..",
    )


def _true(options: dict[str, str], key: str) -> bool:
    value = options.get(key, "false").lower()
    if value not in ("true", "false"):
        raise InputError("is true or false", key=key, value=options[key])
    return value == "true"


# -- run ----------------------------------------------------------------------------------------------------


def _tell(line: str) -> None:
    """Say what is being done on standard error: what is printed stays what was asked for."""
    print(line, file=sys.stderr, flush=True)


def _run(arguments: list[str]) -> int:
    if any(text in ("-m", "--multirun") for text in arguments):
        _tell("planning ...")  # before anything heavy is imported
    from pertbase.runs import run_session
    from pertbase.runs._session import summary

    rest, folders = _config_dirs(arguments)
    multirun = any(text in ("-m", "--multirun") for text in rest)
    rest = [text for text in rest if text not in ("-m", "--multirun")]
    dry = _true(dict(text.split("=", 1) for text in rest if text.startswith("dry_run=")), "dry_run")
    rest = [text for text in rest if not text.startswith("dry_run=")]
    outcomes = run_session(
        rest, multirun=multirun, config_dirs=folders, dry_run=dry, say=lambda line: print(line, flush=True), tell=_tell
    )
    if dry:
        from pertbase.runs._commands._list import costs

        for line in costs(rest, folders):
            print(line, file=sys.stderr)  # what is listed stays a list of runs
    else:
        print(summary(outcomes))
    return int(any(outcome.state == "failed" for outcome in outcomes))


def _status(arguments: list[str]) -> int:
    from pertbase.runs import find_runs
    from pertbase.runs._commands._help import options_of

    options = _options(arguments, options_of("status"))
    found = find_runs(options.get("runs", "runs"))
    states = []
    for run in found:
        status = run.status
        about = status.get("finished") or status.get("started") or ""
        state = run.state
        error = f"  {run.reason}" if state == "failed" else ""
        print(f"{state:<11} {about:<26} {'/'.join(run.folder.parts[-4:])}{error}")
        states.append(state)
    print(
        ", ".join(
            f"{states.count(state)} {state}" for state in ("complete", "running", "interrupted", "failed", "skipped")
        )
    )
    return 0


def _report(arguments: list[str]) -> int:
    from pertbase.runs._commands._report import report

    rest, folders = _config_dirs(arguments)
    return report(rest, folders)


def _terminal_width() -> int | None:
    """Return the width to fit tables into; None where the output is no terminal, and nobody says how wide it is."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return None
    return shutil.get_terminal_size().columns


# -- others' predictions ------------------------------------------------------------------------------------


def _score(arguments: list[str]) -> int:
    from pertbase.runs._commands._score import score

    rest, folders = _config_dirs(arguments)
    return score(rest, folders)


def _effects(arguments: list[str]) -> int:
    from pertbase.runs._commands._score import effects

    return effects(arguments)


def _prepare(arguments: list[str]) -> int:
    from pertbase.folds import prepare_file
    from pertbase.runs._commands._help import options_of

    options = _options(arguments, options_of("prepare"), ("input", "output"))
    print(prepare_file(options.pop("input"), options.pop("output"), **options))
    return 0


# -- names --------------------------------------------------------------------------------------------------


def _list(arguments: list[str]) -> int:
    from pertbase.runs._commands._list import listed

    rest, folders = _config_dirs(arguments)
    return listed(rest, folders)


def _new(arguments: list[str]) -> int:
    from pertbase.runs._commands._help import options_of
    from pertbase.runs._commands._new import new_baseline

    if len(arguments) < 2 or arguments[0] != "baseline":
        raise InputError(
            "makes a baseline", key="new", value=" ".join(arguments), remedy="write: pertbase new baseline NAME"
        )
    options = _options(arguments[2:], options_of("new baseline"))
    for path in new_baseline(arguments[1], Path(options.get("output", "."))):
        print(path)
    return 0


def _folds(arguments: list[str]) -> int:
    from pertbase.runs._commands import _folds as command
    from pertbase.runs._commands._records import records

    actions: dict[str, Command] = {
        "make": command.make,
        "show": command.show,
        "check": command.check,
        "manifest": command.manifest,
        "difficulty": command.difficulty,
        "questions": command.questions,
        "records": records,
        "split": command.split,
    }
    if not arguments:
        raise InputError(
            "does one of make, show, check, manifest, questions, records, split, difficulty",
            key="folds",
            remedy="try: pertbase folds show fold_dir=FOLDER",
        )
    if arguments[0] not in actions:
        raise unknown_name("folds action", arguments[0], actions)
    return actions[arguments[0]](arguments[1:])


def _paths(arguments: list[str]) -> int:
    from pertbase.runs._commands import _paths as command

    actions: dict[str, Command] = {"show": command.show}
    if not arguments:
        raise InputError(
            "does show", key="paths", remedy="try: pertbase paths show context=.. perturbation=.. gene=.. graph=.."
        )
    if arguments[0] not in actions:
        raise unknown_name("paths action", arguments[0], actions)
    return actions[arguments[0]](arguments[1:])


def _prompts(arguments: list[str]) -> int:
    from pertbase.runs._commands import _prompts as command

    actions: dict[str, Command] = {"show": command.show, "follow": command.follow, "write": command.write}
    if not arguments:
        raise InputError(
            "does show, follow or write", key="prompts", remedy="try: pertbase prompts show fold_dir=.. baseline=llm/.."
        )
    if arguments[0] not in actions:
        raise unknown_name("prompts action", arguments[0], actions)
    return actions[arguments[0]](arguments[1:])


_COMMANDS: dict[str, Command] = {
    "run": _run,
    "status": _status,
    "report": _report,
    "score": _score,
    "effects": _effects,
    "prepare": _prepare,
    "folds": _folds,
    "paths": _paths,
    "prompts": _prompts,
    "list": _list,
    "new": _new,
}

if __name__ == "__main__":
    raise SystemExit(main())
