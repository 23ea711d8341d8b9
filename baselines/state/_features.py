"""What was done to cells, as numbers: one-hot, from sets or expression of the targets, or from a user's file."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._random import generator
from pertbase.errors import InputError
from pertbase.folds import CONTROL, CellTable, Part, Perturbation, Training
from pertbase.knowledge import GeneSets, membership

__all__ = [
    "SOURCES",
    "Described",
    "Features",
    "Listed",
    "OneHot",
    "expression_features",
    "feature_source",
    "features_of",
    "read_features",
    "set_features",
    "trained_perturbations",
]

SOURCES = ("one_hot", "gene_sets", "expression")
"""Where features come from, beside a file."""

_UNKNOWN_SIGN = -1
"""Most drugs inhibit what they bind."""


class Features(Protocol):
    """Turns a perturbation into numbers, or says that it cannot."""

    @property
    def width(self) -> int:
        """How many numbers."""

    def of(self, perturbation: Perturbation | None) -> np.ndarray | None:
        """Return the features of a perturbation, shape (width,), or of the control (None); None where it has none."""


@dataclass(frozen=True)
class OneHot:
    """A column for the control, and one for each part that was trained on; a combination is the sum of its parts.

    Parameters
    ----------
    parts
        Names of the parts, such as ``CRISPRi:A`` or ``drug:b@0.5``.
    """

    parts: tuple[str, ...]

    @classmethod
    def trained(cls, perturbations: Sequence[Perturbation]) -> OneHot:
        """Return the columns of the parts of some perturbations."""
        return cls(tuple(sorted({_name(part) for item in perturbations for part in item.parts})))

    @property
    def width(self) -> int:
        """How many columns."""
        return 1 + len(self.parts)

    def of(self, perturbation: Perturbation | None) -> np.ndarray | None:
        """Return the features; None where a part was not trained on."""
        found = np.zeros(self.width, dtype=np.float32)
        if perturbation is None:
            found[0] = 1.0
            return found
        for part in perturbation.parts:
            if _name(part) not in self.parts:
                return None
            found[1 + self.parts.index(_name(part))] = 1.0
        return found


@dataclass(frozen=True, eq=False)
class Described:
    """Rows of a table, added up over what was done, behind a column for the control and one for the dose.

    Of a perturbation with a row of its own, that row is taken; else of each part its own (``drug:b@0.5``), its label's
    (``A``, ``b@0.5``), its compound's, or the sum of its targets'. Rows that name genes are multiplied by the sign of
    what is done to them (-1 lowers, +1 raises; an unknown sign counts as -1). The dose is log(1 + dose).

    Parameters
    ----------
    names
        What the rows describe.
    values
        Shape (n_names, n_features), float32.
    """

    names: pd.Index
    values: np.ndarray

    @property
    def width(self) -> int:
        """How many numbers."""
        return 2 + int(self.values.shape[1])

    def of(self, perturbation: Perturbation | None) -> np.ndarray | None:
        """Return the features; None where something that was done has no row."""
        found = np.zeros(self.width, dtype=np.float32)
        if perturbation is None:
            found[0] = 1.0
            return found
        whole = self._row(perturbation.name)
        rows = [self._of(part) for part in perturbation.parts] if whole is None else [whole]
        if any(row is None for row in rows):
            return None
        found[1] = np.log1p(sum(part.dose or 0.0 for part in perturbation.parts))
        found[2:] = np.sum(np.stack([row for row in rows if row is not None]), axis=0)
        return found

    def _of(self, part: Part) -> np.ndarray | None:
        if (own := self._row(_name(part))) is not None:
            return own
        if part.modality == "chemical":
            for name in (part.label, part.compound):
                if (own := self._row(name)) is not None:
                    return own
        rows = [self._signed(gene, sign) for gene, sign in part.targets]
        if not rows or any(row is None for row in rows):
            return None
        return np.asarray(np.sum(np.stack([row for row in rows if row is not None]), axis=0))

    def _signed(self, gene: str, sign: int) -> np.ndarray | None:
        row = self._row(gene)
        return None if row is None else (sign or _UNKNOWN_SIGN) * row

    def _row(self, name: str) -> np.ndarray | None:
        return self.values[self.names.get_loc(name)] if name in self.names else None


@dataclass(frozen=True, eq=False)
class Listed:
    """A row for the control and for each perturbation, and nothing for any other.

    Parameters
    ----------
    names
        Perturbations, by name (``CRISPRi:A+B``) or without their mechanism (``A+B``), and ``control``.
    values
        Shape (n_names, width), float32.
    """

    names: pd.Index
    values: np.ndarray

    @property
    def width(self) -> int:
        """How many numbers."""
        return int(self.values.shape[1])

    def of(self, perturbation: Perturbation | None) -> np.ndarray | None:
        """Return the features; None where there is no row of that name."""
        names = [CONTROL]
        if perturbation is not None:
            names = [perturbation.name, "+".join(part.label for part in perturbation.parts)]
        return next((self.values[self.names.get_loc(name)] for name in names if name in self.names), None)


def _name(part: Part) -> str:
    return Perturbation((part,)).name


# -- of a training ------------------------------------------------------------------------------------------


def trained_perturbations(training: Training) -> list[Perturbation]:
    """Return the perturbations of train's conditions."""
    names = training.conditions.loc[training.conditions["split"] == "train", "perturbation"].unique()
    return [training.perturbations[name] for name in names]


def feature_source(given: str | None, training: Training) -> str:
    """Return what is given, else one-hot where all that val asks about was done in train, else gene sets."""
    if given is not None:
        return given
    parts = {part for item in trained_perturbations(training) for part in item.parts}
    held_out = training.conditions.loc[training.conditions["split"] == "val", "perturbation"].unique()
    seen = all(part in parts for name in held_out for part in training.perturbations[name].parts)
    return "one_hot" if seen else "gene_sets"


