from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messy_replies import READ

from pertbase.baselines.llm import Parsed, parse, self_consistent
from pertbase.baselines.llm._parsing._replies import _own_lines
from pertbase.baselines.llm._prompts import read_template, reply_of
from pertbase.folds import OUTCOMES, STATUSES
from pertbase.knowledge import Triplet


@pytest.mark.parametrize("text", list(READ))
def test_messy_text_is_read_as_it_says(text):
    names = ("DOWN", "UP") if "UP is reduced" in text else ("NOTCH1", "UPP1", "NO66")
    found = parse(text, names=names)
    assert (found.outcome or found.status) == READ[text]
    assert (found.outcome is not None) == (found.status == "ok")


def test_what_was_cut_off_is_truncated_unless_the_answer_was_there():
    assert parse('{"triplets": [["A", "acti', finish="length").status == "truncated"
    assert parse("so it goes up and", finish="length").status == "truncated"
    assert parse('{"triplets": [], "answer": "up"}\nMoreover', finish="length").outcome == "up"
    assert parse('{"answer": "up", ', finish="stop").status == "invalid"


def test_a_refusal_by_the_server_is_one_whatever_was_written():
    for finish in ("content_filter", "refusal"):
        assert parse('{"answer": "up"}', finish=finish) == Parsed(None, "refusal")


@pytest.mark.parametrize("preset", ["no_path", "global_path", "cell_path"])
def test_the_template_echoed_is_no_answer(preset):
    template = read_template(None, preset)
    echoed = template.sections["reply"].replace("$gene", "G1").replace("$examples", "").replace("$question", "")
    assert parse(echoed, template_lines=_own_lines(template)).outcome is None
    both = echoed + "\n" + reply_of([Triplet("A", "inhibits", "B")], "down")
    assert parse(both, template_lines=_own_lines(template)).outcome == "down"


def test_triplets_are_kept_and_what_is_none_is_counted():
    members = [
        ["A", "activates", "B"],
        {"head": "B", "relation": "inhibits", "tail": " C "},
        ["A", "B"],
        "A->B",
        [1, 2, 3],
        ["", "x", "y"],
    ]
    found = parse(json.dumps({"triplets": members, "explanation": "because", "answer": "down"}))
    assert found.triplets == (Triplet("A", "activates", "B"), Triplet("B", "inhibits", "C"))
    assert (found.dropped, found.text, found.outcome) == (4, "because", "down")


def test_of_a_reply_that_was_cut_off_the_triplets_written_whole_are_kept():
    cut = '{"triplets": [["A", "activates", "B"], ["B", "inhibits", " C "], ["C", "acti'
    found = parse(cut, finish="length")
    assert (found.outcome, found.status) == (None, "truncated")
    assert found.triplets == (Triplet("A", "activates", "B"), Triplet("B", "inhibits", "C"))
    assert parse(cut).status == "invalid"
    assert parse("<think>" + cut, finish="length").triplets == ()


def test_a_reason_beside_an_answer_line_is_found():
    found = parse('{"triplets": [["A", "activates", "B"]]}\nAnswer: up')
    assert (found.outcome, found.triplets) == ("up", (Triplet("A", "activates", "B"),))


def test_deep_and_huge_replies_are_read_in_time():
    assert parse("{" * 100_000).status == "invalid"
    assert parse("[" * 100_000 + '{"answer": "up"}').outcome == "up"
    assert parse('{"a":' * 5_000 + "1" + "}" * 5_000).status in ("invalid", "no_answer")
    assert parse("not " * 50_000 + "up").status == "invalid"
    assert parse("Answer: " + "not " * 20_000 + "up").status in STATUSES


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_as_one_status(text):
    found = parse(text)
    assert found.status in STATUSES
    assert (found.outcome in OUTCOMES) == (found.status == "ok")


@given(
    st.sampled_from(OUTCOMES),
    st.lists(st.tuples(*[st.text(min_size=1, max_size=8).filter(str.strip)] * 3), max_size=5),
)
@settings(max_examples=200, deadline=None)
def test_a_reply_in_the_form_asked_for_comes_back_as_it_was(outcome, triplets):
    found = parse(reply_of([Triplet(*one) for one in triplets], outcome))
    assert (found.outcome, found.rung) == (outcome, "json")
    assert found.triplets == tuple(Triplet(*(part.strip() for part in one)) for one in triplets)


# -- votes --------------------------------------------------------------------------------------------------


def said(*words):
    return [Parsed(word, "ok") if word in OUTCOMES else Parsed(None, word) for word in words]


@pytest.mark.parametrize(
    ("words", "outcome", "status"),
    [
        (["up", "invalid", "invalid", "invalid"], "up", "ok"),
        (["up", "down", "down"], "down", "ok"),
        (["invalid", "truncated", "truncated"], None, "truncated"),
        (["up", "no_change"], "no_change", "ok"),
        (["up", "down"], "down", "ok"),
    ],
)
def test_only_valid_samples_vote(words, outcome, status):
    found = self_consistent(said(*words))
    assert (found.outcome, found.status) == (outcome, status)


def test_a_tie_goes_to_the_larger_option_score():
    assert self_consistent(said("up", "no_change"), np.array([0.6, 0.1, 0.3])).outcome == "up"
    # but no score outvotes a sample
    assert self_consistent(said("up", "no_change", "no_change"), np.array([0.99, 0.005, 0.005])).outcome == "no_change"


def test_the_reason_is_that_of_a_sample_with_the_outcome():
    one, two = (
        Parsed("up", "ok", (Triplet("A", "activates", "B"),)),
        Parsed("down", "ok", (Triplet("C", "inhibits", "D"),)),
    )
    assert self_consistent([one, two, two]).triplets == two.triplets
