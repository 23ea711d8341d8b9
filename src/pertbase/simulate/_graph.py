"""What models may know of the network: a corrupted graph and noisy gene sets."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase.simulate._config import SimulationConfig
from pertbase.simulate._network import Genes

__all__ = ["corrupt", "draw_gene_sets"]


def corrupt(network: pd.DataFrame, genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> pd.DataFrame:
    """Return the graph that models may see.

    Of n generating edges, ``missing`` x n are left out; of those kept, exactly the shares ``wrong_sign`` and
    ``no_sign`` (disjoint) have the sign turned or set to 0. ``spurious`` x n edges are added whose source is drawn
    in proportion to (out-degree + 1) to the power ``hub_bias``, as well-studied genes collect edges in curated
    databases. Weights and gates are not known to anybody.

    Returns
    -------
    Edges sorted by (source, target), each pair once, with columns ``source``, ``target`` and ``sign`` (-1, 0, +1).
    """
    n_edges = len(network)
    n_kept = n_edges - round(config.missing * n_edges)
    kept = network.iloc[rng.permutation(n_edges)[:n_kept]]
    sign = kept["sign"].to_numpy().copy()
    n_wrong, n_unknown = round(config.wrong_sign * n_kept), round(config.no_sign * n_kept)
    sign[:n_wrong] *= -1
    sign[n_wrong : n_wrong + n_unknown] = 0
    spurious = _spurious(network, genes, round(config.spurious * n_edges), config.hub_bias, rng)
    added = pd.DataFrame(spurious, columns=["source", "target"])
    draw = rng.random(len(added))
    added["sign"] = np.where(draw < config.no_sign, 0, np.where(rng.random(len(added)) < config.activating, 1, -1))
    graph = pd.concat([kept[["source", "target"]].assign(sign=sign), added], ignore_index=True)
    graph = graph.astype({"sign": "int64"})
    return graph.sort_values(["source", "target"], ignore_index=True)


def _spurious(
    network: pd.DataFrame, genes: Genes, wanted: int, hub_bias: float, rng: np.random.Generator
) -> list[tuple[str, str]]:
    """Draw pairs that are no edge of the network."""
    acting = genes.symbols.to_numpy()[genes.acting]
    members = genes.symbols.to_numpy()[genes.module >= 0]
    degree = network["source"].value_counts().reindex(acting, fill_value=0).to_numpy(dtype=np.float64)
    propensity = (degree + 1) ** hub_bias
    taken = set(zip(network["source"], network["target"], strict=True))
    # A nearly complete network may not have as many free pairs.
    wanted = min(wanted, len(acting) * (len(members) - 1) - len(taken))
    found: list[tuple[str, str]] = []
    while len(found) < wanted:
        pair = (str(rng.choice(acting, p=propensity / propensity.sum())), str(rng.choice(members)))
        if pair[0] != pair[1] and pair not in taken:
            taken.add(pair)
            found.append(pair)
    return found


def draw_gene_sets(genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> dict[str, tuple[str, ...]]:
    """Return noisy gene sets: name -> sorted symbols.

    Each module gives two sets, its acting genes (``SIM_PATHWAY_<n>``) and all its genes (``SIM_MODULE_<n>``). A set
    lists each member with probability ``set_recall``, and strangers so that they make up ``set_noise`` of it.
    """
    symbols = genes.symbols.to_numpy()
    acting = np.isin(np.arange(len(symbols)), genes.acting)
    sets: dict[str, tuple[str, ...]] = {}
    for module in range(config.n_modules):
        inside = genes.module == module
        for name, members in (
            (f"SIM_MODULE_{module + 1:02d}", inside),
            (f"SIM_PATHWAY_{module + 1:02d}", inside & acting),
        ):
            listed = np.flatnonzero(members & (rng.random(len(symbols)) < config.set_recall))
            outside = np.flatnonzero(~members)
            n_strangers = min(len(outside), round(len(listed) * config.set_noise / max(1e-9, 1 - config.set_noise)))
            strangers = rng.choice(outside, size=n_strangers, replace=False)
            sets[name] = tuple(sorted(symbols[np.concatenate([listed, strangers])]))
    return sets
