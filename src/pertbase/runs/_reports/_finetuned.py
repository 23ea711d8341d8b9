"""Fine-tuned models in a report: rewards in training, and right answers with a wrong reason, before and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pertbase._intervals import Interval
from pertbase._mean_intervals import mean_interval
from pertbase.baselines.finetuned._rollouts import read_steps
from pertbase.baselines.finetuned._runs import RUN, is_run
from pertbase.runs._reports._learnt import learnt_section
from pertbase.runs._reports._report import FoldTable, Report
from pertbase.runs._reports._section import MISSING, Section
from pertbase.runs._store import Run

__all__ = ["SHARES", "curves", "fifths", "finetuned_sections", "fold_finetuned_sections", "start_of"]

SHARES = ("reward", "outcome", "triplets", "format")
"""What is shown of the steps of a training: the whole, and what it is made of."""
_CELL = "right_answer_wrong_reason"
_REWARD_NOTES = (
    "mean of the first and of the last fifth of the steps, with the standard deviation over them",
    "reward: outcome, triplets (nothing where there is no reference) and format, weighted; each is from 0 to 1",
    "cut off: replies without an end, first and last",
)
_REASON_NOTES = (
    "shares of the questions with a change and a reference; the difference is paired, question by question",
    "controls have the true outcome and, but for the reference itself, a reason that knows nothing",
    "balanced accuracy over all test questions, paired",
)


def finetuned_sections(report: Report, adapter: str) -> list[Section]:
    """Return the tables of a report's fine-tuned models: none where there are none."""
    return [section for table in report.folds for section in fold_finetuned_sections(table, adapter)]


def fold_finetuned_sections(table: FoldTable, adapter: str) -> list[Section]:
    """Return the tables of one fold."""
    sections = (learnt_section(table), _rewards(table), _reasons(table, adapter))
    return [section for section in sections if len(section.table)]


# -- rewards --------------------------------------------------------------------------------------------------


def curves(table: FoldTable) -> Iterator[tuple[Run, list[dict[str, Any]]]]:
    """Yield each run of a fold that was rewarded in training, with its steps."""
    for run in table.runs:
        if steps := _rollouts(run):
            yield run, steps


def _rollouts(run: Run) -> list[dict[str, Any]]:
    """Return the steps in which a run drew replies and was rewarded for them; empty where it was not."""
    folder = (run.status.get("asked") or {}).get("rollouts")
    return read_steps(run.folder / str(folder)) if folder else []


def fifths(values: Sequence[float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last fifth of some numbers, at least one each; those that are not there are left out."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    n = max(1, len(known) // 5)
    return known[:n], known[-n:]


def _rewards(table: FoldTable) -> Section:
    rows = []
    for run, steps in curves(table):
        row = {"answers": table.label(run), "steps": f"{len(steps):,}", "replies": f"{sum(s['n'] for s in steps):,}"}
        for name in SHARES:
            first, last = fifths([step[name] for step in steps])
            row[f"{name}: first"], row[f"{name}: last"] = _spread(first), _spread(last)
            if name == "reward":
                row["rise"] = f"{last.mean() - first.mean():+.3f}" if len(first) else MISSING
        first, last = fifths([step["statuses"].get("truncated", 0) / step["n"] for step in steps])
        row["cut off"] = f"{first.mean():.0%}, {last.mean():.0%}"
        rows.append(row)
    return Section(f"{table.title}: rewards in training", pd.DataFrame(rows), _REWARD_NOTES)


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std():.3f}" if len(values) else MISSING


# -- reasons before and after -----------------------------------------------------------------------------------


def start_of(run: Run, table: FoldTable) -> Run | None:
    """Return the run whose model a run began with, where it is in the table."""
    start = run.config["baseline"].get("start")
    if not isinstance(start, str) or not is_run(start):
        return None
    wanted = (start.removeprefix(RUN), run.config["seed"])
    return next((one for one in table.runs if (one.config["name"], one.config["seed"]) == wanted), None)


def _reasons(table: FoldTable, adapter: str) -> Section:
    """Return the share of right answers with a wrong reason, before and after, with what controls have of it."""
    rows: list[dict[str, str]] = []
    controls: dict[str, dict[str, str]] = {}
    for run in table.runs:
        before = start_of(run, table)
        # Answers as they were given first: those are what was trained.
        for name in dict.fromkeys(["fixed", table.main_adapter(adapter)]) if before is not None else ():
            if before is None or not all(_reasoned(one, name) for one in (run, before)):
                continue
            rows.append(_row(table, run, before, name))
            found = run.scores["adapters"][name]["reasoning"]
            for control, values in found["control_axes"].items():
                share = values[_CELL] / found["n"] if found["n"] else math.nan
                controls.setdefault(control, {"answers": f"control: {control}", "after": _number(share)})
    shown = pd.DataFrame([*rows, *controls.values()]).fillna(MISSING) if rows else pd.DataFrame()
    title = f"{table.title}: right answers with a wrong reason, before and after training"
    return Section(title, shown, _REASON_NOTES)


def _reasoned(run: Run, adapter: str) -> bool:
    return adapter in run.adapters and bool(run.scores["adapters"][adapter].get("reasoning"))


def _row(table: FoldTable, run: Run, before: Run, adapter: str) -> dict[str, str]:
    from pertbase.scorers import compare

    old, new = (_cells(one, adapter) for one in (before, run))
    both = pd.DataFrame({"before": old == _CELL, "after": new == _CELL}).astype(float)
    asked = table.truth.questions.set_index("id").loc[both.index]
    sets, genes = (pd.factorize(asked[name], sort=True)[0] for name in ("target_set", "gene"))
    difference = mean_interval((both["after"] - both["before"]).to_numpy(), sets, genes, scale="linear")
    accuracy = compare(run.answers(adapter), before.answers(adapter), table.truth).balanced_accuracy
    right = pd.DataFrame({"before": old, "after": new}) == "right_answer_right_reason"
    return {
        "answers": table.label(run),
        "from": table.label(before),
        "adapter": adapter,
        "questions": f"{len(both):,}",
        "before": _number(both["before"].mean()),
        "after": _number(both["after"].mean()),
        "difference": _signed(difference),
        "right reason: before": _number(right["before"].mean()),
        "right reason: after": _number(right["after"].mean()),
        "BA difference": _signed(accuracy),
    }


def _cells(run: Run, adapter: str) -> pd.Series:
    records = pd.read_parquet(run.folder / "reasoning" / f"{adapter}.parquet", columns=["id", "cell"])
    return records.set_index("id")["cell"]


def _number(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.3f}"


def _signed(interval: Interval) -> str:
    if math.isnan(interval.value):
        return MISSING
    ends = "" if math.isnan(interval.low) else f" [{interval.low:+.3f}, {interval.high:+.3f}]"
    return f"{interval.value:+.3f}{ends}"
