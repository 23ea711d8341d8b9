from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pertbase.baselines.llm import TIERS, MajorityOfOptions, Retrieval, RetrievalVote, Summer
from pertbase.folds import OUTCOMES, SCORES, Perturbation
from pertbase.scorers import outcome

SETS = {"S1": ("G0", "G1", "G2"), "S2": ("G2", "G3", "G9"), "S3": ("G4", "G10"), "S4": ("G9", "G0", "G5")}


def cosine(one, two):
    """By hand: log(G / |S|) for each set, cosine of the two."""
    genes = len({gene for members in SETS.values() for gene in members})
    profiles = [[np.log(genes / len(members)) * (gene in members) for members in SETS.values()] for gene in (one, two)]
    a, b = np.array(profiles)
    return a @ b / np.sqrt((a @ a) * (b @ b)) if a.any() and b.any() else 0.0


def by_hand(training, context, perturbation, gene, n_near):
    """The vote as the docstring has it, question by question."""
    known = training.headline
    target = {name: item.targets[0] for name, item in training.perturbations.items()}
    own = perturbation.targets[0]
    conditions = sorted(set(zip(known["context"], known["perturbation"], strict=True)))
    same = {row for row in conditions if training.perturbations[row[1]] == perturbation}
    same = {row for row in same if row[0] == context} or same
    near = {row: cosine(own, target[row[1]]) for row in conditions if training.perturbations[row[1]] != perturbation}
    if any(value > 1e-9 for row, value in near.items() if row[0] == context):
        near = {row: value for row, value in near.items() if row[0] == context}
    ranked = sorted(
        (row for row, value in near.items() if value > 1e-9), key=lambda row: (-round(near[row], 12), row[1])
    )
    near = {row: near[row] for row in ranked[:n_near]}
    genes = sorted(set(known["gene"]))
    close = {other: cosine(gene, other) for other in genes if other != gene}
    ranked = sorted(
        (other for other, value in close.items() if value > 1e-9),
        key=lambda other: (-round(close[other], 12), genes.index(other)),
    )
    close = {other: close[other] for other in ranked[:n_near]}
    ones = dict.fromkeys(same, 1.0)
    anywhere, anything = dict.fromkeys(conditions, 1.0), dict.fromkeys(genes, 1.0)
    tiers = [
        (ones, close),
        (near, {gene: 1.0}),
        (near, close),
        (ones, anything),
        (anywhere, {gene: 1.0}),
        (near, anything),
        (anywhere, close),
    ]
    total = np.zeros(3)
    for number, (rows, columns) in enumerate(tiers, start=1):
        part = np.zeros(3)
        for row in known.itertuples():
            weight = rows.get((row.context, row.perturbation), 0.0) * columns.get(row.gene, 0.0)
            part[OUTCOMES.index(row.outcome)] += weight
        if part.sum():
            total += part / part.sum() / number
    return total / total.sum()


@pytest.fixture
def fold(path_fold):
    made = path_fold()
    return replace(made, training=replace(made.training, gene_sets=SETS))


def test_the_vote_is_that_of_the_tiers_counted_by_hand(fold):
    answers = RetrievalVote(n_near=2).fit(fold.training).answer(fold.inputs)
    scores = answers.table[["score_up", "score_down", "score_no_change"]].to_numpy()
    rng = np.random.default_rng(0)
    for row in rng.choice(len(answers), 20, replace=False):
        asked = fold.inputs.questions.iloc[row]
        item = fold.inputs.perturbations[asked["perturbation"]]
        expected = by_hand(fold.training, asked["context"], item, asked["gene"], 2)
        np.testing.assert_allclose(scores[row], np.round(expected, 9), rtol=0, atol=1e-12)
        frequency = fold.training.headline["outcome"].value_counts(normalize=True).reindex(OUTCOMES).to_numpy()
        assert answers.table["outcome"].iloc[row] == OUTCOMES[int(np.argmax(expected / frequency))]


def test_what_is_retrieved_comes_in_the_order_of_the_tiers_and_was_measured(fold):
    found = Retrieval(fold.training, SETS, n_near=3)
    known = fold.training.headline
    item = next(iter(fold.inputs.perturbations.values()))
    shown = found.examples("A", item, "G2", 40, seed=0)
    places = [TIERS.index(one.tier) for one in shown]
    assert places == sorted(places)
    assert len({(one.perturbation, one.gene) for one in shown}) >= len(shown) / 2
    measured = set(zip(known["perturbation"], known["gene"], known["outcome"], strict=True))
    assert {(one.perturbation, one.gene, one.outcome) for one in shown} <= measured
    assert shown == found.examples("A", item, "G2", 40, seed=0)
    assert shown[:5] == found.examples("A", item, "G2", 5, seed=0)


