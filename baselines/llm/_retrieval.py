"""Training outcomes near a question: same or near perturbation, same or near readout gene, in SUMMER's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._random import generator
from pertbase.baselines.base import AnswerBaseline, sets_of
from pertbase.baselines.simple._common import Shares, answers, fitted
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, Answers, Inputs, Perturbation, Training, vote
from pertbase.folds._answers import outcome_codes
from pertbase.knowledge import GeneSets, membership

__all__ = ["TIERS", "MajorityOfOptions", "Retrieval", "Retrieved", "RetrievalVote"]

TIERS = (
    "same perturbation, near gene",
    "same gene, near perturbation",
    "near perturbation, near gene",
    "same perturbation, other gene",
    "same gene, other perturbation",
    "near perturbation, other gene",
    "near gene, other perturbation",
)
"""Which training outcomes are looked at, in this order; *other* is any, the same and the near among them."""

_DIGITS = 9
"""Decimals of scores. Sums in another order differ by 1e-16, and weights that were rounded to 1e-12 by 1e-13: either
parts scores that are equal, and AUROC counts each such pair for one side."""


@dataclass(frozen=True)
class Retrieved:
    """A training outcome near a question.

    Parameters
    ----------
    perturbation, gene, outcome
        What was done, read and measured.
    tier
        One of :data:`TIERS`.
    """

    perturbation: str
    gene: str
    outcome: str
    tier: str


class Retrieval:
    r"""Training outcomes by perturbation and readout gene, with which of either are near.

    A gene's profile over the N gene sets has :math:`\log(G / |S_j|)` for each set :math:`S_j` that it is in; a
    perturbation's is the sum over its targets. Near are the ``n_near`` of largest cosine above zero.

    Parameters
    ----------
    training
        Its questions that have an outcome.
    sets
        Name -> symbols.
    n_near
        Near perturbations, and near genes, at most.
    """

    def __init__(self, training: Training, sets: GeneSets, *, n_near: int = 10) -> None:
        known = training.headline
        self.genes = pd.Index(sorted(set(known["gene"].astype(str))), dtype=object)
        keys = known["context"].astype(str) + "\x1f" + known["perturbation"].astype(str)
        codes, rows = pd.factorize(keys, sort=True)
        self.contexts, self.names = (
            np.array(part, dtype=object) for part in zip(*(key.split("\x1f") for key in rows), strict=True)
        )
        self.n_near = n_near
        self._sets = _Profiles(sets)
        self._perturbations = dict(training.perturbations)
        self._profile = self._sets.of_perturbations([self._perturbations[name] for name in self.names])
        shape = (len(rows), len(self.genes))
        where = (codes, self.genes.get_indexer(known["gene"].astype(str)))
        outcome = outcome_codes(known["outcome"])
        one = np.ones(len(known))
        self.asked = [
            sparse.csr_matrix(
                (one[outcome == code], (where[0][outcome == code], where[1][outcome == code])), shape=shape
            )
            for code in range(len(OUTCOMES))
        ]
        self.near_genes = self._sets.near(
            self._sets.of_genes(self.genes), self._sets.of_genes(self.genes), n_near, other=True
        )

    def near(self, context: str, perturbation: Perturbation) -> tuple[np.ndarray, np.ndarray]:
        """Return a weight for each training condition: cosine where it is near, and 1 where it is the same.

        Conditions of the same context go first where the perturbation was seen in it at all.

        Returns
        -------
        tuple
            Near and same, each of shape (n_conditions,).
        """
        same = np.array([self._perturbations[name] == perturbation for name in self.names])
        here = self.contexts == context
        cosine = np.round(
            np.asarray(self._profile @ self._sets.of_perturbations([perturbation]).T.toarray()).ravel(), 12
        )
        cosine[same] = 0
        # A context that was trained on speaks for itself.
        if (cosine[here] > 0).any():
            cosine[~here] = 0
        order = np.lexsort((self.names.astype(str), -cosine))[: self.n_near]
        weights = np.zeros(len(cosine))
        weights[order] = np.maximum(cosine[order], 0)
        if (same & here).any():
            same = same & here
        return weights, same.astype(np.float64)

    def shares(self, near: np.ndarray, same: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for each tier the counts of outcomes of every gene, shape (n_genes, 3), for one condition.

        Where SUMMER draws at random, all stand for it: their mean is what a draw is expected to say.
        """
        of_near = np.column_stack([near @ one for one in self.asked])
        of_same = np.column_stack([same @ one for one in self.asked])
        of_all = np.column_stack([np.asarray(one.sum(axis=0)).ravel() for one in self.asked])
        yield self.near_genes @ of_same
        yield of_near
        yield self.near_genes @ of_near
        yield np.broadcast_to(of_same.sum(axis=0), of_all.shape)
        yield of_all
        yield np.broadcast_to(of_near.sum(axis=0), of_all.shape)
        yield self.near_genes @ of_all

    def examples(self, context: str, perturbation: Perturbation, gene: str, n: int, *, seed: int) -> list[Retrieved]:
        """Return ``n`` training outcomes in the order of the tiers, the nearest of each first, ties drawn."""
        near, same = self.near(context, perturbation)
        column = int(self.genes.get_indexer([gene])[0])
        close = self.near_genes[[column]].toarray().ravel() if column >= 0 else np.zeros(len(self.genes))
        itself = np.eye(len(self.genes))[column] if column >= 0 else np.zeros(len(self.genes))
        anything, any_row = 1.0 - itself, (near + same == 0).astype(np.float64)
        pairs = (
            (same, close), (near, itself), (near, close), (same, anything), (any_row, itself), (near, anything),
            (any_row, close),
        )  # fmt: skip
        rng = generator(seed, "retrieval", context, perturbation.name, gene)
        found: dict[tuple[int, int], Retrieved] = {}
        for tier, (rows, columns) in zip(TIERS, pairs, strict=True):
            for row, col, code in self._ranked(rows, columns, rng):
                if len(found) >= n:
                    return list(found.values())
                made = Retrieved(str(self.names[row]), str(self.genes[col]), OUTCOMES[code], tier)
                found.setdefault((row, col), made)
        return list(found.values())

    def _ranked(
        self, rows: np.ndarray, columns: np.ndarray, rng: np.random.Generator, most: int = 50
    ) -> Iterator[tuple[int, int, int]]:
        """Yield condition, gene and outcome of what was asked there, the largest product of weights first."""
        row_at, column_at = np.flatnonzero(rows), np.flatnonzero(columns)
        if not len(row_at) or not len(column_at):
            return
        parts = [one[row_at][:, column_at].tocoo() for one in self.asked]
        at = np.concatenate(
            [np.column_stack([part.row, part.col, np.full(part.nnz, code)]) for code, part in enumerate(parts)]
        )
        weight = rows[row_at][at[:, 0]] * columns[column_at][at[:, 1]]
        for row, column, code in at[np.lexsort((rng.random(len(at)), -weight))[:most]].astype(int).tolist():
            yield int(row_at[row]), int(column_at[column]), code


