"""Batches of cell pairs: who is paired with whom, and that it depends on seed, epoch, step and rank alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds import CellTable, Part, Perturbation
from pertbase.folds._batches import CellPairs, PairSampler, pair_batches

A = Perturbation.genetic(["GA"], "CRISPRi")
B = Perturbation.genetic(["GB"], "CRISPRa")
AB = Perturbation((Part.genetic("GA", "CRISPRi"), Part.genetic("GB", "CRISPRa")))
C = Perturbation.genetic(["GC"], "CRISPRi")
PERTURBATIONS = {item.name: item for item in (A, B, AB, C)}
N_GENES = 5


def cell_table(*, dense: bool = True, lonely: bool = False) -> CellTable:
    """Two contexts of two batches; C is in val. The first gene of a cell is its number, so that it can be told."""
    rows = []
    for context in ("K", "L"):
        for batch in ("1", "2"):
            rows += [(context, "control", batch, True, "train")] * 6
            rows += [(context, item.name, batch, False, "train") for item in (A, B, AB) for _ in range(5)]
            rows += [(context, C.name, batch, False, "val")] * 4
    if lonely:
        rows += [("K", A.name, "3", False, "train")] * 2
    obs = pd.DataFrame(rows, columns=["context", "perturbation", "batch", "is_control", "split"])
    obs.index = pd.Index([f"cell{number}" for number in range(len(obs))])
    values = np.random.default_rng(0).poisson(0.7, (len(obs), N_GENES)).astype(np.float32)
    values[:, 0] = np.arange(1, len(obs) + 1)
    genes = pd.Index([f"G{number}" for number in range(N_GENES)])
    return CellTable(values if dense else sparse.csr_matrix(values), obs, genes)


def sampler(cells: CellTable | None = None, **options: object) -> PairSampler:
    given = {"batch_size": 8, "seed": 3, **options}
    return PairSampler(cells if cells is not None else cell_table(), PERTURBATIONS, **given)  # type: ignore[arg-type]


def numbers(pairs: CellPairs) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each control and of each perturbed cell."""
    return pairs.control[:, 0].numpy().astype(int) - 1, pairs.perturbed[:, 0].numpy().astype(int) - 1


def drawn(pairs_of: list[CellPairs]) -> np.ndarray:
    return np.concatenate([numbers(pairs)[1] for pairs in pairs_of])


def equal(first: CellPairs, second: CellPairs) -> bool:
    names = ("control", "perturbed", "condition", "targets", "signs", "context", "batch")
    return all(np.array_equal(getattr(first, name).numpy(), getattr(second, name).numpy()) for name in names)


def test_a_cell_and_its_control_share_context_and_batch() -> None:
    cells = cell_table()
    for pairs in sampler(cells).batches(0):
        control, perturbed = numbers(pairs)
        assert cells.obs["is_control"].to_numpy()[control].all()
        for column in ("context", "batch"):
            named = cells.obs[column].to_numpy()
            assert (named[control] == named[perturbed]).all()


def test_a_batch_without_controls_takes_its_contexts_and_is_counted() -> None:
    cells = cell_table(lonely=True)
    pairing = sampler(cells)
    assert pairing.unmatched == 2
    seen = 0
    for epoch in range(4):
        for pairs in pairing.batches(epoch):
            control, perturbed = numbers(pairs)
            lonely = cells.obs["batch"].to_numpy()[perturbed] == "3"
            assert (cells.obs["context"].to_numpy()[control[lonely]] == "K").all()
            seen += int(lonely.sum())
    assert seen > 0
    assert sampler(cell_table()).unmatched == 0


def test_a_context_without_controls_is_refused_by_name() -> None:
    cells = cell_table()
    keep = ~((cells.obs["context"] == "L") & cells.obs["is_control"]).to_numpy()
    with pytest.raises(InputError, match=r"no control to be paired with.*'L'"):
        sampler(cells.take(keep))


