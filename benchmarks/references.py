"""How often a measured change has a path that agrees with it, beside how often it would have one anyway.

    PERTBASE_DATA=... python benchmarks/references.py                       # every real data set that is there
    PERTBASE_DATA=... python benchmarks/references.py --data papalexi --k 1

For each data set all conditions are labelled, none is split. A pair (condition, readout gene) has a *consistent
reference* where one of its k candidate paths, chosen without the label, says what was measured: the sign of the target
times the signs of the edges. The share of up and down pairs that have one stands beside:

- ``no_change``: the share of unchanged pairs that would have one, were each called up or down with the frequencies of
  the called pairs;
- ``outcomes permuted``: the share among called pairs after all outcomes of a condition were permuted over its readout
  genes, up, down and no_change alike: what a condition's targets reach;
- ``signs permuted``: after up and down alone were permuted over the called pairs of a condition: what is left is reach
  without direction;
- ``rewired``: in graphs in which each node keeps its number of edges of each sign, out and in: what hubs explain.

``clear`` is the share less the highest of its nulls, and in brackets that difference in standard deviations of that
null over its repetitions (of no_change: the binomial one). ``agrees`` looks at direction alone: of called pairs whose
candidates all say one sign, the share in which it is the measured one, beside the same after ``signs permuted``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import PertbaseError
from pertbase.folds import FoldMaker, FoldSpec, Screen, data
from pertbase.folds._make import basal_levels
from pertbase.knowledge import SignedGraph, signed_graph
from pertbase.knowledge._candidates import find_candidates
from pertbase.knowledge._gates import EXPRESSED

DATA = ("papalexi", "kang", "perturbench_devel", "gears_norman", "perturbqa")
GRAPH = ("omnipath_carnival", "collectri")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Labelled pairs of a data set that the graph could reach: a target and the readout gene are in it."""

    questions: pd.DataFrame
    perturbations: dict[str, object]
    basal: pd.DataFrame | None
    code: np.ndarray  # +1 up, -1 down, 0 no_change
    condition: np.ndarray


def pairs_of(name: str, graph: SignedGraph, most: int) -> tuple[Pairs, int]:
    """Return the pairs that can be looked at, ``most`` of them drawn, and how many called ones there were before."""
    made = data(name)
    maker = FoldMaker(made)
    labelled = maker.labelled(maker.expand(FoldSpec(kind="published"))[0])
    table = labelled.questions.loc[labelled.questions["outcome"].notna()].reset_index(drop=True)
    n_called = int(table["outcome"].isin(("up", "down")).sum())
    known = {key: (graph.locate(item.targets) >= 0).any() for key, item in labelled.perturbations.items()}
    genes = table["gene"].astype(str).unique()
    asked = table["gene"].isin(genes[graph.locate(genes) >= 0])
    table = table.loc[asked & table["perturbation"].astype(str).map(known)].reset_index(drop=True)
    if len(table) > most:
        table = table.sample(most, random_state=0).reset_index(drop=True)
    code = table["outcome"].map({"up": 1, "down": -1, "no_change": 0}).to_numpy(dtype=np.int8)
    condition = table.groupby(["context", "perturbation"], observed=True).ngroup().to_numpy()
    basal = basal_levels(labelled, made) if isinstance(made, Screen) else None
    return Pairs(table, dict(labelled.perturbations), basal, code, condition), n_called


@dataclass(frozen=True, eq=False)
class Reach:
    """Which pairs have a candidate path that says up, and down."""

    up: np.ndarray
    down: np.ndarray

    def share(self, code: np.ndarray) -> float:
        """Return the share of called pairs that have a path of their sign."""
        has = np.where(code > 0, self.up, self.down)
        return float(has[code != 0].mean()) if (code != 0).any() else float("nan")

    def agrees(self, code: np.ndarray) -> float:
        """Return, of called pairs whose paths say one sign, the share in which it is theirs."""
        one = (code != 0) & (self.up != self.down)
        return float((self.up == (code > 0))[one].mean()) if one.any() else float("nan")


