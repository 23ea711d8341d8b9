"""Effects: one number per condition and readout gene, measured or predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from pertbase._html import shown
from pertbase._io import write_aside
from pertbase.errors import InputError
from pertbase.folds._cells import read_only
from pertbase.folds._hdf5 import write_hdf5

__all__ = ["STATISTICS", "Effects", "Statistic"]

Statistic = Literal["mean_log", "log_mean"]
STATISTICS = ("mean_log", "log_mean")
_ROWS_SHOWN, _COLUMNS_SHOWN = 6, 8


@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """Changes of mean expression against control.

    Parameters
    ----------
    values
        Shape (n_conditions, n_genes), in the natural-log unit of ``statistic``. Rows of conditions a model
        cannot speak to are zero and marked ``unsupported``.
    conditions
        ``context`` and ``perturbation``, one unique row a row of ``values``.
    genes
        Gene symbols, one a column of ``values``.
    statistic
        ``mean_log`` (difference of mean log1p) or ``log_mean`` (log ratio of count-scale means).
    status
        ``ok`` or ``unsupported``, one a condition; all ``ok`` where not given.
    basal
        Mean log1p of the control, contexts x genes, or None.
    known
        Which values there are, shape of ``values``; all where not given. For predictions that somebody published
        for some pairs only: those absent are zero here, and unsupported to whoever asks for them.

    Raises
    ------
    InputError
        Where shapes or names do not fit, conditions repeat, or a value is NaN or infinite.
    """

    values: np.ndarray
    conditions: pd.DataFrame
    genes: pd.Index
    statistic: Statistic = "mean_log"
    status: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=object))
    basal: pd.DataFrame | None = None
    known: np.ndarray | None = None

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64, copy=True)
        missing = {"context", "perturbation"} - set(self.conditions.columns)
        if missing:
            raise InputError("effects lack condition columns", key="conditions", value=sorted(missing))
        conditions = self.conditions[["context", "perturbation"]].astype(str).reset_index(drop=True)
        genes = pd.Index(self.genes.astype(str), name="gene")
        status = np.asarray(self.status, dtype=object)
        if status.size == 0:
            status = np.full(len(conditions), "ok", dtype=object)
        if self.statistic not in STATISTICS:
            raise InputError(
                "unknown statistic",
                key="statistic",
                value=self.statistic,
                remedy=f"use {' or '.join(STATISTICS)}",
            )
        if values.shape != (len(conditions), len(genes)) or len(status) != len(conditions):
            raise InputError(
                "effects do not fit their conditions and genes",
                key="values",
                value=values.shape,
                remedy=f"expected ({len(conditions)}, {len(genes)})",
            )
        known = None if self.known is None else np.array(self.known, dtype=bool, copy=True)
        if known is not None and known.shape != values.shape:
            raise InputError("known does not fit the values", key="known", value=known.shape)
        if known is not None:
            values[~known] = 0.0
        if conditions.duplicated().any():
            raise InputError(
                "a condition has two rows of effects",
                key="conditions",
                value=tuple(conditions[conditions.duplicated()].iloc[0]),
            )
        if not genes.is_unique:
            raise InputError("a gene has two columns of effects", key="genes", value=genes[genes.duplicated()][0])
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise InputError(
                "an effect is NaN or infinite",
                key="values",
                value=f"{conditions.loc[row, 'context']}, {conditions.loc[row, 'perturbation']}, {genes[column]}",
                remedy="mark conditions a model cannot speak to with status 'unsupported' and zeros",
            )
        if not set(status) <= {"ok", "unsupported"}:
            raise InputError("the status of effects is ok or unsupported", key="status", value=sorted(set(status))[:5])
        object.__setattr__(self, "values", read_only(values))
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "genes", genes)
        object.__setattr__(self, "status", read_only(status))
        object.__setattr__(self, "known", read_only(known))

    @cached_property
    def _rows(self) -> dict[tuple[str, str], int]:
        return {
            key: row
            for row, key in enumerate(zip(self.conditions["context"], self.conditions["perturbation"], strict=True))
        }

    def at(self, questions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Return the effect and the status of each question's condition and readout gene.

        A question whose condition or gene has no effect, or whose effect is not known, gets NaN and ``unsupported``.
        """
        context, contexts = pd.factorize(questions["context"])
        name, names = pd.factorize(questions["perturbation"])
        # One look-up a pair of names, not one a question.
        table = np.array([[self._rows.get((one, other), -1) for other in names] for one in contexts], dtype=np.int64)
        rows = table.reshape(len(contexts), len(names))[context, name]
        columns = self.genes.get_indexer(questions["gene"])
        known = (rows >= 0) & (columns >= 0)
        if self.known is not None:
            known[known] = self.known[rows[known], columns[known]]
        values = np.full(len(questions), np.nan)
        values[known] = self.values[rows[known], columns[known]]
        status = np.full(len(questions), "unsupported", dtype=object)
        status[known] = self.status[rows[known]]
        values[status == "unsupported"] = np.nan
        return values, status

    def select(self, conditions: pd.DataFrame) -> Effects:
        """Return the rows of some conditions, in their order.

        Raises
        ------
        InputError
            Where one has no row.
        """
        keys = list(zip(conditions["context"], conditions["perturbation"], strict=True))
        absent = [key for key in keys if key not in self._rows]
        if absent:
            raise InputError("there is no effect of a condition", key="conditions", value=absent[0])
        rows = np.array([self._rows[key] for key in keys], dtype=np.int64)
        return Effects(
            self.values[rows],
            self.conditions.iloc[rows],
            self.genes,
            self.statistic,
            self.status[rows],
            self.basal,
            None if self.known is None else self.known[rows],
        )

    def frame(self) -> pd.DataFrame:
        """Return the values as a table, (context, perturbation) x genes; NaN where not known."""
        values = self.values if self.known is None else np.where(self.known, self.values, np.nan)
        return pd.DataFrame(values, index=pd.MultiIndex.from_frame(self.conditions), columns=self.genes)

    def write(self, path: str | Path, *, uns: dict[str, Any] | None = None) -> None:
        """Write as ``effects.h5ad``: one row a condition, gene names as ``var_names``."""
        from anndata import AnnData

        obs = self.conditions.assign(status=self.status.astype(str))
        obs.index = pd.Index([str(row) for row in range(len(obs))], name="row")
        adata = AnnData(X=self.values.copy(), obs=obs, var=pd.DataFrame(index=self.genes.copy()))
        adata.uns["pertbase"] = {"kind": "effects", "statistic": self.statistic, **(uns or {})}
        if self.basal is not None:
            # A matrix: as a table it would be a dataset a gene (10 s for 9,000), and a slash in a symbol a group.
            basal = self.basal.reindex(columns=self.genes)
            adata.uns["basal"] = {
                "contexts": basal.index.to_numpy(dtype=object),
                "values": basal.to_numpy(dtype=np.float64),
            }
        if self.known is not None:
            adata.layers["known"] = self.known.astype(np.uint8)
        with write_aside(path) as temporary:
            write_hdf5(adata, temporary)

    @classmethod
    def read(cls, path: str | Path) -> Effects:
        """Read what :meth:`write` wrote.

        Raises
        ------
        InputError
            Where the file is not one of effects.
        """
        from pertbase.folds._screen_files import read_anndata

        adata = read_anndata(path)
        about = adata.uns.get("pertbase", {})
        missing: Sequence[str] = sorted({"context", "perturbation", "status"} - set(adata.obs.columns))
        if about.get("kind") != "effects" or missing:
            raise InputError(
                "is not a file of effects",
                file=path,
                key="obs" if missing else 'uns["pertbase"]["kind"]',
                value=missing or about.get("kind"),
                remedy="write it with pertbase.Effects(...).write(path)",
            )
        basal = adata.uns.get("basal")
        if isinstance(basal, Mapping) and set(basal) == {"contexts", "values"}:
            contexts = pd.Index([str(name) for name in basal["contexts"]], name="context")
            genes = pd.Index(adata.var_names.astype(str), name="gene")
            basal = pd.DataFrame(np.asarray(basal["values"]), contexts, genes)
        return cls(
            np.asarray(adata.X),
            adata.obs[["context", "perturbation"]].astype(str),
            adata.var_names,
            about["statistic"],
            adata.obs["status"].astype(str).to_numpy(dtype=object),
            basal,
            np.asarray(adata.layers["known"]).astype(bool) if "known" in adata.layers else None,
        )

    def __repr__(self) -> str:
        unsupported = int((self.status == "unsupported").sum())
        note = f", {unsupported} unsupported" if unsupported else ""
        if self.known is not None:
            note += f", {int((~self.known).sum()):,} values not known"
        return f"Effects({len(self.conditions)} conditions x {len(self.genes)} genes, {self.statistic}{note})"

    def _repr_html_(self) -> str:
        table = self.frame().iloc[:_ROWS_SHOWN, :_COLUMNS_SHOWN]
        more = f"the first {len(table)} conditions and {table.shape[1]} genes" if table.size < self.values.size else ""
        return shown(repr(self), table, notes=[more] if more else [])
