"""Gates: how far a gene's basal expression lets it pass a signal on in a context.

The level of a gene is its mean log1p over the input controls of the context, and nothing else. It is that of a
transcript: a kinase may be inactive at any level, and a protein may outlive its messenger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.knowledge._graph import SignedGraph

__all__ = ["EXPRESSED", "GATES", "OPEN", "Gate", "chosen_gate", "ks_gate", "node_gates"]

GATES = ("expressed", "ks", "none")
OPEN = 0.5
"""A gate below it is shut: a knock-down finds nothing to knock down there."""
_BINS = 10
_CRITICAL = 1.358
"""Of the two-sample Kolmogorov-Smirnov test at 5%."""


@dataclass(frozen=True)
class Gate:
    r"""The function from level to gate, :math:`g(x) = 1 / (1 + e^{-(x - m) / s})`.

    With :math:`m = (\mathrm{low} + \mathrm{high}) / 2` and :math:`s = (\mathrm{high} - \mathrm{low}) / (2 \ln 9)`, so
    that :math:`g(\mathrm{low}) = 0.1` and :math:`g(\mathrm{high}) = 0.9`.

    Parameters
    ----------
    low, high
        Levels, mean log1p.
    kind
        ``expressed``, ``ks`` or ``given``: how they were chosen.
    gap
        The largest gap between the two populations' distributions, for ``ks``; NaN elsewhere.
    reason
        Why it is ``expressed`` where ``ks`` was asked for; empty else.
    """

    low: float
    high: float
    kind: str = "expressed"
    gap: float = float("nan")
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError("the low level lies below the high one", key="gate", value=(self.low, self.high))

    def __call__(self, level: np.ndarray) -> np.ndarray:
        """Return the gate of each level."""
        middle, scale = (self.low + self.high) / 2, (self.high - self.low) / (2 * np.log(9))
        # Beyond 40 scales the gate is 0 or 1 to the last digit, and paths need it above 0.
        return np.asarray(1 / (1 + np.exp(-np.clip((level - middle) / scale, -40, 40))))


EXPRESSED = Gate(0.01, 0.1)
"""Expressed or off: seen in about one cell of a hundred, and in one of ten, on the scale of a median total."""


def chosen_gate(
    how: str | Sequence[float], basal: pd.DataFrame | None, questions: pd.DataFrame, *, matched: bool = True
) -> Gate | None:
    """Return the gate that a specification of paths means; None for none, or where nothing was measured.

    Parameters
    ----------
    how
        ``expressed``, ``ks``, ``none``, or the two levels.
    basal, questions, matched
        See :func:`ks_gate`.
    """
    if basal is None or how == "none":
        return None
    if not isinstance(how, str):
        low, high = how
        return Gate(low, high, "given")
    return EXPRESSED if how == "expressed" else ks_gate(basal, questions, matched=matched)


def ks_gate(basal: pd.DataFrame, questions: pd.DataFrame, *, matched: bool = True, share: float = 0.95) -> Gate:
    r"""Return the gate between never-responding and responding readout genes, where their distributions part most.

    A (context, gene) responds where a question about it was answered ``up`` or ``down``, and never does where all were
    answered ``no_change``. With D(x) the share of never-responding levels up to x less that of responding ones, low
    and high are the ends of where :math:`D(x) \ge` ``share`` :math:`\max D`.

    Detecting a response takes expression, so that D shows detectability before anything else (AUC .90 on Papalexi).
    ``matched`` weighs the never-responding genes so that their levels, averaged over contexts, are distributed over
    ten bins as those of responding genes, and leaves out bins that hold one kind alone: what is left to see is
    expression in this context beyond a gene's usual. With one context nothing is.

    Parameters
    ----------
    basal
        Mean log1p of input controls, contexts x genes.
    questions
        With ``context``, ``gene``, ``outcome``, and ``split``: those of train alone are looked at.
    matched
        Whether the populations are matched.
    share
        Of the largest gap.

    Returns
    -------
    Where either population is empty, or the largest gap is no larger than chance (5%), :data:`EXPRESSED` with the
    reason.
    """
    level, responds, usual = _populations(basal, questions)
    if not responds.any() or responds.all():
        return _fallback("train has no genes that respond beside some that never do")
    weight = _matched_weights(usual, responds) if matched else np.ones(len(level))
    never = ~responds
    if not weight[never].sum():
        return _fallback("no never-responding gene is expressed like a responding one")
    order = np.argsort(level, kind="stable")
    x = level[order]
    last = np.append(x[1:] != x[:-1], True)
    below = [np.cumsum(np.where(one[order], weight[order], 0.0)) / weight[one].sum() for one in (never, responds)]
    x, gap = x[last], (below[0] - below[1])[last]
    largest = float(gap.max())
    inverse = [(weight[one] ** 2).sum() / weight[one].sum() ** 2 for one in (never, responds)]
    chance = _CRITICAL * np.sqrt(sum(inverse))
    if largest <= chance:
        return _fallback(f"the gap of the populations, {largest:.2f}, is within chance, {chance:.2f}", largest)
    wide = np.flatnonzero(gap >= share * largest)
    low, high = float(x[wide[0]]), float(x[wide[-1]])
    if not low < high:
        # One level parts them: the gate rises over the step to the next one.
        high = float(x[min(wide[-1] + 1, len(x) - 1)])
        low = low if low < high else float(x[wide[0] - 1])
    return Gate(low, high, "ks", largest)


def node_gates(graph: SignedGraph, level: pd.Series | None, gate: Gate | None) -> np.ndarray:
    """Return the gate of every node, shape (n_nodes,): 1 where its level was not measured.

    Parameters
    ----------
    graph
        Whose nodes.
    level
        Gene -> level in the context; None where nothing was measured.
    gate
        None for no gates.
    """
    gates = np.ones(len(graph.nodes))
    if gate is None or level is None:
        return gates
    at = graph.locate(level.index)
    gates[at[at >= 0]] = gate(level.to_numpy(dtype=np.float64)[at >= 0])
    return gates


def _fallback(reason: str, gap: float = float("nan")) -> Gate:
    return Gate(EXPRESSED.low, EXPRESSED.high, "expressed", gap, reason)


def _populations(basal: pd.DataFrame, questions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return level, whether it responds, and usual level over contexts, of each (context, gene) train asks about."""
    known = questions.loc[
        (questions["split"] == "train") & questions["outcome"].notna(), ["context", "gene", "outcome"]
    ]
    called = known["outcome"].isin(("up", "down")).groupby([known["context"], known["gene"]], observed=True).any()
    rows = basal.index.get_indexer(called.index.get_level_values(0))
    columns = basal.columns.get_indexer(called.index.get_level_values(1))
    held = (rows >= 0) & (columns >= 0)
    values = basal.to_numpy(dtype=np.float64)
    return (
        values[rows[held], columns[held]],
        called.to_numpy(dtype=bool)[held],
        values.mean(axis=0)[columns[held]],
    )


def _matched_weights(usual: np.ndarray, responds: np.ndarray) -> np.ndarray:
    """Return weights under which both kinds are distributed alike over bins of usual level; 0 where one is absent."""
    edges = np.quantile(usual[responds], np.linspace(0, 1, _BINS + 1)[1:-1])
    place = np.searchsorted(edges, usual, side="right")
    inside = (usual >= usual[responds].min()) & (usual <= usual[responds].max())
    weight = np.zeros(len(usual))
    for number in range(_BINS):
        ours, others = (inside & (place == number) & one for one in (responds, ~responds))
        if ours.any() and others.any():
            weight[ours], weight[others] = 1.0, ours.sum() / others.sum()
    return weight
