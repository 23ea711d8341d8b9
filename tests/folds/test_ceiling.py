"""The ceiling tells what an independent replicate of the screen would score."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from pertbase.errors import InputError
from pertbase.folds._ceiling import Ceiling, split_half_ceiling
from pertbase.folds._labels import Ranksum, condition_tests

Rows = dict[tuple[str, str], np.ndarray]


class Plan:
    """True rates of a small screen, of which any number of replicates can be drawn."""

    def __init__(self, rng: np.random.Generator, *, n_conditions: int, sd: float, n_cells: int = 100) -> None:
        self.base = rng.lognormal(0.0, 1.0, 120)
        true = np.where(rng.random((n_conditions, 120)) < 0.2, rng.normal(0, sd, (n_conditions, 120)), 0.0)
        self.rates = [self.base, *(self.base * np.exp(true))]
        self.sizes = [300, *[n_cells] * n_conditions]

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray], Rows]:
        counts = [rng.negative_binomial(2, 2 / (2 + r), (n, 120)) for r, n in zip(self.rates, self.sizes, strict=True)]
        edges = np.cumsum([0, *self.sizes])
        rows = [np.arange(left, right) for left, right in itertools.pairwise(edges)]
        X = np.log1p(np.concatenate(counts)).astype(np.float32)
        return X, {"a": rows[0]}, {("a", f"p{number:02}"): cells for number, cells in enumerate(rows[1:])}


def replicate_score(plan: Plan, rng: np.random.Generator, rule: Ranksum) -> tuple[Ceiling, float, float]:
    """The ceiling of one screen beside the score of another screen's effects against the first's outcomes."""
    (X, controls, rows), (X2, controls2, rows2) = plan.draw(rng), plan.draw(rng)
    codes = rule.codes(condition_tests(X, controls=controls, conditions=rows).evidence())
    effects = condition_tests(X2, controls=controls2, conditions=rows2).effect()
    answers = np.select([effects > rule.tau, effects < -rule.tau], [0, 1], 2)
    recalls = [float((answers == codes)[codes == outcome].mean()) for outcome in range(3)]
    accuracy = float((answers == codes)[codes >= 0].mean())
    return split_half_ceiling(X, controls, rows, rule, rng=rng), float(np.mean(recalls)), accuracy


@pytest.mark.parametrize("sd", [0.4, 1.0])
def test_the_corrected_ceiling_is_what_an_independent_replicate_scores(sd: float) -> None:
    rng = np.random.default_rng(0)
    ceiling, balanced, accuracy = replicate_score(Plan(rng, n_conditions=40, sd=sd), rng, Ranksum())
    assert ceiling.corrected == pytest.approx(balanced, abs=0.03)
    assert ceiling.corrected_accuracy == pytest.approx(accuracy, abs=0.02)
    assert abs(ceiling.corrected_accuracy - accuracy) < abs(ceiling.half_accuracy - accuracy)
    assert (ceiling.tuned, ceiling.thresholds, ceiling.undefined) == (False, (0.25, 0.25), 0)


def test_without_effects_there_is_no_balanced_accuracy_and_every_halving_is_counted() -> None:
    rng = np.random.default_rng(1)
    X, controls, rows = Plan(rng, n_conditions=4, sd=0.0).draw(rng)
    ceiling = split_half_ceiling(X, controls, rows, Ranksum(), rng=rng, repeats=3)
    assert np.isnan(ceiling.half)
    assert np.isnan(ceiling.corrected)
    assert (ceiling.undefined, ceiling.n_up, ceiling.n_down) == (6, 0, 0)
    assert ceiling.n_no_change > 300
    assert 0.5 < ceiling.half_accuracy <= 1


def test_thresholds_are_tuned_on_other_conditions_and_help() -> None:
    rng = np.random.default_rng(2)
    X, controls, rows = Plan(rng, n_conditions=30, sd=0.6).draw(rng)
    keys = list(rows)
    test, tune = {key: rows[key] for key in keys[:15]}, {key: rows[key] for key in keys[15:]}
    own = split_half_ceiling(X, controls, test, Ranksum(), rng=np.random.default_rng(3))
    tuned = split_half_ceiling(X, controls, test, Ranksum(), rng=np.random.default_rng(3), tune=tune)
    assert tuned.tuned
    assert tuned.thresholds != (0.25, 0.25)
    assert tuned.corrected > own.corrected
    assert (tuned.n_conditions, tuned.n_up, tuned.n_down) == (own.n_conditions, own.n_up, own.n_down)
    with pytest.raises(InputError, match="tuned on conditions that are scored"):
        split_half_ceiling(X, controls, test, Ranksum(), rng=rng, tune=rows)


def test_equal_generators_give_equal_ceilings() -> None:
    rng = np.random.default_rng(4)
    X, controls, rows = Plan(rng, n_conditions=10, sd=1.0).draw(rng)
    first, second = (split_half_ceiling(X, controls, rows, Ranksum(), rng=np.random.default_rng(5)) for _ in range(2))
    assert dataclasses.asdict(first) == dataclasses.asdict(second)


def test_halves_hold_equal_shares_of_each_batch() -> None:
    """A batch that shifts every gene spoils halves drawn without regard to it, and cancels in even ones."""
    rng = np.random.default_rng(6)
    X, controls, rows = Plan(rng, n_conditions=12, sd=1.0, n_cells=40).draw(rng)
    batch = np.arange(len(X)) % 2
    X = X + 3 * batch[:, None].astype(np.float32)
    blind = split_half_ceiling(X, controls, rows, Ranksum(), rng=np.random.default_rng(7))
    aware = split_half_ceiling(X, controls, rows, Ranksum(), rng=np.random.default_rng(7), batches=batch.astype(str))
    assert aware.half_accuracy > blind.half_accuracy + 0.02


def test_only_asked_questions_and_large_enough_conditions_are_scored() -> None:
    rng = np.random.default_rng(8)
    X, controls, rows = Plan(rng, n_conditions=12, sd=1.0).draw(rng)
    rows["a", "small"] = rows["a", "p00"][:20]
    del rows["a", "p00"]
    codes = Ranksum().codes(condition_tests(X, controls=controls, conditions=rows, min_cells=25).evidence())
    asked = {key: np.arange(120) < 60 for key in rows}
    ceiling = split_half_ceiling(X, controls, rows, Ranksum(), rng=rng, asked=asked)
    assert ceiling.n_conditions == len(codes) == 11
    counts = (ceiling.n_up, ceiling.n_down, ceiling.n_no_change)
    assert counts == tuple(int((codes[:, :60] == outcome).sum()) for outcome in range(3))


def test_no_condition_left_gives_a_ceiling_without_numbers() -> None:
    rng = np.random.default_rng(9)
    X, controls, rows = Plan(rng, n_conditions=2, sd=1.0, n_cells=10).draw(rng)
    ceiling = split_half_ceiling(X, controls, rows, Ranksum(), rng=rng)
    assert np.isnan([ceiling.half, ceiling.corrected, ceiling.corrected_accuracy]).all()
    assert ceiling.n_conditions == 0
