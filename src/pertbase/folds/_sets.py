"""Batches of cell sets: perturbed cells of one condition, as many controls, and what was done.

As for pairs (:mod:`pertbase.folds._batches`), what is in a batch is a pure function of (seed, epoch, step, rank), and
no object is made per cell: a batch is one row gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import InputError, unknown_name
from pertbase.folds._batches import PAIRINGS, Pairing, dense_rows
from pertbase.folds._cells import CellTable
from pertbase.folds._drawing import control_pools, drawn_conditions, name_codes
from pertbase.folds._perturbation import CONTROL

if TYPE_CHECKING:
    import torch

__all__ = ["CellSets", "SetSampler", "even_parts", "padded_rows"]


@dataclass(frozen=True, eq=False, repr=False)
class CellSets:
    """A batch of B sets of at most S cells over G genes, with P features of what was done to each set.

    Parameters
    ----------
    control
        Control cells, natural log1p, shape (B, S, G), float32. Behind the cells of a smaller set its last one is
        repeated.
    perturbed
        Perturbed cells of one condition, the i-th in the context and batch of the i-th control, shape (B, S, G). Where
        a model predicts, there are none: the controls stand here.
    real
        Which cells are no repetition, shape (B, S), bool; a set's real cells come first.
    padded
        Whether any is.
    features
        Of what was done, shape (B, P), float32; see :class:`SetSampler`.
    condition
        Row of :attr:`SetSampler.conditions`, shape (B,), int64; -1 where a model predicts.
    context
        Position in :attr:`SetSampler.contexts`, shape (B,), int64; -1 for a name that training does not have.
    batch
        Position in :attr:`SetSampler.batch_names` of each perturbed cell, shape (B, S), int64; -1 for names that
        training does not have.
    control_embedding, perturbed_embedding
        The same cells in an embedding of D dimensions, shape (B, S, D); None where the model asks for none.
    """

    control: torch.Tensor
    perturbed: torch.Tensor
    real: torch.Tensor
    padded: bool
    features: torch.Tensor
    condition: torch.Tensor
    context: torch.Tensor
    batch: torch.Tensor
    control_embedding: torch.Tensor | None = None
    perturbed_embedding: torch.Tensor | None = None

    def __len__(self) -> int:
        return int(self.control.shape[0])

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> CellSets:
        """Return the batch on a device."""
        tensors = self._tensors()
        moved: Any = {name: item.to(device, non_blocking=non_blocking) for name, item in tensors.items()}
        return replace(self, **moved)

    def pin_memory(self) -> CellSets:
        """Return the batch in page-locked memory, from which copies to a GPU do not wait."""
        pinned: Any = {name: item.pin_memory() for name, item in self._tensors().items()}
        return replace(self, **pinned)

    def repeated(self, n: int) -> CellSets:
        """Return the batch ``n`` times over."""
        repeated: Any = {name: item.repeat(n, *[1] * (item.dim() - 1)) for name, item in self._tensors().items()}
        return replace(self, **repeated)

    def told(self, features: torch.Tensor) -> CellSets:
        """Return the same sets with other features, shape (B, P)."""
        return replace(self, features=features)

    def _tensors(self) -> dict[str, torch.Tensor]:
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "padded"}
        return {name: item for name, item in found.items() if item is not None}

    def __repr__(self) -> str:
        sets, cells, genes = self.control.shape
        return f"CellSets({sets} x {cells} cells x {genes:,} genes, {self.control.device})"


def even_parts(n: int, size: int) -> np.ndarray:
    """Return the bounds that divide ``n`` things into as few parts of at most ``size`` as there can be, evenly."""
    parts = -(-n // size)
    return np.asarray(np.arange(parts + 1) * n // parts, dtype=np.int64)


def padded_rows(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n_sets, S) in a sequence of cells, the last of a smaller set repeated, and which are real.

    Parameters
    ----------
    start, size
        Where each set lies in the sequence, shape (n_sets,); S is the largest size.
    """
    number = np.arange(int(size.max()))
    return start[:, None] + np.minimum(number, size[:, None] - 1), number < size[:, None]


