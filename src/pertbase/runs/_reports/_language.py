"""Language models in a report: presets against no path, the questions whose paths imply both, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import pandas as pd

from pertbase._io import canonical_json
from pertbase._metrics import MIN_CLASS_QUESTIONS
from pertbase.folds import STATUSES
from pertbase.runs._reports._report import FoldTable, Report
from pertbase.runs._reports._section import MISSING, Section
from pertbase.runs._reports._shown import SHOWN, read_shown
from pertbase.runs._store import Run

__all__ = ["fold_language_sections", "language_sections"]

NO_PATH = "no_path"
_ASKED_NOTES = (
    (
        "answered by: scores, the likeliest of the outcomes, or the replies; ok and other statuses: of these "
        "answers to the questions of this fold, and those without an outcome count as wrong"
    ),
    (
        "replies: where in them an answer stood (json, mended json, a tag, a line, a word), or why there is none; "
        "where scores answer, a reply gives the reason alone; of val too where scores are taken after reasons"
    ),
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
        yield Section(f"{table.title}: what showing paths changes", differences, [*notes, *_shown_notes(table, asked)])
    conflict = _conflict(table, adapters)
    if len(conflict):
        notes = ["of the paths laid over the fold; a model that follows paths has to choose there"]
        if (conflict == MISSING).any(axis=None):
            notes.append(f"no balanced accuracy where an outcome has fewer than {MIN_CLASS_QUESTIONS} questions")
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


def _shown_notes(table: FoldTable, asked: list[Run]) -> list[str]:
    """Return with how many questions paths were shown, and on how many two runs were shown other ones."""
    shown = {}
    for run in asked:
        found = read_shown(run.folder / SHOWN)
        if found is not None and any(paths is not None for paths in found.values()):
            shown[table.label(run)] = {name: set(paths or ()) for name, paths in found.items()}
    notes = [
        f"{label}: {sum(map(bool, paths.values())):,} of {len(paths):,} questions came with paths"
        for label, paths in shown.items()
    ]
    for (one, first), (two, second) in combinations(shown.items(), 2):
        other = sum(first[name] != second.get(name) for name in first)
        notes.append(f"{one} and {two}: other paths with {other:,} of {len(first):,} questions")
    return notes


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
                row[f"{name}: BA {adapter}"] = _number(part["balanced_accuracy"])
                row[f"{name}: right {adapter}"] = _counted(part["accuracy"], part["n"])
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
                "answered by": "scores" if run.config["baseline"].get("answer_from") == "options" else "replies",
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


def _counted(share: float | None, n: int) -> str:
    """Return a share as a count: of a handful of questions, a number with three digits says too much."""
    return MISSING if share is None or share != share else f"{round(share * n):,} of {n:,}"


def _signed(interval: Any) -> str:
    if interval.value != interval.value:
        return MISSING
    if interval.low != interval.low:
        return f"{interval.value:+.3f}"
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
