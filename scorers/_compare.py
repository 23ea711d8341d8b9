"""Two baselines on the same questions, and means over folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pertbase._intervals import Interval
from pertbase._metrics import accuracy, balanced_accuracy
from pertbase.errors import InputError
from pertbase.scorers._aligned import Aligned, align, cluster_notes, joint_interval, too_few

if TYPE_CHECKING:
    from pertbase.folds import Answers, Truth

__all__ = ["FoldAverage", "PairedDifference", "average", "compare", "compare_many"]


@dataclass(frozen=True, repr=False)
class FoldAverage:
    """Plain means over folds, one number a fold, with joint two-way intervals.

    Parameters
    ----------
    balanced_accuracy
        Over the ``n_folds - n_dropped`` folds that have one.
    accuracy
        Over all folds.
    n
        Questions of all folds; a question asked in two folds counts twice.
    n_folds
        Folds given.
    n_dropped
        Folds without a balanced accuracy: below ten questions of a class.
    notes
        What a reader must know beside the numbers.
    """

    balanced_accuracy: Interval
    accuracy: Interval
    n: int
    n_folds: int
    n_dropped: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, text and numbers; NaN stays NaN until it is written."""
        return {**asdict(self), "notes": list(self.notes)}

    def __repr__(self) -> str:
        folds = f"{self.n_folds} fold{'s' if self.n_folds != 1 else ''}"
        lines = [
            f"{type(self).__name__}: {self.n:,} questions, {folds}, {self.balanced_accuracy.level:.0%} intervals",
            f"  balanced accuracy  {self.balanced_accuracy}",
            f"  accuracy           {self.accuracy}",
        ]
        return "\n".join(lines + [f"  note               {note}" for note in self.notes])


@dataclass(frozen=True, repr=False)
class PairedDifference(FoldAverage):
    """The first baseline's scores minus the second's, on the same questions; fields as :class:`FoldAverage`."""


def compare(a: Answers, b: Answers, truth: Truth, *, level: float = 0.95) -> PairedDifference:
    """Return by how much ``a`` scores above ``b`` on the same questions.

    Raises
    ------
    InputError
        Where an answer's id is not asked in this fold.
    """
    return compare_many([(a, b, truth)], level=level)


def compare_many(folds: Sequence[tuple[Answers, Answers, Truth]], *, level: float = 0.95) -> PairedDifference:
    """Return by how much the first answers score above the second, as a plain mean over folds.

    Target sets and readout genes that folds share are taken as the same, so that the interval is joint.

    Raises
    ------
    InputError
        Where there is no fold, simulated and real ones are mixed, or an answer's id is not asked in its fold.
    """
    _check([truth for _, _, truth in folds])
    return PairedDifference(*_mean([[(align(a, t), 1.0), (align(b, t), -1.0)] for a, b, t in folds], level))


def average(folds: Sequence[tuple[Answers, Truth]], *, level: float = 0.95) -> FoldAverage:
    """Return the plain means of balanced accuracy and accuracy over folds, with joint intervals.

    Raises
    ------
    InputError
        As for :func:`compare_many`.
    """
    _check([truth for _, truth in folds])
    return FoldAverage(*_mean([[(align(answers, truth), 1.0)] for answers, truth in folds], level))


def _check(truths: Sequence[Truth]) -> None:
    if not truths:
        raise InputError("there is no fold to average over", key="folds", value=[])
    if len({truth.simulated for truth in truths}) > 1:
        raise InputError(
            "simulated and real folds are never averaged together",
            key="folds",
            value=[truth.name for truth in truths if truth.simulated],
            remedy="average the simulated folds on their own",
        )


def _mean(
    folds: list[list[tuple[Aligned, float]]], level: float
) -> tuple[Interval, Interval, int, int, int, tuple[str, ...]]:
    reasons = [too_few(fold[0][0].confusion) for fold in folds]
    kept = [fold for fold, reason in zip(folds, reasons, strict=True) if not reason]
    # With no fold left, the value is NaN and says of one fold why.
    balanced = joint_interval(kept or folds, balanced_accuracy, level=level)
    plain = joint_interval(folds, accuracy, level=level)
    dropped = len(folds) - len(kept)
    notes = cluster_notes(plain)
    if dropped and len(folds) == 1:
        notes.append(reasons[0])
    elif dropped:
        notes.append(f"{dropped} of {len(folds)} folds have no balanced accuracy and are not in its mean")
    contexts = {context for fold in folds for context in fold[0][0].questions["context"].unique()}
    if len(contexts) == 1:
        notes.append(f"one test context ({next(iter(contexts))}): the interval does not cover other contexts")
    return balanced, plain, sum(len(fold[0][0].true) for fold in folds), len(folds), dropped, tuple(notes)