def features_of(source: str, training: Training, *, sets: Callable[[], GeneSets], n: int) -> Features:
    """Return the features of a training's perturbations: one of :data:`SOURCES`, or those of a file.

    Raises
    ------
    InputError
        Where the file cannot be read, or features by expression are asked for without cells.
    """
    if source == "one_hot":
        return OneHot.trained(trained_perturbations(training))
    if source == "gene_sets":
        return set_features(sets(), n=n)
    if source != "expression":
        return read_features(source)
    if training.cells is None:
        raise InputError("features by expression need cells", key="training.cells", value=None)
    obs = training.cells.obs
    rows = obs["is_control"].to_numpy(dtype=bool) & (obs["split"] == "train").to_numpy()
    return expression_features(training.cells.take(rows), n=n)


# -- where rows come from -----------------------------------------------------------------------------------


def set_features(sets: GeneSets, *, n: int) -> Described:
    r"""Return features of all genes of some gene sets: the left singular vectors of which gene is in which set.

    Membership is weighted by :math:`\log(G / |S|)`, with :math:`G` genes in all: to share a small set says more. Of
    the weighted matrix the ``n`` largest components are kept, scaled by their singular values, and each gene's row to
    a mean square of one.
    """
    genes = pd.Index(sorted({gene for members in sets.values() for gene in members}), dtype=object, name="gene")
    member = membership(sets, genes)
    size = np.asarray(member.sum(axis=0)).ravel()
    weight = np.log(len(genes) / np.maximum(size, 1.0))
    return _reduced(genes, sparse.csr_matrix(member @ sparse.diags(weight.astype(np.float32))), n)


def expression_features(controls: CellTable, *, n: int) -> Described:
    """Return features of all measured genes: their loadings on the principal components of control cells.

    Expression is centred within contexts and scaled to unit variance; genes that do not vary have no features.
    """
    values = np.array(controls.X.toarray() if sparse.issparse(controls.X) else controls.X, dtype=np.float32)
    context = controls.obs["context"].astype(str).to_numpy()
    for name in np.unique(context):
        values[context == name] -= values[context == name].mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = values.std(axis=0, dtype=np.float64)
    varies = spread > 1e-4
    scaled = (values[:, varies] / spread[varies]).astype(np.float32)
    return _reduced(controls.genes[varies], scaled.T, n)


def _reduced(names: pd.Index, rows: Any, n: int) -> Described:
    from scipy.sparse.linalg import svds

    n = min(n, min(rows.shape) - 1)
    if n < 1:
        raise InputError("there is too little to make features of", key="features", value=tuple(rows.shape))
    start = generator(0, "features").standard_normal(min(rows.shape))
    vectors, scale, _ = svds(rows.astype(np.float64), k=n, v0=start)
    # A singular vector's sign is arbitrary: the largest entry is made positive.
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(n)]
    found = (vectors * scale * np.sign(largest))[:, ::-1]
    length = np.sqrt((found**2).mean(axis=1))
    told = length > 1e-8 * length.max()
    return Described(names[told], (found[told] / length[told, None]).astype(np.float32))


def read_features(path: str | Path) -> Described:
    """Read features from a table whose first column names what a row describes, or from a file of tensors by name.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv`` or ``.parquet``; or ``.pt``, a dictionary of one tensor a name, as STATE takes them. It is
        found as data files are (``PERTBASE_DATA``).

    Raises
    ------
    InputError
        Where the file is absent, is none of these, or holds something else than finite numbers.
    """
    from pertbase.folds._data import find_data

    found = find_data(path)
    table = _tensors(found) if found.suffix in (".pt", ".pth", ".torch") else _table(found)
    table.index = table.index.map(str)
    if not table.index.is_unique:
        raise InputError("a name has two rows", file=found, key="name", value=table.index[table.index.duplicated()][0])
    try:
        values = table.to_numpy(dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"holds something else than numbers ({error})", file=found, key="features") from error
    if not values.size or not np.isfinite(values).all():
        wrong = table.index[~np.isfinite(values).all(axis=1)] if values.size else table.index
        raise InputError(
            "has no features, or NaN or infinite ones",
            file=found,
            key="features",
            value=list(wrong[:5]),
            remedy="leave out what has no features; it is then unsupported",
        )
    return Described(table.index, values)


def _table(path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
            named = isinstance(table.index, pd.RangeIndex)
            return table.set_index(table.columns[0]) if named else table
        if path.suffix in (".csv", ".tsv", ".txt"):
            table = pd.read_csv(
                path, sep="," if path.suffix == ".csv" else "\t", keep_default_na=False, na_values=["", "nan", "NaN"]
            )
            return table.set_index(table.columns[0])
    except (ValueError, OSError, IndexError) as error:
        raise InputError(f"cannot be read as a table ({error})", file=path, key="features") from error
    raise InputError("is no table of features", file=path, value=path.suffix, remedy="use .csv, .tsv, .parquet or .pt")


def _tensors(path: Path) -> pd.DataFrame:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise InputError("is no file of tensors, or holds more than that", file=path, key="features") from error
    right = isinstance(found, Mapping) and all(isinstance(item, torch.Tensor) for item in found.values())
    if not right or len({tuple(item.shape) for item in found.values()}) != 1:
        raise InputError("is no dictionary of one tensor a name, all of one shape", file=path, key="features")
    return pd.DataFrame({str(name): item.float().ravel().numpy() for name, item in found.items()}).T
