"""What more training conditions are worth to a baseline, beside others on the same ones.

    python benchmarks/train_size.py                       # GEARS on unseen perturbations of the simulated screen
    python benchmarks/train_size.py --baselines state cross_context --fold unseen_context_genetic --by context
    python benchmarks/train_size.py --set gears.gene_sets=mine.gmt data.path=FILE --data h5ad

Of train's target sets (or contexts), the first few of a seeded order are kept: a smaller training lies in a larger one,
val and test are the same in all. Baselines are configured and answer as in a run, with the adapter ``calibrated``;
those that are fitted on val too have all of it. Every share is drawn ``--draws`` times, each with a seed of its own for
the models too. Figures are plain means over draws, with two-way intervals in which the draws are one: they share their
test questions. Differences are of the first baseline less each other one, on the same questions. ``explained`` is the
share of test's squared effects that is explained, noise included: 0 for predicting no effect.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pertbase._random import generator
from pertbase.adapters import Calibrated, held_out
from pertbase.baselines import refusal
from pertbase.folds import Answers, Effects, Fold, FoldSpec, Training
from pertbase.runs._compose import compose
from pertbase.runs._execute import instantiate
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf
from pertbase.scorers import average, compare_many

DEFAULT_BASELINES = ["gears", "perturbed_mean", "knn_go", "gene_prior_balanced"]


@dataclass(frozen=True)
class Tried:
    """What a baseline made of one training: its answers, its share of explained effects, and the time it took."""

    answers: Answers
    explained: float
    seconds: float


def configured(options: argparse.Namespace, baseline: str) -> dict[str, Any]:
    """Return the configuration of a run, with what was set for its baseline."""
    overrides = [f"data={options.data}", f"fold={options.fold}", f"baseline={baseline}"]
    for text in options.set:
        key, _, value = text.partition("=")
        owner, _, rest = key.partition(".")
        if owner in ("data", "fold", "trainer"):
            overrides.append(text)
        elif owner == baseline:
            overrides.append(f"baseline.{rest}={value}")
    return compose(overrides, Names())


def part_of(training: Training, *, share: float, by: str, draw: int) -> Training:
    """Return a training with a share of train's target sets or contexts, and all of val."""
    conditions = training.conditions
    in_train = (conditions["split"] == "train").to_numpy()
    known = sorted(set(conditions.loc[in_train, by].astype(str)))
    order = generator(draw, "train size", by).permutation(len(known))
    kept = {known[number] for number in order[: max(1, round(share * len(known)))]}
    keep = ~in_train | conditions[by].astype(str).isin(kept).to_numpy()
    part = training._restrict(keep)
    # Again with the same val: controls of a context that only val is left in are no longer train's.
    return part.regroup((part.conditions["split"] == "val").to_numpy())


def tried(fold: Fold, training: Training, config: Mapping[str, Any]) -> Tried | str:
    """Return what a baseline makes of a training, or why it cannot."""
    baseline = instantiate(config["baseline"], "baseline")
    reason = refusal(baseline, training)
    if reason:
        return reason
    started = time.process_time()
    baseline.fit(training.own())
    inputs = fold.inputs("test", cells=baseline.needs_cells and fold.screen is not None)
    given = baseline.answer(inputs) if baseline.answers_directly(training) else baseline.predict(inputs)
    adapter = Calibrated().fit(training, baseline, held_out=held_out(baseline, training))
    answers = adapter.answer(inputs, given)
    return Tried(answers, explained(given, fold), time.process_time() - started)


def explained(given: Effects | Answers, fold: Fold) -> float:
    """Return one less the squared error of predicted effects over that of predicting none; NaN for answers."""
    measured = fold.truth.effects
    if isinstance(given, Answers) or measured is None:
        return float("nan")
    predicted = given.select(measured.conditions).values
    return float(1 - ((predicted - measured.values) ** 2).sum() / (measured.values**2).sum())


def rows_of(fold: Fold, options: argparse.Namespace, configs: Mapping[str, dict[str, Any]]) -> list[list[str]]:
    """Return one row a share."""
    rows = []
    for share in options.shares:
        found: dict[str, list[Tried]] = {name: [] for name in configs}
        counts = []
        for draw in range(options.draws):
            whole = fold.make_training(seed=draw, cells=True)
            training = part_of(whole, share=share, by=options.by, draw=draw)
            counts.append(int((training.conditions["split"] == "train").sum()))
            for name, config in configs.items():
                made = tried(fold, training, config)
                if isinstance(made, str):
                    print(f"{name}, share {share}, draw {draw}: {made}", file=sys.stderr, flush=True)
                else:
                    found[name].append(made)
        rows.append(_row(fold, share, counts, found, options))
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    return rows


def _row(
    fold: Fold, share: float, counts: list[int], found: Mapping[str, list[Tried]], options: argparse.Namespace
) -> list[str]:
    first, *others = options.baselines
    cells = [f"{share:g}", f"{np.mean(counts):.0f}"]
    for name in options.baselines:
        whole = len(found[name]) == options.draws
        cells.append(
            str(average([(one.answers, fold.truth) for one in found[name]]).balanced_accuracy) if whole else "–"
        )
    for name in others:
        if len(found[first]) == len(found[name]) == options.draws:
            pairs = zip(found[first], found[name], strict=True)
            cells.append(str(compare_many([(a.answers, b.answers, fold.truth) for a, b in pairs]).balanced_accuracy))
        else:
            cells.append("–")
    for name in options.baselines:
        value = np.mean([one.explained for one in found[name]]) if found[name] else np.nan
        cells.append("–" if np.isnan(value) else f"{value:.3f}")
    cells.append(f"{np.mean([one.seconds for one in found[first]]) if found[first] else np.nan:.0f}")
    return cells


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="simulated")
    parser.add_argument("--fold", default="unseen_perturbation_genetic")
    parser.add_argument(
        "--baselines", nargs="+", default=DEFAULT_BASELINES, help="the first is compared with the others"
    )
    parser.add_argument("--shares", type=float, nargs="+", default=[0.125, 0.25, 0.5, 1.0])
    parser.add_argument("--by", choices=["target_set", "context"], default="target_set")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME.KEY=VALUE", help="an option of a baseline, or data"
    )
    options = parser.parse_args()
    configs = {name: configured(options, name) for name in options.baselines}
    config = configs[options.baselines[0]]
    fold = DataShelf().maker(config["data"]).make(FoldSpec.from_dict(config["fold"]))
    first, *others = options.baselines
    header = ["share", "train conditions", *options.baselines, *(f"{first} less {name}" for name in others)]
    header += [*(f"{name}, explained" for name in options.baselines), f"{first}, CPU-s"]
    print(table(header, rows_of(fold, options, configs)))


if __name__ == "__main__":
    main()
