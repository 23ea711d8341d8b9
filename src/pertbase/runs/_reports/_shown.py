"""Which paths a language model was shown with each question: kept beside its answers, to hold its reasons against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pertbase._io import read_parquet, write_aside
from pertbase.knowledge._triplets import Triplet

__all__ = ["SHOWN", "Shown", "read_shown", "write_shown"]

SHOWN = "shown.parquet"
"""In a run's folder."""

Shown = Mapping[str, Sequence[Sequence[Triplet]] | None]
"""Question -> its paths; None where what was asked has no place for any."""


def write_shown(shown: Shown, path: Path) -> None:
    """Write what was shown as Parquet: ``id``, and ``paths``, lists of lists of three texts, or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    listed = [None if paths is None else [[list(edge) for edge in one] for one in paths] for paths in shown.values()]
    columns = {
        "id": pa.array(list(shown), type=pa.string()),
        "paths": pa.array(listed, type=pa.list_(pa.list_(pa.list_(pa.string())))),
    }
    with write_aside(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def read_shown(path: Path) -> Shown | None:
    """Return what :func:`write_shown` wrote; None where there is no such file."""
    if not path.is_file():
        return None
    table = read_parquet(path)
    return {
        str(name): None
        if paths is None
        else tuple(tuple(Triplet(*(str(part) for part in edge)) for edge in one) for one in paths)
        for name, paths in zip(table["id"], table["paths"], strict=True)
    }
