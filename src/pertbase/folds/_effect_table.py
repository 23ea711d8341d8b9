"""The effect table: a data set of measured effects without cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from pertbase._html import shown
from pertbase._io import canonical_json, sha256_text
from pertbase.errors import InputError, unknown_name
from pertbase.folds._cells import hash_frame
from pertbase.folds._condition_tests import check_statistic
from pertbase.folds._effects import Statistic
from pertbase.folds._perturbation import Perturbation, perturbation_table

__all__ = ["PAIR", "EffectTable", "pair_error"]

PAIR = ["context", "perturbation", "gene"]
"""What names one effect."""

_SPLITS = ("train", "val", "test")
_MEASURED = ("p_value", "p_adjusted", "standard_error", "n_cells", "split", "regime")


@dataclass(frozen=True, eq=False, repr=False)
class EffectTable:
    """Measured effects of (context, perturbation, readout gene) with their significance, from somebody's analysis.

    A label rule turns them into outcomes, as it does those of a screen. There are no cells and no basal expression, so
    that baselines which need expression do not run on its folds.

    Parameters
    ----------
    name
        The data set's name, part of every question's id.
    table
        ``context``, ``perturbation``, ``gene``, ``effect`` (natural log), ``p_value``, ``p_adjusted``,
        ``standard_error`` (NaN where not known), ``n_cells`` (0 where not known) and, where the data set ships them,
        ``split`` and ``regime``, one of each a condition. Rows are sorted on creation.
    perturbations
        Every name in ``table["perturbation"]``, and what it means.
    statistic
        Of the effects.
    simulated
        Whether they come out of a simulation.
    file
        Where it was read from.

    Raises
    ------
    InputError
        For missing columns or values, p-values outside 0 to 1, unknown splits or perturbations, pairs given twice, and
        conditions in two splits or regimes.
    """

    name: str
    table: pd.DataFrame
    perturbations: Mapping[str, Perturbation]
    statistic: Statistic
    simulated: bool = False
    file: str | None = None

    def __post_init__(self) -> None:
        check_statistic(self.statistic)
        object.__setattr__(self, "table", _checked(self.table, self.perturbations, self.file))

    @cached_property
    def contexts(self) -> tuple[str, ...]:
        """The contexts, sorted."""
        return tuple(sorted(self.table["context"].unique()))

    @cached_property
    def genes(self) -> pd.Index:
        """The readout genes, sorted."""
        return pd.Index(sorted(self.table["gene"].unique()), name="gene", dtype=object)

    @property
    def has_split(self) -> bool:
        """Whether the data set ships a split."""
        return "split" in self.table.columns

    @cached_property
    def conditions(self) -> pd.DataFrame:
        """One row a condition, the columns of a screen's; ``n_cells`` is the largest number of its pairs."""
        first = {"n_cells": ("n_cells", "max")}
        for column, name in (("split", "published"), ("regime", "published_regime")):
            if column in self.table.columns:
                first[name] = (column, "first")
        table = self.table.groupby(PAIR[:2], sort=True).agg(**first).reset_index()
        about = [self.perturbations[name] for name in table["perturbation"]]
        return table.assign(
            modality=[item.modality for item in about],
            mechanism=[item.mechanism for item in about],
            targets=["+".join(item.targets) for item in about],
            target_set=[item.split_key for item in about],
            n_parts=[len(item.parts) for item in about],
        )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of every row, the statistic and what the perturbations mean."""
        return sha256_text(
            canonical_json(
                {
                    "rows": hash_frame(self.table),
                    "statistic": self.statistic,
                    "perturbations": hash_frame(perturbation_table(self.perturbations)),
                }
            )
        )

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        title = f"EffectTable {self.name!r}" + (" (simulated)" if self.simulated else "")
        return (
            f"{title}: {len(self.table):,} effects ({self.statistic}), {len(self.contexts)} contexts, "
            f"{len(self.conditions):,} conditions, {len(self.genes):,} readout genes"
            + ("" if self.has_split else ", no split")
        )

    def _repr_html_(self) -> str:
        return shown(repr(self), self.table.head(6), index=False)


def _checked(table: pd.DataFrame, perturbations: Mapping[str, Perturbation], file: str | None) -> pd.DataFrame:
    """Return the table sorted, in fixed column order, after every check."""
    needed = [*PAIR, "effect", *_MEASURED[:4]]
    missing = [column for column in needed if column not in table.columns]
    if missing or not len(table):
        raise InputError("an effect table lacks columns or rows", file=file, key="table", value=missing)
    made = table[[*needed, *(column for column in _MEASURED[4:] if column in table.columns)]]
    made = made.sort_values(PAIR, kind="stable", ignore_index=True)
    for column in ("effect", "p_value", "p_adjusted"):
        bad = ~np.isfinite(made[column].to_numpy(dtype=np.float64))
        if column != "effect":
            bad |= ~made[column].between(0, 1).to_numpy()
        if bad.any():
            remedy = "drop those rows, or mend them" if column == "effect" else "a p-value lies between 0 and 1"
            raise pair_error(f"{int(bad.sum())} rows have no valid value", column, made, bad, file, remedy)
    if (twice := made.duplicated(PAIR).to_numpy()).any():
        raise pair_error("a pair is given twice", ", ".join(PAIR), made, twice, file, "keep one row of each")
    for column, allowed in (("perturbation", tuple(perturbations)), ("split", _SPLITS)):
        unknown = sorted(set(made[column]) - set(allowed)) if column in made else []
        if unknown:
            raise unknown_name(column, unknown[0], allowed if len(allowed) < 20 else (), file=file)
    for column in ("split", "regime"):
        if column in made and (made.groupby(PAIR[:2])[column].nunique() > 1).any():
            counts = made.groupby(PAIR[:2])[column].nunique()
            raise InputError(f"a condition has two values of {column}", file=file, key=column, value=counts.idxmax())
    return made


def pair_error(
    problem: str, key: str, table: pd.DataFrame, rows: np.ndarray, file: str | None, remedy: str
) -> InputError:
    """Return the error that names the first of some rows."""
    row = table.iloc[int(np.flatnonzero(rows)[0])]
    return InputError(problem, file=file, key=key, value=tuple(row[[*PAIR, "effect"]]), remedy=remedy)
