"""Runs on the small screen, and plug-ins that break what plug-ins promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Pertbase = Callable[..., tuple[int, str, str]]


PLUGINS = '''
import numpy as np, pandas as pd, pertbase as pb
from pertbase.folds import Answers


class Plain(pb.ExpressionBaseline):
    def fit(self, training):
        self.genes = training.genes

    def effects(self, inputs, *, conditions=None, genes=None, values=None, statistic=None):
        conditions = inputs.conditions if conditions is None else conditions
        genes = self.genes if genes is None else genes
        if values is None:
            values = np.tile(np.arange(len(genes)) / len(genes) - 0.5, (len(conditions), 1))
        return pb.Effects(values, conditions, genes, statistic or inputs.statistic)

    def predict(self, inputs):
        return self.effects(inputs)


class Reversed(Plain):
    """The same effects, genes and conditions in another order, and conditions that nobody asked about."""

    def predict(self, inputs):
        said = super().predict(inputs)
        more = pd.concat([inputs.conditions[::-1], inputs.conditions.iloc[:1].assign(context="elsewhere")])
        values = np.concatenate([said.values[::-1, ::-1], said.values[:1]])
        return self.effects(inputs, conditions=more, genes=self.genes[::-1], values=values)


class Missing(Plain):
    def predict(self, inputs):
        return self.effects(inputs, conditions=inputs.conditions.iloc[:0])


class NanEffects(Plain):
    def predict(self, inputs):
        return self.effects(inputs, values=np.full((len(inputs.conditions), len(self.genes)), np.nan))


class Twice(Plain):
    def predict(self, inputs):
        return self.effects(inputs, conditions=pd.concat([inputs.conditions, inputs.conditions]))


class OtherStatistic(Plain):
    def predict(self, inputs):
        return self.effects(inputs, statistic={"mean_log": "log_mean", "log_mean": "mean_log"}[inputs.statistic])


class OtherShape(Plain):
    def predict(self, inputs):
        return self.effects(inputs, values=np.zeros((1, 1)))


class Words(Plain):
    def predict(self, inputs):
        return self.effects(inputs, values=np.full((len(inputs.conditions), len(self.genes)), "x", dtype=object))


class Exits(Plain):
    def fit(self, training):
        raise SystemExit(3)


class Recursive(Plain):
    def fit(self, training):
        self.fit(training)


class Refuses(Plain):
    def refuses(self, training):
        raise ZeroDivisionError("while refusing")


class ReadsAFile(Plain):
    def fit(self, training):
        open("/nowhere/weights.bin")


class OtherIds(pb.AnswerBaseline):
    def fit(self, training):
        pass

    def answer(self, inputs):
        return Answers(pd.DataFrame({"id": ["x"], "outcome": ["up"]}))


class TrainingIds(OtherIds):
    def fit(self, training):
        self.ids = list(training.questions["id"])

    def answer(self, inputs):
        return Answers(pd.DataFrame({"id": [*inputs.questions["id"], *self.ids], "outcome": "up"}))


class Writes(Plain):
    """Writes into everything that it is given."""

    def fit(self, training):
        self.genes = pd.Index(list(training.genes))
        training.questions["outcome"] = "up"
        training.questions.drop(training.questions.index[5:], inplace=True)
        training.conditions.drop(training.conditions.index[1:], inplace=True)
        training.perturbations.clear()
        training.basal.iloc[:] = 0
        training.cells.obs["split"] = "train"
        for perturbation in training.perturbations.values():
            perturbation.signs.clear()
        self.spoil(training)

    def predict(self, inputs):
        said = self.effects(inputs)
        inputs.questions["gene"] = "GONE"
        inputs.questions.drop(inputs.questions.index[3:], inplace=True)
        inputs.conditions.drop(inputs.conditions.index, inplace=True)
        inputs.basal.iloc[:] = 0
        self.spoil(inputs)
        return said

    def spoil(self, given):
        for index in (given.genes, *(cells.genes for cells in (getattr(given, "cells", None),
                      getattr(given, "controls", None)) if cells is not None)):
            array = index.to_numpy()
            array.flags.writeable = True
            array[:] = "GONE"
'''


def run_small(
    pertbase: Pertbase, small_screen: Path, runs: Path, baselines: str, *more: str, conf: Path | None = None
) -> tuple[int, str]:
    dirs = [] if conf is None else ["--config-dir", str(conf)]
    code, out, err = pertbase(
        "run", "-m", *dirs, "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        f"baseline={baselines}", f"runs={runs}", *more,
    )  # fmt: skip
    assert "Traceback" not in out + err
    return code, out + err
