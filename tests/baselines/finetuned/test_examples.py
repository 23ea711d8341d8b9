"""What is learnt from: the prompts of evaluation word by word, replies by rule, and nothing of test."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

import finetuned_toy as toy
import numpy as np
import pytest

from pertbase.baselines.finetuned import SFT, OutcomeTexts, RuleTexts, TinySizes, draft_examples, start_model, tokenised
from pertbase.baselines.finetuned._examples import class_weights
from pertbase.baselines.llm import parse
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import OUTCOMES

TINY = TinySizes(hidden_size=16, layers=1, heads=2, vocabulary=300)


def drafts_of(
    training, texts=None, *, preset="cell_path", split="train", per_outcome=None, reached=False, template="short"
):
    language = SFT(start="tiny", preset=preset, template=template).prepare(training)
    asked = {"split": split, "per_outcome": per_outcome, "reached": reached}
    return draft_examples(language, training, texts or OutcomeTexts(), **asked)


@pytest.fixture(scope="module")
def tokenizer(small):  # type: ignore[no-untyped-def]
    texts = [draft.messages[-1][1] for draft in drafts_of(small.training)]
    return start_model("tiny", texts=texts, symbols=list(small.training.genes), sizes=TINY).tokenizer


@pytest.mark.parametrize("preset", ["no_path", "global_path", "cell_path"])
@pytest.mark.parametrize("thinking", [None, False])
def test_prompts_of_training_are_those_of_evaluation_token_by_token(small, preset, thinking, tmp_path):
    """Asked at evaluation are the questions of train, of which training remembers its prompts."""
    options = {"preset": preset, "thinking": thinking, "max_epochs": 0, "tiny": vars(TINY), "examples": 2}
    model = SFT(**{**toy.SMALL, **options, "max_length": 512, "pack": 512})
    model.prepare(small.training)
    learnt = {one.id: one.prompt_ids.tolist() for one in model.material(small.training).train.items}
    model.fit(small.training)
    asked = model.records(small.training.inputs("train"))
    client = model._asker.client
    for record, request in zip(asked, model.reply_requests(asked), strict=True):
        assert client._prompt(request.prompts[0], thinking=thinking) == learnt[record.id]
    assert len(learnt) == len(asked)


def test_nothing_of_val_or_test_is_in_an_example_of_train(small):
    questions = small.training.questions
    val = (questions["split"] == "val").to_numpy()
    turned = questions["outcome"].where(~val, questions["outcome"].map({"up": "down", "down": "up"}).fillna("up"))
    other = replace(small.training, questions=questions.assign(outcome=turned))
    assert drafts_of(small.training, RuleTexts()) == drafts_of(other, RuleTexts())
    assert {draft.record.id for draft in drafts_of(small.training)} == set(questions.loc[~val, "id"])


def test_no_label_is_in_a_prompt(small):
    questions = small.training.questions
    shuffled = questions.assign(
        outcome=np.roll(questions["outcome"].to_numpy(), 7),
        reference_paths=[[] for _ in range(len(questions))],
        reference_text="nothing",
    )
    before = drafts_of(small.training, RuleTexts())
    after = drafts_of(replace(small.training, questions=shuffled), RuleTexts())
    assert [one.messages for one in before] == [one.messages for one in after]
    assert [one.text for one in before] != [one.text for one in after]


def test_every_reply_that_is_taught_is_read_back_as_what_it_says(small):
    for explain in (True, False):
        for draft in drafts_of(small.training, RuleTexts(explain=explain)):
            said = parse(draft.text.reply)
            assert (said.outcome, said.status, said.triplets) == (draft.text.outcome, "ok", draft.text.triplets)
            assert said.text == draft.text.explanation
            assert not explain or bool(draft.text.explanation) == bool(draft.text.triplets)


def test_a_model_is_taught_sentences_only_where_it_is_told_to_explain(small):
    for explain in (True, False):
        model = SFT(start="tiny", preset="cell_path", reasons="rule", explain=explain).prepare(small.training)
        told = [draft.text.explanation for draft in draft_examples(model, small.training, model.texts())]
        assert any(told) == explain


def test_a_rule_takes_the_first_path_of_a_change_and_one_of_each_sign_of_none(small):
    up, down = (("G0", "activates", "G2"),), (("G0", "inhibits", "G1"), ("G1", "activates", "G2"))
    row = small.training.questions.iloc[:1].assign(perturbation="G0 CRISPRa")
    texts = RuleTexts()
    (record,) = [one.record for one in drafts_of(small.training) if one.record.id == row["id"].iloc[0]]
    starts = {"G0": dict(record.targets)["G0"]}
    assert starts == {"G0": 1}

    def told(outcome, references):  # type: ignore[no-untyped-def]
        table = row.assign(outcome=outcome, reference_paths=[references], reference_text="because")
        return texts.write([record], table)[0]

    assert told("up", [up, (("G0", "affects", "G2"),)]).triplets == up
    assert told("no_change", [up, down]).triplets == (*up, *down)
    bare = told("down", [])
    assert (bare.triplets, bare.explanation, bare.source) == ((), "", "outcome")
    assert texts.account() == {"sources": {"outcome": 1, "rule": 2}}


def test_reasons_want_paths_laid_over_the_fold():
    bare = toy.make_toy(paths=False)
    model = SFT(start="tiny", reasons="rule")
    assert "paths=own" in model.refuses(bare.training)
    with pytest.raises(UnsupportedError, match="reference paths"):
        drafts_of(bare.training, RuleTexts(), preset="no_path")
    assert SFT(start="tiny").refuses(bare.training) is None


def test_as_many_of_each_outcome_as_asked_for_and_the_same_whatever_their_order(small):
    some = drafts_of(small.training, per_outcome=20)
    assert Counter(draft.text.outcome for draft in some) == dict.fromkeys(OUTCOMES, 20)
    questions = small.training.questions
    turned = replace(small.training, questions=questions.iloc[::-1].reset_index(drop=True))
    assert [draft.record.id for draft in drafts_of(turned, per_outcome=20)] == [draft.record.id for draft in some]
    other = drafts_of(toy.seeded(small.training, 1), per_outcome=20)
    assert [draft.record.id for draft in other] != [draft.record.id for draft in some]


def test_only_questions_that_paths_lead_to_are_learnt_from_where_that_is_asked_for(small):
    every, reached = drafts_of(small.training), drafts_of(small.training, reached=True)
    assert {draft.record.id for draft in reached} == {draft.record.id for draft in every if draft.record.paths}
    assert 0 < len(reached) < len(every)
    bare = toy.make_toy(paths=False).training
    assert "no candidate paths" in SFT(start="tiny", reached=True).refuses(bare)
    assert SFT(start="tiny").refuses(bare) is None


def test_what_is_too_long_is_left_out_and_counted_by_class(small, tokenizer, caplog):
    drafts = drafts_of(small.training, RuleTexts(explain=False))
    everything = tokenised(drafts, tokenizer, max_length=512)
    limit = int(np.median([len(one) for one in everything.items]))
    with caplog.at_level(logging.WARNING, "pertbase"):
        kept = tokenised(drafts, tokenizer, max_length=limit)
    assert kept.longest <= limit
    for outcome in OUTCOMES:
        count = kept.counts[outcome]
        lengths = [len(one) for one in everything.items if one.outcome == outcome]
        assert count == {
            "questions": len(lengths),
            "kept": sum(length <= limit for length in lengths),
            "too_long": sum(length > limit for length in lengths),
        }
    assert f"longer than {limit} tokens" in caplog.text
    # Nothing is cut off: what is kept is what it was.
    whole = {one.id: one for one in everything.items}
    assert all(np.array_equal(one.prompt_ids, whole[one.id].prompt_ids) for one in kept.items)


def test_prompts_that_are_all_too_long_are_refused_with_counts_and_the_length_that_would_do(small, tokenizer):
    drafts = drafts_of(small.training)
    shortest = min(len(one) for one in tokenised(drafts, tokenizer, max_length=512).items)
    with pytest.raises(InputError, match=rf"every prompt of train.*212 no_change.*baseline\.max_length={shortest} or"):
        tokenised(drafts, tokenizer, max_length=shortest - 1)
    assert len(tokenised(drafts, tokenizer, max_length=shortest)) > 0


def test_weights_make_classes_count_alike(small, tokenizer):
    made = tokenised(drafts_of(small.training), tokenizer, max_length=512)
    share = {outcome: sum(one.weight for one in made.items if one.outcome == outcome) for outcome in OUTCOMES}
    assert np.allclose(list(share.values()), len(made) / 3)
    assert class_weights(["up", "up", "down", "down"]) == {"up": 1.0, "down": 1.0}
    plain = tokenised(drafts_of(small.training), tokenizer, max_length=512, balance="none")
    assert {one.weight for one in plain.items} == {1.0}


def test_an_outcome_that_train_does_not_have_is_told_and_recorded(caplog):
    small = toy.make_toy(missing="up")
    with caplog.at_level(logging.WARNING, "pertbase"):
        model = toy.fitted(small.training, max_epochs=1)
    assert "no question whose outcome is up" in caplog.text
    assert model.account()["learnt"]["never_shown"] == ["up"]


def test_a_context_longer_than_the_model_takes_is_refused(small):
    model = SFT(start="tiny", tiny={**toy.TINY, "positions": 128}, max_length=256, template="short")
    with pytest.raises(InputError, match=r"max_length.*takes 128 tokens"):
        model.prepare(small.training).material(small.training)
