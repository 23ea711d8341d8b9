"""The client of vLLM, against a stand-in of the few names it calls: vLLM wants a GPU and an environment of its own."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from pertbase.baselines.llm import Request, Sampling, VLLMClient
from pertbase.baselines.llm._prompts import SCHEMA

PROMPT = (("user", "Does it go up?"),)


class Engine:
    """Says what it was told to say, and keeps how it was asked."""

    def __init__(self, **options):
        self.options = options
        self.ends = "<|assistant|>"
        self.asked = []

    def chat(self, turns, params, **more):
        self.asked.append((turns, params, more))
        return [self.output(one) for one in params]

    def get_tokenizer(self):
        return SimpleNamespace(decode=lambda tokens, **_: self.ends)

    @staticmethod
    def output(one):
        words = {5: ("A", -0.5), 6: (" A", -0.2), 7: ("B", -3.0), 8: ("x", -6.0)}
        top = {token: SimpleNamespace(decoded_token=word, logprob=value) for token, (word, value) in words.items()}
        said = {11: ("cut o", "length"), 12: (" \n", "stop"), 13: ("Answer: up", "abort")}
        text, reason = said.get(one.seed, ("Answer: up", "stop"))
        best = SimpleNamespace(text=text, finish_reason=reason, token_ids=[1, 2, 3], logprobs=[top])
        return SimpleNamespace(outputs=[best], prompt_token_ids=[0] * 7)


@pytest.fixture
def engines(monkeypatch):
    made = []

    def load(**options):
        made.append(Engine(**options))
        return made[-1]

    params = type("SamplingParams", (SimpleNamespace,), {"seed": None})
    module, below = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    module.LLM, module.SamplingParams = load, params
    below.StructuredOutputsParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", below)
    return made


def ask(client, requests, sampling):
    found = {}
    client.ask(requests, range(len(requests)), sampling, found.update)
    return [found[row] for row in range(len(requests))]


def test_replies_come_back_with_why_they_ended_and_samples_have_seeds_of_their_own(engines):
    client = VLLMClient(model="org/a-model", options={"tensor_parallel_size": 2})
    requests = [Request("reply", (PROMPT,), "q", sample) for sample in range(4)]
    sampling = Sampling(temperature=0.7, seed=10, guided=True, thinking=False)
    replies = ask(client, requests, sampling)
    assert [reply.finish for reply in replies] == ["stop", "length", "empty", "error"]
    assert [reply.final for reply in replies] == [True, True, False, False]
    assert replies[0].text == "Answer: up"
    assert (replies[0].prompt_tokens, replies[0].reply_tokens, replies[0].served_by) == (7, 3, "a-model")
    (engine,) = engines
    assert engine.options == {
        "model": "org/a-model", "revision": None, "dtype": "bfloat16", "tensor_parallel_size": 2
    }  # fmt: skip
    ((turns, params, more),) = engine.asked
    assert turns[0] == [{"role": "user", "content": "Does it go up?"}]
    assert [one.seed for one in params] == [10, 11, 12, 13]
    assert params[0].structured_outputs.json == SCHEMA
    assert more["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_letter_is_as_likely_as_its_likeliest_spelling_and_an_absent_one_as_the_least_seen(engines):
    client = VLLMClient(model="a-model")
    requests = [Request("letters", (PROMPT, PROMPT), "q"), Request("reply", (PROMPT,), "q")]
    letters, reply = ask(client, requests, Sampling())
    assert letters.letters == ((-0.2, -3.0, -6.0), (-0.2, -3.0, -6.0))
    assert letters.prompt_tokens == 14
    assert reply.text == "Answer: up"
    assert len(engines) == 1


def test_a_thought_that_the_prompt_begins_is_told_of(engines):
    client = VLLMClient(model="a-model")
    request = Request("reply", (PROMPT,), "q")
    assert not ask(client, [request], Sampling())[0].thought_begun
    engines[0].ends = "<|assistant|><think>\n"
    assert ask(client, [request], Sampling())[0].thought_begun


def test_where_vllm_is_not_installed_it_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install vllm" in VLLMClient(model="a-model").refuses()
