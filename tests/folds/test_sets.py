"""Batches of cell sets: who is in a set, whose controls stand beside, and that both depend on seed and epoch alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds import CellTable
from pertbase.folds._sets import CellSets, SetSampler, even_parts, padded_rows

N_GENES = 5
FEATURES = {name: np.eye(4, dtype=np.float32)[row] for row, name in enumerate(("control", "A", "B", "V"))}


def cell_table(*, dense: bool = True, lonely: bool = False) -> CellTable:
    """Two contexts of two batches; V is in val. The first gene of a cell is its number, so that it can be told."""
    rows = []
    for context in ("K", "L"):
        for batch in ("1", "2"):
            rows += [(context, "control", batch, True, "train")] * 9
            rows += [(context, "A", batch, False, "train")] * 6
            rows += [(context, "B", batch, False, "train")] * 5
            rows += [(context, "V", batch, False, "val")] * 4
    rows += [("K", "featureless", "1", False, "train")] * 3
    if lonely:
        rows += [("K", "A", "3", False, "train")] * 2
    obs = pd.DataFrame(rows, columns=["context", "perturbation", "batch", "is_control", "split"])
    obs.index = pd.Index([f"cell{number}" for number in range(len(obs))])
    values = np.random.default_rng(0).poisson(0.7, (len(obs), N_GENES)).astype(np.float32)
    values[:, 0] = np.arange(1, len(obs) + 1)
    genes = pd.Index([f"G{number}" for number in range(N_GENES)])
    embedding = {"X_two": np.stack([values[:, 0], -values[:, 0]], axis=1)}
    return CellTable(values if dense else sparse.csr_matrix(values), obs, genes, embedding)


def sampler(cells: CellTable | None = None, features=FEATURES, **options) -> SetSampler:
    given = {"set_size": 4, "batch_size": 3, "seed": 3, **options}
    return SetSampler(cells if cells is not None else cell_table(), features, **given)


def numbers(sets: CellSets) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows of the controls and of the perturbed cells of each set, repetitions left out."""
    both = (sets.control[..., 0].numpy().astype(int) - 1, sets.perturbed[..., 0].numpy().astype(int) - 1)
    return [(one[real], other[real]) for one, other, real in zip(*both, sets.real.numpy(), strict=True)]


def drawn(batches) -> list[tuple[np.ndarray, np.ndarray]]:
    return [pair for sets in batches for pair in numbers(sets)]


def equal(first: CellSets, second: CellSets) -> bool:
    names = ("control", "perturbed", "real", "features", "condition", "context", "batch")
    return all(np.array_equal(getattr(first, name).numpy(), getattr(second, name).numpy()) for name in names)


def test_a_set_is_of_one_condition_and_says_what_was_done():
    cells = cell_table()
    drawing = sampler(cells)
    for sets in drawing.batches(0):
        for (control, perturbed), condition, features in zip(numbers(sets), sets.condition, sets.features, strict=True):
            of = cells.obs.iloc[perturbed][["context", "perturbation"]].drop_duplicates()
            assert len(of) == 1
            assert of.iloc[0].tolist() == drawing.conditions.iloc[int(condition)].tolist()
            np.testing.assert_array_equal(features, FEATURES[of.iloc[0]["perturbation"]])
            assert cells.obs["is_control"].iloc[control].all()
            assert "featureless" not in set(of["perturbation"])


def test_controls_are_of_the_context_and_batch_of_their_cells():
    cells = cell_table()
    for control, perturbed in drawn(sampler(cells).batches(0)):
        for column in ("context", "batch"):
            named = cells.obs[column].to_numpy()
            assert (named[control] == named[perturbed]).all()


def test_a_batch_without_controls_takes_its_contexts_and_is_counted():
    cells = cell_table(lonely=True)
    drawing = sampler(cells, batch_size=1)
    assert drawing.unmatched == 2
    assert "2 cells without a control" in repr(drawing)
    batch, context = cells.obs["batch"].to_numpy(), cells.obs["context"].to_numpy()
    lonely = [(c, p) for c, p in drawn(drawing.batches(0)) if (batch[p] == "3").any()]
    assert lonely
    for control, perturbed in lonely:
        assert (context[control] == context[perturbed]).all()


def test_no_control_stands_twice_in_a_set_while_there_are_enough():
    for control, _ in drawn(sampler(set_size=9).batches(0)):
        assert len(set(control)) == len(control)


def test_fewer_controls_than_cells_are_used_equally_often():
    cells = cell_table()
    keep = ~cells.obs["is_control"].to_numpy() | (np.arange(len(cells)) % 3 == 0)
    few = cells.take(keep)
    used = np.concatenate([c for c, p in drawn(sampler(few, set_size=50, batch_size=1).batches(0))])
    counts = np.unique(used, return_counts=True)[1]
    assert counts.max() - counts.min() <= len(FEATURES)


def test_every_cell_is_in_one_set_an_epoch():
    drawing = sampler(batch_size=1)
    seen = np.concatenate([perturbed for _, perturbed in drawn(drawing.batches(0))])
    assert len(seen) == len(set(seen)) == len(drawing.rows) == 4 * (9 + 6 + 5)
    left_out = [set(drawing.rows) - {row for _, p in drawn(sampler().batches(e)) for row in p} for e in range(3)]
    assert left_out[0] != left_out[1]


