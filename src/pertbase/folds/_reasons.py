"""The reasons of answers: triplets and a text, and the files that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pertbase._io import read_parquet, write_aside
from pertbase.errors import InputError, PertbaseError
from pertbase.folds._answer_table import refuse_repeated
from pertbase.knowledge._triplets import Triplet

__all__ = [
    "MOST_TRIPLETS",
    "REASON_COLUMNS",
    "clean_reasons",
    "inline_reasons",
    "read_beside",
    "write_beside",
    "write_reasons",
]

REASON_COLUMNS = ("id", "triplets", "text")
MOST_TRIPLETS = 10_000
"""Of one reason: more is a file gone wrong, not a reason."""
_REMEDY = "a reason is a list of [head, relation, tail], three texts each; an empty list where there is none"


def clean_reasons(table: pd.DataFrame, ids: np.ndarray, file: str | None = None) -> pd.DataFrame:
    """Return reasons as ``id``, ``triplets`` (a tuple of :class:`Triplet`) and ``text`` (empty where there is none).

    Parameters
    ----------
    table
        With the columns ``id`` and ``triplets``, and perhaps ``text``.
    ids
        Of the answers they belong to.
    file
        For messages.

    Raises
    ------
    InputError
        Where a column is missing, an id repeats or is no answer's, or a triplet is not three texts; with the id.
    """
    for column in REASON_COLUMNS[:2]:
        if column not in table.columns:
            raise InputError("reasons lack a column", file=file, key=column, value=list(table.columns), remedy=_REMEDY)
    own = table["id"].astype(str)
    refuse_repeated(own, "reasons", file, remedy="give each answer one reason")
    strange = pd.Index(ids).get_indexer(own) < 0
    if strange.any():
        raise InputError(
            f"{int(strange.sum())} reasons are of no answer",
            file=file,
            key="id",
            value=own[strange].iloc[0],
            remedy="give each reason the id of its answer",
        )
    triplets = [_triplets(value, key, file) for key, value in zip(own, table["triplets"], strict=True)]
    texts = table["text"] if "text" in table.columns else [None] * len(table)
    return pd.DataFrame(
        {
            "id": own.to_numpy(dtype=object),
            "triplets": _column(triplets),
            "text": np.array([_text(value, key, file) for key, value in zip(own, texts, strict=True)], dtype=object),
        }
    )


def _column(triplets: Sequence[tuple[Triplet, ...]]) -> np.ndarray:
    """Return a column of objects; NumPy would make a table of lists that are equally long."""
    column = np.empty(len(triplets), dtype=object)
    column[:] = triplets
    return column


def _triplets(value: Any, key: str, file: str | None) -> tuple[Triplet, ...]:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, (Sequence, np.ndarray)):
        raise InputError("triplets are not a list", file=file, key="triplets", value=(key, value), remedy=_REMEDY)
    if len(value) > MOST_TRIPLETS:
        raise InputError(
            f"a reason has {len(value):,} triplets",
            file=file,
            key="triplets",
            value=key,
            remedy=f"at most {MOST_TRIPLETS:,}: keep those that are claimed",
        )
    return tuple(_triplet(item, key, file) for item in value)


def _triplet(item: Any, key: str, file: str | None) -> Triplet:
    if isinstance(item, (Sequence, np.ndarray)) and not isinstance(item, (str, bytes)) and len(item) == 3:
        head, relation, tail = item
        if all(isinstance(part, str) and part.strip() for part in (head, relation, tail)):
            return Triplet(head, relation, tail)
    shown = item.tolist() if isinstance(item, np.ndarray) else item
    raise InputError("a triplet is not three texts", file=file, key="triplets", value=(key, shown), remedy=_REMEDY)


def _text(value: Any, key: str, file: str | None) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise InputError("the text of a reason is not a text", file=file, key="text", value=(key, value))
    return value


def inline_reasons(table: pd.DataFrame, path: Path) -> pd.DataFrame | None:
    """Return the reasons that stand in the rows of answers, in ``triplets`` and ``text``; None where there are none.

    A text alone is no reason that could be scored: without the column ``triplets`` there are none.

    Raises
    ------
    InputError
        For CSV with triplets: it has no lists.
    """
    if "triplets" not in table.columns:
        return None
    if path.suffix == ".csv":
        raise InputError("CSV does not hold reasons", file=path, key="triplets", remedy="write .jsonl or .parquet")
    there = [name for name in REASON_COLUMNS[1:] if name in table.columns]
    given = table[there].notna().any(axis=1)
    return table.loc[given, ["id", *there]] if given.any() else None


def read_beside(path: Path, ids: np.ndarray) -> pd.DataFrame | None:
    """Return the reasons that lie beside a Parquet file of answers, or None.

    In ``NAME.reasons.parquet``, as is written beside ``NAME.parquet``; else in ``reasons.parquet``, which all answers
    of a folder share, as the adapters of a run do.

    Raises
    ------
    InputError
        As :func:`clean_reasons`, and where the file cannot be read.
    """
    for place in (path.with_suffix(".reasons.parquet"), path.with_name("reasons.parquet")):
        if place.is_file() and place != path:
            return clean_reasons(read_parquet(place), ids, str(place))
    return None


def write_beside(reasons: pd.DataFrame | None, path: Path) -> None:
    """Write the reasons of the Parquet file of answers that is written next; without any, remove those of older ones.

    The older answers go first: at no time do answers stand beside the reasons of others.
    """
    beside = path.with_suffix(".reasons.parquet")
    if reasons is None and not beside.exists():
        return
    try:
        path.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)
    except OSError as error:
        raise PertbaseError(f"cannot be replaced ({error.strerror or error})", file=path) from error
    if reasons is not None:
        write_reasons(reasons, beside)


def write_reasons(reasons: pd.DataFrame, path: str | Path) -> None:
    """Write reasons as Parquet, triplets as lists of three texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shape = pa.list_(pa.list_(pa.string()))
    columns = {
        "id": pa.array(reasons["id"].tolist(), type=pa.string()),
        "triplets": pa.array([[list(item) for item in row] for row in reasons["triplets"]], type=shape),
        "text": pa.array(reasons["text"].tolist(), type=pa.string()),
    }
    with write_aside(path) as temporary:
        pq.write_table(pa.table(columns), temporary)
