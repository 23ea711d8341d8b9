"""Baselines: anything that answers a fold's questions.

``base`` says what a plug-in must write; ``simple`` holds the baselines that stand in every table.
"""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.baselines', not as {__name__!r}: the folder 'baselines' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )

from typing import TYPE_CHECKING, Any

from pertbase.baselines.base import AnswerBaseline, Baseline, ExpressionBaseline, PredictedCells, refusal
from pertbase.baselines.simple import (
    Additive,
    AskedElsewhere,
    BasalExpression,
    BilinearRidge,
    ContextMean,
    CrossContext,
    DrugTarget,
    GenePrior,
    HubDegree,
    KnnGO,
    MatchingMean,
    NoChange,
    PathVote,
    PerturbationPrior,
    PerturbedMean,
    Reachability,
)
from pertbase.errors import no_attribute

if TYPE_CHECKING:
    from pertbase.baselines.gears import GEARS
    from pertbase.baselines.scgpt import ScGPT
    from pertbase.baselines.state import STATE

__all__ = [
    "GEARS",
    "STATE",
    "Additive",
    "AnswerBaseline",
    "AskedElsewhere",
    "BasalExpression",
    "Baseline",
    "BilinearRidge",
    "ContextMean",
    "CrossContext",
    "DrugTarget",
    "ExpressionBaseline",
    "GenePrior",
    "HubDegree",
    "KnnGO",
    "MatchingMean",
    "NoChange",
    "PathVote",
    "PerturbationPrior",
    "PerturbedMean",
    "PredictedCells",
    "Reachability",
    "ScGPT",
    "refusal",
]

_DEEP = {"GEARS": "gears", "STATE": "state", "ScGPT": "scgpt"}


def __getattr__(name: str) -> Any:
    """Import a deep baseline when it is asked for: the simple ones must not pay for it."""
    if name not in _DEEP:
        raise no_attribute(__name__, name, __all__)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_DEEP[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
