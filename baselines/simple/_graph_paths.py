"""Answers read off a signed graph: what its paths say, or merely that there are some."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase.baselines.base import AnswerBaseline
from pertbase.baselines.simple._common import Shares, answers, fitted
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, Answers, Inputs, Perturbation, Training, vote

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["HubDegree", "PathVote", "Reachability"]

_UNSAID = 1.0
"""Weight of ``no_change`` beside the votes: that of one path that nothing takes away from."""


class _OnGraph(AnswerBaseline):
    """A baseline that needs a graph: the named one, else that of the fold's paths, else the data set's own."""

    speaks_of = "questions whose targets and readout gene are in the graph"
    graph: Any

    def __init__(self) -> None:
        self._graph: SignedGraph | None = None
        self._named: SignedGraph | None = None

    def refuses(self, training: Training) -> str | None:
        """Refuse where there is no graph, or it has no target of any training perturbation."""
        graph = self._graph_for(training)
        if graph is None:
            return f"{training.data} brings no graph; take one with paths=human, or name it with baseline.graph="
        targets = sorted({gene for item in training.perturbations.values() for gene in item.targets})
        if (graph.locate(targets) >= 0).any():
            return None
        return (
            f"the graph {graph.name} has no target of any training perturbation (for example {(*targets, 'none')[0]})"
        )

    def _graph_for(self, training: Training) -> SignedGraph | None:
        if self.graph is None:
            return training.graph
        if self._named is None:
            from pertbase.knowledge import signed_graph

            # Read once: copies that are fitted without a group share it.
            self._named = signed_graph(self.graph)
        return self._named

    def _keep_graph(self, training: Training) -> SignedGraph:
        self._graph = self._graph_for(training)
        if self._graph is None:
            raise InputError("there is no graph", key="graph", value=None, remedy="name one, or a file of edges")
        return self._graph


class PathVote(_OnGraph):
    r"""The sign that the candidate paths of a question vote for.

    With U and D the summed weights of its k cheapest signed paths of at most ``hops`` edges that say up and down (see
    :class:`pertbase.knowledge.PathFinder`), the answer is ``up`` where U > D, ``down`` where D > U and ``no_change``
    else. Paths of unknown sign do not vote. Scores are U, D and 1 over their sum. A question whose targets or readout
    gene the graph does not have is ``unsupported``.

    Nothing is fitted. Where most pairs are reached, as over three hops of a large graph, the answers as they are call
    nearly everything, and the calibrated row is the one to look at.

    Parameters
    ----------
    graph
        A name, file or list of them, see :func:`pertbase.knowledge.signed_graph`. Not given: that of the
        fold's paths, else the data set's own.
    hops, k, weight
        See :class:`pertbase.knowledge.PathFinder`.
    gate
        ``expressed`` weighs edges by the basal expression of their ends, ``none`` does not.
    """

    def __init__(
        self, *, graph: Any = None, hops: int = 3, k: int = 5, weight: str = "evidence", gate: str = "expressed"
    ) -> None:
        super().__init__()
        if gate not in ("expressed", "none"):
            raise InputError("votes are gated by expression, or not at all", key="gate", value=gate)
        self.graph = graph
        self.hops = hops
        self.k = k
        self.weight = weight
        self.gate = gate

    def fit(self, training: Training) -> PathVote:
        """Keep the graph."""
        self._keep_graph(training)
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer with the sign of more weight."""
        from pertbase.knowledge._candidates import find_candidates
        from pertbase.knowledge._gates import EXPRESSED

        graph = fitted(self._graph, self)
        questions = inputs.questions
        found = find_candidates(
            questions,
            inputs.perturbations,
            graph,
            hops=self.hops,
            k=self.k,
            weight=self.weight,
            gate=EXPRESSED if self.gate == "expressed" else None,
            basal=inputs.basal,
        )
        up, down = found.vote(1), found.vote(-1)
        codes = np.select([up > down, down > up], [0, 1], OUTCOMES.index("no_change"))
        weights = np.column_stack([up, down, np.full(len(up), _UNSAID)])
        scores = weights / weights.sum(axis=1, keepdims=True)
        held = {name: (graph.locate(item.targets) >= 0).any() for name, item in inputs.perturbations.items()}
        named = np.array([held[name] for name in questions["perturbation"].astype(str)], dtype=bool)
        supported = named & (graph.locate(questions["gene"]) >= 0)
        return answers(questions, codes, scores, supported=supported)


