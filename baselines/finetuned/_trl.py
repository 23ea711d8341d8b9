"""GRPO by TRL: replies are drawn, rewarded, and made likelier where they earned more than others to their question."""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pertbase.baselines.finetuned._policy import Policy, PolicySettings
from pertbase.baselines.finetuned._rollouts import Reply, Rollouts
from pertbase.baselines.finetuned._steps import last_checkpoint, mark_whole, saved
from pertbase.errors import InputError, PertbaseError

if TYPE_CHECKING:
    from pertbase.baselines.harness import TrainerSettings

__all__ = ["train_policy"]

_CHECKPOINT_EVERY = 10
"""Steps, where the trainer's settings do not say."""
_LOGGERS = ("mlflow", "tensorboard", "wandb")
_SAY_EVERY = 20.0
_LOGGED = {
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
}
_log = logging.getLogger("pertbase.training")


def train_policy(
    policy: Policy, settings: PolicySettings, trainer: TrainerSettings, folder: Path, rollouts: Rollouts, *, seed: int
) -> Any:
    """Train, or go on from the last checkpoint in a folder, and return the model.

    Parameters
    ----------
    policy
        What is trained.
    settings
        How.
    trainer
        On what: accelerator, precision, gradient checkpointing, compilation.
    folder
        Of the checkpoints.
    rollouts
        Keep replies and steps; what they have of steps after the checkpoint is forgotten.
    seed
        Of the draws.

    Raises
    ------
    PertbaseError
        Where rewards leave nothing to learn from, the loss is no number, or what is to be gone on from is damaged.
    """
    step, checkpoint = last_checkpoint(folder)
    rollouts.rewind(step)
    if rollouts.done:
        # It ended before all steps, and was stopped before its model was written: no question is left.
        settings = replace(settings, steps=step)
        policy = replace(policy, order=policy.order[: step * settings.questions])
    with _own_draws(trainer), _quiet():
        made = _trainer(policy, settings, trainer, folder, rollouts, seed)
        made.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return made.accelerator.unwrap_model(made.model)


def _trainer(
    policy: Policy, settings: PolicySettings, trainer: TrainerSettings, folder: Path, rollouts: Rollouts, seed: int
) -> Any:
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback

    chat = bool(policy.tokenizer.chat_template)
    rows = [{"prompt": _prompt(policy, id_, chat=chat), "question": id_} for id_ in policy.order]
    made = _trl().GRPOTrainer(
        model=policy.model,
        reward_funcs=_Judge(policy, settings, rollouts),
        args=_config(policy, settings, trainer, folder, seed),
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
        callbacks=[_keeper(rollouts, settings.steps)],
    )
    made.remove_callback(PrinterCallback)
    # A card for a hub, beside each checkpoint.
    made.create_model_card = lambda *_, **__: None
    save = made._save_checkpoint

    def guarded_save(*arguments: Any, **options: Any) -> Any:
        with saved(folder):
            return save(*arguments, **options)

    made._save_checkpoint = guarded_save
    return made


def _trl() -> Any:
    """Return the module, whose names are found when they are asked for."""
    return import_module("trl")


def _prompt(policy: Policy, question: str, *, chat: bool) -> Any:
    """Return a prompt as TRL wants it: the turns that :func:`chat_text` renders, or the text that it returns."""
    from pertbase.baselines.llm._clients._chat import chat_text, chat_turns

    messages = policy.prompts[question]
    return chat_turns(policy.tokenizer, messages) if chat else chat_text(policy.tokenizer, messages)


def _config(policy: Policy, settings: PolicySettings, trainer: TrainerSettings, folder: Path, seed: int) -> Any:
    cpu = trainer.kind() == "cpu"
    found = _trl().GRPOConfig(
        output_dir=str(folder),
        # replies
        num_generations=settings.generations,
        max_completion_length=settings.max_tokens,
        temperature=settings.draw_temperature,
        top_p=1.0,
        top_k=0,
        chat_template_kwargs=dict(policy.template_options),
        **_vllm(settings),
        # what is learnt from them
        loss_type=settings.loss,
        beta=settings.beta,
        scale_rewards=settings.scale_rewards,
        num_iterations=1,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.rows,
        gradient_accumulation_steps=settings.replies // settings.rows,
        # questions are dealt by us
        shuffle_dataset=False,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=settings.warmup_steps,
        max_grad_norm=settings.clip_norm,
        weight_decay=0.0,
        optim="adamw_torch",
        seed=seed,
        # the machine
        use_cpu=cpu,
        bf16=trainer.precision == "bf16-mixed",
        fp16=trainer.precision == "16-mixed",
        gradient_checkpointing=trainer.gradient_checkpointing,
        torch_compile=trainer.compile,
        dataloader_pin_memory=not cpu,
        # what is kept and told
        save_strategy="steps",
        save_steps=trainer.checkpoint_every or _CHECKPOINT_EVERY,
        save_total_limit=2,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=_loggers(trainer),
        disable_tqdm=True,
        log_completions=False,
    )
    # Every device that is seen would take a part of each batch, which TRL refuses.
    if found.n_gpu > 1:
        found._n_gpu = 1
    return found


