"""What docstrings say of parameters: one line each, for help and for the documentation."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["meaning_of", "parameters", "plain_text", "referenced", "summary"]

_REFERENCE = re.compile(r":(?:class|func|data|meth):`~?([\w.]+)`")
_ELSEWHERE = re.compile(r"(?:See|Those of)\s+:(?:class|func):`~?([\w.]+)`")


def parameters(owner: Any) -> dict[str, str]:
    """Return the text of every parameter a class or function documents, itself or by referring to another.

    A class has those of the classes it derives from; ``See :class:`X``` takes the text of the same name from X, and
    ``Those of :class:`X``` takes all of X's. A docstring without parameters that refers to another has that one's.
    """
    found: dict[str, str] = {}
    for item in inspect.getmro(owner) if inspect.isclass(owner) else (owner,):
        for name, text in _documented(item):
            found.setdefault(name, text)
    return found


def meaning_of(owner: Any, name: str) -> str:
    """Return the first sentence of what is said of a parameter, as plain text; empty where nothing is."""
    return _first_sentence(parameters(owner).get(name, ""))


def summary(owner: Any) -> str:
    """Return the first sentence of a docstring, as plain text."""
    return _first_sentence(inspect.getdoc(owner) or "")


def referenced(owner: Any, text: str) -> Any | None:
    """Return the class that a text refers to, or None."""
    found = _REFERENCE.search(text)
    return _named(owner, found[1]) if found else None


def plain_text(text: str) -> str:
    """Return a docstring's text without its markup: names of code as they are, references by their last part."""
    text = re.sub(r":(?:class|func|data|meth|mod):`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    text = re.sub(r":math:`([^`]+)`", r"\1", text)
    return " ".join(re.sub(r"``([^`]+)``", r"\1", text).split())


def _documented(owner: Any) -> Iterator[tuple[str, str]]:
    text = inspect.cleandoc(getattr(owner, "__doc__", None) or "")
    entries = list(_entries(text))
    if not entries and (also := re.search(r"see\s+:(?:class|func):`~?([\w.]+)`", text)):
        other = _named(owner, also[1])
        yield from parameters(other).items() if other is not None else ()
    for names, described in entries:
        other = _named(owner, found[1]) if (found := _ELSEWHERE.match(described)) else None
        if other is not None and described.startswith("Those of"):
            yield from parameters(other).items()
            continue
        theirs = parameters(other) if other is not None else {}
        for name in names:
            yield name, theirs.get(name, described)


def _entries(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the names and the description of each entry of the section ``Parameters``."""
    section = re.search(r"^Parameters\n-{3,}\n(.*?)(?=^\S[^\n]*\n-{3,}\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if not section:
        return
    names: list[str] = []
    lines: list[str] = []
    for line in [*section[1].splitlines(), "."]:
        if not line[:1].strip():
            lines.append(line.strip())
            continue
        if names and lines:
            yield names, "\n".join(lines).strip()
            names, lines = [], []
        # Many names take more than one line.
        names += [name.strip().lstrip("*") for name in line.split(",") if name.strip()]


def _first_sentence(text: str) -> str:
    paragraph = plain_text(text.split("\n\n")[0])
    return re.split(r"(?<=[^.])\.(?=\s+[A-Z`\"(:]|$)", paragraph, maxsplit=1)[0].strip()


def _named(owner: Any, name: str) -> Any | None:
    """Return what a reference means: a full path, or a name in the module it stands in or in the room around it."""
    module, _, last = name.rpartition(".")
    if module:
        try:
            return getattr(importlib.import_module(module), last, None)
        except ModuleNotFoundError:
            return None
    home = str(getattr(owner, "__module__", ""))
    places = (home, ".".join(home.split(".")[:2]))
    return next((getattr(sys.modules[place], last) for place in places if hasattr(sys.modules.get(place), last)), None)