class SetSampler:
    """Draws batches of cell sets from the cells of a training.

    Every cell is in one set an epoch. The cells of a condition are divided at random into as few sets as there can be,
    evenly: 70 cells are two sets of 35 at a set size of 64, and not one of 64 and one of 6. Each cell has a control of
    its own context and batch, so that control sets have the batches of the perturbed ones; a set holds no control
    twice unless there are fewer controls than cells.

    Parameters
    ----------
    cells
        With a ``split`` column in ``obs``.
    features
        Perturbation -> features, shape (P,), all of one length. Cells of any other perturbation are left out, and never
        drawn as controls. Where ``control`` is among them, sets of control cells are drawn as perturbed ones too.
    split
        ``train`` or ``val``: whose perturbed cells are drawn. Controls are train's, or, for ``val``, all those of its
        contexts.
    set_size
        Cells in a set at most.
    batch_size
        Sets in a batch, over all ranks together. Where there are fewer sets than that, they are one batch. The
        incomplete last batch of an epoch is left out; which sets it holds changes with the epoch.
    seed
        Of all drawing.
    pairing
        ``redrawn``: sets, their controls and their order are drawn anew each epoch. ``fixed``: once for all epochs.
    match
        Columns of ``obs`` in which a cell and its control agree. Where a batch has no control, any control of the
        context is taken; :attr:`unmatched` counts those cells.
    embedding
        Name of an embedding of the cells that is handed out beside their expression.

    Attributes
    ----------
    conditions
        ``context`` and ``perturbation`` of train and val, sorted; what ``CellSets.condition`` points to.
    contexts, batch_names
        Names of train and val, sorted; what ``CellSets.context`` and ``batch`` point to.
    rows
        Positions in ``cells`` of the cells that are drawn, shape (n,).
    condition
        Condition of each of them, shape (n,).
    unmatched
        How many of them have no control in their batch.

    Raises
    ------
    InputError
        Where nothing can be drawn, a context has no control, features differ in length or a parameter is wrong.
    """

    def __init__(
        self,
        cells: CellTable,
        features: Mapping[str, np.ndarray],
        *,
        split: str = "train",
        set_size: int,
        batch_size: int,
        seed: int,
        pairing: Pairing = "redrawn",
        match: Sequence[str] = ("context", "batch"),
        embedding: str | None = None,
    ) -> None:
        if pairing not in PAIRINGS:
            raise unknown_name("pairing", pairing, PAIRINGS)
        for key, value, what in (("batch_size", batch_size, "set"), ("set_size", set_size, "cell")):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"there is at least one {what} in it", key=key, value=value)
        if split not in ("train", "val"):
            raise InputError("sets are drawn from train or val", key="split", value=split)
        self.cells = cells
        self.split = split
        self.set_size = set_size
        self.batch_size = batch_size
        self.seed = seed
        self.pairing = pairing
        self.match = tuple(match)
        self._embedding = None if embedding is None else cells.embedding(embedding)
        obs = cells.obs
        for name in ("split", *self.match):
            if name not in obs.columns:
                raise InputError("cells lack a column", key="obs", value=name)
        control = obs["is_control"].to_numpy(dtype=bool)
        names = obs["perturbation"].astype(object).where(~control, CONTROL)
        drawable = names.isin(set(features)).to_numpy()
        in_split = (obs["split"] == split).to_numpy()
        if not (drawable & in_split & ~control).any():
            raise InputError("there are no perturbed cells to draw", key="split", value=split)
        self.contexts, self._context = name_codes(obs["context"])
        self.batch_names, self._batch = name_codes(obs["batch"])
        keys = pd.DataFrame({"context": obs["context"].astype(str), "perturbation": names})
        self.conditions, condition = drawn_conditions(keys, drawable)
        self.rows = np.flatnonzero(drawable & in_split)
        self.condition = condition[self.rows]
        self._features = _stacked(features, self.conditions["perturbation"])
        visible = in_split if split == "train" else obs["context"].isin(set(obs["context"].iloc[self.rows])).to_numpy()
        self._find_controls(np.flatnonzero(control & visible))
        self._set_start, self._set_size = self._divided()

    def _find_controls(self, controls: np.ndarray) -> None:
        """Keep the controls that are somebody's, pool after pool, and which pool each drawn cell gets its own from."""
        pool, start, size, self.unmatched = control_pools(self.cells.obs, self.rows, controls, self.match)
        starts, first, self._pool_of = np.unique(start, return_index=True, return_inverse=True)
        self._pool_size = size[first]
        self._pool_start = np.cumsum(self._pool_size) - self._pool_size
        self._segment = np.repeat(np.arange(len(starts)), self._pool_size)
        self._pool = pool[(starts - self._pool_start)[self._segment] + np.arange(len(self._segment))]

    def _divided(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where each set starts among the cells in order of their condition, and how many it holds."""
        bounds = [np.zeros(1, dtype=np.int64)]
        for count in np.bincount(self.condition)[np.unique(self.condition)]:
            bounds.append(bounds[-1][-1] + even_parts(int(count), self.set_size)[1:])
        edges = np.concatenate(bounds)
        return edges[:-1], np.diff(edges)

    # -- what is drawn --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._set_start)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return max(1, len(self) // self.batch_size)

    def _rng(self, purpose: str, epoch: int) -> np.random.Generator:
        drawn = "fixed" if self.pairing == "fixed" else str(epoch)
        return generator(self.seed, "sets", purpose, self.split, drawn)

    def members(self, epoch: int) -> np.ndarray:
        """Return the cells, by position in :attr:`rows`, set after set, shape (n,)."""
        shuffled = self._rng("members", epoch).permutation(len(self.rows))
        return np.asarray(shuffled[np.argsort(self.condition[shuffled], kind="stable")])

    def controls(self, epoch: int, members: np.ndarray) -> np.ndarray:
        """Return the position in ``cells`` of the control of each of the members, shape (n,).

        The controls a cell may get are dealt in random order, over and over: neighbours get different ones.
        """
        share = self._rng("controls", epoch).random(len(self._pool))
        dealt = self._pool[np.lexsort((share, self._segment))]
        pool = self._pool_of[members]
        order = np.argsort(pool, kind="stable")
        turn = np.empty(len(members), dtype=np.int64)
        turn[order] = np.arange(len(members)) - np.searchsorted(pool[order], pool[order])
        return np.asarray(dealt[self._pool_start[pool] + turn % self._pool_size[pool]])

    def order(self, epoch: int) -> np.ndarray:
        """Return the order in which an epoch draws its sets, a permutation, shape (n_sets,)."""
        return self._rng("order", epoch).permutation(len(self))

    def batches(self, epoch: int, *, start_step: int = 0, rank: int = 0, world: int = 1) -> Iterator[CellSets]:
        """Yield the batches of an epoch from a step on, or a rank's share of each.

        Rank ``r`` of ``world`` takes every ``world``-th set of each batch, from the r-th: shares are disjoint and of
        equal size, and together they are the batch of one process (an only batch that ``world`` does not divide loses
        its last sets).

        Raises
        ------
        InputError
            Where ``world`` does not divide the batch size, or there are fewer sets than ranks.
        """
        if not 0 <= rank < world:
            raise InputError("there is no such rank", key="rank", value=rank, remedy=f"ranks are 0 to {world - 1}")
        if self.batch_size % world or len(self) < world:
            raise InputError(
                f"a batch cannot be shared equally by {world} ranks",
                key="batch_size",
                value=min(self.batch_size, len(self)),
                remedy=f"use a multiple of {world}",
            )
        order, members = self.order(epoch), self.members(epoch)
        controls = self.controls(epoch, members)
        for step in range(start_step, self.steps):
            drawn = order[step * self.batch_size : (step + 1) * self.batch_size]
            drawn = drawn[: len(drawn) // world * world][rank::world]
            position, real = padded_rows(self._set_start[drawn], self._set_size[drawn])
            yield self._gathered(members[position], controls[position], real)

    def _gathered(self, drawn: np.ndarray, controls: np.ndarray, real: np.ndarray) -> CellSets:
        """Return a batch: cells by position in :attr:`rows`, controls by position in ``cells``, both (B, S)."""
        import torch

        rows = self.rows[drawn]
        # one gather for both: most of its cost is per call
        both = np.stack([controls, rows])
        values = torch.from_numpy(dense_rows(self.cells.X, both.ravel())).view(*both.shape, -1)
        embedded = None if self._embedding is None else torch.from_numpy(self._embedding[both])
        condition = self.condition[drawn[:, 0]]
        return CellSets(
            control=values[0],
            perturbed=values[1],
            real=torch.from_numpy(real),
            padded=not real.all(),
            features=torch.from_numpy(self._features[condition]),
            condition=torch.from_numpy(condition),
            context=torch.from_numpy(self._context[rows[:, 0]]),
            batch=torch.from_numpy(self._batch[rows]),
            control_embedding=None if embedded is None else embedded[0],
            perturbed_embedding=None if embedded is None else embedded[1],
        )

    def __repr__(self) -> str:
        note = f", {self.unmatched:,} cells without a control in their batch" if self.unmatched else ""
        return f"SetSampler({len(self):,} {self.split} sets, {self.steps} batches, {self.pairing}{note})"


def _stacked(features: Mapping[str, np.ndarray], names: pd.Series) -> np.ndarray:
    """Return the features of some perturbations, shape (n, P), float32."""
    widths = {len(item) for item in features.values()}
    if len(widths) != 1:
        raise InputError("perturbations have features of different length", key="features", value=sorted(widths))
    rows = np.array([features[name] for name in names], dtype=np.float32)
    if not np.isfinite(rows).all():
        name = names.iloc[int(np.argmin(np.isfinite(rows).all(axis=1)))]
        raise InputError("a feature is NaN or infinite", key="features", value=name)
    return rows
