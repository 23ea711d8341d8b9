"""Which genes the transformer reads, and which of them it speaks of."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pertbase._io import read_json
from pertbase.errors import InputError

__all__ = ["PACKAGE", "PAD", "Genes", "Vocabulary", "genes_read", "read_vocabulary"]

PAD = "<pad>"
PACKAGE = "scgpt"
"""``vocabulary=scgpt`` takes the file that the package of this name ships."""

Vocabulary = Mapping[str, int]
"""Gene symbol, or special token, -> row of a published embedding."""


@dataclass(frozen=True, eq=False, repr=False)
class Genes:
    """The genes of the transformer's sequence, in their order.

    Parameters
    ----------
    measured
        Every gene of the screen.
    names
        Genes of the sequence: those measured that have a token, then targets that are not measured.
    columns
        Positions in ``measured`` of the first of them, shape (n_predicted,): what is predicted.
    tokens
        Row of the vocabulary of each, shape (n_genes,); -1 where there is no vocabulary.
    padded
        Which of them have no token and share that of padding, the original's way; in ``corrected`` there are none.
    """

    measured: pd.Index
    names: pd.Index
    columns: np.ndarray
    tokens: np.ndarray
    padded: np.ndarray

    @property
    def masked(self) -> pd.Index:
        """Measured genes without a token, left out of the sequence."""
        return self.measured.delete(self.columns)

    @property
    def unmeasured(self) -> pd.Index:
        """Targets in the sequence that are not measured."""
        return self.names[len(self.columns) :]

    def __repr__(self) -> str:
        shared = f", {int(self.padded.sum())} as padding" if self.padded.any() else ""
        return (
            f"Genes({len(self.columns):,} of {len(self.measured):,} measured genes{shared}, "
            f"{len(self.unmeasured)} targets that are not measured)"
        )


def read_vocabulary(source: str | Path) -> dict[str, int]:
    """Return token -> row.

    Parameters
    ----------
    source
        A JSON file, or ``scgpt``: the file that the installed package ships. The package is not imported.

    Raises
    ------
    InputError
        Where there is no such file or package, or the file holds something else.
    """
    path = _of_package() if str(source) == PACKAGE else Path(source).expanduser()
    found = read_json(path)
    if not isinstance(found, dict) or not found:
        raise InputError("does not hold a vocabulary, token -> row", file=path, value=type(found).__name__)
    for token, row in found.items():
        if isinstance(row, bool) or not isinstance(row, int) or row < 0:
            raise InputError("a row of the embedding is a number from 0 on", file=path, key=token, value=row)
    if len(set(found.values())) != len(found):
        rows = pd.Series(found)
        twice = rows[rows.duplicated(keep=False)].sort_values()
        raise InputError("two tokens have one row", file=path, key=twice.index[0], value=int(twice.iloc[0]))
    return found


def _of_package() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "tokenizer" / "default_gene_vocab.json"
        if path.is_file():
            return path
    raise InputError(
        "the package scgpt, which ships this vocabulary, is not installed",
        key="vocabulary",
        value=PACKAGE,
        remedy="install it with pip install --no-deps scgpt==0.2.4, or give a vocab.json",
    )


def genes_read(
    measured: pd.Index, targets: Iterable[str], vocabulary: Vocabulary | None, *, padded: bool = False
) -> Genes:
    """Return the sequence of a screen. Genes and tokens are matched by name.

    Parameters
    ----------
    measured
        Genes of the screen.
    targets
        Targets of train's perturbations: those that are not measured join the sequence, so that they can be marked.
    vocabulary
        Token -> row; None where every gene has a token.
    padded
        Keep measured genes without a token, as padding, and leave out targets that are not measured.
    """
    known = np.array([vocabulary is None or name in vocabulary for name in measured], dtype=bool)
    columns = np.arange(len(measured)) if padded else np.flatnonzero(known)
    others = sorted({name for name in targets if name not in measured and (vocabulary is None or name in vocabulary)})
    names = measured[columns].append(pd.Index([] if padded else others, dtype=object))
    rows = [-1 if vocabulary is None else vocabulary.get(str(name), -1) for name in names]
    tokens = np.array(rows, dtype=np.int64).reshape(len(names))
    absent = (tokens < 0) & (vocabulary is not None)
    return Genes(measured, names, columns, tokens, np.asarray(absent))
