"""The figures of ours in a table: which runs give them, and what is to be said of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from pertbase._io import plain
from pertbase.errors import InputError
from pertbase.folds import read_truth
from pertbase.runs._experiment import ColumnSpec, TableSpec
from pertbase.runs._plan import Plan
from pertbase.runs._reports._report import refuse_other_folds
from pertbase.runs._store import Run, flat

__all__ = ["BY_REGIME", "EXPRESSION", "SCORES", "Cells", "Figure", "Planned"]

EXPRESSION = "expression."
SCORES = (
    "balanced_accuracy", "accuracy", "micro_f1", "macro_f1", "weighted_f1", "auroc_called", "auroc_direction",
    "coverage", "supported_balanced_accuracy",
)  # fmt: skip
"""What a column may show of an adapter's answers; of predicted effects, ``expression.`` and a metric."""

BY_REGIME = ("balanced_accuracy", "accuracy", "macro_f1", "coverage")
# Where a data set lies, and what is said of it, does not change what it holds.
_PLACES = ("path", "folder", "url", "source", "licence", "citation", "checksum", "size", "fold")


@dataclass(frozen=True)
class Figure:
    """What our runs give for one cell of the table.

    Parameters
    ----------
    value
        The score; of several seeds their mean, of several folds the mean over these. NaN where there is none.
    low, high
        Ends of its interval, for one seed and scores that have one; else NaN.
    spread
        Standard deviation over seeds; NaN for one.
    n_seeds, n_folds
        How many it is from.
    runs
        Every run it comes from.
    """

    value: float
    low: float
    high: float
    spread: float
    n_seeds: int
    n_folds: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, eq=False)
class Planned:
    """The runs of one name that an experiment lists: on one or several folds, with one or several seeds."""

    plans: tuple[Plan, ...]
    part: str
    seeds: tuple[int, ...]

    def of(self, run: Run) -> Plan:
        """Return the plan that a run carried out."""
        kind = (run.config.get("fold") or {}).get("kind")
        return next((plan for plan in self.plans if plan.spec.kind == kind), self.plans[0])

    def joined(self, other: Planned, file: str) -> Planned:
        """Return both; of one name there is one baseline."""
        name, first, second = self.plans[0].name, self.plans[0].config["baseline"], other.plans[0].config["baseline"]
        if first != second:
            raise InputError(
                "is listed with different settings", file=file, key="name", value=name, remedy="give one name: another"
            )
        seeds = tuple(dict.fromkeys((*self.seeds, *other.seeds)))
        return Planned((*self.plans, *other.plans), self.part, seeds)


