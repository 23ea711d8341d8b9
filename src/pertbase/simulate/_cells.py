"""Cells: negative-binomial counts, and what their mean would be without noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from scipy.special import gammaln

from pertbase.folds import CONTROL
from pertbase.simulate._config import SimulationConfig

__all__ = ["Noise", "draw_counts", "draw_layout", "draw_noise", "expected_log", "normalise"]

Array = npt.NDArray[np.float64]

GRID_POINTS = 384
"""Points of log abundance at which the expected log expression is worked out; between them it is interpolated."""

NODES = 7
"""Gauss-Hermite nodes for library size and cell state: their effect on the mean is smooth."""


@dataclass(frozen=True)
class Noise:
    """What makes cells of one condition differ, drawn once a screen.

    Parameters
    ----------
    state
        (state_factors, n_genes) loadings of the latent cell-state factors.
    batch
        For each context, (n_batches, n_genes) log shifts, centred over its batches.
    """

    state: Array
    batch: tuple[Array, ...]


def draw_noise(config: SimulationConfig, rng: np.random.Generator) -> Noise:
    """Draw the loadings of cell states and the shifts of batches."""
    state = config.state_spread * rng.standard_normal((config.state_factors, config.n_genes))
    batch = []
    for n_batches in config.n_batches:
        shift = config.batch_spread * rng.standard_normal((n_batches, config.n_genes))
        batch.append(shift - shift.mean(axis=0))
    return Noise(state=state, batch=tuple(batch))


def draw_layout(conditions: pd.DataFrame, config: SimulationConfig, rng: np.random.Generator) -> pd.DataFrame:
    """Return one row a cell: ``context``, ``perturbation``, ``is_control``, ``batch``, ``escaped``.

    Controls come first in each context. The batches of a condition are as equal in size as they can be, so that
    they are not confounded with it.

    Parameters
    ----------
    conditions
        ``context``, ``perturbation`` and ``guided``: whether cells can escape.
    """
    low, high = config.cells_range
    blocks = []
    for context, n_batches in zip(config.contexts, config.n_batches, strict=True):
        here = conditions[conditions["context"] == context]
        sizes = np.concatenate([[config.n_controls], rng.integers(low, high + 1, size=len(here))])
        guided = np.repeat(np.concatenate([[False], here["guided"].to_numpy()]), sizes)
        batch = np.concatenate([rng.permutation(np.arange(size) % n_batches) for size in sizes])
        names = np.repeat(np.array([CONTROL, *here["perturbation"]], dtype=object), sizes)
        blocks.append(
            pd.DataFrame(
                {
                    "context": context,
                    "perturbation": names,
                    "is_control": names == CONTROL,
                    "batch": batch,
                    "escaped": guided & (rng.random(len(names)) < config.escape),
                },
                index=pd.Index([f"{context}-{number:05d}" for number in range(1, len(names) + 1)]),
            )
        )
    return pd.concat(blocks).rename_axis("cell")


def draw_counts(
    cells: pd.DataFrame,
    *,
    basal: Array,
    change: Array,
    noise: Noise,
    context: int,
    config: SimulationConfig,
    rng: np.random.Generator,
) -> sparse.csr_matrix:
    """Draw the (n_cells, n_genes) counts of one condition, or of some controls of one context.

    A cell's counts are negative-binomial, a gamma mixture of Poisson counts, around its library size times the
    genes' shares of its transcripts. A cell without any count, which no laboratory would keep, gets one of its
    most abundant gene.

    Parameters
    ----------
    cells
        Rows of :func:`draw_layout`.
    basal, change
        (n_genes,) log abundance in the context and log change by the perturbation.
    """
    shape = (len(cells), config.n_genes)
    level = basal + np.where(cells["escaped"].to_numpy()[:, None], 0.0, change)
    level = level + noise.batch[context][cells["batch"].to_numpy()]
    level = level + rng.standard_normal((len(cells), config.state_factors)) @ noise.state
    share = np.exp(level)
    share /= share.sum(axis=1, keepdims=True)
    library = config.depth * np.exp(config.depth_spread * rng.standard_normal(len(cells)))
    shape_parameter = 1.0 / config.dispersion
    rate = rng.standard_gamma(shape_parameter, size=shape) * (library[:, None] * share / shape_parameter)
    counts = rng.poisson(rate).astype(np.int32)
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    counts[empty, share[empty].argmax(axis=1)] = 1
    return sparse.csr_matrix(counts)


def normalise(counts: sparse.csr_matrix) -> tuple[sparse.csr_matrix, float]:
    """Return natural log1p of counts scaled to the median total (float32), and that total."""
    totals = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    total = float(np.median(totals))
    values = counts.astype(np.float64)
    values.data = np.log1p(values.data * np.repeat(total / totals, np.diff(counts.indptr)))
    return values.astype(np.float32), total


def expected_log(level: Array, *, noise: Noise, total: float, config: SimulationConfig) -> Array:
    """Return the expected natural log1p of normalised counts, without sampling noise or batches.

    E[log1p(T n / L)] over library sizes L (log-normal), cell states (normal on the log scale, with the
    gene's own spread) and counts n (negative-binomial with mean L p). It is what the mean over infinitely many
    cells would come to, but for the small difference between a cell's library size and its total.

    Parameters
    ----------
    level
        (..., n_genes) log abundance; shares p are its softmax over genes.
    total
        T, what counts are scaled to.
    """
    log_share = level - np.log(np.exp(level).sum(axis=-1, keepdims=True))
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    spread = np.sqrt((noise.state**2).sum(axis=0))
    margin = nodes.max() * spread.max() + 1e-6
    grid = np.linspace(log_share.min() - margin, log_share.max() + margin, GRID_POINTS)
    table = np.zeros(GRID_POINTS)
    for node, weight in zip(nodes, weights, strict=True):
        library = config.depth * np.exp(config.depth_spread * node)
        # Low abundances need few terms, so that going through the grid by parts is some ten times cheaper.
        parts = np.array_split(np.exp(grid) * library, 16)
        table += weight * np.concatenate(
            [_expected_at(part, total / library, 1.0 / config.dispersion) for part in parts]
        )
    return np.asarray(
        sum(
            weight * np.interp(log_share + node * spread, grid, table)
            for node, weight in zip(nodes, weights, strict=True)
        )
    )


def _expected_at(mean: Array, scale: float, size: float) -> Array:
    """Return E[log1p(scale n)] for negative-binomial n of each mean, by summing over n.

    The sum ends 12 standard deviations above the largest mean, where less than 1e-6 of the mass is left for
    dispersions below 1.
    """
    largest = float(mean.max())
    last = int(np.ceil(largest + 12 * np.sqrt(largest + largest**2 / size) + 10))
    n = np.arange(last + 1)
    constant = gammaln(n + size) - gammaln(n + 1) - gammaln(size)
    log_n = np.log(mean / (size + mean))[:, None] * n
    log_probability = constant + log_n + (size * np.log(size / (size + mean)))[:, None]
    return np.asarray(np.exp(log_probability) @ np.log1p(scale * n))
