"""The simulated screen, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from pertbase._frozen import FrozenMapping
from pertbase._random import generator
from pertbase.errors import InputError
from pertbase.folds import CONTROL, Effects, Perturbation, Screen
from pertbase.folds._gene_sets import set_table
from pertbase.folds._perturbation import perturbation_table
from pertbase.folds._screen import FORMAT
from pertbase.simulate._cells import Noise, draw_counts, draw_layout, draw_noise, expected_log, normalise
from pertbase.simulate._config import SimulationConfig
from pertbase.simulate._graph import corrupt, draw_gene_sets
from pertbase.simulate._network import Basal, Genes, draw_basal, draw_genes, draw_network
from pertbase.simulate._perturbations import Panel, draw_panel
from pertbase.simulate._response import active_edges, draw_stress, propagate

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["NAME", "Mechanism", "Simulation", "load_screen", "simulate_screen"]

NAME = "simulated"
"""The data set's name: nobody should mistake a number on it for one on cells."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism:
    """What really happens in a simulated screen. For scorers and tests; no model may see it.

    Parameters
    ----------
    network
        Generating edges: ``source``, ``target``, ``sign``, ``weight``, ``gate``.
    active
        The edges active in each context: ``context``, ``source``, ``target``, ``sign``, ``weight``.
    genes
        One row a gene: ``tier``, ``module`` (empty for housekeeping genes), ``stress`` (loading on the general
        stress programme).
    expressed
        Contexts x genes, whether the gene is expressed and can act.
    inputs
        What perturbations do to genes: ``perturbation``, ``gene``, ``on``, ``strength``, ``annotated``.
    response
        (context, perturbation) x genes, natural log change of the transcript.
    effects
        The effect every condition would have with infinitely many cells: ``mean_log`` on the screen's scale.
        Its ``basal`` is the mean log1p of controls with infinitely many cells.
    """

    network: pd.DataFrame
    active: pd.DataFrame
    genes: pd.DataFrame
    expressed: pd.DataFrame
    inputs: pd.DataFrame
    response: pd.DataFrame
    effects: Effects

    def __repr__(self) -> str:
        return f"Mechanism({len(self.genes)} genes, {len(self.network)} edges, {len(self.response)} conditions)"


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """A simulated screen, what is known about its genes, and the truth behind it.

    Parameters
    ----------
    screen
        The cells, in the contract; ``simulated`` is True.
    graph
        The corrupted graph that models may see: ``source``, ``target``, ``sign`` (-1, 0 unknown, +1).
    gene_sets
        Noisy gene sets, name -> symbols.
    truth
        The generating mechanism.
    seed, config
        What it was made from; equal ones give an equal simulation.
    """

    screen: Screen
    graph: pd.DataFrame
    gene_sets: Mapping[str, tuple[str, ...]]
    truth: Mechanism
    seed: int
    config: SimulationConfig

    def __repr__(self) -> str:
        return f"Simulation(seed={self.seed}): {self.screen!r}; {self.truth!r}"


def simulate_screen(*, seed: int = 0, config: SimulationConfig | None = None) -> Simulation:
    """Simulate a screen with a known mechanism; see :mod:`pertbase.simulate` for the equations.

    Parameters
    ----------
    seed
        Every number follows from it and from ``config``. Biology, cells and corruption draw from streams of
        their own, so that changing the noise of cells leaves the network alone.
    config
        Sizes and strengths; the frozen defaults where not given.

    Raises
    ------
    InputError
        Where the seed is negative, or more combinations are asked for than there are pairs of targets.
    """
    if seed < 0:
        raise InputError("a seed is not negative", key="seed", value=seed)
    config = config or SimulationConfig()
    biology, treatment, sampling, corruption = (
        generator(seed, "simulate", part) for part in ("biology", "treatment", "sampling", "corruption")
    )
    genes = draw_genes(config, biology)
    network = draw_network(genes, config, biology)
    basal = draw_basal(genes, config, biology)
    stress = draw_stress(genes, config, biology)
    panel = draw_panel(genes, config, treatment)
    conditions, change = _respond(panel, network, genes, basal, stress, config)
    noise = draw_noise(config, sampling)
    cells, counts = _sample(conditions, change, basal, noise, config, sampling)
    values, total = normalise(counts)
    graph = corrupt(network, genes, config, corruption)
    gene_sets = FrozenMapping(draw_gene_sets(genes, config, corruption))
    screen = Screen.from_anndata(_anndata(values, counts, cells, genes, panel.perturbations, gene_sets, graph, total))
    return Simulation(
        screen=screen,
        graph=graph,
        gene_sets=gene_sets,
        truth=Mechanism(
            network=network,
            active=_active(network, genes, basal, config),
            genes=_gene_table(genes, stress),
            expressed=pd.DataFrame(basal.expressed, index=_contexts(config), columns=genes.symbols),
            inputs=panel.inputs,
            response=pd.DataFrame(
                change, index=pd.MultiIndex.from_frame(conditions[["context", "perturbation"]]), columns=genes.symbols
            ),
            effects=_true_effects(conditions, change, genes, basal, noise, total, config),
        ),
        seed=seed,
        config=config,
    )


