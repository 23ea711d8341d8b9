"""The screen: one AnnData of cells under perturbations, in one contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._html import shown
from pertbase._io import canonical_json, sha256_text
from pertbase.errors import InputError
from pertbase.folds._cells import CellTable, Matrix, hash_frame, hash_matrix, read_only
from pertbase.folds._gene_sets import set_table, sets_from_table
from pertbase.folds._perturbation import Perturbation, perturbation_table, perturbations_from_table
from pertbase.folds._screen_contract import PREPARE, check_screen

if TYPE_CHECKING:
    from anndata import AnnData

    from pertbase.knowledge import SignedGraph

__all__ = ["FORMAT", "Screen", "as_embedding"]

FORMAT = 1
OBS_COLUMNS = ("context", "perturbation", "is_control")


@dataclass(frozen=True, eq=False, repr=False)
class Screen:
    """One screen, checked against the contract when it is made.

    Parameters
    ----------
    name
        The data set's name, part of every question's id.
    X
        Natural log1p of counts scaled to ``total``, shape (n_cells, n_genes), CSR or dense float32.
    obs
        One row a cell, unique names: ``context``, ``perturbation``, ``is_control``, ``batch`` (empty text
        where the screen has none).
    genes
        Unique gene symbols.
    perturbations
        Every name in ``obs["perturbation"]`` but ``control``, and what it means.
    total
        The total that counts were scaled to before the logarithm; part of every fold's hash.
    simulated
        Whether the cells come out of a simulation. It follows them into every title, table and file.
    counts
        Raw counts, same shape, or None.
    file
        Where it was read from.
    gene_sets
        Name -> symbols, where the screen brings its own because public sets do not fit its genes; else None. Models
        may see them.
    graph
        Who acts on whom, where the screen brings a graph of its own; else None. Models may see it.
    embeddings
        Name -> float32, shape (n_cells, n_dimensions), finite: embeddings of the cells, in ``obsm``. Models may see
        those of the cells that they are given.

    Raises
    ------
    InputError
        Where the contract is broken; the message names the file, the column, the value and the remedy.
    """

    name: str
    X: Matrix
    obs: pd.DataFrame
    genes: pd.Index
    perturbations: Mapping[str, Perturbation]
    total: float
    simulated: bool = False
    counts: Matrix | None = None
    file: str | None = None
    gene_sets: Mapping[str, tuple[str, ...]] | None = None
    graph: SignedGraph | None = None
    embeddings: Mapping[str, np.ndarray] = field(default_factory=dict)
    _checked: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self._checked:
            check_screen(self)
        read_only(self.X)
        read_only(self.counts)
        for values in self.embeddings.values():
            read_only(values)

    @classmethod
    def from_anndata(cls, adata: AnnData, *, name: str | None = None, file: str | Path | None = None) -> Screen:
        """Return the screen an AnnData in the contract holds; the AnnData itself is left alone."""
        where = None if file is None else str(file)
        about = adata.uns.get("pertbase")
        if not isinstance(about, Mapping) or "perturbations" not in about:
            raise InputError("is not a pertbase screen", file=where, key='uns["pertbase"]', value=about, remedy=PREPARE)
        if str(about.get("format")) != str(FORMAT):
            raise InputError(
                "was written in another format",
                file=where,
                key='uns["pertbase"]["format"]',
                value=about.get("format"),
                remedy=f"this version reads format {FORMAT}; run `pertbase prepare` again",
            )
        missing = [column for column in OBS_COLUMNS if column not in adata.obs.columns]
        if missing:
            raise InputError("obs lacks columns", file=where, key="obs", value=missing, remedy=PREPARE)
        normalisation = about.get("normalisation", {})
        if not isinstance(normalisation, Mapping) or "total" not in normalisation:
            raise InputError(
                "the total that counts were scaled to is not declared",
                file=where,
                key='uns["pertbase"]["normalisation"]["total"]',
                value=normalisation,
                remedy=PREPARE,
            )
        flags = adata.obs["is_control"]
        if flags.isna().any() or not set(pd.unique(flags.astype(object))) <= {True, False}:
            raise InputError(
                "is_control holds something else than true and false",
                file=where,
                key='obs["is_control"]',
                value=list(pd.unique(flags))[:5],
                remedy=PREPARE,
            )
        obs = pd.DataFrame(
            {
                "context": _text(adata.obs["context"], "context", where),
                "perturbation": _text(adata.obs["perturbation"], "perturbation", where),
                "is_control": flags.to_numpy(dtype=bool),
                "batch": _text(adata.obs["batch"], "batch", where) if "batch" in adata.obs.columns else "",
            },
            index=pd.Index(adata.obs_names.astype(str), name="cell"),
        )
        values = adata.X
        values = values.to_memory() if hasattr(values, "to_memory") else values
        return cls(
            name=str(name or about.get("name") or (Path(where).stem if where else "screen")),
            X=_as_float32(values, where),
            obs=obs,
            genes=pd.Index(adata.var_names.astype(str), name="gene"),
            perturbations=perturbations_from_table(about["perturbations"], file=where),
            total=_total(normalisation["total"], where),
            simulated=bool(about.get("simulated", False)),
            counts=_as_float32(adata.layers["counts"], where) if "counts" in adata.layers else None,
            file=where,
            gene_sets=sets_from_table(pd.DataFrame(about["gene_sets"]), file=where) if "gene_sets" in about else None,
            graph=_graph(about, where),
            embeddings={str(key): as_embedding(adata.obsm[key]) for key in adata.obsm},
        )

    def to_anndata(self, *, copy: bool = True) -> AnnData:
        """Return the screen as an AnnData in the contract; without ``copy`` it shares the read-only matrices."""
        from anndata import AnnData

        obs = self.obs.copy()
        for column in ("context", "perturbation", "batch"):
            obs[column] = obs[column].astype("category")
        adata = AnnData(X=self.X.copy() if copy else self.X, obs=obs, var=pd.DataFrame(index=self.genes.copy()))
        if self.counts is not None:
            adata.layers["counts"] = self.counts.copy() if copy else self.counts
        for key, values in self.embeddings.items():
            adata.obsm[key] = values.copy() if copy else values
        adata.uns["pertbase"] = {
            "format": FORMAT,
            "name": self.name,
            "simulated": self.simulated,
            "normalisation": {"method": "log1p_total", "total": float(self.total)},
            "perturbations": perturbation_table(self.perturbations),
        }
        if self.gene_sets is not None:
            adata.uns["pertbase"]["gene_sets"] = set_table(self.gene_sets)
        if self.graph is not None:
            adata.uns["pertbase"]["graph"] = self.graph.edges
        return adata

    def subset(self, cells: np.ndarray) -> Screen:
        """Return the screen of some cells, by position or boolean mask; perturbations left without cells go."""
        cells = np.flatnonzero(cells) if np.asarray(cells).dtype == bool else np.asarray(cells)
        obs = self.obs.iloc[cells].copy()
        left = set(obs["perturbation"])
        return Screen(
            name=self.name,
            X=self.X[cells].copy(),
            obs=obs,
            genes=self.genes,
            perturbations={key: value for key, value in self.perturbations.items() if key in left},
            total=self.total,
            simulated=self.simulated,
            counts=None if self.counts is None else self.counts[cells].copy(),
            file=self.file,
            gene_sets=self.gene_sets,
            graph=self.graph,
            embeddings={name: values[cells].copy() for name, values in self.embeddings.items()},
        )

    @cached_property
    def contexts(self) -> tuple[str, ...]:
        """The contexts, sorted."""
        return tuple(sorted(self.obs["context"].unique()))

    @cached_property
    def conditions(self) -> pd.DataFrame:
        """One row a condition: context, perturbation, n_cells, modality, mechanism, targets, target_set."""
        treated = self.obs.loc[~self.obs["is_control"]]
        table = treated.groupby(["context", "perturbation"], observed=True).size().rename("n_cells").reset_index()
        about = [self.perturbations[name] for name in table["perturbation"]]
        table["modality"] = [item.modality for item in about]
        table["mechanism"] = [item.mechanism for item in about]
        table["targets"] = ["+".join(item.targets) for item in about]
        table["target_set"] = [item.split_key for item in about]
        table["n_parts"] = [len(item.parts) for item in about]
        return table.sort_values(["context", "perturbation"], ignore_index=True)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything a run can depend on: values, cells, genes, perturbations, total, gene sets, graph."""
        parts: dict[str, Any] = {
            "format": FORMAT,
            "X": hash_matrix(self.X),
            "obs": hash_frame(self.obs),
            "genes": list(self.genes),
            "perturbations": hash_frame(perturbation_table(self.perturbations)),
            "total": float(self.total),
        }
        if self.gene_sets is not None:
            parts["gene_sets"] = hash_frame(set_table(self.gene_sets))
        if self.graph is not None:
            parts["graph"] = self.graph.hash
        if self.embeddings:
            parts["embeddings"] = {name: hash_matrix(values) for name, values in self.embeddings.items()}
        return sha256_text(canonical_json(parts))

    def cells(self, rows: np.ndarray) -> CellTable:
        """Return a copy of some cells, by position."""
        embeddings = {name: values[rows].copy() for name, values in self.embeddings.items()}
        return CellTable(self.X[rows].copy(), self.obs.iloc[rows].copy(), self.genes.copy(deep=True), embeddings)

    def __repr__(self) -> str:
        title = f"Screen {self.name!r}" + (" (simulated)" if self.simulated else "")
        return (
            f"{title}: {len(self.obs):,} cells x {len(self.genes):,} genes, {len(self.contexts)} contexts, "
            f"{len(self.perturbations)} perturbations, {len(self.conditions)} conditions, "
            f"{int(self.obs['is_control'].sum()):,} controls"
        )

    def _repr_html_(self) -> str:
        per_context = self.obs.groupby("context", observed=True).agg(
            cells=("is_control", "size"), controls=("is_control", "sum"), batches=("batch", "nunique")
        )
        per_context["conditions"] = self.conditions.groupby("context").size()
        return shown(repr(self), per_context.fillna(0).astype(int))


