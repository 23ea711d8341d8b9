"""An experiment's runs held against the published table: ours, theirs and the difference, and what was not run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from pertbase.errors import InputError, unknown_name
from pertbase.runs._compose import expand
from pertbase.runs._experiment import CPU, ColumnSpec, Experiment, RowSpec, TableSpec
from pertbase.runs._names import Names
from pertbase.runs._plan import plan_of
from pertbase.runs._reports._figures import BY_REGIME, EXPRESSION, SCORES, Cells, Figure, Planned
from pertbase.runs._reports._published import Published, read_published
from pertbase.runs._store import find_runs

__all__ = ["Reproduction", "Row", "reproduce"]

_OPEN = "???"


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the table: a published row, a run of ours, or both.

    Parameters
    ----------
    label
        The published row's name, else the run's.
    run
        The run's name; None where no run of ours can be.
    part
        Of the experiment, that makes the run.
    published
        Column -> published figure; empty where none is known.
    ours
        Column -> figure, or why there is none: ``not run``, ``failed``, ``interrupted``, ``skipped``, ``running``.
    note
        What is to be known.
    """

    label: str
    run: str | None
    part: str
    published: Mapping[str, float]
    ours: Mapping[str, Figure | str]
    note: str

    def difference(self, column: str, mean_of: int | None) -> float:
        """Return ours less theirs; NaN where either is not known, or ours is over other folds than theirs."""
        found = self.ours.get(column)
        if not isinstance(found, Figure) or (mean_of is not None and found.n_folds != mean_of):
            return math.nan
        return found.value - self.published.get(column, math.nan)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """An experiment's table.

    Parameters
    ----------
    experiment
        Which one.
    folder
        Where its runs were looked for.
    published
        What they are held against.
    columns
        The published columns, then those of ours alone.
    rows
        The published rows, then runs of ours that none of them names.
    notes
        Runs with other settings than the experiment's, seeds and folds that are missing.
    """

    experiment: Experiment
    folder: Path
    published: Published
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @cached_property
    def figures(self) -> list[tuple[Row, str, Figure]]:
        """Every figure of ours, by row and column."""
        return [
            (row, column, found)
            for row in self.rows
            for column in self.columns
            if isinstance(found := row.ours.get(column), Figure)
        ]

    @property
    def simulated(self) -> bool:
        """Whether any of ours is of simulated cells."""
        return any(run.scores.get("simulated") for _, _, figure in self.figures for run in figure.runs)

    def column(self, name: str) -> ColumnSpec | None:
        """Return what of ours stands in a column; None where it is published alone."""
        table = self.experiment.table
        return None if table is None else table.columns.get(name)

    def difference(self, row: Row, column: str) -> float:
        """Return ours less theirs in one cell."""
        about = self.column(column)
        return row.difference(column, None if about is None else about.mean_of)

    def table(self) -> pd.DataFrame:
        """Return one line a row and column, with the runs that ours comes from: what a spreadsheet reads."""
        lines = []
        for row in self.rows:
            for column in self.columns:
                found, about = row.ours.get(column, "no such score"), self.column(column)
                figure = found if isinstance(found, Figure) else None
                lines.append(
                    {
                        "experiment": self.experiment.name,
                        "row": row.label,
                        "run": row.run or "",
                        "column": column,
                        "score": about.score if about else "",
                        "adapter": about.adapter if about and not about.score.startswith(EXPRESSION) else "",
                        "state": "run" if figure else found,
                        "ours": figure.value if figure else math.nan,
                        "low": figure.low if figure else math.nan,
                        "high": figure.high if figure else math.nan,
                        "spread": figure.spread if figure else math.nan,
                        "seeds": figure.n_seeds if figure else 0,
                        "folds": figure.n_folds if figure else 0,
                        "published": row.published.get(column, math.nan),
                        "difference": self.difference(row, column),
                        "runs": ";".join(str(run.folder) for run in figure.runs) if figure else "",
                    }
                )
        return pd.DataFrame(lines)


