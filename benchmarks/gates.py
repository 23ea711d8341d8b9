"""What a gate takes from the candidate paths of a fold's training questions, and whether it takes the right ones.

    PERTBASE_DATA=... python benchmarks/gates.py

Only questions of train are looked at. Simulated screen: the generating network says which paths are active in a context
and which one is behind a measured change, so that a gate can be held against it. Papalexi and Kang: there is no such
truth; the share of called pairs with a consistent reference stands beside the same with up and down permuted over the
called pairs of a condition.

Columns: the share of reached questions whose candidates are others than without a gate, of called ones and of
``no_change``; then, simulated, the share of called ones whose true mechanism is among the candidates, the share of
candidate paths that are active, and active paths lost; real, the share with a consistent reference, and its null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import PertbaseError
from pertbase.folds import FoldMaker, FoldSpec, Perturbation, data
from pertbase.folds._make import basal_levels
from pertbase.knowledge import Gate, SignedGraph, ks_gate, signed_graph
from pertbase.knowledge._candidates import Candidates, find_candidates
from pertbase.knowledge._gates import EXPRESSED
from pertbase.simulate import Simulation, simulate_screen, true_paths

GRAPH = ["omnipath_carnival", "collectri"]
HOPS, K = 3, 5
REPEATS = 50


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions of train, and all that their candidates follow from."""

    questions: pd.DataFrame
    perturbations: Mapping[str, Perturbation]
    graph: SignedGraph
    basal: pd.DataFrame

    @property
    def code(self) -> np.ndarray:
        """1 for up, -1 for down, 0 for no_change."""
        return self.questions["outcome"].map({"up": 1, "down": -1, "no_change": 0}).to_numpy(dtype=np.int64)

    def candidates(self, gate: Gate | None, *, shut: bool) -> Candidates:
        """Return the candidates under a gate."""
        options = {"hops": HOPS, "k": K, "gate": gate, "basal": self.basal, "shut": shut}
        return find_candidates(self.questions, self.perturbations, self.graph, **options)

    def gates(self) -> dict[str, tuple[Gate | None, bool]]:
        """Return name -> gate, and whether it shuts."""
        found: dict[str, tuple[Gate | None, bool]] = {"none": (None, False)}
        for name, gate in (
            ("expressed, .01 to .1", EXPRESSED),
            ("given, .2 to .6", Gate(0.2, 0.6)),
            ("ks, not matched", ks_gate(self.basal, self.questions.assign(split="train"), matched=False)),
            ("ks, matched", ks_gate(self.basal, self.questions.assign(split="train"))),
        ):
            told = f" ({gate.low:.2f} to {gate.high:.2f})" if name.startswith("ks") and gate.kind == "ks" else ""
            told += " (within chance: expressed)" if name.startswith("ks") and gate.kind != "ks" else ""
            found[f"{name}{told}"] = (gate, False)
            found[f"{name}{told}, shut"] = (gate, True)
        return found


