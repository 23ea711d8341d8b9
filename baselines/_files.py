"""The files that options name: what is in them, and not where they lie, is part of what identifies a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pertbase._io import sha256_file
from pertbase.errors import InputError

__all__ = ["FOLDERS", "file_hash", "folder_hash", "model_files", "named_files"]

FOLDERS = ("checkpoint", "model", "start")
"""Options that may name a folder which is read: of others, a folder is one to write to, or happens to have the name."""
_SHOWN = 32
"""Digits of a hash that are kept."""
_LONGEST = 4096
"""Letters that the path of a file has at most; what is longer is a text."""


def named_files(options: Any) -> dict[str, str]:
    """Return the hash of each file that options name, by the option, joined with dots where options are nested.

    A file is found as data files are (``PERTBASE_DATA``); of a folder that :data:`FOLDERS` name, the hash is
    :func:`folder_hash`. What is no file, such as the name of a graph or of a model on the hub, is left out, and so is
    a file that is gone.

    Parameters
    ----------
    options
        Mappings, sequences and dataclasses of plain values; of a dataclass, fields that compare.
    """
    return {key: digest for key, text in _texts(options, "") if (digest := _hash_of(key, text)) is not None}


def folder_hash(folder: Path) -> str:
    """Return the hash of what lies directly in a folder, names and contents: hidden files and Markdown left out."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".md":
            digest.update(f"{path.name}:{file_hash(path)}\n".encode())
    return digest.hexdigest()[:_SHOWN]


def model_files(model: str) -> dict[str, str]:
    """Return what belongs to a model's identity where it is a folder, whose weights may be others tomorrow."""
    try:
        folder = Path(model).is_dir()
    except OSError:  # a name longer than names can be
        folder = False
    return {"files": folder_hash(Path(model))} if folder else {}


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every text among options, with its key."""
    if isinstance(value, (str, Path)):
        yield key, str(value)
        return
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        items = ((item.name, getattr(value, item.name)) for item in fields(value) if item.compare)
    for name, item in items:
        if not str(name).startswith("_"):
            yield from _texts(item, f"{key}.{name}" if key else str(name))


def _hash_of(key: str, text: str) -> str | None:
    from pertbase.folds._data import find_data

    if not text or "\0" in text or "\n" in text or len(text) > _LONGEST:
        return None
    try:
        as_it_is = Path(text).expanduser()
        if as_it_is.is_dir():
            return folder_hash(as_it_is) if key.rpartition(".")[2] in FOLDERS else None
        found = find_data(text)
        return file_hash(found)[:_SHOWN] if found.is_file() else None
    except (InputError, OSError, RuntimeError):  # absent, a name longer than names can be, nobody's home
        return None


def file_hash(path: Path) -> str:
    """Return the hash of a file; weights of gigabytes are read once, as long as nothing about the file changes."""
    about = path.stat()
    return _kept_hash(str(path.resolve()), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


@lru_cache(maxsize=1024)
def _kept_hash(path: str, *_: int) -> str:
    return sha256_file(path)
