"""What the runs say together: one table a fold, one mean a data set, differences between two rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._intervals import Interval
from pertbase._pictures import marked
from pertbase.errors import InputError, unknown_name
from pertbase.folds import read_manifest
from pertbase.runs._reports._fold_table import CEILING, FoldTable, check_adapter
from pertbase.runs._store import MAIN, Run, find_runs

__all__ = ["CEILING", "MAIN", "SHORTCUTS", "FoldTable", "Report", "collect", "marked", "refuse_other_folds"]

SHORTCUTS = ("gene_prior_balanced", "basal_expression", "reachability", "asked_elsewhere", "cross_context")
"""The nested predictors of the shortcut decomposition, in their order; those that were run are used."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Runs, by fold.

    Parameters
    ----------
    runs
        The folder they are in.
    folds
        One table a fold.
    unfinished
        Runs that failed or did not come to an end.
    skipped
        Runs that turned out impossible while fitting.
    """

    runs: Path
    folds: tuple[FoldTable, ...]
    unfinished: tuple[Run, ...]
    skipped: tuple[Run, ...] = ()

    def rows(self) -> pd.DataFrame:
        """Return every row of every fold."""
        tables = [table.rows() for table in self.folds]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets, sorted."""
        return tuple(sorted({table.data for table in self.folds}))

    def __getitem__(self, name: str) -> FoldTable:
        """Return the table of a fold, by its name, or by ``DATA/FOLD`` where several data sets have one of it."""
        several = len(self.data) > 1
        found = {f"{table.data}/{table.fold}" if several else table.fold: table for table in self.folds}
        if name not in found:
            raise unknown_name("fold", str(name), found, file=self.runs)
        return found[name]

    def __repr__(self) -> str:
        from pertbase.runs._reports._report_view import report_line

        return report_line(self)

    def _repr_html_(self) -> str:
        from pertbase.runs._reports._report_view import report_html

        return report_html(self, MAIN)

    def grid(self, data: str, *, adapter: str = MAIN) -> pd.DataFrame:
        """Return balanced accuracy, baselines x folds of one data set; see :func:`pertbase.plot.table`.

        Raises
        ------
        InputError
            For a data set or adapter that no run is of.
        """
        self._check(data, adapter)
        from pertbase.runs._reports._report_view import grid

        return grid(self, data, adapter)

    def _check(self, data: str, adapter: str) -> None:
        if data not in self.data:
            raise unknown_name("data", str(data), self.data)
        check_adapter(self.folds, adapter)

    def means(self, data: str, *, adapter: str = MAIN, level: float = 0.95) -> pd.DataFrame:
        """Return the mean balanced accuracy of each baseline over a data set's folds, with joint intervals.

        Only folds that can rank baselines, and only those a baseline ran on: ``n_folds`` says how many. Rows with
        different folds cannot be compared; ``compare`` pairs them. ``n_flagged`` counts the folds whose thresholds
        could not be fitted.

        Raises
        ------
        InputError
            For a data set or adapter that no run is of.
        """
        from pertbase.scorers import average

        self._check(data, adapter)

        rows = []
        for name, seed in self._names(data):
            found = [
                (run, table.truth)
                for table in self._of(data)
                if table.ranks
                for run in table.runs
                if (run.config["name"], run.config["seed"]) == (name, seed) and adapter in run.adapters
            ]
            if not found:
                continue
            mean = average([(run.answers(adapter), truth) for run, truth in found], level=level)
            interval = mean.balanced_accuracy
            rows.append(
                {
                    "baseline": name,
                    "seed": seed,
                    "balanced_accuracy": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "n_folds": mean.n_folds,
                    "n_flagged": sum(
                        bool(run.scores["adapters"][adapter]["adapter"].get("flagged")) for run, _ in found
                    ),
                    "notes": "; ".join(mean.notes),
                }
            )
        table = pd.DataFrame(rows)
        return (
            table.sort_values(["n_folds", "balanced_accuracy"], ascending=False, ignore_index=True) if rows else table
        )

    def differences(self, first: str, second: str, *, adapter: str = MAIN, level: float = 0.95) -> pd.DataFrame:
        """Return the paired difference of two rows, ``first - second``, on the same questions: per fold and over all.

        Raises
        ------
        InputError
            Where a name or adapter is none of the runs', or the two share no fold.
        """
        from pertbase.scorers import compare, compare_many

        check_adapter(self.folds, adapter)
        known = {str(run.config["name"]) for table in self.folds for run in table.runs}
        for name in (first, second):
            if name not in known:
                raise unknown_name("compare", str(name), known)
        rows = []
        for data in self.data:
            pairs = []
            for table in self._of(data):
                for a, b in self._paired(table, first, second):
                    one = (a.answers(adapter), b.answers(adapter), table.truth)
                    difference = compare(*one, level=level)
                    rows.append(_difference_row(data, table.fold, a.config["seed"], difference.balanced_accuracy))
                    if a.config["seed"] == b.config["seed"] and table.ranks:
                        pairs.append(one)
            if len(pairs) > 1:
                joint = compare_many(pairs, level=level).balanced_accuracy
                rows.append(_difference_row(data, f"mean of {len(pairs)}", "", joint))
        if not rows:
            raise InputError("the two share no fold and seed", key="compare", value=f"{first},{second}")
        return pd.DataFrame(rows)

    def decomposition(self, table: FoldTable, *, adapter: str = MAIN, seed: int = 0) -> pd.DataFrame:
        """Return what each baseline of a fold adds to the nested shortcuts: the gain over all of them, and each step.

        Empty where no shortcut was run.
        """
        from pertbase.scorers import ShortcutLadder

        runs = [run for run in table.runs if adapter in run.adapters]
        # Of several seeds, the first stands for a shortcut; candidates are all shown.
        by_name = {str(run.config["name"]): run for run in reversed(runs)}
        nested = {name: by_name[name].answers(adapter) for name in SHORTCUTS if name in by_name}
        if not nested:
            return pd.DataFrame()
        ladder = ShortcutLadder(nested, table.truth, seed=seed)
        blocks = []
        for run in runs:
            if run.config["name"] in nested:
                continue
            found = ladder.add(run.answers(adapter))
            steps = found.table.reset_index()
            # A fold where it cannot be had has no steps; the row that says why stays.
            steps = steps if len(steps) else pd.DataFrame([dict.fromkeys(steps.columns)])
            blocks.append(steps.assign(baseline=table.label(run), note=found.note))
        return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame()

    def _of(self, data: str) -> list[FoldTable]:
        return [table for table in self.folds if table.data == data]

    def _names(self, data: str) -> list[tuple[str, int]]:
        return sorted(
            {(str(run.config["name"]), int(run.config["seed"])) for table in self._of(data) for run in table.runs}
        )

    @staticmethod
    def _paired(table: FoldTable, first: str, second: str) -> list[tuple[Run, Run]]:
        of = {(str(run.config["name"]), int(run.config["seed"])): run for run in table.runs}
        return [(run, of[second, seed]) for (name, seed), run in of.items() if name == first and (second, seed) in of]


