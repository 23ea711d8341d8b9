"""A server that speaks OpenAI's protocol, and what can happen on the way to it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from fault_proxy import FAULTS, Proxy, completion, running

from pertbase.baselines.llm import (
    Asker,
    AskSettings,
    BudgetReached,
    LanguageModel,
    OpenAIClient,
    Request,
    Sampling,
    TransformersClient,
)
from pertbase.errors import InputError, PertbaseError

pytest.importorskip("openai")


def reply_by_rule(body):
    """Answer as a model would whose reply is a function of the prompt."""
    text = body["messages"][-1]["content"]
    outcome = ("up", "down", "no_change")[sum(map(ord, text)) % 3]
    return completion(json.dumps({"triplets": [], "answer": outcome}))


def asker(url, tmp_path, *, sampling=None, client=None, **settings):
    made = {"attempts": 6, "timeout": 1.0, "concurrency": 4, **settings}
    client = client or OpenAIClient(model="m", base_url=url)
    return Asker(client, sampling or Sampling(), AskSettings(**made), root=tmp_path / "responses")


def questions(n):
    return [Request("reply", ((("user", f"Does gene {number} go up?"),),), f"q{number}") for number in range(n)]


def test_whatever_fails_in_passing_is_asked_again_and_nothing_is_lost_or_kept_wrongly(tmp_path):
    requests = questions(30)
    with running(Proxy(reply_by_rule)) as url:
        undisturbed = asker(url, tmp_path / "a").ask(requests)
    plan = [fault for fault in FAULTS for _ in range(2)] + [None] * 20
    random.Random(0).shuffle(plan)
    proxy = Proxy(reply_by_rule, plan)
    with running(proxy) as url:
        ask = asker(url, tmp_path / "b")
        disturbed = ask.ask(requests)
    assert [one.text for one in disturbed] == [one.text for one in undisturbed]
    assert proxy.passed == len(requests)
    assert len(proxy.bodies) == len(requests) + 2 * len(FAULTS) == ask.account.attempts
    # empty replies are paid for too
    assert ask.account.prompt_tokens == 11 * (len(requests) + 2)
    # every one kept is a success, and found again without asking
    with running(Proxy(reply_by_rule)) as other:
        again = asker(other, tmp_path / "b", client=OpenAIClient(model="m", base_url=url))
        assert [one.text for one in again.ask(requests)] == [one.text for one in undisturbed]
        assert again.account.asked == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_what_never_passes_is_no_success_and_is_asked_by_the_same_command_again(fault, tmp_path):
    requests = questions(3)
    plan = [None, *[fault] * 2]  # one at a time: the first passes, the second never does
    proxy = Proxy(reply_by_rule, plan)
    with running(proxy) as url:
        ask = asker(url, tmp_path, attempts=2, concurrency=1, timeout=0.5)
        if fault == "empty":
            # an empty reply is an answer of a kind: counted, but not kept
            assert [one.finish for one in ask.ask(requests)] == ["stop", "empty", "stop"]
        else:
            with pytest.raises(PertbaseError, match="1 of 3 requests got no response after 2 attempts each"):
                ask.ask(requests)
        second = asker(url, tmp_path)
        found = second.ask(requests)
    assert second.account.asked == 1
    assert [one.finish for one in found] == ["stop"] * 3


def test_retry_after_is_waited_for(tmp_path):
    proxy = Proxy(reply_by_rule, ["429"])
    with running(proxy) as url:
        asker(url, tmp_path).ask(questions(1))
    assert proxy.times[1] - proxy.times[0] >= 0.3


def test_refusals_and_rejections_are_final_and_no_success(tmp_path):
    proxy = Proxy(reply_by_rule, ["refusal", "400"])
    with running(proxy) as url:
        first = asker(url, tmp_path, concurrency=1).ask(questions(3))
        again = asker(url, tmp_path)
        again.ask(questions(3))
    assert [one.finish for one in first] == ["refusal", "rejected", "stop"]
    assert again.account.asked == 0


def test_a_wrong_key_ends_the_run_at_once(tmp_path):
    proxy = Proxy(reply_by_rule, ["401"] * 9)
    with running(proxy) as url, pytest.raises(InputError, match="the key is not accepted"):
        asker(url, tmp_path, concurrency=1).ask(questions(9))
    assert len(proxy.bodies) == 1


def test_a_budget_stops_cleanly_and_the_same_command_goes_on(tmp_path):
    proxy = Proxy(reply_by_rule)
    with running(proxy) as url:
        for left in (6, 2):
            with pytest.raises(BudgetReached, match=f"{left} of {left + 4} requests left"):
                asker(url, tmp_path, concurrency=1, token_budget=4 * 18).ask(questions(10))
        asker(url, tmp_path, concurrency=1, token_budget=4 * 18).ask(questions(10))
    assert len(proxy.bodies) == 10


def test_cost_is_counted_by_the_users_dated_prices(tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("date: 2026-01-31\ncurrency: EUR\nmodels:\n  m: {prompt: 1.0, reply: 10.0}\n")
    with running(Proxy(reply_by_rule)) as url:
        ask = asker(url, tmp_path, prices=str(prices))
        ask.ask(questions(10))
        told = ask.summary()
        with pytest.raises(BudgetReached, match="EUR used"):
            asker(url, tmp_path / "b", prices=str(prices), cost_budget=3 * (11 + 70) / 1e6, concurrency=1).ask(
                questions(9)
            )
    assert told["cost"] == pytest.approx(10 * (11 * 1.0 + 7 * 10.0) / 1e6)
    assert (told["prices_of"], told["currency"], told["prompt_tokens"], told["reply_tokens"]) == (
        "2026-01-31",
        "EUR",
        110,
        70,
    )


def test_requests_keep_their_pace_and_their_number_at_once(tmp_path):
    flying, most, lock = 0, 0, threading.Lock()

    def slow(body):
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        time.sleep(0.05)
        with lock:
            flying -= 1
        return reply_by_rule(body)

    proxy = Proxy(slow)
    with running(proxy) as url:
        asker(url, tmp_path, concurrency=3).ask(questions(12))
    assert most == 3
    paced = Proxy(reply_by_rule)
    with running(paced) as url:
        asker(url, tmp_path / "b", requests_per_minute=600).ask(questions(5))
    assert paced.times[-1] - paced.times[0] >= 0.3


def test_what_is_sent_is_what_was_asked_for(tmp_path):
    proxy = Proxy(reply_by_rule)
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=33, thinking=False, guided=True, seed=7)
    with running(proxy) as url:
        client = OpenAIClient(model="m", base_url=url, limit="max_completion_tokens", extra={"user": "me"})
        requests = [Request("reply", ((("system", "S"), ("user", "U")),), "q", sample) for sample in (0, 1)]
        asker(url, tmp_path, sampling=sampling, client=client, concurrency=1).ask(requests)
    one, two = proxy.bodies
    assert one["messages"] == [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert (one["temperature"], one["top_p"], one["max_completion_tokens"], one["user"]) == (0.5, 0.9, 33, "me")
    assert one["chat_template_kwargs"] == {"enable_thinking": False}
    assert one["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"] == [
        "up",
        "down",
        "no_change",
    ]
    assert (one["seed"], two["seed"]) == (7, 8)
    assert "Authorization" not in json.dumps(proxy.bodies)


def test_letters_are_scored_where_the_server_gives_log_probabilities(tmp_path):
    def likely(body):
        top = [
            {"token": token, "logprob": value, "bytes": None}
            for token, value in ((" B", -0.1), ("A", -2.5), ("x", -9.0))
        ]
        listed = {"content": [{"token": " B", "logprob": -0.1, "bytes": None, "top_logprobs": top}]}
        return completion("B", finish="length", logprobs=listed)

    request = Request("letters", ((("user", "1"),), (("user", "2"),)), "q")
    with running(Proxy(likely)) as url:
        client = OpenAIClient(model="m", base_url=url, logprobs=True)
        (found,) = asker(url, tmp_path, client=client).ask([request])
    # a letter that is not among the likeliest is as likely as the least of them
    assert found.letters == ((-2.5, -0.1, -9.0),) * 2
    assert (found.prompt_tokens, found.finish) == (22, "stop")


def test_a_fold_is_asked_through_a_server_and_statuses_are_counted(tmp_path, path_fold):
    fold = path_fold()
    plan = ["refusal", "empty", "empty", "empty"]
    with running(Proxy(reply_by_rule, plan)) as url:
        model = LanguageModel(client=OpenAIClient(model="m", base_url=url), preset="global_path", guided=True)
        model.workspace(tmp_path / "d" / "f" / "n" / "seed0", {"attempts": 3, "concurrency": 1})
        answers = model.fit(fold.training).answer(fold.inputs)
        # without log probabilities there is nothing to calibrate, and val costs nothing
        assert model.answer(fold.training.inputs("val")).table["score_up"].isna().all()
    assert answers.table["status"].value_counts().to_dict() == {"ok": len(answers) - 2, "refusal": 1, "empty": 1}
    assert model.account()["guided"] is True
    assert sorted(path.name for path in (tmp_path / "_responses").glob("*/[!.]*")) == [
        "00001.jsonl",
        "failures.log",
        "model.json",
    ]


# -- a real server ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tiny_llama):
    """``transformers serve`` with the tiny model, on loopback."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    command = [str(program), "serve", str(tiny_llama), "--port", str(port), "--host", "127.0.0.1", "--device", "cpu"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.skip("transformers serve does not start here")
                time.sleep(0.5)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


