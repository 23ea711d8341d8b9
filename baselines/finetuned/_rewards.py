r"""Rewards of replies: the outcome, the reason and the form, each from 0 to 1.

With :math:`P` the distinct triplets of a reply, as scorers count them (names brought to symbols, self-loops and what
only restates the question left out), and :math:`R` those of all reference paths, the share of the reason is

.. math::

    F_1 = \frac{2 |P \cap R|}{|P| + |R|}

signed. :math:`P \cap R` holds what lies on a claimed way from a target to the readout gene, or is of one reference
where that is more, and nothing that is claimed backwards as well, unless the references have both. The share is 0
where one of these holds, each of which is a way to have a high :math:`F_1` without a reason:

- there are more than ``most_triplets`` of them;
- less than ``grounded`` of them are borne out by the graph, by the paths that were shown or by the references,
  whichever bears out most;
- one pair is claimed with two signs;
- they lead to the readout gene with several signs, and the references do not lead there with all of them;
- there is no answer.

A question without a reference has no such share, and nothing is earned by it there: were the others to count for more
instead, an answer that needs no reason would pay more than one that does. The reward is the weighted sum of the shares
there are, over the sum of all weights: the same whatever the order of triplets, and however often one is repeated.

What a reply says is read by the parser of language models, and names, :math:`F_1` and grounding are those of scorers:
training, reward and evaluation cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pertbase.baselines.llm import Parsed, Record
from pertbase.baselines.llm._record import Paths, paths_of
from pertbase.errors import InputError, unknown_name
from pertbase.folds import Training
from pertbase.knowledge import _claims as claims_of
from pertbase.knowledge._overlap import EdgeSigns, grounded_in_graph, grounded_in_prompt
from pertbase.knowledge._triplet_sets import Integers, PathSets, TripletSets, contained, pack
from pertbase.knowledge._walks import LOWERED, RAISED, UNSAID, Starts, reach, restates

if TYPE_CHECKING:
    from pertbase.knowledge import GeneNames, SignedGraph

__all__ = [
    "SHARES",
    "Asked",
    "Reasons",
    "Reward",
    "RewardSettings",
    "Rewards",
    "asked_of",
    "format_share",
    "outcome_share",
    "triplet_shares",
]

Floats = NDArray[np.float64]

SHARES = ("outcome", "triplets", "format")
"""What a reward is made of."""

_ONE_WAY = np.array([0, RAISED, LOWERED, UNSAID], dtype=np.uint8)
"""Signs with which any reason may reach the readout gene: one, or it does not get there."""


@dataclass(frozen=True, kw_only=True)
class RewardSettings:
    """What a reply is rewarded for.

    Parameters
    ----------
    outcome
        Weight of the share for the right outcome.
    triplets
        Weight of the share for the reason: how far its triplets are those of the reference paths.
    format
        Weight of the share for the form of the reply.
    most_triplets
        Distinct triplets of a reason at most; with more of them, its share is 0.
    grounded
        Least share of its triplets that something bears out; see the module.
    names
        A table of gene names, see :func:`pertbase.knowledge.gene_names`. Without one, what the graph, the questions and
        their paths name is known, by the spelling it has there.
    """

    outcome: float = 1.0
    triplets: float = 1.0
    format: float = 0.1
    most_triplets: int = 12
    grounded: float = 0.5
    names: str | None = None

    def __post_init__(self) -> None:
        for name in SHARES:
            if not (isinstance(self.weights[name], (int, float)) and 0 <= self.weights[name] < np.inf):
                raise InputError("a weight is not negative", key=f"rewards.{name}", value=self.weights[name])
        if not any(self.weights.values()):
            raise InputError("nothing is rewarded", key="rewards", remedy="give a share a weight above 0")
        if not 0 <= self.grounded <= 1:
            raise InputError(
                "is a share", key="rewards.grounded", value=self.grounded, remedy="give a number from 0 to 1"
            )
        if self.most_triplets < 1:
            raise InputError("is a positive number", key="rewards.most_triplets", value=self.most_triplets)

    @property
    def weights(self) -> dict[str, float]:
        """Share -> weight."""
        return {name: getattr(self, name) for name in SHARES}

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None) -> RewardSettings:
        """Return the settings of a configuration.

        Raises
        ------
        InputError
            Where a key is unknown or a value cannot be.
        """
        known = {item.name for item in fields(cls)}
        for key in config or {}:
            if key not in known:
                raise unknown_name("reward", str(key), known)
        return cls(**(config or {}))


@dataclass(frozen=True)
class Asked:
    """What replies to one training question are held against.

    Parameters
    ----------
    outcome
        What was measured.
    gene
        The readout gene.
    targets
        (gene, sign) of every target.
    references
        Reference paths; none where the outcome has none.
    given
        The paths that were shown; None where none were.
    compounds
        What was given, of drugs and ligands.
    """

    outcome: str
    gene: str
    targets: tuple[tuple[str, int], ...]
    references: Paths = ()
    given: Paths | None = None
    compounds: tuple[str, ...] = ()


def asked_of(training: Training, records: Sequence[Record], outcomes: Sequence[str]) -> dict[str, Asked]:
    """Return what replies to each question are held against, by the question's id."""
    rows = training.questions.set_index("id")
    references = rows["reference_paths"] if "reference_paths" in rows.columns else None
    return {
        record.id: Asked(
            outcome=outcome,
            gene=record.gene,
            targets=record.targets,
            references=() if references is None else paths_of(references[record.id]),
            given=record.paths,
            compounds=training.perturbations[str(rows["perturbation"][record.id])].compounds,
        )
        for record, outcome in zip(records, outcomes, strict=True)
    }


