"""JSON objects in a reply, as models write them: where they stand, and what they hold with their slips mended.

What is JSON is read as that, line ends and tabs within its strings allowed. What is not is read again by a reader that
forgives comments (``//``, ``#``, ``/* */``), commas before a closing bracket, Python's quotes, tuples and ``None``,
typographic quotes, names and outcomes without quotes, and escapes that JSON does not have. Nothing is evaluated. All of
it takes time in proportion to the text, whatever stands in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pertbase.folds import OUTCOMES

__all__ = ["ANSWER_KEYS", "clean", "key_of", "objects", "place_of_answer", "whole_object"]

ANSWER_KEYS = ("answer", "outcome", "final_answer", "prediction")
"""Under which an answer may stand, the first that is there."""
_LONE = re.compile("[\ud800-\udfff]")
_MOST_DEEP = 100
"""Brackets within brackets, where there are slips to mend."""
_BRACE = re.compile(r"[{}]")
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*+"|["{}]', flags=re.DOTALL)
_TOKEN = re.compile(
    r"(?P<skip>[\s\ufeff]++|//[^\n]*+|\#[^\n]*+|/\*.*?\*/)"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|“(?:[^”\\]|\\.)*+”)"
    r"|(?P<mark>[{}\[\]():,])"
    r"|(?P<word>[\w.+\-]++)",
    flags=re.DOTALL,
)
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.", flags=re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


def clean(text: str) -> str:
    """Return a text that can be encoded: half a character, as the escape ``\\ud83d`` alone is, becomes U+FFFD."""
    return _LONE.sub("\ufffd", text)


def _named(key: object) -> str:
    return str(key).strip().casefold().replace(" ", "_")


def key_of(item: dict[str, Any], wanted: Sequence[str]) -> str | None:
    """Return the key of an object that is the first of the wanted ones, in any case; None where it has none."""
    by_name = {_named(key): key for key in item}
    return next((by_name[name] for name in wanted if name in by_name), None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object in which an answer that is given twice, and not the same, is a list of both."""
    found: dict[str, Any] = {}
    answers: dict[str, str] = {}
    for key, value in pairs:
        # "Answer" and "answer" are one key.
        name = _named(key)
        own = answers.setdefault(name, key) if name in ANSWER_KEYS else key
        twice = name in ANSWER_KEYS and own in found and found[own] != value
        found[own] = [found[own], value] if twice else value
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object, strict=False)


def whole_object(text: str) -> dict[str, Any] | None:
    """Return the object that a text is and nothing else is; None where it is none, or has slips to mend."""
    if not text.startswith("{"):
        return None
    try:
        made = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return made if isinstance(made, dict) else None


def objects(text: str, begin: int = 0) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield where the objects of a text begin and end and what they hold: outermost ones that can be read."""
    for start, end in _spans(text, begin):
        if ":" not in text[start:end]:
            continue
        made = whole_object(text[start:end])
        if made is None:
            made = _Reader(text[start:end]).object()
        if made is not None:
            yield start, end, made


def place_of_answer(text: str) -> int | None:
    """Return where the answer begins in the text of an object, within its quotes; None where it has none."""
    reader = _Reader(text)
    reader.object()
    return next((reader.places[name] for name in ANSWER_KEYS if name in reader.places), None)


def _spans(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the outermost balanced braces: one that nothing closes does not count, nor do those in double quotes.

    Quotes count within braces alone: prose has odd ones.
    """
    opened: list[int] = []
    found: list[tuple[int, int]] = []
    place, quotes = begin, True
    while (token := (_STRING_OR_BRACE if opened and quotes else _BRACE).search(text, place)) is not None:
        place = token.end()
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}":
            if opened:
                start = opened.pop()
                while found and found[-1][0] > start:
                    found.pop()
                found.append((start, place))
        elif token[0] == '"':
            # Nothing closes this string, so nothing closes a later one.
            quotes = False
    yield from found


class _Reader:
    """Reads one object with slips; ``places`` is where the values of its own answers begin."""

    def __init__(self, text: str) -> None:
        self.places: dict[str, int] = {}
        self._text = text
        self._place = 0
        self._awaited: str | None = None

    def object(self) -> dict[str, Any] | None:
        """Return the object that the text is; None where it cannot be read."""
        try:
            made = self._value(*self._next(), deep=0)
            return made if isinstance(made, dict) and self._place == len(self._text) else None
        except ValueError:
            return None

    def _next(self) -> tuple[str, str, int]:
        """Return the kind, the text and the place of the next token that says something."""
        while True:
            token = _TOKEN.match(self._text, self._place)
            if token is None:
                raise ValueError("no token")
            self._place = token.end()
            if token.lastgroup != "skip":
                return str(token.lastgroup), token[0], token.start()

    def _value(self, kind: str, token: str, start: int, *, deep: int) -> Any:
        if deep > _MOST_DEEP:
            raise ValueError("too deep")
        if token in _CLOSING and kind == "mark":
            return self._members(_CLOSING[token], deep + 1)
        if kind == "string":
            self._found(start + 1)
            return _unescaped(token[1:-1])
        if kind == "word" and token.casefold() in OUTCOMES:
            self._found(start)
            return token
        if kind == "word":
            return _WORDS[token.casefold()] if token.casefold() in _WORDS else float(token)
        raise ValueError("no value")

    def _members(self, closing: str, deep: int) -> Any:
        """Return the list, or the object, that was opened: commas part its members, one more may stand at its end."""
        pairs: list[tuple[str, Any]] = []
        listed: list[Any] = []
        kind, token, start = self._next()
        while not (kind == "mark" and token == closing):
            if closing == "}":
                if kind == "mark" or self._next()[1] != ":":
                    raise ValueError("no key")
                key = _unescaped(token[1:-1]) if kind == "string" else token
                if deep == 1:
                    self._awaited = _named(key) if _named(key) in ANSWER_KEYS else None
                pairs.append((key, self._value(*self._next(), deep=deep)))
            else:
                listed.append(self._value(kind, token, start, deep=deep))
            kind, token, start = self._next()
            if kind == "mark" and token == ",":
                kind, token, start = self._next()
            elif not (kind == "mark" and token == closing):
                raise ValueError("no comma")
        return _object(pairs) if closing == "}" else listed

    def _found(self, place: int) -> None:
        if self._awaited is not None:
            self.places.setdefault(self._awaited, place)
            self._awaited = None


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(found: re.Match[str]) -> str:
    escape = found[0]
    # Two halves of a character stand beside each other, and make one.
    return str(json.loads(f'"{escape}"')) if len(escape) > 2 else _ESCAPED.get(escape[1], escape[1])
