"""All runs on one fold, as one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._pictures import marked
from pertbase.errors import InputError, unknown_name
from pertbase.folds import FoldSpec, Truth, read_truth, remedies
from pertbase.runs._laid import paths_told
from pertbase.runs._reports._terms import UNANSWERED
from pertbase.runs._store import MAIN, Run

__all__ = ["CEILING", "FoldTable", "check_adapter"]

CEILING = "replicate ceiling"


@dataclass(frozen=True, eq=False, repr=False)
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

    def unspoken(self, adapter: str) -> list[str]:
        """Return what baselines speak of that could not speak to every question: the others are answered no_change."""
        notes = []
        for run in self.runs:
            scores = run.scores["adapters"].get(adapter, {})
            silent, about = scores.get("status", {}).get("unsupported", 0), run.status.get("speaks_of")
            if silent and about:
                spoken = scores["n"] - silent
                notes.append(f"{self.label(run)} speaks of {about}: {spoken:,} of {scores['n']:,} questions")
        return notes

    def laid(self) -> list[str]:
        """Return which paths laid over the fold runs were given, a line for each way to choose them.

        Nothing where all were given the same, or none.
        """
        whose: dict[str, list[str]] = {}
        for run, told in zip(self.runs, paths_told(self.runs), strict=True):
            whose.setdefault(told, []).append(self.label(run))
        return [f"paths that baselines were given: {told}: {', '.join(names)}" for told, names in whose.items() if told]

    def rows(self) -> pd.DataFrame:
        """Return one row a run and adapter: every score, the ceiling first where there is one."""
        rows = [self._ceiling()] if self.certificate.get("ceiling") else []
        laid = zip(self.runs, paths_told(self.runs), strict=True)
        rows += [{**self._row(run, adapter), "paths": told} for run, told in laid for adapter in run.adapters]
        return pd.DataFrame(rows)

    def __getitem__(self, name: str) -> Run:
        """Return a run by what it is called here: its name, and ``NAME, seed N`` where there are several seeds."""
        found = {self.label(run): run for run in self.runs}
        if name not in found:
            raise unknown_name("run", str(name), found, file=self.folder)
        return found[name]

    def __repr__(self) -> str:
        return f"FoldTable({self.title}: {', '.join(self.label(run) for run in self.runs)})"

    def _repr_html_(self) -> str:
        from pertbase.runs._reports._report_view import fold_html

        return fold_html(self, MAIN)

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
        scores = run.scores["adapters"].get(adapter)
        if scores is None:
            raise InputError(
                "holds no scores of an adapter that the run lists",
                file=run.folder / "scores.json",
                key=f"adapters.{adapter}",
                remedy="remove the run's folder, and run it again",
            )
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
            UNANSWERED: scores["n_without_outcome"] / scores["n"] if scores["n"] else math.nan,
            **{
                f"{measure}_{outcome}": _number(values[measure])
                for outcome, values in scores["per_outcome"].items()
                for measure in ("precision", "recall", "f1")
            },
            "flagged": bool(scores["adapter"].get("flagged", False)),
            "thresholds": scores["adapter"],
            "run": str(run.folder),
        }


def check_adapter(tables: Sequence[FoldTable], adapter: str) -> None:
    """Raise for an adapter that no run was answered with; the usual one may be lacking, and another stands for it."""
    known = {name for table in tables for run in table.runs for name in run.adapters}
    if adapter != MAIN and adapter not in known:
        raise unknown_name("adapter", str(adapter), known)


def _spread(name: str, interval: dict[str, Any]) -> dict[str, float]:
    return {
        name: _number(interval["value"]),
        f"{name}_low": _number(interval["low"]),
        f"{name}_high": _number(interval["high"]),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
