"""The simple baselines: a few lines of arithmetic each, and hard to beat."""

from pertbase.baselines.simple._basal import BasalExpression
from pertbase.baselines.simple._bilinear import BilinearRidge
from pertbase.baselines.simple._contexts import AskedElsewhere, CrossContext
from pertbase.baselines.simple._drug_target import DrugTarget
from pertbase.baselines.simple._graph_paths import HubDegree, PathVote, Reachability
from pertbase.baselines.simple._knn import KnnGO
from pertbase.baselines.simple._means import ContextMean, PerturbedMean
from pertbase.baselines.simple._parts import Additive, MatchingMean
from pertbase.baselines.simple._priors import GenePrior, NoChange, PerturbationPrior

__all__ = [
    "Additive",
    "AskedElsewhere",
    "BasalExpression",
    "BilinearRidge",
    "ContextMean",
    "CrossContext",
    "DrugTarget",
    "GenePrior",
    "HubDegree",
    "KnnGO",
    "MatchingMean",
    "NoChange",
    "PathVote",
    "PerturbationPrior",
    "PerturbedMean",
    "Reachability",
]
