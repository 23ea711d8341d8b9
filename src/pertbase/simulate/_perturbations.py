"""What is done to the cells: guides, compounds, combinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from pertbase.errors import InputError
from pertbase.folds._perturbation import Part, Perturbation
from pertbase.simulate._config import SimulationConfig
from pertbase.simulate._network import EFFECTOR, REGULATOR, SIGNALLING, Genes
from pertbase.simulate._response import Inputs

__all__ = ["Panel", "draw_panel"]

HALF_DOSE = 0.3
"""Dose (micromolar) at which an average compound has half its largest effect."""


@dataclass(frozen=True)
class Panel:
    """The perturbations of a screen and what each really does.

    Parameters
    ----------
    perturbations
        Name -> perturbation, as annotated.
    inputs
        One row per (perturbation, gene really acted on): ``perturbation``, ``gene``, ``on`` (``transcript`` or
        ``activity``), ``strength`` (log change) and ``annotated`` (False for off-targets).
    """

    perturbations: Mapping[str, Perturbation]
    inputs: pd.DataFrame

    def matrices(self, genes: Genes) -> Inputs:
        """Return the inputs as (n_perturbations, n_genes) arrays, rows in the order of ``perturbations``."""
        shape = (len(self.perturbations), len(genes.symbols))
        row = pd.Index(list(self.perturbations)).get_indexer(self.inputs["perturbation"])
        column = genes.symbols.get_indexer(self.inputs["gene"])
        strength = self.inputs["strength"].to_numpy()
        guided = (self.inputs["on"] == "transcript").to_numpy()
        transcript, activity = np.zeros(shape), np.zeros(shape)
        transcript[row[guided], column[guided]] = strength[guided]
        activity[row[~guided], column[~guided]] = strength[~guided]
        held = np.zeros(shape, dtype=bool)
        held[row[guided], column[guided]] = True
        return Inputs(transcript=transcript, held=held, activity=activity)


@dataclass(frozen=True)
class _Targets:
    """Indices of the genes perturbed alone, and of the acting genes left over."""

    crispri: npt.NDArray[np.int64]
    crispra: npt.NDArray[np.int64]
    alone: npt.NDArray[np.int64]
    untouched: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Entry:
    """One perturbation with its rows of the table of inputs, less the name."""

    perturbation: Perturbation
    rows: tuple[tuple[str, str, float, bool], ...]


def draw_panel(genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> Panel:
    """Draw the targets, the compounds and the combinations, and how strongly each acts."""
    targets = _draw_targets(genes, config, rng)
    knockdown = -rng.uniform(*config.knockdown_range, size=config.n_genes)
    activation = rng.uniform(*config.activation_range, size=config.n_genes)
    strength = {"CRISPRi": knockdown, "CRISPRa": activation}
    entries = [_guided((gene,), "CRISPRi", genes, strength) for gene in targets.crispri]
    entries += [_guided((gene,), "CRISPRa", genes, strength) for gene in targets.crispra]
    entries += _draw_combinations(targets, genes, config, strength, rng)
    for number in range(config.n_compounds):
        entries += _draw_compound(number, targets, genes, config, rng)
    entries.sort(key=lambda entry: entry.perturbation.name)
    rows = [(entry.perturbation.name, *row) for entry in entries for row in entry.rows]
    return Panel(
        perturbations={entry.perturbation.name: entry.perturbation for entry in entries},
        inputs=pd.DataFrame(rows, columns=["perturbation", "gene", "on", "strength", "annotated"]),
    )


def _draw_targets(genes: Genes, config: SimulationConfig, rng: np.random.Generator) -> _Targets:
    acting = rng.permutation(genes.acting)
    n_acting = config.n_crispri - config.n_inert
    n_alone = n_acting + config.n_crispra - config.n_both
    inert = rng.choice(np.flatnonzero(genes.tier == EFFECTOR), size=config.n_inert, replace=False)
    start = n_acting - config.n_both
    return _Targets(
        crispri=np.concatenate([acting[:n_acting], inert]),
        crispra=acting[start : start + config.n_crispra],
        alone=acting[:n_alone],
        untouched=acting[n_alone:],
    )


def _guided(
    targets: tuple[int, ...], mechanism: str, genes: Genes, strength: Mapping[str, npt.NDArray[np.float64]]
) -> _Entry:
    symbols = [str(genes.symbols[gene]) for gene in targets]
    rows = tuple(
        (symbol, "transcript", float(strength[mechanism][gene]), True)
        for symbol, gene in zip(symbols, targets, strict=True)
    )
    return _Entry(Perturbation.genetic(symbols, mechanism), rows)


def _draw_combinations(
    targets: _Targets,
    genes: Genes,
    config: SimulationConfig,
    strength: Mapping[str, npt.NDArray[np.float64]],
    rng: np.random.Generator,
) -> list[_Entry]:
    """Draw distinct pairs with 0, 1 and 2 genes perturbed alone by the same mechanism, mechanisms in turn."""
    entries: list[_Entry] = []
    taken: set[frozenset[int]] = set()
    alone = {"CRISPRi": np.intersect1d(targets.crispri, targets.alone), "CRISPRa": targets.crispra}
    for n_seen, wanted in enumerate(config.n_combinations):
        for number in range(wanted):
            mechanism = ("CRISPRi", "CRISPRa")[number % 2]
            pools = [alone[mechanism]] * n_seen + [targets.untouched] * (2 - n_seen)
            pair = _draw_pair(pools, genes, taken, rng)
            taken.add(frozenset(pair))
            entries.append(_guided(pair, mechanism, genes, strength))
    return entries


def _draw_pair(
    pools: list[npt.NDArray[np.int64]], genes: Genes, taken: set[frozenset[int]], rng: np.random.Generator
) -> tuple[int, int]:
    """Draw a new pair, in half of the cases from one module, where the two can interact."""
    together = rng.random() < 0.5
    for attempt in range(10_000 if all(len(pool) for pool in pools) else 0):
        first, second = int(rng.choice(pools[0])), int(rng.choice(pools[1]))
        # Small panels may have no pair in one module left.
        wrong = together and attempt < 200 and genes.module[first] != genes.module[second]
        if first != second and not wrong and frozenset((first, second)) not in taken:
            return first, second
    raise InputError(
        "there are not so many different pairs of targets",
        key="n_combinations",
        value=len(taken),
        remedy="ask for fewer",
    )


def _draw_compound(
    number: int, targets: _Targets, genes: Genes, config: SimulationConfig, rng: np.random.Generator
) -> list[_Entry]:
    """Draw one compound at its doses: targets, signs, potency, and an off-target nobody knows of."""
    # The first compounds hit genes that are perturbed genetically too, in every screen equally many.
    known = number < round(config.compounds_on_perturbed * config.n_compounds)
    hit = _draw_hit(targets.alone if known else targets.untouched, genes, rng)
    hidden = int(rng.choice(genes.acting)) if rng.random() < config.off_target else None
    raises = rng.random() < config.agonist
    unsigned = rng.random() < config.unknown_sign
    largest = rng.uniform(*config.inhibition_range) * (1.0 if raises else -1.0)
    half_dose = HALF_DOSE * np.exp(0.5 * rng.standard_normal())
    sign = 0 if unsigned else (1 if raises else -1)
    annotated = tuple((str(genes.symbols[gene]), sign) for gene in hit)
    # The main target is hit fully, others and the off-target less.
    share = np.concatenate([[1.0], rng.uniform(0.4, 0.9, size=len(hit) - 1)])
    # Evenly spaced, so that both kinds of compound have some; exactly n_two_doses numbers pass.
    twice = (number * config.n_two_doses) % config.n_compounds < config.n_two_doses
    doses = config.doses if twice else config.doses[:1]
    entries = []
    for dose in doses:
        level = largest * dose / (dose + half_dose)
        rows = [(name, "activity", float(level * part), True) for (name, _), part in zip(annotated, share, strict=True)]
        if hidden is not None and hidden not in hit:
            rows.append((str(genes.symbols[hidden]), "activity", float(0.6 * level), False))
        part = Part("drug", annotated, f"simdrug{number + 1:02d}", dose)
        entries.append(_Entry(Perturbation((part,)), tuple(rows)))
    return entries


def _draw_hit(pool: npt.NDArray[np.int64], genes: Genes, rng: np.random.Generator) -> list[int]:
    """Draw one to three targets: the main one mostly a signalling gene, the others mostly of its module."""
    tier = SIGNALLING if rng.random() < 0.7 else REGULATOR
    preferred = pool[genes.tier[pool] == tier]
    main = int(rng.choice(preferred if len(preferred) else pool))
    hit = [main]
    family = np.flatnonzero((genes.module == genes.module[main]) & (genes.tier == genes.tier[main]))
    for _ in range(int(rng.choice(3, p=[0.5, 0.3, 0.2]))):
        other = int(rng.choice(family if rng.random() < 0.7 else genes.acting))
        if other not in hit:
            hit.append(other)
    return hit
