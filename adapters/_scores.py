r"""From effects and thresholds, or scores and offsets, to outcomes that agree with their scores.

An effect :math:`e` (natural log) is ``up`` if :math:`e > \tau_u`, ``down`` if :math:`e < -\tau_d`, both strictly, else
``no_change``. Its scores are the softmax of

.. math:: \operatorname{asinh}((e - \tau_u)/s), \quad \operatorname{asinh}((-e - \tau_d)/s), \quad 0

with :math:`s` = 0.25. With thresholds that are not negative the largest score is the outcome's; ``score_up`` rises and
``score_down`` falls strictly with :math:`e`; and since asinh grows like a logarithm, scores of large effects stay
apart in float64 where a logistic of :math:`e` would round to 1.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase.folds import OUTCOMES, SCORES, Answers, Effects, vote

__all__ = [
    "DEFAULT_THRESHOLD",
    "SCALE",
    "Offsets",
    "Thresholds",
    "answers_from_effects",
    "log_scores",
    "shifted_answers",
]

DEFAULT_THRESHOLD = 0.25
"""Natural log; the effect gate of the default label rule."""

SCALE = 0.25
"""The effect over which a score's logit moves by about one."""

Thresholds = tuple[float, float]
"""(tau_up, tau_down), neither negative, in the unit of the effect statistic."""

Offsets = tuple[float, float]
"""Added to the log scores of up and down; no_change gets 0."""

_SMALLEST_SCORE = 1e-12


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def answers_from_effects(questions: pd.DataFrame, effects: Effects, thresholds: Thresholds) -> Answers:
    """Return one answer a question.

    A question whose condition is unsupported, or whose condition or gene has no effect, is answered ``no_change``
    with status ``unsupported`` and the scores of an effect of zero.
    """
    values, status = effects.at(questions)
    return answers_from_values(questions, np.where(status == "ok", values, 0.0), status, thresholds)


def answers_from_values(
    questions: pd.DataFrame, values: np.ndarray, status: np.ndarray, thresholds: Thresholds
) -> Answers:
    """Return one answer a question from its effect and status."""
    tau_up, tau_down = thresholds
    logits = np.column_stack(
        [np.arcsinh((values - tau_up) / SCALE), np.arcsinh((-values - tau_down) / SCALE), np.zeros(len(values))]
    )
    codes = np.select([values > tau_up, values < -tau_down], [0, 1], default=2)
    return Answers(_table(questions["id"].to_numpy(), codes, status, softmax(logits)), _checked=True)


def _table(ids: np.ndarray, codes: np.ndarray, status: np.ndarray, scores: np.ndarray) -> pd.DataFrame:
    outcomes = np.array(OUTCOMES, dtype=object)[codes]
    table = pd.DataFrame({"id": ids, "outcome": outcomes, "status": status})
    return table.assign(**{name: scores[:, column] for column, name in enumerate(SCORES)})


def log_scores(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the log scores of answers, shape (n, 3), and which rows an offset may move.

    Rows without an outcome, without scores, or ``unsupported``, stay as they are. Scores below 1e-12 count as that.
    """
    scores = table[list(SCORES)].to_numpy(dtype=np.float64)
    movable = (table["status"] == "ok").to_numpy() & ~np.isnan(scores).any(axis=1)
    return np.log(np.maximum(np.where(movable[:, None], scores, 1.0), _SMALLEST_SCORE)), movable


def shifted_answers(given: Answers, offsets: Offsets) -> Answers:
    """Return the answers after adding offsets to the log scores; unchanged where both are zero."""
    if offsets == (0.0, 0.0):
        return given
    logs, movable = log_scores(given.table)
    logits = logs + np.array([*offsets, 0.0])
    table = given.table.copy()
    table.loc[movable, "outcome"] = np.array(OUTCOMES, dtype=object)[vote(logits[movable])]
    table.loc[movable, list(SCORES)] = softmax(logits[movable])
    return Answers(table, given.reasons, given.file)
