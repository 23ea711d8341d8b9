"""Calling what others wrote: baselines, adapters and functions that make data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pertbase.errors import PertbaseError

__all__ = ["ForeignError", "first_line", "guarded"]

T = TypeVar("T")


class ForeignError(Exception):
    """Whatever somebody else's code raised; the cause holds the traceback."""


def guarded(call: Callable[[], T]) -> T:
    """Call somebody's code: its own errors stay errors of ours, and anything else becomes a :class:`ForeignError`.

    The one place where every exception is caught, an exit too: a table must not end because one row of it is broken.
    """
    try:
        return call()
    except PertbaseError:
        raise
    except (Exception, SystemExit) as error:
        raise ForeignError(f"{type(error).__name__}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
