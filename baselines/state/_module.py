"""STATE's transition model as a LightningModule of the harness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pertbase.baselines.harness import PerturbationModule
from pertbase.baselines.state._features import Features
from pertbase.baselines.state._loss import LossName, SetLoss
from pertbase.baselines.state._net import LatentDecoder, StateNet
from pertbase.errors import InputError
from pertbase.folds import CellTable, Inputs, Perturbation
from pertbase.folds._batches import dense_rows
from pertbase.folds._sets import CellSets, SetSampler, even_parts, padded_rows

__all__ = ["Optimisation", "StateModule"]

_CELLS, _NUMBERS = 4096, 1 << 25
"""Cells predicted at once, and numbers predicted of them: 128 MB."""


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How the model is trained.

    Parameters
    ----------
    loss
        Distance between predicted and measured sets.
    blur
        Finest scale that Sinkhorn sees.
    learning_rate
        Of Adam.
    warmup
        Steps over which the learning rate rises to that.
    decoder_weight
        Weight of the decoder's loss, where cells are predicted in an embedding.
    """

    loss: LossName = "energy"
    blur: float = 0.05
    learning_rate: float = 1e-4
    warmup: int = 0
    decoder_weight: float = 1.0


class StateModule(PerturbationModule):
    """STATE: a set of control cells, moved as a whole.

    Parameters
    ----------
    net
        The network.
    features
        What a perturbation is to it.
    genes
        Measured genes, in the network's order.
    set_size
        Cells in a set at most.
    optimisation
        How it is trained.
    embedding
        Name of the embedding it predicts in; expression where None.
    decoder
        Reads expression off the embedding.
    anchored
        Whether an effect is the difference to what the network predicts of the same cells under no perturbation, rather
        than to the cells themselves.
    reads_measured
        Whether the decoder is trained on measured cells too.
    """

    def __init__(
        self,
        net: StateNet,
        *,
        features: Features,
        genes: pd.Index,
        set_size: int,
        optimisation: Optimisation,
        embedding: str | None = None,
        decoder: LatentDecoder | None = None,
        anchored: bool = True,
        reads_measured: bool = True,
    ) -> None:
        super().__init__()
        self.net = net
        self.decoder = decoder
        self.features = features
        self.genes = genes
        self.set_size = set_size
        self.optimisation = optimisation
        self.embedding = embedding
        self.anchored = anchored
        self.reads_measured = reads_measured
        # Targets are known by their features; there is no list of them.
        self.vocabulary = pd.Index([], dtype=object)
        self.loss = SetLoss(optimisation.loss, blur=optimisation.blur)

    def speaks_to(self, perturbation: Perturbation) -> bool:
        """Return whether a perturbation has features: one that has none would be taken for another."""
        return self.features.of(perturbation) is not None

    def prepare(self, sampler: SetSampler) -> None:
        """Take the names of contexts and batches."""
        super().prepare(sampler)
        table = self.net.batch
        if table is not None and table.num_embeddings != len(self.batch_names):
            raise InputError("the network has another number of batches", key="batch", value=len(self.batch_names))

    # -- training -------------------------------------------------------------------------------------------

    def forward(self, sets: CellSets) -> Tensor:
        """Return the predicted cells, in the embedding where there is one, shape (B, S, D)."""
        found: Tensor = self.net(
            sets.control if self.embedding is None else sets.control_embedding,
            sets.features,
            visible=sets.real if sets.padded else None,
            batch=sets.batch,
            through=self.checkpointed,
        )
        return found

    def training_step(self, sets: CellSets) -> Tensor:
        """Return the loss of a batch."""
        real = sets.real if sets.padded else None
        predicted = self(sets)
        if self.embedding is None:
            return self.loss(predicted, sets.perturbed, real)  # type: ignore[no-any-return]
        latent = self.loss(predicted, sets.perturbed_embedding, real)
        # The decoder learns to read cells and does not move them.
        decoded = self.loss(self._decoded(predicted.detach()), sets.perturbed, real)
        if self.reads_measured:
            decoded = decoded + self._read_error(sets, real)
        return latent + self.optimisation.decoder_weight * decoded  # type: ignore[no-any-return]

    def _read_error(self, sets: CellSets, real: Tensor | None) -> Tensor:
        """Return the mean squared error of expression read off measured cells: there each cell's own is known."""
        both = (
            (sets.control_embedding, sets.control),
            (sets.perturbed_embedding, sets.perturbed),
        )
        error = torch.stack([((self._decoded(latent) - cells) ** 2).mean(dim=-1) for latent, cells in both])
        return error.mean() if real is None else error[:, real].mean()

    def _decoded(self, latent: Tensor | None) -> Tensor:
        if self.decoder is None or latent is None:
            raise InputError("there is nothing to read expression off", key="embedding", value=self.embedding)
        found: Tensor = self.decoder(latent)
        return found

    def configure_optimizers(self) -> Any:
        """Return Adam, whose learning rate may rise over the first steps."""
        about = self.optimisation
        optimiser = torch.optim.Adam(self.parameters(), lr=about.learning_rate, fused=self.may_fuse)
        if about.warmup < 2:
            return optimiser
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / about.warmup))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def compiled_parts(self) -> Sequence[torch.nn.Module]:
        """Return the transformer's layers: the rest is small, and the loss not ours."""
        return list(self.net.blocks)

    # -- prediction -----------------------------------------------------------------------------------------

    def effects(self, inputs: Inputs) -> np.ndarray:
        r"""Return the effect of each condition: how far the mean of its predicted cells is from where they started.

        That is the mean of the cells themselves, or, ``anchored``, of what the network predicts of them under no
        perturbation: what it cannot draw of a cell is then no effect,

        .. math:: \hat e_{cg} = \frac{1}{n}\sum_{i=1}^{n} f(x_i, c)_g - f(x_i, \mathrm{control})_g .

        Raises
        ------
        InputError
            Where there are no controls, or the genes are not those it was trained on, in their order.
        """
        controls = self._controls(inputs)
        values = np.zeros((len(inputs.conditions), len(self.genes)))
        context_of_cell = controls.obs["context"].to_numpy(dtype=object)
        for context, conditions in inputs.conditions.groupby("context", sort=True, observed=True):
            rows = np.flatnonzero(context_of_cell == context)
            asked = [inputs.perturbations[name] for name in conditions["perturbation"]]
            if not len(rows):
                raise InputError("a context has no input control", key="context", value=context)
            values[conditions.index.to_numpy()] = self._effects_of(controls, rows, asked)
        return values

    def _effects_of(self, controls: CellTable, rows: np.ndarray, asked: Sequence[Perturbation]) -> np.ndarray:
        """Return effects in one context; control sets outside, perturbations inside."""
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        features = self._features_of([*asked, None] if self.anchored else asked)
        sums = torch.zeros((len(features), len(self.genes)), dtype=dtype, device=self.device)
        start = torch.zeros(len(self.genes), dtype=dtype, device=self.device)
        for sets in self._control_sets(controls, rows):
            counted = sets.real.to(dtype)[..., None]
            start += (sets.control.to(dtype) * counted).sum(dim=(0, 1))
            at_once = max(1, self._at_once() // sets.real.numel())
            for first in range(0, len(features), at_once):
                given = features[first : first + at_once]
                cells = self._predicted(sets, given).to(dtype)
                sums[first : first + len(given)] += (cells * counted).sum(dim=(1, 2))
        effects = sums[:-1] - sums[-1] if self.anchored else sums - start
        return np.asarray((effects / len(rows)).cpu().numpy(), dtype=np.float64)

    def _at_once(self) -> int:
        """Return how many cells to predict at once."""
        return max(1, min(_CELLS, _NUMBERS // len(self.genes)))

    @torch.no_grad()
    def predicted_cells(
        self, controls: CellTable, rows: np.ndarray, perturbation: Perturbation
    ) -> Iterator[np.ndarray]:
        """Yield predicted cells of some controls of one context, set after set, each float32 (n_cells, n_genes)."""
        features = self._features_of([perturbation])
        for sets in self._control_sets(controls, rows):
            yield self._predicted(sets, features)[0][sets.real].float().cpu().numpy()

    def _predicted(self, sets: CellSets, features: Tensor) -> Tensor:
        """Return what becomes of some sets under each of n perturbations, shape (n, B, S, n_genes)."""
        given = sets.repeated(len(features)).told(features.repeat_interleave(len(sets), dim=0))
        found = self(given)
        found = found if self.embedding is None else self._decoded(found)
        return found.view(len(features), len(sets), *found.shape[1:])

    def _features_of(self, asked: Sequence[Perturbation | None]) -> Tensor:
        rows = [self.features.of(item) for item in asked]
        return torch.from_numpy(np.stack([row for row in rows if row is not None])).to(self.device)

    def _controls(self, inputs: Inputs) -> CellTable:
        if inputs.controls is None:
            raise InputError("effects are predicted from input controls", key="inputs.controls", value=None)
        if not inputs.genes.equals(self.genes):
            raise InputError(
                "the genes are not those it was trained on", key="inputs.genes", value=f"{len(inputs.genes)} genes"
            )
        return inputs.controls

    def _control_sets(self, controls: CellTable, rows: np.ndarray) -> Iterator[CellSets]:
        """Yield the controls in some rows as sets, a few at a time.

        Cells are dealt to the sets by name, one after another: sets do not depend on the order of rows, and each holds
        cells of every batch.
        """
        rows = rows[np.argsort(controls.obs.index[rows].astype(str), kind="stable")]
        bounds = even_parts(len(rows), self.set_size)
        n_sets = len(bounds) - 1
        dealt = np.concatenate([rows[number::n_sets] for number in range(n_sets)])
        size = np.array([len(rows[number::n_sets]) for number in range(n_sets)])
        start = np.cumsum(size) - size
        at_once = max(1, self._at_once() // int(size.max()))
        for first in range(0, n_sets, at_once):
            part = slice(first, first + at_once)
            position, real = padded_rows(start[part], size[part])
            yield self._gathered(controls, dealt[position], real)

    def _gathered(self, controls: CellTable, rows: np.ndarray, real: np.ndarray) -> CellSets:
        cells = torch.from_numpy(dense_rows(controls.X, rows.ravel())).view(*rows.shape, -1)
        embedded = None
        if self.embedding is not None:
            embedded = torch.from_numpy(controls.embedding(self.embedding)[rows])
        obs = controls.obs.iloc[rows.ravel()]
        batch = self.batch_names.get_indexer(obs["batch"].astype(str)).astype(np.int64)
        context = self.contexts.get_indexer(controls.obs["context"].iloc[rows[:, 0]].astype(str)).astype(np.int64)
        return CellSets(
            control=cells,
            perturbed=cells,
            real=torch.from_numpy(real),
            padded=not real.all(),
            features=torch.zeros((len(rows), 0)),
            condition=torch.full((len(rows),), -1, dtype=torch.int64),
            context=torch.from_numpy(context),
            batch=torch.from_numpy(batch).view(*rows.shape),
            control_embedding=embedded,
            perturbed_embedding=embedded,
        ).to(self.device)
