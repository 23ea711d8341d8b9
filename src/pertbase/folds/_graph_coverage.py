"""How much of a fold a graph can speak to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._fold import Fold

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["graph_coverage"]

_ACTS, _ACTED_ON = "targets that act on a gene", "readout genes acted on"


def graph_coverage(fold: Fold, graph: SignedGraph | None = None) -> pd.DataFrame:
    """Return how many targets, readout genes and questions of a fold a graph can speak to.

    Parameters
    ----------
    fold
        The fold; where paths are laid over it, its questions are counted too.
    graph
        The graph. Not given: that of the fold's paths, else the one its screen brings.

    Returns
    -------
    One row each for targets and readout genes in the graph and with edges, and, of the fold's own paths, for questions
    of each outcome with a candidate path, and for changes with a reference: a path that says what was measured. Columns
    ``n``, ``of`` and ``share``.

    Raises
    ------
    InputError
        Where no graph is given and the fold has none.
    """
    graph = graph or fold.graph
    if graph is None:
        raise InputError(
            "the fold has no graph", key="graph", value=None,
            remedy='give one, such as pertbase.knowledge.signed_graph(["omnipath_carnival", "collectri"])',
        )  # fmt: skip
    targets = sorted({name for item in fold.perturbations.values() for name in item.targets})
    genes = sorted(fold.questions["gene"].astype(str).unique())
    degrees = graph.degrees
    rows: dict[str, tuple[int, int]] = {}
    for what, names, side, told in (
        ("targets in the graph", targets, "out", _ACTS),
        ("readout genes in the graph", genes, "in", _ACTED_ON),
    ):
        found = graph.locate(names)
        there = found[found >= 0]
        rows[what] = (len(there), len(names))
        rows[told] = (int((degrees[side].to_numpy()[there] > 0).sum()), len(names))
    if fold.paths is not None and fold.paths.graph.hash == graph.hash:
        rows |= _questions(fold.paths.join(fold.questions))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["n", "of"])
    return table.assign(share=table["n"] / table["of"].where(table["of"] > 0, np.nan))


def _questions(questions: pd.DataFrame) -> dict[str, tuple[int, int]]:
    reached, referred = (
        np.array([len(paths) > 0 for paths in questions[name]], dtype=bool)
        for name in ("candidate_paths", "reference_paths")
    )
    outcomes = questions["outcome"].to_numpy(dtype=object)
    rows = {
        f"{outcome}, with a candidate path": (int(reached[chosen].sum()), int(chosen.sum()))
        for outcome in OUTCOMES
        for chosen in [outcomes == outcome]
    }
    changed = np.isin(outcomes, OUTCOMES[:2])
    rows["up or down, with a reference path"] = (int(referred[changed].sum()), int(changed.sum()))
    return rows
