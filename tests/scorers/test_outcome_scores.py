from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase import scorers
from pertbase._io import canonical_json
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, SCORES, Answers, Truth

PERTURBQA = Path(__file__).parents[3] / "shared" / "data" / "perturbqa"


def _same(answers: Answers, **columns: object) -> Answers:
    return Answers(answers.table.assign(**columns))


def _right(truth: Truth) -> Answers:
    known = truth.questions.dropna(subset="outcome")
    return Answers(known[["id", "outcome"]])


def test_numbers_are_those_of_scikit_learn_over_all_headline_questions(rng, make_fold) -> None:
    from sklearn import metrics as reference

    truth, answers = make_fold(rng)
    scores = scorers.outcome(answers, truth)
    joined = truth.questions.dropna(subset="outcome").merge(
        answers.table, on="id", how="left", suffixes=("", "_answered")
    )
    true, answered = joined["outcome"], joined["outcome_answered"].fillna("none")
    kept = {"labels": list(OUTCOMES), "zero_division": 0}
    assert scores.n == len(joined)
    assert scores.accuracy.value == pytest.approx(reference.accuracy_score(true, answered), abs=1e-12)
    recall = reference.recall_score(true, answered, average="macro", **kept)
    assert scores.balanced_accuracy.value == pytest.approx(recall, abs=1e-12)
    for average in ("micro", "macro", "weighted"):
        expected = reference.f1_score(true, answered, average=average, **kept)
        assert getattr(scores, f"{average}_f1") == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(scores.per_outcome["f1"], reference.f1_score(true, answered, average=None, **kept))