def reach(pairs: Pairs, graph: SignedGraph, hops: int, k: int, weight: str) -> Reach:
    """Look for candidates in a graph."""
    found = find_candidates(
        pairs.questions,
        pairs.perturbations,  # type: ignore[arg-type]
        graph,
        hops=hops,
        k=k,
        weight=weight,
        gate=EXPRESSED,
        basal=pairs.basal,
    )
    return Reach(found.count(1) > 0, found.count(-1) > 0)


def within(condition: np.ndarray, values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return values permuted over the rows of each condition."""
    chosen = np.flatnonzero(rows)
    grouped = chosen[np.argsort(condition[chosen], kind="stable")]
    shuffled = chosen[np.lexsort((rng.random(len(chosen)), condition[chosen]))]
    permuted = values.copy()
    permuted[grouped] = values[shuffled]
    return permuted


def repeated(call: Callable[[], tuple[float, float]], times: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations of a pair of numbers over repetitions."""
    found = np.array([call() for _ in range(times)])
    return found.mean(axis=0), found.std(axis=0, ddof=1) if times > 1 else np.zeros(2)


def row(pairs: Pairs, graph: SignedGraph, rewired: list[SignedGraph], hops: int, options: argparse.Namespace) -> str:
    """Return one row of the table."""
    rng = generator(0, "references", str(hops))
    code, everything = pairs.code, np.ones(len(pairs.code), dtype=bool)
    here = reach(pairs, graph, hops, options.k, options.weight)
    true = here.share(code)
    rate = float((code > 0).sum() / (code != 0).sum())
    unchanged = rate * here.up[code == 0].mean() + (1 - rate) * here.down[code == 0].mean()

    def permute(rows: np.ndarray) -> Callable[[], tuple[float, float]]:
        def call() -> tuple[float, float]:
            other = within(pairs.condition, code, rows, rng)
            return here.share(other), here.agrees(other)

        return call

    (outcomes, _), (outcomes_sd, _) = repeated(permute(everything), options.repeats)
    (signs, agrees), (signs_sd, agrees_sd) = repeated(permute(code != 0), options.repeats)
    others = [reach(pairs, one, hops, options.k, options.weight).share(code) for one in rewired]
    nulls = {
        "no_change": (unchanged, np.sqrt(unchanged * (1 - unchanged) / (code != 0).sum())),
        "outcomes": (outcomes, outcomes_sd),
        "signs": (signs, signs_sd),
        "rewired": (np.mean(others), np.std(others, ddof=1)),
    }
    highest = max(nulls, key=lambda name: nulls[name][0])
    gap, spread = true - nulls[highest][0], nulls[highest][1]
    both = float((here.up & here.down)[code != 0].mean())
    return (
        f"{hops} | {true:.3f} | {unchanged:.3f} | {outcomes:.3f} | {signs:.3f} | {np.mean(others):.3f} | "
        f"{gap:+.3f} ({gap / spread if spread else float('nan'):+.1f}, {highest}) | {both:.3f} | "
        f"{here.agrees(code):.3f} | {agrees:.3f} ± {agrees_sd:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--graph", nargs="+", default=list(GRAPH))
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--weight", default="evidence")
    parser.add_argument("--most", type=int, default=100_000, help="pairs of a data set, drawn where it has more")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--rewired", type=int, default=5)
    options = parser.parse_args()
    start = time.process_time()
    graph = signed_graph(options.graph)
    rewired = [graph.rewired(generator(0, "rewired", str(number))) for number in range(options.rewired)]
    print(f"{graph!r}; k {options.k}, weight {options.weight}, gate expressed\n")
    print(
        "| data | called pairs in the graph | hops | consistent reference | no_change | outcomes permuted | "
        "signs permuted | rewired | clear | both signs | agrees | signs permuted |"
    )
    print("|" + " --- |" * 12)
    for name in options.data:
        try:
            pairs, n_called = pairs_of(name, graph, options.most)
        except PertbaseError as error:
            print(f"\n{name} is left out: {error}\n")
            continue
        called = int((pairs.code != 0).sum())
        for hops in (1, 2, 3, 4):
            told = row(pairs, graph, rewired, hops, options)
            print(f"| {name} | {called:,} of {n_called:,} | {told} |", flush=True)
    print(
        f"\n{options.repeats} permutations, {options.rewired} rewired graphs; {time.process_time() - start:.0f} CPU-s"
    )


if __name__ == "__main__":
    main()
