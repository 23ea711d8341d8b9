"""The parts of the simulation, on networks small enough to work out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.simulate import SimulationConfig, simulate_screen
from pertbase.simulate._cells import Noise, expected_log
from pertbase.simulate._network import EFFECTOR, REGULATOR, SIGNALLING, Basal, Genes
from pertbase.simulate._response import Inputs, propagate

SMALL = SimulationConfig(
    contexts=("A", "B"),
    n_batches=(2, 1),
    n_modules=3,
    n_signalling=3,
    n_regulators=3,
    n_effectors=5,
    n_housekeeping=4,
    n_crispri=6,
    n_crispra=4,
    n_both=2,
    n_inert=1,
    n_compounds=5,
    n_two_doses=2,
    n_combinations=(1, 2, 2),
    n_controls=40,
    cells_range=(5, 9),
)

CHAIN = Genes(
    symbols=pd.Index(["SIGNAL", "MIDDLE", "LAST"], name="gene"),
    tier=np.array([SIGNALLING, REGULATOR, EFFECTOR]),
    module=np.zeros(3, dtype=np.int64),
    rank=np.arange(3),
)
EDGES = pd.DataFrame(
    {
        "source": ["SIGNAL", "MIDDLE"],
        "target": ["MIDDLE", "LAST"],
        "sign": [1, -1],
        "weight": [1.5, 0.9],
        "gate": ["", "SIGNAL"],
    }
)


def _respond(
    *, transcript: float = 0.0, activity: float = 0.0, expressed: tuple[int, ...] = (1, 1, 1), **changes: Any
) -> np.ndarray:
    """Perturb SIGNAL and return the changes of the three genes."""
    config = SimulationConfig(**changes)
    on = np.array([expressed], dtype=bool)
    return propagate(
        Inputs(
            transcript=np.array([[transcript, 0.0, 0.0]]),
            held=np.array([[transcript != 0, False, False]]),
            activity=np.array([[activity, 0.0, 0.0]]),
        ),
        network=EDGES,
        genes=CHAIN,
        basal=Basal(log_abundance=np.where(on, 0.0, -9.0), expressed=on),
        stress=np.zeros(3),
        context=0,
        config=config,
    )[0]


def test_equal_seeds_give_equal_simulations() -> None:
    first, second = (simulate_screen(seed=3, config=SMALL) for _ in range(2))
    assert first.screen.hash == second.screen.hash
    assert first.graph.equals(second.graph)
    assert first.gene_sets == second.gene_sets
    np.testing.assert_array_equal(first.truth.effects.values, second.truth.effects.values)


def test_seeds_differ() -> None:
    first, second = (simulate_screen(seed=seed, config=SMALL) for seed in (3, 4))
    assert first.screen.hash != second.screen.hash
    assert not first.truth.network.equals(second.truth.network)
    assert not first.graph.equals(second.graph)


def test_noise_of_cells_leaves_the_biology_alone() -> None:
    plain, deep = (simulate_screen(config=dataclasses.replace(SMALL, depth=depth)) for depth in (300.0, 3000.0))
    assert plain.truth.network.equals(deep.truth.network)
    assert plain.truth.response.equals(deep.truth.response)
    assert plain.graph.equals(deep.graph)
    assert plain.screen.perturbations == deep.screen.perturbations
    assert plain.screen.total < deep.screen.total / 5


def test_gene_names_tell_nothing_about_tier_or_module() -> None:
    genes = simulate_screen().truth.genes
    acting = genes["tier"].isin(["signalling", "regulator"]).to_numpy()
    position = np.arange(len(genes)) / len(genes)
    assert abs(position[acting].mean() - position[~acting].mean()) < 0.1


def test_the_response_follows_the_equations() -> None:
    change = _respond(transcript=-2.0, buffering=0.2, saturation=1.0)
    middle = np.tanh(1.5 * -1.8)
    assert change[0] == -2.0
    assert change[1] == pytest.approx(middle)
    assert change[2] == pytest.approx(np.tanh(-0.9 * (middle + 0.2)))


def test_a_compound_acts_through_activity_not_through_the_transcript() -> None:
    by_guide = _respond(transcript=-1.5)
    by_compound = _respond(activity=-1.5)
    assert by_compound[0] == 0.0
    np.testing.assert_allclose(by_compound[1:], by_guide[1:])


def test_small_changes_are_buffered() -> None:
    np.testing.assert_array_equal(_respond(transcript=-0.1, buffering=0.12), [-0.1, 0.0, 0.0])


def test_regulation_saturates() -> None:
    assert np.abs(_respond(transcript=-50.0, saturation=1.4)[1:]).max() <= 1.4


def test_a_silent_source_or_gate_stops_the_response() -> None:
    np.testing.assert_array_equal(_respond(transcript=-2.0, expressed=(0, 1, 1)), [-2.0, 0.0, 0.0])
    assert _respond(transcript=-2.0, expressed=(1, 0, 1))[1] != 0
    assert _respond(transcript=-2.0, expressed=(1, 0, 1))[2] == 0


def test_expected_log_is_the_mean_over_very_many_cells() -> None:
    config = dataclasses.replace(SMALL, dispersion=0.4)
    rng = np.random.default_rng(0)
    level = np.array([-3.0, -1.0, 0.0, 1.0, 4.0])
    noise = Noise(state=np.array([[0.1, 0.3, 0.0, -0.2, 0.4]]), batch=())
    n_cells = 200_000
    library = config.depth * np.exp(config.depth_spread * rng.standard_normal(n_cells))
    share = np.exp(level) / np.exp(level).sum()
    mean = library[:, None] * share * np.exp(rng.standard_normal((n_cells, 1)) * noise.state[0])
    counts = rng.negative_binomial(1 / config.dispersion, 1 / (1 + config.dispersion * mean))
    sampled = np.log1p(1000.0 * counts / library[:, None])
    expected = expected_log(level, noise=noise, total=1000.0, config=config)
    error = sampled.std(axis=0) / np.sqrt(n_cells)
    np.testing.assert_array_less(np.abs(expected - sampled.mean(axis=0)), 4.5 * error + 1e-3)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"missing": 1.2}, "missing"),
        ({"depth": -1.0}, "depth"),
        ({"depth": 0.0}, "depth"),
        ({"weight_range": (1.0, 0.5)}, "weight_range"),
        ({"wrong_sign": 0.7, "no_sign": 0.6}, "no_sign"),
        ({"contexts": ("A", "A")}, "contexts"),
        ({"n_batches": (2,)}, "n_batches"),
        ({"n_both": 5}, "n_both"),
        ({"n_two_doses": 6}, "n_two_doses"),
        ({"n_crispri": 40}, "n_crispri"),
        ({"n_inert": 100}, "n_inert"),
        ({"cells_range": (0, 3)}, "cells_range"),
        ({"in_degree": (1.0, 0.5, 2.0)}, "in_degree"),
    ],
)
def test_an_impossible_configuration_is_refused_by_name(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=key):
        dataclasses.replace(SMALL, **changes)


def test_more_combinations_than_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="n_combinations"):
        simulate_screen(config=dataclasses.replace(SMALL, n_combinations=(0, 0, 60)))


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed"):
        simulate_screen(seed=-1, config=SMALL)
