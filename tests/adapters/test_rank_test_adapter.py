from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase.adapters import RankTest
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import CellTable, Effects, Inputs
from pertbase.folds._ranksum import rank_sum

GENES = pd.Index([f"G{number}" for number in range(300)])
CONDITIONS = [("K", "still"), ("K", "moved"), ("L", "moved")]


@pytest.fixture
def inputs():
    rng = np.random.default_rng(0)
    level = rng.gamma(1.0, 0.8, len(GENES))
    X = np.log1p(rng.poisson(np.expm1(level), size=(400, len(GENES)))).astype(np.float32)
    obs = pd.DataFrame({"context": ["K"] * 200 + ["L"] * 200, "perturbation": "control", "is_control": True})
    conditions = pd.DataFrame(CONDITIONS, columns=["context", "perturbation"])
    questions = conditions.loc[conditions.index.repeat(len(GENES))].reset_index(drop=True)
    questions["gene"] = np.tile(GENES, len(conditions))
    questions["id"] = [str(row) for row in range(len(questions))]
    return Inputs("test", questions, conditions, GENES, {}, "mean_log", controls=CellTable(X, obs, GENES))


def sampled(inputs, visible, shift, n=80):
    """Return predicted cells drawn from visible controls, twenty genes moved in the conditions called moved."""
    rng = np.random.default_rng(1)
    cells, values = {}, np.zeros((len(CONDITIONS), len(GENES)))
    for row, (context, name) in enumerate(CONDITIONS):
        pool = visible.controls.X[(visible.controls.obs["context"] == context).to_numpy()]
        if name == "moved":
            values[row, :20] = shift
        cells[context, name] = np.maximum(pool[rng.integers(len(pool), size=n)] + values[row], 0)
    return cells, Effects(values, inputs.conditions, GENES)


def test_a_change_needs_both_the_test_and_the_gate(inputs):
    adapter = RankTest()
    cells, effects = sampled(inputs, adapter.visible(inputs), 1.5)
    table = adapter.answer(inputs, effects, cells=cells).table
    moved = (inputs.questions["perturbation"] == "moved").to_numpy() & inputs.questions["gene"].isin(GENES[:20])
    assert (table.loc[moved, "outcome"] == "up").mean() > 0.9
    assert (table.loc[~moved, "outcome"] == "no_change").all()
    # The same cells with effects below the gate, and the same effects with cells that do not move.
    small = Effects(effects.values * 0.1, inputs.conditions, GENES)
    assert set(adapter.answer(inputs, small, cells=cells).table["outcome"]) == {"no_change"}
    still, _ = sampled(inputs, adapter.visible(inputs), 0.0)
    assert (adapter.answer(inputs, effects, cells=still).table["outcome"] == "no_change").all()


def test_scores_agree_with_the_outcome(inputs):
    adapter = RankTest()
    cells, effects = sampled(inputs, adapter.visible(inputs), 0.6)
    table = adapter.answer(inputs, effects, cells=cells).table
    called = table["outcome"] == "up"
    assert 0 < called.sum() < 60
    assert ((table["score_up"] > table["score_no_change"]) == called).all()


def test_cells_that_do_not_vary_invent_no_change(inputs):
    # Every predicted cell at the control mean: the test alone calls most genes.
    adapter = RankTest()
    visible = adapter.visible(inputs)
    cells = {}
    for context, name in CONDITIONS:
        pool = visible.controls.X[(visible.controls.obs["context"] == context).to_numpy()]
        cells[context, name] = np.tile(pool.mean(axis=0), (80, 1))
    effects = Effects(np.zeros((3, len(GENES))), inputs.conditions, GENES)
    assert set(adapter.answer(inputs, effects, cells=cells).table["outcome"]) == {"no_change"}
    reference = inputs.controls.X[:50]
    stacked = np.concatenate([reference, cells["K", "still"][:50]]).astype(np.float32)
    alone = rank_sum(stacked, reference=np.arange(50), members=[np.arange(50, 100)]).p_value
    assert (alone < 0.05).mean() > 0.25


def test_the_reference_is_what_the_model_did_not_see(inputs):
    adapter = RankTest()
    visible = adapter.visible(inputs)
    seen = set(visible.controls.obs.index)
    assert len(seen) == 200
    reference = inputs.controls.obs.index[adapter._reference(inputs.controls)]
    assert seen.isdisjoint(reference)
    assert seen | set(reference) == set(inputs.controls.obs.index)


def test_an_answer_depends_on_its_own_condition_alone(inputs):
    adapter = RankTest()
    cells, effects = sampled(inputs, adapter.visible(inputs), 1.0)
    together = adapter.answer(inputs, effects, cells=cells).table.set_index("id")
    one = replace(inputs, questions=inputs.questions.loc[inputs.questions["perturbation"] == "moved"].iloc[::3])
    apart = adapter.answer(one, effects, cells={key: cells[key] for key in reversed(CONDITIONS)}).table.set_index("id")
    pd.testing.assert_frame_equal(apart, together.loc[apart.index])


def test_more_predicted_cells_give_no_more_power(inputs):
    adapter = RankTest(n_cells=20)
    visible = adapter.visible(inputs)
    called = []
    for n in (40, 2000):
        cells, effects = sampled(inputs, visible, 0.5, n=n)
        called.append((adapter.answer(inputs, effects, cells=cells).table["outcome"] == "up").sum())
    assert abs(called[0] - called[1]) <= 8


def test_a_condition_without_cells_is_unsupported(inputs):
    adapter = RankTest()
    cells, effects = sampled(inputs, adapter.visible(inputs), 1.0)
    del cells["K", "moved"]
    table = adapter.answer(inputs, effects, cells=cells).table
    missing = ((inputs.questions["context"] == "K") & (inputs.questions["perturbation"] == "moved")).to_numpy()
    assert ((table["status"] == "unsupported") == missing).all()


def test_what_it_cannot_test_it_refuses(inputs):
    adapter = RankTest()
    cells, effects = sampled(inputs, adapter.visible(inputs), 1.0)
    with pytest.raises(UnsupportedError, match="predicts none"):
        adapter.answer(inputs, effects)
    with pytest.raises(UnsupportedError, match="the inputs hold none"):
        adapter.answer(replace(inputs, controls=None), effects, cells=cells)
    with pytest.raises(UnsupportedError, match="compares 150 cells"):
        RankTest(n_cells=150).answer(inputs, effects, cells=cells)
    with pytest.raises(InputError, match="fewer are predicted"):
        RankTest(n_cells=90).answer(inputs, effects, cells=cells)
    with pytest.raises(InputError, match="another number of genes"):
        adapter.answer(inputs, effects, cells={key: value[:, 1:] for key, value in cells.items()})


def test_answers_do_not_depend_on_how_many_conditions_are_in_memory(inputs, monkeypatch):
    adapter = RankTest()
    cells, effects = sampled(inputs, adapter.visible(inputs), 0.6)
    together = adapter.answer(inputs, effects, cells=cells).table
    monkeypatch.setattr("pertbase.adapters._rank_test._AT_ONCE", 1)
    pd.testing.assert_frame_equal(adapter.answer(inputs, effects, cells=cells).table, together)
