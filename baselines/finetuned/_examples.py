"""Training examples: the prompts of evaluation, word by word, and the replies that are taught to them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.baselines.finetuned._texts import Text, Texts
from pertbase.baselines.llm import LanguageModel, Record
from pertbase.baselines.llm._clients._chat import chat_text, chat_tokens
from pertbase.baselines.llm._prompts import Messages
from pertbase.baselines.llm._record import paths_of
from pertbase.errors import InputError, unknown_name
from pertbase.folds import OUTCOMES, Training

__all__ = [
    "BALANCES",
    "Draft",
    "Examples",
    "TrainingExample",
    "absent",
    "class_weights",
    "draft_examples",
    "reply_tokens",
    "some_of_each",
    "tokenised",
]

BALANCES = ("weights", "resampled", "none")
"""How classes of unequal size are made to count alike: by their weight in the loss, by drawing as many of each, not."""

_log = logging.getLogger("pertbase")


@dataclass(frozen=True)
class Draft:
    """One example in words.

    Parameters
    ----------
    record
        The question.
    messages
        Its prompt, as it is asked at evaluation.
    text
        What is taught as the reply.
    """

    record: Record
    messages: Messages
    text: Text


@dataclass(frozen=True, eq=False)
class TrainingExample:
    """One example in tokens.

    Parameters
    ----------
    draft
        The same in words.
    prompt_ids
        Tokens of the prompt, int32, shape (n,): no loss is taken on them.
    completion_ids
        Tokens of what the model is to write, with the one that ends it, int32, shape (m,).
    weight
        Of its class in the loss.
    """

    draft: Draft
    prompt_ids: np.ndarray
    completion_ids: np.ndarray
    weight: float = 1.0

    @property
    def id(self) -> str:
        """The question's."""
        return self.draft.record.id

    @property
    def outcome(self) -> str:
        """What was measured."""
        return self.draft.text.outcome

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of a split, and what was left out.

    Parameters
    ----------
    items
        Sorted by id.
    counts
        Outcome -> ``questions``, ``kept``, ``too_long``.
    longest
        Tokens of the longest that was kept.
    """

    items: tuple[TrainingExample, ...]
    counts: Mapping[str, Mapping[str, int]]
    longest: int

    def __len__(self) -> int:
        return len(self.items)

    def describe(self) -> dict[str, Any]:
        """Return plain values, for the record of a run."""
        return {"by_outcome": {key: dict(value) for key, value in self.counts.items()}, "longest": self.longest}


def draft_examples(
    language: LanguageModel,
    training: Training,
    texts: Texts,
    *,
    split: str = "train",
    per_outcome: int | None = None,
    reached: bool = False,
) -> list[Draft]:
    """Return the examples of a split in words.

    Prompts are those that ``language`` asks at evaluation, of the same records.

    Parameters
    ----------
    language
        Fitted to the training.
    training
        Whose questions with outcomes are learnt from.
    texts
        Writes the replies.
    split
        ``train``, or ``val`` to select on.
    per_outcome
        Questions of each outcome at most, drawn by their ids and the training's seed; all if None.
    reached
        Whether only questions to which candidate paths lead are learnt from.
    """
    known = training.headline
    known = known.loc[known["split"] == split]
    if reached:
        known = known.loc[[len(paths_of(paths)) > 0 for paths in known["candidate_paths"]]]
    known = some_of_each(known, per_outcome, training.seed, split)
    if known.empty:
        return []
    inputs = training.inputs(split)
    asked = inputs.questions.set_index("id").loc[known["id"]].reset_index()
    records = language.records(replace(inputs, questions=asked))
    written = texts.write(records, known)
    prompts = language.prompts(records)
    return [
        Draft(record, prompt, text)
        for record, prompt, text in zip(records, prompts, written, strict=True)
        if text is not None
    ]


def some_of_each(questions: pd.DataFrame, n: int | None, seed: int, split: str) -> pd.DataFrame:
    """Return at most ``n`` questions of each outcome, drawn by their ids and the seed; all if None. Sorted by id."""
    by_id = questions.iloc[np.argsort(questions["id"].to_numpy(dtype=str), kind="stable")].reset_index(drop=True)
    if n is None:
        return by_id
    lot = pd.Series(generator(seed, "examples of each", split).random(len(by_id)))
    place = lot.groupby(by_id["outcome"].to_numpy()).rank()
    return by_id.loc[(place <= n).to_numpy()].reset_index(drop=True)


def tokenised(
    drafts: Sequence[Draft],
    tokenizer: Any,
    *,
    max_length: int,
    thinking: bool | None = None,
    balance: str = "weights",
    split: str = "train",
) -> Examples:
    """Return examples in tokens, those that are too long left out and counted.

    Parameters
    ----------
    drafts
        In words.
    tokenizer
        Of the model that learns.
    max_length
        Tokens of prompt and reply together at most; nothing is ever cut off.
    thinking
        As at evaluation.
    balance
        One of :data:`BALANCES`; see :func:`class_weights`.
    split
        Whose.

    Raises
    ------
    InputError
        Where all of train are too long.
    """
    if balance not in BALANCES:
        raise unknown_name("balance", str(balance), BALANCES)
    made: list[TrainingExample] = []
    counts = {outcome: {"questions": 0, "kept": 0, "too_long": 0} for outcome in OUTCOMES}
    shortest = None
    for draft in drafts:
        one = _tokens_of(draft, tokenizer, thinking)
        shortest = len(one) if shortest is None else min(shortest, len(one))
        fits = len(one) <= max_length
        counts[one.outcome]["questions"] += 1
        counts[one.outcome]["kept" if fits else "too_long"] += 1
        if fits:
            made.append(one)
    left_out = {outcome: count["too_long"] for outcome, count in counts.items() if count["too_long"]}
    if drafts and not made and split == "train":
        raise InputError(
            f"every prompt of {split} with its reply is longer ({_told(left_out)}; the shortest has {shortest} tokens)",
            key="max_length", value=max_length, remedy=f"use baseline.max_length={shortest} or more, or show less",
        )  # fmt: skip
    if left_out:
        _log.warning("%s: left out as longer than %d tokens: %s", split, max_length, _told(left_out))
    weights = class_weights([one.outcome for one in made]) if balance == "weights" else {}
    made = [replace(one, weight=weights.get(one.outcome, 1.0)) for one in made]
    return Examples(tuple(made), counts, max(map(len, made), default=0))


def _tokens_of(draft: Draft, tokenizer: Any, thinking: bool | None) -> TrainingExample:
    prompt = chat_tokens(tokenizer, chat_text(tokenizer, draft.messages, thinking=thinking))
    return TrainingExample(
        draft, np.array(prompt, dtype=np.int32), np.array(reply_tokens(tokenizer, draft.text.reply), dtype=np.int32)
    )


def reply_tokens(tokenizer: Any, reply: str) -> list[int]:
    """Return the tokens of a reply with the one that ends it, apart from those of its prompt."""
    return [*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id]


def class_weights(outcomes: Sequence[str]) -> dict[str, float]:
    """Return the weight of each outcome that occurs: :math:`n / (k n_c)` for k classes, so that their mean is 1."""
    found = {outcome: outcomes.count(outcome) for outcome in OUTCOMES if outcome in outcomes}
    return {outcome: len(outcomes) / (len(found) * count) for outcome, count in found.items()}


def absent(drafts: Iterable[Draft]) -> list[str]:
    """Return the outcomes that no example has: what is never shown cannot be learnt."""
    there = {draft.text.outcome for draft in drafts}
    return [outcome for outcome in OUTCOMES if outcome not in there]


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
