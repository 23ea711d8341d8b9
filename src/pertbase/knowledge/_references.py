"""References: which candidate paths agree with what was measured, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.knowledge._candidates import Candidates
from pertbase.knowledge._paths import Path

__all__ = ["NO_CHANGE", "is_reference", "reference_text"]

NO_CHANGE = ("opposing", "none")
_SIGNS = {"up": 1, "down": -1}
_VERBS = {1: "raises", -1: "lowers", 0: "acts on"}
_WORDS = {1: "activates", -1: "inhibits", 0: "affects"}


def is_reference(candidates: Candidates, outcomes: pd.Series | Sequence[str | None], *, no_change: str) -> np.ndarray:
    """Return which candidate paths are references, bool, shape (n_paths,).

    For ``up`` and ``down``: those that say it, start sign times the product of signs. For ``no_change``: with
    ``opposing``, all that say a sign, where both signs are said, since what is raised and lowered may stay; where one
    sign alone is said, none. With ``none``, none ever: that nothing leads there is then the only reason. A question
    without an outcome has none.

    Parameters
    ----------
    candidates
        Of the questions.
    outcomes
        Theirs, in the same order.
    no_change
        ``opposing`` or ``none``.
    """
    if no_change not in NO_CHANGE:
        raise InputError(
            "a reference for no_change is opposing paths, or none",
            key="paths.no_change",
            value=no_change,
            remedy="use opposing or none",
        )
    said = pd.Series(list(outcomes), dtype=object)
    wanted = np.array([_SIGNS.get(outcome, 0) for outcome in said], dtype=np.int8)[candidates.question]
    agree = (wanted != 0) & (candidates.sign == wanted)
    if no_change == "none":
        return np.asarray(agree)
    unchanged = (said == "no_change").to_numpy() & candidates.conflict
    return np.asarray(agree | (unchanged[candidates.question] & (candidates.sign != 0)))


def reference_text(perturbation: str, gene: str, outcome: str | None, references: Sequence[Path]) -> str:
    """Return the sentence a rule makes of a question's reference paths; empty where there are none.

    The first path, which is the cheapest, is told edge by edge; how many others say the same is told at the end. For
    ``no_change``, the first path of each sign.
    """
    if not references or outcome is None:
        return ""
    if outcome == "no_change":
        first = {sign: next((path for path in references if path.sign == sign), None) for sign in (1, -1)}
        told = [path for path in first.values() if path is not None]
        because = "; but ".join(f"{_told(path)}, which {_VERBS[path.sign]} {gene}" for path in told)
        return f"{perturbation}: {because}. The two oppose each other, so {gene} does not change."
    others = len(references) - 1
    more = f" {others} more path{'s say' if others > 1 else ' says'} the same." if others else ""
    return f"{perturbation}: {_told(references[0])}, so {gene} goes {outcome}.{more}"


def _told(path: Path) -> str:
    edges = ", ".join(
        f"{head} {_WORDS[sign]} {tail}"
        for head, sign, tail in zip(path.nodes, path.signs, path.nodes[1:], strict=False)
    )
    return f"it {_VERBS[path.start]} {path.nodes[0]}, and {edges}"
