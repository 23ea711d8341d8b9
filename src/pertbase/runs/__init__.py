"""One baseline on one fold: plans, runs and their store, reports, published numbers.

Names are loaded when they are first used: listing baselines needs none of what running them does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pertbase.errors import no_attribute

if TYPE_CHECKING:
    from pertbase.runs._execute import Outcome, execute
    from pertbase.runs._names import Names
    from pertbase.runs._reading import read_run, read_runs
    from pertbase.runs._reports._fold_table import FoldTable
    from pertbase.runs._reports._report import Report, collect
    from pertbase.runs._run_scores import RunScores
    from pertbase.runs._session import Session, run, run_session
    from pertbase.runs._store import Run, find_runs

__all__ = [
    "FoldTable",
    "Names",
    "Outcome",
    "Report",
    "Run",
    "RunScores",
    "Session",
    "collect",
    "execute",
    "find_runs",
    "read_run",
    "read_runs",
    "run",
    "run_session",
]

_HOMES = {
    "FoldTable": "_reports._fold_table",
    "Names": "_names",
    "Outcome": "_execute",
    "Report": "_reports._report",
    "Run": "_store",
    "RunScores": "_run_scores",
    "Session": "_session",
    "collect": "_reports._report",
    "execute": "_execute",
    "find_runs": "_store",
    "read_run": "_reading",
    "read_runs": "_reading",
    "run": "_session",
    "run_session": "_session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise no_attribute("pertbase.runs", name, __all__)
    return getattr(importlib.import_module(f"pertbase.runs.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
