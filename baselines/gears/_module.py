"""GEARS as a LightningModule of the harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from pertbase.baselines.gears._across_ranks import place
from pertbase.baselines.gears._loss import LossTerms, Preset, gears_loss
from pertbase.baselines.gears._nets import GearsNet, Grouping, group
from pertbase.baselines.harness import PerturbationModule
from pertbase.errors import InputError
from pertbase.folds import CONTROL, Inputs, Perturbation
from pertbase.folds._batches import CellPairs, PairSampler, encode_targets
from pertbase.folds._cells import mean_rows

__all__ = ["GearsModule", "Optimisation"]

ORIGINAL_CELLS = 300
"""Cells in the one batch that the original predicts from; the first of them sees the co-expression graph."""
TOP_GENES = 20
"""Genes of largest measured effect that the original selects on."""
_AT_ONCE = 1 << 24
"""Hidden numbers kept at once while predicting: 64 MB."""


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How GEARS is trained.

    Parameters
    ----------
    learning_rate, weight_decay
        Of Adam.
    decay
        Factor of the learning rate after each epoch.
    direction_weight
        lambda of the direction loss.
    gamma
        The error is raised to the power 2 + gamma.
    uncertainty_weight
        r of the uncertainty loss.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    decay: float = 0.5
    direction_weight: float = 0.1
    gamma: float = 2.0
    uncertainty_weight: float = 1.0


class GearsModule(PerturbationModule):
    """GEARS: control expression plus the change of every gene under a perturbation.

    Parameters
    ----------
    net
        The network.
    genes
        Measured genes, in the order of the network.
    vocabulary
        Targets, the nodes of its target graph.
    preset
        ``corrected`` or ``upstream``.
    optimisation
        How it is trained.
    """

    kept: Tensor
    mean_control: Tensor

    def __init__(
        self, net: GearsNet, *, genes: pd.Index, vocabulary: pd.Index, preset: Preset, optimisation: Optimisation
    ) -> None:
        super().__init__()
        self.net = net
        self.genes = genes
        self.vocabulary = vocabulary
        self.preset = preset
        self.optimisation = optimisation
        self.register_buffer("kept", torch.ones((1, len(genes)), dtype=torch.bool), persistent=False)
        self.register_buffer("mean_control", torch.zeros(len(genes)), persistent=False)
        # The same on all ranks, and large: not to be sent around at each step.
        self._ddp_params_and_buffers_to_ignore = [
            name
            for name, _ in self.named_buffers()
            if name in ("kept", "mean_control") or name.startswith(("net.gene_graph.", "net.target_graph."))
        ]
        self._val: tuple[list[Perturbation], np.ndarray] | None = None
        self._known: Grouping | None = None

    # -- training -------------------------------------------------------------------------------------------

    def prepare(self, sampler: PairSampler) -> None:
        """Take from the cells which genes each condition expresses, and the mean control."""
        super().prepare(sampler)
        control = (sampler.conditions["perturbation"] == CONTROL).to_numpy()
        n = len(sampler.rows)
        member = sparse.csr_matrix(
            (np.ones(n, dtype=np.float32), (sampler.condition, np.arange(n))), shape=(len(control), n)
        )
        total = member @ sampler.cells.X[sampler.rows]
        expressed = (total.toarray() if sparse.issparse(total) else np.asarray(total)) > 0
        self.kept = torch.from_numpy(expressed | control[:, None])
        obs = sampler.cells.obs
        rows = np.flatnonzero(obs["is_control"].to_numpy(dtype=bool) & (obs["split"] == "train").to_numpy())
        self.mean_control = torch.from_numpy(mean_rows(sampler.cells.X, rows).astype(np.float32))
        targets, signs = (torch.from_numpy(item) for item in sampler.encoded())
        cells = torch.bincount(torch.from_numpy(sampler.condition), minlength=len(targets))
        distinct = group(targets[cells > 0], self._used(signs[cells > 0]))
        counts = torch.zeros_like(distinct.counts).index_add(0, distinct.of_cell, cells[cells > 0].float())
        self._known = replace(distinct, counts=counts)

    def select_on(self, perturbations: Sequence[Perturbation], measured: np.ndarray) -> None:
        """Log after each epoch ``val_mse_top20``: the error on the 20 genes of largest measured effect.

        Parameters
        ----------
        perturbations
            Of the val conditions it speaks to.
        measured
            Their effects, shape (n_conditions, n_genes).
        """
        self._val = (list(perturbations), measured)

    def training_step(self, pairs: CellPairs) -> Tensor:
        """Return the loss of a batch."""
        grouping = self._group(pairs.targets, pairs.signs)
        change, log_variance = self.net(grouping)
        terms = LossTerms(
            observed=pairs.perturbed,
            control=pairs.control,
            condition=pairs.condition,
            kept=self.kept,
            mean_control=self.mean_control,
        )
        return gears_loss(
            pairs.control + change[grouping.of_cell],
            terms,
            preset=self.preset,
            direction_weight=self.optimisation.direction_weight,
            gamma=self.optimisation.gamma,
            log_variance=None if log_variance is None else log_variance[grouping.of_cell],
            uncertainty_weight=self.optimisation.uncertainty_weight,
        )

    def on_train_batch_end(self, outputs: Any, batch: CellPairs, batch_idx: int) -> None:
        """After an epoch's last batch, let statistics between perturbations follow the weights (``corrected``)."""
        if self.preset == "corrected" and self._known is not None and self.trainer.is_last_batch:
            self.net.settle(self._known.to(self.device))

    def configure_optimizers(self) -> Any:
        """Return Adam with a learning rate that falls after each epoch."""
        about = self.optimisation
        # Fused: of a step at 300 genes, a quarter was Adam going over the embeddings of 15,000 targets a dozen times.
        optimiser = torch.optim.Adam(
            self.parameters(), lr=about.learning_rate, weight_decay=about.weight_decay, fused=self.may_fuse
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=1, gamma=about.decay)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}

    def on_train_epoch_end(self) -> None:
        """Log the original's selection metric, where it is asked for."""
        if self._val is None:
            return
        perturbations, measured = self._val
        training = self.training
        self.eval()
        with torch.no_grad():
            predicted = self.changes(perturbations)
        self.train(training)
        top = np.argsort(-np.abs(measured), axis=1, kind="stable")[:, :TOP_GENES]
        error = np.take_along_axis(predicted - measured, top, axis=1)
        # Every rank predicts all of val and finds the same; the mean over ranks spares Lightning's advice to take it.
        self.log("val_mse_top20", float(np.mean(error**2)), sync_dist=self.trainer.world_size > 1)

    def compiled_parts(self) -> Sequence[torch.nn.Module]:
        """Return none: the number of distinct perturbations, and with it every shape, changes with each batch."""
        return ()

    # -- prediction -----------------------------------------------------------------------------------------

    def forward(self, pairs: CellPairs) -> Tensor:
        """Return the expression of the control cells under their perturbations, shape (B, G)."""
        grouping = self._group(pairs.targets, pairs.signs)
        change: Tensor = self.net(grouping)[0]
        return pairs.control + change[grouping.of_cell]

    def effects(self, inputs: Inputs) -> np.ndarray:
        """Return the effect of each condition, shape (n_conditions, n_genes), float64.

        Prediction minus its own input is the change itself, the same for every control: the mean over all controls,
        over any set of them and in every context. So one evaluation a perturbation is all there is to do.

        Raises
        ------
        InputError
            Where a gene asked for is not one of the model's.
        """
        columns = self.genes.get_indexer(inputs.genes)
        if (columns < 0).any():
            absent = inputs.genes[columns < 0]
            raise InputError(
                f"the model was trained without {len(absent)} of the genes",
                key="genes",
                value=list(absent[:5]),
                remedy="train it on this screen, or align the screen's genes with the model's",
            )
        names = inputs.conditions["perturbation"].tolist()
        distinct = list(dict.fromkeys(names))
        change = self.changes([inputs.perturbations[name] for name in distinct])
        rows = {name: row for row, name in enumerate(distinct)}
        return np.asarray(change[[rows[name] for name in names]][:, columns])

    def changes(self, perturbations: Sequence[Perturbation]) -> np.ndarray:
        """Return the change of every gene under some perturbations, shape (n, n_genes), float64."""
        return np.asarray(self._evaluated(perturbations)[0])

    def log_variances(self, perturbations: Sequence[Perturbation]) -> np.ndarray:
        """Return the predicted log variance of every gene under some perturbations, shape (n, n_genes).

        Raises
        ------
        InputError
            Where the model has no uncertainty head.
        """
        found = self._evaluated(perturbations)[1]
        if found is None:
            raise InputError("the model predicts no uncertainty", key="uncertainty", value=False)
        return found

    @torch.no_grad()
    def _evaluated(self, perturbations: Sequence[Perturbation]) -> tuple[np.ndarray, np.ndarray | None]:
        targets, signs = (torch.from_numpy(item) for item in encode_targets(perturbations, self.vocabulary))
        width = 2 * self.net.gene.embedding_dim
        step = max(1, _AT_ONCE // (width * len(self.genes)))
        found: list[np.ndarray] = []
        variances: list[np.ndarray] = []
        for start in range(0, len(perturbations), step):
            part = slice(start, start + step)
            change, log_variance = self._evaluate(targets[part].to(self.device), signs[part].to(self.device))
            found.append(change.double().cpu().numpy())
            if log_variance is not None:
                variances.append(log_variance.double().cpu().numpy())
        return np.concatenate(found), np.concatenate(variances) if variances else None

    def _evaluate(self, targets: Tensor, signs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return change and log variance of each row, as the mean over the cells of a batch of its own."""
        ones = torch.ones(len(targets), device=targets.device)
        rows = torch.arange(len(targets), device=targets.device)
        used = self._used(signs).masked_fill(targets < 0, 0)

        def at(seen: bool) -> tuple[Tensor, Tensor | None]:
            flags = torch.full((len(targets),), seen, dtype=torch.bool, device=targets.device)
            change, log_variance = self.net(Grouping(targets, used, ones, rows, flags))
            return change, log_variance

        if self.preset == "corrected":
            return at(True)
        first, others = at(True), at(False)
        share = 1.0 / ORIGINAL_CELLS
        change = share * first[0] + (1 - share) * others[0]
        if first[1] is None or others[1] is None:
            return change, None
        return change, share * first[1] + (1 - share) * others[1]

    # -- perturbations --------------------------------------------------------------------------------------

    def _group(self, targets: Tensor, signs: Tensor) -> Grouping:
        original = self.preset == "upstream"
        if not original or place()[0] == 0:
            return group(targets, self._used(signs), first_slot_only=original)
        # The first slot of a batch that ranks share is rank 0's.
        others = group(targets, self._used(signs))
        return replace(others, co_expressed=torch.zeros_like(others.co_expressed))

    def _used(self, signs: Tensor) -> Tensor:
        """Return what embeddings are multiplied with: the sign, unknown ones taken for inhibition; 1 in upstream.

        The original has no signs. Where genes are lowered and raised, or drugs act on the targets of guides, a target
        needs one; most drugs inhibit what they bind.
        """
        if self.preset == "upstream":
            return torch.ones_like(signs, dtype=torch.int64)
        signs = signs.to(torch.int64)
        return torch.where(signs == 0, -torch.ones_like(signs), signs)
