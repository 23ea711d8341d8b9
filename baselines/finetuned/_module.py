"""A causal language model that learns replies, as the harness trains it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch.nn.functional import cross_entropy

from pertbase.baselines.finetuned._packing import IGNORED, ExampleSampler, PackedBatch
from pertbase.baselines.harness._module import TrainedModule
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import OUTCOMES

__all__ = ["CausalModule", "TokenLoss", "with_adapters"]

_WRAPPED = "_fsdp_wrapped_module."


class CausalModule(TrainedModule):
    r"""A causal language model of transformers, trained on the tokens of replies.

    With :math:`w_i` the weight of example i and :math:`c_{it}` the tokens of its reply, the end among them, the loss of
    a batch is

    .. math:: - \frac{\sum_i w_i \sum_t \log p(c_{it} \mid \text{prompt}_i, c_{i,<t})}{\sum_i w_i \, |c_i|}

    Every rank divides by the sum over all of them, so that several train what one does.

    Parameters
    ----------
    model
        Of transformers, or with adapters of peft: then these are trained, kept and loaded alone.
    learning_rate
        Of AdamW, after the warm-up.
    weight_decay
        Of AdamW; biases and norms do not decay.
    warmup
        The share of all steps in which the learning rate rises.
    schedule
        How it falls afterwards, to zero at the last step: ``cosine``, ``linear``, or ``constant`` for not at all.
    epochs
        How many there are at most.
    """

    def __init__(
        self,
        model: Any,
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        warmup: float = 0.05,
        schedule: str = "cosine",
        epochs: int = 1,
    ) -> None:
        super().__init__()
        self.model = model.train()
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.epochs = epochs
        self._steps = 1
        trained = [(name, item) for name, item in self.named_parameters() if item.requires_grad]
        # By name and as they are now: shards have other shapes.
        self._trained = frozenset(name for name, _ in trained)
        self._decaying = frozenset(name for name, item in trained if item.ndim >= 2)
        self._adapters = len(trained) < len(list(self.parameters()))
        self.strict_loading = not self._adapters

    def prepare(self, sampler: ExampleSampler) -> None:
        """Take the number of steps, and set up gradient checkpointing where it is asked for."""
        self._steps = max(1, sampler.steps * self.epochs)
        if self.gradient_checkpointing:
            # transformers 5 has another name for it
            enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
            enable({"use_reentrant": False})

    def state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the weights; where there are adapters, theirs alone."""
        found: dict[str, Any] = super().state_dict(*arguments, **options)
        if not self._adapters:
            return found
        return {name: value for name, value in found.items() if name in self._trained}

    def logits(self, batch: PackedBatch) -> torch.Tensor:
        """Return the logits at the places of a batch that have labels, shape (R, K, V)."""
        found = self.model(
            input_ids=batch.ids,
            attention_mask=batch.mask(),
            position_ids=batch.positions,
            use_cache=False,
            logits_to_keep=batch.places,
        )
        return found.logits  # type: ignore[no-any-return]

    def token_losses(self, batch: PackedBatch) -> torch.Tensor:
        """Return minus the log probability of each token to be learnt, 0 elsewhere, shape (R, K)."""
        labels = batch.labels[:, batch.places]
        flat = cross_entropy(
            self.logits(batch).float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return flat.view_as(labels)

    def training_step(self, batch: PackedBatch) -> torch.Tensor:
        """Return the loss of a batch, or a rank's share of it.

        Raises
        ------
        PertbaseError
            Where it is not finite.
        """
        losses = self.token_losses(batch) * batch.weights[:, batch.places]
        loss = losses.sum() * (self.trainer.world_size / batch.total)
        if not torch.isfinite(loss):
            raise PertbaseError(
                f"training diverged: the loss is {float(loss)} in epoch {self.current_epoch + 1}, step "
                f"{self.global_step + 1}",
                key="learning_rate",
                value=self.learning_rate,
                remedy="lower it, or clip gradients with baseline.clip_norm=1; under 16-mixed use bf16-mixed",
            )
        return loss

    def configure_optimizers(self) -> Any:
        """Return AdamW and a schedule by the step."""
        named = [(name.replace(_WRAPPED, ""), item) for name, item in self.named_parameters() if item.requires_grad]
        groups = [
            {"params": [item for name, item in named if name in self._decaying], "weight_decay": self.weight_decay},
            {"params": [item for name, item in named if name not in self._decaying], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def share(self, step: int) -> float:
        """Return the share of the learning rate that a step has."""
        rising = max(1, round(self.warmup * self._steps))
        if step < rising:
            return (step + 1) / rising
        if self.schedule == "constant":
            return 1.0
        done = min(1.0, (step - rising) / max(1, self._steps - rising))
        return 1.0 - done if self.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


def with_adapters(model: Any, options: Mapping[str, Any]) -> Any:
    """Return a model with adapters of low rank, its own weights frozen; ``options`` are peft's ``LoraConfig``'s.

    Raises
    ------
    InputError
        Where an option is unknown or no layer has the name of a target module.
    """
    from peft import LoraConfig, get_peft_model

    try:
        with warnings.catch_warnings():
            # peft asks transformers for a name that is going to be another.
            warnings.simplefilter("ignore", FutureWarning)
            return get_peft_model(model, LoraConfig(**{"task_type": "CAUSAL_LM", **options}))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"cannot be added: {str(error).splitlines()[0]}", key="lora", value=dict(options),
            remedy="use options of peft's LoraConfig, such as {r: 16, lora_alpha: 32, target_modules: all-linear}",
        ) from error  # fmt: skip


class TokenLoss(Callback):
    """After each epoch, logs how well the replies of val are predicted.

    ``val_loss`` is the loss of the module over all of val; ``val_error`` one minus the balanced accuracy of the
    likeliest reply without a reason, over the outcomes that val has.

    Parameters
    ----------
    replies
        Every example of val.
    likely
        Of each of them, in the same order, the replies that give each outcome without a reason; one a row.
    """

    def __init__(self, replies: ExampleSampler, likely: ExampleSampler) -> None:
        self.replies = replies
        self.likely = likely

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Predict, compare and log."""
        if not isinstance(module, CausalModule):
            raise TypeError("token losses are those of a CausalModule")
        rank, world = trainer.global_rank, trainer.world_size
        lost, total = 0.0, 0.0
        likelihood = np.zeros(len(self.likely))
        module.eval()
        with torch.no_grad(), trainer.precision_plugin.val_step_context():
            for batch in self.replies.in_turn(rank, world):
                moved = batch.to(module.device)
                losses = module.token_losses(moved) * moved.weights[:, moved.places]
                lost, total = lost + float(losses.sum()), total + batch.total
            for places, batch in zip(self.likely.places(rank, world), self.likely.in_turn(rank, world), strict=True):
                likelihood[places] = -module.token_losses(batch.to(module.device)).sum(dim=1).cpu().numpy()
        module.train()
        if world > 1:
            mine = torch.tensor([lost, total, *likelihood], dtype=torch.float32, device=module.device)
            lost, total, *rest = trainer.strategy.reduce(mine, reduce_op="sum").tolist()
            likelihood = np.array(rest)
        module.log("val_loss", lost / total, prog_bar=True, sync_dist=world > 1)
        said = likelihood.reshape(-1, len(OUTCOMES)).argmax(axis=1)
        truth = np.array([OUTCOMES.index(one.outcome) for one in self.replies.examples])
        right = [float((said[truth == code] == code).mean()) for code in set(truth.tolist())]
        module.log("val_error", 1.0 - float(np.mean(right)), sync_dist=world > 1)
