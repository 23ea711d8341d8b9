"""The letters of the options among the likeliest next tokens, as servers and vLLM list them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pertbase.baselines.llm._prompts import LETTERS

__all__ = ["LEAST_SEEN", "TOP", "letter_row"]

TOP = 20
"""How many of the likeliest tokens are asked for; OpenAI's own server gives no more."""
LEAST_SEEN = 2
"""Letters that must be among them: with fewer, what is left says nothing of which outcome is likelier."""
_AROUND = " \t\n▁Ġ"


def letter_row(top: Iterable[tuple[str, float]]) -> tuple[float, ...]:
    """Return the log probability of each letter, by its likeliest spelling.

    A letter that is not among the likeliest tokens is as likely as the least of them. Where fewer than two letters are
    among them, as before a model that thinks first, nothing can be said of any: all are NaN.

    Parameters
    ----------
    top
        Tokens with their log probabilities; those that are no finite number are left out.
    """
    listed = [(token, value) for token, value in top if math.isfinite(value)]
    found: dict[str, float] = {}
    for token, value in listed:
        letter = token.strip(_AROUND)
        if letter in LETTERS:
            found[letter] = max(value, found.get(letter, -math.inf))
    if len(found) < LEAST_SEEN:
        return (math.nan,) * len(LETTERS)
    least = min(value for _, value in listed)
    return tuple(found.get(letter, least) for letter in LETTERS)
