"""Why the mean of the other contexts is hard to beat in an unseen context: what each baseline is fitted on.

    python benchmarks/state_contexts.py [--epochs 30] [--seeds 0 1]

STATE trains on train's contexts and selects on val's; ``cross_context`` has no need to select and takes the effects of
both. On the simulated screen, with one context for test, one for val and two for train, each is given either: STATE the
val context too, selecting on a tenth of all target sets, held out of the three; ``cross_context`` those of train alone.
``oracle direction`` is the share of test's squared effects that the best multiple of the prediction explains: what is
left when the size of effects is free.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from pertbase._random import generator
from pertbase.adapters import Calibrated, held_out
from pertbase.baselines import CrossContext, ExpressionBaseline
from pertbase.baselines.state import STATE
from pertbase.folds import Answers, Fold, Screen, Training, data, make_fold
from pertbase.scorers import average


def all_contexts(training: Training, seed: int) -> Training:
    """Return the training with every context in train and a tenth of the target sets in val."""
    sets = sorted(set(training.conditions["target_set"]))
    drawn = generator(seed, "a tenth").permutation(len(sets))[: max(1, len(sets) // 10)]
    held = {sets[number] for number in drawn}
    return training.regroup(training.conditions["target_set"].isin(held).to_numpy())


def measured(
    model: ExpressionBaseline, fitted_on: Training, training: Training, fold: Fold
) -> tuple[Answers, float, float]:
    """Return answers to test, the share of effects explained, and that of the best multiple."""
    model.fit(fitted_on)
    inputs = fold.inputs("test", cells=True)
    effects = model.predict(inputs)
    adapter = Calibrated().fit(training, model, held_out=held_out(model, training))
    truth = fold.truth.effects
    if truth is None:
        raise TypeError("a screen has effects")
    values, real = effects.select(truth.conditions).values, truth.values
    best = (values * real).sum() ** 2 / max((values**2).sum(), 1e-12) / (real**2).sum()
    return adapter.answer(inputs, effects), 1 - ((values - real) ** 2).sum() / (real**2).sum(), best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    screen = data("simulated")
    if not isinstance(screen, Screen):
        raise TypeError(type(screen).__name__)
    fold = make_fold(screen, kind="unseen_context_genetic")
    small = {"hidden_size": 64, "layers": 1, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "set_size": 32}
    trained = {"batch_size": 8, "learning_rate": 0.005, "max_epochs": options.epochs, "n_controls": 100}
    print("| baseline | fitted on | balanced accuracy | explained | oracle direction |")
    print("| --- | --- | --- | --- | --- |")
    for label, on in (
        ("cross_context", "train and val"), ("cross_context", "train"), ("state, one-hot", "train"),
        ("state, one-hot", "train and val"), ("state, expression", "train"), ("state, expression", "train and val"),
    ):  # fmt: skip
        found = []
        for seed in options.seeds if label != "cross_context" else options.seeds[:1]:
            whole = fold.make_training(seed=seed, cells=True)
            if label == "cross_context":
                given = whole if on == "train and val" else whole.part("train")
                found.append(measured(CrossContext(), given, whole, fold))
            else:
                features = "one_hot" if label.endswith("one-hot") else "expression"
                given = whole if on == "train" else all_contexts(whole, seed)
                model = STATE(**small, **trained, features=features)  # type: ignore[arg-type]
                found.append(measured(model, given, given, fold))
        score = average([(answers, replace(fold.truth, effects=None)) for answers, *_ in found]).balanced_accuracy
        explained, best = (np.mean([item[place] for item in found]) for place in (1, 2))
        print(f"| {label} | {on} | {score} | {explained:.3f} | {best:.3f} |", flush=True)


if __name__ == "__main__":
    main()
