"""Scores of the three outcomes: from the likelihood of letters, of the outcomes themselves, or from votes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pertbase.baselines.llm._clients._base import Response
from pertbase.folds import OUTCOMES, vote

__all__ = ["letter_scores", "likeliest", "mean_scores", "vote_shares"]


def letter_scores(responses: Sequence[Response], orders: Sequence[Sequence[str]], n: int) -> np.ndarray:
    """Return the scores of each question from the log probabilities of letters, shape (n, 3); NaN where they lack."""
    scores = np.full((n, len(OUTCOMES)), np.nan)
    places = [[list(order).index(outcome) for outcome in OUTCOMES] for order in orders]
    for row, response in enumerate(responses):
        if response.letters is None or response.unseen:
            continue
        logs = np.array(response.letters)
        logs = logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
        mean = np.take_along_axis(logs, np.array(places), axis=1).mean(axis=0)
        powers = np.exp(mean - mean.max())
        scores[row] = powers / powers.sum()
    return scores


def mean_scores(scores: np.ndarray, samples: int) -> np.ndarray:
    """Return the mean over the samples of each question that have scores; NaN where none has.

    Probabilities are averaged, not their logarithms: what the model answers, over the reasons that it gives.

    Parameters
    ----------
    scores
        Of each sample, shape (n * samples, 3), those of one question together; NaN where there are none.
    samples
        Of each question.
    """
    parts = scores.reshape(-1, samples, len(OUTCOMES))
    scored = ~np.isnan(parts).any(axis=2)
    total = np.where(scored[:, :, None], parts, 0.0).sum(axis=1)
    counts = scored.sum(axis=1)[:, None]
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def vote_shares(said: Sequence[Sequence[str | None]]) -> np.ndarray:
    """Return the share of each outcome among the valid samples of each question, smoothed by one vote for all."""
    scores = np.full((len(said), len(OUTCOMES)), np.nan)
    for row, outcomes in enumerate(said):
        counts = np.array([list(outcomes).count(outcome) for outcome in OUTCOMES], dtype=np.float64)
        if counts.any():
            scores[row] = (counts + 1 / 3) / (counts.sum() + 1)
    return scores


def likeliest(scores: np.ndarray) -> list[str | None]:
    """Return the outcome of the largest score of each row, None where there are no scores."""
    scored = ~np.isnan(scores).any(axis=1)
    codes = vote(np.where(scored[:, None], scores, 0.0))
    return [OUTCOMES[code] if there else None for code, there in zip(codes, scored, strict=True)]
