"""Scores after a taught model's own reasons: those of its weights, in the replies that answer, and of nobody else."""

from __future__ import annotations

import finetuned_toy as toy
import numpy as np
import pytest
import torch

from pertbase.baselines.finetuned import SFT
from pertbase.baselines.llm import parse
from pertbase.folds import OUTCOMES, SCORES


@pytest.fixture(scope="module")
def taught(reasoned):  # type: ignore[no-untyped-def]
    """What was taught reasons, and its weights as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = toy.exported_to(reasoned[1])
    return where, AutoModelForCausalLM.from_pretrained(where).eval(), AutoTokenizer.from_pretrained(where)


def asked_after(taught, training, **options):  # type: ignore[no-untyped-def]
    """The same weights, whose scores are taken after reasons."""
    options = {"preset": "cell_path", "max_epochs": 0, "scores_after": "reason", **options}
    return toy.fitted(training, start=str(taught[0]), **options)


def by_hand(taught, prompt, text):  # type: ignore[no-untyped-def]
    """The scores in a reply, from the logits after its text up to the answer, computed plainly."""
    _, network, tokenizer = taught
    turns = [{"role": role, "content": content} for role, content in prompt]
    asked = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    begun = text[: text.index('"answer": "') + len('"answer": "')]
    ids = tokenizer.encode(asked, add_special_tokens=False) + tokenizer.encode(begun, add_special_tokens=False)
    with torch.no_grad():
        logits = network(torch.tensor([ids])).logits[0, -1].double()
    first = [tokenizer.encode(outcome, add_special_tokens=False)[0] for outcome in OUTCOMES]
    return torch.softmax(logits[first], dim=0).numpy()


def test_scores_are_those_of_the_outcomes_in_its_own_reply_and_the_likeliest_is_what_it_replied(taught, small):
    model = asked_after(taught, small.training)
    answers = model.answer(small.inputs).table
    scores = answers[list(SCORES)].to_numpy(dtype=float)
    records = model.records(small.inputs)
    replies = model.ask(model.reply_requests(records))
    for prompt, reply, row in zip(model.prompts(records), replies, scores, strict=True):
        np.testing.assert_allclose(row, by_hand(taught, prompt, reply.text), atol=1e-5)
    said = (answers["status"] == "ok").to_numpy()
    assert said.sum() > 45
    assert [OUTCOMES[code] for code in scores[said].argmax(axis=1)] == answers.loc[said, "outcome"].tolist()
    without = toy.fitted(small.training, start=str(taught[0]), preset="cell_path", max_epochs=0).answer(small.inputs)
    assert np.abs(scores - without.table[list(SCORES)].to_numpy(dtype=float)).max() > 0.1


def test_over_several_samples_scores_are_the_mean_over_their_reasons(taught, small):
    model = asked_after(taught, small.training, samples=3, temperature=1.0)
    records = model.records(small.inputs)[:12]
    parsed, scores = model.said(records)
    replies = model.ask(model.reply_requests(records))
    n_reasons, n_records = 0, 0
    for row, prompt in enumerate(model.prompts(records)):
        part = replies[3 * row : 3 * row + 3]
        whole = [reply.text for reply in part if '"answer": "' in reply.text]
        if not all(parse(text).rung == "json" for text in whole):
            continue
        n_records += 1
        n_reasons += len({text[: text.index('"answer"')] for text in whole})
        expected = np.mean([by_hand(taught, prompt, text) for text in whole], axis=0)
        np.testing.assert_allclose(scores[row], expected, atol=1e-5)
        votes = [parse(reply.text, finish=reply.finish).outcome for reply in part]
        assert parsed[row].outcome is None or parsed[row].outcome in votes
    assert n_reasons > n_records > 5


def test_adapters_are_fitted_to_what_it_replies_to_val_as_test_is_answered(taught, small):
    from pertbase.adapters import held_out

    model = asked_after(taught, small.training)
    kept = held_out(model, small.training, minimum=0)
    assert kept.how == "val"
    inputs = small.training.inputs("val")
    records = model.records(inputs)
    replies = zip(inputs.questions["id"], model.ask(model.reply_requests(records)), strict=True)
    said = {name: parse(reply.text, finish=reply.finish).outcome for name, reply in replies}
    spoken = kept.questions.loc[kept.speaks, "id"].tolist()
    assert spoken == [name for name in kept.questions["id"] if said[name] is not None]
    assert 0 < len(spoken) < len(said)
    assert [OUTCOMES[code] for code in kept.values.argmax(axis=1)] == [said[name] for name in spoken]


@pytest.mark.parametrize(("name", "after"), [("sft_reasoned", "reason"), ("grpo", "reason"), ("sft_outcome", "prompt")])
def test_what_is_taught_or_rewarded_for_reasons_is_scored_after_them(name, after):
    from pertbase.runs._compose import compose
    from pertbase.runs._execute import instantiate
    from pertbase.runs._names import Names

    assert instantiate(compose([f"baseline={name}"], Names(()))["baseline"], "baseline").scores_after == after
    assert SFT().scores_after == "prompt"