@dataclass(frozen=True)
class Reward:
    """What one reply is rewarded with.

    Parameters
    ----------
    outcome, format
        From 0 to 1.
    triplets
        From 0 to 1; None where the question has no reference.
    total
        Their weighted sum over the sum of all weights, from 0 to 1; None where none of the shares that count is there.
    """

    outcome: float
    triplets: float | None
    format: float
    total: float | None


def outcome_share(reply: Parsed, outcome: str) -> float:
    """Return 1 for the outcome that was measured, else 0; several answers, or none, are no outcome."""
    return float(reply.outcome == outcome)


def format_share(reply: Parsed) -> float:
    """Return 1 for a reply that is the JSON asked for and nothing else, every triplet of three names, else 0."""
    return float(reply.outcome is not None and reply.rung == "json" and not reply.dropped)


@dataclass(frozen=True, eq=False)
class Reasons:
    """The reasons of replies, one a reply, and what they are held against.

    Parameters
    ----------
    claims
        Their triplets, without what only restates the question.
    references, given
        Paths.
    starts
        What is perturbed and asked about.
    edges
        Of the graph, where there is one.
    """

    claims: TripletSets
    references: PathSets
    given: PathSets
    starts: Starts
    edges: EdgeSigns | None

    @property
    def grounded(self) -> Floats:
        """Share of each reason that graph, shown paths or references bear out, whichever most; 0 for an empty one."""
        borne = [grounded_in_prompt(self.claims, shown) for shown in (self.given, self.references)]
        borne += [] if self.edges is None else [grounded_in_graph(self.claims, self.edges)]
        return np.asarray(np.nan_to_num(np.stack(borne)).max(axis=0))


def triplet_shares(reasons: Reasons, answered: NDArray[np.bool_], *, most_triplets: int, grounded: float) -> Floats:
    """Return the share of each reason, (n,), NaN where a question has no reference; see the module.

    Parameters
    ----------
    reasons
        Of the replies.
    answered
        Whether each reply has an answer.
    most_triplets, grounded
        See :class:`RewardSettings`.
    """
    claims, union = reasons.claims, reasons.references.union
    led = reach(claims, reasons.starts)
    share = _f1_of_what_counts(claims, reasons.references, led.on_path)
    signs, due = led.signs, reach(union, reasons.starts).signs
    refused = (
        (claims.sizes > most_triplets)
        | (reasons.grounded < grounded)
        | (claims.sizes > claims.pair_sizes)
        | (~np.isin(signs, _ONE_WAY) & ((signs & ~due) > 0))
        | ~answered
    )
    return np.where(refused & ~np.isnan(share), 0.0, share)


def _f1_of_what_counts(claims: TripletSets, references: PathSets, on_path: NDArray[np.bool_]) -> Floats:
    """Return the F1 of each reason, (n,), NaN without a reference; ``on_path`` is of each claim."""
    union, paths = references.union, references.sets
    # Every pair in both directions would be right wherever the references go, and says nothing of direction.
    backwards = pack(pack(claims.record, claims.tail, claims.n_nodes), claims.head, claims.n_nodes)
    undirected = contained(backwards, claims.pairs) & ~contained(backwards, union.pairs)
    right = contained(claims.signed, union.signed) & ~undirected
    walked = np.bincount(claims.record[right & on_path], minlength=claims.n)
    record = references.record[paths.record]
    keys = TripletSets(claims.n, claims.n_nodes, record, paths.head, paths.tail, paths.sign).signed
    of_path = np.bincount(paths.record[contained(keys, claims.signed[right])], minlength=paths.n)
    of_one = np.zeros(claims.n, dtype=np.int64)
    np.maximum.at(of_one, references.record, of_path)
    share = 2 * np.maximum(walked, of_one) / np.maximum(claims.sizes + union.sizes, 1)
    return np.where(union.sizes == 0, np.nan, share)


