"""What fine-tuned baselines share: where they start, what they learn from, and who answers for them."""

from __future__ import annotations

import inspect
import json
import logging
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._io import canonical_json, sha256_text
from pertbase.baselines.finetuned._examples import BALANCES, Draft, Examples, absent, draft_examples, tokenised
from pertbase.baselines.finetuned._export import ExportedClient, exported, weights_hash
from pertbase.baselines.finetuned._runs import is_run, model_of
from pertbase.baselines.finetuned._start import TINY, Start, TinySizes, needs_text, start_model, unavailable
from pertbase.baselines.finetuned._texts import OutcomeTexts, Texts
from pertbase.baselines.llm import LanguageModel, Record, Request
from pertbase.baselines.llm._prompts import reply_of
from pertbase.errors import InputError, unknown_name
from pertbase.folds import OUTCOMES, Training
from pertbase.folds._cells import hash_frame

__all__ = ["Finetuned", "Material"]

_log = logging.getLogger("pertbase")
_MOST_TEXTS = 20_000
"""Examples that the tokenizer of the tiny model is trained on, at most."""


@dataclass(frozen=True, eq=False)
class Material:
    """What a fine-tuning has in hand.

    Parameters
    ----------
    start
        Model and tokenizer.
    train, val
        Examples in tokens.
    about
        What of all this a run records.
    """

    start: Start
    train: Examples
    val: Examples
    about: Mapping[str, Any]