def _difference_row(data: str, fold: str, seed: Any, interval: Interval) -> dict[str, Any]:
    return {
        "data": data,
        "fold": fold,
        "seed": seed,
        "difference": interval.value,
        "low": interval.low,
        "high": interval.high,
        "note": interval.note,
    }


def collect(runs: str | Path, *, data: Sequence[str] = (), fold: Sequence[str] = ()) -> Report:
    """Read the runs below a folder.

    Parameters
    ----------
    runs
        The folder.
    data, fold
        Names to keep; all where empty.

    Raises
    ------
    InputError
        Where there is no run, a name is that of none, or runs of one name were made on folds with different content:
        their numbers do not belong in one table.
    """
    found = find_runs(runs)
    if not found:
        raise InputError(
            "holds no runs", file=runs, key="runs", remedy="run something first: pertbase run runs=FOLDER ..."
        )
    for key, asked in (("data", data), ("fold", fold)):
        there = {str(run.config[f"{key}_name"]) for run in found}
        for name in asked:
            # A name that nothing has would silently leave out what was meant.
            if name not in there:
                raise unknown_name(key, name, there, file=runs)
    kept = [
        run
        for run in found
        if (not data or run.config["data_name"] in data) and (not fold or run.config["fold_name"] in fold)
    ]
    if not kept:
        known = sorted({f"{run.config['data_name']}/{run.config['fold_name']}" for run in found})
        raise InputError(
            "no run is of that data and fold", file=runs, value=[*data, *fold], remedy=f"there are {', '.join(known)}"
        )
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in kept:
        if run.complete:
            groups.setdefault((run.config["data_name"], run.config["fold_name"]), []).append(run)
    tables = [_table(key, members) for key, members in sorted(groups.items())]
    states = [run.status["state"] for run in kept]
    return Report(
        Path(runs),
        tuple(tables),
        tuple(run for run, state in zip(kept, states, strict=True) if state not in ("complete", "skipped")),
        tuple(run for run, state in zip(kept, states, strict=True) if state == "skipped"),
    )


def refuse_other_folds(data: str, fold: str, runs: Sequence[Run]) -> None:
    """Raise where runs of one data set and fold were made on folds with different content."""
    by_hash: dict[str, list[Run]] = {}
    for run in runs:
        by_hash.setdefault(run.config["fold_hash"], []).append(run)
    if len(by_hash) > 1:
        told = "; ".join(
            f"{value[:12]}: {', '.join(sorted(run.config['name'] for run in members))}"
            for value, members in by_hash.items()
        )
        raise InputError(
            f"runs of {data}/{fold} were made on {len(by_hash)} different folds",
            file=runs[0].folder.parents[1],
            key="fold_hash",
            value=told,
            remedy="run them again on one fold, or move one group to another folder",
        )


def _table(key: tuple[str, str], runs: list[Run]) -> FoldTable:
    refuse_other_folds(*key, runs)
    manifest = read_manifest(runs[0].fold_folder)
    runs = sorted(runs, key=lambda run: (str(run.config["name"]), int(run.config["seed"])))
    return FoldTable(
        key[0],
        key[1],
        runs[0].config["fold_hash"],
        bool(manifest["simulated"]),
        manifest,
        tuple(runs),
        runs[0].fold_folder,
    )
