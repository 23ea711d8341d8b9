"""Answers, effects and reasons against the truth: numbers with their intervals."""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.scorers', not as {__name__!r}: the folder 'scorers' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )

from pertbase._intervals import Interval
from pertbase.scorers._cell_eval import write_cell_eval
from pertbase.scorers._compare import FoldAverage, PairedDifference, average, compare, compare_many
from pertbase.scorers._distances import distances
from pertbase.scorers._expression import EXPRESSION_METRICS, ExpressionScores, expression
from pertbase.scorers._outcome import ForcedChoice, OutcomeScores, outcome
from pertbase.scorers._reasoning._axes import ReasonPreset
from pertbase.scorers._reasoning._contexts import ContextSensitivity
from pertbase.scorers._reasoning._records import REASON_SCORES, reason_scores
from pertbase.scorers._reasoning._scores import ReasonScores, reasoning
from pertbase.scorers._shortcuts import ShortcutLadder, Shortcuts, shortcuts

__all__ = [
    "EXPRESSION_METRICS",
    "REASON_SCORES",
    "ContextSensitivity",
    "ExpressionScores",
    "FoldAverage",
    "ForcedChoice",
    "Interval",
    "OutcomeScores",
    "PairedDifference",
    "ReasonPreset",
    "ReasonScores",
    "ShortcutLadder",
    "Shortcuts",
    "average",
    "compare",
    "compare_many",
    "distances",
    "expression",
    "outcome",
    "reason_scores",
    "reasoning",
    "shortcuts",
    "write_cell_eval",
]
