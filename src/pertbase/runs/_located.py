"""What a ``_target_`` names, imported; where that fails, whose file says so, what was raised, and what to do."""

from __future__ import annotations

import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from pertbase.errors import InputError, nearest
from pertbase.runs._guard import ForeignError, guarded

__all__ = ["located"]


def located(target: str, key: str, *, file: str | Path | None = None) -> Any:
    """Return the class or function of a dotted name.

    Parameters
    ----------
    target
        ``package.module.Class``.
    key
        The option that names it.
    file
        The configuration it stands in, where that is known.

    Raises
    ------
    InputError
        Where it cannot be imported, with the whole reason: a module may be absent, broken, or raise something.
    """
    parts = target.split(".")
    if len(parts) < 2 or not all(parts):
        raise InputError("names no class", file=file, key=key, value=target, remedy="write package.module.Class")
    found, name = None, parts[0]
    for number in range(1, len(parts)):
        name = ".".join(parts[:number])
        try:
            found = guarded(lambda name=name: import_module(name))  # type: ignore[misc]
        except ForeignError as error:
            cause = error.__cause__
            if not (isinstance(cause, ModuleNotFoundError) and cause.name == name):
                raise _broken(cause, name, target, key, file) from cause
            if found is None or (hasattr(found, "__path__") and parts[number - 1] not in vars(found)):
                raise _absent(name, target, key, file) from cause
            name = ".".join(parts[: number - 1])
            break  # a class within a class
    for part in parts[name.count(".") + 1 :]:
        try:
            found = guarded(lambda found=found, part=part: getattr(found, part))  # type: ignore[misc]
        except ForeignError as error:
            if not isinstance(error.__cause__, AttributeError):  # a name that is imported when it is asked for
                raise _broken(error.__cause__, name, target, key, file) from error.__cause__
            raise _lacking(found, part, name, target, key, file) from error.__cause__
        name = f"{name}.{part}"
    return found


def _lacking(found: Any, part: str, name: str, target: str, key: str, file: str | Path | None) -> InputError:
    """Return the error for a name that a module lacks, with the nearest it has."""
    close = nearest(part, [one for one in vars(found) if not one.startswith("_")])
    place = getattr(found, "__file__", None)
    return InputError(
        f"cannot be imported: {name}{f' ({place})' if place else ''} has no {part}",
        file=file,
        key=key,
        value=target,
        remedy=f"did you mean {close!r}?" if close else "check the name of the class",
    )


def _absent(module: str, target: str, key: str, file: str | Path | None) -> InputError:
    """Return the error for a module that is nowhere, with where it was looked for."""
    places = [f"in the working directory {Path.cwd()}", "and among what is installed"]
    beside = _beside(file)
    if beside is not None and beside != Path.cwd():
        places.insert(0, f"beside the configuration, in {beside},")
    source = f"{module.replace('.', '/')}.py"
    return InputError(
        f"cannot be imported: there is no module {module}",
        file=file,
        key=key,
        value=target,
        remedy=f"it was looked for {' '.join(places)}; put {source} there, or set PYTHONPATH to the folder it is in",
    )


def _beside(file: str | Path | None) -> Path | None:
    """Return the folder beside a configuration folder, from a file in one of its groups."""
    if file is None:
        return None
    groups = [folder for folder in Path(file).resolve().parents if folder.name in ("baseline", "adapter", "data")]
    return groups[-1].parent.parent if groups else None


def _broken(error: BaseException | None, module: str, target: str, key: str, file: str | Path | None) -> InputError:
    """Return the error for a module that raises something when it is imported, with the line where it does."""
    place = ""
    if isinstance(error, SyntaxError):
        place, told = f"{error.filename}, line {error.lineno}", f"{type(error).__name__}: {error.msg}"
    else:
        frames = traceback.extract_tb(error.__traceback__) if error is not None else []
        own = [frame for frame in frames if "importlib" not in frame.filename and "pertbase/runs" not in frame.filename]
        place = f"{own[-1].filename}, line {own[-1].lineno}" if own else ""
        told = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
    remedy = f"mend {place}" if place else f"try: python -c 'import {module}'"
    if isinstance(error, ModuleNotFoundError):
        remedy = f"install {error.name}, which {place or module} imports, or put its folder on PYTHONPATH"
    return InputError(f"importing {module} raised {told}", file=file, key=key, value=target, remedy=remedy)
