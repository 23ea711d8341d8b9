"""Published figures, to stand beside ours: never reproduced here, and marked so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._io import read_mapping
from pertbase.errors import InputError, unknown_name

__all__ = ["MARK", "Published", "published", "read_published"]

MARK = "published, not reproduced here"
_KEYS = ("title", "source", "data", "columns", "rows", "differs", "sources")


@dataclass(frozen=True)
class Published:
    """A table of somebody's figures.

    Parameters
    ----------
    title, source
        What they are and where they stand.
    table
        Models x columns.
    differs
        What was not the same there as in runs of ours, a sentence each.
    sources
        Of single rows, where not all stand in one place.
    """

    title: str
    source: str
    table: pd.DataFrame
    differs: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> list[str]:
        """Where the figures stand, and what is not the same: a line each."""
        rows = [f"source of {row}: {source}" for row, source in self.sources.items()]
        return [f"source: {self.source}", *rows, *(f"not the same: {line}" for line in self.differs)]


def published(data: Iterable[str]) -> list[Published]:
    """Return the tables that are about some data sets, from ``conf/published/``: no other runs stand beside them.

    What a table is about may be a pattern: ``pertreasonqa*`` are all of its folds.
    """
    names = list(data)
    found = []
    for _, path in sorted(_files(()).items()):
        about = read_mapping(path)
        if any(fnmatchcase(item, str(about["data"])) for item in names):
            found.append(_table(about, path))
    return found


def read_published(name: str, *, config_dirs: Sequence[Path] = (), file: str) -> Published:
    """Return the table of ``published/NAME.yaml``, among ours or in a folder of the user's.

    Raises
    ------
    InputError
        Where there is none of that name, which ``file`` asked for, or it says something else than such a table does.
    """
    paths = _files(config_dirs)
    if name not in paths:
        raise unknown_name("published", name, paths, file=file)
    return _table(read_mapping(paths[name]), paths[name])


def _files(config_dirs: Sequence[Path]) -> dict[str, Path]:
    """Return the tables by name; the user's go before ours."""
    shipped = Path(str(files("pertbase.conf").joinpath("published")))
    folders = (shipped, *(folder / "published" for folder in reversed(config_dirs)))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def _table(about: Mapping[str, Any], path: Path) -> Published:
    for key in about:
        if key not in _KEYS:
            raise unknown_name("key of published figures", str(key), _KEYS, file=path)
    for key in _KEYS[:5]:
        if not about.get(key):
            raise InputError("is missing", file=path, key=key, remedy=f"published figures have {', '.join(_KEYS[:5])}")
    for key, kind, told in (("columns", list, "a list"), ("rows", dict, "a mapping"), ("sources", dict, "a mapping")):
        if not isinstance(about.get(key, kind()), kind):
            raise InputError(f"is {told}", file=path, key=key, value=about[key])
    columns = [str(name) for name in about["columns"]]
    rows: dict[str, list[float]] = {}
    for name, values in about["rows"].items():
        known = isinstance(values, list) and all(isinstance(value, (int, float)) or value is None for value in values)
        if not known or len(values) != len(columns):
            raise InputError(
                f"is a list of {len(columns)} figures, null for one that is not known",
                file=path,
                key=f"rows.{name}",
                value=values,
            )
        rows[str(name)] = [math.nan if value is None else float(value) for value in values]
    for row in about.get("sources", {}):
        if row not in rows:
            raise unknown_name("row of sources", str(row), rows, file=path)
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("model")
    sources = {str(row): str(source) for row, source in about.get("sources", {}).items()}
    return Published(str(about["title"]), str(about["source"]), table, tuple(about.get("differs", ())), sources)
