"""Adapters on real predictions: GEARS on Norman's screen, against measured fold changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase._metrics import balanced_accuracy, confusion
from pertbase.adapters import Calibrated, Fixed, HeldOut, PriorMatched
from pertbase.folds import Effects, Inputs, outcome_codes

FILE = Path(__file__).parents[3] / "shared" / "data" / "gears_norman" / "gears_norman.csv"


@pytest.fixture(scope="module")
def gears():
    if not FILE.is_file():
        pytest.skip("the GEARS predictions are not on this machine")
    table = pd.read_csv(FILE)
    measured = table["raw_log2FC"] * np.log(2)
    significant = table["raw_q"] < 0.05
    outcome = np.select(
        [significant & (measured > 0.25), significant & (measured < -0.25)], ["up", "down"], "no_change"
    )
    return table.assign(
        context="K562",
        outcome=outcome.astype(object),
        predicted=table["fm_log2FC"] * np.log(2),
        id=[str(row) for row in range(len(table))],
    )


def halves(gears):
    names = np.random.default_rng(0).permutation(gears["perturbation"].unique())
    val = gears["perturbation"].isin(names[: len(names) // 2])
    return gears.loc[val].reset_index(drop=True), gears.loc[~val].reset_index(drop=True)


def effects(questions):
    frame = questions.pivot_table(index="perturbation", columns="gene", values="predicted").fillna(0.0)
    conditions = pd.DataFrame({"context": "K562", "perturbation": frame.index})
    return Effects(frame.to_numpy(), conditions, frame.columns)


def score(adapter, questions):
    inputs = Inputs("test", questions.drop(columns="outcome"), questions, pd.Index([]), {}, "mean_log")
    answered = adapter.answer(inputs, effects(questions)).table["outcome"]
    return float(balanced_accuracy(confusion(outcome_codes(questions["outcome"]), outcome_codes(answered))))


def test_calibration_on_half_of_the_conditions_serves_the_other_half(gears):
    val, test = halves(gears)
    held = HeldOut("val", "", val, effects(val))
    calibrated = Calibrated().fit(None, held_out=held)
    matched = PriorMatched().fit(None, held_out=held)
    # On the half it was fitted to, no other adapter can be better.
    assert score(calibrated, val) >= max(score(Fixed(), val), score(matched, val))
    assert score(calibrated, test) > score(Fixed(), test)
    assert 0 <= min(calibrated.thresholds) < max(calibrated.thresholds) < 0.25


def test_matching_the_prior_calls_as_many_as_are_true(gears):
    val, _ = halves(gears)
    matched = PriorMatched().fit(None, held_out=HeldOut("val", "", val, effects(val)))
    inputs = Inputs("val", val.drop(columns="outcome"), val, pd.Index([]), {}, "mean_log")
    answered = matched.answer(inputs, effects(val)).table["outcome"].value_counts()
    true = val["outcome"].value_counts()
    for outcome in ("up", "down"):
        assert abs(answered[outcome] - true[outcome]) <= 1
