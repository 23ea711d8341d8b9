"""Whether prompts, with what is to follow, are within what a model on this machine takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["positions", "without_room"]


def positions(model: Any) -> int | None:
    """Return how many tokens a model takes at most, prompt and reply together; None where it does not say."""
    found = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def without_room(
    tokens: Mapping[int, Sequence[Sequence[int]]], kind: str, *, most: int | None, reply: int, limit: str
) -> dict[int, str]:
    """Return which prompts are too long to be asked, by row, each with the reason: none is cut off.

    Parameters
    ----------
    tokens
        Of each row: a prompt; of letters a prompt an order; of outcomes what was begun, then what tells each outcome.
    kind
        Of the requests.
    most
        Tokens at most; any number if None.
    reply
        Tokens that are left to a reply.
    limit
        How many tokens these are, and by whom, in words.
    """
    if most is None:
        return {}
    found = {}
    for row, parts in tokens.items():
        longest = max(map(len, parts[1:] if kind == "outcomes" else parts))
        needed = {"reply": longest + reply, "outcomes": len(parts[0]) + longest}.get(kind, longest)
        if needed > most:
            behind = f" and {reply} for a reply" if kind == "reply" else ""
            found[row] = f"{needed - reply if behind else needed} tokens{behind} are more than {limit}"
    return found
