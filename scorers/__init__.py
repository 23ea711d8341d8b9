"""Answers, effects and reasons against the truth: numbers with their intervals."""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.scorers', not as {__name__!r}: the folder 'scorers' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )

from pertbase._intervals import Interval
from pertbase.scorers._compare import FoldAverage, PairedDifference, average, compare, compare_many
from pertbase.scorers._outcome import ForcedChoice, OutcomeScores, outcome
from pertbase.scorers._shortcuts import Shortcuts, shortcuts

__all__ = [
    "FoldAverage",
    "ForcedChoice",
    "Interval",
    "OutcomeScores",
    "PairedDifference",
    "Shortcuts",
    "average",
    "compare",
    "compare_many",
    "outcome",
    "shortcuts",
]