class Cells:
    """Looks the figures of ours up, and keeps what is to be said of them."""

    def __init__(self, table: TableSpec, planned: Mapping[str, Planned], runs: Sequence[Run]) -> None:
        self.table = table
        self._notes: dict[str, list[str]] = {}
        self._planned = planned
        self._of: dict[str, list[Run]] = {}
        for run in runs:
            if str(run.config["name"]) in planned:
                self._of.setdefault(str(run.config["name"]), []).append(run)

    def get(self, name: str, column: str) -> Figure | str:
        """Return the figure of a run in a column, or why there is none."""
        about, planned = self.table.columns[column], self._planned[name]
        held = [run for run in self._of.get(name, ()) if _is_of(run, about, planned)]
        complete = [run for run in held if run.complete]
        if not complete:
            return next((run.state for run in held), "not run")
        folds = self._by_fold(complete)
        seeds = sorted({int(run.config["seed"]) for run in complete})
        if about.mean_of is None and len(folds) > 1:
            told = ", ".join(sorted(f"{data}/{fold}" for data, fold in folds))
            raise InputError(
                "means one fold, and runs of several fit it",
                key=f"table.columns.{column}",
                value=told,
                remedy="say data: and fold:, or mean_of:",
            )
        figures = [_figure(about, [run for run in complete if int(run.config["seed"]) == seed]) for seed in seeds]
        self._note(name, column, planned, complete, seeds, len(folds))
        values = np.array([value for value, _, _ in figures])
        one = len(seeds) == 1
        return Figure(
            value=float(values.mean()),
            low=figures[0][1] if one else math.nan,
            high=figures[0][2] if one else math.nan,
            spread=math.nan if one else float(values.std(ddof=1)),
            n_seeds=len(seeds),
            n_folds=len(folds),
            runs=tuple(complete),
        )

    @staticmethod
    def _by_fold(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
        folds: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            folds.setdefault((str(run.config["data_name"]), str(run.config["fold_name"])), []).append(run)
        for (data, fold), members in folds.items():
            refuse_other_folds(data, fold, members)
        return folds

    def _note(
        self, name: str, column: str, planned: Planned, runs: Sequence[Run], seeds: list[int], n_folds: int
    ) -> None:
        mean_of = self.table.columns[column].mean_of
        if missing := sorted(set(planned.seeds) - set(seeds)):
            told = ", ".join(map(str, missing))
            self._say(name, f"{len(seeds)} of {len(planned.seeds)} seeds were run; not seed {told}")
        if mean_of is not None and n_folds != mean_of:
            self._say(name, f"a mean over {n_folds} of {mean_of} folds, and so without a difference")
        for run in runs:
            if changed := _changed(run, planned.of(run)):
                self._say(f"{name}, seed {run.config['seed']}", f"other settings: {'; '.join(changed)}")

    def _say(self, name: str, text: str) -> None:
        names = self._notes.setdefault(text, [])
        if name not in names:
            names.append(name)

    @property
    def notes(self) -> list[str]:
        """What is to be said of the figures that were looked up; of several runs at once where it is the same."""
        return [f"{', '.join(names)}: {text}" for text, names in self._notes.items()]


def _is_of(run: Run, about: ColumnSpec, planned: Planned) -> bool:
    plan = planned.of(run)
    data = about.data or str(plan.config["data"].get("name") or plan.data)
    return (
        fnmatchcase(str(run.config["data_name"]), data)
        and str(run.config["fold_name"]) == (about.fold or plan.spec.name)
        and int(run.config["seed"]) in planned.seeds
    )


def _changed(run: Run, plan: Plan) -> list[str]:
    """Return how a run's settings differ from those of the experiment; nothing where they are the same."""
    spec = {key: value for key, value in plan.spec.to_dict().items() if value is not None}
    data = {key: value for key, value in plan.config["data"].items() if key not in _PLACES and value is not None}
    pairs = (
        ("data", data, run.config.get("data") or {}),
        ("fold", spec, run.config.get("fold") or {}),
        ("baseline", plan.config["baseline"], run.config["baseline"]),
        ("adapters", plan.config["adapters"], run.config["adapters"]),
    )
    return [line for key, wanted, kept in pairs for line in _unlike(key, plain(wanted), kept)]


def _unlike(prefix: str, wanted: Any, kept: Any) -> Iterator[str]:
    first, second = flat(wanted, prefix), flat(kept, prefix)
    for key, value in first.items():
        if value != second.get(key, "absent"):
            yield f"{key} is {second.get(key, 'absent')!r}, and {value!r} in the experiment"


def _figure(about: ColumnSpec, runs: Sequence[Run]) -> tuple[float, float, float]:
    """Return the value of one seed with the ends of its interval: of one fold, or the mean over several."""
    if len(runs) == 1:
        return _score(about, runs[0])
    if about.score == "balanced_accuracy" and about.regime is None:
        from pertbase.scorers import average

        pairs = [(run.answers(about.adapter), read_truth(run.fold_folder)) for run in runs]
        found = average(pairs).balanced_accuracy
        return found.value, found.low, found.high
    return float(np.mean([_score(about, run)[0] for run in runs])), math.nan, math.nan


def _score(about: ColumnSpec, run: Run) -> tuple[float, float, float]:
    """Return one run's score with the ends of its interval; NaN where it has none."""
    if about.score.startswith(EXPRESSION):
        return _number(_of_effects(run, about.score.removeprefix(EXPRESSION), about.regime)), math.nan, math.nan
    scores = run.scores["adapters"].get(about.adapter, {})
    if about.regime is None:
        found = scores.get(about.score)
        if isinstance(found, Mapping):
            return _number(found.get("value")), _number(found.get("low")), _number(found.get("high"))
        return _number(found), math.nan, math.nan
    part = (scores.get("by_regime") or {}).get(about.regime, {})
    low, high = (_number(part.get(f"{about.score}_{end}")) for end in ("low", "high"))
    return _number(part.get(about.score)), low, high


def _of_effects(run: Run, metric: str, regime: str | None) -> Any:
    scores = run.scores.get("expression") or {}
    if regime is not None:
        return (scores.get("by_regime") or {}).get(regime, {}).get(metric)
    return (scores.get("metrics") or {}).get(metric, {}).get("mean")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
