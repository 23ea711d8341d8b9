"""What models write where JSON was asked for: slips that are mended, halves of characters, and degenerate replies."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.baselines.llm import parse
from pertbase.baselines.llm._parsing._parse import answer_place
from pertbase.folds import STATUSES, Answers
from pertbase.knowledge import Triplet

T = '"triplets": [["A", "activates", "B"]]'
MENDED = {
    # within strings
    f'{{{T}, "explanation": "one\ntwo", "answer": "up"}}': "up",
    f'{{{T}, "explanation": "one\ttwo", "answer": "up"}}': "up",
    f'So: {{{T}, "explanation": "one\r\ntwo", "answer": "up",}}': "up",
    f'{{{T}, "answer": "no\\_change"}}': "no_change",
    f'{{{T}, "explanation": "A\\\'s loss", "answer": "up"}}': "up",
    # comments and commas
    f'{{{T}, # one edge\n "answer": "up"}}': "up",
    f'{{# one edge\n{T}, "answer": "up", # so\n}}': "up",
    f'{{{T}, "explanation": "# none, // none, /* none */,]", "answer": "up",}}': "up",
    f'{{{T}, // "answer": "down"\n "answer": "up"}}': "up",
    # Python
    "{'triplets': [('A', 'activates', 'B')], 'answer': 'up'}": "up",
    "{'triplets': (('A', 'activates', 'B'),), 'answer': 'up', 'more': None}": "up",
    "{'triplets': [['A', 'activates', 'B']], 'explanation': \"A's loss\", 'answer': 'up'}": "up",
    # other quotes, and none
    "{“triplets”: [[“A”, “activates”, “B”]], “answer”: “up”}": "up",
    '{triplets: [["A", "activates", "B"]], answer: "up"}': "up",
    f'{{{T}, "answer": down}}': "down",
    # where it stands
    f'Consider the set {{A, B.\n{{{T}, "answer": "up"}}': "up",
    f'}} {{A, B}} and {{{{{{ {{{T}, "answer": "up"}}': "up",
    f'{{{T}}}\n{{"answer": "up"}}': "up",
    f'{{{T}}} so {{"answer": "up"}}, I repeat: {{"answer": "up"}}': "up",
    f'{{"answer": "up"}} since {{{T}}}': "up",
    f'{{"response": {{{T}, "answer": "up"}}}}': "up",
    f'[{{{T}, "answer": "up"}}]': "up",
    f'<answer>{{{T}, "answer": "up"}}</answer>': "up",
    f'<answer>{{{T.replace("activates", "increases")}, "answer": "down"}}</answer>': "down",
    f'\ufeff{{{T}, "answer": "up"}}': "up",
    # what stands as the answer
    f'{{{T}, "answer": ["up"]}}': "up",
    f'{{{T}, "answer": ["no_change", "no change"]}}': "no_change",
    f'{{{T}, "answer": {{"outcome": "up"}}}}': "up",
    f'{{{T}, "answer": "\\\\boxed{{up}}"}}': "up",
    f'{{{T}, "answer": "↓"}}': "down",
    f'{{{T}, "n": {"9" * 5_000}, "answer": "up"}}': "up",
    '{"triplets": [["A", "activates", "B"], {"answer": "down"}], "answer": "up"}': "up",
    '{"triplets": [["A", "activates", "B"], {"answer": "down"}], "answer": "up",}': "up",
    f'{{{T}, "explanation": "a", "explanation": "b", "answer": "up"}}': "up",
}
"""Replies that hold one triplet, and what they say."""


@pytest.mark.parametrize("text", list(MENDED))
def test_slips_are_mended_and_the_reason_is_kept(text):
    found = parse(text)
    assert (found.outcome, found.triplets[0].tail, len(found.triplets)) == (MENDED[text], "B", 1)


def test_line_ends_and_tabs_within_strings_are_no_slips():
    assert parse(f'{{{T}, "explanation": "one\ntwo\tthree", "answer": "up"}}').rung == "json"


@pytest.mark.parametrize("text", [text for text in MENDED if "response" not in text])
def test_the_answer_begins_where_it_stands_slips_or_none(text):
    begun = text[answer_place(text) :].replace("\\", "")
    assert begun.startswith(("↓", "boxed{up", MENDED[text]))
    assert not begun.startswith("up") or '"up' in text or "'up" in text or "“up" in text


@pytest.mark.parametrize(
    "answer",
    [
        '["up", "down"]',
        '"up", "answer": "down"',
        '"up", "Answer": "down"',
        '{"answer": ["up", "down"]}',
        '"up"} {"answer": "down"',
    ],
)
def test_answers_that_differ_conflict_wherever_they_stand(answer):
    found = parse(f'{{{T}, "answer": {answer}}}')
    assert found.outcome is None
    assert found.status in ("conflicting", "no_answer")


@pytest.mark.parametrize("answer", ["[]", "[1]", "null", "None", "1", "{}", '[["up"]]', "true", "[null]"])
def test_what_is_no_text_answers_nothing(answer):
    assert parse(f'{{{T}, "answer": {answer}}}').status == "no_answer"
    assert parse(f'{{"answer": {answer}, {T}}}').status == "no_answer"


@pytest.mark.parametrize(
    "text",
    ['{"answer": outcome}', "{answer}", '{"answer": "up"', '{"answer" "up"}', "{'answer': 'up}", '{"answer": "up" /* }',
     '{"triplets": [[head, relation, tail], ...], "answer": "up"}', '{"answer": __import__("os")}'],
)  # fmt: skip
def test_what_cannot_be_mended_is_no_answer(text):
    assert parse(text).outcome is None


def test_what_was_cut_off_within_its_answer_is_none():
    for text in (
        "Answer: up or",
        "Answer: it may be increased in",
        "So up",
        '{"answer": "up',
        "<answer>up",
        "\\boxed{up",
    ):
        assert parse(text, finish="length").status == "truncated"
    assert parse("Answer: up", finish="length").outcome == "up"
    assert parse("Answer: it is up\nMore", finish="length").outcome == "up"


def test_what_the_server_never_answered_is_no_answer_and_not_empty():
    assert parse("", finish="rejected").status == "no_answer"
    assert parse("").status == "empty"
    assert parse(None).status == "empty"
    assert answer_place('{"answer": "up"}', finish="rejected") is None


def test_a_number_has_no_place_for_an_answer():
    assert answer_place(f'{{"answer": 1, {T}}}') is None


# -- characters ---------------------------------------------------------------------------------------------

HALVES = ["\ud83d", "\ude00", "\ud83dA", "\ude00\ud83d"]
FORMS = [
    '{{"triplets": [["{0}", "activates", "B"]], "explanation": "{0}", "answer": "up"}}',
    'So: {{"triplets": [["{0}", "activates", "B"],], "explanation": "{0}", "answer": "up"}}',
    "{{'triplets': [('{0}', 'activates', 'B')], 'explanation': '{0}', 'answer': 'up'}}",
    '{{"triplets": [["{0}", "activates", "B"]], "explanation": "{0}"}}\nAnswer: up',
    '<think>{0}</think>[["{0}", "activates", "B"]] {{',
]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("escaped", [True, False])
def test_half_a_character_is_replaced_wherever_it_is_written(half, form, escaped, tmp_path):
    name = f"A{half}"
    found = parse(form.format(json.dumps(name)[1:-1] if escaped else name))
    (triplet,) = found.triplets
    triplet.head.encode()
    found.text.encode()
    if not (escaped and form.startswith("<think>")):
        assert triplet.head == "A" + "".join("\ufffd" if "\ud800" <= one < "\ue000" else one for one in half)
    assert triplet[1:] == ("activates", "B")


@pytest.mark.parametrize("form", FORMS[:4])
def test_two_halves_are_one_character(form):
    found = parse(form.format("\\ud83d\\ude00A"))
    assert (found.triplets, found.text) == ((Triplet("😀A", "activates", "B"),), "😀A")


def test_half_a_character_in_a_reason_without_triplets_is_replaced():
    assert parse('{"reason": "A\\ud83d", "answer": "up"}').text == "A\ufffd"


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=20).filter(str.strip))
@settings(max_examples=200, deadline=None)
def test_any_reason_can_be_written(name):
    found = parse(json.dumps({"triplets": [[name, "activates", "B"]], "explanation": name, "answer": "up"}))
    for part in (*found.triplets[0], found.text):
        assert part.encode().decode() == part
    table = pd.DataFrame({"id": ["q"], "outcome": ["up"]})
    reasons = pd.DataFrame({"id": ["q"], "triplets": [found.triplets], "text": [found.text]})
    assert Answers(table, reasons).reasons["triplets"][0] == found.triplets


# -- long ones ----------------------------------------------------------------------------------------------

UNITS = [
    "\n", " ", "- \n", "* \n", "> - ", "{", "}", "[", '"', "\\", '\\"', "{a}", '{"a": ', '", /* "', "/*", "#", "``` \n",
    "<think>", "</think>", "<answer>", "</answer>", "[THINK]", "◁think▷", "<reasoning>", "<|end|>", "assistantfinal",
    "<|channel|>analysis<|message|>", '{"x": "<think>"} ', '</think>{"x": 1}', "answer:\n", "Answer: ", "```\n",
    '{"answer": "up"}', '["A", ', '["A", "activates", "B"], ', "\\boxed{", "not ", "up or ", "no a ", "without any ",
    "because ", "repressor ", "increase in ", "in of the ", "if ", "n't ", "\\ud83d", "A1", ", ", "'", "“", "up (",
    "the final answer ",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_degenerate_replies_are_read(unit):
    # A model that repeats itself until it is cut off. Where time grows with the square, this takes minutes.
    text = (unit * (200_000 // len(unit) + 1))[:200_000]
    for reply in (f"a{text}b", f"Answer: {text}", f'{{"answer": "{text}'):
        assert parse(reply, finish="length").status in STATUSES
    assert parse(text, thought_begun=True).status in STATUSES
    answer_place(f"a{text}b")
