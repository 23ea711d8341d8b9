"""How often do 95% intervals of a score hold the score's population value?

Run ``python benchmarks/interval_coverage.py [repetitions]``: it prints a Markdown table of coverage, in percent, by
method, design, number of target sets and score. Seeded; the table below it says what it cost.

A repetition draws target sets and readout genes anew. Both have random effects in how often a question is called,
in its direction and, by class, in how often it is answered right; a target set is asked about a random share of the
genes. In the design ``concentrated`` nearly all ``up`` are in the fifth of target sets that are activators. The
population value comes from four million questions with a target set and a gene of their own.

A repetition counts only where a score would be printed: at least ten questions of each class.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase._intervals import Interval, Term, two_way_interval
from pertbase._metrics import MIN_CLASS_QUESTIONS, accuracy, balanced_accuracy, confusion

SCORES = ("balanced accuracy", "accuracy", "difference of balanced accuracy", "difference of accuracy")
DESIGNS = ("spread", "concentrated")
N_GENES = 100
REPLICATES = 400


@dataclass(frozen=True)
class Draw:
    """Questions with the answers of two baselines."""

    true: np.ndarray
    answered: tuple[np.ndarray, np.ndarray]
    sets: np.ndarray
    genes: np.ndarray


def draw(rng: np.random.Generator, design: str, n_sets: int, n_genes: int, *, independent: bool = False) -> Draw:
    """Draw a test split; ``independent`` gives question i target set i and gene i of its own."""

    def effects(sd_set: float, sd_gene: float) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(0, sd_set, n_sets), rng.normal(0, sd_gene, n_genes)

    called, direction = effects(1.2, 1.0), effects(0.7, 1.0)
    if design == "concentrated":
        activator = rng.random(n_sets) < 0.2
        direction = direction[0] + np.where(activator, 1.5, -4.0), direction[1]
    share = rng.beta(2, 2, n_sets)
    if independent:
        sets = genes = np.arange(n_sets)
    else:
        sets, genes = np.nonzero(rng.random((n_sets, n_genes)) < share[:, None])

    def logit(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return pair[0][sets] + pair[1][genes]

    n = len(sets)
    is_called = rng.random(n) < _expit(logit(called) - 2.6)
    true = np.where(is_called, np.where(rng.random(n) < _expit(logit(direction)), 0, 1), 2)
    # Strong perturbations are easier, and what is hard for one baseline is hard for the other.
    shared = effects(0.6, 0.6)
    shared = shared[0] + called[0] / 3, shared[1]
    question = rng.normal(0, 0.5, n)
    answers = []
    for skill in (0.0, 0.2):
        own = effects(0.4, 0.4)
        by_class = np.stack([logit(effects(0.5, 0.5)) for _ in range(3)])
        ease = np.array([0.0, 0.3, 2.0])[true] + skill + by_class[true, np.arange(n)]
        right = rng.random(n) < _expit(ease + logit(shared) + logit(own) + question)
        answers.append(np.where(right, true, (true + 1 + (rng.random(n) < 0.3)) % 3))
    return Draw(true, (answers[0], answers[1]), sets, genes)


def _expit(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def scores(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the four scores from the confusions of two baselines, (..., 4)."""
    one = np.stack([balanced_accuracy(first), accuracy(first)], axis=-1)
    return np.concatenate([one, one - np.stack([balanced_accuracy(second), accuracy(second)], axis=-1)], axis=-1)


def population(design: str) -> np.ndarray:
    """Return the scores over four million questions that share nothing."""
    rng = np.random.default_rng(7)
    total = np.zeros((2, 3, 4))
    for _ in range(20):
        data = draw(rng, design, 200_000, 200_000, independent=True)
        total += [confusion(data.true, answered) for answered in data.answered]
    return scores(total[0], total[1])


def two_way_jackknife(data: Draw, scale: str | None) -> list[Interval]:
    """Return what the suite reports; ``linear`` without the logit scale."""
    first = Term(data.true, data.answered[0], data.sets, data.genes)
    minus = Term(data.true, data.answered[1], data.sets, data.genes, -1.0)
    metrics = (balanced_accuracy, accuracy)
    single = [two_way_interval([first], metric, scale="linear" if scale == "linear" else None) for metric in metrics]
    return single + [two_way_interval([first, minus], metric) for metric in metrics]


def _sandwich(data: Draw, *, one_way: bool) -> list[Interval]:
    """Return intervals from linear terms: by target set alone, or two-way as Cameron, Gelbach and Miller."""
    from scipy.special import stdtrit

    totals = [confusion(data.true, answered) for answered in data.answered]
    value = scores(*totals)
    step = 1e-4
    influence = np.zeros((len(data.true), 4))
    for which, answered in enumerate(data.answered):
        slope = np.zeros((3, 4, 4))
        for cell in zip(*np.nonzero(totals[which]), strict=True):
            moved = [[counts.copy() for counts in totals] for _ in range(2)]
            moved[0][which][cell] += step
            moved[1][which][cell] -= step
            slope[cell] = (scores(*moved[0]) - scores(*moved[1])) / (2 * step)
        influence += slope[data.true, answered]
    sums = {}
    for name, codes in (("set", data.sets), ("gene", data.genes)):
        sums[name] = np.stack([np.bincount(codes, column) for column in influence.T])
    by_set, by_gene = (sums[name] ** 2 for name in ("set", "gene"))
    v_set, v_gene, v_both = by_set.sum(1), by_gene.sum(1), (influence**2).sum(0)
    variance = v_set if one_way else np.maximum(v_set + v_gene - v_both, np.maximum(v_set, v_gene))
    n = len(np.unique(data.sets)) if one_way else min(len(np.unique(data.sets)), len(np.unique(data.genes)))
    half = stdtrit(n - 1, 0.975) * np.sqrt(variance)
    return [Interval(v, v - h, v + h) for v, h in zip(value, half, strict=True)]


