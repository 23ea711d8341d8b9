"""What a fold hands out: Training and Inputs to baselines, Truth to scorers, and nothing else.

What may not reach a model is removed here and only here: :data:`HIDDEN` columns leave the questions, and every
table and matrix is a copy, so that no view, base or attribute leads back to the fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import InputError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._cells import CellTable
from pertbase.folds._effects import Effects, Statistic
from pertbase.folds._perturbation import Perturbation

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["AMBIGUOUS", "HIDDEN", "Inputs", "Training", "Truth", "hide"]

AMBIGUOUS = "ambiguous"
HIDDEN = ("outcome", "effect", "p_value", "p_adjusted", "n_cells", "reference_paths", "reference_text", "regime")
"""Columns of questions that are, or are made from, what is asked. The regime is among them: ``ambiguous``
is read off the outcome, and nearness off the measured effects."""
HIDDEN_OF_CONDITIONS = ("regime", "n_up", "n_down", "power", "n_cells")


def hide(questions: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of questions without anything made from the truth."""
    return questions.drop(columns=[name for name in HIDDEN if name in questions.columns]).copy()


@dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    """The questions of a split, and what a baseline may know to answer them.

    Parameters
    ----------
    split
        ``val`` or ``test``.
    questions
        ``id``, ``fold``, ``split``, ``context``, ``perturbation``, ``mechanism``, ``targets``, ``target_set``,
        ``gene``: no outcome, no effect.
    conditions
        The conditions asked about.
    genes
        Every measured gene, or every readout gene of an outcome table.
    perturbations
        Name -> perturbation, of the conditions asked about.
    statistic
        The effect statistic to predict.
    basal
        Mean log1p of the input controls of the contexts asked about, contexts x genes; None for outcome tables.
    controls
        The input controls themselves, or None where cells were not asked for or there are none.
    graph
        Who acts on whom: the graph that paths over the fold were looked for in, else the one the data set brings; None
        where there is neither, and public ones are to be used.
    """

    split: str
    questions: pd.DataFrame
    conditions: pd.DataFrame
    genes: pd.Index
    perturbations: Mapping[str, Perturbation]
    statistic: Statistic
    basal: pd.DataFrame | None = None
    controls: CellTable | None = None
    graph: SignedGraph | None = None

    def own(self) -> Inputs:
        """Return the same with tables of its own: whoever writes into them spoils nobody else's."""
        return replace(
            self,
            questions=self.questions.copy(),
            conditions=self.conditions.copy(),
            genes=self.genes.copy(deep=True),
            perturbations=dict(self.perturbations),
            basal=None if self.basal is None else self.basal.copy(),
            controls=None if self.controls is None else self.controls.own(),
        )

    def __repr__(self) -> str:
        cells = "" if self.controls is None else f", {len(self.controls):,} input controls"
        return f"Inputs({self.split}: {len(self.questions):,} questions on {len(self.conditions)} conditions{cells})"