class Rewards:
    """Rewards replies to the questions of a training.

    Parameters
    ----------
    asked
        Question id -> what its replies are held against.
    settings
        What is rewarded.
    graph
        Bears triplets out; None where there is none.
    names
        Bring names to symbols.
    """

    def __init__(
        self,
        asked: Mapping[str, Asked],
        settings: RewardSettings,
        *,
        graph: SignedGraph | None = None,
        names: GeneNames | None = None,
    ) -> None:
        from pertbase.knowledge import GeneNames

        self.settings = settings
        self._asked = dict(asked)
        self._encoder = claims_of.Encoder((names or GeneNames()).knowing(_known(self._asked.values(), graph)))
        self._graph = None if graph is None else claims_of.graph_edges(graph, self._encoder)
        self._edges: tuple[int, EdgeSigns] | None = None

    def __call__(self, ids: Sequence[str], replies: Sequence[Parsed]) -> list[Reward]:
        """Return the reward of each reply, to the question of the same place."""
        asked = [self._asked[id_] for id_ in ids]
        shares = self._triplets(asked, replies)
        return [
            self._reward(outcome_share(reply, one.outcome), None if np.isnan(share) else float(share), reply)
            for one, reply, share in zip(asked, replies, shares, strict=True)
        ]

    def _reward(self, outcome: float, triplets: float | None, reply: Parsed) -> Reward:
        form = format_share(reply)
        shares = zip(SHARES, (outcome, triplets, form), strict=True)
        counted = [(self.settings.weights[name], share) for name, share in shares if share is not None]
        earned = sum(weight * share for weight, share in counted)
        there = any(weight for weight, _ in counted)
        total = earned / sum(self.settings.weights.values()) if there else None
        return Reward(outcome, triplets, form, total)

    def _triplets(self, asked: Sequence[Asked], replies: Sequence[Parsed]) -> Floats:
        answered = np.array([reply.outcome is not None for reply in replies], dtype=bool)
        return triplet_shares(
            self.reasons(asked, replies),
            answered,
            most_triplets=self.settings.most_triplets,
            grounded=self.settings.grounded,
        )

    def reasons(self, asked: Sequence[Asked], replies: Sequence[Parsed]) -> Reasons:
        """Return the reasons of replies, and what they are held against, as sets of numbers."""
        encoder = self._encoder
        columns: dict[str, list[Any]] = {
            "triplets": [(reply.triplets,) if reply.triplets else () for reply in replies],
            "references": [one.references for one in asked],
            "given": [one.given or () for one in asked],
        }
        flats = {name: encoder.flat(claims_of.Parsed.of(column, name)) for name, column in columns.items()}
        starts = Starts(
            *_rows([[(node, sign) for gene, sign in one.targets for node in encoder.members(gene)] for one in asked]),
            encoder.nodes(one.gene for one in asked),
        )
        record, compound, _ = _rows([[(encoder.members(name)[0], 0) for name in one.compounds] for one in asked])
        # Every name is met before sets are made: their numbers depend on how many nodes there are.
        n_nodes = encoder.n_nodes
        claims, _ = flats["triplets"].claims(n_nodes, encoder.resolved)
        return Reasons(
            claims.select(~restates(claims, (record, compound), starts)),
            flats["references"].paths(n_nodes),
            flats["given"].paths(n_nodes),
            starts,
            self._edge_signs(n_nodes),
        )

    def _edge_signs(self, n_nodes: int) -> EdgeSigns | None:
        """Return the graph's edges as numbers; they are made again when replies have named something new."""
        if self._graph is None:
            return None
        if self._edges is None or self._edges[0] != n_nodes:
            head, tail, sign = self._graph
            self._edges = n_nodes, EdgeSigns(head * n_nodes + tail, sign)
        return self._edges[1]


def _known(asked: Any, graph: SignedGraph | None) -> set[str]:
    """Return what the graph, the questions and their paths call things."""
    known = set() if graph is None else {*graph.edges["source"], *graph.edges["target"]}
    for one in asked:
        known |= {one.gene, *(gene for gene, _ in one.targets)}
        known |= {
            name for path in (*one.references, *(one.given or ())) for item in path for name in (item[0], item[2])
        }
    return known


def _rows(rows: Sequence[Sequence[tuple[int, int]]]) -> tuple[Integers, Integers, Integers]:
    """Return one row a (question, member): question, node and sign."""
    record = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    flat = np.array([pair for row in rows for pair in row], dtype=np.int64).reshape(-1, 2)
    return record, flat[:, 0], flat[:, 1]
