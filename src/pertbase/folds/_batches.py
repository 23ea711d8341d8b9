"""Batches of cell pairs: a perturbed cell, a control it is compared with, and what was done to it.

Which cells are in a batch is a pure function of (seed, epoch, step, rank): nothing is kept between batches, so that a
resumed run draws what an undisturbed one would have drawn, and the ranks of a distributed one draw, together, what
one process would have drawn. No object is made per cell: a batch is two row gathers, made dense there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._random import generator
from pertbase.errors import InputError, unknown_name
from pertbase.folds._cells import CellTable, Matrix
from pertbase.folds._drawing import control_pools, drawn_conditions, name_codes
from pertbase.folds._perturbation import CONTROL, Perturbation

if TYPE_CHECKING:
    import torch

__all__ = [
    "CellPairs",
    "PAIRINGS",
    "PairSampler",
    "Pairing",
    "Sampler",
    "dense_rows",
    "encode_targets",
    "pair_batches",
]

Pairing = Literal["redrawn", "fixed"]
PAIRINGS = ("redrawn", "fixed")


class Sampler(Protocol):
    """What draws the batches of a training: all that the harness asks of it.

    Attributes
    ----------
    batch_size
        Items in a batch, over all ranks together.
    contexts, batch_names
        Names of train and val, sorted; what a batch's ``context`` and ``batch`` point to.
    """

    batch_size: int
    contexts: pd.Index
    batch_names: pd.Index

    def __len__(self) -> int:
        """Return how many items can be drawn."""

    @property
    def steps(self) -> int:
        """Batches in an epoch."""

    def batches(self, epoch: int, *, start_step: int = 0, rank: int = 0, world: int = 1) -> Iterator[Any]:
        """Yield the batches of an epoch from a step on, or a rank's share of each."""


