"""What is raised when an input, a name or a file is not what it should be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["InputError", "PertbaseError", "UnsupportedError", "begun", "nearest", "no_attribute", "unknown_name"]


_SHORTEST = 3
_SHOWN = 4


class PertbaseError(Exception):
    """An error a user can mend: it says where, what and how.

    Parameters
    ----------
    problem
        What is wrong, as a clause without a full stop.
    file
        The file it was found in.
    key
        The column, key, option or field it was found under.
    value
        The offending value. Left out of the message when not given.
    remedy
        What to do about it, as a sentence without a full stop, or as a question with its mark.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        value: object = ...,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.key = key
        self.value = value
        self.remedy = remedy
        where = ": ".join(part for part in (self.file, key) if part)
        text = f"{where}: {problem}" if where else problem
        if value is not ...:
            shown = repr(value)
            text += f" (got {shown if len(shown) <= 200 else shown[:197] + '...'})"
        text += "."
        if remedy:
            text += f" {remedy[0].upper()}{remedy[1:]}" + ("" if remedy.endswith("?") else ".")
        super().__init__(text)


class InputError(PertbaseError, ValueError):
    """A file, column, key or value breaks a contract."""


class UnsupportedError(PertbaseError):
    """A (data set, fold, baseline) combination that cannot be: a run of it is skipped with this reason."""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name most like ``name``, or None where none is close."""
    names = list(valid)
    by_lower = {candidate.lower(): candidate for candidate in names}
    match = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5)
    return by_lower[match[0]] if match else None


def begun(name: str, valid: Iterable[str]) -> list[str]:
    """Return the valid names that begin with ``name``, or hold it where none does: it may be cut short."""
    names, text = sorted(valid), name.lower()
    if len(text) < _SHORTEST:
        return []
    return [item for item in names if item.lower().startswith(text)] or [item for item in names if text in item.lower()]


def no_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module lacks, with the nearest one it has."""
    close = nearest(name, known)
    told = f"module {module!r} has no attribute {name!r}" + (f"; did you mean {close!r}?" if close else "")
    # With a name given, Python itself does not guess a second time.
    return AttributeError(told, name=name)


def unknown_name(kind: str, name: str, valid: Iterable[str], *, file: str | Path | None = None) -> InputError:
    """Return the error for a name that is not among the valid ones, with the nearest ones as remedy."""
    names = sorted(valid)
    close = nearest(str(name), names)
    meant = [close] if close else begun(str(name), names)
    remedy = f"did you mean {' or '.join(map(repr, meant[:_SHOWN]))}? " if meant else ""
    listed = ", ".join(names) if names else "none"
    return InputError(f"unknown {kind}", file=file, key=kind, value=name, remedy=f"{remedy}Known: {listed}")