@pytest.mark.parametrize(
    ("n", "size", "expected"), [(70, 64, [35, 35]), (64, 64, [64]), (1, 9, [1]), (7, 3, [2, 2, 3])]
)
def test_cells_are_divided_evenly(n, size, expected):
    assert np.diff(even_parts(n, size)).tolist() == expected


def test_a_smaller_set_repeats_its_last_cell():
    position, real = padded_rows(np.array([0, 3]), np.array([3, 1]))
    assert position.tolist() == [[0, 1, 2], [3, 3, 3]]
    assert real.tolist() == [[True, True, True], [True, False, False]]
    uneven = [sets for sets in sampler(set_size=7).batches(0) if sets.padded]
    assert uneven
    for sets in uneven:
        last = sets.real.sum(dim=1) - 1
        for row, end in enumerate(last.tolist()):
            assert (sets.perturbed[row, end:] == sets.perturbed[row, end]).all()


def test_sets_differ_between_epochs_and_repeat_with_the_seed():
    members = [frozenset(map(int, p)) for _, p in drawn(sampler().batches(0))]
    others = [frozenset(map(int, p)) for _, p in drawn(sampler().batches(1))]
    assert set(members) != set(others)
    assert all(equal(one, other) for one, other in zip(sampler().batches(5), sampler().batches(5), strict=True))
    assert set(members) != {frozenset(map(int, p)) for _, p in drawn(sampler(seed=4).batches(0))}


def test_fixed_sets_and_their_order_stay_for_all_epochs():
    fixed = sampler(pairing="fixed")
    assert all(equal(one, other) for one, other in zip(fixed.batches(0), fixed.batches(7), strict=True))


def test_controls_are_redrawn_each_epoch():
    drawing = sampler()
    members = drawing.members(0)
    assert (drawing.controls(0, members) != drawing.controls(1, members)).any()


def test_starting_within_an_epoch_yields_what_is_left_of_it():
    whole = list(sampler().batches(2))
    rest = list(sampler().batches(2, start_step=2))
    assert len(rest) == len(whole) - 2 > 0
    assert all(equal(one, other) for one, other in zip(whole[2:], rest, strict=True))


def test_ranks_share_a_batch():
    whole = [sets.condition.tolist() for sets in sampler(batch_size=4).batches(1)]
    shares = [[sets.condition.tolist() for sets in sampler(batch_size=4).batches(1, rank=r, world=2)] for r in (0, 1)]
    assert whole == [[a, c, b, d] for (a, b), (c, d) in zip(*shares, strict=True)]
    with pytest.raises(InputError, match="cannot be shared equally by 3 ranks"):
        next(sampler(batch_size=4).batches(0, world=3))


def test_dense_and_sparse_cells_give_the_same_sets():
    dense, rows = sampler(cell_table()), sampler(cell_table(dense=False))
    assert all(equal(one, other) for one, other in zip(dense.batches(0), rows.batches(0), strict=True))


def test_an_embedding_is_handed_out_beside_the_cells():
    for sets in sampler(embedding="X_two").batches(0):
        np.testing.assert_array_equal(sets.control_embedding[..., 0], sets.control[..., 0])
        np.testing.assert_array_equal(sets.perturbed_embedding[..., 1], -sets.perturbed[..., 0])
    assert next(iter(sampler().batches(0))).control_embedding is None
    with pytest.raises(InputError, match=r"X_tow.*Did you mean 'X_two'"):
        sampler(embedding="X_tow")


def test_controls_are_perturbed_cells_too_where_they_have_features():
    with_control = {int(c) for sets in sampler().batches(0) for c in sets.condition}
    without = sampler(features={name: item for name, item in FEATURES.items() if name != "control"})
    assert "control" in sampler().conditions["perturbation"].to_numpy()[list(with_control)]
    assert "control" not in set(without.conditions["perturbation"])


def test_val_is_drawn_from_its_own_cells():
    cells = cell_table()
    for _, perturbed in drawn(sampler(cells, split="val").batches(0)):
        assert (cells.obs["split"].iloc[perturbed] == "val").all()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"set_size": 0}, "set_size"),
        ({"batch_size": True}, "batch_size"),
        ({"pairing": "redrwn"}, "pairing"),
        ({"split": "test"}, "split"),
        ({"match": ("contxt",)}, "contxt"),
        ({"features": {"control": np.ones(2), "A": np.ones(3)}}, "different length"),
        ({"features": {**FEATURES, "A": np.full(4, np.nan)}}, "NaN"),
        ({"features": {"control": np.ones(2)}}, "no perturbed cells"),
    ],
)
def test_what_cannot_be_drawn_is_told(options, told):
    with pytest.raises(InputError, match=told):
        sampler(**options)


def test_a_context_without_controls_is_refused_by_name():
    cells = cell_table()
    keep = ~((cells.obs["context"] == "L") & cells.obs["is_control"]).to_numpy()
    with pytest.raises(InputError, match=r"no control to be paired with.*'L'"):
        sampler(cells.take(keep))


def test_taking_cells_takes_their_embeddings():
    cells = cell_table()
    few = cells.take(np.array([3, 1]))
    np.testing.assert_array_equal(few.embedding("X_two")[:, 0], [4, 2])
    assert replace(cells, obs=cells.obs).embedding("X_two") is cells.embedding("X_two")
    with pytest.raises(ValueError, match="read-only"):
        few.embedding("X_two")[0] = 0
