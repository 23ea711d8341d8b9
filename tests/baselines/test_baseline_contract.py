from __future__ import annotations

import importlib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import yaml

import pertbase.baselines as baselines
from pertbase.baselines import AnswerBaseline, ExpressionBaseline, refusal
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import Effects

CONFIGS = sorted(
    path.name.removesuffix(".yaml")
    for path in files("pertbase.conf").joinpath("baseline").iterdir()
    if path.name.endswith(".yaml") and "pertbase.baselines.simple." in path.read_text()
)


def instantiate(name):
    config = yaml.safe_load(files("pertbase.conf").joinpath("baseline", f"{name}.yaml").read_text())
    module, _, attribute = config.pop("_target_").rpartition(".")
    return getattr(importlib.import_module(module), attribute)(**config), config


def say(baseline, fold, inputs=None):
    """Return what a fitted baseline says, as one table by question or condition."""
    inputs = fold.inputs if inputs is None else inputs
    if baseline.answers_directly(fold.training):
        return baseline.answer(inputs).table.set_index("id")
    effects = baseline.predict(inputs)
    return effects.frame().assign(status=effects.status)


class Nothing(ExpressionBaseline):
    """The plug-in of the README: fit returns None."""

    def fit(self, training):
        self.genes = training.genes

    def predict(self, inputs):
        return Effects(
            np.zeros((len(inputs.conditions), len(self.genes))), inputs.conditions, self.genes, inputs.statistic
        )


def test_a_plugin_writes_fit_and_predict_only(mixed_fold):
    fold = mixed_fold()
    model = Nothing()
    assert refusal(model, fold.training) is None
    model.fit(fold.training)
    assert model.predict(fold.inputs).values.shape == (len(fold.inputs.conditions), len(fold.training.genes))
    assert not model.answers_directly(fold.training)
    assert model.parameters() == {}
    with pytest.raises(UnsupportedError, match="Nothing predicts effects, not cells"):
        model.predict_cells(fold.inputs)


def test_every_simple_baseline_has_a_config():
    configured = {type(instantiate(name)[0]).__name__ for name in CONFIGS}
    simple = {
        name
        for name in baselines.__all__
        if isinstance(getattr(baselines, name), type) and ".simple." in getattr(baselines, name).__module__
    }
    assert configured == simple


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_names_every_parameter(name):
    baseline, config = instantiate(name)
    assert baseline.parameters() == config


@pytest.mark.parametrize("name", CONFIGS)
def test_every_condition_or_question_is_spoken_to_once(name, mixed_fold):
    fold = mixed_fold()
    baseline, _ = instantiate(name)
    # Being asked says something on a table of outcomes alone.
    asked = replace(fold.training, effects=None, basal=None) if name == "asked_elsewhere" else fold.training
    assert refusal(baseline, asked) is None
    said = say(baseline.fit(fold.training), fold)
    if baseline.answers_directly(fold.training):
        assert list(said.index) == list(fold.inputs.questions["id"])
        assert said[["score_up", "score_down", "score_no_change"]].notna().all(axis=None)
    else:
        assert list(said.index) == list(zip(*fold.inputs.conditions[["context", "perturbation"]].T.values, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_second_fit_forgets_the_first(name, mixed_fold):
    first, second = mixed_fold(1), mixed_fold(2)
    fresh, refitted = instantiate(name)[0], instantiate(name)[0]
    refitted.fit(first.training)
    refitted.fit(second.training)
    pd.testing.assert_frame_equal(say(fresh.fit(second.training), second), say(refitted, second))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_said_does_not_depend_on_what_else_is_asked(name, mixed_fold):
    fold = mixed_fold()
    baseline = instantiate(name)[0].fit(fold.training)
    one = fold.inputs.conditions["perturbation"].iloc[9]
    alone = replace(
        fold.inputs,
        questions=fold.inputs.questions.loc[fold.inputs.questions["perturbation"] == one],
        conditions=fold.inputs.conditions.loc[fold.inputs.conditions["perturbation"] == one],
    )
    together, apart = say(baseline, fold), say(baseline, fold, alone)
    assert len(apart) > 0
    pd.testing.assert_frame_equal(together.loc[apart.index], apart)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_baseline_that_is_not_fitted_says_so(name, mixed_fold):
    fold = mixed_fold()
    baseline = instantiate(name)[0]
    if name == "no_change":
        assert (baseline.answer(fold.inputs).table["outcome"] == "no_change").all()
        return
    with pytest.raises(InputError, match="not fitted"):
        say(baseline, fold)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_outcome_table_is_answered_or_refused_with_a_reason(name, mixed_fold):
    fold = mixed_fold(expression=False)
    baseline = instantiate(name)[0]
    reason = refusal(baseline, fold.training)
    if isinstance(baseline, AnswerBaseline) and not baseline.needs_expression:
        assert reason is None
        assert baseline.answers_directly(fold.training)
        assert len(baseline.fit(fold.training).answer(fold.inputs)) == len(fold.inputs.questions)
    else:
        assert "needs expression, and small is a table of outcomes" in reason
        with pytest.raises(UnsupportedError):
            baseline.fit(fold.training)


@pytest.mark.parametrize("name", CONFIGS)
def test_categorical_columns_make_no_difference(name, mixed_fold):
    # Questions read back from Parquet hold dictionary columns.
    fold = mixed_fold()
    columns = ["context", "perturbation", "target_set", "gene"]
    other = replace(
        fold,
        training=replace(fold.training, questions=fold.training.questions.astype(dict.fromkeys(columns, "category"))),
        inputs=replace(fold.inputs, questions=fold.inputs.questions.astype(dict.fromkeys(columns, "category"))),
    )
    plain = say(instantiate(name)[0].fit(fold.training), fold)
    pd.testing.assert_frame_equal(plain, say(instantiate(name)[0].fit(other.training), other))


def test_deep_baselines_stand_beside_the_simple_ones_and_are_imported_when_asked_for():
    import pertbase as pb

    assert [pb.baselines.GEARS.__name__, pb.baselines.ScGPT.__name__, pb.baselines.STATE.__name__] == [
        "GEARS",
        "ScGPT",
        "STATE",
    ]
    with pytest.raises(AttributeError, match="Gears"):
        pb.baselines.Gears  # noqa: B018