def _loggers(trainer: TrainerSettings) -> list[str]:
    """Return the loggers beside our own lines, by the names TRL has for them."""
    if strange := sorted(set(trainer.loggers) - set(_LOGGERS)):
        raise InputError(
            "is no logger that TRL has", key="trainer.loggers", value=strange[0], remedy=f"use {', '.join(_LOGGERS)}"
        )
    return sorted(trainer.loggers)


def _vllm(settings: PolicySettings) -> dict[str, Any]:
    if settings.vllm is None:
        return {}
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise InputError(
            "vLLM is not installed", key="vllm", value=dict(settings.vllm),
            remedy="pip install 'pertbase[vllm]', or leave baseline.vllm out",
        )  # fmt: skip
    return {"use_vllm": True, **{f"vllm_{key}": value for key, value in settings.vllm.items()}}


class _Judge:
    """Rewards the replies of a step as TRL asks for it, and keeps them."""

    __name__ = "reward"

    def __init__(self, policy: Policy, settings: PolicySettings, rollouts: Rollouts) -> None:
        from pertbase.baselines.llm._clients._transformers import end_tokens

        self._policy = policy
        self._generations = settings.generations
        self._rollouts = rollouts
        self._ends = end_tokens(policy.model, policy.tokenizer)

    def __call__(
        self, *, completion_ids: Sequence[Sequence[int]], question: Sequence[str], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        """Return the reward of each reply, None where it has none."""
        read = [self._text(ids) for ids in completion_ids]
        parsed = [self._policy.read(id_, *one) for id_, one in zip(question, read, strict=True)]
        rewards = self._policy.rewards(question, parsed)
        rows = enumerate(zip(question, read, completion_ids, parsed, rewards, strict=True))
        replies = [
            Reply(id_, place % self._generations, *text, len(ids), said, reward)
            for place, (id_, text, ids, said, reward) in rows
        ]
        self._rollouts.add(trainer_state.global_step + 1, replies)
        return [reward.total for reward in rewards]

    def _text(self, ids: Sequence[int]) -> tuple[str, str]:
        """Return the text of a reply and why it ended, as the client has them."""
        stop = next((place for place, token in enumerate(ids) if token in self._ends), None)
        text = self._policy.tokenizer.decode(list(ids)[:stop], skip_special_tokens=True)
        return text, "length" if stop is None else "stop"


def _keeper(rollouts: Rollouts, steps: int) -> Any:
    """Return a callback that keeps the line of each step, marks whole checkpoints, and says how far it is."""
    from transformers import TrainerCallback

    class Keeper(TrainerCallback):
        began = said = time.monotonic()
        first = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.began = self.said = time.monotonic()
            self.first = state.global_step

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if not logs or "loss" not in logs:
                return
            found = {name: float(logs[key]) for key, name in _LOGGED.items() if logs.get(key) is not None}
            if not np.isfinite(found["loss"]):
                raise PertbaseError(
                    f"the loss is {found['loss']} at step {state.global_step}", key="learning_rate",
                    remedy="lower baseline.learning_rate or baseline.clip_norm; the same command goes on from the last "
                    "checkpoint, so remove the run's folder first",
                )  # fmt: skip
            rollouts.close(**found)
            self._say(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            if rollouts.done:
                _log.info("every reply earned all there is for %d steps: training ends", rollouts.silent)
                control.should_training_stop = control.should_save = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            mark_whole(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)

        def _say(self, step: int) -> None:
            if time.monotonic() - self.said < _SAY_EVERY and step < steps:
                return
            self.said = time.monotonic()
            left = (self.said - self.began) / max(step - self.first, 1) * (steps - step)
            last = rollouts.steps[-1]
            shares = ", ".join(f"{name} {_told(last[name])}" for name in ("outcome", "triplets", "format"))
            _log.info(
                "step %d of %d: reward %s (%s), about %.0f s left", step, steps, _told(last["reward"]), shares, left
            )

    return Keeper()


def _told(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep bars, and notes to whoever writes a trainer, out of what a run says; errors are raised, and stay."""
    from pertbase.baselines.llm._clients._registry import without_bars

    told: Any = import_module("transformers.utils.logging")
    level = told.get_verbosity()
    told.set_verbosity_error()
    try:
        with without_bars(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        told.set_verbosity(level)


@contextmanager
def _own_draws(trainer: TrainerSettings) -> Iterator[None]:
    """Leave the generators of Python, NumPy and torch, which TRL seeds, as they were."""
    from pertbase.baselines.harness._predict import reproducible

    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with reproducible(trainer):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)  # noqa: NPY002