class _Counted(_OnGraph):
    """Answers each question by what became of training questions of its kind, as :class:`GenePrior` does by gene."""

    def __init__(self) -> None:
        super().__init__()
        self._shares: Shares | None = None

    def fit(self, training: Training) -> _Counted:
        """Count the outcomes of each kind of question over train and val."""
        graph = self._keep_graph(training)
        known = training.headline
        self._shares = Shares.of(known.assign(kind=self._kinds(known, training.perturbations, graph)), "kind")
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer with the outcome most frequent among its kind, divided by how frequent it is among all."""
        shares, graph = fitted(self._shares, self), fitted(self._graph, self)
        counts = shares.at(self._kinds(inputs.questions, inputs.perturbations, graph))
        frequency = shares.frequency
        occurs = frequency > 0
        weighted = counts / np.where(occurs, frequency, 1.0)
        scores = weighted + occurs
        total = scores.sum(axis=1, keepdims=True)
        scores = np.where(total > 0, scores / np.where(total > 0, total, 1.0), 1 / len(OUTCOMES))
        return answers(inputs.questions, vote(weighted), scores)

    @abstractmethod
    def _kinds(
        self, questions: pd.DataFrame, perturbations: Mapping[str, Perturbation], graph: SignedGraph
    ) -> pd.Series:
        """Return the kind of each question, a text."""


class Reachability(_Counted):
    r"""A control row: whether the graph leads from a target to the readout gene at all, and over how few edges.

    With :math:`n_{dk}` training questions at distance d (edges of the shortest directed path from any target, whatever
    its signs; none within ``hops`` is a distance too) and outcome k, and :math:`p_k` the share of k, the answer is
    :math:`\arg\max_k n_{dk} / p_k`, ties to ``no_change``, then ``down``. On Papalexi .66 of down, .45 of up and .26 of
    unchanged pairs are reached within four edges: that a path exists separates outcomes, without any reasoning.

    Parameters
    ----------
    graph
        A name, file or list of them, see :func:`pertbase.knowledge.signed_graph`. Not given: that of the
        fold's paths, else the data set's own.
    hops
        Up to which distances are told apart, 1 to 4.
    """

    def __init__(self, *, graph: Any = None, hops: int = 4) -> None:
        super().__init__()
        self.graph = graph
        self.hops = hops

    def _kinds(
        self, questions: pd.DataFrame, perturbations: Mapping[str, Perturbation], graph: SignedGraph
    ) -> pd.Series:
        from pertbase.knowledge._candidates import find_candidates

        found = find_candidates(questions, perturbations, graph, hops=self.hops, k=1, weight="equal")
        distance = np.zeros(len(questions), dtype=np.int64)
        distance[found.question] = found.hops
        return pd.Series(distance, index=questions.index).astype(str)


class HubDegree(_Counted):
    """A control row: how many edges the targets send out and the readout gene takes in, and nothing of paths.

    Both numbers are told apart by powers of two; of several targets, the one with most edges counts. Well-studied genes
    have many edges and are also those that screens choose to perturb. Answers are those of :class:`Reachability`, with
    the pair of numbers in place of the distance; a pair never seen in training is answered ``no_change``.

    Parameters
    ----------
    graph
        A name, file or list of them, see :func:`pertbase.knowledge.signed_graph`. Not given: that of the
        fold's paths, else the data set's own.
    """

    def __init__(self, *, graph: Any = None) -> None:
        super().__init__()
        self.graph = graph

    def _kinds(
        self, questions: pd.DataFrame, perturbations: Mapping[str, Perturbation], graph: SignedGraph
    ) -> pd.Series:
        leaving, arriving = (np.append(graph.degrees[side].to_numpy(), 0) for side in ("out", "in"))
        sent = {name: int(max(leaving[graph.locate(item.targets)], default=0)) for name, item in perturbations.items()}
        taken = arriving[graph.locate(questions["gene"])]
        out = np.array([sent[name] for name in questions["perturbation"].astype(str)], dtype=np.int64)
        kinds = [f"{a.bit_length()}|{b.bit_length()}" for a, b in zip(out.tolist(), taken.tolist(), strict=True)]
        return pd.Series(kinds, index=questions.index, dtype=object)