def _contexts(config: SimulationConfig) -> pd.Index:
    return pd.Index(config.contexts, name="context")


def _respond(
    panel: Panel, network: pd.DataFrame, genes: Genes, basal: Basal, stress: Array, config: SimulationConfig
) -> tuple[pd.DataFrame, Array]:
    """Return the conditions (``context``, ``perturbation``, ``guided``) and their (n_conditions, n_genes) changes."""
    inputs = panel.matrices(genes)
    about = pd.DataFrame(
        {
            "perturbation": list(panel.perturbations),
            "guided": [item.modality == "genetic" for item in panel.perturbations.values()],
        }
    )
    combination = np.array([item.is_combination for item in panel.perturbations.values()])
    tables, changes = [], []
    for number, context in enumerate(config.contexts):
        done = ~combination | (number < config.combination_contexts)
        change = propagate(
            inputs, network=network, genes=genes, basal=basal, stress=stress, context=number, config=config
        )
        tables.append(about[done].assign(context=context))
        changes.append(change[done])
    return pd.concat(tables, ignore_index=True), np.concatenate(changes)


def _sample(
    conditions: pd.DataFrame,
    change: Array,
    basal: Basal,
    noise: Noise,
    config: SimulationConfig,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, sparse.csr_matrix]:
    """Draw all cells, one condition after the other."""
    cells = draw_layout(conditions, config, rng)
    rows = {key: row for row, key in enumerate(zip(conditions["context"], conditions["perturbation"], strict=True))}
    blocks = []
    for (context, perturbation), block in cells.groupby(["context", "perturbation"], sort=False):
        number = config.contexts.index(context)
        here = np.zeros(config.n_genes) if perturbation == CONTROL else change[rows[context, perturbation]]
        blocks.append(
            draw_counts(
                block,
                basal=basal.log_abundance[number],
                change=here,
                noise=noise,
                context=number,
                config=config,
                rng=rng,
            )
        )
    return cells, sparse.vstack(blocks, format="csr")


def _anndata(
    values: sparse.csr_matrix,
    counts: sparse.csr_matrix,
    cells: pd.DataFrame,
    genes: Genes,
    perturbations: Mapping[str, Perturbation],
    gene_sets: Mapping[str, tuple[str, ...]],
    graph: pd.DataFrame,
    total: float,
) -> AnnData:
    from anndata import AnnData

    obs = cells[["context", "perturbation", "is_control"]].copy()
    obs["batch"] = [f"{context}b{batch + 1}" for context, batch in zip(cells["context"], cells["batch"], strict=True)]
    adata = AnnData(X=values, obs=obs, var=pd.DataFrame(index=genes.symbols), layers={"counts": counts})
    adata.uns["pertbase"] = {
        "format": FORMAT,
        "name": NAME,
        "simulated": True,
        "normalisation": {"method": "log1p_total", "total": total},
        "perturbations": perturbation_table(perturbations),
        # What models may know of these invented genes; the network itself stays with the truth.
        "gene_sets": set_table(gene_sets),
        "graph": graph,
    }
    return adata


def _active(network: pd.DataFrame, genes: Genes, basal: Basal, config: SimulationConfig) -> pd.DataFrame:
    tables = [
        network.loc[
            active_edges(network, genes, basal.expressed[number]), ["source", "target", "sign", "weight"]
        ].assign(context=context)
        for number, context in enumerate(config.contexts)
    ]
    return pd.concat(tables, ignore_index=True)[["context", "source", "target", "sign", "weight"]]


def _gene_table(genes: Genes, stress: Array) -> pd.DataFrame:
    tiers = np.array(["signalling", "regulator", "effector", "housekeeping"], dtype=object)
    modules = [f"M{number + 1:02d}" if number >= 0 else "" for number in genes.module]
    return pd.DataFrame({"tier": tiers[genes.tier], "module": modules, "stress": stress}, index=genes.symbols)


def _true_effects(
    conditions: pd.DataFrame,
    change: Array,
    genes: Genes,
    basal: Basal,
    noise: Noise,
    total: float,
    config: SimulationConfig,
) -> Effects:
    """Return the noise-free effects; a share ``escape`` of the cells with a guide shows none."""
    context = _contexts(config).get_indexer(conditions["context"])
    control = expected_log(basal.log_abundance, noise=noise, total=total, config=config)
    treated = expected_log(basal.log_abundance[context] + change, noise=noise, total=total, config=config)
    hit = np.where(conditions["guided"].to_numpy(), 1.0 - config.escape, 1.0)
    return Effects(
        values=hit[:, None] * (treated - control[context]),
        conditions=conditions[["context", "perturbation"]],
        genes=genes.symbols,
        statistic="mean_log",
        basal=pd.DataFrame(control, index=_contexts(config), columns=genes.symbols),
    )


def load_screen(*, seed: int = 0) -> Screen:
    """Return the simulated screen alone, without what only scorers and tests may see: ``data=simulated``.

    Parameters
    ----------
    seed
        Draws everything; 0 is the screen that published tables are of.
    """
    return simulate_screen(seed=seed).screen