def test_a_question_of_an_unknown_gene_is_answered_by_what_is_known_of_any(fold):
    asked = fold.inputs.questions.assign(gene="UNHEARD")
    answers = RetrievalVote().fit(fold.training).answer(replace(fold.inputs, questions=asked))
    assert answers.table[["score_up", "score_down", "score_no_change"]].notna().all(axis=None)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_the_same_bytes_in_whatever_order_rows_and_sets_are_given(path_fold, seed):
    fold, rng = path_fold(seed, n_genes=40), np.random.default_rng(seed)
    sets = {f"S{n}": tuple(f"G{gene}" for gene in rng.choice(44, rng.integers(2, 9), replace=False)) for n in range(60)}
    names, found = list(sets), []
    for _ in range(4):
        training = replace(
            fold.training,
            questions=fold.training.questions.sample(frac=1, random_state=int(rng.integers(1000))).reset_index(
                drop=True
            ),
            gene_sets={name: sets[name][::-1] for name in names},
        )
        answers = RetrievalVote(n_near=5).fit(training).answer(fold.inputs)
        found.append((answers.table[list(SCORES)].to_numpy().tobytes(), answers.table["outcome"].tolist()))
        rng.shuffle(names)
    assert all(one == found[0] for one in found)


def test_where_no_tier_has_a_member_the_vote_is_a_tie_of_shares_of_training(fold):
    asked = fold.inputs.questions.assign(gene="UNHEARD")
    strange = {name: Perturbation.genetic(["UNKNOWN"], "CRISPRi") for name in fold.inputs.perturbations}
    for left_out in range(0, 30, 3):
        # Of many denominators: a share is rarely nine decimals.
        training = replace(fold.training, questions=fold.training.questions.iloc[left_out:].reset_index(drop=True))
        answers = RetrievalVote().fit(training).answer(replace(fold.inputs, questions=asked, perturbations=strange))
        share = training.headline["outcome"].value_counts(normalize=True).reindex(OUTCOMES).to_numpy()
        assert (answers.table[list(SCORES)].to_numpy() == np.round(share, 9)).all()
        assert set(answers.table["outcome"]) == {"no_change"}


def test_the_most_frequent_outcome_is_said_to_everything(fold):
    answers = MajorityOfOptions().fit(fold.training).answer(fold.inputs)
    counts = fold.training.headline["outcome"].value_counts()
    assert set(answers.table["outcome"]) == {counts.index[0]}
    np.testing.assert_allclose(answers.table["score_up"], counts["up"] / counts.sum())


def test_summer_shows_train_alone_and_asks_once_for_the_summary_of_a_gene(fold, rule_client):
    client = rule_client()
    model = Summer(client=client, n_retrieved=6, n_near=2, answer_from="options").fit(fold.training)
    val = model.records(fold.training.inputs("val"))
    test = model.records(fold.inputs)
    summaries = [request for request in client.heard if request.question.startswith("summary of ")]
    assert len(summaries) == len({request.question for request in summaries})
    assert "S1; S4" in summaries[0].prompts[0][-1][1]
    held = fold.training.headline.loc[fold.training.headline["split"] == "val"]
    of_val = {target for item in held["perturbation"] for target in fold.training.perturbations[item].targets}
    for record in (*val, *test):
        lines = record.retrieved.split("\n")
        assert len(lines) == 6
        assert not any(f"{word} {target}:" in record.retrieved for target in of_val for word in ("raises", "lowers"))
    answers = model.answer(fold.inputs)
    assert (answers.table["status"] == "ok").all()


@pytest.mark.slow
def test_the_vote_on_perturbqa_stands_near_the_published_retrieval_alone(real_data, monkeypatch):
    from pertbase.folds import FoldMaker, FoldSpec, data

    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    fold = FoldMaker(data("perturbqa")).draw(FoldSpec(kind="published", context="K562"))
    answers = RetrievalVote().fit(fold.make_training(seed=0, cells=False)).answer(fold.inputs("test"))
    scores = outcome(answers, fold.truth)
    # published: .58 and .69
    assert scores.auroc_called.value == pytest.approx(0.5905, abs=1e-4)
    assert scores.auroc_direction.value == pytest.approx(0.7012, abs=1e-4)
