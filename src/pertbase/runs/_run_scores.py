"""The scores of a run as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from pertbase._frozen import FrozenMapping
from pertbase._html import shown

__all__ = ["RunScores"]


class RunScores(FrozenMapping[str, Any]):
    """What ``scores.json`` holds, as a mapping that shows itself: ``adapters``, ``expression``, ``fold_hash``."""

    __slots__ = ()

    def table(self) -> pd.DataFrame:
        """Return one row an adapter: its main scores, with the ends of intervals; NaN where there is no number."""
        rows = {name: _row(scores) for name, scores in self["adapters"].items() if "skipped" not in scores}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("adapter")

    def notes(self) -> list[str]:
        """Return why adapters were skipped, and what a reader must know beside the numbers."""
        skipped = [f"{name}: {one['skipped']}" for name, one in self["adapters"].items() if "skipped" in one]
        told = (note for one in self["adapters"].values() for note in one.get("notes", ()))
        return [*skipped, *dict.fromkeys(told)]

    @property
    def _title(self) -> str:
        mark = " (simulated)" if self.get("simulated") else ""
        return f"Scores{mark} on the fold {str(self.get('fold_hash', ''))[:12]}"

    def __repr__(self) -> str:
        told = self.table().to_string(float_format="{:.3f}".format, na_rep="–")
        return "\n".join([self._title, told, *(f"  {note}" for note in self.notes())])

    def _repr_html_(self) -> str:
        return shown(self._title, self.table(), notes=self.notes())


def _row(scores: Mapping[str, Any]) -> dict[str, float]:
    row: dict[str, float] = {}
    for name in ("balanced_accuracy", "accuracy"):
        ends = scores[name]
        row |= {
            name: _number(ends["value"]),
            f"{name}_low": _number(ends["low"]),
            f"{name}_high": _number(ends["high"]),
        }
    row |= {name: _number(scores[name]["value"]) for name in ("auroc_called", "auroc_direction")}
    return row | {name: _number(scores[name]) for name in ("macro_f1", "coverage", "n")}


def _number(value: float | None) -> float:
    """Return NaN for None, which is what JSON has for it."""
    return math.nan if value is None else value
