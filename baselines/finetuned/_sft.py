"""Supervised fine-tuning: replies to the questions of train, by example."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pertbase._io import plain, sha256_file
from pertbase.baselines.finetuned._examples import TrainingExample, reply_tokens
from pertbase.baselines.finetuned._export import export
from pertbase.baselines.finetuned._finetuned import Finetuned, Material
from pertbase.baselines.finetuned._synthesis import FileTexts
from pertbase.baselines.finetuned._texts import OutcomeTexts, RuleTexts, Texts
from pertbase.baselines.harness._trained import Trained, trained_on
from pertbase.baselines.llm._prompts import reply_of
from pertbase.errors import InputError, PertbaseError, unknown_name
from pertbase.folds import OUTCOMES, Training

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback

    from pertbase.baselines.finetuned._module import CausalModule
    from pertbase.baselines.finetuned._packing import ExampleSampler

__all__ = ["REASONS", "SCHEDULES", "SFT"]

REASONS = ("none", "rule")
"""What replies are taught: the outcome alone; or triplets of the reference, and its sentence, before it."""
SCHEDULES = ("cosine", "linear", "constant")

_log = logging.getLogger("pertbase")


class SFT(Finetuned, Trained):
    """A language model that is taught replies to the questions of train.

    Parameters
    ----------
    reasons
        ``none``: the outcome alone is taught. ``rule``: a reason before it, read off the reference paths. Or a JSONL of
        texts that a language model wrote, see :func:`~pertbase.baselines.finetuned.synthesise`.
    explain
        With reasons, whether a sentence stands between triplets and answer.
    learning_rate, weight_decay, warmup, schedule
        See :class:`~pertbase.baselines.finetuned._module.CausalModule`.
    pack
        Tokens of a row, in which several examples stand that do not see each other; one example a row if None. It
        changes how long a step takes, and nothing else.
    max_epochs
        Epochs at most; 0 leaves the start as it is, which is then asked untrained.
    batch_size
        Examples in a batch, over all devices together.
    monitor
        What is selected on, smaller being better: ``val_loss``, that of the tokens of val's replies; ``val_error``, one
        minus the balanced accuracy of the likeliest reply without a reason; or ``train_loss``. Where val has no
        question, the last epoch stands.
    patience, clip_norm, clip_value
        See :class:`~pertbase.baselines.harness.LightningBaseline`.
    options
        Of :class:`~pertbase.baselines.finetuned.Finetuned`.
    """

    least_epochs: ClassVar[int] = 0

    def __init__(
        self,
        *,
        reasons: str = "none",
        explain: bool = True,
        learning_rate: float = 1e-4,
        weight_decay: float = 0.01,
        warmup: float = 0.05,
        schedule: str = "cosine",
        pack: int | None = 1024,
        max_epochs: int = 3,
        batch_size: int = 16,
        patience: int | None = None,
        clip_norm: float | None = 1.0,
        clip_value: float | None = None,
        monitor: str = "val_loss",
        **options: Any,
    ) -> None:
        Trained.__init__(
            self,
            max_epochs=max_epochs,
            batch_size=batch_size,
            patience=patience,
            clip_norm=clip_norm,
            clip_value=clip_value,
            monitor=monitor,
        )
        Finetuned.__init__(self, **options)
        if reasons not in REASONS and not str(reasons).endswith(".jsonl"):
            raise unknown_name("reasons", str(reasons), (*REASONS, "FILE.jsonl"))
        if schedule not in SCHEDULES:
            raise unknown_name("schedule", str(schedule), SCHEDULES)
        for name, value, most in (("learning_rate", learning_rate, math.inf), ("warmup", warmup, 1.0)):
            if not 0 <= value < most:
                raise InputError("cannot be", key=name, value=value, remedy=f"use a number from 0 to below {most}")
        if self.thinking:
            raise InputError(
                "the replies that are taught hold no thoughts", key="thinking", value=self.thinking,
                remedy="use thinking=false, for training and evaluation alike",
            )  # fmt: skip
        if pack is not None and pack < self.max_length:
            raise InputError(
                "a row holds the longest example", key="pack", value=pack, remedy=f"use {self.max_length} or more"
            )
        self.reasons = reasons
        self.explain = explain
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.pack = pack
        self._material: Material | None = None

    def texts(self) -> Texts:
        """Return what writes the replies that are learnt."""
        if self.reasons == "none":
            return OutcomeTexts()
        return (
            RuleTexts(explain=self.explain) if self.reasons == "rule" else FileTexts(self.reasons, explain=self.explain)
        )

    def workspace(  # type: ignore[override]
        self, folder: Path, trainer: Mapping[str, Any], asking: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take the run's folder, how to train and how to ask; nothing is written yet."""
        Trained.workspace(self, folder, trainer)
        return Finetuned.workspace(self, folder, trainer, asking)

    def at(self, folder: Path) -> None:
        """Take the folder of the run alone: a start may be that of a run beside it."""
        Trained.at(self, folder)
        self._home = Path(folder)

    @property
    def device(self) -> str:
        """What it is trained on, for the record of a run."""
        return trained_on(self.settings)

    def training_key(self, training: Training) -> str:
        """Return what tells this training from others."""
        return Trained.training_key(self, training)

    def learnt_from(self, training: Training) -> dict[str, Any]:
        """Return the hashes of what is learnt from."""
        written = None if self.reasons in REASONS else sha256_file(self.reasons)
        return {**Finetuned.learnt_from(self, training), "texts": written}

    # -- for the harness ------------------------------------------------------------------------------------

    def build(self, training: Training) -> CausalModule:
        """Return the module of the start, with adapters where they are asked for."""
        from pertbase.baselines.finetuned._module import CausalModule, with_adapters

        if self._shown is None:
            self.prepare(training)  # another rank
        self._material = self.material(training)
        for outcome in self._material.about["never_shown"]:
            _log.warning("%s: train has no question whose outcome is %s: it cannot be learnt", training.fold, outcome)
        model = self._material.start.model
        return CausalModule(
            model if self.lora is None else with_adapters(model, self.lora),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            schedule=self.schedule,
            epochs=self.max_epochs,
        )

    def sampler(self, training: Training, module: Any, *, split: str = "train") -> ExampleSampler:
        """Return what draws the batches of examples."""
        found = self._ready
        return self._drawn(found.train.items if split == "train" else found.val.items, training.seed)

    def selects(self, training: Training, module: Any) -> bool:
        """Return whether val has a question to select on."""
        return len(self._ready.val) > 0

    def selection(self, training: Training, module: Any) -> Callback:
        """Return what measures how well the replies of val are predicted."""
        from pertbase.baselines.finetuned._module import TokenLoss

        val, tokenizer = self._ready.val.items, self._ready.start.tokenizer
        plain = [reply_tokens(tokenizer, reply_of((), outcome)) for outcome in OUTCOMES]
        likely = [
            replace(one, completion_ids=np.array(ids, dtype=np.int32), weight=1.0) for one in val for ids in plain
        ]
        return TokenLoss(self._drawn(val, training.seed), self._drawn(likely, training.seed, row=None))

    def _drawn(self, examples: Sequence[TrainingExample], seed: int, row: int | None = -1) -> ExampleSampler:
        from pertbase.baselines.finetuned._packing import ExampleSampler

        return ExampleSampler(
            examples,
            batch_size=self.batch_size,
            row=self.pack if row == -1 else row,
            pad=self._ready.start.tokenizer.pad_token_id,
            seed=seed,
            resampled=self.balance == "resampled",
        )

    @property
    def _ready(self) -> Material:
        if self._material is None:
            raise PertbaseError(f"{type(self).__name__} has no examples yet", remedy="call build(training) first")
        return self._material

    # -- learning -------------------------------------------------------------------------------------------

    def learn(self, training: Training, folder: Path, about: Mapping[str, Any]) -> None:
        """Train by the harness, and export what was learnt."""
        module = self.train(training)
        ready = self._ready
        learnt = {**about, **ready.about, "reasons": self.reasons, "lora": plain(self.lora), "epochs": self.max_epochs}
        export(module.model, ready.start.tokenizer, folder, learnt, precision=self.export_precision)
        self._material = None
