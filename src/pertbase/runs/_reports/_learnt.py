"""What fine-tuned models of a fold learnt from: where they start, how many questions of each outcome, whose texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pertbase.folds import OUTCOMES
from pertbase.runs._reports._report import FoldTable
from pertbase.runs._reports._section import MISSING, Section

__all__ = ["learnt_section"]

_NOTES = (
    "questions: of train, that were learnt from; those that are longer than the model may read were left out",
    "texts: the outcome alone (for want of a reference, where reasons were taught), a reason by rule, or a model's",
)


def learnt_section(table: FoldTable) -> Section:
    """Return the table; empty where no model was fine-tuned."""
    rows = []
    for run in table.runs:
        learnt = (run.status.get("asked") or {}).get("learnt")
        if learnt:
            rows.append({"baseline": table.label(run), **_told(learnt)})
    return Section(f"{table.title}: what fine-tuned models learnt from", pd.DataFrame(rows), _NOTES)


def _told(learnt: Mapping[str, Any]) -> dict[str, str]:
    start = learnt.get("start") or {}
    counts = (learnt.get("train") or {}).get("by_outcome") or {}
    sources = (learnt.get("texts") or {}).get("sources") or {}
    too_long = sum(one.get("too_long", 0) for one in counts.values())
    thinking = learnt.get("thinking")
    return {
        "start": _start(start),
        "parameters": f"{start.get('parameters', 0) / 1e6:,.1f} M",
        "trained": "nothing" if learnt.get("epochs") == 0 else "adapters" if learnt.get("lora") else "all weights",
        "questions": ", ".join(f"{counts.get(one, {}).get('kept', 0):,} {one}" for one in OUTCOMES),
        "too long": f"{too_long:,}",
        "texts": ", ".join(f"{count:,} {name}" for name, count in sources.items()) or MISSING,
        "thinking": "as its template has it" if thinking is None else "yes" if thinking else "no",
        "weights": str(learnt.get("weights", ""))[:8],
    }


def _start(start: Mapping[str, Any]) -> str:
    """Return the name of a start; of another run's model, with the hash of its weights, as that run's row has it."""
    before = start.get("from") or {}
    name = str(start.get("start", "")).rstrip("/")
    return f"{before['fold']} {before['baseline']} {str(before['weights'])[:8]}" if before.get("weights") else name
