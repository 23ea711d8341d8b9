"""How a model is asked: settings, prices, addresses, and what identifies a request."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest
from fault_proxy import Proxy, completion, running

from pertbase.baselines.llm import (
    Asker,
    AskSettings,
    LanguageModel,
    OpenAIClient,
    Prices,
    Request,
    Sampling,
    TransformersClient,
)
from pertbase.baselines.llm._asking._store import store_folder
from pertbase.errors import InputError

REPLY = '{"triplets": [], "answer": "up"}'

# -- settings -----------------------------------------------------------------------------------------------

WHOLE = ("batch_size", "concurrency", "attempts", "token_budget")
NUMBERS = ("requests_per_minute", "timeout", "cost_budget")
TEXTS = ("device", "prices", "responses")
NO_NUMBER = ("x", "8", True, [8], {}, 0, -1, -0.5, math.nan, math.inf, -math.inf)


def test_every_setting_is_looked_at():
    assert {item.name for item in fields(AskSettings)} == {*WHOLE, *NUMBERS, *TEXTS}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in (*WHOLE, *NUMBERS) for value in NO_NUMBER),
        *((name, 0.5) for name in WHOLE),
        *((name, None) for name in ("batch_size", "concurrency", "attempts", "timeout")),
        *((name, value) for name in TEXTS for value in (5, True, ["cpu"], "")),
        *(("device", value) for value in ("cudaa", "gpu", "cuda:", "cuda:x", "cpu ")),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_key(name, value):
    with pytest.raises(InputError, match=rf"^asking\.{name}: is .*got") as told:
        AskSettings.from_config({"prices": "p.yaml", name: value} if name != "prices" else {name: value})
    assert told.value.remedy


def test_whole_numbers_may_be_written_with_a_point():
    made = AskSettings.from_config({"token_budget": 1e6, "attempts": 3.0, "timeout": 1, "device": "cuda:1"})
    assert (made.token_budget, made.attempts, made.timeout) == (1_000_000, 3, 1.0)
    assert [type(one) for one in (made.token_budget, made.attempts, made.timeout)] == [int, int, float]


PRICE = "date: 2026-01-31\ncurrency: EUR\nmodels:\n  m: "


@pytest.mark.parametrize(
    "price",
    [
        "{prompt: .nan, reply: 1}", "{prompt: 1, reply: .inf}", "{prompt: -1, reply: 1}", "{prompt: 1, reply: -0.5}",
        "{prompt: true, reply: 1}", "{prompt: '1', reply: 1}", "{prompt: 1}", "{}", "3", "[1, 2]", "null",
    ],
)  # fmt: skip
def test_a_price_that_cannot_be_is_refused_by_file_and_key(price, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(PRICE + price)
    with pytest.raises(InputError, match=r"prices\.yaml: models\.m: a model has a price"):
        Prices.read(path)
    path.write_text(PRICE.replace("models:\n  m: ", "models: [m]"))
    with pytest.raises(InputError, match=r"prices\.yaml: models: "):
        Prices.read(path)


def test_what_costs_nothing_has_a_price():
    assert Prices("2026-01-31", "EUR", {"m": (0.0, 0.0)}).cost("m", 5, 5) == 0.0


# -- addresses ----------------------------------------------------------------------------------------------

SAME = (
    "http://localhost:8000/v1",
    "http://localhost:8000/v1/",
    "HTTP://LocalHost:8000/v1//",
    " http://localhost:8000/v1 ",
)


def test_one_address_written_in_several_ways_is_one_identity(monkeypatch):
    made = [OpenAIClient(model="m", base_url=url).identity for url in SAME]
    assert all(one == made[0] for one in made)
    ports = [OpenAIClient(model="m", base_url=url).address for url in ("https://h/v1", "https://h:443/v1")]
    assert ports == ["https://h/v1"] * 2
    monkeypatch.setenv("OPENAI_BASE_URL", SAME[1])
    assert OpenAIClient(model="m").identity == made[0]


@pytest.mark.parametrize(
    "url",
    ["localhost:8000/v1", "ftp://h/v1", "http://", "http://h:99999/v1", "http://h:x/v1", "/v1", "", "http://a b/v1"],
)
def test_what_is_no_address_is_refused_by_its_key(url):
    with pytest.raises(InputError, match=r"client\.base_url: is no address of a server"):
        OpenAIClient(model="m", base_url=url)


SECRETS = [
    {"base_url": "http://user:hidden@h/v1"},
    {"base_url": "https://hidden@h/v1"},
    {"base_url": "https://h/v1?api_key=hidden"},
    {"base_url": "https://h/v1?key=hidden"},
    {"extra": {"api_key": "hidden"}},
    {"extra": {"metadata": {"X-Api-Key": "hidden"}}},
    {"extra": {"Authorization": "Bearer hidden"}},
    {"extra": {"list": [{"access_token": "hidden"}]}},
    {"extra": {"user": "sk-hidden0123456789"}},
    {"extra": {"header": "Bearer hidden"}},
]


@pytest.mark.parametrize("options", SECRETS, ids=map(str, SECRETS))
def test_secrets_are_refused_before_they_are_written_anywhere(options, monkeypatch):
    with pytest.raises(InputError, match=r"written down.*OPENAI_API_KEY") as told:
        OpenAIClient(model="m", **options)
    assert "hidden" not in str(told.value)
    if url := options.get("base_url"):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(InputError, match=r"OPENAI_BASE_URL: .*written down") as told:
            _ = OpenAIClient(model="m").identity
        assert "hidden" not in str(told.value)


def test_what_only_sounds_like_a_secret_is_sent(tmp_path):
    extra = {
        "max_tokens": 5, "min_tokens": 2, "skip_special_tokens": True, "prompt_cache_key": "folds", "user": "me",
        "metadata": {"token": 3}, "logit_bias": {"17": -1}, "service_tier": "flex",
    }  # fmt: skip
    client = OpenAIClient(model="m", base_url="https://h/v1?api-version=2026-01-01", extra=extra)
    assert client.identity["extra"] == extra
    assert client.address == "https://h/v1?api-version=2026-01-01"


# -- what identifies a request ------------------------------------------------------------------------------


def test_whatever_changes_what_is_sent_changes_the_identity():
    base = OpenAIClient(model="m", base_url="http://h/v1")
    changed = [
        replace(base, **{name: value})
        for name, value in {
            "model": "n", "base_url": "http://g/v1", "guided_as": "json_object", "limit": "max_completion_tokens",
            "send_sampling": False, "extra": {"user": "me"}, "thought_begun": True,
        }.items()
    ]  # fmt: skip
    assert len({json.dumps(one.identity, sort_keys=True) for one in (base, *changed)}) == len(changed) + 1


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize("kind", ["local", "served"])
def test_the_key_of_a_request_is_that_of_its_response(guided, kind, tmp_path, path_fold, tiny_model):
    pytest.importorskip("openai")
    fold = path_fold()
    with running(Proxy(lambda _: completion(REPLY))) as url:
        client = TransformersClient(model=str(tiny_model)) if kind == "local" else OpenAIClient(model="m", base_url=url)
        model = LanguageModel(client=client, guided=guided, max_tokens=52, orders=0)
        model.workspace(tmp_path / "d" / "f" / "n" / "seed0", {"device": "cpu"})
        model.fit(fold.training)
        requests = model.reply_requests(model.records(fold.inputs)[:2])
        replies = model.ask(requests)
    final = [request for request, reply in zip(requests, replies, strict=True) if reply.final]
    assert final
    folder = store_folder(tmp_path / "_responses", client.title, "")
    (path,) = folder.parent.glob("*/00001.jsonl")
    kept = {json.loads(line)["key"] for line in path.read_text(encoding="utf-8").splitlines()}
    assert kept == {model.request_key(request) for request in final}


def test_without_sampling_none_is_sent_whatever_is_asked_for(tmp_path):
    pytest.importorskip("openai")
    top = [{"token": letter, "logprob": -1.0, "bytes": None} for letter in "ABC"]
    listed = {"content": [{"token": "A", "logprob": -1.0, "bytes": None, "top_logprobs": top}]}
    proxy = Proxy(lambda _: completion(REPLY, logprobs=listed))
    with running(proxy) as url:
        for send in (True, False):
            client = OpenAIClient(model="m", base_url=url, logprobs=True, send_sampling=send)
            ask = Asker(client, Sampling(temperature=0.5), AskSettings(), root=tmp_path)
            ask.ask([Request(kind, ((("user", "q"),),), "q") for kind in ("reply", "letters")])
    sent = [{"temperature", "top_p", "seed"} & body.keys() for body in proxy.bodies]
    assert all(sent[:2])
    assert not any(sent[2:])


# -- thoughts that a prompt begins --------------------------------------------------------------------------

THOUGHT = 'So, a first draft: {"triplets": [], "answer": "down"}. But wait, the path inhibits.'


@pytest.mark.parametrize("guided", [False, True])
def test_a_server_whose_prompts_end_within_a_thought_is_read_so(guided, tmp_path, path_fold):
    pytest.importorskip("openai")
    fold = path_fold()
    said = {False: THOUGHT, True: f"{THOUGHT}</think>{REPLY}"}
    counts = {}
    for begun in (False, True):
        for ends in (False, True):
            with running(Proxy(lambda _, text=REPLY if guided else said[ends]: completion(text))) as url:
                client = OpenAIClient(model="m", base_url=url, thought_begun=begun)
                model = LanguageModel(client=client, guided=guided)
                model.workspace(tmp_path / "d" / "f" / "n" / "seed0", {})
                answers = model.fit(fold.training).answer(fold.inputs)
            counts[begun, ends] = set(answers.table["outcome"])
    if guided:  # a reply that is held to the form is no thought
        assert set.union(*counts.values()) == {"up"}
    else:
        assert counts == {(False, False): {"down"}, (True, False): {None}, (False, True): {"up"}, (True, True): {"up"}}


def test_a_model_on_this_machine_whose_prompts_end_within_a_thought_says_so(tmp_path, tiny_model):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    requests = [Request("reply", ((("user", text),),), text) for text in ("G1", "Does G2 go up? <think> again", "G3")]
    for end, begun in (("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)):
        own = tmp_path / f"model{len(end)}"
        tokenizer.chat_template = (
            "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>" + end + "{% endif %}"
        )
        tokenizer.save_pretrained(own)
        model.save_pretrained(own)
        client = TransformersClient(model=str(own))
        ask = Asker(client, Sampling(max_tokens=3), AskSettings(device="cpu"), root=tmp_path / "kept")
        found = ask.ask(requests)
        assert {one.thought_begun for one in found if one.final} == {begun}
        again = Asker(client, Sampling(max_tokens=3), AskSettings(device="cpu"), root=tmp_path / "kept")
        assert [again.store.get(ask.key(request)) for request in requests] == found