@pytest.mark.slow
def test_a_real_server_with_the_same_weights_gives_the_same_answers_through_faults(
    served, tiny_llama, tmp_path, path_fold
):
    fold = path_fold()
    options = {"preset": "cell_path", "max_tokens": 12, "examples": 2, "orders": 0}
    local = LanguageModel(client=TransformersClient(model=str(tiny_llama)), **options).fit(fold.training)
    records = local.records(fold.inputs)[:12]
    expected = local.ask(local.reply_requests(records))
    plan = [*FAULTS, *[None] * 5]
    random.Random(1).shuffle(plan)
    proxy = Proxy(served, plan)
    with running(proxy) as url:
        client = OpenAIClient(model=str(tiny_llama), base_url=url)
        model = LanguageModel(client=client, **options)
        model.workspace(tmp_path / "d" / "f" / "n" / "seed0", {"timeout": 60.0, "concurrency": 2, "attempts": 8})
        model.fit(fold.training)
        found = model.ask(model.reply_requests(records))
    assert [one.text for one in found] == [one.text for one in expected]
    assert [one.finish for one in found] == [one.finish for one in expected]
    # an empty reply is paid for too: eleven tokens, in the one attempt that came back so
    extra = [one.prompt_tokens - other.prompt_tokens for one, other in zip(found, expected, strict=True)]
    assert sorted(extra) == [0] * 11 + [11]
    assert proxy.passed == len(records)
    np.testing.assert_array_equal(
        [one.outcome for one in model.parsed(records, found, np.full((12, 3), np.nan))],
        [one.outcome for one in local.parsed(records, expected, np.full((12, 3), np.nan))],
    )