class Finetuned(LanguageModel):
    r"""A language model that is trained on the questions it may learn from, and then asked as any other.

    Prompts and parser are those of :class:`~pertbase.baselines.llm.LanguageModel`: the same record encoder and template
    make the prompts of training and of evaluation. Scores, which adapters are fitted to, are those of replies rather
    than of letters, which it was not taught: with :math:`\ell_k` the log probability of the reply that gives outcome k
    without a reason, its end among it, the softmax of :math:`\ell`. A model that was taught reasons was not taught
    those replies either: ``scores_after=reason`` takes its own. A subclass writes :meth:`learn`.

    Parameters
    ----------
    start
        Where it starts: a folder, a name on the hub, ``smollm2_135m``, or ``tiny``, see
        :func:`~pertbase.baselines.finetuned.start_model`; or ``run:NAME``, the model that the run NAME exported on the
        same fold with the same seed.
    revision
        Of the hub.
    tiny
        Sizes of ``tiny``: :class:`~pertbase.baselines.finetuned.TinySizes`.
    precision
        Of the weights that are loaded: ``float32``; ``bfloat16`` for weights that stay frozen under ``lora``.
    export_precision
        Of the weights that are kept and answer.
    lora
        Options of peft's ``LoraConfig``, such as ``r``, ``lora_alpha`` and ``target_modules``; all weights are trained
        if None.
    per_outcome
        Questions of each outcome at most, of train to learn from; all if None.
    selection_per_outcome
        Questions of each outcome at most, of val to select on; all if None.
    reached
        Whether only questions to which candidate paths lead are learnt from and selected on, as a fold with
        ``fold.reached`` asks no others: of the rest, nothing can be learnt about paths.
    max_length
        Tokens of prompt and reply together at most. Questions that need more are left out of training, and counted; of
        those that it is asked later, they are rejected, unasked.
    balance
        ``weights``, ``resampled`` or ``none``; see :func:`~pertbase.baselines.finetuned.class_weights`.
    options
        Of :class:`~pertbase.baselines.llm.LanguageModel`: what is shown and how it is asked. ``thinking`` is one
        setting for training and evaluation.
    """

    settings_group = ("trainer", "asking")  # type: ignore[assignment]

    def __init__(
        self,
        *,
        start: str = TINY,
        revision: str | None = None,
        tiny: Mapping[str, Any] | None = None,
        precision: str = "float32",
        export_precision: str = "float32",
        lora: Mapping[str, Any] | None = None,
        per_outcome: int | None = None,
        selection_per_outcome: int | None = 100,
        reached: bool = False,
        max_length: int = 1024,
        balance: str = "weights",
        **options: Any,
    ) -> None:
        super().__init__(client=ExportedClient(model="", precision=export_precision), orders=1, **options)
        self._orders = (OUTCOMES,)
        if balance not in BALANCES:
            raise unknown_name("balance", str(balance), BALANCES)
        for name, value in (("per_outcome", per_outcome), ("selection_per_outcome", selection_per_outcome)):
            if value is not None and value < 1:
                raise InputError("is a positive number of questions", key=name, value=value)
        TinySizes.from_config(tiny or {})
        self.start = start
        self.revision = revision
        self.tiny = dict(tiny or {})
        self.precision = precision
        self.export_precision = export_precision
        self.lora = None if lora is None else dict(lora)
        self.per_outcome = per_outcome
        self.selection_per_outcome = selection_per_outcome
        self.reached = reached
        self.max_length = max_length
        self.balance = balance
        self._home: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._about: Mapping[str, Any] = {}

    # -- what a subclass writes -----------------------------------------------------------------------------

    @abstractmethod
    def learn(self, training: Training, folder: Path, about: Mapping[str, Any]) -> None:
        """Train, and export to a folder; ``about`` belongs to what is written beside the weights.

        Prompts can be asked for: examples that they show are drawn.
        """

    def texts(self) -> Texts:
        """Return what writes the replies that are learnt; the outcome alone here."""
        return OutcomeTexts()

    # -- as a baseline --------------------------------------------------------------------------------------

    @property
    def packages(self) -> tuple[str, ...]:
        """Whose versions a run records."""
        return ("torch", "lightning", "transformers", "tokenizers", *(("peft",) if self.lora else ()))

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments, those of all it derives from among them."""
        found: dict[str, Any] = {}
        for cls in type(self).__mro__:
            if "__init__" in vars(cls):
                names = set(inspect.signature(vars(cls)["__init__"]).parameters) - {"self", "client", "orders"}
                found.update({name: getattr(self, name) for name in sorted(names) if hasattr(self, name)})
        return found

    def refuses(self, training: Training) -> str | None:
        """Refuse where the start cannot be had here, paths or reasons cannot, or train has no outcome."""
        if not (training.headline["split"] == "train").any():
            return f"{training.fold} has no training outcome to learn from"
        if self.reached and "candidate_paths" not in training.questions.columns:
            return (
                f"{training.fold} has no candidate paths; lay paths over it (paths=own, paths=human), or reached=false"
            )
        own = unavailable(self.start)
        if own is None and self.lora is not None:
            from importlib.util import find_spec

            own = None if find_spec("peft") else "peft is not installed; pip install 'pertbase[finetune]'"
        return own or self._encoder.refuses(training) or self.texts().refuses(training)

    def prepare(self, training: Training) -> Finetuned:
        """Draw the examples that prompts show; nothing is trained."""
        super().fit(training)
        return self

    def fit(self, training: Training) -> Finetuned:
        """Train, or take what a training of the same key left in the same folder, and get ready to answer.

        Raises
        ------
        InputError
            Where the start cannot be loaded, or every prompt is too long.
        PertbaseError
            Where training diverges, or the model cannot be written.
        """
        folder = self._own_folder() / "model"
        key = self.training_key(training)
        about = exported(folder)
        if about is None or about.get("training") != key:
            super().fit(training)
            self.learn(training, folder, self._provenance(training, key))
            about = exported(folder) or {}
        self._about = about
        self.client = ExportedClient(
            model=str(folder),
            precision=self.export_precision,
            name=self._title(),
            weights=str(about.get("weights")),
            max_length=self.max_length,
        )
        super().fit(training)
        return self

    def training_key(self, training: Training) -> str:
        """Return what tells this training from others."""
        parts = {
            "baseline": f"{type(self).__module__}.{type(self).__qualname__}",
            "parameters": self.parameters(),
            **({"files": files} if (files := self.file_hashes()) else {}),
            "fold": [training.data, training.fold, training.kind],
            "seed": training.seed,
            **self.learnt_from(training),
        }
        return sha256_text(canonical_json(parts))[:16]

    def learnt_from(self, training: Training) -> dict[str, Any]:
        """Return the hashes of what is learnt from: questions, paths, levels, and the weights of the start."""
        known = training.headline
        start = Path(self.source)
        return {
            "questions": hash_frame(known[["id", "split", "outcome"]].astype(str)),
            "paths": {
                name: hash_frame(pd.DataFrame({name: [canonical_json(paths) for paths in known[name]]}))
                for name in ("candidate_paths", "reference_paths")
                if name in known.columns
            },
            "basal": None if training.basal is None else hash_frame(training.basal),
            "start": weights_hash(start) if start.is_dir() else None,
        }

    def letter_requests(self, records: Sequence[Record]) -> list[Request]:
        """Return what asks how likely each of three replies is: one an outcome, without a reason.

        Nothing where scores are taken after reasons.
        """
        if self.scores_after == "reason":
            return []
        return [
            Request(
                "letters", tuple((*prompt, ("assistant", reply_of((), outcome))) for outcome in OUTCOMES), record.id
            )
            for record, prompt in zip(records, self.prompts(records), strict=True)
        ]

    def account(self) -> dict[str, Any]:
        """Return what was asked and what it took, and what was learnt from, for the record of a run."""
        return {**super().account(), "learnt": dict(self._about)}

    # -- what is learnt from --------------------------------------------------------------------------------

    def material(self, training: Training) -> Material:
        """Return the start, and the examples in its tokens.

        Raises
        ------
        InputError
            Where the start cannot be loaded, or every prompt is too long.
        """
        texts = self.texts()
        drafts = draft_examples(self, training, texts, per_outcome=self.per_outcome, reached=self.reached)
        written = texts.account()
        shown: dict[str, Any] = {"per_outcome": self.selection_per_outcome, "reached": self.reached}
        held = draft_examples(self, training, self.texts(), split="val", **shown)
        start = self.started(training, drafts)
        most = getattr(start.model.config, "max_position_embeddings", None)
        if most is not None and self.max_length > most:
            raise InputError(
                f"the model takes {most} tokens at most", key="max_length", value=self.max_length,
                remedy=f"use baseline.max_length={most} or less",
            )  # fmt: skip
        shared: dict[str, Any] = {"max_length": self.max_length, "thinking": self.thinking, "balance": self.balance}
        train = tokenised(drafts, start.tokenizer, **shared)
        val = tokenised(held, start.tokenizer, split="val", **shared)
        about = {
            "start": dict(start.provenance),
            "texts": written,
            "train": train.describe(),
            "val": val.describe(),
            "never_shown": absent(drafts),
        }
        return Material(start, train, val, about)

    def started(self, training: Training, drafts: Sequence[Draft] = ()) -> Start:
        """Return the model and tokenizer to start from; of ``tiny``, made from these examples."""
        made = needs_text(self.start)
        start = start_model(
            self.source,
            seed=training.seed,
            texts=_texts_of(drafts[:_MOST_TEXTS]) if made else (),
            symbols=_symbols_of(training, drafts) if made else (),
            sizes=TinySizes.from_config(self.tiny),
            revision=self.revision,
            precision=self.precision,
        )
        self._as_taught(start.provenance.get("from") or {})
        return start

    def _as_taught(self, about: Mapping[str, Any]) -> None:
        """Refuse a start that was taught to think where it is not to, or the other way, and tell of other prompts."""
        if about.get("thinking", self.thinking) != self.thinking:
            raise InputError(
                "is one setting from the first training to the answers, and the start was trained with another",
                key="thinking", value=self.thinking, remedy=f"use baseline.thinking={json.dumps(about['thinking'])}",
            )  # fmt: skip
        for key, own in (("preset", self.preset), ("template", self._template.hash)):
            if about.get(key, own) != own:
                _log.warning("%s: the start was trained with another %s than it is asked with now", self._title(), key)

    @property
    def source(self) -> str:
        """The start, as a folder where it is the model of another run.

        Raises
        ------
        InputError
            Where that run has exported none.
        """
        return str(model_of(self.start, self._home)) if is_run(self.start) else self.start

    def _provenance(self, training: Training, key: str) -> dict[str, Any]:
        return {
            "baseline": type(self).__name__,
            "training": key,
            "data": training.data,
            "fold": training.fold,
            "seed": training.seed,
            "preset": self.preset,
            "template": self._template.hash,
            "thinking": self.thinking,
        }

    def _own_folder(self) -> Path:
        if self._home is not None:
            return self._home
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pertbase-")
        return Path(self._temporary.name)

    def _title(self) -> str:
        return type(self).__name__.lower() if self._home is None else self._home.parent.name

    def workspace(  # type: ignore[override]
        self, folder: Path, trainer: Mapping[str, Any], asking: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take the run's folder, how to train and how to ask; nothing is written yet.

        Returns
        -------
        dict
            The settings of the trainer that predictions depend on.
        """
        from pertbase.baselines.harness import TrainerSettings

        super().workspace(folder, asking)
        self._home = Path(folder)
        numbers = TrainerSettings.from_config(trainer).numbers()
        # A run that began with another run's model is another one when that was trained anew.
        return {**numbers, "start": weights_hash(Path(self.source))} if is_run(self.start) else numbers


def _texts_of(drafts: Sequence[Draft]) -> Iterator[str]:
    for draft in drafts:
        yield "\n".join(f"{role}\n{content}" for role, content in draft.messages)
        yield draft.text.reply


def _symbols_of(training: Training, drafts: Sequence[Draft]) -> list[str]:
    """Return the genes that are measured, perturbed, or on a path that is shown or taught."""
    found = set(map(str, training.genes))
    for item in training.perturbations.values():
        found.update(item.targets)
    for draft in drafts:
        paths = (*(draft.record.paths or ()), draft.text.triplets)
        found.update(name for path in paths for triplet in path for name in (triplet.head, triplet.tail))
    return sorted(found)
