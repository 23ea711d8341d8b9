"""Gene sets that a data set brings along, where public ones would not fit its genes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pertbase._frozen import FrozenMapping
from pertbase.errors import InputError

__all__ = ["COLUMNS", "set_table", "sets_from_table"]

COLUMNS = ("set", "gene")


def set_table(sets: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """Return the table that ``uns["pertbase"]["gene_sets"]`` holds: a row a (set, gene), in order."""
    rows = [(name, gene) for name, genes in sorted(sets.items()) for gene in genes]
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)


def sets_from_table(table: pd.DataFrame, *, file: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """Return name -> genes from a table of :func:`set_table`'s kind; read-only.

    Raises
    ------
    InputError
        Where a column is missing.
    """
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InputError("the gene sets lack columns", file=file, key='uns["pertbase"]["gene_sets"]', value=missing)
    grouped = table.astype(str).groupby("set", sort=True)["gene"]
    return FrozenMapping({str(name): tuple(sorted(set(genes))) for name, genes in grouped})
