"""The effects of the training perturbations whose targets do the same things."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase.baselines.base import ExpressionBaseline, sets_of
from pertbase.baselines.simple._common import Measured, fitted, measured, predicted
from pertbase.errors import InputError
from pertbase.folds import Effects, Inputs, Perturbation, Training
from pertbase.knowledge import GeneSets, membership

__all__ = ["KnnGO"]

_DIGITS = 12
"""Similarities that agree in so many digits are a tie: the last ones depend on the order of addition."""


class KnnGO(ExpressionBaseline):
    r"""The mean effect of the training perturbations nearest by the gene sets of their targets.

    A perturbation's profile over the N gene sets is :math:`f = \sum_t s_t m_t`, over its targets :math:`t` with sign
    :math:`s_t` (unknown: -1), where :math:`m_{tj} = \log(G / |S_j|)` if :math:`t` is in the set :math:`S_j` and 0
    otherwise, and :math:`G` counts the genes in any set: to share a small set says more than to share a large one.
    With :math:`c_q` the cosine of the profiles of the asked perturbation and a training perturbation :math:`q`, the
    prediction is :math:`\sum_q c_q e_q / \sum_q |c_q|` over the k perturbations of largest :math:`c_q > 0` (ties by
    name). Where there is none, it is over those of smallest :math:`c_q < 0`: the opposite was done, as in raising a
    target that is usually lowered, and the effect is turned.

    :math:`e_q` is measured in the same context, else its unweighted mean over the contexts it was measured in.
    Perturbations whose targets are in no set take no part, and are ``unsupported`` when asked, as are those that
    share no set with any training perturbation.

    Parameters
    ----------
    n_neighbours
        k; fewer where fewer share a set.
    gene_sets
        A name or file, see :func:`pertbase.knowledge.gene_sets`. Not given: those the data set brings, else
        ``GO_Biological_Process_2023``.
    """

    needs_cells = False
    speaks_of = "perturbations with a target that shares a gene set with one perturbed in training"

    def __init__(self, *, n_neighbours: int = 5, gene_sets: str | None = None) -> None:
        if n_neighbours < 1:
            raise InputError("there is at least one neighbour", key="n_neighbours", value=n_neighbours)
        self.n_neighbours = n_neighbours
        self.gene_sets = gene_sets
        self._profiles: _Profiles | None = None
        self._seen: Measured | None = None
        self._names: list[str] = []
        self._known: sparse.csr_matrix | None = None

    def refuses(self, training: Training) -> str | None:
        """Refuse where no training perturbation has a target in any gene set."""
        profiles = _Profiles(sets_of(training, self.gene_sets))
        if any(profiles.of(item).any() for item in training.perturbations.values()):
            return None
        example = next((gene for item in training.perturbations.values() for gene in item.targets), "none is known")
        return f"no gene set holds a target of any training perturbation (for example {example})"

    def fit(self, training: Training) -> KnnGO:
        """Keep the effects of train and val, and the profiles of their perturbations."""
        self._seen = measured(training, self)
        self._profiles = _Profiles(sets_of(training, self.gene_sets))
        named = {str(name): self._profiles.of(item) for name, item in sorted(training.perturbations.items())}
        self._names = [name for name, profile in named.items() if profile.any()]
        rows = [sparse.csr_matrix(named[name]) for name in self._names]
        self._known = sparse.vstack(rows, format="csr") if rows else sparse.csr_matrix((0, self._profiles.width))
        return self

    def predict(self, inputs: Inputs) -> Effects:
        """Predict from the nearest training perturbations."""
        seen, profiles = fitted(self._seen, self), fitted(self._profiles, self)
        near = {name: self._nearest(profiles.of(item)) for name, item in inputs.perturbations.items()}
        rows = [
            self._mean(near[name], str(context))
            for context, name in zip(inputs.conditions["context"], inputs.conditions["perturbation"], strict=True)
        ]
        return predicted(inputs, seen.genes, rows)

    def _nearest(self, profile: np.ndarray) -> dict[str, float]:
        """Return the cosine of each of the nearest training perturbations."""
        cosine = np.round(fitted(self._known, self) @ profile, _DIGITS)
        direction = 1 if (cosine > 0).any() else -1
        order = np.argsort(-direction * cosine, kind="stable")[: self.n_neighbours]
        return {self._names[row]: float(cosine[row]) for row in order if direction * cosine[row] > 0}

    def _mean(self, near: dict[str, float], context: str) -> np.ndarray | None:
        if not near:
            return None
        seen = fitted(self._seen, self)
        names = seen.conditions["perturbation"].to_numpy()
        here = (seen.conditions["context"] == context).to_numpy()
        effects = []
        for name in near:
            of_name = names == name
            effects.append(seen.mean(of_name & here if (of_name & here).any() else of_name))
        weights = np.array(list(near.values()))
        return np.asarray((weights[:, None] * np.stack(effects)).sum(axis=0) / np.abs(weights).sum())


class _Profiles:
    """Unit profiles of perturbations over gene sets."""

    def __init__(self, sets: GeneSets) -> None:
        self._genes = pd.Index(sorted({gene for genes in sets.values() for gene in genes}), dtype=object)
        member = membership(sets, self._genes).astype(np.float64)
        size = np.asarray(member.sum(axis=0)).ravel()
        self._member = sparse.csr_matrix(member @ sparse.diags(np.log(len(self._genes) / size)))
        self.width = self._member.shape[1]

    def of(self, perturbation: Perturbation) -> np.ndarray:
        """Return the perturbation's profile at length 1, or zeros where no target is in an informative set."""
        signs = perturbation.signs
        rows = self._genes.get_indexer(list(signs))
        weights = np.array([sign or -1 for sign in signs.values()], dtype=np.float64)
        profile = np.zeros(self.width)
        for row, weight in zip(rows, weights, strict=True):
            if row >= 0:
                profile += weight * self._member[row].toarray().ravel()
        length = float(np.sqrt((profile**2).sum()))
        return profile / length if length > 0 else profile
