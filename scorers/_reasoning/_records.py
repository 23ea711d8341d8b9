"""Every score of a reason, one number a question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pertbase.errors import unknown_name
from pertbase.folds._answers import OUTCOMES
from pertbase.knowledge._claims import Encoder, Parsed, graph_edges
from pertbase.knowledge._gene_sets import GeneSets
from pertbase.knowledge._names import GeneNames
from pertbase.knowledge._overlap import OVERLAP, EdgeSigns, grounded_in_graph, grounded_in_prompt, overlap
from pertbase.knowledge._triplet_sets import Integers, PathSets, TripletSets
from pertbase.knowledge._walks import BOTH, LOWERED, RAISED, Starts, reach
from pertbase.scorers._reasoning._similarity import SIMILARITY, Annotations, intermediates, similarity

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["REASON_SCORES", "Case", "against", "agrees", "reason_scores", "score"]

Floats = NDArray[np.float64]

REASON_SCORES = (
    *OVERLAP,
    "connected",
    "on_path",
    "consistent",
    "consistent_any",
    "grounded_graph",
    "grounded_prompt",
    *SIMILARITY,
)
"""Every score, in the order of tables; the signed ``f1`` is the primary one. No one alone is safe against gaming."""


@dataclass(frozen=True, eq=False)
class Case:
    """What reasons for n questions are held against.

    Parameters
    ----------
    references
        The reference paths.
    given
        The candidate paths, or None where there are none.
    starts
        What each question perturbs and asks about.
    edges
        Of the graph, or None where there is no graph.
    annotations
        Which node is in which gene set, or None where there are no gene sets.
    shown
        The paths that the model was shown, where that is known; else it was shown the candidates.
    """

    references: PathSets
    given: PathSets | None
    starts: Starts
    edges: EdgeSigns | None = None
    annotations: Annotations | None = None
    shown: PathSets | None = None

    @property
    def prompt(self) -> PathSets | None:
        """The paths that a reason could be taken from."""
        return self.given if self.shown is None else self.shown

    def at(self, rows: Integers) -> Case:
        """Return the case of some questions."""
        return replace(
            self,
            references=self.references.at(rows),
            given=None if self.given is None else self.given.at(rows),
            shown=None if self.shown is None else self.shown.at(rows),
            starts=self.starts.at(rows),
        )


def against(claims: TripletSets, references: PathSets, case: Case) -> dict[str, Floats]:
    """Return the scores that hold reasons against references, which need not be the case's own."""
    found = overlap(claims, references)
    if case.annotations is not None:
        claimed, referred = (intermediates(one, case.starts) for one in (claims, references.union))
        found |= similarity(claimed, referred, case.annotations).scores
    return found


def score(claims: TripletSets, answered: Integers, case: Case) -> dict[str, Floats]:
    """Return :data:`REASON_SCORES`, each (n,), NaN where one is not defined for a question.

    Parameters
    ----------
    claims
        The reasons.
    answered
        Outcome codes 0, 1, 2 of the answers they were given for; 3 where there was none.
    case
        What they are held against.
    """
    found = against(claims, case.references, case)
    led = reach(claims, case.starts)
    begun, signed = case.starts.known, case.starts.signed
    found["connected"] = np.where(begun, led.signs > 0, np.nan)
    on_path = np.bincount(claims.record[led.on_path], minlength=claims.n) / np.maximum(claims.sizes, 1)
    found["on_path"] = np.where(begun, on_path, np.nan)
    for name, strict in (("consistent", True), ("consistent_any", False)):
        found[name] = np.where(signed, agrees(led.signs, answered, strict=strict), np.nan)
    if case.edges is not None:
        found["grounded_graph"] = grounded_in_graph(claims, case.edges)
    if case.prompt is not None:
        found["grounded_prompt"] = grounded_in_prompt(claims, case.prompt)
    nothing = np.full(claims.n, np.nan)
    return {name: found.get(name, nothing) for name in REASON_SCORES}


def agrees(signs: NDArray[np.uint8], answered: Integers, *, strict: bool) -> NDArray[np.bool_]:
    """Return whether the signs with which a readout gene is reached are those of the answer, (n,).

    ``up`` and ``down``: exactly that sign is reached (``strict``), or that one among others. ``no_change``: nothing is
    reached, or both signs, which oppose each other. An answer without an outcome agrees with nothing.
    """
    wanted = np.array([RAISED, LOWERED, BOTH, 0], dtype=np.uint8)[answered]
    met = (signs == wanted) if strict else (signs & wanted) == wanted
    return np.asarray(((answered < 3) & met) | ((answered == 2) & (signs == 0)))


def reason_scores(
    claimed: Iterable[Sequence[str]],
    references: Iterable[Iterable[Sequence[str]]],
    *,
    start: Mapping[str, int],
    readout: str,
    outcome: str | None,
    given: Iterable[Iterable[Sequence[str]]] | None = None,
    graph: SignedGraph | None = None,
    gene_sets: GeneSets | None = None,
    names: GeneNames | None = None,
) -> dict[str, float]:
    """Return the scores of one reason.

    Parameters
    ----------
    claimed
        Triplets (head, relation, tail).
    references
        Reference paths, each a list of triplets.
    start
        Target -> sign of what was done to it: -1 lowered, +1 raised, 0 unknown.
    readout
        The readout gene.
    outcome
        What was answered.
    given
        The paths that the answer was shown, if any.
    graph, gene_sets
        For grounding, and for similarity by gene sets; NaN without them.
    names
        Bring names to symbols; without them, only what is named here is known, by the spelling that it has here.

    Returns
    -------
    Score -> value, :data:`REASON_SCORES`; NaN where a score is not defined.

    Examples
    --------
    >>> path = [("A", "inhibits", "B"), ("B", "activates", "C")]
    >>> reason_scores(path, [path], start={"A": -1}, readout="C", outcome="up")["f1"]
    1.0
    """
    if outcome is not None and outcome not in OUTCOMES:
        raise unknown_name("outcome", outcome, OUTCOMES)
    texts = [[[list(item) for item in path] for path in paths] for paths in ([claimed], references, given or ())]
    parsed = [Parsed.of([paths], key) for paths, key in zip(texts, ("claimed", "references", "given"), strict=True)]
    known = {*start, readout}.union(*(item.names for item in parsed[1:]))
    edges = None if graph is None else graph.edges
    if edges is not None:
        known |= {*edges["source"], *edges["target"]}
    known.update(gene for genes in (gene_sets or {}).values() for gene in genes)
    encoder = Encoder((names or GeneNames()).knowing(known))
    flats = [encoder.flat(item) for item in parsed]
    targets, end = encoder.nodes(start), encoder.nodes([readout])
    numbered = None if graph is None else graph_edges(graph, encoder)
    n_nodes = encoder.n_nodes
    signs = np.array(list(start.values()), dtype=np.int64)
    case = Case(
        references=flats[1].paths(n_nodes),
        given=None if given is None else flats[2].paths(n_nodes),
        starts=Starts(np.zeros(len(targets), dtype=np.int64), targets, signs, end),
        edges=None if numbered is None else EdgeSigns(numbered[0] * n_nodes + numbered[1], numbered[2]),
        annotations=None if gene_sets is None else Annotations.of(gene_sets, encoder),
    )
    claims, _ = flats[0].claims(n_nodes, encoder.resolved)
    answered = np.array([3 if outcome is None else OUTCOMES.index(outcome)])
    return {name: float(values[0]) for name, values in score(claims, answered, case).items()}
