"""The certificate: what a fold can decide, computed once when it is made."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from pertbase._intervals import Interval, Term, cluster, two_way_interval
from pertbase._metrics import balanced_accuracy, confusion
from pertbase._random import generator
from pertbase.folds._answers import OUTCOMES, outcome_codes
from pertbase.folds._ceiling import split_half_ceiling
from pertbase.folds._certificate_view import Certificate
from pertbase.folds._check import leaks
from pertbase.folds._fold import SPLITS, Fold
from pertbase.folds._priors import outcome_counts, vote
from pertbase.folds._views import AMBIGUOUS

__all__ = ["MINIMUM_OF_A_CLASS", "certify"]

MINIMUM_OF_A_CLASS = 10
"""Below so many test questions of a class, balanced accuracy is not printed and baselines are not ranked."""
_DETECTION_POWER = 0.8


def certify(fold: Fold) -> Fold:
    """Return the fold with its certificate.

    The certificate is read by people and by the report. It is made from test outcomes and never reaches a
    baseline: :class:`Training` and :class:`Inputs` do not hold it.
    """
    test = fold.questions.loc[(fold.questions["split"] == "test") & fold.questions["outcome"].notna()]
    training = fold.questions.loc[fold.questions["split"].isin(("train", "val"))]
    counts = _counts(fold)
    short = [
        f"{counts['test'][outcome]} {outcome}" for outcome in OUTCOMES if counts["test"][outcome] < MINIMUM_OF_A_CLASS
    ]
    priors = _priors(training, test)
    difference = _paired(test, priors["gene_prior_balanced"], priors["gene_prior"])
    tested = fold.conditions.loc[fold.conditions["split"] == "test"]
    certificate: dict[str, Any] = {
        "disjoint": not leaks(fold),
        "questions": counts,
        "conditions_with_calls": {
            split: int(((rows["n_up"] + rows["n_down"]) > 0).sum())
            for split in SPLITS
            for rows in [fold.conditions.loc[fold.conditions["split"] == split]]
        },
        "target_sets": {
            split: int(fold.conditions.loc[fold.conditions["split"] == split, "target_set"].nunique())
            for split in SPLITS
        },
        "ceiling": _ceiling(fold),
        "priors": {name: _balanced(test, codes) for name, codes in priors.items()},
        "power": None if tested["power"].isna().all() else float(tested["power"].mean()),
        "smallest_difference": _smallest(difference),
        "ranks_baselines": not short,
        "verdict": _verdict(short, difference),
    }
    return replace(fold, certificate=Certificate(certificate))


def _verdict(short: list[str], difference: Interval) -> str:
    if short:
        few = " and ".join(short)
        return f"cannot rank baselines: test holds only {few} questions, and {MINIMUM_OF_A_CLASS} of each are needed"
    if min(difference.n_sets, difference.n_genes) < 2:
        return "can rank baselines, but without intervals: all test questions are about one target set or compound"
    return "can rank baselines"


def _counts(fold: Fold) -> dict[str, dict[str, int]]:
    table = fold.questions
    counts = {}
    for split in SPLITS:
        rows = table.loc[table["split"] == split]
        seen = rows["outcome"].value_counts()
        counts[split] = {outcome: int(seen.get(outcome, 0)) for outcome in OUTCOMES}
        counts[split][AMBIGUOUS] = int((rows["regime"] == AMBIGUOUS).sum())
    return counts


def _priors(training: pd.DataFrame, test: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the priors' answers to the test questions, by each gene's training outcomes."""
    counts = outcome_counts(training, "gene")
    total = counts.to_numpy().sum(axis=0)
    of_gene = counts.reindex(test["gene"]).to_numpy(dtype=np.float64)
    plain = np.where(np.isnan(of_gene), total, of_gene)
    return {
        "no_change": np.full(len(test), OUTCOMES.index("no_change")),
        "gene_prior": vote(plain),
        "gene_prior_balanced": vote(plain / np.maximum(total, 1)),
    }


def _balanced(test: pd.DataFrame, answered: np.ndarray) -> float:
    return float(balanced_accuracy(confusion(outcome_codes(test["outcome"]), answered)))


def _paired(test: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> Interval:
    if not len(test):
        return Interval(math.nan)
    true = outcome_codes(test["outcome"]).astype(np.int64)
    clusters = cluster([test["target_set"]], [test["gene"]])
    terms = [
        Term(true, answered.astype(np.int64), clusters.sets[0], clusters.genes[0], weight)
        for answered, weight in ((first, 1.0), (second, -1.0))
    ]
    return two_way_interval(terms, balanced_accuracy)


def _smallest(difference: Interval) -> float:
    """Return the difference in balanced accuracy that a 95% interval would tell from 0 in 80% of repetitions.

    ``(t(.975) + t(.8)) se``, with the standard error of the paired difference of the two priors, which disagree on
    about as many questions as two different baselines do.
    """
    from scipy.stats import t  # half a second to import, and most commands need it not

    degrees = min(difference.n_sets, difference.n_genes) - 1
    if degrees < 1 or not math.isfinite(difference.se) or difference.se == 0:
        return math.nan
    return float((t.ppf(0.975, degrees) + t.ppf(_DETECTION_POWER, degrees)) * difference.se)


def _ceiling(fold: Fold) -> dict[str, Any] | None:
    """Return the split-half ceiling of the test conditions, or None for outcome tables."""
    if fold.screen is None:
        return None
    obs = fold.screen.obs
    position = pd.Series(np.arange(len(obs)), index=obs.index)
    truth = fold.controls.loc[fold.controls["role"] == "truth"]
    controls = {
        str(context): position[cells["cell"]].to_numpy() for context, cells in truth.groupby("context", observed=True)
    }
    treated = obs.reset_index(drop=True)
    rows = treated.groupby(["context", "perturbation"], observed=True).indices

    def of(*splits: str) -> dict[tuple[str, str], np.ndarray]:
        chosen = fold.conditions.loc[fold.conditions["split"].isin(splits)]
        return {key: np.asarray(rows[key]) for key in zip(chosen["context"], chosen["perturbation"], strict=True)}

    ceiling = split_half_ceiling(
        fold.screen.X,
        controls=controls,
        conditions=of("test"),
        rule=fold.spec.rule,
        tune=of("train", "val"),
        batches=obs["batch"].to_numpy(),
        asked=_asked(fold),
        rng=generator(fold.spec.seed, "ceiling", fold.name),
    )
    return asdict(ceiling)


def _asked(fold: Fold) -> dict[tuple[str, str], np.ndarray]:
    """Return which readout genes each condition is asked about."""
    return {
        (str(context), str(name)): fold.genes.isin(rows["gene"])
        for (context, name), rows in fold.questions.groupby(["context", "perturbation"], observed=True)
    }
