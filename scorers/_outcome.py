"""Scores of answers against the truth of one fold."""

from __future__ import annotations

import html
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase import _metrics as metrics
from pertbase._intervals import Interval
from pertbase.folds._answers import OUTCOMES, STATUSES
from pertbase.scorers._aligned import Aligned, align, cluster_notes, joint_interval, too_few

if TYPE_CHECKING:
    from pertbase.folds import Answers, Truth

__all__ = ["ForcedChoice", "OutcomeScores", "outcome"]


@dataclass(frozen=True)
class ForcedChoice:
    """How often the scores choose the direction that an ambiguous question's effect has; chance is one half.

    Parameters
    ----------
    share
        Right choices over ``n``. A tie of ``score_up`` and ``score_down`` is half a right one, as the toss of a
        coin would be; an answer without scores is wrong. NaN where ``n`` is 0.
    n
        Ambiguous questions with an effect other than zero.
    n_ties
        Of these, with equal scores.
    n_without_scores
        Of these, without scores.
    """

    share: float
    n: int
    n_ties: int
    n_without_scores: int


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeScores:
    """What answers are worth on one fold.

    Everything but ``ambiguous`` is over the headline: all questions that are not ambiguous. Answers without an outcome
    are wrong and in every denominator.

    Parameters
    ----------
    fold, fold_hash, simulated
        Which truth this is against.
    level
        Of all intervals.
    n, n_by_outcome
        Questions, and how many have each outcome.
    balanced_accuracy, accuracy
        With two-way intervals. Balanced accuracy is NaN, with a note, below ten questions of a class; the confusion
        holds what there is.
    micro_f1, macro_f1, weighted_f1
        As scikit-learn with the three labels and ``zero_division=0``.
    per_outcome
        Index outcome; columns ``precision``, ``recall``, ``f1``, ``n``.
    confusion
        Counts, true by answered outcome, shape (3, 4); the fourth column has no outcome. Read-only.
    auroc_called, auroc_direction
        Mean AUROC within readout genes: up or down against no_change, and up against down.
    status
        Answers by status; only those that occur.
    n_missing
        Questions that the answers leave out; their status is ``no_answer``.
    n_without_outcome
        Answers without an outcome, the missing among them.
    coverage
        Share of answers that are not ``unsupported``.
    supported_balanced_accuracy
        Over questions that are not ``unsupported``.
    by_context, by_regime, by_conflict
        Index context, regime, or whether the paths given with a question imply both up and down; counts,
        ``balanced_accuracy`` and ``accuracy`` with their ends, ``macro_f1``, ``coverage``. None, for conflict, where no
        paths were given.
    ambiguous
        Beside the headline, the forced choice on ambiguous questions.
    notes
        What a reader must know beside the numbers.
    """

    fold: str
    fold_hash: str
    simulated: bool
    level: float
    n: int
    n_by_outcome: dict[str, int]
    balanced_accuracy: Interval
    accuracy: Interval
    micro_f1: float
    macro_f1: float
    weighted_f1: float
    per_outcome: pd.DataFrame
    confusion: np.ndarray
    auroc_called: metrics.GeneAuroc
    auroc_direction: metrics.GeneAuroc
    status: dict[str, int]
    n_missing: int
    n_without_outcome: int
    coverage: float
    supported_balanced_accuracy: Interval
    by_context: pd.DataFrame
    by_regime: pd.DataFrame
    by_conflict: pd.DataFrame | None
    ambiguous: ForcedChoice
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as dicts, lists, text and numbers; NaN stays NaN until it is written."""
        parts = (Interval, metrics.GeneAuroc, ForcedChoice)
        return {
            **{name: value for name, value in vars(self).items() if isinstance(value, (str, bool, int, float, dict))},
            **{name: asdict(value) for name, value in vars(self).items() if isinstance(value, parts)},
            "per_outcome": _nested(self.per_outcome),
            "by_context": _nested(self.by_context),
            "by_regime": _nested(self.by_regime),
            "by_conflict": None if self.by_conflict is None else _nested(self.by_conflict),
            "confusion": self.confusion.astype(int).tolist(),
            "notes": list(self.notes),
        }

    def _rows(self) -> list[tuple[str, str]]:
        auroc = [
            f"{area.value:.3f} over {area.n_genes:,} readout genes"
            if area.n_genes
            else "NA: no readout gene is asked about with both kinds of outcome"
            for area in (self.auroc_called, self.auroc_direction)
        ]
        counts = ", ".join(f"{n:,} {name}" for name, n in self.n_by_outcome.items())
        rows = [
            ("questions", f"{self.n:,}: {counts}"),
            ("balanced accuracy", str(self.balanced_accuracy)),
            ("accuracy", str(self.accuracy)),
            ("macro F1", f"{self.macro_f1:.3f}"),
            ("AUROC called", auroc[0]),
            ("AUROC direction", auroc[1]),
            ("coverage", f"{self.coverage:.3f}; supported only: {self.supported_balanced_accuracy}"),
            ("without an outcome", _without(self.n_without_outcome, self.n_missing)),
        ]
        if self.by_conflict is not None and "conflict" in self.by_conflict.index:
            row = self.by_conflict.loc["conflict"]
            shown = "NA" if np.isnan(row["balanced_accuracy"]) else f"{row['balanced_accuracy']:.3f}"
            told = f"{int(row['n']):,} questions whose paths imply both: {shown}, accuracy {row['accuracy']:.3f}"
            rows.append(("conflict", told))
        if self.ambiguous.n:
            rows.append(("ambiguous", f"{self.ambiguous.share:.3f} of {self.ambiguous.n:,} forced choices"))
        return rows + [("note", note) for note in self.notes]

    @property
    def _title(self) -> str:
        return f"{self.fold}{' (simulated)' if self.simulated else ''}, {self.level:.0%} intervals"

    def __repr__(self) -> str:
        return "\n".join([f"OutcomeScores: {self._title}", *(f"  {name:<19} {text}" for name, text in self._rows())])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in self._rows())
        return f"<table><caption>{html.escape(self._title)}</caption>{rows}</table>"


def _without(n: int, missing: int) -> str:
    """Return how many answers have no outcome, and how many of these are not there at all."""
    if not n:
        return "no answer"
    told = f"{n:,} answer{'' if n == 1 else 's'}, wrong and counted"
    return told + (f"; of these, {missing:,} not given at all" if missing else "")


def _nested(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    columns = {name: table[name].tolist() for name in table}
    return {str(key): {name: column[i] for name, column in columns.items()} for i, key in enumerate(table.index)}


def outcome(answers: Answers, truth: Truth, *, level: float = 0.95) -> OutcomeScores:
    """Score answers against the truth of the fold they answer.

    Parameters
    ----------
    answers
        Matched by id; their order plays no part. Questions they leave out count as ``no_answer``: wrong.
    truth
        The fold's test questions with outcomes.
    level
        What intervals are meant to cover.

    Raises
    ------
    InputError
        Where an answer's id is not asked in this fold.

    Examples
    --------
    >>> scores = outcome(answers, fold.truth)  # doctest: +SKIP
    >>> scores.balanced_accuracy.low, scores.balanced_accuracy.high  # doctest: +SKIP
    """
    aligned = align(answers, truth)
    counts = aligned.confusion
    balanced = joint_interval([[(aligned, 1.0)]], metrics.balanced_accuracy, level=level)
    plain = joint_interval([[(aligned, 1.0)]], metrics.accuracy, level=level)
    spoken = aligned.status != "unsupported"
    supported = balanced
    if not spoken.all():
        supported = joint_interval([[(aligned.part(spoken), 1.0)]], metrics.balanced_accuracy, level=level)
    genes = aligned.genes
    return OutcomeScores(
        fold=truth.name,
        fold_hash=truth.hash,
        simulated=truth.simulated,
        level=level,
        n=len(aligned.true),
        n_by_outcome={name: int(n) for name, n in zip(OUTCOMES, counts.sum(1), strict=True)},
        balanced_accuracy=balanced,
        accuracy=plain,
        micro_f1=float(metrics.micro_f1(counts)),
        macro_f1=float(metrics.macro_f1(counts)),
        weighted_f1=float(metrics.weighted_f1(counts)),
        per_outcome=_per_outcome(counts),
        confusion=_frozen(counts),
        auroc_called=metrics.gene_auroc_called(genes, aligned.true, aligned.scores),
        auroc_direction=metrics.gene_auroc_direction(genes, aligned.true, aligned.scores),
        status=_by_status(aligned),
        n_missing=int(aligned.missing.sum()),
        n_without_outcome=int(counts[:, metrics.NO_OUTCOME].sum()),
        coverage=_coverage(aligned),
        supported_balanced_accuracy=supported,
        by_context=_strata(aligned, "context", level, (balanced, plain)),
        by_regime=_strata(aligned, "regime", level, (balanced, plain)),
        by_conflict=_strata(aligned, "conflict", level, (balanced, plain)) if "conflict" in aligned.questions else None,
        ambiguous=_forced_choice(aligned),
        notes=_notes(aligned, balanced),
    )


def _frozen(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


def _per_outcome(counts: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "precision": metrics.precision(counts),
            "recall": metrics.recall(counts),
            "f1": metrics.f1(counts),
            "n": counts.sum(1).astype(int),
        },
        index=pd.Index(OUTCOMES, name="outcome"),
    )


def _by_status(aligned: Aligned) -> dict[str, int]:
    found = pd.Series(aligned.status, dtype=object).value_counts()
    return {status: int(found[status]) for status in STATUSES if status in found.index}


def _coverage(aligned: Aligned) -> float:
    return float((aligned.status != "unsupported").mean()) if len(aligned.status) else float("nan")


def _strata(aligned: Aligned, column: str, level: float, whole: tuple[Interval, Interval]) -> pd.DataFrame:
    """Return one row a context or regime; the rule of ten of a class holds in each. Of one alone, that is the whole."""
    codes, names = pd.factorize(aligned.questions[column], sort=True)
    rows: dict[Hashable, dict[str, Any]] = {}
    for code, name in enumerate(names):
        part = aligned.part(codes == code) if len(names) > 1 else aligned
        counts = part.confusion
        row: dict[str, Any] = {"n": len(part.true)}
        row |= {f"n_{label}": int(n) for label, n in zip(OUTCOMES, counts.sum(1), strict=True)}
        named = (("balanced_accuracy", metrics.balanced_accuracy), ("accuracy", metrics.accuracy))
        for (label, metric), known in zip(named, whole, strict=True):
            interval = known if part is aligned else joint_interval([[(part, 1.0)]], metric, level=level)
            row |= {label: interval.value, f"{label}_low": interval.low, f"{label}_high": interval.high}
        row |= {"macro_f1": float(metrics.macro_f1(counts)), "coverage": _coverage(part)}
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(column)


def _forced_choice(aligned: Aligned) -> ForcedChoice:
    effect = aligned.ambiguous_effect
    asked = ~np.isnan(effect) & (effect != 0)
    lean = aligned.ambiguous_scores[asked, 0] - aligned.ambiguous_scores[asked, 1]
    n, without, ties = int(asked.sum()), int(np.isnan(lean).sum()), int((lean == 0).sum())
    right = int((np.sign(lean) == np.sign(effect[asked])).sum())
    return ForcedChoice((right + ties / 2) / n if n else float("nan"), n, ties, without)


def _notes(aligned: Aligned, balanced: Interval) -> tuple[str, ...]:
    notes = [why] if (why := too_few(aligned.confusion)) else []
    notes += cluster_notes(balanced)
    contexts = aligned.questions["context"].unique()
    if len(contexts) == 1:
        notes.append(f"one test context ({contexts[0]}): the interval does not cover other contexts")
    if missing := int(aligned.missing.sum()):
        notes.append(f"{missing:,} questions have no answer; they count as wrong")
    return tuple(notes)
