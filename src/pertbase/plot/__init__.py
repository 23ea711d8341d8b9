"""Pictures of folds, answers, baselines, paths and reasons, for notebooks.

Each function takes objects of pertbase, draws on matplotlib axes (``ax=``, or a figure of its own) and returns them;
none shows or saves anything, and none changes a setting of matplotlib's. Outcomes have the same colours everywhere
(:data:`COLOURS`), from the palette of Okabe and Ito. Simulated data are marked.

Names are loaded when they are first used. They need matplotlib and seaborn: ``pip install 'pertbase[notebooks]'``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pertbase._pictures import COLOURS
from pertbase.errors import no_attribute

if TYPE_CHECKING:
    from pertbase.plot._adapters import thresholds
    from pertbase.plot._answers import accuracy_by, confusion, disagreement, effects_against_truth
    from pertbase.plot._folds import controls, effect_distribution, outcome_balance, split_map
    from pertbase.plot._graphs import coverage, paths
    from pertbase.plot._reasons import reason_axes
    from pertbase.plot._rows import intervals, shortcuts, table

_HOMES = {
    "accuracy_by": "_answers",
    "confusion": "_answers",
    "controls": "_folds",
    "coverage": "_graphs",
    "disagreement": "_answers",
    "effect_distribution": "_folds",
    "effects_against_truth": "_answers",
    "intervals": "_rows",
    "outcome_balance": "_folds",
    "paths": "_graphs",
    "reason_axes": "_reasons",
    "shortcuts": "_rows",
    "split_map": "_folds",
    "table": "_rows",
    "thresholds": "_adapters",
}

__all__ = [
    "COLOURS",
    "accuracy_by",
    "confusion",
    "controls",
    "coverage",
    "disagreement",
    "effect_distribution",
    "effects_against_truth",
    "intervals",
    "outcome_balance",
    "paths",
    "reason_axes",
    "shortcuts",
    "split_map",
    "table",
    "thresholds",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"pertbase.plot.{_HOMES[name]}"), name)
    raise no_attribute("pertbase.plot", name, __all__)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
