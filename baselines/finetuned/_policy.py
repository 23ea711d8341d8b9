"""What is trained by rewards, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pertbase.errors import InputError, unknown_name

if TYPE_CHECKING:
    from pertbase.baselines.finetuned._rewards import Rewards
    from pertbase.baselines.llm import Parsed
    from pertbase.baselines.llm._prompts import Messages

__all__ = ["LOSSES", "SCALES", "Policy", "PolicySettings"]

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo")
SCALES = ("group", "batch", "none")


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """How replies are drawn and learnt from.

    Every step draws its own replies, by the model as it is, so that no ratio of likelihoods has to be corrected or
    clipped; ``top_p`` and ``top_k`` would bias it, and cannot be set.

    Parameters
    ----------
    steps
        Updates.
    questions
        Of one step.
    generations
        Replies to each of them; at least 2, since they are compared with each other.
    batch_size
        Replies in one backward pass; all of a step if None. It divides ``questions * generations``.
    draw_temperature
        That replies are drawn at.
    max_tokens
        Of one reply.
    learning_rate
        Of AdamW; constant after the warm-up.
    warmup_steps
        Updates over which the learning rate rises.
    clip_norm
        Largest norm of all gradients together.
    beta
        Weight of the divergence from the model that training began with; 0 keeps no copy of it.
    loss
        One of :data:`LOSSES`: how the losses of tokens are averaged.
    scale_rewards
        One of :data:`SCALES`: what differences of rewards are divided by.
    patience
        Steps in a row in which nothing can be learnt, after which training stops and says why.
    vllm
        None to draw with transformers; else options of TRL's ``vllm_...``, such as ``mode: colocate`` or ``mode:
        server`` and ``server_base_url``.
    """

    steps: int = 200
    questions: int = 8
    generations: int = 8
    batch_size: int | None = None
    draw_temperature: float = 1.0
    max_tokens: int = 256
    learning_rate: float = 1e-6
    warmup_steps: int = 0
    clip_norm: float = 1.0
    beta: float = 0.0
    loss: str = "dapo"
    scale_rewards: str = "group"
    patience: int = 10
    vllm: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        counts = {"steps": 1, "questions": 1, "generations": 2, "max_tokens": 1, "patience": 1}
        for name, least in counts.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"is a whole number from {least} on", key=name, value=value)
        for name in ("draw_temperature", "learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise InputError("is a positive number", key=name, value=getattr(self, name))
        for name in ("beta", "warmup_steps"):
            if not getattr(self, name) >= 0:
                raise InputError("is not negative", key=name, value=getattr(self, name))
        for name, known in (("loss", LOSSES), ("scale_rewards", SCALES)):
            if getattr(self, name) not in known:
                raise unknown_name(name, str(getattr(self, name)), known)
        if self.replies % self.rows:
            raise InputError(
                f"divides the {self.replies} replies of a step", key="batch_size", value=self.batch_size,
                remedy=f"use a divisor of questions * generations = {self.replies}",
            )  # fmt: skip

    @property
    def replies(self) -> int:
        """Of one step."""
        return self.questions * self.generations

    @property
    def rows(self) -> int:
        """Replies in one backward pass."""
        return self.batch_size or self.replies

    @classmethod
    def of(cls, owner: object) -> PolicySettings:
        """Return the settings that an object has as attributes of the same names."""
        return cls(**{item.name: getattr(owner, item.name) for item in fields(cls)})


@dataclass(frozen=True, eq=False)
class Policy:
    """What is trained, on what, and what rewards it.

    Parameters
    ----------
    model, tokenizer
        Of transformers; the model learns in place, all of it or its adapters of low rank.
    prompts
        Question id -> its prompt, as turns.
    order
        Question ids, ``questions`` of them for each step.
    read
        Takes a question id, a text and why it ended, and returns what it says.
    rewards
        Rewards what is said.
    template_options
        Of the chat template: whether to think.
    """

    model: Any
    tokenizer: Any
    prompts: Mapping[str, Messages]
    order: Sequence[str]
    read: Callable[[str, str, str], Parsed]
    rewards: Rewards
    template_options: Mapping[str, Any] = field(default_factory=dict)
