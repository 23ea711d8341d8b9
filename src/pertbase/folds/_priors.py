"""What the training outcomes alone say: counts by a key, and the outcome they vote for."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase.folds._answers import OUTCOMES, outcome_codes

__all__ = ["outcome_counts", "vote"]

# Of outcomes that tie, the first of these wins: the common one, then down.
_TIE_ORDER = np.array([2, 1, 0])


def outcome_counts(questions: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return how often each outcome was seen for each value of a column, keys x outcomes.

    Questions without an outcome (ambiguous ones) are not counted.
    """
    known = questions.loc[questions["outcome"].notna(), [key, "outcome"]]
    codes = outcome_codes(known["outcome"])
    groups, names = pd.factorize(known[key].astype(object), sort=True)
    counts = np.zeros((len(names), len(OUTCOMES)), dtype=np.int64)
    np.add.at(counts, (groups, codes), 1)
    return pd.DataFrame(counts, index=pd.Index(names, name=key), columns=list(OUTCOMES))


def vote(counts: np.ndarray) -> np.ndarray:
    """Return the outcome code with the largest count in each row; ties go to no_change, then down.

    Parameters
    ----------
    counts
        Shape (n, 3), in the order of the outcomes; counts, or counts divided by class frequencies.
    """
    ordered = np.asarray(counts)[:, _TIE_ORDER]
    winner: np.ndarray = _TIE_ORDER[np.argmax(ordered, axis=1)]
    return winner
