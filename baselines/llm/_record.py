"""What a question may say to a model: one frozen record, made from what a fold hands out and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import OUTCOMES, Inputs, Part, Perturbation, Training
from pertbase.knowledge._triplets import Triplet

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["PRESETS", "Encoder", "Example", "Level", "Paths", "Record", "example_questions", "in_words", "paths_of"]

PRESETS = ("no_path", "global_path", "cell_path")
"""Which paths a model is shown: none; those of the graph, whatever the context; those gated by basal expression."""

Paths = tuple[tuple[Triplet, ...], ...]

_UNDETECTED = 0.01
"""Mean log1p below which a transcript counts as not detected: about one cell of a hundred."""
_DID = {
    "CRISPRi": "CRISPR interference lowers {target}",
    "CRISPRa": "CRISPR activation raises {target}",
    "CRISPR-KO": "CRISPR knock-out removes {target}",
}
_ACTS = {-1: "inhibits", 0: "acts on", 1: "activates"}


@dataclass(frozen=True)
class Level:
    """The basal level of a gene in a context, from its input controls.

    Parameters
    ----------
    gene
        Symbol.
    value
        Mean log1p; None where it was not measured.
    share
        The share of measured genes of the context that are lower.
    """

    gene: str
    value: float | None = None
    share: float = 0.0

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.gene}: not measured"
        if self.value < _UNDETECTED:
            return f"{self.gene}: not detected (mean log1p {self.value:.2f})"
        word = "low" if self.share < 1 / 3 else "medium" if self.share < 2 / 3 else "high"
        return f"{self.gene}: {word} (mean log1p {self.value:.2f}, above {self.share:.0%} of genes)"


@dataclass(frozen=True)
class Record:
    """One question in the words it is asked in.

    Parameters
    ----------
    id
        The question's; it identifies the record and is never rendered.
    context
        Cell line, type or state.
    perturbation
        What was done, in words: mechanism, targets, dose.
    targets
        (gene, sign) of every target, sorted.
    gene
        The readout gene.
    levels
        Basal levels of the readout gene, then of the targets.
    paths
        Candidate paths from targets to readout; None where the preset shows none.
    summaries, retrieved
        What is known of the genes, and training outcomes near the question, for SUMMER; empty elsewhere.
    """

    id: str
    context: str
    perturbation: str
    targets: tuple[tuple[str, int], ...]
    gene: str
    levels: tuple[Level, ...]
    paths: Paths | None = None
    summaries: str = ""
    retrieved: str = ""

    @property
    def implied(self) -> int | None:
        """What its paths say of the readout: +1, -1, 0 where they say both or do not say, None where there are none."""
        from pertbase.knowledge import relation_sign

        if not self.paths:
            return None
        starts = dict(self.targets)
        found = set()
        for path in self.paths:
            sign = starts.get(path[0].head, 0)
            for triplet in path:
                sign *= relation_sign(triplet.relation) or 0
            found.add(sign)
        return found.pop() if len(found) == 1 else 0


@dataclass(frozen=True)
class Example:
    """A training question with its outcome and a reason for it, shown before the one that is asked.

    Parameters
    ----------
    record
        The question.
    outcome
        What was measured.
    reason
        Triplets of its first reference path; empty where it has none.
    """

    record: Record
    outcome: str
    reason: tuple[Triplet, ...] = ()


def in_words(perturbation: Perturbation) -> str:
    """Return what was done, one clause a part: ``CRISPR interference lowers STAT1``."""
    return " and ".join(_part_in_words(part) for part in perturbation.parts)


def _part_in_words(part: Part) -> str:
    if part.modality == "genetic":
        return _DID[part.mechanism].format(target=part.targets[0][0])
    dose = (
        ""
        if part.dose is None
        else f" at {part.dose:g} micromolar"
        if part.mechanism == "drug"
        else f" at {part.dose:g}"
    )
    known = ", ".join(f"{_ACTS[sign]} {gene}" for gene, sign in part.targets)
    return f"the {part.mechanism} {part.compound}{dose} is given" + (
        f" ({known})" if known else " (its targets are not known)"
    )


class Encoder:
    """Makes records of questions.

    Parameters
    ----------
    preset
        One of :data:`PRESETS`.
    graph
        Where ``global_path`` looks for paths, and ``cell_path`` too where the questions bring none: a name, a file or a
        list of them. Not given: the data set's own.
    hops, k
        See :class:`pertbase.knowledge.PathFinder`.
    """

    def __init__(self, *, preset: str = "no_path", graph: Any = None, hops: int = 3, k: int = 5) -> None:
        from pertbase.errors import unknown_name

        if preset not in PRESETS:
            raise unknown_name("preset", str(preset), PRESETS)
        self.preset = preset
        self.graph = graph
        self.hops = hops
        self.k = k
        self._laid: Mapping[str, Any] | None = None

    def as_laid(self, options: Mapping[str, Any]) -> None:
        """Find paths of cells, where questions bring none, as those laid over a fold were found.

        ``options`` are :attr:`pertbase.folds.PathLayer.options`.
        """
        self._laid = options

    def refuses(self, training: Training) -> str | None:
        """Return why its paths cannot be had on such a fold, or None."""
        brought = self.preset == "cell_path" and "candidate_paths" in training.questions.columns
        if self.preset == "no_path" or brought or self._graph_of(training) is not None:
            return None
        return (
            f"{self.preset} shows paths, and {training.data} brings no graph to find them in; name one, for example "
            "baseline.graph=[omnipath_carnival,collectri]"
        )

    def records(self, inputs: Inputs) -> list[Record]:
        """Return the record of each question, in order."""
        return self._records(inputs.questions, inputs.perturbations, inputs.basal, inputs.graph)

    def examples(self, training: Training, questions: pd.DataFrame) -> list[Example]:
        """Return training questions, given by their rows with outcomes, as examples.

        Their reasons are the same whatever the preset shows: presets differ in the paths shown, and in nothing else.
        """
        records = self._records(questions, training.perturbations, training.basal, training.graph)
        reasons: list[tuple[Triplet, ...]] = [()] * len(records)
        if "reference_paths" in questions.columns:
            reasons = [path[0] if (path := paths_of(value)) else () for value in questions["reference_paths"]]
        rows = zip(records, questions["outcome"], reasons, strict=True)
        return [Example(record, str(outcome), reason) for record, outcome, reason in rows]

    def _records(
        self,
        questions: pd.DataFrame,
        perturbations: Mapping[str, Perturbation],
        basal: pd.DataFrame | None,
        graph: SignedGraph | None,
    ) -> list[Record]:
        levels = _Levels(basal)
        words = {name: in_words(item) for name, item in perturbations.items()}
        signs = {name: tuple(item.signs.items()) for name, item in perturbations.items()}
        shown = self._shown(questions, perturbations, basal, graph)
        columns = (questions[name].astype(str) for name in ("id", "context", "perturbation", "gene"))
        made = []
        for (id_, context, name, gene), paths in zip(zip(*columns, strict=True), shown, strict=True):
            genes = dict.fromkeys((gene, *(target for target, _ in signs[name])))
            own = tuple(levels.of(context, one) for one in genes)
            made.append(Record(id_, context, words[name], signs[name], gene, own, paths))
        return made

    def _shown(
        self,
        questions: pd.DataFrame,
        perturbations: Mapping[str, Perturbation],
        basal: pd.DataFrame | None,
        graph: SignedGraph | None,
    ) -> Sequence[Paths | None]:
        if self.preset == "no_path":
            return [None] * len(questions)
        if self.preset == "cell_path" and "candidate_paths" in questions.columns:
            return [paths_of(value) for value in questions["candidate_paths"]]
        from pertbase.knowledge._candidates import find_candidates
        from pertbase.knowledge._gates import EXPRESSED

        of_cells = self.preset == "cell_path"
        options: Mapping[str, Any] = {"hops": self.hops, "k": self.k, "gate": EXPRESSED if of_cells else None}
        if of_cells and self._laid is not None:
            options = self._laid
        asked = questions.reset_index(drop=True)
        found = find_candidates(asked, perturbations, self._required(graph), basal=basal, **options)
        return [tuple(path.triplets for path in found.paths(row)) for row in range(len(questions))]

    def _graph_of(self, given: Training | Inputs) -> SignedGraph | None:
        return given.graph if self.graph is None else self._named()

    def _named(self) -> SignedGraph:
        from pertbase.knowledge import signed_graph

        return signed_graph(self.graph)

    def _required(self, own: SignedGraph | None) -> SignedGraph:
        graph = own if self.graph is None else self._named()
        if graph is None:
            raise UnsupportedError(
                f"{self.preset} shows paths, and there is no graph",
                key="graph",
                remedy="lay paths over the fold (paths=own or paths=human), or name a graph: baseline.graph=NAME",
            )
        return graph

    def swapped(self, record: Record, inputs: Inputs, *, context: str) -> Record:
        """Return a record of the same perturbation and readout gene in another context: its name, levels and paths.

        Raises
        ------
        InputError
            Where nothing was measured in that context.
        """
        if inputs.basal is None or context not in inputs.basal.index:
            raise InputError("there is no such context", key="context", value=context)
        row = inputs.questions.loc[inputs.questions["id"].astype(str) == record.id].assign(context=context)
        # What was found for the context asked about is not what this one has.
        bare = row.drop(columns="candidate_paths", errors="ignore")
        (made,) = self._records(bare, inputs.perturbations, inputs.basal, inputs.graph)
        return replace(made, id=record.id)


class _Levels:
    """Basal levels by context and gene, with the share of genes that are lower."""

    def __init__(self, basal: pd.DataFrame | None) -> None:
        self._values: dict[str, dict[str, Level]] = {}
        if basal is None:
            return
        genes = basal.columns.astype(str)
        for context, row in zip(basal.index.astype(str), basal.to_numpy(dtype=np.float64), strict=True):
            share = np.searchsorted(np.sort(row), row, side="left") / max(len(row) - 1, 1)
            rows = zip(genes, row.tolist(), share.tolist(), strict=True)
            self._values[context] = {gene: Level(gene, value, part) for gene, value, part in rows}

    def of(self, context: str, gene: str) -> Level:
        """Return the level of a gene, or that it was not measured."""
        return self._values.get(context, {}).get(gene) or Level(gene)


def paths_of(value: Any) -> Paths:
    """Return paths read from a question, as tuples; none where the cell is empty."""
    if value is None or isinstance(value, float):
        return ()
    return tuple(tuple(Triplet(*map(str, edge)) for edge in path) for path in value)


def example_questions(training: Training, n: int) -> pd.DataFrame:
    """Return ``n`` questions of train with outcomes, as many of each outcome as can be, in an order drawn.

    The same for every preset. Where questions have reference paths, those with the shortest are preferred: they are
    read to learn the form of a reply from.
    """
    known = training.headline
    known = known.loc[known["split"] == "train"]
    if n == 0 or known.empty:
        return known.iloc[:0]
    rng = generator(training.seed, "examples")
    by_id = known.iloc[np.argsort(known["id"].to_numpy(dtype=str), kind="stable")]
    lot = rng.random(len(by_id))
    if "reference_paths" in by_id.columns:
        # The length of the reason; those without one come after all that have one.
        lot = lot + np.array([len(paths[0]) if (paths := paths_of(cell)) else 99 for cell in by_id["reference_paths"]])
    shuffled = by_id.iloc[np.argsort(lot, kind="stable")]
    turn = shuffled.groupby("outcome", observed=True).cumcount().to_numpy()
    codes = pd.Categorical(shuffled["outcome"], categories=list(OUTCOMES)).codes
    chosen = shuffled.iloc[np.lexsort((codes, turn))[:n]]
    return chosen.iloc[rng.permutation(len(chosen))].reset_index(drop=True)
