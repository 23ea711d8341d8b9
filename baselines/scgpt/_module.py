"""scGPT as a LightningModule of the harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pertbase.baselines.harness import PerturbationModule
from pertbase.baselines.scgpt._checkpoint import LoadReport
from pertbase.baselines.scgpt._genes import Genes
from pertbase.baselines.scgpt._net import ScGPTNet
from pertbase.errors import InputError
from pertbase.folds import CONTROL, CellTable, Inputs
from pertbase.folds._batches import CellPairs

__all__ = ["Optimisation", "Preset", "ScGPTModule"]

Preset = Literal["corrected", "upstream"]

_AT_ONCE = {"cpu": 1 << 13, "cuda": 1 << 18}
"""Genes of cells predicted at once: with 512 numbers each, 16 MB an array on a processor, 512 MB on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How scGPT is trained.

    Parameters
    ----------
    learning_rate
        Of Adam.
    decay
        Factor of the learning rate after each epoch.
    max_genes
        Genes of a training step.
    """

    learning_rate: float = 1e-4
    decay: float = 0.9
    max_genes: int = 1536


class ScGPTModule(PerturbationModule):
    """scGPT: expression of every gene under a perturbation, read from a control cell in which its targets are marked.

    Parameters
    ----------
    net
        The network.
    genes
        What it reads.
    preset
        ``corrected`` or ``upstream``.
    optimisation
        How it is trained.
    loaded
        What of it comes from a checkpoint.
    """

    columns: Tensor
    rows: Tensor

    def __init__(
        self, net: ScGPTNet, *, genes: Genes, preset: Preset, optimisation: Optimisation, loaded: LoadReport | None
    ) -> None:
        super().__init__()
        self.net = net
        self.read = genes
        self.genes = genes.measured
        self.vocabulary = genes.names
        self.preset = preset
        self.optimisation = optimisation
        self.loaded = loaded
        rows = np.where(genes.padded, net.embedding.padding_idx or 0, np.cumsum(~genes.padded) - 1)
        self.register_buffer("columns", torch.from_numpy(genes.columns.astype(np.int64)), persistent=False)
        self.register_buffer("rows", torch.from_numpy(rows.astype(np.int64)), persistent=False)
        self._ddp_params_and_buffers_to_ignore = ["columns", "rows"]

    # -- training -------------------------------------------------------------------------------------------

    def training_step(self, pairs: CellPairs) -> Tensor:
        """Return the mean squared error of a batch over some of the genes, the same for all of its cells."""
        chosen = self._chosen(pairs.targets)
        predicted = self._expression(pairs, chosen)
        measured = chosen < len(self.columns)
        wanted = pairs.perturbed[:, self.columns[chosen[measured]]]
        return torch.nn.functional.mse_loss(predicted[:, measured].float(), wanted)

    def configure_optimizers(self) -> Any:
        """Return Adam with a learning rate that falls after each epoch."""
        trained = [item for item in self.parameters() if item.requires_grad]
        # Not fused: with mixed precision, Lightning refuses to clip gradients then.
        optimiser = torch.optim.Adam(trained, lr=self.optimisation.learning_rate, foreach=True)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=1, gamma=self.optimisation.decay)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}

    def compiled_parts(self) -> Sequence[torch.nn.Module]:
        """Return the layers: all have one shape, and nearly all of the time is theirs."""
        return list(self.net.layers)

    def selection_scores(self, asked: Inputs, predicted: np.ndarray, measured: np.ndarray) -> dict[str, np.ndarray]:
        """Return ``val_raw_distance``: one minus the correlation of predicted and measured mean expression.

        The original selects on it. It is about .01 for anything, as the expression of control is most of it.
        """
        if self.preset == "corrected" or asked.basal is None:
            return {}
        basal = asked.basal.loc[asked.conditions["context"], asked.genes].to_numpy()
        one, other = basal + predicted, basal + measured
        one, other = one - one.mean(1, keepdims=True), other - other.mean(1, keepdims=True)
        scale = np.sqrt((one**2).sum(1) * (other**2).sum(1))
        return {"val_raw_distance": 1.0 - (one * other).sum(1) / np.maximum(scale, np.finfo(float).tiny)}

    # -- prediction -----------------------------------------------------------------------------------------

    def forward(self, pairs: CellPairs) -> Tensor:
        """Return the expression of the control cells under their perturbations, shape (B, G).

        Genes without a token keep the expression of the control cell.
        """
        predicted = self._expression(pairs, torch.arange(len(self.rows), device=self.device))
        out = pairs.control.to(predicted.dtype, copy=True)
        out[:, self.columns] = predicted[:, : len(self.columns)]
        return out

    def effects(self, inputs: Inputs) -> np.ndarray:
        """Return the effect of each condition, shape (n_conditions, n_genes), float64.

        In ``corrected``, prediction under the perturbation minus prediction under none, over the same controls: what
        the network gets wrong of a control cell cancels. In ``upstream``, prediction minus control. Genes are aligned
        by name, and those without a token have effect 0.
        """
        self.prediction_batch_size = self.at_once()
        order = inputs.genes.get_indexer(self.genes)
        if len(inputs.genes) != len(self.genes) or (order < 0).any():
            raise InputError(
                "the genes are not those it was trained on",
                key="genes",
                value=f"{len(inputs.genes)} genes, {int((order < 0).sum())} of {len(self.genes)} absent",
                remedy="train it on this screen",
            )
        controls = inputs.controls
        if controls is not None and not controls.genes.equals(self.genes):
            columns = controls.genes.get_indexer(self.genes)
            controls = CellTable(controls.X[:, columns], controls.obs, self.genes)
        values = super().effects(replace(inputs, genes=self.genes, controls=controls))
        back = np.empty_like(values)
        back[:, order] = values
        return back

    def _effects_in(self, inputs: Inputs, rows: np.ndarray, names: Sequence[str]) -> np.ndarray:
        if self.preset == "upstream":
            return super()._effects_in(inputs, rows, names)
        # The control, which has no targets, as one more condition.
        none: dict[str, Any] = {**inputs.perturbations, CONTROL: None}
        found = super()._effects_in(replace(inputs, perturbations=none), rows, [*names, CONTROL])
        return np.asarray(found[:-1] - found[-1])

    def at_once(self) -> int:
        """Return how many cells are predicted at once, by the number of genes and the device."""
        return max(1, _AT_ONCE.get(self.device.type, _AT_ONCE["cpu"]) // len(self.rows))

    @torch.no_grad()
    def cells(self, controls: np.ndarray, targets: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return control cells under one perturbation, so changed that their mean change is its effect.

        Parameters
        ----------
        controls
            Shape (n_cells, n_genes), in the order of the model's genes.
        targets, signs
            Of the perturbation, shape (n_targets,); see :func:`pertbase.folds._batches.encode_targets`.
        """
        found = []
        step = self.at_once()
        for start in range(0, len(controls), step):
            cells = torch.from_numpy(controls[start : start + step]).to(self.device)
            under = self(_pairs(cells, targets, signs)).float()
            if self.preset == "corrected":
                under = cells + under - self(_pairs(cells, np.full_like(targets, -1), signs)).float()
            found.append(under.cpu().numpy())
        return np.concatenate(found) if found else np.zeros_like(controls)

    # -- parts ----------------------------------------------------------------------------------------------

    def _chosen(self, targets: Tensor) -> Tensor:
        """Return the genes of a training step, positions in the sequence, shape (n_chosen,).

        In ``corrected`` the targets of every cell are among them. In ``upstream`` they are there by chance: with 1,536
        of 5,060 genes, in three steps of ten.
        """
        n, most = len(self.rows), self.optimisation.max_genes
        if n <= most:
            return torch.arange(n, device=targets.device)
        order = torch.randperm(n)
        if self.preset == "corrected":
            present = torch.zeros(n, dtype=torch.bool)
            present[targets[targets >= 0].cpu()] = True
            # Targets that are not measured come on top: nothing is learnt of a step without a measured gene.
            n_measured = int(present[: len(self.columns)].sum())
            most = max(most, n_measured) + int(present.sum()) - n_measured
            order = torch.cat([order[present[order]], order[~present[order]]])
        return order[:most].sort().values.to(targets.device)

    def _expression(self, pairs: CellPairs, chosen: Tensor) -> Tensor:
        """Return predicted expression of some genes of the sequence, shape (n_cells, n_chosen)."""
        x = pairs.control.new_zeros(len(pairs), len(self.rows))
        x[:, : len(self.columns)] = pairs.control[:, self.columns]
        values, signs = x[:, chosen], self._signs(pairs)[:, chosen]
        hidden = self.net.embed(self.rows[chosen], values, signs)
        for layer in self.net.layers:
            hidden = self.checkpointed(layer, hidden)
        return self.net.decode(hidden, values)

    def _signs(self, pairs: CellPairs) -> Tensor:
        """Return what is done to each gene of the sequence, shape (n_cells, n_genes).

        1 marks a target whose activity is lowered, or whose sign is unknown, as most drugs inhibit; -1 one that is
        raised. The original marks both alike.
        """
        marks = torch.ones_like(pairs.signs) if self.preset == "upstream" else torch.where(pairs.signs > 0, -1, 1)
        there = pairs.targets >= 0
        found = torch.zeros((len(pairs), len(self.rows)), device=pairs.targets.device)
        cells = torch.arange(len(pairs), device=pairs.targets.device)[:, None].expand_as(there)
        found[cells[there], pairs.targets[there]] = marks[there].to(found.dtype)
        return found


def _pairs(cells: Tensor, targets: np.ndarray, signs: np.ndarray) -> CellPairs:
    nowhere = torch.full((len(cells),), -1, dtype=torch.int64, device=cells.device)
    return CellPairs(
        control=cells,
        perturbed=cells,
        condition=nowhere,
        targets=torch.from_numpy(targets).to(cells.device).expand(len(cells), -1),
        signs=torch.from_numpy(signs).to(cells.device).expand(len(cells), -1),
        context=nowhere,
        batch=nowhere,
    )
