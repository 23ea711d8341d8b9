"""What comes back from a server: a body of any shape, read as a completion, or said to be none.

No type is trusted: what has something else where a completion has a text or a list is none, and is asked for again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pertbase.baselines.llm._clients._letters import letter_row

__all__ = ["NoCompletion", "read_letters", "read_reply", "tokens_of"]

_ENDS = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "end_turn": "stop",
    # no tool is offered: whoever calls one has said what there is
    "tool_calls": "stop", "function_call": "stop",
    "length": "length", "max_tokens": "length", "max_output_tokens": "length",
    "content_filter": "content_filter", "safety": "content_filter",
    "refusal": "refusal",
}  # fmt: skip
"""Why a reply ended, as servers say it. Of any other word, and of none, nobody knows whether the reply is whole."""
_THOUGHTS = ("thinking", "reasoning")
_SHOWN = 100


class NoCompletion(ValueError):
    """A body is no completion.

    Parameters
    ----------
    problem
        What is wrong with it.
    tokens
        What was counted all the same, of the prompt and of the reply.
    """

    def __init__(self, problem: str, tokens: tuple[int, int] = (0, 0)) -> None:
        super().__init__(problem)
        self.tokens = tokens


def read_reply(raw: bytes) -> dict[str, Any]:
    """Return the fields of a response to a request for a reply.

    Raises
    ------
    NoCompletion
        Where there is none, or it broke off: asking again may help.
    """
    body, choice, values = _first(raw)
    finish = _finish(choice, body)
    message: Mapping[str, Any] = choice["message"]
    text, thought = _text(message.get("content"), tokens_of(body))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        finish, text = "refusal", refusal
    elif finish == "stop" and not text.strip():
        finish = "empty"
    told = (message.get(name) for name in ("reasoning_content", "reasoning"))
    apart = [said for said in told if isinstance(said, str) and said]
    return values | {"text": text, "finish": finish, "thought": apart[0] if apart else thought}


def read_letters(raw: bytes) -> dict[str, Any]:
    """Return the fields of a response to a request for letters: their log probabilities, in one row; None without any.

    Raises
    ------
    NoCompletion
        Where there is no completion.
    """
    body, choice, values = _first(raw)
    finish = _finish(choice, body)
    if finish in ("content_filter", "refusal"):
        return values | {"finish": finish}
    logprobs = choice.get("logprobs")
    top = list(_top(logprobs))
    # A reply that ends at once has a list without a token in it.
    ended = isinstance(logprobs, dict) and logprobs.get("content") == []
    if not top and not ended:
        return values | {"finish": "stop", "letters": None, "error": "no log probabilities came back"}
    row = letter_row(top)
    likeliest = ", ".join(repr(token) for token, _ in sorted(top, key=lambda item: -item[1])[:3])
    told = f"likeliest next tokens are {likeliest}, of {len(top)} given" if top else "the reply ends at once"
    return values | {"finish": "stop", "letters": (row,), "error": told if math.isnan(row[0]) else ""}


def tokens_of(body: Any) -> tuple[int, int]:
    """Return the tokens of prompt and reply that a body says it took; 0 for what it does not say."""
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return 0, 0
    prompt, reply, total = (_count(usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total"))
    # Where the sum alone is told, all of it counts as prompt: a budget of tokens is kept to all the same.
    return (prompt, reply) if prompt or reply else (total, 0)


def _count(value: Any) -> int:
    try:
        number = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return 0
    return int(number) if math.isfinite(number) and number > 0 else 0


def _first(raw: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the body, its first choice, and what it took."""
    try:
        body = json.loads(raw.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise NoCompletion(f"the body is no JSON ({_shown(error)})") from error
    choices = body.get("choices") if isinstance(body, dict) else None
    listed = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    choice = next((one for one in listed if one.get("index") == 0), listed[0] if listed else {})
    if not isinstance(choice.get("message"), dict):
        raise NoCompletion(f"no completion came back: {_shown(body)}", tokens_of(body))
    prompt, reply = tokens_of(body)
    model = body.get("model")
    served_by = "" if model is None else str(model)
    return body, choice, {"prompt_tokens": prompt, "reply_tokens": reply, "served_by": served_by}


def _finish(choice: Mapping[str, Any], body: Any) -> str:
    given = choice.get("finish_reason")
    finish = _ENDS.get(given.casefold()) if isinstance(given, str) else None
    if finish is None:
        why = f": {_shown(choice['error'])}" if choice.get("error") else ""
        raise NoCompletion(f"finish_reason is {given!r}, so that the reply may have broken off{why}", tokens_of(body))
    return finish


def _text(content: Any, tokens: tuple[int, int]) -> tuple[str, str]:
    """Return what a message says and what it thought; its content is a text, nothing, or a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise NoCompletion(f"the content of the message is no text: {_shown(content)}", tokens)
    said: list[str] = []
    thought: list[str] = []
    for part in content:
        if isinstance(part, str):
            said.append(part)
        elif isinstance(part, dict):
            of_thought = part.get("type") in _THOUGHTS
            found = next((part[name] for name in ("text", *_THOUGHTS) if isinstance(part.get(name), str)), "")
            (thought if of_thought else said).append(found)
    return "".join(said), "".join(thought)


def _top(logprobs: Any) -> Iterator[tuple[str, float]]:
    """Yield the likeliest first tokens; those without a text or a number are left out."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    listed = first.get("top_logprobs") if isinstance(first, dict) else None
    for item in listed if isinstance(listed, list) else ():
        token, value = (item.get("token"), item.get("logprob")) if isinstance(item, dict) else (None, None)
        if isinstance(token, str) and isinstance(value, (int, float)) and not isinstance(value, bool):
            yield token, float(value)


def _shown(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
