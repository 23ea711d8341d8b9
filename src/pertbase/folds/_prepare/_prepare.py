"""Other people's AnnData, turned into a screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.folds._perturbation import CONTROL
from pertbase.folds._prepare._dialects import Layout, find_layout
from pertbase.folds._prepare._genes import PreparedGenes, find_genes, leave_out
from pertbase.folds._prepare._names import NamedCells, name_cells
from pertbase.folds._prepare._normalise import detected, normalise
from pertbase.folds._prepare._options import PrepareOptions, parse_options
from pertbase.folds._prepare._source import Source, from_anndata, open_source
from pertbase.folds._prepare._targets import targets_place
from pertbase.folds._prepare._unused import unused_columns
from pertbase.folds._prepare._values import Recognised, Survey, recognise, survey
from pertbase.folds._screen import Screen, as_embedding
from pertbase.folds._screen_files import write_screen

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["PrepareReport", "prepare", "prepare_file", "prepare_path"]

# Below this, a panel was chosen gene by gene and one dominant gene moves the size factor of all others.
_PANEL_GENES = 1_000


@dataclass(frozen=True, eq=False)
class PrepareReport:
    """What was read, recognised, dropped and kept.

    Parameters
    ----------
    name
        The screen's name.
    file
        Where it was read from; None for an AnnData in memory.
    dialect
        The dialect, given or recognised.
    recognised
        What was recognised, one line each.
    cells_read
        Cells in the file.
    dropped
        Rule -> cells dropped by it, in the order of the rules.
    n_genes
        Genes in the screen.
    total
        The total that counts are scaled to.
    conditions
        One row a context: cells, controls, conditions, and the cells of the smallest condition, missing without one.
    smallest
        The condition with fewest cells, in words.
    warnings
        What should be known before numbers are believed.
    """

    name: str
    file: str | None
    dialect: str
    recognised: tuple[str, ...]
    cells_read: int
    dropped: Mapping[str, int]
    n_genes: int
    total: float
    conditions: pd.DataFrame = field(repr=False)
    smallest: str
    warnings: tuple[str, ...]

    @property
    def cells_kept(self) -> int:
        """Cells in the screen."""
        return self.cells_read - sum(self.dropped.values())

    def __str__(self) -> str:
        lines = [f"{self.name}: dialect {self.dialect}" + (f", from {self.file}" if self.file else "")]
        lines += [f"  {line}" for line in self.recognised]
        lines.append(f"  cells: {self.cells_read:,} read, {self.cells_kept:,} kept; genes: {self.n_genes:,}")
        lines += [f"    {count:,} dropped: {rule}" for rule, count in self.dropped.items()]
        lines.append("  " + self.conditions.to_string().replace("\n", "\n  "))
        lines.append(f"  smallest condition: {self.smallest}")
        lines += [f"  warning: {line}" for line in self.warnings]
        return "\n".join(lines)


def prepare(
    adata: AnnData, *, name: str, file: str | Path | None = None, **options: Any
) -> tuple[Screen, PrepareReport]:
    """Return the screen an AnnData holds, and what was done; the AnnData is left alone.

    Parameters
    ----------
    adata
        Cells under perturbations, in any dialect; a backed one is read block by block.
    name
        The screen's name, part of every question's id.
    file
        Named in messages.
    options
        Those of :class:`PrepareOptions`; text is converted, None means not given.

    Raises
    ------
    InputError
        For what cannot be read, with file, column, value and remedy; nothing is guessed.
    """
    parsed = parse_options(options)
    where = None if file is None else str(file)
    uns = targets_place(parsed.targets, "uns")
    source = from_anndata(adata, layer=parsed.layer, uns=uns, obsm=parsed.embeddings, file=where)
    return _prepare(source, name, parsed)


def prepare_path(path: str | Path, *, name: str | None = None, **options: Any) -> tuple[Screen, PrepareReport]:
    """Return the screen that a file of another dialect holds; see :func:`prepare`."""
    parsed = parse_options(options)
    uns = targets_place(parsed.targets, "uns")
    with open_source(path, layer=parsed.layer, uns=uns, obsm=parsed.embeddings) as source:
        return _prepare(source, name or Path(path).stem, parsed)


def prepare_file(input: str | Path, output: str | Path, *, name: str | None = None, **options: Any) -> PrepareReport:
    """Turn a file into a screen on disk, whole or not at all, and say what was done; see :func:`prepare`.

    Raises
    ------
    InputError
        Besides what :func:`prepare` raises, where ``output`` is the input or neither .h5ad nor .zarr.
    """
    source, target = Path(input), Path(output)
    if target.suffix not in (".h5ad", ".zarr"):
        raise InputError("a screen is written as .h5ad or .zarr", key="output", value=str(target))
    if target.resolve() == source.resolve():
        raise InputError(
            "would overwrite the input", key="output", value=str(target), remedy="give the screen another name"
        )
    screen, report = prepare_path(source, name=name, **options)
    write_screen(screen, target)
    return report


def _prepare(source: Source, name: str, options: PrepareOptions) -> tuple[Screen, PrepareReport]:
    file = source.file
    if source.is_screen:
        raise InputError(
            "is a screen already",
            file=file,
            key='uns["pertbase"]',
            remedy="read it with read_screen; to prepare it otherwise, start from the original file",
        )
    cells = _Cells(len(source.obs))
    for rule in options.filters:
        cells.drop(~rule.passes(source.obs, file=file), f"not {rule}")
    cells.refuse_none(list(options.keep), file)
    layout = find_layout(source.obs[cells.keep], options, file=file)
    genes = find_genes(source.var, symbols=options.symbols, duplicates=options.duplicates, file=file)
    named = name_cells(source.obs[cells.keep], layout, options, genes=genes.genes, uns=source.uns, file=file)
    obs = _contract_obs(source.obs, cells.keep, layout, named, options, file)

    _settle_contexts(obs, cells, options, file)
    seen = survey(source.values, cells.keep, file=file, key=source.key)
    what = recognise(seen, values=options.values, total=options.total, file=file, key=source.key)
    least = options.min_counts if what.counts else 0.0
    cells.drop(cells.keep & (seen.sums <= 0), "no expression at all")
    if least > 1:
        cells.drop(cells.keep & (seen.sums < least), f"fewer than {least:g} counts")
    cells.refuse_none(options.min_counts, file)
    _settle_contexts(obs, cells, options, file)
    genes = _choose_genes(genes, source, obs, cells, options)

    total = what.total if what.total is not None else float(np.median(seen.sums[cells.keep]))
    X, counts = normalise(
        source.values, cells.keep, seen, what, total=total, columns=genes.columns, keep_counts=options.keep_counts
    )
    kept = obs[cells.keep[obs["row"].to_numpy()]].drop(columns="row")
    left = set(kept["perturbation"])
    screen = Screen(
        name=name,
        X=X,
        obs=_unique_cells(kept),
        genes=genes.genes,
        perturbations={key: item for key, item in named.perturbations.items() if key in left},
        total=total,
        counts=counts,
        file=file,
        embeddings={key: as_embedding(found)[cells.keep] for key, found in source.obsm.items()},
    )
    return screen, _report(screen, source, layout, genes, named, what, seen, cells, options)


class _Cells:
    """Which rows are kept, and how many each rule dropped."""

    def __init__(self, n_cells: int) -> None:
        self.keep = np.ones(n_cells, dtype=bool)
        self.dropped: dict[str, int] = {}

    def drop(self, rows: np.ndarray, rule: str) -> None:
        count = int((self.keep & rows).sum())
        if count:
            self.dropped[rule] = self.dropped.get(rule, 0) + count
            self.keep &= ~rows

    def refuse_none(self, value: object, file: str | None) -> None:
        if not self.keep.any():
            key = ", ".join(self.dropped) or "obs"
            raise InputError("no cell is left", file=file, key=key, value=value, remedy="loosen keep= or min_counts=")


def _contract_obs(
    obs: pd.DataFrame, keep: np.ndarray, layout: Layout, named: NamedCells, options: PrepareOptions, file: str | None
) -> pd.DataFrame:
    """Return the contract's columns for the kept cells, and the row of the file each came from."""
    kept = obs[keep]
    context = _column(kept, layout.context, layout.context_value, "context", file)
    renames = options.context_names
    return pd.DataFrame(
        {
            "context": [renames.get(item, item) for item in context] if renames else context,
            "perturbation": named.names,
            "is_control": named.names == CONTROL,
            "batch": _column(kept, layout.batch, "", "batch", file),
            "row": np.flatnonzero(keep),
        },
        index=pd.Index(kept.index.astype(str), name="cell"),
    )


