"""A model that is held to the form of a reply writes nothing else, whatever its weights are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pertbase.baselines.llm import Request, Sampling, TransformersClient, parse
from pertbase.baselines.llm._clients._guide import Form, Guide, Held
from pertbase.baselines.llm._prompts import reply_of
from pertbase.errors import UnsupportedError
from pertbase.knowledge import Triplet
from pertbase.knowledge._triplets import RELATIONS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def client(tiny_model):
    return TransformersClient(model=str(tiny_model), settings={"batch_size": 4, "device": "cpu"})


def asked(client, requests, sampling):
    found = {}
    client.ask(requests, range(len(requests)), sampling, lambda rows: found.update(rows))
    return [found[row] for row in range(len(requests))]


def requests(n, *, samples=1):
    prompts = [(("user", f"Does G{number} go up?"),) for number in range(n)]
    return [Request("reply", (one,), one[0][1], sample) for one in prompts for sample in range(samples)]


def ends_at(form, text):
    """Where a text leads, or None where it is not of the form."""
    state = 0
    for letter in text:
        if letter not in form.moves[state]:
            return None
        state = form.moves[state][letter]
    return state


def test_every_reply_in_the_form_that_examples_have_is_allowed():
    form = Form(3)
    edges = [Triplet(f"A{sign}", word, "HLA-DRA") for sign, word in enumerate(RELATIONS)]
    for outcome in ("up", "down", "no_change"):
        for n in range(4):
            assert ends_at(form, reply_of(edges[:n], outcome)) == form.end
    assert ends_at(form, reply_of([*edges, edges[0]], "up")) is None
    for other in (
        reply_of([Triplet("A", "binds", "B")], "up"),
        reply_of([Triplet("", "activates", "B")], "up"),
        reply_of([Triplet('A"', "activates", "B")], "up"),
        reply_of([Triplet("A" * 30, "activates", "B")], "up"),
        reply_of(edges, "upp"),
        reply_of(edges, "up") + " ",
        '{"triplets": [], }',
    ):
        assert ends_at(form, other) != form.end
    # There is no state that leads nowhere but the end.
    assert [state for state, moves in enumerate(form.moves) if not moves] == [form.end]


def test_a_form_has_as_many_triplets_as_fit_into_a_reply():
    edge = Triplet("STAT1", "activates", "IRF1")
    for max_tokens, most in ((20, 1), (52, 2), (256, 12)):
        form = Form.within(max_tokens)
        assert ends_at(form, reply_of([edge] * most, "up")) == form.end
        assert ends_at(form, reply_of([edge] * (most + 1), "up")) is None


def test_a_token_may_follow_where_all_its_characters_do(client):
    tokenizer, _ = client._load()
    form = Form(1)
    guide = Guide(form, tokenizer, [tokenizer.eos_token_id])
    text = reply_of([Triplet("G1", "activates", "G2")], "down")
    for cut in (0, 1, 5, 15, 17, 20, 40, len(text) - 2):
        state = ends_at(form, text[:cut])
        for token in range(len(tokenizer)):
            piece = tokenizer.decode([token], clean_up_tokenization_spaces=False)
            special = token in tokenizer.all_special_ids
            fits = not special and bool(piece) and ends_at(form, text[:cut] + piece) is not None
            assert (token in guide.allowed(state)) == fits
            if fits:
                assert guide.after(state, token) == ends_at(form, text[:cut] + piece)
    assert guide.allowed(form.end) == [tokenizer.eos_token_id]
    assert guide.after(form.end, 7) == form.end


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_random_weights_write_replies_that_can_be_read(client, temperature):
    sampling = Sampling(max_tokens=400, guided=True, temperature=temperature)
    tokenizer, _ = client._load()
    # Random weights spell names letter by letter, at their longest: two triplets, and room for them.
    client._held["guide of 400"] = Guide(Form(2), tokenizer, [tokenizer.eos_token_id])
    found = asked(client, requests(6, samples=1 if temperature == 0 else 3), sampling)
    for response in found:
        assert response.finish == "stop"
        said = json.loads(response.text)
        assert set(said) == {"triplets", "answer"}
        assert parse(response.text).status == "ok"
    assert len({response.text for response in found}) > 1
    assert (
        asked(client, requests(2), replace(sampling, guided=False, temperature=0.0, max_tokens=20))[0].text[:1] != "{"
    )


def test_what_is_left_is_held_as_it_would_have_been(client):
    every, sampling = requests(9), Sampling(max_tokens=60, guided=True)
    whole = [one.text for one in asked(client, every, sampling)]
    rest: dict[int, object] = {}
    client.ask(every, [2, 7], sampling, lambda rows: rest.update(rows))
    assert [rest[row].text for row in (2, 7)] == [whole[2], whole[7]]


def test_prose_is_not_held_and_letters_are_asked_as_ever(client):
    summary = Request("reply", ((("user", "What does G1 do?"),),), "summary", prose=True)
    letters = Request("letters", ((("user", "A. up B. down C. none"),),), "q")
    held, free, scored = asked(client, [*requests(1), summary, letters], Sampling(max_tokens=40, guided=True))
    assert held.text.startswith('{"triplets": [')
    assert not free.text.startswith("{")
    assert scored.letters == asked(client, [letters], Sampling())[0].letters


def test_a_model_is_not_held_and_told_to_think(client):
    with pytest.raises(UnsupportedError, match="cannot think and be held"):
        asked(client, requests(1), Sampling(guided=True, thinking=True))


def test_what_a_reply_is_held_to_is_part_of_what_identifies_it():
    (one,), sampling = requests(1), Sampling(guided=True)
    keys = {one.key({}, sampling, 1), one.key({}, sampling, 2), one.key({}, Sampling(), 1)}
    assert len(keys) == 3
    assert one.key({}, Sampling(), 1) == one.key({}, Sampling(), 2)
    prose = replace(one, prose=True)
    assert prose.key({}, sampling, 1) == prose.key({}, Sampling(), 1)


def test_rows_that_have_ended_are_filled_up_with_what_ends_a_reply(client):
    tokenizer, _ = client._load()
    guide = Guide(Form(1), tokenizer, [tokenizer.eos_token_id])
    held = Held(guide, 1, 2)
    scores = torch.zeros(2, len(tokenizer) + 5)
    first = held(torch.zeros(2, 1, dtype=torch.long), scores)
    allowed = set(torch.nonzero(first[0] == 0).ravel().tolist())
    assert allowed == set(guide.allowed(0))
    assert torch.isinf(first[:, len(tokenizer) :]).all()
