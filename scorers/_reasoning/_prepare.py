"""From answers and a fold's truth to numbers: whose reasons, held against what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pertbase.errors import InputError
from pertbase.folds._perturbation import Perturbation
from pertbase.knowledge._claims import Counts, Encoder, Parsed, graph_edges
from pertbase.knowledge._gene_sets import GeneSets
from pertbase.knowledge._names import GeneNames
from pertbase.knowledge._triplet_sets import Integers, TripletSets
from pertbase.knowledge._walks import Starts, restates
from pertbase.scorers._aligned import Aligned, align
from pertbase.scorers._reasoning._nulls import Graph
from pertbase.scorers._reasoning._records import Case
from pertbase.scorers._reasoning._similarity import Annotations

if TYPE_CHECKING:
    from pertbase.folds import Answers, Truth
    from pertbase.knowledge import SignedGraph

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The headline questions of a fold, with the reasons of one set of answers, as numbers.

    Parameters
    ----------
    aligned
        Answers beside the truth; n questions.
    questions
        All columns of the fold's questions, n rows.
    claims
        The reasons.
    counts
        What was set aside while they were read.
    restated
        Triplets left out that say no more than which compound was given and what it acts on, (n,).
    case
        What reasons are held against.
    graph
        Or None where there is none.
    group, context
        Codes of (perturbation, readout gene), and of the context, (n,).
    evidence
        Pieces of evidence that the graph has for the less studied of the perturbed and the readout gene, (n,); NaN
        without a graph.
    names
        What brought names to symbols.
    """

    aligned: Aligned
    questions: pd.DataFrame
    claims: TripletSets
    counts: Counts
    restated: Integers
    case: Case
    graph: Graph | None
    group: Integers
    context: Integers
    evidence: NDArray[np.float64]
    names: GeneNames


def prepare(
    answers: Answers,
    truth: Truth,
    *,
    graph: SignedGraph | None,
    gene_sets: GeneSets | None,
    names: GeneNames | None,
    shown: Mapping[str, Sequence[Sequence[Sequence[str]]] | None] | None = None,
) -> Prepared:
    """Return reasons and what they are held against, as numbers.

    ``shown`` is what the model was shown, by question, where that is known.

    Raises
    ------
    InputError
        Where the fold has no reference paths or does not say what its perturbations do, or an answer is not asked.
    """
    aligned = align(answers, truth)
    questions = _headline(truth, aligned)
    perturbations = _perturbations(truth, questions)
    parsed = {
        "triplets": Parsed.of(_claimed(answers, questions["id"].to_numpy(dtype=object)), "triplets"),
        "reference_paths": Parsed.of(questions["reference_paths"].tolist(), "reference_paths"),
    }
    if "candidate_paths" in questions.columns:
        parsed["candidate_paths"] = Parsed.of(questions["candidate_paths"].tolist(), "candidate_paths")
    if shown is not None:
        parsed["shown"] = Parsed.of([shown.get(name) or () for name in questions["id"]], "shown")
    encoder = Encoder((names or GeneNames()).knowing(_known(parsed, questions, perturbations, graph, gene_sets)))
    flats = {name: encoder.flat(item) for name, item in parsed.items()}
    # Every name is met before sets are made: their numbers depend on how many nodes there are.
    rows = _start_rows(questions, perturbations, encoder)
    readout = encoder.nodes(questions["gene"])
    given = _compounds(questions, perturbations, encoder)
    numbered = None if graph is None else (*graph_edges(graph, encoder), graph.edges["evidence"].to_numpy())
    n_nodes = encoder.n_nodes
    starts = Starts(*rows, readout)
    net = None if numbered is None else Graph(n_nodes, *(side.astype(np.int64) for side in numbered))
    claims, counts = flats["triplets"].claims(n_nodes, encoder.resolved)
    kept = ~restates(claims, given, starts)
    candidates = flats.get("candidate_paths")
    keys = questions["perturbation"].astype(str) + "\x1f" + questions["gene"].astype(str)
    return Prepared(
        aligned=aligned,
        questions=questions,
        claims=claims.select(kept),
        counts=counts,
        restated=np.bincount(claims.record[~kept], minlength=claims.n),
        case=Case(
            references=flats["reference_paths"].paths(n_nodes),
            given=None if candidates is None else candidates.paths(n_nodes),
            starts=starts,
            edges=None if net is None else net.edges,
            annotations=None if gene_sets is None else Annotations.of(gene_sets, encoder),
            shown=None if shown is None else flats["shown"].paths(n_nodes),
        ),
        graph=net,
        group=pd.factorize(keys, sort=True)[0].astype(np.int64),
        context=pd.factorize(questions["context"], sort=True)[0].astype(np.int64),
        evidence=_evidence(net, starts),
        names=encoder.names,
    )


