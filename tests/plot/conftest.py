"""One fold with paths, and what a few baselines say of it, for all pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd
import pytest

from pertbase.adapters import Calibrated
from pertbase.baselines import BilinearRidge, GenePrior, NoChange, PerturbedMean
from pertbase.folds import Answers, Effects, Fold, FoldSpec, PathSpec
from pertbase.folds._path_layer import lay_paths
from pertbase.scorers import ReasonScores, ShortcutLadder, Shortcuts, reasoning

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No figure outlives its test, and none needs a screen."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="session")
def fold(maker) -> Fold:  # type: ignore[no-untyped-def]
    made = maker.make(FoldSpec(kind="unseen_perturbation_genetic"))
    basal = made.effects.basal
    spec = PathSpec()
    graph = maker.graph(spec)
    layer = lay_paths(made.questions, made.perturbations, spec, graph, fold_hash=made.hash, basal=basal)
    return replace(made, paths=layer)


@dataclass(frozen=True, eq=False)
class Said:
    """What baselines say of the fold's test questions."""

    effects: dict[str, Effects]
    adapters: dict[str, Calibrated]
    answers: dict[str, Answers]


@pytest.fixture(scope="session")
def said(fold: Fold) -> Said:
    training, inputs = fold.training, fold.inputs("test")
    effects, adapters, answers = {}, {}, {}
    for name, model in {"bilinear_ridge": BilinearRidge(), "perturbed_mean": PerturbedMean()}.items():
        effects[name] = model.fit(training).predict(inputs)
        adapters[name] = Calibrated().fit(training, model)
        answers[name] = adapters[name].answer(inputs, effects[name])
    for name, direct in {"gene_prior": GenePrior(balanced=True), "no_change": NoChange()}.items():
        direct.fit(training)
        adapters[name] = Calibrated().fit(training, direct)
        answers[name] = adapters[name].answer(inputs, direct.answer(inputs))
    return Said(effects, adapters, answers)


@pytest.fixture(scope="session")
def asked(fold: Fold) -> pd.DataFrame:
    """The test questions that have an outcome."""
    questions = fold.truth.questions
    return questions.loc[questions["outcome"].notna()]


@pytest.fixture(scope="session")
def reasoned(fold: Fold, said: Said) -> ReasonScores:
    """Scores of answers whose reason is the first path they were shown."""
    asked = fold.inputs("test").questions
    triplets = [[list(edge) for edge in paths[0]] if len(paths) else [] for paths in asked["candidate_paths"]]
    reasons = pd.DataFrame({"id": asked["id"], "triplets": triplets, "text": ""})
    return reasoning(Answers(said.answers["bilinear_ridge"].table, reasons), fold.truth, graph=fold.graph)


@pytest.fixture(scope="session")
def gains(fold: Fold, said: Said) -> dict[str, Shortcuts]:
    """What two baselines add to the gene prior."""
    ladder = ShortcutLadder({"gene_prior": said.answers["gene_prior"]}, fold.truth, seed=0)
    return {name: ladder.add(said.answers[name]) for name in ("bilinear_ridge", "perturbed_mean")}
