"""Which of the paths laid over a fold a run was given, said in what those of other runs differ from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pertbase._io import canonical_json
from pertbase.runs._store import Run

__all__ = ["paths_told"]

_HASH = 6


def paths_told(runs: Sequence[Run]) -> list[str]:
    """Return for each run of one fold which paths it was given; empty texts where all were given the same.

    Paths are told by the options in which they differ, and by the beginning of their hash where they have the same
    ones: a graph's file may have changed. Their folder within the fold's is ``paths-HASH``.
    """
    hashes = [None if (given := run.config.get("paths_hash")) is None else str(given) for run in runs]
    if len(set(hashes)) < 2:
        return [""] * len(runs)
    options = [run.paths or {} for run in runs]
    laid = [one for one, given in zip(options, hashes, strict=True) if given is not None]
    keys = sorted({key for one in laid for key in one if len({_value(other, key) for other in laid}) > 1})
    told = [
        "no paths" if given is None else " ".join(f"{key}={_value(one, key)}" for key in keys)
        for one, given in zip(options, hashes, strict=True)
    ]
    whose: dict[str, set[str | None]] = {}
    for text, given in zip(told, hashes, strict=True):
        whose.setdefault(text, set()).add(given)
    return [
        text if given is None or (text and len(whose[text]) == 1) else f"{text} paths-{given[:_HASH]}".lstrip()
        for text, given in zip(told, hashes, strict=True)
    ]


def _value(options: Mapping[str, Any], key: str) -> str:
    """Return an option as it is typed; the graph that a data set brings is its own, and what is left out is false."""
    value = options.get(key, False)
    if key == "graph" and value is None:
        return "own"
    return value if isinstance(value, str) else canonical_json(value)
