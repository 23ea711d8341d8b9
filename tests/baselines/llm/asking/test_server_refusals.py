"""Servers that refuse, are not there, or cost more than they may: what is kept, what is told, and where it stops."""

from __future__ import annotations

import json
import time

import pytest
from fault_proxy import Proxy, completion, running

from pertbase.baselines.llm import Asker, AskSettings, BudgetReached, LanguageModel, OpenAIClient, Request, Sampling
from pertbase.baselines.llm._asking._round import MOST_FAILED, MOST_REJECTED
from pertbase.errors import InputError, PertbaseError

pytest.importorskip("openai")

REPLY = '{"triplets": [], "answer": "up"}'


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Wait for hardly any time between two attempts."""
    monkeypatch.setattr("pertbase.baselines.llm._clients._tries._FIRST_WAIT", 0.01)


def asker(url, tmp_path, *, sampling=None, **settings):
    made = {"attempts": 2, "timeout": 5.0, "concurrency": 1, **settings}
    client = OpenAIClient(model="m", base_url=url)
    return Asker(client, sampling or Sampling(), AskSettings(**made), root=tmp_path / "responses")


def questions(n, kind="reply"):
    return [Request(kind, ((("user", f"Question {number}"),),), f"q{number}") for number in range(n)]


def says(_):
    return completion(REPLY)


PASSING = ("408", "409", "423", "424", "425", "429", "499", "500", "503", "529", "600")
OF_ONE = ("400", "413", "422")
FOR_GOOD = (
    *("300", "304", "401", "402", "403", "404", "405", "406", "407", "410", "411", "415", "418", "421", "426", "428"),
    *("431", "451", "498"),
)


@pytest.mark.parametrize("status", FOR_GOOD)
def test_what_is_no_fault_of_a_question_ends_the_run_and_no_response_is_made_of_it(status, tmp_path):
    proxy = Proxy(says, [None, status])
    with running(proxy) as url:
        told = rf"\({status}: " if status == "304" else rf"\({status}: fault {status}\)"
        with pytest.raises(InputError, match=told):
            asker(url, tmp_path).ask(questions(9))
        assert len(proxy.bodies) == 2
        # with credit, a key or an address, the same command goes on
        again = asker(url, tmp_path)
        assert {one.finish for one in again.ask(questions(9))} == {"stop"}
    assert again.account.asked == 8


@pytest.mark.parametrize("status", PASSING)
def test_what_passes_is_asked_again(status, tmp_path):
    with running(Proxy(says, [None, status, None, status, status])) as url:
        with pytest.raises(PertbaseError, match=f"1 of 3 requests got no response .*: {status}: fault {status}"):
            asker(url, tmp_path).ask(questions(3))
        again = asker(url, tmp_path)
        assert {one.finish for one in again.ask(questions(3))} == {"stop"}
    assert again.account.asked == 1


def test_no_quota_does_not_pass_though_its_status_does(tmp_path):
    proxy = Proxy(says, ["429"] * 9)
    proxy.error = json.dumps({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}).encode()
    with running(proxy) as url, pytest.raises(InputError, match=r"no quota left \(429: You exceeded your quota\)"):
        asker(url, tmp_path).ask(questions(9))
    assert len(proxy.bodies) == 1


@pytest.mark.parametrize("status", OF_ONE)
def test_a_question_that_is_rejected_is_kept_as_that_once_another_is_accepted(status, tmp_path):
    proxy = Proxy(says, [status, None, status])
    with running(proxy) as url:
        first = asker(url, tmp_path).ask(questions(4))
        again = asker(url, tmp_path)
        again.ask(questions(4))
    assert [one.finish for one in first] == ["rejected", "stop", "rejected", "stop"]
    assert again.account.asked == 0
    assert again.summary()["finish"] == {"rejected": 2, "stop": 2}


@pytest.mark.parametrize("n", [1, 4, 40])
def test_where_every_request_is_rejected_it_is_the_configuration_and_none_is_kept(n, tmp_path):
    proxy = Proxy(says, ["400"] * n)
    with running(proxy) as url:
        with pytest.raises(InputError, match=r"rejects every request.*fault 400.*nothing of it is kept"):
            asker(url, tmp_path).ask(questions(n))
        assert len(proxy.bodies) == min(n, MOST_REJECTED)
        proxy.plan = []
        again = asker(url, tmp_path)
        again.ask(questions(n))
    assert again.account.asked == n


def test_letters_that_are_rejected_are_told_of_though_replies_are_accepted(tmp_path):
    proxy = Proxy(says, [*[None] * 3, *["400"] * 9])
    with running(proxy) as url:
        ask = asker(url, tmp_path)
        with pytest.raises(InputError, match="rejects every request, 3 of 3"):
            ask.ask([*questions(3), *questions(3, "letters")])
    assert len(ask.store) == 3


def test_the_last_question_of_a_run_may_be_rejected_alone(tmp_path):
    proxy = Proxy(says, [*[None] * 3, "401", "400"])
    with running(proxy) as url:
        with pytest.raises(InputError, match="key"):
            asker(url, tmp_path).ask(questions(4))
        # what is kept shows that the server takes such requests
        found = asker(url, tmp_path).ask(questions(4))
    assert [one.finish for one in found] == ["stop"] * 3 + ["rejected"]


ADVICE = {
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.": "baseline.client.limit=",
    "Unsupported value: 'temperature' does not support 0": "send_sampling=false",
    "response_format json_schema is not supported": "guided_as=json_object",
    "This model does not support logprobs": "logprobs=false",
    "maximum context length is 4096": "baseline.max_tokens",
    "no": "baseline.client",
}


@pytest.mark.parametrize(("error", "option"), ADVICE.items())
def test_the_servers_own_words_lead_to_an_option(error, option):
    assert option in OpenAIClient(model="m").advice(error)


def test_a_rejected_question_is_counted_as_that_and_not_as_an_empty_reply(tmp_path, path_fold):
    fold = path_fold()
    with running(Proxy(says, [None, "413"])) as url:
        model = LanguageModel(client=OpenAIClient(model="m", base_url=url))
        model.workspace(tmp_path / "d" / "f" / "n" / "seed0", {"concurrency": 1})
        answers = model.fit(fold.training).answer(fold.inputs)
    n = len(answers)
    assert model.account()["answers_read_from"] == {"json": n - 1, "rejected": 1}
    assert model.account()["finish"] == {"rejected": 1, "stop": n - 1}


# -- nobody there -------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_given_up_with_the_cause(tmp_path):
    asked = questions(200)
    ask = asker("http://127.0.0.1:1/v1", tmp_path, concurrency=4)
    with pytest.raises(PertbaseError, match=f"{MOST_FAILED} requests in a row.*Connect") as told:
        ask.ask(asked)
    assert "Connection error." not in str(told.value)
    log = next((tmp_path / "responses").glob("*/failures.log")).read_text().splitlines()
    assert MOST_FAILED <= len(log) <= MOST_FAILED + 4


@pytest.mark.parametrize("fault", ["500", "cut", "malformed", "no_choices"])
def test_a_server_that_goes_away_is_given_up_and_what_came_is_kept(fault, tmp_path):
    proxy = Proxy(says, [*[None] * 7, *[fault] * 500])
    with running(proxy) as url:
        ask = asker(url, tmp_path)
        with pytest.raises(PertbaseError, match=f"{MOST_FAILED} requests in a row"):
            ask.ask(questions(40))
        assert len(proxy.bodies) == 7 + 2 * MOST_FAILED
        proxy.plan = []
        again = asker(url, tmp_path)
        again.ask(questions(40))
    assert again.account.asked == 33


def test_failures_here_and_there_do_not_stop_the_others(tmp_path):
    one = [fault for _ in range(10) for fault in (None, "500", "500")]
    with running(Proxy(says, one)) as url:
        ask = asker(url, tmp_path)
        with pytest.raises(PertbaseError, match="10 of 30 requests got no response"):
            ask.ask(questions(30))
    assert len(ask.store) == 20


def test_an_attempt_ends_with_its_time_however_the_bytes_come(tmp_path):
    with running(Proxy(says, ["drip"] * 9)) as url:
        began = time.monotonic()
        with pytest.raises(PertbaseError, match=r"no whole response came within 0\.3 s"):
            asker(url, tmp_path, timeout=0.3, attempts=1).ask(questions(1))
    # a hundred bytes come in ten seconds
    assert time.monotonic() - began < 9


# -- what is on its way, and what it costs ------------------------------------------------------------------


def slow(_):
    time.sleep(0.2)
    return completion(REPLY)


STOPS = {
    "budget": ({"token_budget": 18}, [], BudgetReached),
    "refusal": ({}, [None, "404"], InputError),
}


@pytest.mark.parametrize(("settings", "plan", "error"), STOPS.values(), ids=STOPS)
def test_what_is_on_its_way_when_it_stops_comes_in_and_is_kept(settings, plan, error, tmp_path):
    proxy = Proxy(slow, plan)
    with running(proxy) as url:
        ask = asker(url, tmp_path, concurrency=4, **settings)
        with pytest.raises(error) as told:
            ask.ask(questions(16))
        paid = len(proxy.bodies) - len(plan[1:])
        assert paid > 1
        assert len(ask.store) == paid == proxy.passed
        if error is BudgetReached:
            assert f"{16 - paid} of 16 requests left" in str(told.value)
            assert f"with {18 * paid} tokens used" in str(told.value)
        proxy.plan = []
        again = asker(url, tmp_path)
        again.ask(questions(16))
    assert again.account.asked == 16 - paid


def test_a_budget_that_is_met_by_the_last_on_its_way_leaves_nothing_to_stop_for(tmp_path):
    with running(Proxy(slow)) as url:
        ask = asker(url, tmp_path, concurrency=4, token_budget=18)
        assert len(ask.ask(questions(4))) == 4
        # but nothing more is begun
        with pytest.raises(BudgetReached, match="3 of 3 requests left"):
            ask.ask(questions(7)[4:])
        assert len(ask.ask(questions(4))) == 4


def test_attempts_that_come_back_empty_count_against_a_budget(tmp_path):
    proxy = Proxy(says, ["empty"] * 99)
    with running(proxy) as url:
        ask = asker(url, tmp_path, attempts=3, token_budget=3 * 18 + 1)
        with pytest.raises(BudgetReached, match="with 108 tokens used and 8 of 10 requests left"):
            ask.ask(questions(10))
    assert len(proxy.bodies) == 6
