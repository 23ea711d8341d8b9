"""What a server may send in the place of a completion, and what becomes of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from fault_proxy import Proxy, completion, running

from pertbase.baselines.llm import (
    Asker,
    AskSettings,
    LanguageModel,
    OpenAIClient,
    Request,
    Response,
    ResponseStore,
    Sampling,
)
from pertbase.baselines.llm._clients._letters import letter_row
from pertbase.baselines.llm._option_scores import letter_scores
from pertbase.errors import InputError, PertbaseError

pytest.importorskip("openai")

REPLY = '{"triplets": [], "answer": "up"}'


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Wait for hardly any time between two attempts."""
    monkeypatch.setattr("pertbase.baselines.llm._clients._tries._FIRST_WAIT", 0.01)


def asker(url, tmp_path, client=None, **settings):
    made = {"attempts": 2, "timeout": 5.0, "concurrency": 1, **settings}
    client = client or OpenAIClient(model="m", base_url=url)
    return Asker(client, Sampling(), AskSettings(**made), root=tmp_path / "responses")


def questions(n, kind="reply"):
    return [Request(kind, ((("user", f"Question {number}"),),), f"q{number}") for number in range(n)]


def with_(**fields):
    return {**completion(REPLY), **fields}


def choice(**fields):
    return with_(choices=[{**completion(REPLY)["choices"][0], **fields}])


def message(**fields):
    return choice(message={"role": "assistant", **fields})


NONE = {
    "content is a number": message(content=5),
    "content is an object": message(content={"text": REPLY}),
    "choices are an object": with_(choices={"0": "x"}),
    "choices are texts": with_(choices=["up"]),
    "choices are null": with_(choices=None),
    "message is null": choice(message=None),
    "message is a text": choice(message=REPLY),
    "an error in the place of all": {"error": {"message": "overloaded"}},
    "a list": [],
    "a number": 5,
    "null": None,
    "a page": b"<html>Bad gateway</html>",
    "nothing": b"",
    "no text": b"\xff\xfe\x00{",
    "nested too deep": b'{"choices":' + b"[" * 100_000,
    "ended in an error": choice(finish_reason="error"),
    "aborted": choice(finish_reason="abort"),
    "ended for no reason": choice(finish_reason=None),
    "ended for a number": choice(finish_reason=7),
}


@pytest.mark.parametrize("body", NONE.values(), ids=NONE)
def test_what_is_no_whole_completion_is_asked_again_and_never_kept(body, tmp_path):
    bodies = [body, body, completion(REPLY), completion(REPLY)]
    with running(Proxy(lambda _: raw(bodies.pop(0)))) as url:
        with pytest.raises(PertbaseError, match="1 of 1 requests got no response after 2 attempts"):
            asker(url, tmp_path).ask(questions(1))
        (found,) = asker(url, tmp_path).ask(questions(1))
    assert (found.text, found.finish) == (REPLY, "stop")


