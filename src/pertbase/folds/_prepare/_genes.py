"""Gene symbols of somebody else's file: found, checked, and made unique by a stated rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase.errors import InputError, unknown_name

__all__ = ["PreparedGenes", "find_genes", "leave_out"]

_SYMBOL_COLUMNS = (
    "gene_symbol",
    "gene_symbols",
    "gene_name",
    "gene_names",
    "symbol",
    "symbols",
    "Symbol",
    "feature_name",
    "gene_short_name",
    "hgnc_symbol",
)
_ENSEMBL = r"^ENS[A-Z]*G\d{6,}(?:\.\d+)?$"
_MOUSE = r"^[A-Z][a-z][a-z0-9]*"
_NUMBER = r"^\d+(?:\.\d+)?$"
# What spreadsheets make of MARCH1, SEPT2 and DEC1.
_DATE = r"^(?:\d{1,2}-(?:Mar|Sep|Dec|Oct|Apr|Feb|Nov|Jan|May|Jun|Jul|Aug)|\d{4}-\d{2}-\d{2}(?: 00:00:00)?)$"


@dataclass(frozen=True)
class PreparedGenes:
    """The genes of the screen, and how the file's columns map to them.

    ``columns`` is None where every column is one gene, else a matrix of shape (n_columns, n_genes).
    """

    genes: pd.Index
    columns: Any
    recognised: tuple[str, ...]
    warnings: tuple[str, ...]


def find_genes(
    var: pd.DataFrame, *, symbols: str | None = None, duplicates: str = "error", file: str | None = None
) -> PreparedGenes:
    """Return unique gene symbols, from ``var_names`` or from the var column that holds them.

    Raises
    ------
    InputError
        For Ensembl ids without a column of symbols, and for symbols that occur twice.
    """
    names, recognised, warnings, key = _symbols(var, symbols, file)
    names = names.str.strip()
    if (names == "").any():
        raise InputError(
            f"{int((names == '').sum())} genes have no name", file=file, key=key, value="", remedy="name them"
        )
    dates = names[names.str.match(_DATE)]
    if len(dates):
        warnings.append(
            f"{len(dates)} gene symbols are dates (such as {dates.iloc[0]}), which spreadsheets make of MARCH1; "
            "public gene sets will not match them"
        )
    mouse = float(names.str.match(_MOUSE).mean())
    if mouse > 0.5:
        warnings.append(
            f"gene symbols are written as mouse genes are (such as {names[names.str.match(_MOUSE)].iloc[0]}); human "
            "gene sets and graphs will not match them"
        )
    unique = pd.Index(pd.unique(names), name="gene")
    if len(unique) == len(names):
        return PreparedGenes(unique, None, tuple(recognised), tuple(warnings))
    repeated = list(dict.fromkeys(names[names.duplicated()]))
    if duplicates == "error":
        raise InputError(
            f"{len(repeated)} gene symbols occur more than once",
            file=file,
            key=key,
            value=repeated[:10],
            remedy="say duplicates=sum to add their counts up, or duplicates=first to keep the first of each",
        )
    rule = "their counts added up" if duplicates == "sum" else "the first of each kept"
    shown = ", ".join(repeated[:5]) + (", ..." if len(repeated) > 5 else "")
    recognised.append(f"{len(repeated)} gene symbols occurred more than once, {rule}: {shown}")
    target = unique.get_indexer(names)
    weight = np.ones(len(names)) if duplicates == "sum" else (~names.duplicated()).to_numpy(dtype=float)
    columns = sparse.csr_matrix((weight, (np.arange(len(names)), target)), shape=(len(names), len(unique)))
    columns.eliminate_zeros()
    return PreparedGenes(unique, columns, tuple(recognised), tuple(warnings))


def leave_out(
    genes: PreparedGenes, gone: np.ndarray, rule: str, *, n_columns: int, file: str | None = None
) -> PreparedGenes:
    """Return the genes without those that a rule leaves out; ``gone`` has one entry a gene.

    Raises
    ------
    InputError
        Where none is left.
    """
    if not gone.any():
        return genes
    if gone.all():
        raise InputError(
            "no gene is left", file=file, key="var", value=rule, remedy="loosen keep_genes or min_detected"
        )
    columns = sparse.identity(n_columns, format="csr") if genes.columns is None else genes.columns
    return PreparedGenes(
        genes.genes[~gone],
        columns[:, np.flatnonzero(~gone)].tocsr(),
        (*genes.recognised, f"{int(gone.sum()):,} genes left out: {rule}; totals are of all genes"),
        genes.warnings,
    )


def _symbols(var: pd.DataFrame, symbols: str | None, file: str | None) -> tuple[pd.Series, list[str], list[str], str]:
    """Return the symbols, notes, warnings, and the name of the place they came from."""
    ids = pd.Series(var.index.astype(str), dtype=object)
    if symbols is not None and symbols not in var.columns:
        raise unknown_name("var column of symbols", symbols, map(str, var.columns), file=file)
    is_id = ids.str.match(_ENSEMBL)
    is_number = ids.str.match(_NUMBER)
    if symbols is None and is_id.mean() <= 0.5 and is_number.mean() <= 0.5:
        warnings = []
        if is_id.any():
            warnings.append(f"{int(is_id.sum())} of {len(ids)} genes are Ensembl ids and not symbols")
        return ids, [], warnings, "var_names"
    column = symbols or next((name for name in _SYMBOL_COLUMNS if name in var.columns), None)
    if column is None:
        what = "numbers" if is_number.mean() > 0.5 else "Ensembl ids"
        raise InputError(
            f"are {what}, and no column of var holds symbols",
            file=file,
            key="var_names",
            value=list(ids[:3]),
            remedy="add a column of gene symbols to var and say symbols=COLUMN "
            f"(columns: {', '.join(map(str, var.columns)) or 'none'})",
        )
    found = pd.Series(var[column].astype(object).to_numpy(), dtype=object)
    empty = found.isna() | found.astype(str).str.strip().isin(["", "nan", "None"])
    if empty.all():
        raise InputError("holds no symbols", file=file, key=f"var[{column!r}]", value=None, remedy="say symbols=COLUMN")
    found = found.where(~empty, ids).astype(str)
    notes = [f"gene symbols from var[{column!r}]"]
    if empty.any():
        notes.append(f"{int(empty.sum())} genes without a symbol keep their id")
    return found, notes, [], f"var[{column!r}]"
