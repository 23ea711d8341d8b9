from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase import scorers
from pertbase._io import canonical_json
from pertbase.folds import OUTCOMES, SCORES, Answers, Truth


def _answers(ids: object, scores: np.ndarray) -> Answers:
    table = pd.DataFrame(scores / scores.sum(1, keepdims=True), columns=list(SCORES))
    return Answers(table.assign(id=ids, outcome=np.array(OUTCOMES)[scores.argmax(1)]))


def _fold(rng: np.random.Generator, n_sets: int = 40, n_genes: int = 60) -> tuple[Truth, Answers, Answers]:
    """A truth made of what genes tend to do and of what perturbations do, with answers that know one of the two."""
    sets, genes = (index.ravel() for index in np.indices((n_sets, n_genes)))
    of_gene = rng.normal(0, 1.5, (n_genes, 3))[genes]
    of_perturbation = rng.normal(0, 1.5, (len(sets), 3))
    both = np.exp(of_gene + of_perturbation)
    both /= both.sum(1, keepdims=True)
    codes = (rng.random((len(sets), 1)) > both.cumsum(1)).sum(1).clip(max=2)
    ids = [f"q{i:06d}" for i in rng.permutation(len(sets))]
    questions = pd.DataFrame(
        {
            "id": ids,
            "context": "K562",
            "target_set": [f"T{s}" for s in sets],
            "gene": [f"G{g}" for g in genes],
            "regime": "near",
            "outcome": np.array(OUTCOMES)[codes],
            "effect": np.nan,
        }
    )
    truth = Truth(questions=questions, name="toy", hash="", simulated=False)
    return truth, _answers(ids, np.exp(of_gene)), _answers(ids, np.exp(of_perturbation))


def test_a_candidate_that_copies_the_shortcut_adds_nothing(rng) -> None:
    truth, prior, _ = _fold(rng)
    table = scorers.shortcuts({"gene_prior": prior}, prior, truth, seed=0).table
    assert table.loc["(nothing)", "without"] == pytest.approx(1 / 3)
    assert table.loc["(nothing)", "gain"] > 0.15
    assert abs(table.loc["gene_prior", "gain"]) < 0.005


def test_a_candidate_that_knows_the_perturbation_adds_to_the_shortcut(rng) -> None:
    truth, prior, specific = _fold(rng)
    noise = _answers(truth.questions["id"], rng.dirichlet(np.ones(3), len(truth.questions)))
    table = scorers.shortcuts({"gene_prior": prior, "noise": noise}, specific, truth, seed=0).table
    assert list(table.index) == ["(nothing)", "gene_prior", "noise"]
    assert table.loc["gene_prior", "gain_low"] > 0.05
    assert table.loc["noise", "without"] == pytest.approx(table.loc["gene_prior", "without"], abs=0.02)
    np.testing.assert_allclose(table["gain"], table["with_candidate"] - table["without"], atol=1e-12)


def test_what_is_fitted_on_noise_is_not_rewarded_on_the_questions_it_saw(rng) -> None:
    truth, _, _ = _fold(rng, n_sets=20, n_genes=20)
    n = len(truth.questions)
    noises = {f"noise{i}": _answers(truth.questions["id"], rng.dirichlet(np.ones(3), n)) for i in range(12)}
    table = scorers.shortcuts(noises, next(iter(noises.values())), truth, seed=0).table
    assert table["without"].iloc[-1] < 0.42


def test_the_order_of_rows_leaves_no_trace(rng) -> None:
    truth, prior, specific = _fold(rng)
    moved = replace(truth, questions=truth.questions.sample(frac=1, random_state=2))
    one = scorers.shortcuts({"gene_prior": prior}, specific, truth, seed=0).to_dict()
    two = scorers.shortcuts({"gene_prior": prior}, specific, moved, seed=0).to_dict()
    assert canonical_json(one) == canonical_json(two)


@pytest.mark.parametrize("n_sets", [1, 4])
def test_few_target_sets_are_told_and_nothing_is_made_up(rng, n_sets: int) -> None:
    truth, prior, specific = _fold(rng, n_sets=n_sets, n_genes=200)
    found = scorers.shortcuts({"gene_prior": prior}, specific, truth, seed=0)
    assert found.table.empty
    assert "needs 5 target sets" in found.note
    assert found.note in repr(found)


def test_a_scarce_class_is_told(rng) -> None:
    truth, prior, specific = _fold(rng)
    gone = truth.questions.index[truth.questions["outcome"] == "down"][4:]
    some = replace(truth, questions=truth.questions.drop(index=gone))
    kept = [Answers(a.table[a.table["id"].isin(some.questions["id"])]) for a in (prior, specific)]
    found = scorers.shortcuts({"gene_prior": kept[0]}, kept[1], some, seed=0)
    assert found.table.empty
    assert "4 down" in found.note


def test_answers_without_scores_say_nothing(rng) -> None:
    truth, prior, _ = _fold(rng)
    silent = Answers(pd.DataFrame({"id": truth.questions["id"], "outcome": None}))
    table = scorers.shortcuts({"gene_prior": prior}, silent, truth, seed=0).table
    assert table.loc["(nothing)", "with_candidate"] == pytest.approx(1 / 3)
    assert table.loc["gene_prior", "gain"] == 0


@pytest.mark.slow
def test_many_questions_take_seconds(rng) -> None:
    truth, prior, specific = _fold(rng, n_sets=400, n_genes=400)
    start = time.process_time()
    nested = dict.fromkeys(("gene_prior", "basal", "asked_elsewhere", "cross_context"), prior)
    assert len(scorers.shortcuts(nested, specific, truth, seed=0).table) == 5
    assert time.process_time() - start < 30
