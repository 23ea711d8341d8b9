"""What the runs say together: one table a fold, one mean a data set, differences between two rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._intervals import Interval
from pertbase.errors import InputError, unknown_name
from pertbase.folds import FoldSpec, Truth, read_manifest, read_truth, remedies
from pertbase.runs._store import Run, find_runs

__all__ = ["CEILING", "SHORTCUTS", "FoldTable", "Report", "collect", "marked"]

CEILING = "replicate ceiling"
SHORTCUTS = ("gene_prior_balanced", "basal_expression", "reachability", "asked_elsewhere", "cross_context")
"""The nested predictors of the shortcut decomposition, in their order; those that were run are used."""
MAIN = "calibrated"


@dataclass(frozen=True, eq=False)
class FoldTable:
    """All complete runs on one fold.

    Parameters
    ----------
    data, fold, hash, simulated
        Which fold.
    manifest
        Its ``fold.yaml``: notes and certificate among it.
    runs
        The runs, sorted by name and seed.
    folder
        The fold's folder.
    """

    data: str
    fold: str
    hash: str
    simulated: bool
    manifest: dict[str, Any]
    runs: tuple[Run, ...]
    folder: Path

    @cached_property
    def truth(self) -> Truth:
        """The fold's test questions with outcomes."""
        return read_truth(self.folder)

    @property
    def certificate(self) -> dict[str, Any]:
        """What the fold can decide."""
        return dict(self.manifest["certificate"])

    @property
    def ranks(self) -> bool:
        """Whether there are enough test questions of each class to rank baselines."""
        return bool(self.certificate["ranks_baselines"])

    @property
    def remedies(self) -> list[str]:
        """What may help where it cannot rank baselines; empty where it can."""
        counts = self.certificate["questions"]["test"]
        return [] if self.ranks else remedies(FoldSpec.from_dict(self.manifest["spec"]), counts)

    @property
    def title(self) -> str:
        """Data set and fold, and whether the cells are simulated."""
        return f"{marked(self.data, simulated=self.simulated)}: {self.fold}"

    def label(self, run: Run) -> str:
        """Return what a run is called among these: its name, and its seed where there are several."""
        several = len({one.config["seed"] for one in self.runs}) > 1
        return f"{run.config['name']}, seed {run.config['seed']}" if several else str(run.config["name"])

    def main_adapter(self, wanted: str) -> str:
        """Return the adapter asked for where some run was answered with it, else the first there is."""
        known = list(dict.fromkeys(name for run in self.runs for name in run.adapters))
        return wanted if wanted in known or not known else known[0]

    def rows(self) -> pd.DataFrame:
        """Return one row a run and adapter: every score, the ceiling first where there is one."""
        rows = [self._ceiling()] if self.certificate.get("ceiling") else []
        rows += [self._row(run, adapter) for run in self.runs for adapter in run.adapters]
        return pd.DataFrame(rows)

    def _where(self) -> dict[str, Any]:
        return {"data": self.data, "simulated": self.simulated, "fold": self.fold, "fold_hash": self.hash}

    def _ceiling(self) -> dict[str, Any]:
        ceiling = self.certificate["ceiling"]
        value = ceiling["corrected"] if self.ranks else None
        return {**self._where(), "baseline": CEILING, "adapter": "", "balanced_accuracy": _number(value)}

    @staticmethod
    def _pairwise(run: Run) -> dict[str, float]:
        """Return how alike an expression baseline's effects of different perturbations are, and the measured ones."""
        found = run.scores.get("expression", {}).get("pairwise", {})
        return {f"pairwise_{side}": _number(found.get(side)) for side in ("predicted", "measured")}

    def _row(self, run: Run, adapter: str) -> dict[str, Any]:
        scores = run.scores["adapters"][adapter]
        return {
            **self._where(),
            "baseline": run.config["name"],
            "seed": run.config["seed"],
            "adapter": adapter,
            "n": scores["n"],
            **_spread("balanced_accuracy", scores["balanced_accuracy"]),
            **_spread("accuracy", scores["accuracy"]),
            **{name: _number(scores[name]) for name in ("macro_f1", "micro_f1", "weighted_f1")},
            "auroc_called": _number(scores["auroc_called"]["value"]),
            "auroc_direction": _number(scores["auroc_direction"]["value"]),
            "ambiguous": _number(scores["ambiguous"]["share"]),
            "coverage": _number(scores["coverage"]),
            "supported_balanced_accuracy": _number(scores["supported_balanced_accuracy"]["value"]),
            **self._pairwise(run),
            "without_outcome": scores["n_without_outcome"],
            **{
                f"{measure}_{outcome}": _number(values[measure])
                for outcome, values in scores["per_outcome"].items()
                for measure in ("precision", "recall", "f1")
            },
            "flagged": bool(scores["adapter"].get("flagged", False)),
            "thresholds": scores["adapter"],
            "run": str(run.folder),
        }


@dataclass(frozen=True, eq=False)
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

    def means(self, data: str, *, adapter: str = MAIN, level: float = 0.95) -> pd.DataFrame:
        """Return the mean balanced accuracy of each baseline over a data set's folds, with joint intervals.

        Only folds that can rank baselines, and only those a baseline ran on: ``n_folds`` says how many. Rows with
        different folds cannot be compared; ``compare`` pairs them.
        """
        from pertbase.scorers import average

        rows = []
        for name, seed in self._names(data):
            pairs = [
                (run.answers(adapter), table.truth)
                for table in self._of(data)
                if table.ranks
                for run in table.runs
                if (run.config["name"], run.config["seed"]) == (name, seed) and adapter in run.adapters
            ]
            if not pairs:
                continue
            mean = average(pairs, level=level)
            interval = mean.balanced_accuracy
            rows.append(
                {
                    "baseline": name,
                    "seed": seed,
                    "balanced_accuracy": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "n_folds": mean.n_folds,
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
            Where a name is none of the runs', or the two share no fold.
        """
        from pertbase.scorers import compare, compare_many

        known = {str(run.config["name"]) for table in self.folds for run in table.runs}
        for name in (first, second):
            if name not in known:
                raise unknown_name("compare", name, known)
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


def marked(data: str, *, simulated: bool) -> str:
    """Return a data set's name as it stands in titles: nobody may take simulated cells for real ones."""
    return f"{data} (simulated)" if simulated and "simulated" not in data else data


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


def _spread(name: str, interval: dict[str, Any]) -> dict[str, float]:
    return {
        name: _number(interval["value"]),
        f"{name}_low": _number(interval["low"]),
        f"{name}_high": _number(interval["high"]),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


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
        Where there is no run, or runs of one name were made on folds with different content: their numbers do not
        belong in one table.
    """
    found = find_runs(runs)
    if not found:
        raise InputError(
            "holds no runs", file=runs, key="runs", remedy="run something first: pertbase run runs=FOLDER ..."
        )
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


def _table(key: tuple[str, str], runs: list[Run]) -> FoldTable:
    by_hash: dict[str, list[Run]] = {}
    for run in runs:
        by_hash.setdefault(run.config["fold_hash"], []).append(run)
    if len(by_hash) > 1:
        told = "; ".join(
            f"{value[:12]}: {', '.join(sorted(run.config['name'] for run in members))}"
            for value, members in by_hash.items()
        )
        raise InputError(
            f"runs of {key[0]}/{key[1]} were made on {len(by_hash)} different folds",
            file=runs[0].folder.parents[1],
            key="fold_hash",
            value=told,
            remedy="run them again on one fold, or move one group to another folder",
        )
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
