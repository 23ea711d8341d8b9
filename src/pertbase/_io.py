"""Files that are whole or absent: written aside, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pertbase.errors import InputError, PertbaseError

__all__ = [
    "canonical_json",
    "cut",
    "plain",
    "read_json",
    "read_jsonl",
    "read_mapping",
    "read_parquet",
    "read_yaml",
    "sha256_file",
    "sha256_text",
    "write_aside",
    "write_folder_aside",
    "write_json",
    "write_jsonl",
    "write_text",
    "write_yaml",
]


_REMEDY = "check that the folder exists, may be written and has space left; nothing was changed"
# In bytes: file systems take names of 255, and a hidden name carries some 40 more.
_KEPT_OF_A_NAME = 120


@contextlib.contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it over ``path`` when the block ends well.

    The temporary name keeps the suffix, since some writers choose the format by it. Nothing is left behind
    when the block raises, and ``path`` is never seen half-written. What a killed process left of the same name is
    removed.

    Raises
    ------
    PertbaseError
        Where the folder cannot be made or written, the disk is full, or what has that name is no file: renaming over a
        device would replace it.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        if path.exists() and not path.is_file():
            raise PertbaseError("is not a file, and would be replaced by one", file=path, remedy="name another")
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        handle, name = tempfile.mkstemp(prefix=_prefix(path), suffix=f".part{path.suffix}", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        # mkstemp makes files private; a result is for whoever may read its folder.
        temporary.chmod(0o666 & ~_umask())
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise PertbaseError(f"cannot write ({error.strerror or error})", file=path, remedy=_REMEDY) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def write_folder_aside(folder: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``folder``; give it that name when the block ends well.

    As :func:`write_aside`, for formats that are a folder. With ``replace``, what has the name already makes way, and
    only once the new one is whole.

    Raises
    ------
    PertbaseError
        Where something has that name already, the folder cannot be written, or the disk is full.
    """
    folder = Path(folder)
    aside: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        aside = Path(tempfile.mkdtemp(prefix=_prefix(folder), suffix=".part", dir=folder.parent))
        aside.chmod(0o777 & ~_umask())
        yield aside
        if folder.exists() and replace:
            # Two names cannot be swapped at once: the old one goes aside first, and nothing can fail in between.
            old = Path(tempfile.mkdtemp(prefix=_prefix(folder), suffix=".part", dir=folder.parent))
            os.replace(folder, old / "old")
            os.replace(aside, folder)
            shutil.rmtree(old, ignore_errors=True)
        elif folder.exists():
            raise InputError(
                "there is something of this name already", file=folder, remedy="remove it or choose another folder"
            )
        else:
            os.replace(aside, folder)
        aside = None
    except OSError as error:
        raise PertbaseError(f"cannot write ({error.strerror or error})", file=folder, remedy=_REMEDY) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _shared(path: Path) -> str:
    """Return what the hidden names of all writers of a path begin with."""
    return f".{cut(path.name, _KEPT_OF_A_NAME)}."


def _prefix(path: Path) -> str:
    """Return what this process's hidden names of a path begin with: the machine and the process are in it."""
    return f"{_shared(path)}{_machine()}-{os.getpid()}-"


def _machine() -> str:
    return sha256_text(platform.node())[:8]


def _sweep(path: Path) -> None:
    """Remove what killed processes of this machine left of a path; others may still be writing theirs."""
    shared = _shared(path)
    for item in path.parent.iterdir():
        machine, *rest = item.name.removeprefix(shared).split("-")
        if not item.name.startswith(shared) or machine != _machine() or ".part" not in item.name:
            continue
        if len(rest) < 2 or not rest[0].isdigit() or _alive(int(rest[0])):
            continue
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere there is no harmless signal to ask with
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def cut(name: str, length: int) -> str:
    """Return as much of a name as fits into ``length`` bytes: file systems count bytes, not letters."""
    return os.fsencode(name)[:length].decode("utf-8", errors="ignore")


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


def write_jsonl(table: Any, path: str | Path) -> None:
    """Write a table as JSON lines, numbers to their last digit; what is missing, NaN among it, is null.

    pandas' own writer keeps 15 digits of 17, so that a number read back is another.
    """
    encode = json.JSONEncoder(ensure_ascii=False, default=plain).encode
    columns = []
    for name in table.columns:
        column = table[name]
        there = column.notna()
        if column.dtype.kind == "f":
            there &= np.isfinite(column)
        columns.append(column.astype(object).where(there, None).tolist())
    names = [str(name) for name in table.columns]
    with Path(path).open("w", encoding="utf-8") as file:
        for row in zip(*columns, strict=True):
            file.write(encode(dict(zip(names, row, strict=True))) + "\n")


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


def read_jsonl(path: str | Path) -> Any:
    """Read a table from JSON lines, numbers as they were written (pandas' reader refuses a p-value of 1e-310).

    Raises
    ------
    InputError
        For a line that is no object of JSON, by its number.
    OSError, UnicodeDecodeError
        Where the file cannot be read.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    with Path(path).open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            key, value = f"line {number}", line[:80].rstrip()
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise InputError(
                    f"is not valid JSON ({error})",
                    file=path,
                    key=key,
                    value=value,
                    remedy="the file may have been cut off while it was written",
                ) from error
            if not isinstance(row, dict):
                raise InputError("is not an object", file=path, key=key, value=value)
            rows.append(row)
    return pd.DataFrame(rows)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Read a mapping from JSON or YAML, by the suffix.

    Raises
    ------
    InputError
        Where the file is absent, is not of its format, or holds something else than a mapping.
    """
    found = read_json(path) if Path(path).suffix == ".json" else read_yaml(path)
    if not isinstance(found, dict):
        raise InputError("does not hold a mapping", file=path, value=found)
    return found


def read_parquet(path: str | Path, *, remedy: str | None = None) -> Any:
    """Read a table from Parquet.

    Raises
    ------
    InputError
        Where the file is absent, truncated, damaged or of another format.
    """
    import pandas as pd
    from pyarrow import ArrowException

    if not Path(path).is_file():
        raise InputError("there is no such file", file=path, remedy=remedy)
    try:
        return pd.read_parquet(path)
    except (ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot be read ({first})", file=path, remedy=remedy) from error


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