def reproduce(experiment: Experiment, runs: str | Path, names: Names) -> Reproduction:
    """Hold the runs below a folder against an experiment's published table.

    Parameters
    ----------
    experiment
        With a table.
    runs
        The folder; runs that the experiment does not list are passed over. Where there is none, nothing was run.
    names
        What can be named.

    Raises
    ------
    InputError
        Where the experiment has no table, or names a row, run or score that there is not.
    """
    table = experiment.table
    if table is None:
        raise InputError(
            "is held against no published table",
            file=experiment.file,
            key="experiment",
            value=experiment.name,
            remedy="`pertbase report` shows its runs",
        )
    figures = read_published(table.published, config_dirs=names.config_dirs, file=experiment.file)
    planned = _planned(experiment, names)
    _check(table, figures, planned, experiment.file)
    absent = () if Path(runs).is_dir() else (f"there is no folder {runs}: nothing was run",)
    found = [] if absent else find_runs(runs)
    theirs = [str(name) for name in figures.table.columns]
    columns = (*theirs, *(name for name in table.columns if name not in theirs))
    cells = Cells(table, planned, found)
    held = [(str(name), table.rows.get(str(name), RowSpec(note="no run of ours"))) for name in figures.table.index]
    own = {about.run for _, about in held}
    held += [(name, RowSpec(run=name)) for name in planned if name not in own]
    rows = tuple(_row(label, about, columns, figures, planned, cells) for label, about in held)
    return Reproduction(experiment, Path(runs), figures, columns, rows, (*absent, *cells.notes))


def _row(
    label: str,
    about: RowSpec,
    columns: Sequence[str],
    figures: Published,
    planned: Mapping[str, Planned],
    cells: Cells,
) -> Row:
    known = figures.table.loc[label].dropna().to_dict() if label in figures.table.index else {}
    ours: dict[str, Figure | str] = {}
    for column in columns:
        if column in cells.table.columns:
            ours[column] = "not run" if about.run is None else cells.get(about.run, column)
    part = CPU if about.run is None else planned[about.run].part
    return Row(label, about.run, part, {str(name): float(value) for name, value in known.items()}, ours, about.note)


def _planned(experiment: Experiment, names: Names) -> dict[str, Planned]:
    """Return what the experiment lists, by the runs' names; what it leaves open is as its configuration has it."""
    found: dict[str, Planned] = {}
    presets: dict[str, str] = {}
    for part, entry in experiment.entries:
        options = [f"{key}={value}" for key, value in entry.items() if value != _OPEN]
        jobs: dict[tuple[str, ...], list[int]] = {}
        for job in expand(options, names, multirun=True):
            seeds = [int(text.removeprefix("seed=")) for text in job if text.startswith("seed=")]
            jobs.setdefault(tuple(text for text in job if not text.startswith("seed=")), []).extend(seeds or [0])
        for options_of_one, seeds in jobs.items():
            plan = plan_of(options_of_one, names, presets)
            new = Planned((plan,), part, tuple(seeds))
            found[plan.name] = found[plan.name].joined(new, experiment.file) if plan.name in found else new
    return found


def _check(table: TableSpec, figures: Published, planned: Mapping[str, Planned], file: str) -> None:
    """Raise where the table names what there is not."""
    from pertbase.scorers import EXPRESSION_METRICS

    scores = (*SCORES, *(f"{EXPRESSION}{name}" for name in EXPRESSION_METRICS))
    for name, column in table.columns.items():
        if column.score not in scores:
            raise unknown_name(f"score of table.columns.{name}", column.score, scores, file=file)
        if column.regime and column.score.removeprefix(EXPRESSION) == column.score and column.score not in BY_REGIME:
            raise unknown_name(f"score by regime of table.columns.{name}", column.score, BY_REGIME, file=file)
    for row, about in table.rows.items():
        if row not in figures.table.index:
            raise unknown_name("published row", row, map(str, figures.table.index), file=file)
        if about.run is not None and about.run not in planned:
            raise unknown_name(f"run of table.rows.{row}", about.run, planned, file=file)