def pigeonhole_bootstrap(data: Draw, rng: np.random.Generator, n_sets: int) -> list[Interval]:
    """Return percentile intervals with target sets and genes drawn anew, each pair weighted by the product."""
    by_set = rng.multinomial(n_sets, np.full(n_sets, 1 / n_sets), REPLICATES).astype(np.float32)
    by_gene = rng.multinomial(N_GENES, np.full(N_GENES, 1 / N_GENES), REPLICATES).astype(np.float32)
    counts = np.zeros((2, REPLICATES, 3, 4))
    for which, answered in enumerate(data.answered):
        for cell in np.ndindex(3, 3):
            here = (data.true == cell[0]) & (answered == cell[1])
            asked = np.zeros((n_sets, N_GENES), dtype=np.float32)
            asked[data.sets[here], data.genes[here]] = 1
            counts[(which, slice(None), *cell)] = ((by_set @ asked) * by_gene).sum(1)
    replicates = scores(counts[0], counts[1])
    low, high = np.nanquantile(replicates, [0.025, 0.975], axis=0)
    return [Interval(math.nan, a, b) for a, b in zip(low, high, strict=True)]


def methods(rng: np.random.Generator, n_sets: int, *, bootstrap: bool) -> dict[str, Callable[[Draw], list[Interval]]]:
    """Return what is compared; the first is what the suite uses."""
    compared: dict[str, Callable[[Draw], list[Interval]]] = {
        "two-way jackknife, logit (used)": lambda data: two_way_jackknife(data, None),
        "two-way jackknife, linear": lambda data: two_way_jackknife(data, "linear"),
        "two-way sandwich": lambda data: _sandwich(data, one_way=False),
        "one-way sandwich, target set": lambda data: _sandwich(data, one_way=True),
    }
    if bootstrap:
        compared["two-way pigeonhole bootstrap"] = lambda data: pigeonhole_bootstrap(data, rng, n_sets)
    return compared


def _usable(rng: np.random.Generator, design: str, n_sets: int) -> Iterator[Draw]:
    while True:
        data = draw(rng, design, n_sets, N_GENES)
        if np.bincount(data.true, minlength=3).min() >= MIN_CLASS_QUESTIONS:
            yield data


def coverage(design: str, n_sets: int, repetitions: int, *, bootstrap: bool = True) -> pd.DataFrame:
    """Return one row a method: coverage of each score in percent, share of intervals had, mean width, CPU-seconds."""
    rng = np.random.default_rng([n_sets, DESIGNS.index(design)])
    truth = population(design)
    compared = methods(np.random.default_rng(n_sets), n_sets, bootstrap=bootstrap)
    ends = {name: np.full((repetitions, 4, 2), np.nan) for name in compared}
    seconds = dict.fromkeys(compared, 0.0)
    for repetition, data in zip(range(repetitions), _usable(rng, design, n_sets), strict=False):
        for name, method in compared.items():
            start = time.process_time()
            ends[name][repetition] = [(interval.low, interval.high) for interval in method(data)]
            seconds[name] += time.process_time() - start
    rows = []
    for name, both in ends.items():
        had = ~np.isnan(both).any(axis=2)
        held = had & (both[..., 0] <= truth) & (truth <= both[..., 1])
        row: dict[str, object] = {"design": design, "target sets": n_sets, "method": name}
        row |= {score: 100 * held[:, k].sum() / had[:, k].sum() for k, score in enumerate(SCORES)}
        row["width"] = float(np.nanmean(both[:, 0, 1] - both[:, 0, 0]))
        row["no interval"] = 100 * (1 - had[:, 0].mean())
        row["ms"] = 1000 * seconds[name] / repetitions
        rows.append(row)
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """Return a pipe table; coverages and shares to a tenth."""
    shown = table.copy()
    for column in shown.columns[3:]:
        shown[column] = [f"{value:.2f}" if column == "width" else f"{value:.1f}" for value in shown[column]]
    lines = [shown.columns, ["---"] * shown.shape[1], *shown.to_numpy()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main(arguments: Sequence[str]) -> None:
    """Print the whole table."""
    repetitions = int(arguments[0]) if arguments else 2000
    start = time.process_time()
    parts = [coverage(design, n_sets, repetitions) for design in DESIGNS for n_sets in (10, 20, 50, 200)]
    print(markdown(pd.concat(parts)))
    spread = 100 * math.sqrt(0.95 * 0.05 / repetitions)
    print(
        f"\n{repetitions} repetitions, {N_GENES} readout genes, {REPLICATES} bootstrap replicates. Standard error of a"
        f" coverage of 95%: {spread:.1f}. CPU-seconds: {time.process_time() - start:.0f}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
