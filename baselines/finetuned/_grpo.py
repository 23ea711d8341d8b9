"""GRPO: a language model that is rewarded for its replies, by TRL."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pertbase._io import plain, write_folder_aside
from pertbase._random import generator
from pertbase.baselines.finetuned._examples import Draft, absent, draft_examples
from pertbase.baselines.finetuned._export import export, written_whole
from pertbase.baselines.finetuned._finetuned import Finetuned
from pertbase.baselines.finetuned._policy import Policy, PolicySettings
from pertbase.baselines.finetuned._rewards import Rewards, RewardSettings, asked_of
from pertbase.baselines.finetuned._rollouts import Rollouts
from pertbase.baselines.finetuned._start import Start
from pertbase.baselines.finetuned._steps import remove_checkpoints
from pertbase.baselines.llm import Parsed
from pertbase.baselines.llm._parsing._replies import read_reply
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, Training

if TYPE_CHECKING:
    from pertbase.baselines.harness import TrainerSettings
    from pertbase.knowledge import GeneNames, SignedGraph

__all__ = ["GRPO", "dealt"]

_log = logging.getLogger("pertbase")
_OFTENER = 4
"""Times that what is rare and preferred may come, at most, for each that it would."""


class GRPO(Finetuned):
    """A language model that is trained by what its replies earn: GRPO, through TRL.

    In each step it replies several times to each of some questions of train. What a reply earned more, or less, than
    the others to its question makes it likelier, or less likely. Rewards are those of
    :mod:`pertbase.baselines.finetuned._rewards`. Every reply, and every step with the shares of its rewards, is kept in
    the run's folder as it comes.

    Parameters
    ----------
    rewards
        What replies earn: :class:`~pertbase.baselines.finetuned.RewardSettings`.
    steps, questions, generations, batch_size, draw_temperature, learning_rate, warmup_steps, clip_norm, beta, loss
        See :class:`~pertbase.baselines.finetuned._policy.PolicySettings`.
    scale_rewards, patience, vllm
        See :class:`~pertbase.baselines.finetuned._policy.PolicySettings`.
    balance
        ``resampled``: as many questions of each outcome; ``none``: as they are.
    referred
        The share of questions that have a reference, among those of each outcome that has some with and some without,
        but no more than four times what it is in train; as it is in train if None. Of the others, replies teach nothing
        about reasons.
    options
        Of :class:`~pertbase.baselines.finetuned.Finetuned`. Replies have ``max_tokens`` at most, and ``max_length``
        holds prompt and reply. Nothing is selected on val.
    """

    def __init__(
        self,
        *,
        rewards: Mapping[str, Any] | None = None,
        steps: int = 200,
        questions: int = 8,
        generations: int = 8,
        batch_size: int | None = None,
        draw_temperature: float = 1.0,
        learning_rate: float = 1e-6,
        warmup_steps: int = 0,
        clip_norm: float = 1.0,
        beta: float = 0.0,
        loss: str = "dapo",
        scale_rewards: str = "group",
        patience: int = 10,
        vllm: Mapping[str, Any] | None = None,
        balance: str = "resampled",
        referred: float | None = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(**{"selection_per_outcome": None, **options}, balance=balance)
        if self.selection_per_outcome is not None:
            raise InputError("is of fine-tuning by examples", key="selection_per_outcome", remedy="leave it out")
        if balance == "weights":
            raise InputError(
                "rewards have no weights of classes", key="balance", value=balance, remedy="use resampled or none"
            )
        if referred is not None and not 0 <= referred <= 1:
            raise InputError("is a share", key="referred", value=referred, remedy="give a number from 0 to 1, or null")
        self.referred = referred
        self.rewards = dict(rewards or {})
        self.steps = steps
        self.questions = questions
        self.generations = generations
        self.batch_size = batch_size
        self.draw_temperature = draw_temperature
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.clip_norm = clip_norm
        self.beta = beta
        self.loss = loss
        self.scale_rewards = scale_rewards
        self.patience = patience
        self.vllm = None if vllm is None else dict(vllm)
        self._policy = PolicySettings.of(self)
        self._rewarded = RewardSettings.from_config(self.rewards)
        self._trainer: Mapping[str, Any] = {}
        self._rollouts: str | None = None

    @property
    def packages(self) -> tuple[str, ...]:
        """Whose versions a run records."""
        ours = ("torch", "transformers", "tokenizers", "trl", "accelerate", "datasets")
        return (*ours, *(("peft",) if self.lora else ()), *(("vllm",) if self.vllm else ()))

    @property
    def settings(self) -> TrainerSettings:
        """On what it is trained."""
        from pertbase.baselines.harness import TrainerSettings

        return TrainerSettings.from_config(self._trainer)

    def workspace(  # type: ignore[override]
        self, folder: Path, trainer: Mapping[str, Any], asking: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take the run's folder, how to train and how to ask; nothing is written yet.

        Raises
        ------
        InputError
            Where several devices are asked for.
        """
        self._trainer = dict(trainer)
        if self.settings.world > 1:
            raise InputError(
                "is trained on one device", key="trainer.devices", value=trainer.get("devices"),
                remedy="use trainer.devices=1; replies may be drawn by a vLLM server on others, see baseline.vllm",
            )  # fmt: skip
        return super().workspace(folder, trainer, asking)

    def refuses(self, training: Training) -> str | None:
        """Refuse where TRL is not installed, or reasons are rewarded and the fold has no references."""
        from importlib.util import find_spec

        if find_spec("trl") is None:
            return "trl is not installed; pip install 'pertbase[finetune]'"
        if self._rewarded.triplets and "reference_paths" not in training.questions.columns:
            return (
                f"reasons are rewarded for what reference paths have, and {training.fold} has none; lay paths over it, "
                "with paths=own (simulated) or paths=human, or say baseline.rewards.triplets=0"
            )
        return super().refuses(training)

    def account(self) -> dict[str, Any]:
        """Return what was asked and learnt from, and where replies and steps of training are kept."""
        return {**super().account(), **({} if self._rollouts is None else {"rollouts": self._rollouts})}

    def fit(self, training: Training) -> GRPO:
        """Train, or go on from the last checkpoint, or take what was trained; and get ready to answer.

        Raises
        ------
        InputError
            Where the start cannot be loaded, or every prompt is too long.
        PertbaseError
            Where rewards leave nothing to learn from, with the reason, or the model cannot be written.
        """
        key = self.training_key(training)
        self._rollouts = None if self._home is None else f"training/{key}"
        super().fit(training)
        # There is no more to go on with, whether the model was exported now or by a process that was killed then.
        remove_checkpoints(self._own_folder() / "training" / key)
        return self

    # -- learning -------------------------------------------------------------------------------------------

    def learn(self, training: Training, folder: Path, about: Mapping[str, Any]) -> None:
        """Draw, reward and learn, and export what was learnt."""
        from pertbase.baselines.finetuned._trl import train_policy

        home = self._own_folder() / "training" / self.training_key(training)
        seed = int(generator(training.seed, "grpo").integers(2**31))
        with _seeded(self.settings, seed):
            asked: dict[str, Any] = {"per_outcome": self.per_outcome, "reached": self.reached}
            drafts = draft_examples(self, training, self.texts(), **asked)
            start = self._adapted(self.started(training, drafts), home)
            kept, counts = self._fitting(drafts, start)
            policy = self._made(training, start, kept)
            rollouts = Rollouts(home, patience=self.patience)
            model = train_policy(policy, self._policy, self.settings, home, rollouts, seed=seed)
        learnt = {
            "start": dict(start.provenance),
            "train": {"by_outcome": counts},
            "never_shown": absent(kept),
            "lora": plain(self.lora),
            "policy": asdict(self._policy),
            "rewards": asdict(self._rewarded),
            "steps": len(rollouts.steps),
        }
        export(model, start.tokenizer, folder, {**about, **learnt}, precision=self.export_precision)

    def _adapted(self, start: Start, home: Path) -> Start:
        """Return the start with adapters, where they are asked for, and where TRL can find it again."""
        from pertbase.baselines.finetuned._module import with_adapters

        if self.lora is not None:
            return Start(with_adapters(start.model, self.lora), start.tokenizer, start.provenance)
        if self.beta:
            # What training began with is kept beside it, and TRL loads it by its name.
            if not (home / "start").is_dir():
                with write_folder_aside(home / "start") as aside, written_whole(home / "start"):
                    start.model.save_pretrained(aside)
            start.model.config._name_or_path = str(home / "start")
        return start

    def _fitting(self, drafts: Sequence[Draft], start: Start) -> tuple[list[Draft], dict[str, dict[str, int]]]:
        """Return the questions whose prompts leave room for a reply, and counts by outcome."""
        from pertbase.baselines.llm._clients._chat import chat_text, chat_tokens, thinking_for

        thinking, tokenizer = thinking_for("reply", self.thinking), start.tokenizer
        texts = [chat_text(tokenizer, draft.messages, thinking=thinking) for draft in drafts]
        room = self.max_length - self.max_tokens
        lengths = [len(chat_tokens(tokenizer, text)) for text in texts]
        kept = [draft for draft, length in zip(drafts, lengths, strict=True) if length <= room]
        if not kept:
            shortest = min(lengths, default=0) + self.max_tokens
            raise InputError(
                f"every prompt of train is longer with a reply of {self.max_tokens} tokens; the shortest is {shortest}",
                key="max_length", value=self.max_length,
                remedy=f"use baseline.max_length={shortest} or more, or show less",
            )  # fmt: skip
        counts = {}
        for outcome in OUTCOMES:
            asked, fit = (sum(one.text.outcome == outcome for one in part) for part in (drafts, kept))
            counts[outcome] = {"questions": asked, "kept": fit, "too_long": asked - fit}
        if len(kept) < len(drafts):
            left_out = ", ".join(f"{count['too_long']:,} {name}" for name, count in counts.items() if count["too_long"])
            _log.warning("train: left out, as longer than %d tokens with a reply: %s", self.max_length, left_out)
        return kept, counts

    def _made(self, training: Training, start: Start, drafts: Sequence[Draft]) -> Policy:
        from pertbase.baselines.llm._clients._chat import chat_text, chat_tokens, ends_in_thought

        records = {draft.record.id: draft.record for draft in drafts}
        by_outcome = {name: [one.record.id for one in drafts if one.text.outcome == name] for name in OUTCOMES}
        groups = list(by_outcome.values()) if self.balance == "resampled" else [list(records)]
        asked = asked_of(training, [one.record for one in drafts], [one.text.outcome for one in drafts])
        turns = dealt(
            groups,
            generator(training.seed, "grpo questions"),
            preferred={id_ for id_, one in asked.items() if one.references},
            share=self.referred,
        )

        # A template that opens a thought does so in every prompt.
        shown = chat_text(start.tokenizer, drafts[0].messages, thinking=self.thinking)
        begun = ends_in_thought(start.tokenizer, chat_tokens(start.tokenizer, shown))

        def read(question: str, text: str, finish: str) -> Parsed:
            return read_reply(text, finish, records[question], self._template, thought_begun=begun)

        return Policy(
            model=start.model,
            tokenizer=start.tokenizer,
            prompts={draft.record.id: draft.messages for draft in drafts},
            order=list(islice(turns, self.steps * self.questions)),
            read=read,
            rewards=Rewards(asked, self._rewarded, graph=self._graph_of(training), names=self._names()),
            template_options={} if self.thinking is None else {"enable_thinking": self.thinking},
        )

    def _graph_of(self, training: Training) -> SignedGraph | None:
        from pertbase.knowledge import signed_graph

        return training.graph if self.graph is None else signed_graph(self.graph)

    def _names(self) -> GeneNames | None:
        from pertbase.knowledge import gene_names

        return None if self._rewarded.names is None else gene_names(self._rewarded.names)