def _column(obs: pd.DataFrame, column: str | None, value: str, what: str, file: str | None) -> np.ndarray:
    """Return a column as text, converted once per distinct value."""
    if column is None:
        return np.full(len(obs), value, dtype=object)
    codes, distinct = pd.factorize(obs[column], use_na_sentinel=True)
    if (codes < 0).any():
        raise InputError(
            f"{int((codes < 0).sum())} cells have no {what}",
            file=file,
            key=f"obs[{column!r}]",
            value=None,
            remedy=f"fill the column, drop those cells with keep=, or say {what}=COLUMN",
        )
    texts = np.array([f"{item:g}" if isinstance(item, float) else str(item).strip() for item in distinct], dtype=object)
    return np.asarray(texts[codes])


def _settle_contexts(obs: pd.DataFrame, cells: _Cells, options: PrepareOptions, file: str | None) -> None:
    """Drop contexts without controls where that was asked for; otherwise refuse them."""
    rows = obs["row"].to_numpy()
    kept = obs[cells.keep[rows]]
    without = sorted(set(kept["context"]) - set(kept.loc[kept["is_control"], "context"]))
    if not without:
        return
    if not options.drop_contexts_without_control:
        raise InputError(
            f"{len(without)} contexts have no control cells",
            file=file,
            key="context",
            value=without[:10],
            remedy="say drop_contexts_without_control=true to leave them out, or name their controls with control=",
        )
    gone = np.zeros(len(cells.keep), dtype=bool)
    gone[rows] = obs["context"].isin(without).to_numpy()
    cells.drop(gone, f"contexts without controls ({', '.join(without[:5])}{', ...' if len(without) > 5 else ''})")