def _graph(about: Mapping[str, Any], file: str | None) -> SignedGraph | None:
    if "graph" not in about:
        return None
    from pertbase.knowledge import SignedGraph

    return SignedGraph.from_edges(pd.DataFrame(about["graph"]), name=str(about.get("name") or "screen"), file=file)


def _total(value: Any, file: str | None) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            "the total is not a positive number",
            file=file,
            key='uns["pertbase"]["normalisation"]["total"]',
            value=value,
            remedy=PREPARE,
        ) from error


def _text(column: pd.Series, key: str, file: str | None) -> list[str]:
    if column.isna().any():
        raise InputError(
            f"{int(column.isna().sum())} cells have no {key}",
            file=file,
            key=f'obs["{key}"]',
            value=None,
            remedy="fill the column or drop those cells",
        )
    return [str(item) for item in column]


def as_embedding(values: Any) -> np.ndarray:
    """Return an entry of obsm, an array, a table or a sparse matrix, as a dense float32 array of its own."""
    dense = values.toarray() if sparse.issparse(values) else values
    return np.array(dense, dtype=np.float32, order="C", copy=True)


def _as_float32(values: Any, file: str | None) -> Matrix:
    if values is None:
        raise InputError("has no X", file=file, key="X", remedy=PREPARE)
    if sparse.issparse(values):
        matrix = sparse.csr_matrix(values, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return matrix
    return np.array(values, dtype=np.float32, order="C", copy=True)
