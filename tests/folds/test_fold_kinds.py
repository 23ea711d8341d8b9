"""Who is in train, val and test: what each kind forbids never happens, in any order, mechanism or dose."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import KINDS, Fold, FoldMaker, FoldSpec, Part, Perturbation, Screen, leaks, make_fold
from pertbase.folds._kinds import assign

SIMULATED_KINDS = tuple(kind for kind in KINDS if kind != "published")


@pytest.fixture(scope="module", params=SIMULATED_KINDS)
def fold(request: pytest.FixtureRequest, maker: FoldMaker) -> Fold:
    return maker.make(FoldSpec(kind=request.param))


def _units(fold: Fold, split: str) -> set[str]:
    names = fold.conditions.loc[fold.conditions["split"] == split, "perturbation"]
    return {unit for name in names for unit in fold.perturbations[name].units}


def _contexts(fold: Fold, split: str) -> set[str]:
    return set(fold.conditions.loc[fold.conditions["split"] == split, "context"])


def test_all_eight_kinds_exist_on_the_simulated_screen_and_can_rank_baselines(fold: Fold) -> None:
    assert fold.certificate["ranks_baselines"]
    assert fold.certificate["disjoint"]
    assert not leaks(fold)


def test_what_is_held_out_is_in_no_other_split(fold: Fold) -> None:
    kind = fold.kind
    if kind.startswith(("unseen_perturbation", "unseen_both")):
        for first, second in itertools.combinations(("train", "val", "test"), 2):
            assert not _units(fold, first) & _units(fold, second)
    if kind.startswith(("unseen_context", "unseen_both")):
        assert not _contexts(fold, "test") & (_contexts(fold, "train") | _contexts(fold, "val"))
        assert not _contexts(fold, "val") & _contexts(fold, "train")
    if kind == "genetic_to_chemical":
        modality = fold.conditions.groupby("split")["modality"].unique()
        assert list(modality["train"]) == ["genetic"]
        assert list(modality["test"]) == ["chemical"]
        assert list(modality["val"]) == ["genetic"]
    if kind == "combinatorial":
        sets = fold.conditions.groupby("split")["target_set"].agg(set)
        assert not sets["test"] & (sets["train"] | sets["val"])
        assert (fold.conditions.loc[fold.conditions["split"].isin(("val", "test")), "n_parts"] > 1).all()


def test_input_and_truth_controls_are_disjoint_and_only_contexts_of_a_split_are_visible_to_it(fold: Fold) -> None:
    controls = fold.controls
    assert controls["cell"].is_unique
    truth = controls.loc[controls["role"] == "truth"]
    assert not truth[["train", "val", "test"]].to_numpy().any()
    for split in ("train", "val", "test"):
        assert set(controls.loc[controls[split], "context"]) == _contexts(fold, split)


def test_every_batch_is_on_both_sides_of_the_control_partition(fold: Fold) -> None:
    counts = fold.controls.groupby(["context", "batch", "role"]).size().unstack("role")
    assert (counts["input"] - counts["truth"]).abs().max() <= 1


def test_a_readout_is_never_the_target_itself(fold: Fold) -> None:
    for name, genes in fold.questions.groupby("perturbation")["gene"]:
        assert not set(genes) & set(fold.perturbations[name].targets)


def test_the_same_seed_makes_the_same_fold_and_another_seed_another(simulated: Screen) -> None:
    spec = FoldSpec(kind="combinatorial")
    part = simulated.subset((simulated.obs["context"] == "S1").to_numpy())
    maker = FoldMaker(part)
    once, again = maker.make(spec), FoldMaker(part).make(spec)
    assert dict(once.certificate) == dict(again.certificate)
    pd.testing.assert_frame_equal(once.questions, again.questions)
    assert once.hash == again.hash
    other = maker.make(spec.with_(seed=1))
    assert other.hash != once.hash
    assert not once.controls.equals(other.controls)


def test_the_order_of_a_files_cells_changes_no_label_and_no_split(simulated: Screen) -> None:
    order = np.random.default_rng(0).permutation(len(simulated.obs))
    spec = FoldSpec(kind="combinatorial")
    _, straight, _ = FoldMaker(simulated).split(spec)
    _, shuffled, _ = FoldMaker(simulated.subset(order)).split(spec)
    pd.testing.assert_frame_equal(straight, shuffled)


def test_calls_are_spread_over_the_splits(maker: FoldMaker) -> None:
    for kind in ("unseen_perturbation_genetic", "unseen_perturbation_chemical"):
        for seed in range(5):
            _, conditions, _ = maker.split(FoldSpec(kind=kind, seed=seed))
            table = conditions.loc[conditions["split"].isin(("train", "val", "test"))]
            calls = (table["n_up"] + table["n_down"]).groupby(table["split"]).agg(["sum", "size"])
            rate = calls["sum"] / calls["size"]
            assert rate.max() / rate.min() < 2


def test_regimes_of_combinations_count_parts_seen_alone(maker: FoldMaker) -> None:
    labelled, conditions, _ = maker.split(FoldSpec(kind="combinatorial"))
    perturbations = labelled.perturbations
    alone = {
        (context, part)
        for context, name in conditions.loc[conditions["split"] == "train", ["context", "perturbation"]].to_numpy()
        for part in (perturbations[name].parts if len(perturbations[name].parts) == 1 else ())
    }
    test = conditions.loc[conditions["split"] == "test"]
    for context, name, regime in test[["context", "perturbation", "regime"]].to_numpy():
        parts = perturbations[name].parts
        assert regime == f"{sum((context, part) in alone for part in parts)}_of_{len(parts)}_seen"
    assert test["regime"].nunique() == 3


def test_regimes_of_drugs_say_whether_a_target_was_perturbed(maker: FoldMaker) -> None:
    labelled, conditions, _ = maker.split(FoldSpec(kind="genetic_to_chemical"))
    train = conditions.loc[conditions["split"] == "train", "perturbation"]
    perturbed = {gene for name in train for gene in labelled.perturbations[name].targets}
    test = conditions.loc[conditions["split"] == "test"]
    for name, regime in test[["perturbation", "regime"]].to_numpy():
        expected = (
            "target_perturbed" if set(labelled.perturbations[name].targets) & perturbed else "target_not_perturbed"
        )
        assert regime == expected
    assert set(test["regime"]) == {"target_perturbed", "target_not_perturbed"}


def test_few_shot_is_named_so(maker: FoldMaker) -> None:
    spec = FoldSpec(kind="genetic_to_chemical", val="chemical")
    _, conditions, assignment = maker.split(spec)
    assert spec.name.endswith("few_shot")
    assert any("few-shot" in note for note in assignment.notes)
    assert set(conditions.loc[conditions["split"] == "val", "modality"]) == {"chemical"}


def test_two_contexts_only_is_flagged_and_val_holds_out_conditions(simulated: Screen) -> None:
    two = simulated.subset(simulated.obs["context"].isin(simulated.contexts[:2]).to_numpy())
    fold = make_fold(two, kind="unseen_context_genetic")
    assert any("two contexts" in note for note in fold.notes)
    assert not leaks(fold)
    assert _contexts(fold, "train") == _contexts(fold, "val")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("unseen_context_genetic", "at least 2 are needed"),
        ("unseen_both_genetic", "at least 2 are needed"),
        ("unseen_perturbation_chemical", "no chemical perturbations"),
        ("genetic_to_chemical", "no chemical perturbations"),
        ("combinatorial", "0 combinations"),
        ("published", "no split of its own"),
    ],
)
def test_a_data_set_that_cannot_support_a_kind_is_told_what_is_missing(
    simulated: Screen, kind: str, missing: str
) -> None:
    single = {
        name for name, item in simulated.perturbations.items() if item.modality == "genetic" and not item.is_combination
    }
    obs = simulated.obs
    poor = simulated.subset(
        ((obs["context"] == simulated.contexts[0]) & (obs["is_control"] | obs["perturbation"].isin(single))).to_numpy()
    )
    with pytest.raises(UnsupportedError, match=missing):
        make_fold(poor, kind=kind)


def test_an_unknown_kind_or_option_answers_with_the_nearest(simulated: Screen) -> None:
    with pytest.raises(InputError, match="Did you mean 'combinatorial'"):
        make_fold(simulated, kind="combinatorical")
    with pytest.raises(InputError, match="Did you mean 'test_share'"):
        make_fold(simulated, kind="combinatorial", test_shares=0.5)
    with pytest.raises(InputError, match=r"S1"):
        make_fold(simulated, kind="unseen_context_genetic", test_context="S9")


# -- the same, on data nobody thought of ---------------------------------------------------------------------

GENES = [f"G{number}" for number in range(8)]
genetic_part = st.builds(Part.genetic, st.sampled_from(GENES), st.sampled_from(["CRISPRi", "CRISPRa", "CRISPR-KO"]))
drug_part = st.builds(
    lambda compound, dose, targets: Part("drug", tuple((gene, -1) for gene in targets), compound, dose),
    st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon"]),
    st.sampled_from([None, 0.1, 1.0]),
    st.sets(st.sampled_from(GENES), max_size=2),
)


def _distinct(parts: list[Part]) -> bool:
    return len({(part.mechanism, part.label) for part in parts}) == len(parts)


perturbation = st.one_of(
    st.lists(genetic_part, min_size=1, max_size=3).filter(_distinct),
    st.lists(drug_part, min_size=1, max_size=2).filter(_distinct),
).map(lambda parts: Perturbation(tuple(parts)))


@st.composite
def condition_tables(draw: st.DrawFn) -> tuple[pd.DataFrame, dict[str, Perturbation]]:
    chosen = draw(st.lists(perturbation, min_size=6, max_size=30, unique_by=lambda item: item.name))
    contexts = [f"C{number}" for number in range(draw(st.integers(1, 4)))]
    rows = []
    for item in chosen:
        for context in draw(st.sets(st.sampled_from(contexts), min_size=1)):
            rows.append((context, item.name, item.modality, item.split_key, len(item.parts)))
    table = pd.DataFrame(rows, columns=["context", "perturbation", "modality", "target_set", "n_parts"])
    table["n_up"] = draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    table["n_down"] = 0
    return table, {item.name: item for item in chosen}


@settings(max_examples=150, deadline=None)
@given(condition_tables(), st.sampled_from(SIMULATED_KINDS), st.integers(0, 3))
def test_no_conditions_whatever_make_a_split_leak(
    drawn: tuple[pd.DataFrame, dict[str, Perturbation]], kind: str, seed: int
) -> None:
    table, perturbations = drawn
    try:
        assignment = assign(table, perturbations, FoldSpec(kind=kind, seed=seed), data="drawn")
    except UnsupportedError:
        return
    empty = pd.DataFrame({name: pd.Series(dtype=object) for name in ("cell", "context", "batch", "role")})
    fold = Fold(
        spec=FoldSpec(kind=kind, seed=seed),
        data="drawn",
        data_hash="",
        hash="",
        questions=pd.DataFrame(),
        effects=None,
        conditions=table.assign(split=assignment.split),
        controls=empty,
        perturbations=perturbations,
        genes=pd.Index([]),
        simulated=True,
    )
    assert leaks(fold) == []
    # and the check is not blind: a test condition moved to train is seen, wherever its kind forbids it
    row = int(np.flatnonzero(assignment.split == "test")[0])
    copied = pd.concat([fold.conditions, fold.conditions.iloc[[row]].assign(split="train")], ignore_index=True)
    assert leaks(replace(fold, conditions=copied))


def test_the_strongest_perturbation_is_held_out_as_often_as_the_share_says() -> None:
    names = [f"CRISPRi:T{number}" for number in range(40)]
    perturbations = {name: Perturbation.genetic([f"T{number}"], "CRISPRi") for number, name in enumerate(names)}
    table = pd.DataFrame(
        {
            "context": "C",
            "perturbation": names,
            "modality": "genetic",
            "target_set": [perturbations[name].split_key for name in names],
            "n_parts": 1,
            "n_up": np.arange(40)[::-1],
            "n_down": 0,
        }
    )
    kind = "unseen_perturbation_genetic"
    drawn = [assign(table, perturbations, FoldSpec(kind=kind, seed=seed), data="drawn").split for seed in range(400)]
    for rank in (0, 1, 2, 20):
        share = np.mean([split[rank] == "test" for split in drawn])
        assert abs(share - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400)
    sizes = [int((split == "test").sum()) for split in drawn]
    assert min(sizes) >= 8
    assert max(sizes) <= 12


def test_train_and_test_labels_share_no_control(simulated: Screen, maker: FoldMaker) -> None:
    """Replacing the truth controls changes test's outcomes and nothing that is trained on."""
    fold = maker.make(FoldSpec(kind="combinatorial"))
    truth = set(fold.controls.loc[fold.controls["role"] == "truth", "cell"])
    position = {cell: row for row, cell in enumerate(simulated.obs.index)}
    rows = np.array(sorted(position[cell] for cell in truth))
    changed = simulated.X.copy()
    changed[rows] = changed[np.roll(rows, 7)].multiply(0.8)
    other = replace(simulated, X=changed.tocsr(), _checked=True)
    again = FoldMaker(other).make(FoldSpec(kind="combinatorial"))
    seen = fold.conditions.merge(again.conditions, on=["context", "perturbation"], suffixes=("", "_again"))
    both = seen.loc[(seen["split"] == "train") & (seen["split_again"] == "train")]
    keys = both[["context", "perturbation"]].head(50)
    assert fold.training.effects is not None
    assert again.training.effects is not None
    np.testing.assert_array_equal(fold.training.effects.select(keys).values, again.training.effects.select(keys).values)
    tested = seen.loc[(seen["split"] == "test") & (seen["split_again"] == "test"), ["context", "perturbation"]]
    if len(tested):
        assert fold.truth.effects is not None
        assert again.truth.effects is not None
        assert (fold.truth.effects.select(tested).values != again.truth.effects.select(tested).values).any()
