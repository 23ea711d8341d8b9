"""What a client is asked, what it returns, and what every client can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pertbase._io import canonical_json, sha256_text
from pertbase.baselines.llm._prompts import SCHEMA, Messages
from pertbase.errors import InputError

__all__ = ["Client", "Done", "Request", "Response", "Sampling", "encodable"]

Kind = Literal["reply", "letters", "outcomes"]
Finish = Literal["stop", "length", "content_filter", "refusal", "rejected", "empty", "error"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a reply is drawn.

    Parameters
    ----------
    temperature
        0 takes the likeliest token each time.
    top_p
        The share of probability that tokens are drawn from.
    max_tokens
        Of one reply; a longer one is cut off, and said to be.
    thinking
        Whether a model that can is to think before it replies; None leaves it to its chat template.
    guided
        Whether the client is to hold the model to the schema of a reply, where it can.
    seed
        Of the draw; sample i of a question is drawn with ``seed + i``.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 256
    thinking: bool | None = None
    guided: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, good in (
            ("temperature", self.temperature >= 0),
            ("top_p", 0 < self.top_p <= 1),
            ("max_tokens", self.max_tokens >= 1),
        ):
            if not good:
                raise InputError("cannot be", key=name, value=getattr(self, name))


@dataclass(frozen=True)
class Request:
    """One thing to ask: for a reply, how likely each letter is as the next word, or each outcome in a reply.

    Parameters
    ----------
    kind
        ``reply``, ``letters`` or ``outcomes``.
    prompts
        One for a reply; for letters one an order of the options; for outcomes one whose last turn is the model's own
        reply, begun, which is to be gone on with and not to be ended.
    question
        The id of the question it belongs to.
    sample
        Which of several replies to one question.
    prose
        Whether a reply is wanted that no schema holds, as a summary is.
    """

    kind: Kind
    prompts: tuple[Messages, ...]
    question: str
    sample: int = 0
    prose: bool = False

    def guided(self, sampling: Sampling) -> bool:
        """Return whether its reply is to be held to the schema."""
        return sampling.guided and self.kind == "reply" and not self.prose

    def key(self, identity: Mapping[str, Any], sampling: Sampling, schema: Any = None) -> str:
        """Return the hash of everything that changes a response; ``schema`` is what a reply can be held to."""
        # Likelihoods are computed, not drawn; nor does the likeliest token depend on a seed.
        drawn = dict(vars(sampling)) if self.kind == "reply" else {"thinking": sampling.thinking}
        if self.kind == "reply":
            drawn["guided"] = schema if self.guided(sampling) else False
        # Of letters too, for the sake of those that are kept already.
        if not sampling.temperature and self.kind != "outcomes":
            drawn |= {"seed": 0, "top_p": 1.0}
        parts = [identity, self.kind, self.prompts, drawn, self.sample]
        return sha256_text(canonical_json(parts))


@dataclass(frozen=True)
class Response:
    """What a model returned, verbatim, and what it took.

    Parameters
    ----------
    text
        The reply as it was returned.
    thought
        What was returned apart as the model's thinking.
    finish
        ``stop``; ``length`` (cut off); ``content_filter`` or ``refusal``; ``rejected`` (the server will not take this
        prompt, whoever asks); ``empty``; ``error``.
    letters
        For letters: the log probability of A, B and C, one row an order, NaN where fewer than two of them could be
        seen; for outcomes: of up, down and no_change.
    prompt_tokens, reply_tokens
        As counted by whoever ran the model, over all attempts; 0 where nobody counted.
    seconds
        Wall-clock time; of a batch, its share.
    attempts
        How often it was asked, until this came back.
    served_by
        The model's name, as the server gives it.
    error
        What went wrong last.
    thought_begun
        Whether the prompt ended within a thought, as some chat templates have it: so then does the reply begin.

    Half a pair of surrogates, which no file can hold, becomes U+FFFD in all of its texts.
    """

    text: str = ""
    thought: str = ""
    finish: Finish = "stop"
    letters: tuple[tuple[float, ...], ...] | None = None
    prompt_tokens: int = 0
    reply_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    served_by: str = ""
    error: str = ""
    thought_begun: bool = False

    def __post_init__(self) -> None:
        for name in ("text", "thought", "served_by", "error"):
            value = getattr(self, name)
            if value != (clean := encodable(value)):
                object.__setattr__(self, name, clean)

    @property
    def final(self) -> bool:
        """Whether asking again would be in vain; only then is it kept."""
        return self.finish not in ("empty", "error")

    @property
    def unseen(self) -> bool:
        """Whether letters were asked for, and fewer than two of them could be seen in one of the orders."""
        return self.letters is not None and any(math.isnan(value) for row in self.letters for value in row)


def encodable(text: str) -> str:
    """Return a text that a file can hold: half a pair of surrogates becomes U+FFFD, a whole pair its letter."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


Done = Callable[[list[tuple[int, Response]]], None]
"""Takes the responses to some requests, by their positions, as soon as they are there; may raise to stop."""


@dataclass(frozen=True, kw_only=True)
class Client(ABC):
    """Somewhere a language model runs.

    A client is described by plain values alone, so that it can be written down, compared and copied; what it loads or
    connects to, it loads or connects to when it is first asked.

    Parameters
    ----------
    settings
        How to ask on this machine: the fields of :class:`~pertbase.baselines.llm.AskSettings`. They are no part of what
        identifies a client, and are filled in by whoever asks.

    Attributes
    ----------
    guides
        Whether it can hold a model to a schema.
    scores_outcomes
        Whether it can say how likely each outcome is as what follows in a reply that was begun.
    schema
        What it then holds it to.
    packages
        Whose versions a run records.
    """

    guides: ClassVar[bool] = False
    scores_outcomes: ClassVar[bool] = False
    schema: ClassVar[Any] = SCHEMA
    packages: ClassVar[tuple[str, ...]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def scores_letters(self) -> bool:
        """Whether it can say how likely each letter is."""
        return True

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What changes a response, beside prompt and sampling: model, revision, address, precision."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The model's name, for tables and file names."""

    @property
    def device(self) -> str:
        """What it runs on, for the record of a run."""
        return "elsewhere"

    def refuses(self) -> str | None:
        """Return why it cannot be used on this machine, or None."""
        return None

    def advice(self, error: str) -> str:
        """Return what to look at where every request is rejected with such an error."""
        return "it is the configuration that is rejected, and no single question: see the options of baseline.client"

    @abstractmethod
    def ask(self, requests: Sequence[Request], rows: Sequence[int], sampling: Sampling, done: Done) -> None:
        """Ask some of the requests, and hand over each response, or batch of responses, as it comes.

        Failures are responses too. Requests of all kinds may be mixed; for outcomes is asked only a client that
        ``scores_outcomes``.

        Parameters
        ----------
        requests
            All there are. Batches are put together from these, so that they are the same whatever was asked before.
        rows
            Positions of those to ask.
        sampling
            How replies are drawn.
        done
            Takes positions and responses.
        """
