"""Files that are whole or absent: written aside, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pertbase.errors import InputError, PertbaseError

__all__ = [
    "canonical_json",
    "plain",
    "read_json",
    "read_yaml",
    "sha256_file",
    "sha256_text",
    "write_aside",
    "write_json",
    "write_text",
    "write_yaml",
]


@contextlib.contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it over ``path`` when the block ends well.

    The temporary name keeps the suffix, since some writers choose the format by it. Nothing is left behind
    when the block raises, and ``path`` is never seen half-written.

    Raises
    ------
    PertbaseError
        Where the folder cannot be made or written, or the disk is full.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=f".part{path.suffix}", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        # mkstemp makes files private; a result is for whoever may read its folder.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise PertbaseError(
            f"cannot write ({error.strerror or error})",
            file=path,
            remedy="check that the folder exists, may be written and has space left; nothing was changed",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """Return ``value`` made of JSON's own types; NaN and infinities become None, keys become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value


def canonical_json(value: Any) -> str:
    """Return one text per value: sorted keys, no spaces, NaN as null."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` whole."""
    with write_aside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys; NaN is null."""
    write_text(path, json.dumps(plain(value), indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_yaml(path: str | Path, value: Any) -> None:
    """Write ``value`` as YAML, keys in the order given; NaN is null."""
    write_text(path, yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True))


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError("there is no such file", file=path) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=path) from error


def read_json(path: str | Path) -> Any:
    """Read JSON.

    Raises
    ------
    InputError
        Where the file is absent or is not JSON.
    """
    try:
        return json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise InputError(f"is not valid JSON ({error})", file=path) from error


def read_yaml(path: str | Path) -> Any:
    """Read YAML.

    Raises
    ------
    InputError
        Where the file is absent or is not YAML.
    """
    try:
        return yaml.safe_load(_read(path))
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML ({error})", file=path) from error


def sha256_text(text: str) -> str:
    """Return the hex SHA-256 of ``text``."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path: str | Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
