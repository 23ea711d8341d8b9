"""Random folds whose effects a model can know well, badly or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from pertbase.folds import Effects, Inputs, Perturbation, Training

GENES = pd.Index([f"G{number}" for number in range(40)])


@dataclass(frozen=True)
class RandomFold:
    training: Training
    inputs: Inputs


def _questions(conditions, values, rng):
    table = conditions.loc[conditions.index.repeat(len(GENES))].reset_index(drop=True)
    effect = values.ravel()
    outcome = np.select([effect > 0.4, effect < -0.4], ["up", "down"], "no_change").astype(object)
    ambiguous = rng.random(len(table)) < 0.05
    gene = np.tile(GENES.to_numpy(), len(conditions))
    return table.assign(
        gene=gene,
        id=table["context"] + "|" + table["perturbation"] + "|" + gene,
        effect=effect,
        outcome=np.where(ambiguous, None, outcome),
        regime=np.where(ambiguous, "ambiguous", ""),
    )


@pytest.fixture
def random_fold():
    """Return a maker of folds: ``n_train`` and ``n_val`` single knock-downs, and ten to be asked about."""

    def make(n_train=20, n_val=12, *, seed=0, spread=0.35):
        rng = np.random.default_rng(seed)
        n = n_train + n_val + 10
        perturbations = [Perturbation.genetic([f"T{number}"], "CRISPRi") for number in range(n)]
        conditions = pd.DataFrame(
            {
                "context": "K",
                "perturbation": [item.name for item in perturbations],
                "split": ["train"] * n_train + ["val"] * n_val + ["test"] * 10,
                "target_set": [item.split_key for item in perturbations],
                "n_parts": 1,
                "n_cells": 50,
            }
        )
        values = rng.normal(0.0, spread, size=(n, len(GENES)))
        known = (conditions["split"] != "test").to_numpy()
        questions = _questions(conditions, values, rng)
        named = {item.name: item for item in perturbations}
        training = Training(
            fold="random",
            kind="unseen_perturbation_genetic",
            data="random",
            seed=0,
            questions=questions.loc[questions["split"] != "test"].reset_index(drop=True),
            conditions=conditions.loc[known].reset_index(drop=True),
            genes=GENES,
            perturbations=named,
            statistic="mean_log",
            effects=Effects(values[known], conditions.loc[known], GENES),
        )
        inputs = Inputs(
            split="test",
            questions=questions.loc[questions["split"] == "test"].drop(columns=["outcome", "effect", "regime"]),
            conditions=conditions.loc[~known].reset_index(drop=True),
            genes=GENES,
            perturbations=named,
            statistic="mean_log",
        )
        return RandomFold(training, inputs)

    return make


class Oracle:
    """Knows every effect of the fold, shrunken and with noise; remembers what it was fitted on."""

    refit = True
    needs_cells = False

    def __init__(self, training, *, shrink=0.3, noise=0.03, unsupported=()):
        rng = np.random.default_rng(7)
        effects = training.effects
        values = shrink * effects.values + rng.normal(0.0, noise, effects.values.shape)
        self.known = Effects(values, effects.conditions, effects.genes)
        self.unsupported = set(unsupported)
        self.fitted_on = []

    def answers_directly(self, training):
        return False

    def fit(self, training):
        self.fitted_on = sorted(training.conditions["perturbation"])

    def predict(self, inputs):
        assert not set(self.fitted_on) & set(inputs.conditions["perturbation"]), "asked about what it was fitted on"
        found = self.known.select(inputs.conditions)
        silent = inputs.conditions["perturbation"].isin(self.unsupported).to_numpy()
        status = np.where(silent, "unsupported", "ok")
        return Effects(
            np.where(silent[:, None], 0.0, found.values), found.conditions, found.genes, status=status.astype(object)
        )


@pytest.fixture
def oracle():
    return Oracle


@pytest.fixture
def with_outcomes():
    """Return training with other outcomes for the questions of one split."""

    def change(training, split, outcomes):
        here = (training.questions["split"] == split) & training.questions["outcome"].notna()
        questions = training.questions.copy()
        questions.loc[here, "outcome"] = outcomes(questions.loc[here])
        return replace(training, questions=questions)

    return change