def listed(found: Candidates) -> list[frozenset[tuple[int, ...]]]:
    """Return the candidates of each question as a set of paths, each its edges."""
    paths = [tuple(edge for edge in row if edge >= 0) for row in found.edges.tolist()]
    return [frozenset(paths[begin:end]) for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


def moved(asked: Asked, bare: list[frozenset[tuple[int, ...]]], now: list[frozenset[tuple[int, ...]]]) -> list[str]:
    """Return the shares of called and unchanged questions, of those that are reached, with other candidates."""
    reached = np.array([bool(paths) for paths in bare])
    other = np.array([one != two for one, two in zip(bare, now, strict=True)])
    called = asked.code != 0
    return [f"{other[reached & kind].mean():.3f}" for kind in (called, ~called)]


def simulated() -> None:
    """Print the table of the simulated screen."""
    simulation = simulate_screen(seed=0)
    fold = FoldMaker(simulation.screen).draw(FoldSpec(kind="unseen_perturbation_genetic"))
    known = fold.questions.loc[(fold.questions["split"] == "train") & fold.questions["outcome"].notna()]
    asked = Asked(known.reset_index(drop=True), fold.perturbations, simulation.screen.graph, fold.effects.basal)
    truth = true_paths(simulation, asked.questions, max_hops=HOPS)
    active = active_edges(simulation, asked)
    print("| gate | called, others | no_change, others | true mechanism found | active | active lost |")
    print("| --- | --- | --- | --- | --- | --- |")
    bare, ungated = None, 0
    for name, (gate, shut) in asked.gates().items():
        found = asked.candidates(gate, shut=shut)
        now = listed(found)
        bare = now if bare is None else bare
        edges = found.edges
        works = (active[found.question[:, None], np.maximum(edges, 0)] | (edges < 0)).all(axis=1)
        ungated = ungated or int(works.sum())
        hit = [
            any(tuple(path.triplets) == tuple(one[0]) for path in found.paths(row))
            for row, one in enumerate(truth)
            if one
        ]
        figures = [f"{np.mean(hit):.3f}", f"{works.mean():.3f}", f"{ungated - int(works.sum())} of {ungated}"]
        print(f"| {name} | {' | '.join([*moved(asked, bare, now), *figures])} |", flush=True)


def active_edges(simulation: Simulation, asked: Asked) -> np.ndarray:
    """Return whether each edge of the graph acts in the context of each question, bool (n_questions, n_edges)."""
    table = asked.graph.edges[["source", "target"]].apply(tuple, axis=1)
    by_context = {
        str(context): table.isin(set(zip(rows["source"], rows["target"], strict=True))).to_numpy()
        for context, rows in simulation.truth.active.groupby("context")
    }
    return np.stack([by_context[str(context)] for context in asked.questions["context"]])


def real(name: str) -> None:
    """Print the table of a real screen."""
    made = data(name)
    maker = FoldMaker(made)
    labelled = maker.labelled(maker.expand(FoldSpec(kind="published"))[0])
    questions = labelled.questions.loc[labelled.questions["outcome"].notna()].reset_index(drop=True)
    asked = Asked(questions, labelled.perturbations, signed_graph(GRAPH), basal_levels(labelled, made))
    called = np.flatnonzero(asked.code)
    condition = questions.groupby(["context", "perturbation"], observed=True).ngroup().to_numpy()[called]
    print("\n| gate | called, others | no_change, others | consistent reference | signs permuted |")
    print("| --- | --- | --- | --- | --- |")
    bare = None
    for title, (gate, shut) in asked.gates().items():
        found = asked.candidates(gate, shut=shut)
        now = listed(found)
        bare = now if bare is None else bare
        says = {sign: found.count(sign)[called] > 0 for sign in (1, -1)}
        rng = generator(0, "gates", name)
        nulls = [agreeing(says, permuted(asked.code[called], condition, rng)) for _ in range(REPEATS)]
        figures = [f"{agreeing(says, asked.code[called]):.3f}", f"{np.mean(nulls):.3f}"]
        print(f"| {name}: {title} | {' | '.join([*moved(asked, bare, now), *figures])} |", flush=True)


def agreeing(says: Mapping[int, np.ndarray], code: np.ndarray) -> float:
    """Return the share of pairs with a candidate that says what was measured."""
    return float(np.where(code == 1, says[1], says[-1]).mean())


def permuted(code: np.ndarray, condition: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return up and down permuted over the called pairs of each condition."""
    order = np.lexsort((rng.random(len(code)), condition))
    made = np.empty_like(code)
    made[np.argsort(condition, kind="stable")] = code[order]
    return made


def main() -> None:
    """Print the tables."""
    simulated()
    for name in ("papalexi", "kang"):
        try:
            real(name)
        except PertbaseError as error:
            print(f"\n{name} is left out: {error}")


if __name__ == "__main__":
    main()
