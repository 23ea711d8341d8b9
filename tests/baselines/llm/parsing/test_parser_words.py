"""Which outcome a phrase names: what is negated, hedged or said of something else names none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertbase.baselines.llm import parse
from pertbase.baselines.llm._parsing._words import outcomes_in
from pertbase.folds import OUTCOMES

WORDS = {
    "up": ("up", "upregulated", "up-regulated", "increased", "higher", "induced", "elevated"),
    "down": ("down", "downregulated", "down-regulated", "decreased", "lower", "repressed", "reduced"),
}
ALL = [(outcome, word) for outcome, words in WORDS.items() for word in words]

NEGATED = (
    "it is not {}",
    "it isn't {}",
    "it isn’t {}",
    "it isnt {}",
    "it cannot be {}",
    "it can't be {}",
    "it cant be {}",
    "it doesn't get {}",
    "it doesnt get {}",
    "it wont be {}",
    "it fails to be {}",
    "it failed to become {}",
    "it is unable to be {}",
    "it is unlikely to be {}",
    "it is highly unlikely that it is {}",
    "it would not be expected to be strongly {}",
    "it is not, I think, {}",
    "it is no longer {}",
    "it is never {}",
    "it is hardly {}",
    "it is far from {}",
    "it is anything but {}",
    "it is non-{}",
    "it is less {}",
    "without any {} signal",
    "rather than being {}, it stays",
    "instead of being {}, it stays",
    "no evidence that it is {}",
    "this rules out that it is {}",
    "this prevents it from being {}",
    "there is evidence against it being {}",
    "{} is unlikely",
    "{} is not expected",
    "{} can be ruled out",
    "{} would be impossible",
)
HEDGED = (
    "maybe {}",
    "Perhaps {}.",
    "possibly {}",
    "it may be {}",
    "it might be {}",
    "it could be {}",
    "{}?",
    "is it {}?",
    "if anything changed it would be {}",
    "whether it is {} depends",
    "Not sure. Maybe {}.",
    "not sure, {}",
    "unclear: {}",
    "It depends on the cell; {}",
    "It cannot be determined; {} or stay",
    "I can't tell if it is {}",
    "I do not know whether it is {}",
    "it is hard to say that it is {}",
    "{} or not",
)


@pytest.mark.parametrize("phrase", NEGATED + HEDGED)
def test_what_is_negated_or_hedged_is_no_answer(phrase):
    for text in [phrase.format(word) for _, word in ALL]:
        answers_nothing(text)


def answers_nothing(text):
    for reply in (f"Answer: {text}", json.dumps({"triplets": [], "answer": text}), f"<answer>{text}</answer>"):
        found = parse(reply)
        assert found.outcome is None
        # "up or stay" are two
        assert found.status == "no_answer" or " or " in text
    assert parse(text).outcome is None


@pytest.mark.parametrize(
    "phrase", ["not {}", "it is unlikely to be {}", "anything but {}", "{} is unlikely", "maybe {}"]
)
@pytest.mark.parametrize("word", ["no_change", "no change", "unchanged"])
def test_no_change_is_negated_and_hedged_like_any_other(phrase, word):
    assert parse(f"Answer: {phrase.format(word)}").status == "no_answer"


@pytest.mark.parametrize(
    "text",
    [
        "STAT1 is de-repressed",
        "STAT1 is derepressed",
        "G1 is knocked down, so STAT1 is derepressed",
        "the knock-down of G1",
        "I give up",
        "set up not possible",
        "this was set up by others",
        "up to interpretation",
        "it is up to you",
        "it comes down to the cell",
        "the up-stream gene",
        "a down-stream target",
        "the lower bound",
        "of higher order",
        "ups and downs",
        "the repressor is reduced",
        "the repressor is reduced, therefore transcription is relieved",
        "its inhibitor goes up",
        "increase in repression",
        "reduced inhibition",
        "a lowered suppressor",
    ],
)
def test_what_only_looks_like_an_outcome_is_none(text):
    for reply in (f"Answer: {text}", json.dumps({"triplets": [], "answer": text})):
        assert parse(reply, names=("STAT1", "G1")).status == "no_answer"
    assert parse(text, names=("STAT1", "G1")).outcome is None


CLEAR = (
    "{}",
    "{}.",
    "**{}**",
    "It goes {}.",
    "it is {}",
    "it would be {}",
    "it is likely {}",
    "it is clearly {}",
    "no doubt it is {}",
    "not surprisingly, it is {}",
    "yes, {}",
    "{} (not no_change)",
    "{}, not no_change",
    "{} rather than unchanged",
    "{} instead of no change",
    "{}; no_change is unlikely",
    "not no_change but {}",
    "{} (low basal expression, above the lower bound)",
    "{} (levels are lower in some cells and higher in others)",
    "{}, because the repressor is lost",
    "{} because G1 is lower",
    "{} since its activator is higher",
    "as the repressor is reduced, it is {}",
    "{} although a repressor is there",
    "{}, but I am not sure",
    "\\boxed{{{}}}",
    "\\boxed{{\\text{{{}}}}}",
)


@pytest.mark.parametrize("phrase", CLEAR)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_is_clear_is_read_whatever_stands_beside_it(phrase, outcome):
    if outcome == "no_change" and ("unchanged" in phrase or "no_change" in phrase or "no change" in phrase):
        phrase = phrase.replace("no_change", "up").replace("no change", "up").replace("unchanged", "up")
    for word in {"no_change": ("no_change", "no\u00a0change", "unchanged")}.get(outcome, WORDS.get(outcome, ())):
        text = phrase.format(word)
        for reply in (f"Answer: {text}", json.dumps({"answer": text})):
            assert parse(reply, names=("G1",)).outcome == outcome, text


@pytest.mark.parametrize(("outcome", "word"), ALL)
def test_the_other_outcome_stands_where_one_is_negated(outcome, word):
    other = {"up": "down", "down": "up"}[outcome]
    for phrase in (
        f"not {word} but {other}",
        f"cannot be {word}; {other}",
        f"{other}, not {word}",
        f"{word} is unlikely, {other}",
    ):
        assert parse(f"Answer: {phrase}").outcome == other
    assert parse(f"Answer: {other} because {word} is something else").outcome == other


@pytest.mark.parametrize(
    "text",
    [
        "neither up nor down",
        "neither goes up nor goes down",
        "neither up- nor down-regulated",
        "not significantly increased or decreased",
        "not upregulated, downregulated or changed",
        "no significant change",
        "it doesn't change",
        "it doesnt change",
        "it cannot be affected",
        "it is unlikely to change",
        "it fails to respond",
        "lack of effect",
        "stays the same",
    ],
)
def test_what_denies_every_change_is_no_change(text):
    assert parse(f"Answer: {text}").outcome == "no_change"


@pytest.mark.parametrize(
    "text",
    ["up, down or no_change", "up/down", "up or down", "up. Actually down.", "up (or down)", "up (wait, down)",
     "up, no change", "increased and decreased", "up [or no_change]", "up because of G1, but down"],
)  # fmt: skip
def test_two_outcomes_are_never_one(text):
    assert parse(f"Answer: {text}").outcome is None


def test_up_to_an_amount_is_up():
    assert parse("Answer: it goes up to 2-fold").outcome == "up"


def test_what_a_sentence_begins_with_is_its_reason():
    assert parse("Answer: Since A goes up, it goes down").outcome == "down"
    assert parse("Answer: as A is higher, B is reduced").outcome == "down"


@pytest.mark.parametrize("sign", ["↑", "⬆", "\\uparrow", "$\\uparrow$", "↑ (up)"])
def test_arrows_are_outcomes(sign):
    mirrored = sign.replace("↑", "↓").replace("⬆", "⬇").replace("up", "down")
    for text, outcome in ((sign, "up"), (mirrored, "down")):
        assert parse(json.dumps({"answer": text})).outcome == outcome
        assert parse(f"Answer: G1{text}", names=("G1",)).outcome == outcome


@pytest.mark.parametrize("text", ["no{}change", "no{}{}change"])
@pytest.mark.parametrize("blank", ["\u00a0", "\u202f", "\t", "\u2009", "\u200b \u200b"])
def test_blanks_of_every_kind_are_blanks(text, blank):
    assert parse(json.dumps({"answer": text.format(blank, blank)})).outcome == "no_change"


@pytest.mark.parametrize(
    "text",
    ["Service is down", "I give up.", "Things look up", "We went up there", "The server was down again", "Not up.",
     "Maybe up.", "up?", "It may go down", "Lower the temperature", "What goes up", "Hurry up!", "The system is down."],
)  # fmt: skip
def test_a_word_that_stands_anywhere_is_no_answer(text):
    assert parse(text).outcome is None


@pytest.mark.parametrize(
    "text",
    ["{}", "{}!", "({})", "> {}", "1. {}", "It is {}.", "It goes {}", "The gene goes {}.", "G1 goes {}", "STAT1 {}",
     "The answer is {}.", "Final answer - {}", "Answer → {}", "The expression of G1 would go {}.", "### Answer\n{}",
     "\\boxed{{{}}}", "Hence $\\boxed{{\\text{{{}}}}}$ it is, as was to be shown above in so many words."],
)  # fmt: skip
@pytest.mark.parametrize("outcome", ["up", "down", "unchanged"])
def test_a_short_clear_reply_is_read(text, outcome):
    found = parse(text.format(outcome), names=("G1",))
    assert (found.outcome or found.status) == {"unchanged": "no_change"}.get(outcome, outcome)


@given(
    st.lists(
        st.sampled_from(
            [
                "not",
                "no",
                "up",
                "down",
                "or",
                ",",
                ".",
                "(",
                ")",
                "because",
                "repressor",
                "unlikely",
                "no_change",
                "if",
                "?",
                "is",
                "and",
                "G1",
            ]
        )
    )
)
@settings(max_examples=300, deadline=None)
def test_any_words_name_each_outcome_once(words):
    found = outcomes_in(" ".join(words), ("G1",))
    assert len(set(found)) == len(found)
    assert set(found) <= set(OUTCOMES)
