"""What is exported: a folder that answers the same whoever asks it, whole or absent, known by its weights."""

from __future__ import annotations

import json

import finetuned_toy as toy
import numpy as np
import pytest
import torch
from test_sft import LORA

from pertbase.baselines.finetuned import SFT, ExportedClient
from pertbase.baselines.finetuned._export import exported, merged_model
from pertbase.baselines.llm import TransformersClient
from pertbase.baselines.llm._clients._base import Request, Sampling
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import OUTCOMES


def test_an_exported_model_answers_the_same_asked_plainly_and_through_the_client(reasoned, small):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, folder = reasoned
    where = toy.exported_to(folder)
    network = AutoModelForCausalLM.from_pretrained(where).eval()
    tokenizer = AutoTokenizer.from_pretrained(where)
    records = model.records(small.inputs)
    requests = model.reply_requests(records)
    for response, request in zip(model.ask(requests), requests, strict=True):
        turns = [{"role": role, "content": content} for role, content in request.prompts[0]]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        with torch.no_grad():
            made = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64)
        assert tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True) == response.text
    # And through the client that anybody would name the folder to.
    client = TransformersClient(model=str(where))
    given = {}
    client.ask(requests, range(len(requests)), Sampling(max_tokens=64), lambda batch: given.update(dict(batch)))
    assert [given[row].text for row in range(len(requests))] == [one.text for one in model.ask(requests)]


def test_scores_are_the_likelihoods_of_the_three_replies(reasoned, small):
    """Computed anew, one whole text at a time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, folder = reasoned
    network = AutoModelForCausalLM.from_pretrained(toy.exported_to(folder)).eval()
    tokenizer = AutoTokenizer.from_pretrained(toy.exported_to(folder))
    records = model.records(small.inputs)[:6]
    expected = []
    for prompt in model.prompts(records):
        turns = [{"role": role, "content": content} for role, content in prompt]
        asked = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        logs = []
        for outcome in OUTCOMES:
            before = tokenizer.encode(asked, add_special_tokens=False)
            reply = tokenizer.encode(json.dumps({"triplets": [], "answer": outcome}), add_special_tokens=False)
            ids = torch.tensor([[*before, *reply, tokenizer.eos_token_id]])
            with torch.no_grad():
                table = torch.log_softmax(network(ids).logits[0].double(), dim=-1)
            logs.append(float(sum(table[at - 1, ids[0, at]] for at in range(len(before), ids.shape[1]))))
        powers = np.exp(np.array(logs) - max(logs))
        expected.append(powers / powers.sum())
    _, scores = model.said(records, replies=False)
    assert np.allclose(scores, expected, atol=1e-5)
    assert np.ptp(scores) > 0.1


def test_adapters_are_added_to_the_weights_and_say_what_they_said_beside_them(small, tmp_path):
    from transformers import AutoModelForCausalLM

    model = SFT(**{**toy.SMALL, "lora": LORA, "max_epochs": 1, "learning_rate": 0.01})
    model.workspace(tmp_path / "toy" / "fold" / "sft" / "seed0", toy.CPU, {})
    model.prepare(small.training)
    module = model.train(small.training)
    ids = torch.randint(0, 300, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        apart = module.model(ids).logits
        with module.model.disable_adapter():
            without = module.model(ids).logits
        merged = merged_model(module.model)(ids).logits
    assert torch.allclose(apart, merged, atol=1e-5)
    assert not torch.allclose(apart, without, atol=1e-2)
    model.fit(small.training)  # exports what was trained
    exported_model = AutoModelForCausalLM.from_pretrained(toy.exported_to(tmp_path)).eval()
    with torch.no_grad():
        assert torch.allclose(exported_model(ids).logits, apart, atol=1e-5)
    assert not any("lora" in name for name in exported_model.state_dict())


def test_an_exported_folder_says_where_it_comes_from_and_can_be_started_from(reasoned, small, tmp_path):
    _, folder = reasoned
    where = toy.exported_to(folder)
    about = exported(where)
    assert about["start"]["start"] == "tiny"
    assert about["texts"]["sources"] == {"outcome": 212, "rule": 48}
    assert {"fold": about["fold"], "seed": about["seed"], "preset": about["preset"]} == {
        "fold": "toy", "seed": 0, "preset": "cell_path",
    }  # fmt: skip
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in where.iterdir()
    }
    again = toy.fitted(small.training, tmp_path, start=str(where), max_epochs=0, preset="cell_path")
    assert again.account()["learnt"]["start"]["from"]["weights"] == about["weights"]
    assert exported(toy.exported_to(tmp_path))["weights"] == about["weights"]


def test_another_precision_is_that_of_every_weight_and_ties_stay(small, tmp_path):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    toy.fitted(small.training, tmp_path, max_epochs=0, export_precision="bfloat16")
    kept = load_file(toy.exported_to(tmp_path) / "model.safetensors")
    assert {value.dtype for value in kept.values()} == {torch.bfloat16}
    assert "lm_head.weight" not in kept
    loaded = AutoModelForCausalLM.from_pretrained(toy.exported_to(tmp_path), dtype="auto")
    assert loaded.dtype == torch.bfloat16
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()


def test_a_disk_that_is_full_leaves_no_half_of_a_model(small, tmp_path, monkeypatch):
    import safetensors.torch

    def full(*arguments, **options):  # type: ignore[no-untyped-def]
        raise OSError(28, "No space left on device")

    import transformers.modeling_utils as saving

    with monkeypatch.context() as patch:
        patch.setattr(saving, "safe_save_file", full)
        patch.setattr(safetensors.torch, "save_file", full)
        with pytest.raises(PertbaseError, match="No space left"):
            toy.fitted(small.training, tmp_path, max_epochs=1)
    assert not toy.exported_to(tmp_path).exists()
    assert not list(toy.exported_to(tmp_path).parent.glob(".*part"))
    # What was trained is not trained again, only written.
    (last,) = tmp_path.rglob("last.ckpt")
    before = last.stat().st_mtime_ns
    toy.fitted(small.training, tmp_path, max_epochs=1)
    assert toy.exported_to(tmp_path).exists()
    assert last.stat().st_mtime_ns == before


def test_weights_that_were_changed_by_hand_are_refused(small, tmp_path):
    toy.fitted(small.training, tmp_path, max_epochs=0)
    path = toy.exported_to(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(InputError, match=r"other weights than it says.*Remove the folder"):
        toy.fitted(small.training, tmp_path, max_epochs=0)


def test_responses_are_kept_under_the_weights_not_under_the_folder():
    one, moved = (ExportedClient(model=path, name="sft", weights="w") for path in ("a/model", "b/model"))
    other = ExportedClient(model="a/model", name="sft", weights="v")
    request = Request("reply", ((("user", "up?"),),), "q")
    assert request.key(one.identity, Sampling()) == request.key(moved.identity, Sampling())
    assert request.key(one.identity, Sampling()) != request.key(other.identity, Sampling())
    assert one.title == "sft"
