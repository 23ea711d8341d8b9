"""Small folds with random answers, in the columns that a fold writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase.folds import OUTCOMES, SCORES, Answers, Truth

sys.path.append(str(Path(__file__).parent))  # for reasons_by_hand

MakeFold = Callable[..., tuple[Truth, Answers]]


def _make(
    rng: np.random.Generator,
    *,
    n_sets: int = 30,
    n_genes: int = 25,
    contexts: tuple[str, ...] = ("K562", "RPE1"),
    right: float = 0.6,
    silent: float = 0.05,
    ambiguous: float = 0.1,
    name: str = "toy",
) -> tuple[Truth, Answers]:
    grid = [(c, f"gene:T{s}", f"G{g}") for c in contexts for s in range(n_sets) for g in range(n_genes)]
    table = pd.DataFrame(grid, columns=["context", "target_set", "gene"])
    n = len(table)
    codes = rng.choice(3, n, p=[0.2, 0.15, 0.65])
    is_ambiguous = rng.random(n) < ambiguous
    table["id"] = [f"{name}{i:06d}" for i in rng.permutation(n)]
    table["perturbation"] = table["target_set"]
    table["regime"] = np.where(is_ambiguous, "ambiguous", rng.choice(["near", "far"], n))
    table["outcome"] = np.where(is_ambiguous, None, np.array(OUTCOMES, dtype=object)[codes])
    table["effect"] = np.choose(codes, [0.5, -0.5, 0.0]) + rng.normal(0, 0.1, n)
    scores = rng.dirichlet(np.ones(3), n)
    answered = np.where(rng.random(n) < right, codes, rng.choice(3, n))
    top = scores.argmax(axis=1)
    rows = np.arange(n)
    scores[rows, top], scores[rows, answered] = scores[rows, answered], scores[rows, top].copy()
    outcome = np.array(OUTCOMES, dtype=object)[answered]
    is_silent = rng.random(n) < silent
    outcome[is_silent] = None
    scores[is_silent] = np.nan
    status = np.where(is_silent, "truncated", "ok")
    answers = pd.DataFrame({"id": table["id"], "outcome": outcome, "status": status})
    answers[list(SCORES)] = scores
    truth = Truth(questions=table, name=name, hash=f"hash-{name}", simulated=False)
    return truth, Answers(answers.sample(frac=1, random_state=1, ignore_index=True))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def make_fold() -> MakeFold:
    return _make