def raw(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


READ = {
    "a text": (message(content="up"), "up"),
    "parts": (message(content=[{"type": "text", "text": "u"}, "p", {"type": "image"}, 3]), "up"),
    "a thought among the parts": (message(content=[{"type": "thinking", "thinking": "x"}, {"text": "up"}]), "up"),
    "half a pair of surrogates": (message(content="up \ud83d"), "up \ufffd"),
    "a whole pair": (message(content="up \ud83d\ude00"), "up \U0001f600"),
    "a zero byte": (message(content="up\x00"), "up\x00"),
    "the second choice stands first": (
        with_(choices=[{**completion(text)["choices"][0], "index": index} for index, text in ((1, "down"), (0, "up"))]),
        "up",
    ),
    "its own word for an end": (choice(finish_reason="eos_token", message={"content": "up"}), "up"),
    "no model": ({key: value for key, value in message(content="up").items() if key != "model"}, "up"),
}


@pytest.mark.parametrize(("body", "text"), READ.values(), ids=READ)
def test_what_can_be_read_is_kept_and_found_again_word_by_word(body, text, tmp_path):
    proxy = Proxy(lambda _: raw(body))
    with running(proxy) as url:
        first = asker(url, tmp_path).ask(questions(2))
        again = asker(url, tmp_path).ask(questions(2))
    assert [one.text for one in first] == [text] * 2
    assert again == first
    assert len(proxy.bodies) == 2


@pytest.mark.parametrize("field", ["text", "thought", "served_by", "error"])
def test_no_client_can_hand_over_what_a_file_cannot_hold(field, tmp_path):
    response = Response(**{field: "a\ud83d b\udc00"})
    assert getattr(response, field) == "a\ufffd b\ufffd"
    (request,) = questions(1)
    store = ResponseStore(tmp_path / "m", {})
    store.add([("k", request, response)], {})
    assert ResponseStore(tmp_path / "m", {}).get("k") == response


COUNTS = {
    "numbers": ({"prompt_tokens": 11, "completion_tokens": 7}, (11, 7)),
    "texts": ({"prompt_tokens": "11", "completion_tokens": "7"}, (11, 7)),
    "parts of a token": ({"prompt_tokens": 11.5, "completion_tokens": 7.0}, (11, 7)),
    "the sum alone": ({"total_tokens": 18}, (18, 0)),
    "no numbers": ({"prompt_tokens": None, "completion_tokens": [7]}, (0, 0)),
    "less than nothing": ({"prompt_tokens": -3, "completion_tokens": math.inf}, (0, 0)),
    "a text": ("n/a", (0, 0)),
    "nothing": (None, (0, 0)),
}


@pytest.mark.parametrize(("usage", "counted"), COUNTS.values(), ids=COUNTS)
def test_tokens_are_counted_where_a_server_counts_them_and_a_run_can_always_be_gone_on_with(usage, counted, tmp_path):
    with running(Proxy(lambda _: with_(usage=usage))) as url:
        for asked in (1, 0):
            ask = asker(url, tmp_path)
            ask.ask(questions(1))
            assert ask.account.asked == asked
            assert (ask.account.prompt_tokens, ask.account.reply_tokens) == counted
            assert ask.account.uncounted == (sum(counted) == 0)


@pytest.mark.parametrize("limit", ["token_budget", "cost_budget"])
def test_a_budget_is_refused_where_nobody_counts_and_a_cost_is_not_said(limit, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("date: 2026-01-31\ncurrency: EUR\nmodels:\n  m: {prompt: 1.0, reply: 10.0}\n")
    proxy = Proxy(lambda _: with_(usage=None))
    with running(proxy) as url:
        with pytest.raises(InputError, match=rf"asking\.{limit}.*without a count of its tokens"):
            asker(url, tmp_path, prices=str(prices), **{limit: 1000}).ask(questions(5))
        ask = asker(url, tmp_path, prices=str(prices))
        ask.ask(questions(5))
    assert len(proxy.bodies) == 5
    assert ask.summary()["cost"] is None


# -- letters ------------------------------------------------------------------------------------------------


def likely(*top, content=True):
    listed = [{"token": token, "logprob": value, "bytes": None} for token, value in top]
    first = {"token": "A", "logprob": -0.1, "bytes": None, "top_logprobs": listed}
    return completion("A", finish="length", logprobs={"content": [first] if content else []})


def scored(url):
    return OpenAIClient(model="m", base_url=url, logprobs=True)


THINKS = (("<think>", -0.1), ("The", -9.0))
SEEN = (("B", -0.1), ("A", -2.0), ("x", -9.0))


@pytest.mark.parametrize(
    ("top", "row"),
    [
        (SEEN, (-2.0, -0.1, -9.0)),
        ((("▁C", -1.0), ("Ġa", -2.0), (" A", -3.0), ("C", -4.0)), (-3.0, -4.0, -1.0)),
        ((("A", -1.0), ("B", -math.inf), ("C", -2.0), ("x", math.nan)), (-1.0, -2.0, -2.0)),
        (THINKS, None),
        ((*THINKS, ("A", -9.5)), None),
        ((), None),
    ],
)
def test_letters_are_scored_where_at_least_two_are_seen(top, row):
    np.testing.assert_array_equal(letter_row(top), row or (math.nan,) * 3)


@pytest.mark.parametrize(
    "body",
    [likely(*THINKS), likely(content=False)],
    ids=["thinks first", "ends at once"],
)
@pytest.mark.parametrize("n", [3, 30])
def test_a_model_that_shows_no_letters_is_said_to_want_no_thinking_and_nothing_is_kept(body, n, tmp_path):
    bodies = []
    with running(Proxy(lambda _: bodies[0])) as url:
        bodies[:] = [body]
        ask = asker(url, tmp_path, scored(url))
        with pytest.raises(InputError, match=r"fewer than two of the letters.*thinking=false"):
            ask.ask(questions(n, "letters"))
        assert len(ask.store) == 0
        # once the server is put right, the same command asks all of it
        bodies[:] = [likely(*SEEN)]
        again = asker(url, tmp_path, scored(url))
        again.ask(questions(n, "letters"))
    assert again.account.asked == n


def test_a_few_questions_without_letters_have_no_score_and_are_counted(tmp_path):
    bodies = [likely(*(THINKS if number in (0, 3) else SEEN)) for number in range(8)]
    with running(Proxy(lambda _: bodies.pop(0))) as url:
        found = asker(url, tmp_path, scored(url)).ask(questions(8, "letters"))
        again = asker(url, tmp_path, scored(url))
        kept = again.ask(questions(8, "letters"))
    for responses in (found, kept):
        scores = letter_scores(responses, [("up", "down", "no_change")], 8)
        assert np.isnan(scores).any(axis=1).tolist() == [number in (0, 3) for number in range(8)]
    assert (again.account.asked, again.account.letters_unseen) == (0, 2)


UNLIKELY = likely((None, -0.1), ("A", None))["choices"][0]["logprobs"]


@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}, "none", UNLIKELY])
def test_a_server_that_gives_no_log_probabilities_is_told_of_at_once_and_asked_again_later(logprobs, tmp_path):
    bodies = []
    proxy = Proxy(lambda _: bodies[0])
    with running(proxy) as url:
        bodies[:] = [completion("A", logprobs=logprobs)]
        with pytest.raises(InputError, match=r"client\.logprobs.*gives no log probabilities"):
            asker(url, tmp_path, scored(url)).ask(questions(9, "letters"))
        assert len(proxy.bodies) == 1
        bodies[:] = [likely(*SEEN)]
        again = asker(url, tmp_path, scored(url))
        assert [one.letters for one in again.ask(questions(9, "letters"))] == [((-2.0, -0.1, -9.0),)] * 9
    assert again.account.asked == 9


def test_scores_that_were_asked_for_and_did_not_come_are_never_kept(tmp_path):
    for finish in ("stop", "length"):
        store = ResponseStore(tmp_path / "m", {})
        store.add([(finish, questions(1, "letters")[0], Response(finish=finish))], {})
        assert finish not in store
        assert finish not in ResponseStore(tmp_path / "m", {})


def test_a_fold_without_letters_fails_and_answers_nothing(tmp_path, path_fold):
    fold = path_fold()
    with running(Proxy(lambda _: likely(*THINKS))) as url:
        model = LanguageModel(client=scored(url), orders=1, answer_from="options")
        model.workspace(tmp_path / "d" / "f" / "n" / "seed0", {})
        with pytest.raises(InputError, match="fewer than two of the letters"):
            model.fit(fold.training).answer(fold.training.inputs("val"))