@dataclass(frozen=True, eq=False, repr=False)
class CellPairs:
    """A batch of B cell pairs over G genes, with at most T targets each.

    Parameters
    ----------
    control
        Control cells, natural log1p, shape (B, G), float32.
    perturbed
        Perturbed cells, shape (B, G), float32. Where a model predicts, there are none: the control stands here.
    condition
        Row of :attr:`PairSampler.conditions`, shape (B,), int64; -1 where a model predicts.
    targets
        Positions of the targets in the target vocabulary, shape (B, T), int64, padded with -1. Control cells have none.
    signs
        -1 lowers the target's activity, +1 raises it, 0 is unknown or padding; shape (B, T), int8.
    context, batch
        Positions in :attr:`PairSampler.contexts` and :attr:`PairSampler.batch_names` of the perturbed cells, shape
        (B,), int64; -1 for names that training does not have.
    """

    control: torch.Tensor
    perturbed: torch.Tensor
    condition: torch.Tensor
    targets: torch.Tensor
    signs: torch.Tensor
    context: torch.Tensor
    batch: torch.Tensor

    def __len__(self) -> int:
        return int(self.control.shape[0])

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> CellPairs:
        """Return the batch on a device."""
        moved = {f.name: getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)}
        return CellPairs(**moved)

    def pin_memory(self) -> CellPairs:
        """Return the batch in page-locked memory, from which copies to a GPU do not wait."""
        return CellPairs(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def __repr__(self) -> str:
        return f"CellPairs({len(self)} pairs x {self.control.shape[1]:,} genes, {self.control.device})"


def dense_rows(X: Matrix, rows: np.ndarray) -> np.ndarray:
    """Return some rows of a dense or CSR matrix as a new dense float32 array, shape (n_rows, n_genes)."""
    if sparse.issparse(X):
        return np.asarray(X[rows].toarray(), dtype=np.float32)
    return np.asarray(X[rows], dtype=np.float32)


def encode_targets(perturbations: Sequence[Perturbation | None], vocabulary: pd.Index) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n, T) int64, padded with -1, and signs (n, T) int8 of the targets of some perturbations.

    None, the control, has no targets. T is the largest number of targets, at least 1.

    Raises
    ------
    InputError
        Where a target is not in the vocabulary, or a perturbation has none: either would look like the control.
    """
    width = max([1, *(len(item.targets) for item in perturbations if item is not None)])
    positions = np.full((len(perturbations), width), -1, dtype=np.int64)
    signs = np.zeros((len(perturbations), width), dtype=np.int8)
    for row, item in enumerate(perturbations):
        if item is None:
            continue
        if not item.targets:
            raise InputError(
                "a perturbation without known targets would be taken for the control",
                key="perturbation",
                value=item.name,
                remedy="leave it out of the perturbations that are drawn",
            )
        found = vocabulary.get_indexer(list(item.targets))
        if (found < 0).any():
            raise InputError(
                "a target is not in the vocabulary",
                key="target",
                value=item.targets[int(np.argmin(found))],
                remedy="leave its perturbations out of those that are drawn",
            )
        positions[row, : len(found)] = found
        signs[row, : len(found)] = [item.signs[gene] for gene in item.targets]
    return positions, signs


class PairSampler:
    """Draws batches of cell pairs from the cells of a training.

    Parameters
    ----------
    cells
        With a ``split`` column in ``obs``.
    perturbations
        Name -> perturbation. Cells of any other perturbation are left out, and never drawn as controls.
    split
        ``train`` or ``val``: whose perturbed cells are drawn. Controls are train's, or, for ``val``, all those of its
        contexts.
    batch_size
        Cells in a batch, over all ranks together, so that the number of devices does not change what is learnt. Where
        there are fewer cells than that, they are one batch. The incomplete last batch of an epoch is left out; which
        cells it holds changes with the epoch.
    seed
        Of all drawing.
    pairing
        ``redrawn``: each cell gets a new control every epoch. ``fixed``: one control, drawn once for all epochs; a
        control cell is paired with itself (the habit of cell-gears).
    match
        Columns of ``obs`` in which a cell and its control agree. Not given: ``context`` and ``batch`` for ``redrawn``,
        none for ``fixed``. Where a batch has no control, any control of the context is taken; :attr:`unmatched` counts
        those cells.
    include_control
        Whether control cells are drawn as perturbed cells too, with no target.
    vocabulary
        Target genes. Not given: the targets of ``perturbations``, sorted.

    Attributes
    ----------
    conditions
        ``context`` and ``perturbation`` of train and val, sorted; what ``CellPairs.condition`` points to.
    contexts, batch_names
        Names of train and val, sorted; what ``CellPairs.context`` and ``batch`` point to.
    rows
        Positions in ``cells`` of the cells that are drawn, shape (n,).
    condition
        Condition of each of them, shape (n,).
    unmatched
        How many of them have no control in their batch.

    Raises
    ------
    InputError
        Where nothing can be drawn, a context has no control, a target is not in the vocabulary or a parameter is wrong.
    """

    def __init__(
        self,
        cells: CellTable,
        perturbations: Mapping[str, Perturbation],
        *,
        split: str = "train",
        batch_size: int,
        seed: int,
        pairing: Pairing = "redrawn",
        match: Sequence[str] | None = None,
        include_control: bool = True,
        vocabulary: pd.Index | None = None,
    ) -> None:
        if pairing not in PAIRINGS:
            raise unknown_name("pairing", pairing, PAIRINGS)
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InputError("a batch has at least one cell", key="batch_size", value=batch_size)
        if split not in ("train", "val"):
            raise InputError("pairs are drawn from train or val", key="split", value=split)
        self.cells = cells
        self.split = split
        self.batch_size = batch_size
        self.seed = seed
        self.pairing = pairing
        self.match = tuple(match) if match is not None else ("context", "batch") if pairing == "redrawn" else ()
        obs = cells.obs
        for name in ("split", *self.match):
            if name not in obs.columns:
                raise InputError("cells lack a column", key="obs", value=name)
        names, control = obs["perturbation"].astype(object), obs["is_control"].to_numpy(dtype=bool)
        known = names.isin(set(perturbations)).to_numpy() & ~control

        self.contexts, self._context = name_codes(obs["context"])
        self.batch_names, self._batch = name_codes(obs["batch"])
        keys = pd.DataFrame({"context": obs["context"].astype(str), "perturbation": names.where(~control, CONTROL)})
        drawable = known | (control & include_control)
        self.conditions, condition = drawn_conditions(keys, drawable)
        in_split = (obs["split"] == split).to_numpy()
        self.rows = np.flatnonzero(drawable & in_split)
        if not (known & in_split).any():
            raise InputError("there are no perturbed cells to draw", key="split", value=split)
        self.condition = condition[self.rows]
        if vocabulary is None:
            vocabulary = pd.Index(sorted({gene for item in perturbations.values() for gene in item.targets}), dtype=str)
        self.vocabulary = vocabulary
        self._targets, self._signs = encode_targets(
            [perturbations.get(name) for name in self.conditions["perturbation"]], vocabulary
        )
        visible = in_split if split == "train" else obs["context"].isin(set(obs["context"].iloc[self.rows])).to_numpy()
        self._pool, self._start, self._size, self.unmatched = control_pools(
            obs, self.rows, np.flatnonzero(control & visible), self.match
        )

    # -- what is drawn --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return max(1, len(self.rows) // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """Return the order in which an epoch draws its cells, a permutation, shape (n,)."""
        return generator(self.seed, "pairs", "order", self.split, str(epoch)).permutation(len(self.rows))

    def controls(self, epoch: int) -> np.ndarray:
        """Return the position in ``cells`` of the control of each drawn cell in an epoch, shape (n,).

        It depends on the cell and the epoch, and neither on the batch size nor on the number of ranks.
        """
        drawn = "fixed" if self.pairing == "fixed" else str(epoch)
        share = generator(self.seed, "pairs", "controls", self.split, drawn).random(len(self.rows))
        within = np.minimum((share * self._size).astype(np.int64), self._size - 1)
        controls: np.ndarray = self._pool[self._start + within]
        if self.pairing == "fixed":
            itself = self.cells.obs["is_control"].to_numpy(dtype=bool)[self.rows]
            controls[itself] = self.rows[itself]
        return controls

    def batches(self, epoch: int, *, start_step: int = 0, rank: int = 0, world: int = 1) -> Iterator[CellPairs]:
        """Yield the batches of an epoch from a step on, or a rank's share of each.

        Rank ``r`` of ``world`` takes every ``world``-th cell of each batch, from the r-th: shares are disjoint and of
        equal size, and together they are the batch of one process (an only batch that ``world`` does not divide loses
        its last cells).

        Raises
        ------
        InputError
            Where ``world`` does not divide the batch size, or there are fewer cells than ranks.
        """
        if not 0 <= rank < world:
            raise InputError("there is no such rank", key="rank", value=rank, remedy=f"ranks are 0 to {world - 1}")
        if self.batch_size % world or len(self.rows) < world:
            raise InputError(
                f"a batch cannot be shared equally by {world} ranks",
                key="batch_size",
                value=min(self.batch_size, len(self.rows)),
                remedy=f"use a multiple of {world}",
            )
        order, controls = self.order(epoch), self.controls(epoch)
        for step in range(start_step, self.steps):
            drawn = order[step * self.batch_size : (step + 1) * self.batch_size]
            drawn = drawn[: len(drawn) // world * world][rank::world]
            yield self.pairs(drawn, controls[drawn])

    def encoded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return targets and signs of each of :attr:`conditions`, as batches hold them."""
        return self._targets.copy(), self._signs.copy()

    def pairs(self, drawn: np.ndarray, controls: np.ndarray) -> CellPairs:
        """Return a batch: drawn cells, by position in :attr:`rows`, and controls, by position in ``cells``."""
        import torch

        rows = self.rows[drawn]
        # one gather for both: most of its cost is per call
        values = torch.from_numpy(dense_rows(self.cells.X, np.concatenate([controls, rows])))
        condition = self.condition[drawn]
        return CellPairs(
            control=values[: len(rows)],
            perturbed=values[len(rows) :],
            condition=torch.from_numpy(condition),
            targets=torch.from_numpy(self._targets[condition]),
            signs=torch.from_numpy(self._signs[condition]),
            context=torch.from_numpy(self._context[rows]),
            batch=torch.from_numpy(self._batch[rows]),
        )

    def __repr__(self) -> str:
        note = f", {self.unmatched:,} without a control in their batch" if self.unmatched else ""
        return f"PairSampler({len(self):,} {self.split} cells, {self.steps} batches, {self.pairing} controls{note})"


def pair_batches(
    cells: CellTable,
    perturbations: Mapping[str, Perturbation],
    *,
    epoch: int,
    start_step: int = 0,
    rank: int = 0,
    world: int = 1,
    **options: Any,
) -> Iterator[CellPairs]:
    """Yield the batches of one epoch; ``options`` are those of :class:`PairSampler`."""
    sampler = PairSampler(cells, perturbations, **options)
    yield from sampler.batches(epoch, start_step=start_step, rank=rank, world=world)