def _choose_genes(
    genes: PreparedGenes, source: Source, obs: pd.DataFrame, cells: _Cells, options: PrepareOptions
) -> PreparedGenes:
    """Leave out what ``keep_genes`` and ``min_detected`` say; cells have been measured by all genes before."""
    n_columns, file = len(source.var), source.file
    for rule in options.gene_filters:
        passed = rule.passes(source.var, file=file)
        if genes.columns is not None:
            passed = (genes.columns.T @ passed.astype(float)) > 0
        genes = leave_out(genes, ~passed, f"not {rule}", n_columns=n_columns, file=file)
    if options.min_detected <= 0:
        return genes
    controls = obs[obs["is_control"].to_numpy() & cells.keep[obs["row"].to_numpy()]]
    share = np.zeros(len(genes.genes))
    for _, rows in controls.groupby("context", observed=True)["row"]:
        own = np.zeros(len(cells.keep), dtype=bool)
        own[rows.to_numpy()] = True
        share = np.maximum(share, detected(source.values, own, columns=genes.columns) / len(rows))
    rule_text = f"seen in fewer than {options.min_detected:.3g} of the control cells of every context"
    return leave_out(genes, share < options.min_detected, rule_text, n_columns=n_columns, file=file)


def _unique_cells(obs: pd.DataFrame) -> pd.DataFrame:
    if obs.index.is_unique:
        return obs
    from anndata.utils import make_index_unique

    return obs.set_axis(make_index_unique(obs.index).rename("cell"), axis=0)


def _report(
    screen: Screen,
    source: Source,
    layout: Layout,
    genes: PreparedGenes,
    named: NamedCells,
    what: Recognised,
    seen: Survey,
    cells: _Cells,
    options: PrepareOptions,
) -> PrepareReport:
    conditions = screen.conditions
    per_context = screen.obs.groupby("context", observed=True).agg(
        cells=("is_control", "size"), controls=("is_control", "sum")
    )
    sizes = conditions.groupby("context")["n_cells"]
    per_context["conditions"] = sizes.size().reindex(per_context.index, fill_value=0)
    # A context of controls alone has no smallest condition, rather than one of no cells.
    per_context["smallest"] = sizes.min().reindex(per_context.index).astype("Int64")
    least = conditions.loc[conditions["n_cells"].idxmin()]
    how = "" if options.total is not None or not what.counts else ", the median of the kept cells' totals"
    values = f"{source.key}: {what.text}" + (f", scaled to {screen.total:g}{how} and logged" if what.counts else "")
    warnings = [*genes.warnings, *what.warnings, *named.warnings]
    if what.counts and len(screen.genes) < _PANEL_GENES:
        warnings.append(
            f"{len(screen.genes)} genes are a targeted panel: size factors over it are compositional (a change of one "
            f"dominant gene moves all others), and the total {screen.total:g} decides how many calls there are"
        )
    if not source.obs.index.is_unique:
        warnings.append("cell names occurred more than once and were numbered")
    return PrepareReport(
        name=screen.name,
        file=source.file,
        dialect=layout.dialect,
        recognised=(*layout.describe(), values, *genes.recognised, *_unused(source, layout, screen, cells, options)),
        cells_read=len(source.obs),
        dropped=cells.dropped,
        n_genes=len(screen.genes),
        total=screen.total,
        conditions=per_context.astype({"cells": int, "controls": int}),
        smallest=f"{least['perturbation']} in {least['context']}, {least['n_cells']} cells",
        warnings=tuple(warnings),
    )


def _unused(source: Source, layout: Layout, screen: Screen, cells: _Cells, options: PrepareOptions) -> list[str]:
    used = {*layout.columns, *(rule.column for rule in options.filters), targets_place(options.targets, "obs")}
    kept = source.obs[cells.keep]
    # `none` was said, so none is proposed.
    batch = layout.batch or options.batch
    return unused_columns(kept, {name for name in used if name}, screen.obs, batch=batch)
