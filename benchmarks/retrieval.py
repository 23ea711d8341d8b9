"""What of SUMMER's retrieval is worth what, on PerturbQA: our vote with one thing changed at a time.

    PERTBASE_DATA=... python benchmarks/retrieval.py

The paper's figures for retrieval alone are of a procedure that its authors describe in words (which training outcomes
are looked at, in which order, and that a few of them are drawn), and whose neighbours and vote are not public. So what
can be known is switched on here, alone and together:

- ``network``: near are genes with common neighbours in OmniPath and CollecTRI, in the place of gene sets or beside;
- ``ten drawn``: of each tier ten members are drawn, and each counts one, in the place of all by how near they are;
- ``three pots``: ten of the same gene (near perturbations first), ten of near perturbations and near genes, ten of near
  perturbations and any gene, each filled in the order of the tiers; each that is drawn has one vote, of whatever tier.

Prints Markdown: macro per-gene AUROC of called and direction on the four published folds, fitted on train and val,
answers as they are. What is drawn is drawn three times: means, and the largest standard deviation over the draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._random import generator
from pertbase.baselines.llm import Retrieval, RetrievalVote
from pertbase.baselines.llm._retrieval import sets_of
from pertbase.folds import FoldMaker, FoldSpec, Perturbation, Training, data
from pertbase.knowledge import GeneSets, signed_graph
from pertbase.scorers import outcome

GRAPH = ["omnipath_carnival", "collectri"]
DRAWS = 3
BUDGET = 10


class Counted(Retrieval):
    """Retrieval in which whoever is near counts one."""

    def __init__(self, training: Training, sets: GeneSets, *, n_near: int = 10) -> None:
        super().__init__(training, sets, n_near=n_near)
        self.near_genes = sparse.csr_matrix((self.near_genes > 0).astype(np.float64))

    def near(self, context: str, perturbation: Perturbation) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 for what is near, and 1 for what is the same."""
        weights, same = super().near(context, perturbation)
        return (weights > 0).astype(np.float64), same


def drawn(counts: np.ndarray, n: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the outcomes of ``n`` members of each row, drawn without replacement; of all where there are no more."""
    counts = counts.astype(np.int64)
    left, wanted = counts.sum(axis=1), np.minimum(n, counts.sum(axis=1))
    taken = np.zeros_like(counts)
    for column in range(counts.shape[1]):
        left = left - counts[:, column]
        taken[:, column] = rng.hypergeometric(counts[:, column], left, wanted)
        wanted = wanted - taken[:, column]
    return taken


class Changed(RetrievalVote):
    """The vote with something changed.

    Parameters
    ----------
    sets
        What is near, by the gene sets that training has.
    how
        ``all``, ``ten drawn`` or ``three pots``.
    seed
        Of what is drawn.
    """

    def __init__(self, *, sets: Callable[[GeneSets], GeneSets], how: str, seed: int) -> None:
        super().__init__()
        self._sets, self._how, self._rng = sets, how, generator(seed, "retrieval ablation")

    def fit(self, training: Training) -> RetrievalVote:
        """Keep the outcomes of train and val."""
        super().fit(training)
        kind = Retrieval if self._how == "all" else Counted
        self._retrieval = kind(training, self._sets(sets_of(training, None)), n_near=self.n_near)
        return self

    def _voted(self, tiers: Iterator[np.ndarray], column: np.ndarray) -> np.ndarray:
        if self._how == "all":
            return super()._voted(tiers, column)
        asked = [np.where(column[:, None] >= 0, counts[column], 0.0) for counts in tiers]
        full = np.full(len(column), BUDGET)
        if self._how == "ten drawn":
            # All genes of a condition have a row: a row of zeros stands for what a gene has none of.
            few = [drawn(counts, full, self._rng).astype(np.float64) for counts in asked]
            return super()._voted(iter(few), np.arange(len(column)))
        pots = np.zeros((len(column), 3))
        for order in ((2, 5), (3,), (1, 4, 6)):
            pot = np.zeros((len(column), 3))
            for tier in order:
                pot += drawn(asked[tier - 1], full - pot.sum(axis=1).astype(np.int64), self._rng)
            pots += pot
        total = pots.sum(axis=1, keepdims=True)
        return np.where(total > 0, np.divide(pots, total, out=np.zeros_like(pots), where=total > 0), self._frequency)


def neighbours() -> GeneSets:
    """Return a set for each node of the network: those next to it, and itself."""
    edges = signed_graph(GRAPH).edges
    pairs = pd.concat([edges[["source", "target"]], edges[["target", "source"]].set_axis(["source", "target"], axis=1)])
    return {
        f"next to {name}": tuple(sorted({str(name), *map(str, group)}))
        for name, group in pairs.groupby("source")["target"]
    }


def variants() -> Mapping[str, tuple[Callable[[GeneSets], GeneSets], str]]:
    """Return name -> what is near, and who votes."""
    network = neighbours()

    def own(sets: GeneSets) -> GeneSets:
        return sets

    def alone(sets: GeneSets) -> GeneSets:
        return network

    def both(sets: GeneSets) -> GeneSets:
        return {**sets, **network}

    return {
        "as it is": (own, "all"),
        "network in the place of gene sets": (alone, "all"),
        "network beside gene sets": (both, "all"),
        "ten drawn": (own, "ten drawn"),
        "three pots": (own, "three pots"),
        "network beside gene sets, ten drawn": (both, "ten drawn"),
        "network beside gene sets, three pots": (both, "three pots"),
    }


def main() -> None:
    """Print the table."""
    began = time.process_time()
    maker = FoldMaker(data("perturbqa"))
    specs = maker.expand(FoldSpec(kind="published"))
    folds = {str(spec.context): maker.draw(spec) for spec in specs}
    columns = [f"{context} {what}" for what in ("called", "direction") for context in folds]
    print(f"| | {' | '.join(columns)} | sd of draws |\n| --- |{' --- |' * (len(columns) + 1)}")
    for name, (sets, how) in variants().items():
        values = []
        for seed in range(1 if how == "all" else DRAWS):
            row = {}
            for context, fold in folds.items():
                model = Changed(sets=sets, how=how, seed=seed).fit(fold.make_training(seed=0, cells=False))
                found = outcome(model.answer(fold.inputs("test", cells=False)), fold.truth)
                row[f"{context} called"] = found.auroc_called.value
                row[f"{context} direction"] = found.auroc_direction.value
            values.append([row[column] for column in columns])
        mean, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1).max() if len(values) > 1 else np.nan
        told = " | ".join(f"{value:.3f}" for value in mean)
        print(f"| {name} | {told} | {'–' if np.isnan(spread) else f'{spread:.3f}'} |", flush=True)
    print(f"\nCPU-seconds: {time.process_time() - began:.0f}")


if __name__ == "__main__":
    main()
