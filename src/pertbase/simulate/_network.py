"""Genes, the signed network between them, and where it is active."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from pertbase.simulate._config import SimulationConfig

__all__ = [
    "EFFECTOR",
    "HOUSEKEEPING",
    "REGULATOR",
    "SIGNALLING",
    "Basal",
    "Genes",
    "draw_basal",
    "draw_genes",
    "draw_network",
]

SIGNALLING, REGULATOR, EFFECTOR, HOUSEKEEPING = range(4)
"""The tiers: signals act on regulators, regulators on each other and on effectors, effectors on nothing."""

EXPRESSED_ABOVE = -1.5
"""Basal log abundance (relative to an average gene) above which a gene counts as expressed and acts."""

FEEDBACK = 0.3
"""Share of the edges into signalling genes that come from regulators."""

FROM_SIGNALLING = 0.65
"""Share of the edges into regulators that come from signalling genes; the rest comes from earlier regulators."""


@dataclass(frozen=True)
class Genes:
    """The genes of a simulated screen; arrays are (n_genes,) and share one order.

    Parameters
    ----------
    symbols
        ``SG001``, ``SG002``, ...: numbered without regard to tier or module, so that a name tells nothing.
    tier
        One of :data:`SIGNALLING`, :data:`REGULATOR`, :data:`EFFECTOR`, :data:`HOUSEKEEPING`.
    module
        Index of the module; -1 for housekeeping genes.
    rank
        Place in the hierarchy, distinct: among signalling genes and among regulators, low acts on high.
    """

    symbols: pd.Index
    tier: npt.NDArray[np.int64]
    module: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]

    @property
    def acting(self) -> npt.NDArray[np.int64]:
        """Indices of signalling genes and regulators."""
        return np.flatnonzero(self.tier <= REGULATOR)


@dataclass(frozen=True)
class Basal:
    """Expression without perturbation; arrays are (n_contexts, n_genes).

    Parameters
    ----------
    log_abundance
        Natural log abundance relative to an average gene.
    expressed
        Whether a gene is expressed and can act.
    """

    log_abundance: npt.NDArray[np.float64]
    expressed: npt.NDArray[np.bool_]


def draw_genes(config: SimulationConfig, rng: np.random.Generator) -> Genes:
    """Draw tiers and modules, and deal them out to numbered symbols."""
    sizes = ((SIGNALLING, config.n_signalling), (REGULATOR, config.n_regulators), (EFFECTOR, config.n_effectors))
    tier = [kind for kind, size in sizes for _ in range(config.n_modules * size)]
    module = [number for _, size in sizes for number in range(config.n_modules) for _ in range(size)]
    tier += [HOUSEKEEPING] * config.n_housekeeping
    module += [-1] * config.n_housekeeping
    order = rng.permutation(config.n_genes)
    return Genes(
        symbols=pd.Index([f"SG{number:03d}" for number in range(1, config.n_genes + 1)], name="gene"),
        tier=np.array(tier, dtype=np.int64)[order],
        module=np.array(module, dtype=np.int64)[order],
        rank=rng.permutation(config.n_genes).astype(np.int64),
    )


def draw_network(genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> pd.DataFrame:
    """Draw the generating network.

    Every gene of a module draws its regulators, mostly in its own module and in proportion to their propensity
    to be a hub, which is log-normal.

    Returns
    -------
    Edges sorted by (source, target), each pair once, with columns ``source``, ``target``, ``sign`` (-1 or +1),
    ``weight`` (positive) and ``gate`` (a gene that must be expressed too; empty where none).
    """
    hub = np.exp(config.hub_spread * rng.standard_normal(config.n_genes))
    pairs = [
        (int(source), target)
        for target in np.flatnonzero(genes.module >= 0)
        for source in _draw_sources(int(target), genes, hub, config, rng)
    ]
    pairs.sort()
    source, target = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    n_edges = len(source)
    sign = np.where(rng.random(n_edges) < config.activating, 1, -1)
    weight = rng.uniform(*config.weight_range, size=n_edges)
    gate = rng.choice(genes.acting, size=n_edges)
    gated = (rng.random(n_edges) < config.gated) & (gate != source) & (gate != target)
    names = genes.symbols.to_numpy()
    return pd.DataFrame(
        {
            "source": names[source],
            "target": names[target],
            "sign": sign.astype(np.int64),
            "weight": weight,
            "gate": np.where(gated, names[gate], ""),
        }
    )


def _draw_sources(
    target: int, genes: Genes, hub: npt.NDArray[np.float64], config: SimulationConfig, rng: np.random.Generator
) -> set[int]:
    """Draw the distinct genes that act on ``target``."""
    tier = genes.tier[target]
    earlier = genes.rank < genes.rank[target]
    sources: set[int] = set()
    mean = config.in_degree[tier]
    # Everything below the signals answers to something.
    wanted = rng.poisson(mean) if tier == SIGNALLING else 1 + rng.poisson(mean - 1)
    for _ in range(wanted):
        draw = rng.random()
        if tier == EFFECTOR:
            pool = genes.tier == REGULATOR
        elif tier == REGULATOR:
            pool = (genes.tier == SIGNALLING) if draw < FROM_SIGNALLING else (genes.tier == REGULATOR) & earlier
        else:
            pool = (genes.tier == REGULATOR) if draw < FEEDBACK else (genes.tier == SIGNALLING) & earlier
        near = pool & (genes.module == genes.module[target])
        if near.any() and rng.random() < config.within_module:
            pool = near
        candidates = np.flatnonzero(pool)
        if len(candidates):
            sources.add(int(rng.choice(candidates, p=hub[candidates] / hub[candidates].sum())))
    return sources


def draw_basal(genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> Basal:
    """Draw the basal expression of each context: a common level, a shift, and silent genes."""
    shape = (len(config.contexts), config.n_genes)
    centre = np.array([0.0, 0.0, -0.2, 1.0])[genes.tier]
    spread = np.array([0.4, 0.4, 0.9, 0.7])[genes.tier]
    common = centre + spread * rng.standard_normal(config.n_genes)
    level = common + config.context_spread * rng.standard_normal(shape)
    silent = (rng.random(shape) < config.silent) & (genes.module >= 0)
    level = level - config.silent_drop * silent
    return Basal(log_abundance=level, expressed=level >= EXPRESSED_ABOVE)
