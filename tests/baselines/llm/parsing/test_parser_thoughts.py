"""Thoughts are never searched for an answer: whose tags they bear, who opened them, and what only mentions a tag."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.baselines.llm import parse
from pertbase.baselines.llm._parsing._parse import answer_place
from pertbase.baselines.llm._parsing._thoughts import without_thoughts
from pertbase.folds import STATUSES

TAGS = [
    ("<think>", "</think>"),
    ("<THINKING>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("analysis", "assistantfinal"),
]
DRAFTS = [
    'We draft {"triplets": [], "answer": "down"}. But wait',
    "We think.\nAnswer: down?\nNo, the sign is wrong, let me",
    "We say <answer>down</answer>, or do we",
    "We say \\boxed{down}, or do we",
    "We cannot close { nor \" this, {'answer': 'down'} and",
    "We go down",
    "",
]
REPLIES = ['{"triplets": [["A", "activates", "B"]], "answer": "up"}', "Answer: up", "<answer>up</answer>", "up"]


# "analysis" and an answer is a word, and no mark of a channel.
@pytest.mark.parametrize(
    ("opens", "closes", "draft"),
    [(*pair, draft) for pair in TAGS for draft in DRAFTS if draft or pair[0] != "analysis"],
)
@pytest.mark.parametrize("reply", REPLIES)
def test_what_follows_a_thought_is_read_and_nothing_else(opens, closes, draft, reply):
    thought = f"{opens}{draft}{closes}"
    for text in (f"{thought}{reply}", f"\n{thought}\n\n{reply}\n", f"{draft}{closes}{reply}"):
        found = parse(text)
        assert (found.outcome, len(found.triplets)) == ("up", reply.count("activates"))
        assert text[answer_place(text) :].startswith("up")
    # and where the prompt had opened it
    for text in (f"{draft}{closes}{reply}", f"{draft} and on\n{closes}\n{reply}"):
        assert parse(text, thought_begun=True).outcome == "up"
        assert text[answer_place(text, thought_begun=True) :].startswith("up")


@pytest.mark.parametrize(("opens", "closes"), TAGS)
@pytest.mark.parametrize("draft", [draft for draft in DRAFTS if draft])
def test_a_thought_that_does_not_end_comes_to_no_answer(opens, closes, draft):
    for finish in ("stop", "length"):
        assert parse(opens + draft, finish=finish).status == "truncated"
        assert parse(f"So. {opens if opens != 'analysis' else '<think>'}{draft}", finish=finish).status == "truncated"
        assert answer_place(opens + draft, finish=finish) is None
    assert parse(opens + draft + closes).status == "empty"
    assert parse(f"{opens}{draft}{closes}\n", finish="length").status == "truncated"


@pytest.mark.parametrize("draft", [draft for draft in DRAFTS if draft])
def test_all_is_thought_where_the_prompt_opened_it_until_it_ends(draft):
    for text in (draft, f"<think>\n{draft}", f"{draft} <reasoning>so</reasoning> and\n{draft}"):
        assert parse(text, finish="length", thought_begun=True).status == "truncated"
        assert parse(text, thought_begun=True).outcome is None
        assert parse(text, thought_begun=True).status in ("no_answer", "truncated")
        assert answer_place(text, thought_begun=True) is None
    assert parse(draft, thought_begun=True).status == "no_answer"
    assert parse(f"{draft}</think>", thought_begun=True).status == "empty"
    assert parse(f"<think>{draft}</think>\nup", thought_begun=True).outcome == "up"
    assert parse(f"{draft}</think>\nup <think>{draft}", thought_begun=True).outcome is None


@pytest.mark.parametrize("reply", [REPLIES[0], f"```json\n{REPLIES[0]}\n```"])
def test_a_reply_in_form_and_nothing_else_was_no_thought(reply):
    assert parse(reply, thought_begun=True).outcome == "up"
    assert reply[answer_place(reply, thought_begun=True) :].startswith("up")
    # but a draft of it was, and so was one that ran on
    assert parse(reply, finish="length", thought_begun=True).status == "truncated"
    for draft in (f"So: {reply}", f"{reply} No.", f"{reply}</think>"):
        assert parse(draft, thought_begun=True).outcome is None


@pytest.mark.parametrize("tag", [tag for pair in TAGS[:-1] for tag in pair])
def test_a_tag_within_a_json_string_is_what_the_string_says(tag):
    said = f"no {tag} here"
    for slip in ("", ","):
        item = f'{{"triplets": [["A", "activates", "B"]], "explanation": "{said}", "answer": "up"{slip}}}'
        for text in (item, f"So: {item}", f"```json\n{item}\n```", f"<think>so</think>{item}", f"{item} That is all."):
            found = parse(text)
            assert (found.outcome, found.text, len(found.triplets)) == ("up", said, 1)
            assert text[answer_place(text) :].startswith("up")


@pytest.mark.parametrize(("opens", "closes"), TAGS[:9])
@pytest.mark.parametrize(
    "reply", [REPLIES[0], f"```json\n{REPLIES[0]}\n```", REPLIES[0].replace("]]", "]],")[:-1] + ",}"]
)
def test_tags_behind_a_reply_in_form_take_nothing_from_it(opens, closes, reply):
    reply = reply.replace(",,", ",")
    for behind in (
        closes,
        f"\n{closes}\n",
        f"\n{opens}\n{closes}",
        f"{opens}But wait: {DRAFTS[0]}{closes}",
        f"\n{opens}But wait",
    ):
        assert parse(reply + behind).outcome == "up"
    # prose before a closing tag is a thought, whatever stands in it
    assert parse(f"{DRAFTS[0]} no.{closes}").status == "empty"


def test_thoughts_within_thoughts_are_thoughts():
    reply = REPLIES[0]
    for text in (
        f'<think>a <think>b</think> {{"answer": "down"}}</think>{reply}',
        f'<think>a <reasoning>b</reasoning> {{"answer": "down"}}</think>{reply}',
        f'<think>a [THINK] {{"answer": "down"}}</think>{reply}',
        f"<think>a</think><reasoning>Answer: down</reasoning>{reply}",
    ):
        assert parse(text).outcome == "up"
    assert parse(f"<think><reasoning>b</reasoning> {reply} and", finish="length").status == "truncated"


def test_marks_of_messages_are_no_part_of_them():
    assert (
        parse("<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>up<|return|>").outcome
        == "up"
    )
    assert all(parse(reply + "<|end|>").outcome == "up" for reply in REPLIES)


@given(
    st.lists(st.sampled_from([*(tag for pair in TAGS for tag in pair), *DRAFTS, *REPLIES, "{", '"', "\n"]), max_size=12)
)
@settings(max_examples=300, deadline=None)
def test_of_any_order_of_tags_places_stay_what_they_are(pieces):
    text = "".join(pieces)
    for begun in (False, True):
        assert parse(text, thought_begun=begun).status in STATUSES
        seen = without_thoughts(text, begun=begun, stopped=True)
        assert seen is None or len(seen) == len(text)
        assert seen is None or all(one in (other, " ") for one, other in zip(seen, text, strict=True))
        place = answer_place(text, thought_begun=begun)
        assert place is None or 0 <= place <= len(text)
