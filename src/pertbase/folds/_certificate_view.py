"""A certificate as people read it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from pertbase._frozen import FrozenMapping

__all__ = ["Certificate"]


class Certificate(FrozenMapping[str, Any]):
    """What a fold can decide, as a mapping that shows itself; :func:`pertbase.folds.certify` says how it is made."""

    __slots__ = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return what it says as names and text, the verdict first; empty where there is none yet."""
        if not self:
            return []
        calls, ranks = self["conditions_with_calls"], bool(self["ranks_baselines"])
        priors = ", ".join(f"{name} {_number(value)}" for name, value in self["priors"].items())
        # What rests on a handful of calls is not shown as if it were known.
        return [
            ("certificate", str(self["verdict"])),
            ("disjoint", str(self["disjoint"])),
            ("conditions with calls", f"{calls['train']} train, {calls['val']} val, {calls['test']} test"),
            ("balanced accuracy of the priors", priors if ranks else "not given"),
            ("ceiling", _ceiling(self["ceiling"]) if ranks else "not given"),
            ("power", _number(self["power"])),
            ("difference two baselines need to be told apart, about", _number(self["smallest_difference"])),
        ]

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        if not self:
            return ["no certificate"]
        (first, verdict), *rest = self.rows()
        return [f"{first}: {verdict}", *(f"  {name}: {text}" for name, text in rest)]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        rows = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in self.rows()]
        return f"<table>{''.join(rows)}</table>" if rows else "<p>no certificate</p>"


def _ceiling(ceiling: Mapping[str, Any] | None) -> str:
    if not ceiling:
        return "none, the data set holds no cells"
    return (
        f"{_number(ceiling['corrected'])} for a replicate of the screen, {_number(ceiling['half'])} between its halves"
    )


def _number(value: float | None) -> str:
    return "none" if value is None or value != value else f"{value:.3f}"