class _Profiles:
    """Unit profiles of genes and perturbations over gene sets."""

    def __init__(self, sets: GeneSets) -> None:
        self._genes = pd.Index(sorted({gene for genes in sets.values() for gene in genes}), dtype=object)
        member = membership(sets, self._genes).astype(np.float64)
        size = np.asarray(member.sum(axis=0)).ravel()
        self._member = sparse.csr_matrix(member @ sparse.diags(np.log(len(self._genes) / np.maximum(size, 1))))

    def of_genes(self, genes: Sequence[str] | pd.Index) -> sparse.csr_matrix:
        """Return the profile of each gene at length 1, or zeros."""
        rows = self._genes.get_indexer(pd.Index(genes, dtype=object))
        picked = sparse.csr_matrix(
            (np.ones((rows >= 0).sum()), (np.flatnonzero(rows >= 0), rows[rows >= 0])),
            shape=(len(rows), len(self._genes)),
        )
        return _unit(picked @ self._member)

    def of_perturbations(self, perturbations: Sequence[Perturbation]) -> sparse.csr_matrix:
        """Return the profile of each perturbation at length 1, or zeros: of what it acts on, whichever way."""
        entries = [(number, target) for number, item in enumerate(perturbations) for target in item.targets]
        targets = self._genes.get_indexer(pd.Index([target for _, target in entries], dtype=object))
        number = np.array([number for number, _ in entries], dtype=np.int64)
        held = targets >= 0
        picked = sparse.csr_matrix(
            (np.ones(held.sum()), (number[held], targets[held])), shape=(len(perturbations), len(self._genes))
        )
        return _unit(picked @ self._member)

    @staticmethod
    def near(of: sparse.csr_matrix, among: sparse.csr_matrix, n: int, *, other: bool) -> sparse.csr_matrix:
        """Return the cosine of each row to its ``n`` nearest, itself left out where ``other``."""
        rows = []
        for begin in range(0, of.shape[0], 1000):
            cosine = (of[begin : begin + 1000] @ among.T).toarray()
            if other:
                cosine[np.arange(len(cosine)), begin + np.arange(len(cosine))] = 0
            if cosine.shape[1] > n:
                # The nearest by cosine, and of equal ones those that come first by name.
                last = np.argsort(-np.round(cosine, 12), axis=1, kind="stable")[:, n:]
                np.put_along_axis(cosine, last, 0, axis=1)
            rows.append(sparse.csr_matrix(np.maximum(cosine, 0)))
        return sparse.vstack(rows, format="csr")


