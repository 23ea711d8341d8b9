"""Data sets by name: ``conf/data/NAME.yaml`` says which function makes one, and from what."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pertbase.errors import InputError, unknown_name
from pertbase.folds._download import Origin, fetch, verify
from pertbase.folds._effect_files import read_effect_table
from pertbase.folds._effect_table import EffectTable
from pertbase.folds._outcome_table import PERTURBQA_LINES, OutcomeTable, read_perturbqa
from pertbase.folds._prepare import prepare_path
from pertbase.folds._prepare._options import parse_options
from pertbase.folds._prepare._source import holds_screen
from pertbase.folds._screen import Screen
from pertbase.folds._screen_files import read_screen

__all__ = [
    "DataSet",
    "data",
    "data_names",
    "find_data",
    "load_data",
    "load_effect_table",
    "load_h5ad",
    "load_perturbqa",
]

DataSet: TypeAlias = Screen | OutcomeTable | EffectTable

_LOGGER = logging.getLogger("pertbase")
_MISSING = "???"


def data_names() -> list[str]:
    """Return the names that ``data=`` takes, sorted."""
    return sorted(
        item.name.removesuffix(".yaml")
        for item in files("pertbase.conf").joinpath("data").iterdir()
        if item.name.endswith(".yaml")
    )


def data(name: str, **overrides: Any) -> DataSet:
    """Return a named data set, such as ``data("papalexi")``.

    Parameters
    ----------
    name
        One of :func:`data_names`.
    overrides
        Values that replace those of ``conf/data/NAME.yaml``.

    Raises
    ------
    InputError
        For an unknown name or option (with the nearest one), and where the files are not to be found.
    """
    names = data_names()
    if name not in names:
        raise unknown_name("data", name, names)
    text = files("pertbase.conf").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8")
    return load_data(yaml.safe_load(text), **overrides)


def load_data(name_or_config: str | Mapping[str, Any], **overrides: Any) -> DataSet:
    """Return the data set that a name or a configuration with ``_target_`` means; see :func:`data`."""
    if isinstance(name_or_config, str):
        return data(name_or_config, **overrides)
    config = {str(key): value for key, value in name_or_config.items()} | overrides
    target = config.pop("_target_", None)
    if not isinstance(target, str):
        raise InputError("names no function", key="_target_", value=target, remedy="say which function makes the data")
    function, accepted = _resolve(target)
    options = {key: value for key, value in config.items() if not key.startswith("_")}
    if not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in accepted.values()):
        for key in options:
            if key not in accepted:
                raise unknown_name("option", key, accepted)
    missing = [key for key, value in options.items() if isinstance(value, str) and value == _MISSING]
    missing += [
        key
        for key, item in accepted.items()
        if item.default is inspect.Parameter.empty
        and item.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and key not in options
    ]
    if missing:
        raise InputError("has to be given", key=missing[0], value=None, remedy=f"say {missing[0]}=VALUE")
    made = function(**options)
    if not isinstance(made, (Screen, OutcomeTable, EffectTable)):
        raise InputError("made no data set", key="_target_", value=f"{target} -> {type(made).__name__}")
    return made


def _resolve(target: str) -> tuple[Callable[..., Any], Mapping[str, inspect.Parameter]]:
    """Return a function by its dotted name, and what it accepts."""
    module, _, attribute = target.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), attribute)
        return function, inspect.signature(function).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f"is not a function that can be imported ({error})",
            key="_target_",
            value=target,
            remedy="write package.module.function",
        ) from error


def _folders() -> list[Path]:
    """Return where data files are looked for, in this order."""
    given = os.environ.get("PERTBASE_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pertbase"
    return [*([Path(given).expanduser()] if given else []), cache]


def _places(path: Path) -> list[Path]:
    return [path] if path.is_absolute() else [path, *(folder / path for folder in _folders())]


def find_data(path: str | Path, *, source: str = "", licence: str = "") -> Path:
    """Return where a file or folder of data lies.

    An absolute path, or one that exists from the working directory, is taken as it is; then the folder that the
    environment variable ``PERTBASE_DATA`` names, and the user's cache, are looked through.

    Raises
    ------
    InputError
        Where it is in none of them; the message names every place, where to get it, and its licence.
    """
    path = Path(path).expanduser()
    for place in _places(path):
        if place.exists():
            return place
    origin = f"; it comes from {source}" + (f" ({licence})" if licence else "") if source else ""
    raise InputError(
        "is in none of the places looked at",
        file=path,
        value=[str(place if place.is_absolute() else Path.cwd() / place) for place in _places(path)],
        remedy=f"set PERTBASE_DATA to the folder that holds it{origin}"
        if origin
        else "check the path, or set PERTBASE_DATA to the folder that holds it",
    )


def find_or_fetch(path: str | Path, origin: Origin) -> Path:
    """Return where a file lies, as :func:`find_data` finds it, verified; fetch it where it lies nowhere.

    It is fetched into the folder that ``PERTBASE_DATA`` names, or where that cannot be written, or is not set, into
    the user's cache.

    Raises
    ------
    PertbaseError
        Where it does not fit its checksum or cannot be fetched; see :func:`~pertbase.folds._download.fetch`.
    """
    path = Path(path).expanduser()
    for place in _places(path):
        if place.exists():
            verify(place, origin)
            return place
    if path.is_absolute():
        return fetch(origin, path)
    folders = _folders()
    return fetch(origin, next((folder for folder in folders if _writable(folder)), folders[-1]) / path)


def _writable(folder: Path) -> bool:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


def load_h5ad(
    path: str | Path,
    *,
    name: str | None = None,
    source: str = "",
    licence: str = "",
    url: str = "",
    checksum: str | Sequence[str] | None = None,
    size: int | None = None,
    citation: str = "",
    **options: Any,
) -> Screen:
    """Return the screen a file holds: as it is where it is in the contract, else prepared in memory.

    What was recognised is logged by the logger ``pertbase``.

    Parameters
    ----------
    path
        An ``.h5ad`` or ``.zarr`` file, found by :func:`find_data`.
    name
        The screen's name; the file's where not given.
    source
        Where the file comes from, for the message where it is absent.
    licence
        On what terms the file comes, for the same message.
    url
        From where it is fetched where it is absent.
    checksum
        ``sha256:HEX`` or ``md5:HEX``, one or several: what the file has to fit, fetched or laid by hand. Where there
        is a ``url`` and none of them, the first copy is trusted, and its SHA-256 kept beside it.
    size
        In bytes, of the file at ``url``.
    citation
        Said when the file is fetched.
    options
        Those of :class:`~pertbase.folds.PrepareOptions`, for a file that is not in the contract.

    Raises
    ------
    InputError
        Where the file is absent, is not the one it should be, or cannot be read as a screen.
    PertbaseError
        Where it cannot be fetched.
    """
    parsed = parse_options(options)
    origin = Origin.of(url=url, checksum=checksum, size=size, licence=licence, citation=citation)
    if url:
        found = find_or_fetch(path, origin)
    else:
        found = find_data(path, source=source, licence=licence)
        if origin.checksum:
            verify(found, origin)
    if holds_screen(found):
        if parsed.given:
            raise InputError(
                "is a screen already, so there is nothing to prepare",
                file=found,
                key=", ".join(parsed.given),
                remedy="leave these options out, or start from the original file",
            )
        return read_screen(found, name=name)
    screen, report = prepare_path(found, name=name, **options)
    _LOGGER.info("%s", report)
    for warning in report.warnings:
        _LOGGER.warning("%s: %s", report.name, warning)
    return screen


def load_perturbqa(
    folder: str | Path,
    *,
    name: str = "perturbqa",
    lines: tuple[str, ...] = PERTURBQA_LINES,
    mechanism: str = "CRISPRi",
    source: str = "",
    licence: str = "",
) -> OutcomeTable:
    """Return PerturbQA's outcomes from a folder found by :func:`find_data`.

    Parameters
    ----------
    source
        Where the files come from, for the message where they are absent.
    licence
        On what terms the files come, for the same message.
    folder, name, lines, mechanism
        See :func:`read_perturbqa`.
    """
    found = find_data(folder, source=source, licence=licence)
    return read_perturbqa(found, name=name, lines=tuple(lines), mechanism=mechanism)


def load_effect_table(
    path: str | Path, *, name: str | None = None, source: str = "", licence: str = "", **options: Any
) -> EffectTable:
    """Return measured effects from a table found by :func:`find_data`.

    Parameters
    ----------
    source
        Where the file comes from, for the message where it is absent.
    licence
        On what terms the file comes, for the same message.
    path, name
        See :func:`read_effect_table`.
    options
        Those of :func:`read_effect_table`.
    """
    return read_effect_table(find_data(path, source=source, licence=licence), name=name, **options)
