"""Where the answer of a reply begins, so that the reply can be gone on with by each outcome."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messy_replies import READ

from pertbase.baselines.llm import parse
from pertbase.baselines.llm._parsing._parse import answer_place
from pertbase.baselines.llm._prompts import reply_of
from pertbase.folds import OUTCOMES
from pertbase.knowledge import Triplet

NAMES = ("NOTCH1", "UPP1", "DOWN", "UP", "NO66", "A", "B")


def gone_on_with(text, place, outcome):
    """The reply with another answer in the place of its own, and an end."""
    begun = text[:place]
    tagged = begun.rfind("<answer>") > begun.rfind("</answer>") >= -1 and "<answer>" in begun
    end = "</answer>" if tagged else {'"': '"}', "'": "'}"}.get(begun[-1:], "")
    return begun + outcome + end


@pytest.mark.parametrize("text", [text for text, said in READ.items() if said in OUTCOMES])
def test_a_reply_that_is_read_goes_on_with_any_outcome_where_its_answer_begins(text):
    place = answer_place(text, names=NAMES)
    value = re.split(r"[\"'<\n]", text[place:])[0]
    assert parse(f"Answer: {value}", names=NAMES).outcome == READ[text]
    for outcome in OUTCOMES:
        assert parse(gone_on_with(text, place, outcome), names=NAMES).outcome == outcome


@pytest.mark.parametrize("text", [text for text, said in READ.items() if said in ("truncated", "refusal", "empty")])
def test_what_comes_to_no_answer_has_no_place_for_one(text):
    assert answer_place(text) is None
    assert answer_place('{"triplets": [], "answer": "up"}', finish="refusal") is None


@given(st.sampled_from(OUTCOMES), st.lists(st.tuples(*[st.text("AB\"'\\,x ", min_size=1, max_size=5)] * 3), max_size=3))
@settings(max_examples=100, deadline=None)
def test_cut_off_anywhere_a_reply_has_its_place_from_there_on_and_no_other(outcome, triplets):
    text = reply_of([Triplet(*one) for one in triplets], outcome)
    place = text.rindex(f'"{outcome}"') + 1
    for length in range(len(text) + 1):
        found = answer_place(text[:length], finish="length" if length < len(text) else "stop")
        assert found == (place if length >= place else None)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_of_any_text_the_place_is_within_it_or_none(text):
    assert (answer_place(text) or 0) in range(len(text) + 1)


def test_what_a_template_says_itself_is_no_place():
    line = '{"triplets": [["A", "activates", "B"]], "answer": "up"}'
    echo = f"Reply as here:\n{line}\n"
    assert answer_place(echo) == echo.index("up")
    assert answer_place(echo, template_lines={line}) is None
    reply = '{"triplets": [], "answer": "down"}'
    assert answer_place(echo + reply, template_lines={line}) == len(echo) + reply.index("down")
