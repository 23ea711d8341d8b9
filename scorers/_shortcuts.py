"""What a baseline adds to predictors that know nothing of the perturbation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._html import shown
from pertbase._intervals import Interval, Term, cluster, two_way_interval
from pertbase._metrics import N_OUTCOMES, balanced_accuracy, confusion
from pertbase._random import generator
from pertbase.folds._answers import outcome_codes
from pertbase.scorers._aligned import Aligned, align, too_few

if TYPE_CHECKING:
    from pertbase.folds import Answers, Truth

__all__ = ["ShortcutLadder", "Shortcuts", "shortcuts"]

N_PARTS = 5
# Balanced weights make the rare classes count alike, so that more of the common one than this only costs time.
_MOST_PER_CLASS = 3_000
# Scores below this are as good as zero; their logarithms must not drown the others.
_FLOOR = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Shortcuts:
    """Balanced accuracy over nested shortcuts, without and with a candidate.

    Parameters
    ----------
    table
        One row a step, index ``added`` (the shortcut added, first ``(nothing)``); columns ``without``: balanced
        accuracy of the shortcuts so far; ``with_candidate``: with the candidate added; ``gain``: their difference,
        with ``gain_low``, ``gain_high`` and ``gain_se``. Empty where it cannot be had. The intervals cover target sets
        and readout genes, not the refitting.
    n
        Questions.
    n_sets
        Target sets.
    level
        Of the intervals.
    note
        Why there is nothing, or empty.
    simulated
        Whether the truth is of simulated cells.
    """

    table: pd.DataFrame
    n: int
    n_sets: int
    level: float
    note: str
    simulated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, text and numbers; NaN stays NaN until it is written."""
        steps = self.table.reset_index().to_dict(orient="records")
        return {"steps": steps, "n": self.n, "n_sets": self.n_sets, "level": self.level, "note": self.note}

    def __repr__(self) -> str:
        head = f"Shortcuts{' (simulated)' if self.simulated else ''}: {self.n:,} questions, {self.n_sets} target sets"
        return f"{head}; {self.note}" if self.note else f"{head}\n{self.table.to_string(float_format='%.3f')}"

    def _repr_html_(self) -> str:
        return shown(repr(self).splitlines()[0], None if self.note else self.table)


def shortcuts(
    nested: Mapping[str, Answers],
    candidate: Answers,
    truth: Truth,
    *,
    seed: int,
    level: float = 0.95,
) -> Shortcuts:
    """Return how much a candidate adds to each of a nested row of shortcuts.

    For k = 0, 1, ... a class-balanced multinomial logistic regression predicts the outcome from the scores of the
    first k shortcuts (log-ratios of up and of down to no_change), once without and once with the candidate's. It is
    cross-fitted on the test questions by target set, in five parts. What the candidate still adds to all of them is
    what it knows of the perturbation; this describes a candidate and selects nothing.

    Parameters
    ----------
    nested
        Name -> answers, in the order in which they are added: gene prior, basal expression, reachability, asked
        elsewhere, cross context.
    candidate
        The answers of the baseline in question.
    truth
        The fold's test questions with outcomes.
    seed
        Of the draw of questions that a regression is fitted on where a class has more than 3,000.
    level
        What intervals are meant to cover.

    Raises
    ------
    InputError
        Where an answer's id is not asked in this fold.
    """
    return ShortcutLadder(nested, truth, seed=seed, level=level).add(candidate)