def _unit(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(np.divide(1, length, out=np.zeros_like(length), where=length > 0)) @ rows)


class RetrievalVote(AnswerBaseline):
    r"""What SUMMER retrieves, without the model: the training outcomes near a question vote.

    With :math:`s_{tk}` the share of outcome k in tier t of :data:`TIERS`, weighted by how near its members are, the
    scores are :math:`\sum_t s_{tk} / t` over their sum, to nine decimals; a tier without a member is left out, and the
    others keep their t. The answer is the outcome whose score is largest over its share of all training outcomes, ties
    to ``no_change``, then ``down``. In a tier's name *other* is any: the same and the near are among it.

    Parameters
    ----------
    n_near
        Near perturbations, and near genes, at most.
    gene_sets
        A name or file that says what is near, see :func:`pertbase.knowledge.gene_sets`. Not given: those the data set
        brings, else ``GO_Biological_Process_2023``.
    """

    def __init__(self, *, n_near: int = 10, gene_sets: str | None = None) -> None:
        if n_near < 1:
            raise InputError("there is at least one neighbour", key="n_near", value=n_near)
        self.n_near = n_near
        self.gene_sets = gene_sets
        self._retrieval: Retrieval | None = None
        self._frequency = np.zeros(len(OUTCOMES))

    def refuses(self, training: Training) -> str | None:
        """Refuse where there is nothing to retrieve."""
        return None if len(training.headline) else f"{training.fold} has no training outcome to retrieve"

    def fit(self, training: Training) -> RetrievalVote:
        """Keep the outcomes of train and val."""
        self._retrieval = Retrieval(training, sets_of(training, self.gene_sets), n_near=self.n_near)
        self._frequency = Shares.of(training.headline, "gene").frequency
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer with the vote of the tiers."""
        found = fitted(self._retrieval, self)
        questions = inputs.questions
        scores = np.zeros((len(questions), len(OUTCOMES)))
        column = found.genes.get_indexer(questions["gene"].astype(str))
        keys = questions[["context", "perturbation"]].astype(str)
        for (context, name), rows in keys.groupby(["context", "perturbation"]).indices.items():
            near, same = found.near(str(context), inputs.perturbations[str(name)])
            scores[rows] = self._voted(found.shares(near, same), column[rows])
        occurs = self._frequency > 0
        balanced = np.where(occurs, scores / np.where(occurs, self._frequency, 1.0), 0.0)
        # Rounded, so that what is equal by the equation is equal whatever was added first; the vote before the scores
        # are, since a rounded share over its frequency is no longer 1.
        return answers(questions, vote(np.round(balanced, _DIGITS)), np.round(scores, _DIGITS))

    def _voted(self, tiers: Iterator[np.ndarray], column: np.ndarray) -> np.ndarray:
        """Return scores of the genes at some columns, shape (n, 3); -1 is a gene that train never asks about."""
        total = np.zeros((len(column), len(OUTCOMES)))
        for number, counts in enumerate(tiers, start=1):
            # Of an unknown gene, only what is said of any gene.
            part = counts[column] if number in (4, 6) else np.where(column[:, None] >= 0, counts[column], 0.0)
            weight = part.sum(axis=1, keepdims=True)
            total += np.divide(part, weight, out=np.zeros_like(part), where=weight > 0) / number
        whole = total.sum(axis=1, keepdims=True)
        return np.where(whole > 0, np.divide(total, whole, out=np.zeros_like(total), where=whole > 0), self._frequency)


class MajorityOfOptions(AnswerBaseline):
    """The most frequent training outcome, to every question; scores are the training shares.

    What a language model is worth that always names one option.
    """

    def __init__(self) -> None:
        self._frequency: np.ndarray | None = None

    def fit(self, training: Training) -> MajorityOfOptions:
        """Count the outcomes of train and val."""
        self._frequency = Shares.of(training.headline, "gene").frequency
        return self

    def answer(self, inputs: Inputs) -> Answers:
        """Answer the most frequent outcome; a tie goes to ``no_change``, then ``down``."""
        scores = np.tile(fitted(self._frequency, self), (len(inputs.questions), 1))
        return answers(inputs.questions, vote(scores), scores)
