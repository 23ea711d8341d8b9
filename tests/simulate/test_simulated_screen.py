"""The default simulated screen: frozen, calibrated, and true to its mechanism."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
import pytest

from pertbase.folds import CONTROL
from pertbase.folds._condition_tests import condition_tests
from pertbase.folds._labels import Ranksum
from pertbase.simulate import Simulation, SimulationConfig, simulate_screen

CONFIG_HASH = "40dce13e701f4e8238231893c2ff9b91ad08ffdf3b7aa62671d21d0a8e23e245"
COUNTS_HASH = "d370db5ab1a09d95be64c4656cbb777ccee0cf0a891579b4a61ec338dffc6830"


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate_screen()


@pytest.fixture(scope="module")
def measured(simulation: Simulation) -> tuple[np.ndarray, np.ndarray]:
    """Measured effects and their standard errors, rows as in ``truth.effects.conditions``."""
    screen = simulation.screen
    dense = screen.X.toarray().astype(np.float64)
    rows = screen.obs.reset_index(drop=True).groupby(["context", "perturbation"]).indices
    effects, errors = [], []
    for context, perturbation in simulation.truth.effects.conditions.itertuples(index=False):
        treated, control = dense[rows[context, perturbation]], dense[rows[context, CONTROL]]
        effects.append(treated.mean(axis=0) - control.mean(axis=0))
        errors.append(np.sqrt(treated.var(axis=0) / len(treated) + control.var(axis=0) / len(control)))
    return np.array(effects), np.array(errors)


def test_defaults_are_frozen() -> None:
    # A change of the defaults changes every published number on this screen. Do not adapt them to a model.
    assert SimulationConfig().hash == CONFIG_HASH


def test_default_counts_are_frozen(simulation: Simulation) -> None:
    counts = simulation.screen.counts
    digest = hashlib.sha256()
    for array in (counts.indptr, counts.indices, counts.data):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    assert digest.hexdigest() == COUNTS_HASH


def test_screen_says_that_it_is_simulated(simulation: Simulation) -> None:
    assert simulation.screen.simulated
    assert simulation.screen.name == "simulated"
    assert "simulated" in repr(simulation.screen)


def test_values_are_log_counts_scaled_to_the_declared_total(simulation: Simulation) -> None:
    screen = simulation.screen
    counts = screen.counts[:500].toarray().astype(np.float64)
    expected = np.log1p(counts * screen.total / counts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(screen.X[:500].toarray(), expected, rtol=1e-6)


def test_conditions_support_every_fold_kind(simulation: Simulation) -> None:
    screen = simulation.screen
    conditions = screen.conditions
    assert len(screen.contexts) == 4
    single = conditions[conditions["n_parts"] == 1]
    for modality, least in (("genetic", 50), ("chemical", 30)):
        of_kind = single[single["modality"] == modality]
        assert of_kind.groupby("context")["target_set"].nunique().min() >= least
        assert of_kind.groupby("perturbation")["context"].nunique().eq(4).all()
    both = single.groupby("targets")["mechanism"].agg(set)
    assert sum({"CRISPRi", "CRISPRa"} <= mechanisms for mechanisms in both) == simulation.config.n_both
    compounds = [item for item in screen.perturbations.values() if item.compounds]
    assert len(compounds) - len({item.compounds for item in compounds}) == simulation.config.n_two_doses


def test_drug_targets_are_partly_perturbed_genetically(simulation: Simulation) -> None:
    perturbations = simulation.screen.perturbations.values()
    genetic = {item.targets[0] for item in perturbations if item.modality == "genetic" and not item.is_combination}
    share = np.mean([bool(genetic & set(item.targets)) for item in perturbations if item.modality == "chemical"])
    assert 0.3 < share < 0.9


def test_combinations_have_no_one_and_both_parts_seen_alone(simulation: Simulation) -> None:
    perturbations = simulation.screen.perturbations.values()
    alone = {item.parts[0] for item in perturbations if not item.is_combination}
    seen = [sum(part in alone for part in item.parts) for item in perturbations if item.is_combination]
    assert tuple(np.bincount(seen)) == simulation.config.n_combinations
    # Nor is a part that counts as unseen perturbed alone by another mechanism.
    genes = {item.targets[0] for item in perturbations if item.modality == "genetic" and not item.is_combination}
    unseen = [part for item in perturbations if item.is_combination for part in item.parts if part not in alone]
    assert not {part.targets[0][0] for part in unseen} & genes


def test_controls_and_cells_suffice_for_labels(simulation: Simulation) -> None:
    obs = simulation.screen.obs
    assert obs[obs["is_control"]].groupby("context").size().min() >= 300
    assert simulation.screen.conditions["n_cells"].min() >= 40
    assert len(obs) < 40_000


def test_batches_are_not_confounded_with_conditions(simulation: Simulation) -> None:
    sizes = simulation.screen.obs.groupby(["context", "perturbation", "batch"]).size()
    spread = sizes.groupby(["context", "perturbation"]).agg(["min", "max", "size"])
    assert (spread["max"] - spread["min"]).max() <= 1
    assert set(spread["size"]) == {2, 3}


@pytest.mark.parametrize(("mechanism", "sign"), [("CRISPRi", -1), ("CRISPRa", +1)])
def test_a_guide_moves_the_mean_of_its_own_target(
    simulation: Simulation, measured: tuple[np.ndarray, np.ndarray], mechanism: str, sign: int
) -> None:
    effects, _ = measured
    truth = simulation.truth
    own = []
    for row, (context, name) in enumerate(truth.effects.conditions.itertuples(index=False)):
        perturbation = simulation.screen.perturbations[name]
        target = perturbation.targets[0]
        if (
            perturbation.mechanism == mechanism
            and not perturbation.is_combination
            and truth.expressed.loc[context, target]
        ):
            own.append(sign * effects[row, truth.effects.genes.get_loc(target)])
    assert len(own) > 50
    assert np.mean(np.array(own) > 0) > 0.98
    assert np.median(own) > 0.3


def test_measured_effects_scatter_around_the_true_ones_by_their_standard_error(
    simulation: Simulation, measured: tuple[np.ndarray, np.ndarray]
) -> None:
    effects, errors = measured
    true = simulation.truth.effects.values
    assert np.corrcoef(true.ravel(), effects.ravel())[0, 1] > 0.85
    assert np.polyfit(true.ravel(), effects.ravel(), 1)[0] == pytest.approx(1, abs=0.03)
    deviation = ((effects - true) / errors)[errors > 0]
    assert abs(deviation.mean()) < 0.05
    assert deviation.std() == pytest.approx(1, abs=0.1)


def test_true_basal_is_the_mean_of_controls(simulation: Simulation) -> None:
    screen, basal = simulation.screen, simulation.truth.effects.basal
    assert basal is not None
    for context in screen.contexts:
        rows = np.flatnonzero((screen.obs["context"] == context) & screen.obs["is_control"])
        mean = np.asarray(screen.X[rows].mean(axis=0)).ravel()
        np.testing.assert_allclose(mean, basal.loc[context], atol=0.25)
        assert np.corrcoef(mean, basal.loc[context])[0, 1] > 0.995


def test_a_combination_of_two_parts_that_act_is_not_their_sum(simulation: Simulation) -> None:
    response = simulation.truth.response
    perturbations = simulation.screen.perturbations
    by_part = {item.parts[0]: name for name, item in perturbations.items() if not item.is_combination}
    gaps = []
    for context, name in response.index:
        parts = perturbations[name].parts
        if len(parts) == 2 and all(part in by_part for part in parts):
            others = response.columns.difference(list(perturbations[name].targets))
            singles = [response.loc[(context, by_part[part]), others] for part in parts]
            # A part whose target is silent adds exactly nothing.
            if all(single.abs().max() > 0.1 for single in singles):
                gap = response.loc[(context, name), others] - sum(singles)
                gaps.append(float(gap.abs().max()))
    assert len(gaps) > simulation.config.n_combinations[2]
    assert min(gaps) > 0
    assert np.median(gaps) > 0.2


def test_contexts_differ_in_active_edges(simulation: Simulation) -> None:
    truth = simulation.truth
    active = {
        context: set(zip(edges["source"], edges["target"], strict=True))
        for context, edges in truth.active.groupby("context")
    }
    everywhere = set.intersection(*active.values())
    assert all(len(edges) >= 1.05 * len(everywhere) for edges in active.values())
    assert len({frozenset(edges) for edges in active.values()}) == 4


def test_an_edge_is_active_where_its_source_and_gate_are_expressed(simulation: Simulation) -> None:
    truth = simulation.truth
    for context, edges in truth.active.groupby("context"):
        on = truth.expressed.loc[context]
        expected = {
            (edge.source, edge.target)
            for edge in truth.network.itertuples()
            if on[edge.source] and (not edge.gate or on[edge.gate])
        }
        assert set(zip(edges["source"], edges["target"], strict=True)) == expected


def test_the_graph_is_corrupted_by_the_stated_rates(simulation: Simulation) -> None:
    config, network, graph = simulation.config, simulation.truth.network, simulation.graph
    assert not graph.duplicated(["source", "target"]).any()
    assert (graph["source"] != graph["target"]).all()
    merged = network.merge(graph, on=["source", "target"], how="outer", suffixes=("", "_seen"), indicator=True)
    kept = merged[merged["_merge"] == "both"]
    assert (merged["_merge"] == "left_only").sum() == round(config.missing * len(network))
    assert (merged["_merge"] == "right_only").sum() == round(config.spurious * len(network))
    assert (kept["sign_seen"] == -kept["sign"]).sum() == round(config.wrong_sign * len(kept))
    assert (kept["sign_seen"] == 0).sum() == round(config.no_sign * len(kept))


def test_spurious_edges_prefer_hubs(simulation: Simulation) -> None:
    network, graph = simulation.truth.network, simulation.graph
    merged = graph.merge(network[["source", "target"]], on=["source", "target"], how="left", indicator=True)
    spurious = merged.loc[merged["_merge"] == "left_only", "source"]
    tier = simulation.truth.genes["tier"]
    acting = tier.index[tier.isin(["signalling", "regulator"])]
    degree = network["source"].value_counts().reindex(acting, fill_value=0)
    assert degree[spurious].mean() > 1.5 * degree.mean()


def test_models_are_not_shown_weights_gates_or_off_targets(simulation: Simulation) -> None:
    assert list(simulation.graph.columns) == ["source", "target", "sign"]
    inputs = simulation.truth.inputs
    hidden = inputs[~inputs["annotated"]]
    assert len(hidden) > 0
    for row in hidden.itertuples():
        assert row.gene not in simulation.screen.perturbations[row.perturbation].targets


def test_a_compound_leaves_the_transcript_of_an_unregulated_target_alone(simulation: Simulation) -> None:
    truth = simulation.truth
    regulated = set(truth.network["target"])
    drugs = truth.inputs[truth.inputs["on"] == "activity"]
    free = drugs[~drugs["gene"].isin(regulated)]
    assert len(free) > 0
    for row in free.itertuples():
        assert (truth.response.xs(row.perturbation, level="perturbation")[row.gene] == 0).all()


def test_a_higher_dose_acts_more_strongly(simulation: Simulation) -> None:
    strength = simulation.truth.inputs.groupby("perturbation")["strength"].apply(lambda values: values.abs().sum())
    doses = pd.DataFrame(
        [
            (item.compounds[0], item.parts[0].dose, strength[name])
            for name, item in simulation.screen.perturbations.items()
            if item.compounds
        ],
        columns=["compound", "dose", "strength"],
    ).pivot(index="compound", columns="dose", values="strength")
    both = doses.dropna()
    assert len(both) == simulation.config.n_two_doses
    assert (both[1.0] > both[0.1]).all()


def test_gene_sets_follow_modules_with_noise(simulation: Simulation) -> None:
    module = simulation.truth.genes["module"]
    for number in range(1, simulation.config.n_modules + 1):
        listed = simulation.gene_sets[f"SIM_MODULE_{number:02d}"]
        members = set(module.index[module == f"M{number:02d}"])
        assert 0.6 < len(members & set(listed)) / len(members) < 1
        assert 0.05 < len(set(listed) - members) / len(listed) < 0.25


def test_difficulty_resembles_real_screens(simulation: Simulation) -> None:
    """Bands around the table in the package's docstring; what a model could learn lies between prior and truth."""
    screen, rule = simulation.screen, Ranksum()
    rows = screen.obs.reset_index(drop=True).groupby(["context", "perturbation"]).indices
    conditions = screen.conditions[(screen.conditions["n_parts"] == 1) & (screen.conditions["modality"] == "genetic")]
    keys = list(zip(conditions["context"], conditions["perturbation"], strict=True))
    tests = condition_tests(
        screen.X,
        controls={context: rows[context, CONTROL][::2] for context in screen.contexts},
        conditions={key: rows[key] for key in keys},
    )
    codes = rule.codes(tests.evidence()).astype(np.int64)
    for row, targets in enumerate(conditions["targets"]):
        codes[row, screen.genes.get_loc(targets)] = -1
    share = np.bincount(codes[codes >= 0], minlength=3) / (codes >= 0).sum()
    assert 0.05 < share[0] + share[1] < 0.15
    assert 0.3 < share[0] / (share[0] + share[1]) < 0.7

    test = np.isin(conditions["target_set"], sorted(conditions["target_set"].unique())[::4])
    counts = np.stack([(codes[~test] == outcome).sum(axis=0) for outcome in range(3)], axis=1)
    frequency = counts.sum(axis=0) / counts.sum()
    prior = np.tile(((counts + frequency) / frequency).argmax(axis=1), (test.sum(), 1))
    true = simulation.truth.effects.select(conditions).values[test]
    oracle = np.select([true > rule.tau, true < -rule.tau], [0, 1], default=2)
    of_prior, of_oracle = (_balanced_accuracy(codes[test], answer) for answer in (prior, oracle))
    assert 0.55 < of_prior < 0.78
    assert of_oracle > 0.88
    assert of_oracle > of_prior + 0.15


def _balanced_accuracy(truth: np.ndarray, answer: np.ndarray) -> float:
    return float(np.mean([(answer[truth == outcome] == outcome).mean() for outcome in range(3)]))