class ShortcutLadder:
    """The shortcuts of one fold, fitted once for every candidate; see :func:`shortcuts` for the parameters."""

    def __init__(self, nested: Mapping[str, Answers], truth: Truth, *, seed: int, level: float = 0.95) -> None:
        self._truth = truth
        self._level = level
        aligned = [(name, align(answers, truth)) for name, answers in nested.items()]
        asked = truth.questions.loc[truth.questions["outcome"].notna()]
        # Fits and draws depend on the order of rows; ids give one that the caller's plays no part in.
        self._order = np.argsort(asked["id"].to_numpy(dtype=str), kind="stable")
        clusters = cluster([asked["target_set"]], [asked["gene"]])
        self._true = np.asarray(outcome_codes(asked["outcome"]), dtype=np.int64)[self._order]
        self._sets, self._genes = clusters.sets[0][self._order], clusters.genes[0][self._order]
        self._parts = _parts(self._true, self._sets)
        if isinstance(self._parts, str):
            return
        self._drawn = _draw(self._true, self._parts, generator(seed, "shortcuts"))
        features = np.empty((len(self._true), 0))
        self._steps = [("(nothing)", features, _cross_fitted(features, self._true, self._parts, self._drawn))]
        for name, answers in aligned:
            features = np.hstack([features, _features(answers)[self._order]])
            self._steps.append((name, features, _cross_fitted(features, self._true, self._parts, self._drawn)))

    def add(self, candidate: Answers) -> Shortcuts:
        """Return how much a candidate adds to each step."""
        own = _features(align(candidate, self._truth))[self._order]
        true, n_sets = self._true, len(np.unique(self._sets))
        if isinstance(self._parts, str):
            return Shortcuts(_table([]), len(true), n_sets, self._level, self._parts, self._truth.simulated)
        rows = []
        for added, features, without in self._steps:
            joined = _cross_fitted(np.hstack([features, own]), true, self._parts, self._drawn)
            terms = [
                Term(true, answered, self._sets, self._genes, weight)
                for answered, weight in ((joined, 1.0), (without, -1.0))
            ]
            gain = two_way_interval(terms, balanced_accuracy, level=self._level)
            rows.append((added, _score(true, without), _score(true, joined), gain))
        return Shortcuts(_table(rows), len(true), n_sets, self._level, "", self._truth.simulated)


def _table(rows: list[tuple[str, float, float, Interval]]) -> pd.DataFrame:
    columns = ["added", "without", "with_candidate", "gain", "gain_low", "gain_high", "gain_se"]
    cells = [(added, a, b, gain.value, gain.low, gain.high, gain.se) for added, a, b, gain in rows]
    return pd.DataFrame(cells, columns=columns).set_index("added")


def _score(true: np.ndarray, answered: np.ndarray) -> float:
    return float(balanced_accuracy(confusion(true, answered)))


def _features(aligned: Aligned) -> np.ndarray:
    """Return log(up / no_change) and log(down / no_change), (n, 2); without scores, the three count alike."""
    scores = np.where(np.isnan(aligned.scores), 1 / N_OUTCOMES, aligned.scores)
    logs = np.log(np.clip(scores, _FLOOR, None))
    return np.asarray(logs[:, :2] - logs[:, 2:])


def _parts(true: np.ndarray, sets: np.ndarray) -> np.ndarray | str:
    """Return the part of each question, target sets whole and parts of like size, or why there are none."""
    from sklearn.model_selection import GroupKFold

    if reason := too_few(confusion(true, true)):
        return reason
    if len(np.unique(sets)) < N_PARTS:
        return f"needs {N_PARTS} target sets to cross-fit over, and there are {len(np.unique(sets))}"
    parts = np.empty(len(true), dtype=np.int64)
    for number, (train, test) in enumerate(GroupKFold(N_PARTS).split(true, groups=sets)):
        parts[test] = number
        if len(np.unique(true[train])) < N_OUTCOMES:
            return "an outcome lies in too few target sets to cross-fit"
    return parts


def _draw(true: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return for each part the questions of the others to fit on, the same for every regression."""
    drawn = []
    for part in range(N_PARTS):
        rows = [np.flatnonzero((parts != part) & (true == code)) for code in range(N_OUTCOMES)]
        kept = [np.sort(rng.choice(r, _MOST_PER_CLASS, replace=False)) if len(r) > _MOST_PER_CLASS else r for r in rows]
        drawn.append(np.concatenate(kept))
    return drawn


def _cross_fitted(features: np.ndarray, true: np.ndarray, parts: np.ndarray, drawn: list[np.ndarray]) -> np.ndarray:
    """Return the outcome predicted for each question by the regression fitted on the other parts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not features.shape[1]:
        # Balanced and without a feature, the three are alike: any one of them has a balanced accuracy of a third.
        return np.full(len(true), N_OUTCOMES - 1)
    predicted = np.empty(len(true), dtype=np.int64)
    for part, rows in enumerate(drawn):
        model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
        model.fit(features[rows], true[rows])
        predicted[parts == part] = model.predict(features[parts == part])
    return predicted
