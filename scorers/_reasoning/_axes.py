"""Answer against truth, reason against reference, reason against its own answer: three axes, never pooled.

Whether a reason is right must not look at its answer: a preset that asks for agreement with the answer makes *wrong
answer, right reason* nearly empty by construction. The four cells of the usual taxonomy follow from the first two axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pertbase.errors import InputError, unknown_name
from pertbase.knowledge._triplet_sets import Integers

__all__ = ["CAUSES", "CELLS", "PRESETS", "Axes", "ReasonPreset", "judge", "reason_preset"]

Floats = NDArray[np.float64]

CELLS = (
    "invalid",
    "no_reason",
    "right_answer_right_reason",
    "right_answer_wrong_reason",
    "wrong_answer_right_reason",
    "wrong_answer_wrong_reason",
)
"""Exclusive, in the order in which they are decided: an answer without an outcome is invalid whatever its reason."""

CAUSES = ("low_f1", "unconnected", "ungrounded", "inconsistent")
"""Why a reason is not right; one may have several."""

_SWEPT = tuple(round(0.1 * step, 1) for step in range(1, 11))


@dataclass(frozen=True)
class ReasonPreset:
    """When a reason is called right.

    Parameters
    ----------
    f1
        Least signed F1 with the reference.
    connected
        Whether it has to lead from what is perturbed to the readout gene.
    grounded
        Least share of its triplets that the graph or the prompt bears out, whichever bears out more; 0 asks for none.
        Not looked at where there is neither.
    consistent
        Whether it has to imply exactly its own answer. That mixes the axes; see the module.
    """

    f1: float = 0.5
    connected: bool = True
    grounded: float = 0.5
    consistent: bool = False

    def __post_init__(self) -> None:
        for key in ("f1", "grounded"):
            if not 0 <= getattr(self, key) <= 1:
                raise InputError("is a share", key=key, value=getattr(self, key), remedy="give a number from 0 to 1")


PRESETS: Mapping[str, ReasonPreset] = {"axes": ReasonPreset(), "joined": ReasonPreset(consistent=True)}
"""``axes``, the default, keeps the axes apart; ``joined`` asks for agreement with the answer as well."""


def reason_preset(preset: str | ReasonPreset) -> ReasonPreset:
    """Return a preset by its name.

    Raises
    ------
    InputError
        Where there is none of that name.
    """
    if isinstance(preset, ReasonPreset):
        return preset
    if preset not in PRESETS:
        raise unknown_name("reason preset", preset, PRESETS)
    return PRESETS[preset]


@dataclass(frozen=True, eq=False)
class Axes:
    """How reasons stand on the three axes; over the ``n`` questions that have a reference.

    Parameters
    ----------
    n
        Questions with a reference.
    right_answer, right_reason, consistent
        One number a question, 1 or 0, NaN where a question has no reference (``consistent``: no signed start either).
    cell
        One of :data:`CELLS`, or None.
    causes
        Which of :data:`CAUSES` hold, questions x causes; all False for a right reason.
    taxonomy
        Cell -> questions.
    by_axes
        Columns ``right_answer``, ``right_reason``, ``consistent`` and ``n``: all that occur.
    sweep
        Index threshold of F1; columns the last four cells.
    """

    n: int
    right_answer: Floats
    right_reason: Floats
    consistent: Floats
    cell: NDArray[np.object_]
    causes: pd.DataFrame
    taxonomy: dict[str, int]
    by_axes: pd.DataFrame
    sweep: pd.DataFrame
    preset: ReasonPreset = field(default_factory=ReasonPreset)


def judge(
    scores: Mapping[str, Floats], sizes: Integers, answered: Integers, true: Integers, preset: ReasonPreset
) -> Axes:
    """Return where each reason stands.

    Parameters
    ----------
    scores
        One number a question, as :func:`pertbase.scorers._reasoning._records.score` returns.
    sizes
        Triplets of each reason.
    answered, true
        Outcome codes; 3 where there is no answer.
    preset
        When a reason is right.
    """
    asked = ~np.isnan(scores["f1"])
    wrong = _causes(scores, sizes, preset)
    considered = ["low_f1", "unconnected", "ungrounded", *(["inconsistent"] if preset.consistent else [])]
    right_reason = ~wrong[considered].to_numpy().any(axis=1)
    right_answer = answered == true
    cell = _cells(right_answer, right_reason, answered, sizes)
    cell[~asked] = None
    table = pd.DataFrame(
        {
            "right_answer": right_answer[asked],
            "right_reason": right_reason[asked],
            "consistent": scores["consistent"][asked] == 1,
        }
    )
    counted = table.groupby(list(table), observed=True).size().rename("n").reset_index()
    counts = pd.Series(cell[asked], dtype=object).value_counts()
    kept = wrong.to_numpy() & ~right_reason[:, None] & asked[:, None]
    return Axes(
        n=int(asked.sum()),
        right_answer=np.where(asked, right_answer, np.nan),
        right_reason=np.where(asked, right_reason, np.nan),
        consistent=np.where(asked, scores["consistent"], np.nan),
        cell=cell,
        causes=pd.DataFrame(kept, columns=list(CAUSES)),
        taxonomy={name: int(counts.get(name, 0)) for name in CELLS},
        by_axes=counted,
        sweep=_sweep(scores, sizes, answered, true, preset, asked),
        preset=preset,
    )


def _causes(scores: Mapping[str, Floats], sizes: Integers, preset: ReasonPreset) -> pd.DataFrame:
    shares = np.stack([scores["grounded_graph"], scores["grounded_prompt"]])
    # NaN compares as False: what is not known is no reason against a reason.
    grounded = np.where(np.isnan(shares), -np.inf, shares).max(axis=0)
    return pd.DataFrame(
        {
            "low_f1": scores["f1"] < preset.f1,
            "unconnected": preset.connected & (scores["connected"] == 0),
            "ungrounded": np.isfinite(grounded) & (grounded < preset.grounded),
            "inconsistent": scores["consistent"] == 0,
        },
        index=range(len(sizes)),
    )


def _cells(
    right_answer: NDArray[np.bool_], right_reason: NDArray[np.bool_], answered: Integers, sizes: Integers
) -> NDArray[np.object_]:
    names = np.array(CELLS, dtype=object)
    number = 2 + 2 * (~right_answer).astype(int) + (~right_reason).astype(int)
    return np.asarray(names[np.where(answered > 2, 0, np.where(sizes == 0, 1, number))])


def _sweep(
    scores: Mapping[str, Floats],
    sizes: Integers,
    answered: Integers,
    true: Integers,
    preset: ReasonPreset,
    asked: NDArray[np.bool_],
) -> pd.DataFrame:
    """Return the four cells at every threshold of F1, all else as the preset has it."""
    wrong = _causes(scores, sizes, preset)
    others = wrong["unconnected"] | wrong["ungrounded"] | (wrong["inconsistent"] & preset.consistent)
    rows = {}
    for threshold in _SWEPT:
        right = ((scores["f1"] >= threshold) & ~others).to_numpy()
        counts = pd.Series(_cells(answered == true, right, answered, sizes)[asked], dtype=object).value_counts()
        rows[threshold] = {name: int(counts.get(name, 0)) for name in CELLS[2:]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("f1")
