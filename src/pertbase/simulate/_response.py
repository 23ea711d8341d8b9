"""How a perturbation spreads through the network of a context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from pertbase.simulate._config import SimulationConfig
from pertbase.simulate._network import EFFECTOR, Basal, Genes

__all__ = ["Inputs", "active_edges", "draw_stress", "propagate"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Inputs:
    """What perturbations do to their targets; arrays are (n_perturbations, n_genes).

    Parameters
    ----------
    transcript
        Log change at which a guide holds its target's transcript; 0 elsewhere.
    held
        Where a guide holds a transcript.
    activity
        Log change of a protein's activity by a compound, its transcript untouched.
    """

    transcript: Array
    held: npt.NDArray[np.bool_]
    activity: Array


def active_edges(network: pd.DataFrame, genes: Genes, expressed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return, per edge, whether its source and its gate (where it has one) are expressed.

    Parameters
    ----------
    expressed
        (n_genes,) whether each gene is expressed in the context.
    """
    source = expressed[genes.symbols.get_indexer(network["source"])]
    gate = genes.symbols.get_indexer(network["gate"])
    return np.asarray(source & ((gate < 0) | expressed[gate]), dtype=bool)


def draw_stress(genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> Array:
    """Draw the (n_genes,) loadings of the general stress programme: some effectors, either direction."""
    size = config.n_genes
    belongs = (genes.tier == EFFECTOR) & (rng.random(size) < config.stress_share)
    sign = np.where(rng.random(size) < config.stress_up, 1.0, -1.0)
    return np.where(belongs, sign * rng.uniform(*config.stress_range, size=size), 0.0)


def propagate(
    inputs: Inputs,
    *,
    network: pd.DataFrame,
    genes: Genes,
    basal: Basal,
    stress: Array,
    context: int,
    config: SimulationConfig,
) -> Array:
    """Return the (n_perturbations, n_genes) log changes of transcripts in one context.

    The equations are those of :mod:`pertbase.simulate`.
    """
    active = active_edges(network, genes, basal.expressed[context])
    edges = network[active]
    weights = np.zeros((len(genes.symbols), len(genes.symbols)))
    source, target = (genes.symbols.get_indexer(edges[side]) for side in ("source", "target"))
    weights[source, target] = edges["sign"].to_numpy() * edges["weight"].to_numpy()
    acts = basal.expressed[context].astype(np.float64)
    limit = config.saturation
    change = inputs.transcript
    for _ in range(config.steps):
        activity = change + inputs.activity
        noticed = np.sign(activity) * np.maximum(np.abs(activity) - config.buffering, 0.0) * acts
        alarm = np.tanh(np.abs(noticed).sum(axis=1, keepdims=True) / config.stress_scale)
        regulated = limit * np.tanh(noticed @ weights / limit) + alarm * stress
        change = np.where(inputs.held, inputs.transcript, regulated)
    return change
