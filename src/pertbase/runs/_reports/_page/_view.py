"""One fold with its runs, as the page reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from pertbase.folds import OUTCOMES
from pertbase.runs._reports._page._dots import Domain, dot_domain
from pertbase.runs._reports._page._table import Cell
from pertbase.runs._reports._report import CEILING, FoldTable, Report
from pertbase.runs._store import Run

__all__ = ["FoldView", "as_float", "compact", "fold_views"]


class FoldView:
    """One fold with its runs in the order they are shown.

    Parameters
    ----------
    table
        Its runs.
    ident
        Unique on the page.
    adapter
        The adapter that plots and one-adapter tables show, where the fold has it.
    domain, heat_domain
        Of balanced accuracy in plots, and in heat maps; the same for all folds of a data set.
    """

    def __init__(
        self, table: FoldTable, *, ident: str, adapter: str, domain: Domain, heat_domain: Domain = (1 / 3, 1.0)
    ) -> None:
        self.table = table
        self.ident = ident
        self.domain, self.heat_domain = domain, heat_domain
        self.adapter = table.main_adapter(adapter)
        self.simulated = table.simulated
        rows = table.rows()
        self.rows = rows.loc[rows["baseline"] != CEILING]
        self.adapters: list[str] = list(dict.fromkeys(self.rows["adapter"]))
        self._rows = {(row["run"], row["adapter"]): row for _, row in self.rows.iterrows()}
        self._none = pd.Series(math.nan, index=self.rows.columns, dtype=object)
        self.runs = self._in_order()

    def _in_order(self) -> list[Run]:
        """Return the runs, best first where the fold ranks them, else by name; those without fitted thresholds last."""
        if not self.table.ranks:
            return list(self.table.runs)

        def place(run: Run) -> tuple[bool, float]:
            value = self.row(run)["balanced_accuracy"]
            # As in the terminal: a row that no threshold was fitted for is no better for being spared that.
            return self.flagged(run), math.inf if math.isnan(value) else -float(value)

        return sorted(self.table.runs, key=place)

    def row(self, run: Run, adapter: str | None = None) -> pd.Series:
        """Return the scores of a run by one adapter; NaN throughout where it was not answered with it."""
        return self._rows.get((str(run.folder), adapter or self.adapter), self._none)

    def flagged(self, run: Run) -> bool:
        """Whether the main adapter should have been fitted and could not be."""
        return bool(self._rows.get((str(run.folder), self.adapter), {}).get("flagged", False))

    def scores(self, run: Run) -> dict[str, Any] | None:
        """Return what ``scores.json`` holds of the main adapter, or None where the run has none."""
        return run.scores["adapters"][self.adapter] if self.adapter in run.adapters else None

    @property
    def ceiling(self) -> float:
        """The corrected split-half ceiling; NaN where there is none or too few questions of a class."""
        ceiling = self.table.certificate.get("ceiling")
        value = ceiling["corrected"] if ceiling and self.table.ranks else None
        return math.nan if value is None else float(value)

    @property
    def level(self) -> str:
        """What intervals are meant to cover."""
        levels = [scores["level"] for run in self.runs if (scores := self.scores(run))]
        return f"{levels[0]:.0%}" if levels else "95%"

    @property
    def n_asked(self) -> int:
        """Test questions with an outcome."""
        return sum(self.table.certificate["questions"]["test"][name] for name in OUTCOMES)

    def name(self, run: Run) -> Cell:
        """Return the cell that heads a run's row."""
        return Cell(self.table.label(run))


def fold_views(report: Report, adapter: str) -> list[FoldView]:
    """Return the folds, with the same axes and colours for all of one data set."""
    ends: dict[str, tuple[Domain, Domain]] = {}
    for data in report.data:
        tables = [table.rows() for table in report.folds if table.data == data and table.ranks]
        rows = pd.concat(tables) if tables else pd.DataFrame({"balanced_accuracy": []})
        names = [f"balanced_accuracy{end}" for end in ("", "_low", "_high")]
        values = [1 / 3, *rows.filter(names).astype(float).to_numpy().ravel().tolist()]
        best = [value for value in rows["balanced_accuracy"].astype(float) if not math.isnan(value)]
        ends[data] = dot_domain(values), (1 / 3, max([*best, 0.5]))
    return [
        FoldView(
            table,
            ident=f"fold-{position}",
            adapter=adapter,
            domain=ends[table.data][0],
            heat_domain=ends[table.data][1],
        )
        for position, table in enumerate(report.folds, start=1)
    ]


def as_float(value: float | None) -> float:
    """Return NaN for None, which is what JSON has for it."""
    return math.nan if value is None else float(value)


def compact(value: Any) -> str:
    """Return a configuration on one line; what is not given is left out."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}: {{{compact(item)}}}" if isinstance(item, Mapping) else f"{key}: {compact(item)}"
            for key, item in value.items()
            if item is not None
        )
    return str(value)
