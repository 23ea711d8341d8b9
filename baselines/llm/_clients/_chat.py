"""A prompt as a model on this machine reads it: by its chat template, or as plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pertbase.baselines.llm._parsing._thoughts import without_thoughts
from pertbase.baselines.llm._prompts import Messages

__all__ = ["chat_text", "chat_tokens", "chat_turns", "ends_in_thought", "merged", "thinking_for"]

_LAST_TAG = re.compile(r"(?:<[^<>\s]+>|\[[A-Z]+\]|◁[^◁▷\s]+▷)\s*\Z")
_ENOUGH = 24
"""Tokens of a prompt's end that a tag and the blanks behind it fit into."""


def chat_text(tokenizer: Any, messages: Messages, *, chat: bool = True, thinking: bool | None = None) -> str:
    """Return a prompt as a model reads it: by its chat template, the system turn merged where it is refused.

    Without ``chat``, or a chat template, the turns follow each other as plain text.
    """
    if not chat or not tokenizer.chat_template:
        return "\n\n".join(content for _, content in messages) + "\n"
    from jinja2 import TemplateError

    options = {"add_generation_prompt": True, "tokenize": False}
    if thinking is not None:
        options["enable_thinking"] = thinking
    try:
        return str(tokenizer.apply_chat_template(_turns(messages), **options))
    except TemplateError:
        return str(tokenizer.apply_chat_template(_turns(merged(messages)), **options))


def chat_turns(tokenizer: Any, messages: Messages) -> list[dict[str, str]]:
    """Return the turns that a chat template takes, the system turn merged where it is refused."""
    from jinja2 import TemplateError

    try:
        tokenizer.apply_chat_template(_turns(messages), tokenize=False)
    except TemplateError:
        return _turns(merged(messages))
    return _turns(messages)


def chat_tokens(tokenizer: Any, text: str, *, chat: bool = True) -> list[int]:
    """Return the token ids of what :func:`chat_text` returns: a chat template has written the special ones itself."""
    templated = bool(chat and tokenizer.chat_template)
    return list(tokenizer.encode(text, add_special_tokens=not templated))


def ends_in_thought(tokenizer: Any, tokens: Sequence[int]) -> bool:
    """Return whether a prompt ends in the opening tag of a thought, so that a reply to it begins within one."""
    tag = _LAST_TAG.search(tokenizer.decode(list(tokens[-_ENOUGH:]), skip_special_tokens=False))
    return tag is not None and without_thoughts(tag[0], begun=False, stopped=False) is None


def thinking_for(kind: str, thinking: bool | None) -> bool | None:
    """Return whether a model is to think before a reply, begun or not, or a letter: before a letter it never does."""
    return False if kind == "letters" and thinking is not None else thinking


def merged(messages: Messages) -> Messages:
    """Return messages with the system turn put before the user's: the templates of some models refuse one."""
    system = "\n\n".join(content for role, content in messages if role == "system")
    rest = [(role, content) for role, content in messages if role != "system"]
    if system and rest:
        rest[0] = (rest[0][0], f"{system}\n\n{rest[0][1]}")
    return tuple(rest)


def _turns(messages: Messages) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]
