"""pertbase: perturbation-model baselines on the same folds, with the same answers and the same scores.

Names are loaded when they are first used, so that importing the package, or asking the program for help, costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pertbase import adapters, baselines, folds, knowledge, plot, runs, scorers, simulate
    from pertbase.baselines import AnswerBaseline, ExpressionBaseline
    from pertbase.folds import (
        Answers,
        Effects,
        Fold,
        Screen,
        data,
        make_fold,
        open_fold,
        prepare,
        prepare_file,
        read_screen,
        write_screen,
    )
    from pertbase.runs import Report, Run, read_run, read_runs, run

__version__ = "0.1.0"

_HOMES = {
    "AnswerBaseline": "pertbase.baselines",
    "Answers": "pertbase.folds",
    "Effects": "pertbase.folds",
    "ExpressionBaseline": "pertbase.baselines",
    "Fold": "pertbase.folds",
    "Report": "pertbase.runs",
    "Run": "pertbase.runs",
    "Screen": "pertbase.folds",
    "data": "pertbase.folds",
    "make_fold": "pertbase.folds",
    "open_fold": "pertbase.folds",
    "prepare": "pertbase.folds",
    "prepare_file": "pertbase.folds",
    "read_run": "pertbase.runs",
    "read_runs": "pertbase.runs",
    "read_screen": "pertbase.folds",
    "run": "pertbase.runs",
    "write_screen": "pertbase.folds",
}
_ROOMS = ("adapters", "baselines", "folds", "knowledge", "plot", "runs", "scorers", "simulate")

__all__ = [
    "AnswerBaseline",
    "Answers",
    "Effects",
    "ExpressionBaseline",
    "Fold",
    "Report",
    "Run",
    "Screen",
    "adapters",
    "baselines",
    "data",
    "folds",
    "knowledge",
    "make_fold",
    "open_fold",
    "plot",
    "prepare",
    "prepare_file",
    "read_run",
    "read_runs",
    "read_screen",
    "run",
    "runs",
    "scorers",
    "simulate",
    "write_screen",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return _room(name)
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    from pertbase.errors import no_attribute

    raise no_attribute("pertbase", name, __all__)


def _room(name: str) -> Any:
    try:
        return importlib.import_module(f"pertbase.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"pertbase.{name}":
            raise
        # A checkout without symbolic links, as git makes on some systems, holds them as text files.
        raise ImportError(
            f"pertbase.{name} is not a folder here: this checkout holds the links of src/pertbase as text files. "
            "Run `git config core.symlinks true` and `git checkout -- src/pertbase`, or install the wheel"
        ) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
