"""What a deep model writes: a LightningModule on cell pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from torch.utils.checkpoint import checkpoint

from pertbase.errors import InputError
from pertbase.folds import Inputs, Perturbation
from pertbase.folds._batches import CellPairs, dense_rows, encode_targets

__all__ = ["PerturbationModule", "TrainedModule"]


class TrainedModule(pl.LightningModule):
    """A LightningModule that the harness trains: ``training_step`` and ``configure_optimizers`` are its own.

    Draw from torch's own generator only (dropout does): it is seeded before each step from the run's seed, the epoch,
    the step and the rank, which makes a resumed run equal to an undisturbed one.

    Attributes
    ----------
    gradient_checkpointing
        Whether :meth:`checkpointed` drops activations; set by the harness.
    """

    gradient_checkpointing: bool = False

    @abstractmethod
    def training_step(self, batch: Any) -> torch.Tensor:
        """Return the loss of a batch. The harness logs it as ``train_loss``."""

    @abstractmethod
    def configure_optimizers(self) -> Any:
        """Return optimisers and schedulers as Lightning takes them; none that waits for a plateau."""

    def prepare(self, sampler: Any) -> None:
        """Take what is needed from what draws the batches, once, before training. Call this method where overridden."""

    @property
    def may_fuse(self) -> bool:
        """Whether an optimiser may be fused: in mixed precision Lightning clips no gradients of one that is."""
        attached = self._trainer
        return self.device.type != "mps" and (attached is None or not str(attached.precision).endswith("mixed"))

    def compiled_parts(self) -> Sequence[torch.nn.Module]:
        """Return the modules that ``trainer.compile=true`` compiles: the direct children."""
        return list(self.children())

    def checkpointed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function; where gradient checkpointing is on, its activations are computed again when needed."""
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(function, *arguments, use_reentrant=False)
        return function(*arguments)