def test_every_cell_is_drawn_at_most_once_an_epoch_and_only_the_last_batch_is_left_out() -> None:
    pairing = sampler()
    assert len(pairing) == 84  # 60 perturbed and 24 controls
    seen = drawn(list(pairing.batches(0)))
    assert len(seen) == pairing.steps * 8 == 80
    assert len(set(seen)) == len(seen)
    left_out = [set(pairing.rows) - set(drawn(list(pairing.batches(epoch)))) for epoch in range(3)]
    assert left_out[0] != left_out[1]


def test_fewer_cells_than_a_batch_are_one_batch() -> None:
    (pairs,) = sampler(batch_size=500).batches(0)
    assert len(pairs) == 84


def test_order_and_controls_are_redrawn_each_epoch_and_depend_on_seed_and_epoch_alone() -> None:
    pairing = sampler()
    first, again = list(pairing.batches(2)), list(sampler().batches(2))
    assert all(equal(one, other) for one, other in zip(first, again, strict=True))
    assert (pairing.order(0) != pairing.order(1)).any()
    assert (pairing.controls(0) != pairing.controls(1)).any()
    assert (pairing.controls(0) != sampler(seed=4).controls(0)).any()


def test_every_matching_control_is_drawn_sooner_or_later_and_equally_often() -> None:
    pairing = sampler(include_control=False)
    counts = np.bincount(np.concatenate([pairing.controls(epoch) for epoch in range(200)]))
    used = counts[counts > 0]
    assert len(used) == 24
    assert used.min() > 0.8 * used.mean()
    assert used.max() < 1.2 * used.mean()


def test_a_cells_control_depends_neither_on_batch_size_nor_on_ranks() -> None:
    def paired(found: list[CellPairs]) -> dict[int, int]:
        return {int(cell): int(control) for pairs in found for control, cell in zip(*numbers(pairs), strict=True)}

    large = paired(list(sampler(batch_size=42).batches(1)))
    ranks = paired([pairs for rank in range(3) for pairs in sampler(batch_size=6).batches(1, rank=rank, world=3)])
    assert large == ranks


def test_fixed_pairing_keeps_one_control_for_all_epochs_whatever_its_context() -> None:
    cells = cell_table()
    pairing = sampler(cells, pairing="fixed")
    assert np.array_equal(pairing.controls(0), pairing.controls(7))
    control = cells.obs["is_control"].to_numpy()
    itself = control[pairing.rows]
    assert np.array_equal(pairing.controls(0)[itself], pairing.rows[itself])
    context = cells.obs["context"].to_numpy()
    assert (context[pairing.controls(0)[~itself]] != context[pairing.rows[~itself]]).any()
    assert (pairing.order(0) != pairing.order(1)).any()


def test_starting_within_an_epoch_yields_what_is_left_of_it() -> None:
    whole = list(sampler().batches(5))
    left = list(sampler().batches(5, start_step=3))
    assert len(left) == len(whole) - 3
    assert all(equal(one, other) for one, other in zip(whole[3:], left, strict=True))


def test_ranks_take_disjoint_shares_that_make_the_batch_of_one_process() -> None:
    whole = [numbers(pairs)[1] for pairs in sampler().batches(1)]
    shares = [[numbers(pairs)[1] for pairs in sampler().batches(1, rank=rank, world=4)] for rank in range(4)]
    for step, batch in enumerate(whole):
        parts = [share[step] for share in shares]
        assert {len(part) for part in parts} == {2}
        assert sorted(np.concatenate(parts)) == sorted(batch)


def test_ranks_have_equally_many_cells_where_they_do_not_divide_the_only_batch() -> None:
    shares = [list(sampler(batch_size=500).batches(0, rank=rank, world=5)) for rank in range(5)]
    assert {len(share) for share in shares} == {1}
    assert {len(share[0]) for share in shares} == {16}


def test_a_batch_that_ranks_cannot_share_equally_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 3"):
        next(sampler().batches(0, rank=0, world=3))


def test_sparse_and_dense_screens_give_the_same_batches() -> None:
    dense, rows = sampler(cell_table()), sampler(cell_table(dense=False))
    assert all(equal(one, other) for one, other in zip(dense.batches(0), rows.batches(0), strict=True))
    pairs = next(rows.batches(0))
    assert str(pairs.control.dtype) == "torch.float32"
    assert pairs.control.shape == (8, N_GENES)


