"""Paths and texts that question-answer records ship, brought into the shape that folds have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError
from pertbase.folds._perturbation import Perturbation
from pertbase.knowledge._triplets import relation_sign

__all__ = ["SHIPPED", "path_list", "plain_paths", "shipped_paths"]

SHIPPED = ("candidate_paths", "reference_paths", "reference_text")
_KEY = ["context", "perturbation", "gene"]
_PARTS = ("head", "relation", "tail")

Paths = list[list[list[str]]]


def shipped_paths(
    table: pd.DataFrame, perturbations: Mapping[str, Perturbation], file: str | Path | None
) -> pd.DataFrame | None:
    """Return what records say of paths, one row a question, or None where they say nothing.

    Parameters
    ----------
    table
        Of records: ``context``, ``perturbation``, ``gene`` and what there is of :data:`SHIPPED`.
    perturbations
        Name -> perturbation.
    file
        For messages.

    Returns
    -------
    The key, and ``candidate_paths`` with ``conflict`` (whether they imply both up and down), ``reference_paths``,
    ``reference_text``, as far as records have them.

    Raises
    ------
    InputError
        Where something is not a list of paths.
    """
    there = [name for name in SHIPPED if name in table.columns and table[name].notna().any()]
    if not there:
        return None
    made = table[_KEY].reset_index(drop=True)
    for name in there:
        if name == "reference_text":
            made[name] = ["" if text is None or text != text else str(text) for text in table[name]]
            continue
        rows = zip(table[name], *(table[key] for key in _KEY), strict=True)
        paths = [path_list(value, key=name, about=about, file=file) for value, *about in rows]
        made[name] = pd.Series(paths, dtype=object)
        if name == "candidate_paths":
            named = zip(paths, table["perturbation"], strict=True)
            made["conflict"] = [_conflict(item, perturbations[key].signs) for item, key in named]
    return made


def path_list(value: Any, *, key: str, about: Sequence[str], file: str | Path | None) -> Paths:
    """Return a list of paths: a single path is a list of one, a triplet may be an object with head, relation and tail.

    Raises
    ------
    InputError
        Where it is something else; ``about`` is the question.
    """
    if value is None or (isinstance(value, float) and value != value):
        return []
    found = _paths(value)
    if found is None:
        raise InputError(
            "is not a list of paths, each a list of [head, relation, tail]",
            file=file,
            key=key,
            value=(*about, value),
            remedy=f"say fields.{key}=null to leave it out, or write the records in that shape",
        )
    return found


def _paths(value: Any) -> Paths | None:
    if not isinstance(value, list):
        return None
    if value and _triplet(value[0]) is not None:
        value = [value]
    paths: Paths = []
    for path in value:
        if not isinstance(path, list):
            return None
        triplets = [_triplet(item) for item in path]
        if any(item is None for item in triplets):
            return None
        paths.append([item for item in triplets if item is not None])
    return paths


def _triplet(item: Any) -> list[str] | None:
    parts = [item.get(name) for name in _PARTS] if isinstance(item, Mapping) else item
    if not isinstance(parts, list) or len(parts) != 3:
        return None
    return parts if all(isinstance(part, str) and part.strip() for part in parts) else None


def _conflict(paths: Paths, signs: Mapping[str, int]) -> bool:
    """Return whether paths imply both up and down: the sign of what they start from, times their own."""
    implied = set()
    for path in paths:
        sign = signs.get(path[0][0], 0) if path else 0
        for _, relation, _ in path:
            sign *= relation_sign(relation) or 0
        implied.add(sign)
    return {1, -1} <= implied


def plain_paths(column: pd.Series) -> pd.Series:
    """Return a column of paths as lists of lists of lists of text: Parquet gives arrays, which are other things.

    Raises
    ------
    InputError
        Where something is not a list of paths.
    """
    try:
        made = [
            []
            if paths is None or isinstance(paths, float)
            else [[[str(a), str(b), str(c)] for a, b, c in p] for p in paths]
            for paths in column
        ]
    except (TypeError, ValueError) as error:
        raise InputError(f"holds something else than paths of triplets ({error})", key=str(column.name)) from error
    return pd.Series(made, index=column.index, dtype=object)
