"""Measured effects, conditions x genes, and predictions laid out alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase.errors import InputError

if TYPE_CHECKING:
    from pertbase.folds import Effects, Truth

__all__ = ["Measured", "laid_out", "measured_effects"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured effects laid out, conditions x genes.

    Parameters
    ----------
    conditions
        ``context``, ``perturbation``, ``regime``.
    genes
        The columns.
    values
        Effects, zero where not known.
    known, tested
        Which effects there are, and which of them with an adjusted p-value.
    p_adjusted
        NaN where there is none.
    own
        Which genes are the condition's own targets.
    statistic
        Of the effects; None where the truth does not say.
    """

    conditions: pd.DataFrame
    genes: pd.Index
    values: np.ndarray
    known: np.ndarray
    p_adjusted: np.ndarray
    own: np.ndarray
    statistic: str | None

    @property
    def tested(self) -> np.ndarray:
        """Which effects there are with an adjusted p-value."""
        return np.asarray(np.isfinite(self.p_adjusted) & self.known)


def measured_effects(truth: Truth) -> Measured:
    """Return the effects of the truth, or where it has no matrix of them those of its questions, with p-values.

    Raises
    ------
    InputError
        Where there is neither: outcomes without effects cannot be compared with effects. Where a question is of a
        condition or readout gene that the matrix lacks.
    """
    questions = truth.questions
    keys = ["context", "perturbation"]
    if truth.effects is None and not questions["effect"].notna().any():
        raise InputError(
            f"the fold {truth.name} holds outcomes and no measured effects",
            key="effects",
            remedy="score answers to it instead: the adapters turn effects into answers",
        )
    if truth.effects is None:
        conditions = questions[keys].drop_duplicates().sort_values(keys, ignore_index=True)
        genes = pd.Index(sorted(questions["gene"].unique()), name="gene")
        values, known = np.zeros((len(conditions), len(genes))), np.zeros((len(conditions), len(genes)), dtype=bool)
    else:
        conditions, genes = truth.effects.conditions, truth.effects.genes
        values = truth.effects.values.copy()
        known = np.ones(values.shape, dtype=bool) if truth.effects.known is None else truth.effects.known.copy()
    row = pd.MultiIndex.from_frame(conditions).get_indexer(pd.MultiIndex.from_frame(questions[keys].astype(str)))
    column = genes.get_indexer(questions["gene"])
    if (absent := (row < 0) | (column < 0)).any():
        raise InputError(
            "is asked, and is not among the measured effects",
            key="effects",
            value=tuple(questions.loc[absent, [*keys, "gene"]].iloc[0]),
            remedy="give effects of every condition and readout gene that is asked about, unknown ones by known=",
        )
    if truth.effects is None:
        effect = questions["effect"].to_numpy(dtype=np.float64)
        known[row, column] = np.isfinite(effect)
        values[row, column] = np.where(np.isfinite(effect), effect, 0.0)
    p_adjusted = np.full(values.shape, np.nan)
    p_adjusted[row, column] = questions["p_adjusted"].to_numpy(dtype=np.float64)
    own = np.zeros(values.shape, dtype=bool)
    for position, targets in questions["targets"].groupby(row).first().items():
        own[position] = genes.isin(str(targets).split("+"))
    regimes = questions.loc[questions["regime"] != "ambiguous"].groupby(keys, observed=True)["regime"].first()
    regime = regimes.astype(object).reindex(pd.MultiIndex.from_frame(conditions)).fillna("").to_numpy(dtype=object)
    statistic = None if truth.effects is None else truth.effects.statistic
    return Measured(conditions.assign(regime=regime), genes, values, known, p_adjusted, own, statistic)


def laid_out(
    effects: Effects, measured: Measured, *, values: np.ndarray | None = None, missing: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions in the measured layout, which pairs have one, and which conditions have none."""
    have = pd.MultiIndex.from_frame(effects.conditions)
    row = have.get_indexer(pd.MultiIndex.from_frame(measured.conditions[["context", "perturbation"]]))
    column = effects.genes.get_indexer(measured.genes)
    ok = (row >= 0) & (effects.status[np.maximum(row, 0)] == "ok") if len(have) else np.zeros(len(row), dtype=bool)
    rows, columns = np.flatnonzero(ok), np.flatnonzero(column >= 0)
    there = np.zeros((len(row), len(column)), dtype=bool)
    source = np.ix_(row[rows], column[columns])
    target = np.ix_(rows, columns)
    there[target] = True if effects.known is None else effects.known[source]
    made = np.full(there.shape, missing)
    made[target] = (effects.values if values is None else values)[source]
    made[~there] = missing
    return made, there, ~ok
