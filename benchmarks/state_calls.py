"""What is called a change where nothing changed: rank tests of predicted cells beside calibrated effects.

    python benchmarks/state_calls.py [--epochs 15] [--fold unseen_context_genetic]

On the simulated screen, some control cells of every context are given the names of two perturbations that were never
done: whatever is answered up or down of them is a false positive. Both are in train, val and test like any other.
STATE, with either preset, and the mean of the other contexts answer test by every adapter: the share of questions on
those two that are called, and balanced accuracy on all others.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.adapters import Calibrated, Fixed, PriorMatched, RankTest, held_out
from pertbase.baselines import CrossContext, ExpressionBaseline
from pertbase.baselines.state import STATE
from pertbase.errors import UnsupportedError
from pertbase.folds import CONTROL, Answers, Fold, Inputs, Perturbation, Screen, Truth, data, make_fold
from pertbase.scorers import outcome

CELLS = 50
"""Control cells of each context that stand for each perturbation that was never done."""


def with_nothing_done(screen: Screen) -> tuple[Screen, list[str]]:
    """Return the screen with two perturbations more, whose cells are controls, and their names."""
    genes = [gene for gene in screen.genes if not any(gene in item.targets for item in screen.perturbations.values())]
    made = [Perturbation.genetic([gene], "CRISPRi") for gene in genes[:2]]
    names = screen.obs["perturbation"].to_numpy(dtype=object).copy()
    for context in screen.contexts:
        rows = np.flatnonzero((names == CONTROL) & (screen.obs["context"] == context).to_numpy())
        rows = generator(0, "nothing done", context).permutation(rows)
        for number, item in enumerate(made):
            names[rows[number * CELLS : (number + 1) * CELLS]] = item.name
    obs = screen.obs.assign(perturbation=names, is_control=names == CONTROL)
    known = {**screen.perturbations, **{item.name: item for item in made}}
    return replace(screen, obs=obs, perturbations=known), [item.name for item in made]


def answers_of(model: ExpressionBaseline, fold: Fold, inputs: Inputs) -> dict[str, Answers]:
    """Return the answers of every adapter that fits the model."""
    training = fold.make_training(seed=0, cells=True)
    model.fit(training)
    effects, kept = model.predict(inputs), held_out(model, training)
    found = {}
    for adapter in (Fixed(), Calibrated(), PriorMatched(), RankTest()):
        adapter.fit(training, model, held_out=kept)
        try:
            cells = model.predict_cells(adapter.visible(inputs)) if isinstance(adapter, RankTest) else None
            found[type(adapter).__name__] = adapter.answer(inputs, effects, cells=cells)
        except UnsupportedError as error:
            print(f"{type(model).__name__}, {type(adapter).__name__}: {error}", file=sys.stderr)
    return found


def row_of(label: str, adapter: str, answers: Answers, truth: Truth, names: list[str]) -> list[str]:
    """Return false positives of what was never done, and balanced accuracy of what was."""
    nothing = truth.questions["perturbation"].isin(names).to_numpy()
    said = answers.to(truth.questions)["outcome"].isin(["up", "down"]).to_numpy()
    done = truth.questions.loc[~nothing].reset_index(drop=True)
    kept = Answers(answers.table.loc[answers.table["id"].isin(done["id"])].reset_index(drop=True))
    rest = outcome(kept, replace(truth, questions=done))
    return [label, adapter, f"{said[nothing].mean():.4f}", f"{int(nothing.sum()):,}", str(rest.balanced_accuracy)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--fold", default="unseen_context_genetic")
    options = parser.parse_args()
    screen = data("simulated")
    if not isinstance(screen, Screen):
        raise TypeError(type(screen).__name__)
    changed, names = with_nothing_done(screen)
    fold = make_fold(changed, kind=options.fold)
    inputs = fold.inputs("test", cells=True)
    small = {"hidden_size": 64, "layers": 1, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "set_size": 32}
    trained = {"batch_size": 8, "learning_rate": 0.005, "max_epochs": options.epochs, "features": "one_hot"}
    models: dict[str, ExpressionBaseline] = {
        "state": STATE(**small, **trained),  # type: ignore[arg-type]
        "state, upstream": STATE(preset="upstream", **small, **trained),  # type: ignore[arg-type]
        "cross_context": CrossContext(),
    }
    print("| baseline | adapter | called where nothing was done | questions | balanced accuracy elsewhere |")
    print("| --- | --- | --- | --- | --- |")
    truth = fold.truth
    labelled = truth.questions.loc[truth.questions["perturbation"].isin(names), "outcome"]
    shares = pd.Series(labelled).isin(["up", "down"]).mean()
    for label, model in models.items():
        for adapter, answers in answers_of(model, fold, inputs).items():
            print("| " + " | ".join(row_of(label, adapter, answers, truth, names)) + " |", flush=True)
    print(f"\nThe label rule itself calls {shares:.4f} of them.")


if __name__ == "__main__":
    main()
