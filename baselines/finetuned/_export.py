"""A fine-tuned model as a folder that transformers and vLLM load, and the client that asks it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pertbase._io import plain, read_json, read_mapping, write_folder_aside, write_json
from pertbase.baselines._files import file_hash
from pertbase.baselines.finetuned._examples import reply_tokens
from pertbase.baselines.llm import Request, Sampling, TransformersClient
from pertbase.baselines.llm._clients._registry import without_bars
from pertbase.baselines.llm._clients._room import without_room
from pertbase.baselines.llm._clients._state import State, common
from pertbase.baselines.llm._prompts import Messages, reply_of
from pertbase.errors import InputError, PertbaseError, unknown_name
from pertbase.folds import OUTCOMES

__all__ = [
    "ABOUT",
    "ExportedClient",
    "export",
    "exported",
    "first_line",
    "merged_model",
    "weights_hash",
    "written_whole",
]

ABOUT = "pertbase.json"
"""The file in an exported folder that says where its weights come from."""

_PRECISIONS = ("float32", "bfloat16", "float16")


def export(
    model: Any, tokenizer: Any, folder: Path, provenance: Mapping[str, Any], *, precision: str = "float32"
) -> Path:
    """Write a model to a folder that transformers and vLLM load: all of it, or nothing.

    Adapters of low rank are added to the weights they adapt; the model that was given keeps them apart. What is in the
    folder already makes way.

    Parameters
    ----------
    model
        A causal language model of transformers, or one with adapters of peft.
    tokenizer
        Written beside, with its chat template.
    folder
        Where to.
    provenance
        Plain values, written to ``pertbase.json`` with the hash of the weights.
    precision
        Of the weights that are written.

    Raises
    ------
    PertbaseError
        Where the folder cannot be written, or the disk is full.
    """
    import torch

    if precision not in _PRECISIONS:
        raise unknown_name("precision", str(precision), _PRECISIONS)
    whole = merged_model(model)
    state = _cast(whole.state_dict(), getattr(torch, precision))
    # What samples by default: temperatures of a chat model are none of the task's.
    whole.generation_config.update(do_sample=False, temperature=None, top_p=None, top_k=None)
    whole.generation_config.eos_token_id = _ends(whole, tokenizer)
    whole.generation_config.pad_token_id = tokenizer.pad_token_id
    with without_bars(), write_folder_aside(folder, replace=True) as aside, written_whole(folder):
        whole.save_pretrained(aside, state_dict=state)
        # transformers writes down the precision of the model, not of the weights it was given.
        write_json(aside / "config.json", {**read_json(aside / "config.json"), "dtype": precision})
        tokenizer.save_pretrained(aside)
        write_json(aside / ABOUT, {**plain(provenance), "precision": precision, "weights": weights_hash(aside)})
    return folder


@contextmanager
def written_whole(folder: Path) -> Iterator[None]:
    """Raise what writers of weights raise on a full disk, none of which is an ``OSError``, as an error of ours."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise PertbaseError(
            f"weights cannot be written ({first_line(error)})", file=folder,
            remedy="make room; the same command goes on from what was kept",
        ) from error  # fmt: skip


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _cast(state: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Return weights on the processor in another precision; those that were one tensor still are."""
    made: dict[Any, Any] = {}
    cast = {}
    for name, value in state.items():
        where = (value.data_ptr(), value.shape, value.stride())
        if where not in made:
            made[where] = value.detach().to("cpu", dtype)
        cast[name] = made[where]
    return cast


def merged_model(model: Any) -> Any:
    """Return a model without adapters: a copy whose weights have them added, or the model itself where it has none."""
    from copy import deepcopy

    if not hasattr(model, "merge_and_unload"):
        return model
    return deepcopy(model).merge_and_unload()


def _ends(model: Any, tokenizer: Any) -> int | list[int]:
    """Return the tokens that end a reply: the one that was taught, and those the model had."""
    had = model.generation_config.eos_token_id
    listed = had if isinstance(had, list) else [] if had is None else [had]
    ends = list(dict.fromkeys([tokenizer.eos_token_id, *listed]))
    return ends[0] if len(ends) == 1 else ends


def weights_hash(folder: Path) -> str:
    """Return the hash of a folder's weights and tokenizer: of all that decides what a model says."""
    digest = hashlib.sha256()
    # Not of tokenizer_config.json, which says where a tokenizer was loaded from.
    names = ["tokenizer.json", "chat_template.jinja", "config.json", "generation_config.json"]
    for path in (*sorted(folder.glob("*.safetensors")), *(folder / name for name in names)):
        if path.is_file():
            digest.update(f"{path.name}:{file_hash(path)}\n".encode())
    return digest.hexdigest()[:32]


def exported(folder: Path) -> dict[str, Any] | None:
    """Return what an exported folder says of itself, or None where there is none.

    Raises
    ------
    InputError
        Where its weights are not those it speaks of.
    """
    if not (folder / ABOUT).is_file():
        return None
    about = read_mapping(folder / ABOUT)
    if about.get("weights") != weights_hash(folder):
        raise InputError(
            "holds other weights than it says", file=folder, key="weights", value=about.get("weights"),
            remedy="remove the folder; the same command writes it again",
        )  # fmt: skip
    return about


@dataclass(frozen=True, kw_only=True)
class ExportedClient(TransformersClient):
    """An exported model, known by the hash of its weights: the folder may be moved, and never hides another model.

    Parameters
    ----------
    name
        What it is called in tables.
    weights
        The hash.
    max_length
        Tokens of prompt and reply together at most, as in training: what it was not taught it is not asked.
    """

    name: str = "finetuned"
    weights: str = ""
    max_length: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Name, weights, precision and how prompts are laid out."""
        return {
            "client": "transformers",
            "model": self.name,
            "weights": self.weights,
            "precision": self.precision,
            "chat": self.chat,
            **({} if self.max_length is None else {"max_length": self.max_length}),
        }

    @property
    def title(self) -> str:
        """The name."""
        return self.name

    def _prompt(self, messages: Messages, *, thinking: bool | None) -> list[int]:
        """Return the tokens of a prompt; where the last turn is the model's own, with that reply and its end."""
        if messages[-1][0] != "assistant":
            return super()._prompt(messages, thinking=thinking)
        asked = super()._prompt(messages[:-1], thinking=thinking)
        return [*asked, *reply_tokens(self._load()[0], messages[-1][1])]

    def _without_room(self, kind: str, tokens: Mapping[int, list[list[int]]], sampling: Sampling) -> dict[int, str]:
        """Return which rows are longer than the model takes, or than what it learnt from, with the shortest reply."""
        tokenizer, _ = self._load()
        shortest = max(len(reply_tokens(tokenizer, reply_of((), outcome))) for outcome in OUTCOMES)
        limit = f"the {self.max_length} of baseline.max_length"
        own = without_room(tokens, kind, most=self.max_length, reply=shortest, limit=limit)
        return {**super()._without_room(kind, tokens, sampling), **own}

    def _letters(
        self, tokens: Sequence[list[list[int]]], requests: Sequence[Request], sampling: Sampling, prefix: State
    ) -> list[dict[str, Any]]:
        """Return the log probabilities of replies, from where they begin to differ: what is before is all the same."""
        shared = [common(replies) for replies in tokens]
        heads = [replies[0][:length] for replies, length in zip(tokens, shared, strict=True)]
        tails = [[reply[length:] for reply in replies] for replies, length in zip(tokens, shared, strict=True)]
        found = self._continued(heads, tails, self._prefix([]))
        return [
            {
                "letters": (tuple(row),),
                "prompt_tokens": len(head) + sum(map(len, replies)),
                "served_by": self.title,
            }
            for row, head, replies in zip(found, heads, tails, strict=True)
        ]
