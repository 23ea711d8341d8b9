"""Baselines: anything that answers a fold's questions.

``base`` says what a plug-in must write; ``simple`` holds the baselines that stand in every table.
"""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.baselines', not as {__name__!r}: the folder 'baselines' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )

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

__all__ = [
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
    "refusal",
]