def _headline(truth: Truth, aligned: Aligned) -> pd.DataFrame:
    if "reference_paths" not in truth.questions.columns:
        raise InputError(
            f"the questions of fold {truth.name!r} have no reference paths to hold a reason against",
            key="reference_paths",
            remedy="make the fold with paths, or use a data set that ships them",
        )
    # The ambiguous are left out by align; its order is the truth's.
    rows = pd.Index(truth.questions["id"]).get_indexer(aligned.questions["id"])
    return truth.questions.iloc[rows].reset_index(drop=True)


def _perturbations(truth: Truth, questions: pd.DataFrame) -> Mapping[str, Perturbation]:
    known = truth.perturbations or {}
    missing = sorted(set(questions["perturbation"]) - set(known))
    if missing:
        raise InputError(
            f"the truth of fold {truth.name!r} does not say what is perturbed, where a reason has to start",
            key="perturbation",
            value=missing[0],
            remedy="read it with read_truth or fold.truth",
        )
    return known


def _claimed(answers: Answers, ids: np.ndarray) -> list[Any]:
    """Return, for each question, a list with one path: all triplets of its reason; none where there is none."""
    if answers.reasons is None:
        return [() for _ in ids]
    rows = pd.Index(answers.reasons["id"]).get_indexer(ids)
    triplets = answers.reasons["triplets"].tolist()
    return [(triplets[row],) if row >= 0 else () for row in rows]


def _known(
    parsed: Mapping[str, Parsed],
    questions: pd.DataFrame,
    perturbations: Mapping[str, Perturbation],
    graph: SignedGraph | None,
    gene_sets: GeneSets | None,
) -> set[str]:
    """Return what the graph, the screen, the gene sets and the prompt call things."""
    known = set(questions["gene"]).union(*(item.names for key, item in parsed.items() if key != "triplets"))
    known.update(gene for genes in (gene_sets or {}).values() for gene in genes)
    for name in set(questions["perturbation"]):
        known.update(perturbations[name].targets)
    if graph is not None:
        known.update(graph.edges["source"], graph.edges["target"])
    return known


def _start_rows(
    questions: pd.DataFrame, perturbations: Mapping[str, Perturbation], encoder: Encoder
) -> tuple[Integers, Integers, Integers]:
    """Return one row a (question, target): question, node and sign."""
    codes, found = pd.factorize(questions["perturbation"])
    signs = [perturbations[name].signs for name in found]
    per_name = [[(node, sign) for gene, sign in one.items() for node in encoder.members(gene)] for one in signs]
    return _repeated(codes, per_name)


def _repeated(codes: np.ndarray, rows: Sequence[Sequence[tuple[int, int]]]) -> tuple[Integers, Integers, Integers]:
    record = np.repeat(np.arange(len(codes)), [len(rows[code]) for code in codes])
    flat = np.array([row for code in codes for row in rows[code]], dtype=np.int64).reshape(-1, 2)
    return record, flat[:, 0], flat[:, 1]


def _compounds(
    questions: pd.DataFrame, perturbations: Mapping[str, Perturbation], encoder: Encoder
) -> tuple[Integers, Integers]:
    """Return one row a (question, compound): question and node."""
    codes, found = pd.factorize(questions["perturbation"])
    rows = [[(encoder.members(name)[0], 0) for name in perturbations[key].compounds] for key in found]
    record, node, _ = _repeated(codes, rows)
    return record, node


def _evidence(graph: Graph | None, starts: Starts) -> NDArray[np.float64]:
    n = len(starts.readout)
    if graph is None:
        return np.full(n, np.nan)
    weight = graph.evidence.astype(np.float64)
    of_node = np.bincount(graph.head, weight, graph.n_nodes) + np.bincount(graph.tail, weight, graph.n_nodes)
    best = np.zeros(n)
    np.maximum.at(best, starts.record, of_node[starts.node])
    return np.asarray(np.minimum(best, of_node[starts.readout]))