def test_a_cell_carries_its_own_condition_targets_and_signs() -> None:
    cells = cell_table()
    pairing = sampler(cells)
    for pairs in pairing.batches(0):
        _, perturbed = numbers(pairs)
        asked = pairing.conditions.iloc[pairs.condition.numpy()]
        assert asked["context"].tolist() == cells.obs["context"].iloc[perturbed].tolist()
        assert asked["perturbation"].tolist() == cells.obs["perturbation"].iloc[perturbed].tolist()
        assert pairing.contexts[pairs.context.numpy()].tolist() == cells.obs["context"].iloc[perturbed].tolist()
        assert pairing.batch_names[pairs.batch.numpy()].tolist() == cells.obs["batch"].iloc[perturbed].tolist()
        for row, name in enumerate(asked["perturbation"]):
            targets = pairs.targets[row].numpy()
            named = {pairing.vocabulary[t]: int(pairs.signs[row, k]) for k, t in enumerate(targets) if t >= 0}
            assert named == (PERTURBATIONS[name].signs if name != "control" else {})


def test_training_draws_neither_cells_nor_controls_of_val() -> None:
    cells = cell_table()
    obs = cells.obs.copy()
    obs.loc[(obs["context"] == "L") & obs["is_control"] & (obs["batch"] == "2"), "split"] = "val"
    pairing = sampler(CellTable(cells.X, obs, cells.genes))
    split = obs["split"].to_numpy()
    assert set(split[pairing.rows]) == {"train"}
    assert set(split[np.concatenate([pairing.controls(epoch) for epoch in range(20)])]) == {"train"}
    val = sampler(CellTable(cells.X, obs, cells.genes), split="val", include_control=False)
    assert set(split[val.rows]) == {"val"}
    assert set(obs["perturbation"].iloc[val.rows]) == {C.name}


def test_conditions_have_the_same_numbers_in_train_and_val() -> None:
    pd.testing.assert_frame_equal(sampler().conditions, sampler(split="val").conditions)


def test_perturbations_that_are_not_named_are_left_out_and_never_become_controls() -> None:
    cells = cell_table()
    pairing = PairSampler(cells, {A.name: A}, batch_size=8, seed=0)
    assert set(cells.obs["perturbation"].iloc[pairing.rows]) == {A.name, "control"}
    controls = np.concatenate([pairing.controls(epoch) for epoch in range(20)])
    assert cells.obs["is_control"].to_numpy()[controls].all()


def test_a_target_outside_the_vocabulary_is_refused_rather_than_taken_for_a_control() -> None:
    with pytest.raises(InputError, match=r"not in the vocabulary.*GB"):
        sampler(vocabulary=pd.Index(["GA", "GC"]))
    drug = Perturbation((Part("drug", (), compound="unknown"),))
    cells = cell_table()
    obs = cells.obs.assign(perturbation=cells.obs["perturbation"].replace({A.name: drug.name}))
    with pytest.raises(InputError, match="taken for the control"):
        PairSampler(CellTable(cells.X, obs, cells.genes), {drug.name: drug}, batch_size=4, seed=0)


def test_control_cells_can_be_left_out() -> None:
    cells = cell_table()
    pairing = sampler(cells, include_control=False)
    assert not cells.obs["is_control"].to_numpy()[pairing.rows].any()
    assert "control" not in set(pairing.conditions["perturbation"])


def test_batches_of_one_epoch_come_from_a_single_call_too() -> None:
    cells = cell_table()
    called = pair_batches(cells, PERTURBATIONS, split="train", batch_size=8, seed=3, epoch=4, start_step=1)
    assert all(equal(one, other) for one, other in zip(called, sampler(cells).batches(4, start_step=1), strict=True))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batch_size": 0}, "at least one cell"),
        ({"pairing": "fixd"}, "fixed"),
        ({"split": "test"}, "train or val"),
        ({"match": ("contxt",)}, "lack a column"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        sampler(**options)