def dealt(
    groups: Sequence[Sequence[str]],
    rng: np.random.Generator,
    *,
    preferred: Collection[str] = (),
    share: float | None = None,
) -> Iterator[str]:
    """Yield members of groups in turn, for ever: each group's in an order drawn anew when all of it was dealt.

    Parameters
    ----------
    groups
        Those without a member are passed over.
    rng
        Draws the orders.
    preferred
        Members of a kind.
    share
        Of this kind among what each group yields, where it has some of this kind and some of the other, but no more
        than four times what it has; as it comes if None.
    """
    decks = [_Mixed(group, rng, preferred, share) for group in groups if group]
    for place in count() if decks else ():
        # Their members of a kind do not all come in the same round.
        yield from (deck.draw(place + number) for number, deck in enumerate(decks))


class _Mixed:
    """A group, dealt so that some of its members come as often as is wanted."""

    def __init__(
        self, members: Sequence[str], rng: np.random.Generator, preferred: Collection[str], share: float | None
    ) -> None:
        wanted = [one for one in members if one in preferred]
        self._share = 0.0 if share is None else min(share, _OFTENER * len(wanted) / len(members))
        mixed = self._share > 0 and len(wanted) < len(members)
        self._wanted = _Deck(wanted if mixed else members, rng)
        self._others = _Deck([one for one in members if one not in preferred], rng) if mixed else self._wanted

    def draw(self, place: int) -> str:
        """Return the member that comes at a place."""
        # How many of the wanted there are by then, less how many there were before.
        chosen = int((place + 1) * self._share) > int(place * self._share)
        return (self._wanted if chosen else self._others).draw()


class _Deck:
    def __init__(self, members: Sequence[str], rng: np.random.Generator) -> None:
        self._members = members
        self._rng = rng
        self._left: list[str] = []

    def draw(self) -> str:
        """Return the next member; all of them come before one comes again."""
        if not self._left:
            self._left = [self._members[place] for place in self._rng.permutation(len(self._members))]
        return self._left.pop()


@contextmanager
def _seeded(settings: TrainerSettings, seed: int) -> Iterator[None]:
    """Draw what is random in a start, such as adapters, from the seed, and leave torch's generators as they were."""
    from pertbase.baselines.harness._callbacks import seed_torch
    from pertbase.baselines.harness._predict import reproducible

    with reproducible(settings):
        seed_torch(seed, settings.device())
        yield