class PerturbationModule(TrainedModule):
    """A model of cell pairs: it predicts what a control cell would express under a perturbation.

    ``pairs`` is a :class:`~pertbase.folds._batches.CellPairs`, unless the baseline has a sampler of its own.

    Write ``forward``, ``training_step`` and ``configure_optimizers``, and set ``vocabulary`` in ``__init__``.

    Attributes
    ----------
    vocabulary
        The target genes it knows; ``CellPairs.targets`` points to them.
    contexts
        What ``CellPairs.context`` points to; set by :meth:`prepare`.
    batch_names
        What ``CellPairs.batch`` points to; set by :meth:`prepare`.
    prediction_batch_size
        Cells in a batch of predictions.
    needs_controls
        Whether :meth:`effects` looks at the input controls. Where an effect does not depend on them, no cells have to
        be handed out.
    genes
        The genes it is trained on; set by the harness.
    """

    vocabulary: pd.Index
    genes: pd.Index
    needs_controls: bool = True
    prediction_batch_size: int = 256

    def __init__(self) -> None:
        super().__init__()
        self.contexts = pd.Index([], dtype=object)
        self.batch_names = pd.Index([], dtype=object)

    @abstractmethod
    def forward(self, pairs: Any) -> torch.Tensor:
        """Return the expression of the control cells under their perturbations, shape (B, G).

        ``pairs.perturbed`` must not be read: where a model predicts, there are no perturbed cells.
        """

    def speaks_to(self, perturbation: Perturbation) -> bool:
        """Return whether the model can say anything of a perturbation: it has targets, and all of them are known.

        Cells of others are never drawn, and their effects are ``unsupported``.
        """
        return bool(perturbation.targets) and all(gene in self.vocabulary for gene in perturbation.targets)

    def prepare(self, sampler: Any) -> None:
        """Take what is needed from the training's cells, once, before training. Call this method where overridden."""
        self.contexts, self.batch_names = sampler.contexts, sampler.batch_names

    def selection_scores(self, asked: Inputs, predicted: np.ndarray, measured: np.ndarray) -> dict[str, np.ndarray]:
        """Return further scores of val to be logged after each epoch: name -> one value a condition; none here.

        Parameters
        ----------
        asked
            Conditions, or a rank's share of them, which may be empty; with the basal expression of their contexts.
        predicted, measured
            Their effects, shape (n_conditions, n_genes).
        """
        return {}

    # -- prediction -----------------------------------------------------------------------------------------

    def effects(self, inputs: Inputs) -> np.ndarray:
        r"""Return the effect of each condition: the mean, over the controls, of prediction minus its own input.

        .. math:: \hat e_{cg} = \frac{1}{n}\sum_{i=1}^{n} \hat y_{ig}(c) - x_{ig}

        Each control is its own reference, so that the choice of controls hardly moves the effect: the spread of
        controls cancels, which it does not where a mean over drawn controls is subtracted.

        Parameters
        ----------
        inputs
            Conditions the model speaks to, and the controls to use, of each of their contexts.

        Returns
        -------
        numpy.ndarray
            Difference of mean log1p, shape (n_conditions, n_genes), float64.

        Raises
        ------
        InputError
            Where there are no controls, or the genes are not those it was trained on, in their order.
        """
        if inputs.controls is None:
            raise InputError("effects are predicted from input controls", key="inputs.controls", value=None)
        if not inputs.genes.equals(self.genes):
            raise InputError(
                "the genes are not those it was trained on", key="inputs.genes", value=f"{len(inputs.genes)} genes"
            )
        values = np.zeros((len(inputs.conditions), len(inputs.genes)))
        context_of_cell = inputs.controls.obs["context"].to_numpy(dtype=object)
        for context, conditions in inputs.conditions.groupby("context", sort=True, observed=True):
            rows = np.flatnonzero(context_of_cell == context)
            values[conditions.index.to_numpy()] = self._effects_in(inputs, rows, conditions["perturbation"].tolist())
        return values

    def _effects_in(self, inputs: Inputs, rows: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Return effects in one context, of some perturbations, from the controls in some rows."""
        controls = inputs.controls
        if controls is None or not len(rows):
            raise InputError("a context has no input control", key="context", value=names)
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        sums = torch.zeros((len(names), len(inputs.genes)), dtype=dtype, device=self.device)
        targets, signs = encode_targets([inputs.perturbations[name] for name in names], self.vocabulary)
        obs = controls.obs.iloc[rows]
        context = self.contexts.get_indexer(obs["context"].astype(str)).astype(np.int64)
        batch = self.batch_names.get_indexer(obs["batch"].astype(str)).astype(np.int64)
        # Controls outside, perturbations inside: each control is gathered and sent to the device once.
        for first in range(0, len(rows), self.prediction_batch_size):
            part = slice(first, first + self.prediction_batch_size)
            cells = torch.from_numpy(dense_rows(controls.X, rows[part])).to(self.device)
            at_once = max(1, self.prediction_batch_size // len(cells))
            for start in range(0, len(names), at_once):
                asked = np.arange(start, min(start + at_once, len(names)))
                repeated = np.repeat(asked, len(cells))
                given = CellPairs(
                    control=(control := cells.repeat(len(asked), 1)),
                    perturbed=control,
                    condition=torch.full((len(repeated),), -1, dtype=torch.int64),
                    targets=torch.from_numpy(targets[repeated]),
                    signs=torch.from_numpy(signs[repeated]),
                    context=torch.from_numpy(np.tile(context[part], len(asked))),
                    batch=torch.from_numpy(np.tile(batch[part], len(asked))),
                ).to(self.device)
                change = self(given).to(dtype) - control.to(dtype)
                sums[start : start + len(asked)] += change.view(len(asked), len(cells), -1).sum(dim=1)
        return np.asarray((sums / len(rows)).cpu().numpy(), dtype=np.float64)
