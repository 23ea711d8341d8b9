"""Predictions a model makes of training questions it was not fitted on: what adapters are fitted to."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from pertbase.adapters._scores import log_scores
from pertbase.errors import UnsupportedError
from pertbase.folds import OUTCOMES, Answers, Effects, Training, outcome_codes

__all__ = ["HeldOut", "How", "Model", "held_out"]

How = Literal["val", "cross_fitted", "none"]

_FEWEST_GROUPS = 3
_FEWEST_QUESTIONS = 10
"""Of each class, below which no threshold is fitted: the limit below which balanced accuracy is not printed."""


class Model(Protocol):
    """What is asked of a model here: beside these, ``answer(inputs)`` or ``predict(inputs)``."""

    @property
    def refit(self) -> bool:
        """Whether ``fit`` uses every condition it is given, val included."""

    @property
    def needs_cells(self) -> bool:
        """Whether it wants cells beside effects."""

    def fit(self, training: Training) -> Any:
        """Fit, forgetting any earlier fit."""

    def answers_directly(self, training: Training) -> bool:
        """Whether it answers, rather than predicts effects."""


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut:
    """Held-out predictions of training questions that have an outcome.

    Parameters
    ----------
    how
        ``val``: of val questions, by a model fitted on train (or one that selects on val itself). ``cross_fitted``:
        of train and val questions, each by a copy fitted without its group. ``none``: there are none.
    reason
        Why it is not ``val``; empty where it is.
    questions
        With outcomes; ambiguous ones are left out.
    given
        What the model said of them; None where ``how`` is ``none``.
    simulated
        Whether they are about simulated cells.
    """

    how: How
    reason: str
    questions: pd.DataFrame
    given: Effects | Answers | None
    simulated: bool = False

    @cached_property
    def _said(self) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(self.given, Effects):
            values, status = self.given.at(self.questions)
            return values, status == "ok"
        if isinstance(self.given, Answers):
            return log_scores(self.given.to(self.questions, strict=False))
        return np.zeros(0), np.zeros(len(self.questions), dtype=bool)

    @property
    def speaks(self) -> np.ndarray:
        """Which questions the model speaks to: adapters are fitted to these."""
        return np.asarray(self._said[1])

    @property
    def values(self) -> np.ndarray:
        """Effects, shape (n,), or log scores, shape (n, 3), of the questions the model speaks to."""
        values, speaks = self._said
        return np.asarray(values[speaks])

    @cached_property
    def codes(self) -> np.ndarray:
        """Codes of the true outcomes of the questions the model speaks to, shape (n,)."""
        return np.asarray(outcome_codes(self.questions["outcome"])[self.speaks], dtype=np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """Questions of each outcome that the model speaks to."""
        return _counts(self.codes)

    def __repr__(self) -> str:
        return f"HeldOut({self.how}: {_told(self.counts)})"


def _counts(codes: np.ndarray) -> dict[str, int]:
    return dict(zip(OUTCOMES, np.bincount(codes, minlength=3).tolist(), strict=True))


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {outcome}" for outcome, number in counts.items())


def held_out(
    model: Model, training: Training, *, n_groups: int = 5, minimum: int = 30, cross_fit: bool | None = None
) -> HeldOut:
    """Return the predictions that adapters of this model are fitted to.

    Where val has ``minimum`` questions of each outcome that the model speaks to: the predictions of val by a copy
    of the model fitted on train, or, for a model that selects on val itself (``refit`` False), by the model as it is.
    Else by grouped cross-fitting over train and val, in the manner of the fold's kind: a copy is fitted without
    each group and predicts it, and the groups are pooled. Where that cannot work there are none, and the reason says
    why. The model itself is never fitted here.

    Parameters
    ----------
    model
        Where ``refit`` is False, already fitted to ``training``.
    training
        What the model is, or will be, fitted on.
    n_groups
        Groups of cross-fitting; fewer where there are fewer target sets, at least 3.
    minimum
        Questions of each outcome below which val alone is not enough.
    cross_fit
        Whether to cross-fit at all. By default only models with ``refit``: the others are costly to train.
    """
    if not model.needs_cells:
        training = replace(training, cells=None)
    known = training.headline
    in_val = known.loc[known["split"] == "val"]
    counts = _counts(outcome_codes(in_val["outcome"]))
    short = f"val has {_told(counts)}, fewer than {minimum} of each"
    if min(counts.values()) >= minimum:
        try:
            found = HeldOut("val", "", in_val, _val_predictions(model, training), training.simulated)
        except UnsupportedError as error:
            short = str(error)
        else:
            if min(found.counts.values()) >= minimum:
                return found
            short = f"of val the model speaks to {_told(found.counts)}, fewer than {minimum} of each"
    cross_fit = model.refit if cross_fit is None else cross_fit
    if not cross_fit:
        return _none(f"{short}; the model is too costly to be cross-fitted")
    return _cross_fitted(model, training, n_groups=n_groups, reason=short)


def _none(reason: str) -> HeldOut:
    return HeldOut("none", reason, pd.DataFrame({"outcome": pd.Series(dtype=object)}), None)


def _ask(model: Any, training: Training) -> Effects | Answers:
    """Return what a fitted model says of val."""
    inputs = training.inputs("val")
    if model.answers_directly(training):
        answers: Answers = model.answer(inputs)
        return answers
    asked = set(zip(inputs.conditions["context"], inputs.conditions["perturbation"], strict=True))
    effects: Effects = model.predict(inputs)
    # What nobody asked about is left out: groups are pooled, and a model may say the same of it in each.
    said = zip(effects.conditions["context"], effects.conditions["perturbation"], strict=True)
    keep = np.fromiter((key in asked for key in said), dtype=bool, count=len(effects.conditions))
    return effects if keep.all() else effects.select(effects.conditions.loc[keep])


def _val_predictions(model: Model, training: Training) -> Effects | Answers:
    if not model.refit:
        return _ask(model, training)
    return _fitted_without_val(model, training)


def _fitted_without_val(model: Model, training: Training) -> Effects | Answers:
    other = copy.deepcopy(model)
    other.fit(training.part("train"))
    return _ask(other, training)


def _cross_fitted(model: Model, training: Training, *, n_groups: int, reason: str) -> HeldOut:
    counts = _counts(outcome_codes(training.headline["outcome"]))
    if min(counts.values()) < _FEWEST_QUESTIONS:
        return _none(f"train and val have {_told(counts)}, fewer than {_FEWEST_QUESTIONS} of each")
    groups = [group for group in training.groups(n_groups) if group.any()]
    if len(groups) < _FEWEST_GROUPS:
        return _none(f"{reason}; train and val make {len(groups)} groups, fewer than {_FEWEST_GROUPS}")
    said: list[Effects | Answers] = []
    questions: list[pd.DataFrame] = []
    for group in groups:
        regrouped = training.regroup(group)
        try:
            said.append(_fitted_without_val(model, regrouped))
        except UnsupportedError as error:
            return _none(f"{reason}; cross-fitting is not possible: {error}")
        asked = regrouped.headline
        questions.append(asked.loc[asked["split"] == "val"])
    asked_of = pd.concat(questions, ignore_index=True)
    found = HeldOut("cross_fitted", reason, asked_of, _pooled(said), training.simulated)
    if min(found.counts.values()) < _FEWEST_QUESTIONS:
        return _none(f"{reason}; cross-fitted, the model speaks to {_told(found.counts)}")
    return found


def _pooled(said: list[Effects | Answers]) -> Effects | Answers:
    """Return predictions of disjoint groups as one."""
    effects = [item for item in said if isinstance(item, Effects)]
    if not effects:
        return Answers(pd.concat([item.table for item in said if isinstance(item, Answers)], ignore_index=True))
    first = effects[0]
    return Effects(
        np.concatenate([item.values[:, item.genes.get_indexer(first.genes)] for item in effects]),
        pd.concat([item.conditions for item in effects], ignore_index=True),
        first.genes,
        first.statistic,
        np.concatenate([item.status for item in effects]),
    )
