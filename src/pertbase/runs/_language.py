"""Language models in a report: presets against no path, the questions whose paths imply both, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from pertbase._io import canonical_json
from pertbase.folds import STATUSES
from pertbase.runs._report import FoldTable, Report
from pertbase.runs._section import MISSING, Section
from pertbase.runs._store import Run

__all__ = ["fold_language_sections", "language_sections"]

NO_PATH = "no_path"
_ASKED_NOTES = (
    "statuses are of answers to the questions of this fold; those without an outcome count as wrong",
    "replies: where in them the answer stood (json, mended json, a tag, a line, a word), or why there is none",
    "tokens and seconds: of all responses that the run uses, val among it",
    "asked: by the last command; the others were kept from before",
)


def language_sections(report: Report, adapter: str) -> list[Section]:
    """Return the tables of a report's language models: none where no run asked any."""
    return [section for table in report.folds for section in fold_language_sections(table, adapter)]


def fold_language_sections(table: FoldTable, adapter: str) -> list[Section]:
    """Return the tables of one fold."""
    return list(_of_fold(table, adapter))


def _of_fold(table: FoldTable, adapter: str) -> Iterator[Section]:
    asked = [run for run in table.runs if run.status.get("asked")]
    if not asked:
        return
    main = table.main_adapter(adapter)
    adapters = list(dict.fromkeys([main, *(("fixed",) if any("fixed" in run.adapters for run in asked) else ())]))
    differences = _differences(table, asked, adapters)
    if len(differences):
        notes = ["balanced accuracy, paired on the same questions; fixed: answers as they were given"]
        yield Section(f"{table.title}: what showing paths changes", differences, notes)
    conflict = _conflict(table, adapters)
    if len(conflict):
        notes = ["of the paths laid over the fold; a model that follows paths has to choose there"]
        yield Section(f"{table.title}: where the paths imply both up and down", conflict, notes)
    yield Section(f"{table.title}: what language models were asked", _asked(table, asked, main), _ASKED_NOTES)


def _differences(table: FoldTable, asked: list[Run], adapters: list[str]) -> pd.DataFrame:
    """Return, for each model, the paired difference of each preset from no path."""
    from pertbase.scorers import compare

    groups: dict[str, dict[str, Run]] = {}
    for run in asked:
        about = run.config["baseline"]
        same = {key: value for key, value in about.items() if key not in ("preset", "template")}
        key = canonical_json([run.config["baseline_name"], same, run.config["seed"]])
        groups.setdefault(key, {})[str(about.get("preset"))] = run
    rows = []
    for presets in groups.values():
        base = presets.get(NO_PATH)
        for name, run in presets.items() if base is not None else ():
            if name == NO_PATH or base is None:
                continue
            row = {"difference": f"{table.label(run)} - {table.label(base)}"}
            for adapter in adapters:
                found = compare(run.answers(adapter), base.answers(adapter), table.truth)
                row[f"BA {adapter}"] = _signed(found.balanced_accuracy)
                row[f"accuracy {adapter}"] = _signed(found.accuracy)
            rows.append(row)
    return pd.DataFrame(rows)


def _conflict(table: FoldTable, adapters: list[str]) -> pd.DataFrame:
    rows = []
    for run in table.runs:
        row: dict[str, str] = {"baseline": table.label(run)}
        for adapter in adapters:
            parts = run.scores["adapters"].get(adapter, {}).get("by_conflict") or {}
            if adapter not in run.adapters or "conflict" not in parts:
                continue
            for name in ("conflict", "no conflict"):
                part = parts.get(name)
                if part is None:
                    continue
                row.setdefault(f"{name}: n", f"{part['n']:,}")
                row[f"{name}: BA {adapter}"] = _number(part["balanced_accuracy"])
                row[f"{name}: accuracy {adapter}"] = _number(part["accuracy"])
        if len(row) > 1:
            rows.append(row)
    return pd.DataFrame(rows).fillna(MISSING)


def _asked(table: FoldTable, asked: list[Run], main: str) -> pd.DataFrame:
    rows = []
    used = [run.scores["adapters"][main]["status"] for run in asked if main in run.adapters]
    statuses = [name for name in STATUSES if any(name in one for one in used)]
    for run in asked:
        about: Mapping[str, Any] = run.status["asked"]
        status = run.scores["adapters"].get(main, {}).get("status", {})
        rows.append(
            {
                "baseline": table.label(run),
                "model": str(about.get("model")),
                **{name.replace("_", " "): f"{status.get(name, 0):,}" for name in statuses},
                "replies": ", ".join(f"{count:,} {name}" for name, count in about.get("answers_read_from", {}).items()),
                "requests": f"{about.get('requests', 0):,}",
                "asked": f"{about.get('asked', 0):,}",
                "attempts": f"{about.get('attempts', 0):,}",
                "prompt tokens": f"{about.get('prompt_tokens', 0):,}",
                "reply tokens": f"{about.get('reply_tokens', 0):,}",
                "seconds": f"{about.get('seconds', 0.0):,.0f}",
                "cost": _cost(about),
                "guided": "yes" if about.get("guided") else "no",
            }
        )
    return pd.DataFrame(rows)


def _cost(about: Mapping[str, Any]) -> str:
    if about.get("cost") is None:
        return MISSING
    return f"{about['cost']:.4g} {about.get('currency', '')} (prices of {about.get('prices_of', '')})"


def _number(value: float | None) -> str:
    return MISSING if value is None or value != value else f"{value:.3f}"


def _signed(interval: Any) -> str:
    if interval.value != interval.value:
        return MISSING
    if interval.low != interval.low:
        return f"{interval.value:+.3f}"
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
