"""Pickles of strangers: read with a list of what they may call, and never executed."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pertbase.errors import InputError

__all__ = ["read_pickle"]

_BUILTINS: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", name): kind
    for name, kind in (("set", set), ("frozenset", frozenset), ("slice", slice), ("complex", complex))
}
_PLAIN: Mapping[tuple[str, str], Callable[..., Any]] = {
    **_BUILTINS,
    ("__builtin__", "set"): set,
    ("__builtin__", "frozenset"): frozenset,
    ("collections", "OrderedDict"): OrderedDict,
}


def read_pickle(
    path: str | Path, *, allowed: Mapping[tuple[str, str], Callable[..., Any]] | None = None, remedy: str | None = None
) -> Any:
    """Return what a pickle holds, where it holds plain values only.

    Numbers, text, lists, tuples, dictionaries and sets can be read. A pickle names functions that unpickling calls;
    any name beside those allowed is refused before anything is called.

    Parameters
    ----------
    path
        The file.
    allowed
        (module, name) -> what is called in its place.
    remedy
        What to do about a file that is refused.

    Raises
    ------
    InputError
        Where the file is absent, no pickle, or names something that is not allowed.
    """
    path = Path(path)
    known = {**_PLAIN, **(allowed or {})}

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) not in known:
                raise InputError(
                    "holds something else than plain values, and reading it would run code of its maker's",
                    file=path,
                    value=f"{module}.{name}",
                    remedy=remedy or "do not use the file, or write its content in another format",
                )
            return known[module, name]

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", file=path) from error
    try:
        return Restricted(io.BytesIO(content)).load()
    except InputError:
        raise
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot be read as a pickle ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
            file=path,
            remedy="the download may have been an error page or cut short; fetch it again",
        ) from error
