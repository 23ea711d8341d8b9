"""Adapters and outcome scoring of millions of answers: CPU-seconds by step, and peak memory.

    python benchmarks/scoring.py                    # 5,000,000 answers
    python benchmarks/scoring.py --conditions 200   # of 200 conditions x 2,500 genes

Questions, outcomes and effects are drawn (about 13% called, effects that carry some of it), in a process of its own.
The aim is under 10 CPU-seconds and 4 GB for 5 million answers.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from pertbase.adapters import Calibrated, HeldOut
from pertbase.folds import OUTCOMES, Effects, Inputs, Truth
from pertbase.scorers import outcome

N_GENES = 2_500


def draw(n_conditions: int, rng: np.random.Generator) -> tuple[pd.DataFrame, Effects]:
    """Return questions with outcomes, one a (condition, gene), and effects that are right more often than not."""
    names = np.array([f"CRISPRi:T{number}" for number in range(n_conditions)], dtype=object)
    genes = np.array([f"G{number}" for number in range(N_GENES)], dtype=object)
    true = rng.normal(size=(n_conditions, N_GENES)) * rng.gamma(0.5, 0.4, size=N_GENES)
    codes = np.where(true > 0.4, 0, np.where(true < -0.4, 1, 2)).ravel()
    conditions = pd.DataFrame({"context": "C", "perturbation": names})
    repeated = np.repeat(names, N_GENES)
    questions = pd.DataFrame(
        {
            "id": np.char.add("q", np.arange(codes.size).astype(str)).astype(object),
            "regime": "",
            "context": "C",
            "perturbation": repeated,
            "target_set": repeated,
            "gene": np.tile(genes, n_conditions),
            "outcome": np.array(OUTCOMES, dtype=object)[codes],
            "effect": true.ravel(),
        }
    )
    predicted = Effects(true + rng.normal(0, 0.4, true.shape), conditions, pd.Index(genes))
    return questions, predicted


def timed(label: str, call: Callable[[], Any]) -> Any:
    """Run, print CPU-seconds, return the result."""
    start = time.process_time()
    result = call()
    print(f"| {label} | {time.process_time() - start:.1f} |", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conditions", type=int, default=2_000)
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    questions, effects = draw(arguments.conditions, np.random.default_rng(0))
    held, _ = draw(100, np.random.default_rng(1))
    held_effects = draw(100, np.random.default_rng(1))[1]
    drawn = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    inputs = Inputs(
        "test",
        questions.drop(columns=["outcome", "effect", "regime"]),
        effects.conditions,
        effects.genes,
        {},
        "mean_log",
    )
    print(f"{len(questions):,} answers\n\n| step | CPU-seconds |\n| --- | --- |")
    adapter = timed(
        f"fit thresholds on {len(held):,}",
        lambda: Calibrated().fit(None, held_out=HeldOut("val", "", held, held_effects)),  # type: ignore[arg-type]
    )
    answers = timed("effects to answers", lambda: adapter.answer(inputs, effects))
    scores = timed("score, with intervals", lambda: outcome(answers, Truth(questions, "drawn", "", True)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\nbalanced accuracy {scores.balanced_accuracy}; peak {peak:.1f} GB, {drawn:.1f} GB of it the questions")


if __name__ == "__main__":
    main()