@dataclass(frozen=True, eq=False, repr=False)
class Training:
    """Everything a baseline may be fitted on: train and val, with outcomes.

    Parameters
    ----------
    fold, kind, data
        Names of the fold, its kind and its data set.
    seed
        The seed of the run, for models that draw.
    questions
        Train and val questions with outcomes; ambiguous ones have regime ``ambiguous`` and no outcome.
    conditions
        Train and val conditions: ``context``, ``perturbation``, ``split``, ``modality``, ``mechanism``,
        ``targets``, ``target_set``, ``n_parts``, ``n_cells``.
    genes
        Every measured gene, or every readout gene of an outcome table.
    perturbations
        Name -> perturbation, of these conditions.
    statistic
        The effect statistic.
    effects
        Measured effects of these conditions, against input controls: truth controls are test's alone. None for tables.
    basal
        Mean log1p of the input controls of these conditions' contexts, or None.
    cells
        Perturbed cells of these conditions and input controls of their contexts, with a ``split`` column
        (controls: ``train`` where their context has a train condition, else ``val``); None for outcome tables
        or where cells were not asked for.
    gene_sets
        Name -> symbols, where the data set brings its own; None where public ones are to be used.
    graph
        Who acts on whom: the graph that paths over the fold were looked for in, else the one the data set brings; None
        where there is neither, and public ones are to be used.
    simulated
        Whether the cells were simulated.
    """

    fold: str
    kind: str
    data: str
    seed: int
    questions: pd.DataFrame
    conditions: pd.DataFrame
    genes: pd.Index
    perturbations: Mapping[str, Perturbation]
    statistic: Statistic
    effects: Effects | None = None
    basal: pd.DataFrame | None = None
    cells: CellTable | None = None
    gene_sets: Mapping[str, tuple[str, ...]] | None = None
    graph: SignedGraph | None = None
    simulated: bool = False

    def own(self) -> Training:
        """Return the same with tables of its own: whoever writes into them spoils nobody else's.

        Read-only arrays, such as the cells', are shared.
        """
        return replace(
            self,
            questions=self.questions.copy(),
            conditions=self.conditions.copy(),
            genes=self.genes.copy(deep=True),
            perturbations=dict(self.perturbations),
            effects=None if self.effects is None else self.effects.select(self.conditions),
            basal=None if self.basal is None else self.basal.copy(),
            cells=None if self.cells is None else self.cells.own(),
        )

    def part(self, split: str) -> Training:
        """Return the training restricted to ``train`` or ``val``."""
        keep = (self.conditions["split"] == split).to_numpy()
        if split not in ("train", "val"):
            raise InputError("training has the parts train and val", key="split", value=split)
        return self._restrict(keep)

    def inputs(self, split: str = "val") -> Inputs:
        """Return the questions of ``train`` or ``val`` as a baseline would be asked them, outcomes removed."""
        part = self.part(split)
        controls = None
        if part.cells is not None:
            controls = part.cells.take(part.cells.obs["is_control"].to_numpy())
        return Inputs(
            split=split,
            questions=hide(part.questions),
            conditions=part.conditions.drop(columns=["n_cells"], errors="ignore").copy(),
            genes=self.genes.copy(deep=True),
            perturbations=dict(part.perturbations),
            statistic=self.statistic,
            basal=None if part.basal is None else part.basal.copy(),
            controls=controls,
            graph=part.graph,
        )

    def regroup(self, val: np.ndarray) -> Training:
        """Return the same training with other conditions as val: those the boolean mask names."""
        conditions = self.conditions.assign(split=np.where(val, "val", "train"))
        split = self._by_condition(conditions)
        questions = self.questions.assign(split=[split[key] for key in _keys(self.questions)])
        cells = self.cells
        if cells is not None:
            obs = cells.obs.copy()
            trained = set(conditions.loc[~val, "context"])
            obs["split"] = [
                ("train" if context in trained else "val") if control else split[context, perturbation]
                for context, perturbation, control in zip(
                    obs["context"], obs["perturbation"], obs["is_control"], strict=True
                )
            ]
            cells = replace(cells, obs=obs)
        return replace(self, conditions=conditions, questions=questions, cells=cells)

    def groups(self, n_groups: int) -> list[np.ndarray]:
        """Return disjoint masks over the conditions, for cross-fitting in the manner of the fold's kind.

        Conditions are kept together by context for ``unseen_context`` with several contexts, else by target
        set; for ``combinatorial`` only combinations are in a group. Groups are balanced by the number of up and
        down questions.
        """
        by_context = self.kind.startswith("unseen_context") and self.conditions["context"].nunique() > 1
        keys = self.conditions["context" if by_context else "target_set"].astype(str)
        called = self.questions.loc[self.questions["outcome"].isin(OUTCOMES[:2])]
        calls = called.groupby(["context", "perturbation"], observed=True).size()
        # Where combinations are asked about, the parts seen alone are never held out.
        asked = np.ones(len(keys), dtype=bool)
        if self.kind == "combinatorial":
            asked = (self.conditions["n_parts"] > 1).to_numpy()
        weights = pd.Series([int(calls.get(key, 0)) for key in _keys(self.conditions)])
        weight = weights[asked].groupby(keys.to_numpy()[asked]).sum()
        rng = generator(self.seed, "groups", self.fold)
        order = weight.index.to_numpy()[np.lexsort((rng.random(len(weight)), -weight.to_numpy()))]
        n_groups = min(n_groups, len(order))
        # Boustrophedon over keys ordered by calls, so that every group gets strong and weak ones.
        lanes = np.concatenate([np.arange(n_groups), np.arange(n_groups)[::-1]])
        lane = {key: int(lanes[position % len(lanes)]) for position, key in enumerate(order)}
        numbers = np.array([lane[key] if held else -1 for key, held in zip(keys, asked, strict=True)])
        return [numbers == number for number in range(n_groups)]

    @cached_property
    def headline(self) -> pd.DataFrame:
        """The questions that have an outcome."""
        return self.questions.loc[self.questions["outcome"].notna()]

    def _restrict(self, keep: np.ndarray) -> Training:
        conditions = self.conditions.loc[keep].reset_index(drop=True)
        names = set(conditions["perturbation"])
        contexts = set(conditions["context"])
        wanted = set(_keys(conditions))
        rows = np.fromiter((key in wanted for key in _keys(self.questions)), dtype=bool, count=len(self.questions))
        cells = self.cells
        if cells is not None:
            obs = cells.obs
            control = obs["is_control"].to_numpy()
            inside = np.fromiter((key in wanted for key in _keys(obs)), dtype=bool, count=len(obs))
            cells = cells.take(inside | (control & obs["context"].isin(contexts).to_numpy()))
        return replace(
            self,
            conditions=conditions,
            questions=self.questions.loc[rows].reset_index(drop=True),
            genes=self.genes.copy(deep=True),
            perturbations={name: value for name, value in self.perturbations.items() if name in names},
            effects=None if self.effects is None else self.effects.select(conditions),
            basal=None if self.basal is None else self.basal.loc[self.basal.index.isin(contexts)].copy(),
            cells=cells,
        )

    @staticmethod
    def _by_condition(conditions: pd.DataFrame) -> dict[tuple[str, str], str]:
        return dict(zip(_keys(conditions), conditions["split"], strict=True))

    def __repr__(self) -> str:
        counts = self.conditions["split"].value_counts()
        told = ", ".join(f"{counts.get(split, 0)} {split}" for split in ("train", "val"))
        cells = "" if self.cells is None else f", {len(self.cells):,} cells"
        return f"Training({self.data}/{self.fold}: {told} conditions, {len(self.questions):,} questions{cells})"


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The questions of a split with their outcomes: for scorers alone.

    Parameters
    ----------
    questions
        Every column of the fold's questions.
    name, hash
        The fold's.
    simulated
        Whether the cells were simulated.
    effects
        Measured effects of the split's conditions, or None for outcome tables.
    perturbations
        Name -> perturbation, which says where a reason starts; None where it is not known.
    """

    questions: pd.DataFrame
    name: str = ""
    hash: str = ""
    simulated: bool = False
    effects: Effects | None = None
    perturbations: Mapping[str, Perturbation] | None = None

    def __repr__(self) -> str:
        counts = self.questions["outcome"].value_counts()
        told = ", ".join(f"{counts.get(outcome, 0):,} {outcome}" for outcome in OUTCOMES)
        return f"Truth({self.name}: {len(self.questions):,} questions: {told})"


def _keys(table: pd.DataFrame) -> Any:
    return zip(table["context"], table["perturbation"], strict=True)