def test_the_order_of_rows_never_matters(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    shuffled = replace(truth, questions=truth.questions.sample(frac=1, random_state=3))
    one = scorers.outcome(answers, truth).to_dict()
    two = scorers.outcome(Answers(answers.table.sample(frac=1, random_state=5)), shuffled).to_dict()
    assert canonical_json(one) == canonical_json(two)


def test_right_answers_score_one_and_have_no_width(rng, make_fold) -> None:
    truth, _ = make_fold(rng)
    scores = scorers.outcome(_right(truth), truth)
    for interval in (scores.balanced_accuracy, scores.accuracy):
        assert (interval.value, interval.low, interval.high, interval.se) == (1, 1, 1, 0)
        assert "no width" in interval.note
    assert scores.macro_f1 == scores.micro_f1 == scores.auroc_called.value == scores.auroc_direction.value == 1


def test_shuffled_answers_score_a_third(rng, make_fold) -> None:
    truth, answers = make_fold(rng, n_sets=100, n_genes=60, silent=0.0)
    ids = rng.permutation(answers.table["id"].to_numpy())
    scores = scorers.outcome(_same(answers, id=ids), truth)
    assert scores.balanced_accuracy.value == pytest.approx(1 / 3, abs=0.02)
    assert scores.balanced_accuracy.low < 1 / 3 < scores.balanced_accuracy.high
    assert scores.auroc_called.value == pytest.approx(0.5, abs=0.03)


def test_always_no_change_scores_exactly_a_third(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    constant = Answers(pd.DataFrame({"id": answers.table["id"], "outcome": "no_change"}))
    scores = scorers.outcome(constant, truth)
    assert scores.balanced_accuracy.value == pytest.approx(1 / 3, abs=1e-15)
    assert scores.auroc_called.value == 0.5


def test_unparsed_answer_counts_as_wrong_and_stays_in_the_denominator(rng, make_fold) -> None:
    truth, _ = make_fold(rng)
    right = _right(truth)
    n = len(right)
    table = right.table.copy()
    table.loc[:99, "outcome"] = None
    table.loc[:99, "status"] = "refusal"
    scores = scorers.outcome(Answers(table), truth)
    assert scores.n == n
    assert scores.accuracy.value == pytest.approx((n - 100) / n)
    assert scores.n_without_outcome == 100
    assert "  without an outcome  100 answers, wrong and counted\n" in repr(scores)
    assert scores.n_missing == 0
    assert scores.status == {"ok": n - 100, "refusal": 100}


def test_a_question_left_out_is_the_same_as_no_answer(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    gone = answers.table["id"].isin(truth.questions.dropna(subset="outcome")["id"].iloc[:50])
    silent = answers.table.copy()
    silent.loc[gone, ["outcome", *SCORES]] = None
    silent.loc[gone, "status"] = "no_answer"
    left_out = scorers.outcome(Answers(answers.table[~gone]), truth)
    said = scorers.outcome(Answers(silent), truth)
    assert left_out.n_missing == 50
    assert "; of these, 50 not given at all\n" in repr(left_out)
    assert "  without an outcome  no answer\n" in repr(scorers.outcome(_right(truth), truth))
    assert said.n_missing == 0
    assert left_out.status == said.status
    assert left_out.balanced_accuracy == said.balanced_accuracy
    assert left_out.auroc_called == said.auroc_called
    assert any("50 questions have no answer" in note for note in left_out.notes)


def test_an_unknown_id_is_refused_by_its_name(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    table = answers.table.copy()
    table.loc[7, "id"] = "of-another-fold"
    with pytest.raises(InputError, match="of-another-fold"):
        scorers.outcome(Answers(table), truth)


def test_a_repeated_id_is_refused(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    with pytest.raises(InputError, match="repeat an id"):
        scorers.outcome(Answers(pd.concat([answers.table, answers.table.head(1)])), truth)
    twice = replace(truth, questions=pd.concat([truth.questions, truth.questions.head(1)]))
    with pytest.raises(InputError, match="repeats a question"):
        scorers.outcome(answers, twice)


def test_a_truth_that_contradicts_itself_is_refused(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    torn = truth.questions.assign(regime="near")
    with pytest.raises(InputError, match="ambiguous questions have no outcome"):
        scorers.outcome(answers, replace(truth, questions=torn))
    with pytest.raises(InputError, match="target_set"):
        scorers.outcome(answers, replace(truth, questions=truth.questions.drop(columns="target_set")))


def test_unsupported_answers_count_and_a_supported_number_stands_beside(rng, make_fold) -> None:
    truth, _ = make_fold(rng)
    table = _right(truth).table.copy()
    half = np.arange(len(table)) % 2 == 0
    table.loc[half, "outcome"] = "no_change"
    table.loc[half, "status"] = "unsupported"
    scores = scorers.outcome(Answers(table.drop(columns=list(SCORES))), truth)
    assert scores.coverage == pytest.approx(1 - half.mean())
    assert scores.balanced_accuracy.value < 0.8
    assert scores.supported_balanced_accuracy.value == 1


def test_below_ten_of_a_class_balanced_accuracy_is_not_given(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    ups = truth.questions.index[truth.questions["outcome"] == "up"]
    for kept, given in ((9, False), (10, True)):
        some = replace(truth, questions=truth.questions.drop(index=ups[kept:]))
        known = Answers(answers.table[answers.table["id"].isin(some.questions["id"])])
        scores = scorers.outcome(known, some)
        difference = scorers.compare(known, _right(some), some)
        for interval in (scores.balanced_accuracy, difference.balanced_accuracy):
            assert math.isfinite(interval.value) == given
            assert ("not printed" in interval.note) != given
        assert any("not ranked" in note for note in scores.notes) != given
        assert any("not ranked" in note for note in difference.notes) != given
        assert math.isfinite(scores.accuracy.low)
        assert ("balanced accuracy   NA" in repr(scores)) != given


def test_the_rule_of_ten_holds_in_each_context(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    table = truth.questions
    gone = table.index[(table["context"] == "RPE1") & (table["outcome"] == "down")][5:]
    some = replace(truth, questions=table.drop(index=gone))
    known = Answers(answers.table[answers.table["id"].isin(some.questions["id"])])
    by_context = scorers.outcome(known, some).by_context
    assert math.isfinite(by_context.loc["K562", "balanced_accuracy"])
    assert math.isnan(by_context.loc["RPE1", "balanced_accuracy"])
    assert by_context.loc["RPE1", "n_down"] == 5


def test_strata_add_up_to_the_whole(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    scores = scorers.outcome(answers, truth)
    for table in (scores.by_context, scores.by_regime):
        assert table["n"].sum() == scores.n
        assert (table["accuracy"] * table["n"]).sum() / scores.n == pytest.approx(scores.accuracy.value)
    assert "ambiguous" not in scores.by_regime.index


def test_few_clusters_and_one_context_are_told(rng, make_fold) -> None:
    truth, answers = make_fold(rng, n_sets=12, contexts=("K562",))
    notes = scorers.outcome(answers, truth).notes
    assert any("only 12 target sets" in note for note in notes)
    assert any("one test context (K562)" in note for note in notes)
    truth, answers = make_fold(rng)
    assert scorers.outcome(answers, truth).notes == ()


def test_a_forced_choice_halves_ties_and_counts_missing_scores_as_wrong(rng, make_fold) -> None:
    truth, answers = make_fold(rng, silent=0.0)
    ambiguous = truth.questions["outcome"].isna()
    ids = truth.questions.loc[ambiguous, "id"].to_numpy()[:6]
    effect = truth.questions["effect"].where(~ambiguous, np.nan)
    effect[truth.questions["id"].isin(ids)] = [1.0, 1.0, -1.0, 1.0, 0.0, -1.0]
    said = pd.DataFrame(
        {
            "id": ids,
            "outcome": ["no_change", "no_change", "up", None, "up", "down"],
            "score_up": [0.2, 0.1, 0.6, np.nan, 0.8, np.nan],
            "score_down": [0.1, 0.1, 0.2, np.nan, 0.1, np.nan],
            "score_no_change": [0.7, 0.8, 0.2, np.nan, 0.1, np.nan],
        }
    )
    others = answers.table[~answers.table["id"].isin(ids)].drop(columns="status")
    changed = replace(truth, questions=truth.questions.assign(effect=effect))
    choice = scorers.outcome(Answers(pd.concat([others, said])), changed).ambiguous
    # Right; tied; wrong; without scores; no effect, not asked; without scores but with its outcome, right.
    assert (choice.n, choice.n_ties, choice.n_without_scores) == (5, 1, 1)
    assert choice.share == pytest.approx((1 + 0.5 + 0 + 0 + 1) / 5)


def test_ambiguous_questions_are_in_no_headline_number(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    ambiguous = truth.questions.loc[truth.questions["outcome"].isna(), "id"]
    without = scorers.outcome(Answers(answers.table[~answers.table["id"].isin(ambiguous)]), truth)
    scores = scorers.outcome(answers, truth)
    assert scores.balanced_accuracy == without.balanced_accuracy
    assert scores.n_missing == without.n_missing == 0
    assert without.ambiguous.share == 0


def test_scores_become_plain_json(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    scores = scorers.outcome(answers, truth)
    told = json.loads(canonical_json(scores.to_dict()))
    assert told["balanced_accuracy"]["value"] == scores.balanced_accuracy.value
    assert told["confusion"] == scores.confusion.astype(int).tolist()
    assert told["by_context"]["K562"]["n"] == scores.by_context.loc["K562", "n"]
    assert set(told) == set(vars(scores))


def test_scores_read_well_and_cannot_be_changed(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    scores = scorers.outcome(answers, replace(truth, simulated=True))
    assert "simulated" in repr(scores)
    assert str(scores.balanced_accuracy) in repr(scores)
    assert "<table>" in scores._repr_html_()
    with pytest.raises(ValueError, match="read-only"):
        scores.confusion[0, 0] = 1
    with pytest.raises(AttributeError):
        scores.n = 3


def test_the_outcomes_of_a_parquet_dictionary_score_the_same(rng, make_fold) -> None:
    truth, answers = make_fold(rng)
    columns = ["context", "target_set", "gene", "regime", "outcome"]
    packed = replace(truth, questions=truth.questions.astype(dict.fromkeys(columns, "category")))
    assert canonical_json(scorers.outcome(answers, packed).to_dict()) == canonical_json(
        scorers.outcome(answers, truth).to_dict()
    )


@pytest.mark.skipif(not PERTURBQA.is_dir(), reason="the PerturbQA tables are not there")
def test_one_way_intervals_are_too_narrow_on_perturbqa() -> None:
    called = pd.read_csv(PERTURBQA / "k562-de.csv")
    direction = pd.read_csv(PERTURBQA / "k562-dir.csv")[["pert", "gene", "label"]]
    table = called.merge(direction, on=["pert", "gene"], how="left", suffixes=("", "_up"))
    table["outcome"] = np.where(table["label"] == 0, "no_change", np.where(table["label_up"] == 1, "up", "down"))
    train, test = table[table["split"] == "train"], table[table["split"] == "test"]
    prior = train.groupby("gene")["outcome"].agg(lambda outcomes: outcomes.value_counts().idxmax())
    ids = test["pert"] + ":" + test["gene"]
    answers = Answers(pd.DataFrame({"id": ids, "outcome": test["gene"].map(prior).fillna("no_change")}))
    questions = test.assign(id=ids, context="K562", regime="published", target_set=test["pert"], effect=np.nan)
    scores = scorers.outcome(answers, Truth(questions=questions, name="k562", hash="", simulated=False))
    assert scores.accuracy.value == pytest.approx(0.92, abs=0.005)
    assert scores.balanced_accuracy.value == pytest.approx(0.61, abs=0.01)
    assert scores.auroc_called.value == 0.5
    one_way = scorers.outcome(
        answers, Truth(questions=questions.assign(gene=ids), name="k562", hash="", simulated=False)
    )
    assert scores.balanced_accuracy.se > 1.5 * one_way.balanced_accuracy.se


def test_an_area_that_no_readout_gene_has_is_said_to_be_none(make_fold, rng) -> None:  # type: ignore[no-untyped-def]
    truth, answers = make_fold(rng)
    questions = truth.questions.assign(
        outcome=truth.questions["outcome"].where(truth.questions["outcome"].isna(), "up")
    )
    told = repr(scorers.outcome(answers, replace(truth, questions=questions)))
    assert told.count("NA: no readout gene is asked about with both kinds of outcome") == 2
    assert "nan over" not in told
