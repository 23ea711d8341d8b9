"""Small folds with effects chosen by the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from pertbase.folds import Effects, Inputs, Part, Perturbation, Training
from pertbase.knowledge import SignedGraph

Row = tuple[str, Perturbation, str]


@dataclass(frozen=True)
class SmallFold:
    training: Training
    inputs: Inputs


def _questions(conditions: pd.DataFrame, values: np.ndarray, genes: pd.Index) -> pd.DataFrame:
    table = conditions.loc[conditions.index.repeat(len(genes))].reset_index(drop=True)
    effect = values.ravel()
    outcome = np.select([effect > 0.25, effect < -0.25], ["up", "down"], "no_change").astype(object)
    ambiguous = (np.abs(effect) > 0.15) & (np.abs(effect) <= 0.25)
    gene = np.tile(genes.to_numpy(), len(conditions))
    return table.assign(
        gene=gene,
        id=table["context"] + "|" + table["perturbation"] + "|" + gene,
        fold="small",
        effect=effect,
        outcome=np.where(ambiguous, None, outcome),
        regime=np.where(ambiguous, "ambiguous", ""),
    )


def make_small_fold(
    rows: Sequence[Row],
    values: np.ndarray,
    *,
    genes: Sequence[str] | None = None,
    n_cells: Sequence[int] | None = None,
    basal: pd.DataFrame | None = None,
    kind: str = "unseen_context_genetic",
    statistic: str = "mean_log",
    expression: bool = True,
    gene_sets: Mapping[str, tuple[str, ...]] | None = None,
    graph: SignedGraph | None = None,
) -> SmallFold:
    """Build a fold from (context, perturbation, split) rows and their true effects, rows x genes."""
    names = pd.Index(genes if genes is not None else [f"G{number}" for number in range(values.shape[1])])
    conditions = pd.DataFrame(
        {
            "context": [context for context, _, _ in rows],
            "perturbation": [perturbation.name for _, perturbation, _ in rows],
            "split": [split for _, _, split in rows],
            "modality": [perturbation.modality for _, perturbation, _ in rows],
            "mechanism": [perturbation.mechanism for _, perturbation, _ in rows],
            "targets": ["+".join(perturbation.targets) for _, perturbation, _ in rows],
            "target_set": [perturbation.split_key for _, perturbation, _ in rows],
            "n_parts": [len(perturbation.parts) for _, perturbation, _ in rows],
            "n_cells": list(n_cells) if n_cells is not None else [50] * len(rows),
        }
    )
    if basal is None:
        basal = pd.DataFrame(1.0, index=sorted(set(conditions["context"])), columns=names)
    questions = _questions(conditions, values, names)
    perturbations = {perturbation.name: perturbation for _, perturbation, _ in rows}
    asked = (conditions["split"] == "test").to_numpy()
    known = conditions.loc[~asked].reset_index(drop=True)
    training = Training(
        fold="small",
        kind=kind,
        data="small",
        seed=0,
        questions=questions.loc[questions["split"] != "test"].reset_index(drop=True),
        conditions=known,
        genes=names,
        perturbations={name: perturbations[name] for name in known["perturbation"]},
        statistic=statistic,
        effects=Effects(values[~asked], known, names, statistic) if expression else None,
        basal=basal if expression else None,
        gene_sets=gene_sets,
        graph=graph,
    )
    test = conditions.loc[asked].reset_index(drop=True)
    inputs = Inputs(
        split="test",
        questions=questions.loc[questions["split"] == "test"]
        .drop(columns=["outcome", "effect", "regime", "n_cells"])
        .reset_index(drop=True),
        conditions=test.drop(columns="n_cells"),
        genes=names,
        perturbations={name: perturbations[name] for name in test["perturbation"]},
        statistic=statistic,
        basal=basal if expression else None,
        graph=graph,
    )
    return SmallFold(training, inputs)


@pytest.fixture
def small_fold() -> Callable[..., SmallFold]:
    return make_small_fold


@pytest.fixture
def mixed_fold() -> Callable[..., SmallFold]:
    """Two training contexts, a third asked about, singles, doubles and a drug, with random effects."""

    def make(seed: int = 0, *, n_genes: int = 30, **options: object) -> SmallFold:
        rng = np.random.default_rng(seed)
        genes = [f"G{number}" for number in range(n_genes)]
        singles = [Perturbation.genetic([gene], "CRISPRi") for gene in genes[:8]]
        doubles = [Perturbation.genetic(genes[start : start + 2], "CRISPRi") for start in (0, 2, 4)]
        drugs = [Perturbation((Part("drug", ((genes[1], -1),), compound="drugA"),))]
        everything = [*singles, *doubles, *drugs]
        contexts = (("A", "train"), ("B", "val"), ("C", "test"))
        rows = [(context, item, split) for context, split in contexts for item in everything]
        values = rng.normal(0.0, 0.4, size=(len(rows), n_genes))
        basal = pd.DataFrame(rng.gamma(2.0, 0.5, size=(3, n_genes)), index=["A", "B", "C"], columns=genes)
        cells = rng.integers(20, 90, len(rows)).tolist()
        sets = {f"SET{start}": tuple(genes[start : start + 3]) for start in range(8)}
        edges = pd.DataFrame({"source": genes[:-3], "target": genes[3:], "sign": np.resize([1, -1, 0], n_genes - 3)})
        graph = SignedGraph.from_edges(edges, name="mixed")
        made = {"genes": genes, "basal": basal, "n_cells": cells, "gene_sets": sets, "graph": graph, **options}
        return make_small_fold(rows, values, **made)

    return make
