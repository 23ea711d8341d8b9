"""GEARS: perturbation effects from gene embeddings and two gene graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase.baselines.base import PredictedCells, sets_of
from pertbase.baselines.gears._graphs import cache_folder, coexpression_graph, target_graph, training_controls
from pertbase.baselines.harness import LightningBaseline
from pertbase.baselines.harness._baseline import of_kind, tell_unsupported
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import CellTable, Inputs, Training

if TYPE_CHECKING:
    from pertbase.baselines.gears._graphs import Graph
    from pertbase.baselines.gears._module import GearsModule
    from pertbase.baselines.gears._nets import GearsNet
    from pertbase.baselines.harness import PerturbationModule

__all__ = ["GEARS"]


class GEARS(LightningBaseline):
    r"""GEARS (Roohani, Huang & Leskovec 2024) on torch-geometric.

    Every gene has an embedding, smoothed over a graph of co-expression, and every target one, smoothed over a graph of
    shared gene sets; a perturbation is the sum of its targets. A shared network and decoders of each gene turn the two
    into the change of every gene. So it can speak of targets and combinations that were never perturbed, as long as the
    target is in the gene sets: others are ``unsupported``, and their cells are never trained on.

    What to expect. Control expression is added to the change and not looked at. Predicted effects are therefore the
    same in every context and for every set of controls; a context that training does not have gets them too. Several
    contexts are trained together, each cell against controls of its own. A drug is its targets, with their signs.

    A target is told from others by its neighbours in the target graph as much as by itself. Where gene sets are few and
    large, those of one set have the same neighbours and are hardly told apart; ``target_neighbours=0`` leaves each
    target to itself, which is better for combinations of perturbed targets (figures in ``benchmarks/README.md``) and
    says little of others. The learning rate halves each epoch: a screen of few cells is trained for few steps, however
    many epochs are asked for, unless ``decay`` is raised.

    Ranks that share a batch normalise by the moments of all of it, and train what one process does to rounding.

    Presets
    -------
    ``corrected``
        The default. Genes of every cell see the co-expression graph; the direction loss has a gradient; controls are
        redrawn each epoch, matched by context and batch; co-expression is within contexts; targets have signs (-1
        lowers, +1 raises; unknown ones count as -1, as most drugs inhibit); the uncertainty loss has its penalty;
        perturbations are normalised, where it predicts, by all of train's and not by averages over past batches, which
        lag behind the weights and, with few perturbations, blow effects up.
    ``upstream``
        cell-gears 0.1.2 to rounding: only the first cell of a batch sees the co-expression graph, the direction loss is
        a step function, one control is drawn for all epochs, signs are ignored, and the epoch is selected on the 20
        genes of largest measured effect.

    Parameters
    ----------
    preset
        ``corrected`` or ``upstream``.
    hidden_size
        Hidden units.
    gene_layers
        Graph convolutions on the graph of genes, which are joined where they are expressed together.
    target_layers
        Graph convolutions on the graph of targets, which are joined where they share gene sets.
    gene_neighbours
        Edges of each gene in the graph of genes, at most.
    target_neighbours
        Edges of each target in the graph of targets, at most.
    coexpression_threshold
        Absolute correlation above which two genes are joined.
    similarity_threshold
        Jaccard index of their gene sets above which two targets are joined.
    direction_weight
        Weight of the direction loss.
    gamma
        The error of a gene is raised to the power 2 + gamma.
    uncertainty
        Whether to predict a log variance too; see :meth:`log_variances`.
    uncertainty_weight
        Weight of its loss.
    learning_rate
        Of Adam, in the first epoch.
    weight_decay
        Of Adam: the L2 penalty of all weights.
    decay
        Factor of the learning rate after each epoch.
    gene_sets
        A name or file, see :func:`pertbase.knowledge.gene_sets`. Not given: those the data set brings, else
        GO_Biological_Process_2023.
    max_epochs, batch_size, patience, clip_value, pairing, monitor, n_controls
        See :class:`~pertbase.baselines.harness.LightningBaseline`. ``pairing`` and ``monitor`` follow the preset where
        not given.
    """

    speaks_of = "perturbations with a target in a gene set"

    def __init__(
        self,
        *,
        preset: Literal["corrected", "upstream"] = "corrected",
        hidden_size: int = 64,
        gene_layers: int = 1,
        target_layers: int = 1,
        gene_neighbours: int = 20,
        target_neighbours: int = 20,
        coexpression_threshold: float = 0.4,
        similarity_threshold: float = 0.1,
        direction_weight: float = 0.1,
        gamma: float = 2.0,
        uncertainty: bool = False,
        uncertainty_weight: float = 1.0,
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-4,
        decay: float = 0.5,
        gene_sets: str | None = None,
        max_epochs: int = 20,
        batch_size: int = 32,
        patience: int | None = None,
        clip_value: float | None = 1.0,
        pairing: Literal["redrawn", "fixed"] | None = None,
        monitor: str | None = None,
        n_controls: int | None = None,
    ) -> None:
        if preset not in ("corrected", "upstream"):
            raise unknown_name("preset", preset, ("corrected", "upstream"))
        for key, value, least in (
            ("hidden_size", hidden_size, 1),
            ("gene_layers", gene_layers, 0),
            ("target_layers", target_layers, 0),
            ("gene_neighbours", gene_neighbours, 0),
            ("target_neighbours", target_neighbours, 0),
            ("gamma", gamma, 0),
            ("direction_weight", direction_weight, 0),
        ):
            if value < least:
                raise InputError(f"is at least {least}", key=key, value=value)
        super().__init__(
            max_epochs=max_epochs,
            batch_size=batch_size,
            patience=patience,
            clip_value=clip_value,
            pairing=pairing or ("redrawn" if preset == "corrected" else "fixed"),
            monitor=monitor or ("val_mse" if preset == "corrected" else "val_mse_top20"),
            n_controls=n_controls,
        )
        self.preset: Literal["corrected", "upstream"] = preset
        self.hidden_size = hidden_size
        self.gene_layers = gene_layers
        self.target_layers = target_layers
        self.gene_neighbours = gene_neighbours
        self.target_neighbours = target_neighbours
        self.coexpression_threshold = coexpression_threshold
        self.similarity_threshold = similarity_threshold
        self.direction_weight = direction_weight
        self.gamma = gamma
        self.uncertainty = uncertainty
        self.uncertainty_weight = uncertainty_weight
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay = decay
        self.gene_sets = gene_sets

    def refuses(self, training: Training) -> str | None:
        """Return that no perturbation in train has its targets in the gene sets, where that is so."""
        reason = super().refuses(training)
        if reason:
            return reason
        known = {gene for genes in sets_of(training, self.gene_sets).values() for gene in genes}
        trained = training.conditions.loc[training.conditions["split"] == "train", "perturbation"].unique()
        targets = [training.perturbations[name].targets for name in trained]
        if any(item and known.issuperset(item) for item in targets):
            return None
        example = next((gene for item in targets for gene in item), "none is known")
        return f"GEARS has no gene set with the targets of any train perturbation (for example {example})"

    def build(self, training: Training) -> PerturbationModule:
        """Return the untrained module, with the graphs of this training."""
        from pertbase.baselines.gears._module import GearsModule, Optimisation

        targets = self._target_graph(training)
        module = GearsModule(
            self._net(self._gene_graph(training), targets),
            genes=training.genes,
            vocabulary=targets.nodes,
            preset=self.preset,
            optimisation=Optimisation(
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                decay=self.decay,
                direction_weight=self.direction_weight,
                gamma=self.gamma,
                uncertainty_weight=self.uncertainty_weight,
            ),
        )
        tell_unsupported(module, training, "have targets in no gene set; they are not trained on and are unsupported")
        if self.monitor == "val_mse_top20":
            self._select(module, training)
        return module

    def predict_cells(self, inputs: Inputs) -> PredictedCells:
        """Return each condition's predicted cells: every input control of its context, changed.

        They are worked out when looked up. Values below zero are left as they are.

        Raises
        ------
        UnsupportedError
            Where no input controls were handed out.
        """
        if inputs.controls is None:
            raise UnsupportedError("GEARS predicts cells from input controls, and the inputs hold none")
        module = self._gears()
        rows = {
            (str(context), str(name))
            for context, name in zip(inputs.conditions["context"], inputs.conditions["perturbation"], strict=True)
            if module.speaks_to(inputs.perturbations[name])
        }
        wanted = inputs.conditions.loc[
            [key in rows for key in zip(inputs.conditions["context"], inputs.conditions["perturbation"], strict=True)]
        ].reset_index(drop=True)
        keys = list(zip(wanted["context"].astype(str), wanted["perturbation"].astype(str), strict=True))
        effects = self.predict(inputs).select(wanted).values if keys else np.zeros((0, len(inputs.genes)))
        return _ChangedCells(inputs.controls, dict(zip(keys, effects, strict=True)))

    def log_variances(self, inputs: Inputs) -> pd.DataFrame:
        """Return the predicted log variance of each condition asked about that it speaks to, conditions x genes.

        Raises
        ------
        InputError
            Where it was trained without ``uncertainty``.
        """
        module = self._gears()
        spoken = [module.speaks_to(inputs.perturbations[name]) for name in inputs.conditions["perturbation"]]
        conditions = inputs.conditions.loc[spoken, ["context", "perturbation"]]
        values = module.log_variances([inputs.perturbations[name] for name in conditions["perturbation"]])
        return pd.DataFrame(values, index=pd.MultiIndex.from_frame(conditions), columns=module.genes)

    # -- models of cell-gears -------------------------------------------------------------------------------

    @classmethod
    def from_cell_gears(cls, folder: str | Path, *, genes: Sequence[str], targets: Sequence[str]) -> GEARS:
        """Return a model that cell-gears saved, with the preset ``upstream``.

        Neither of its two files is unpickled freely: nothing that they may hold is run.

        Parameters
        ----------
        folder
            With ``model.pt`` and ``config.pkl``.
        genes
            Gene symbols in the model's order (``adata.var["gene_name"]``); its files do not hold them.
        targets
            Its perturbable genes in order (``pert_data.pert_names``).

        Raises
        ------
        InputError
            Where a file is absent, holds anything but plain values and tensors, or does not fit the names.
        """
        from pertbase.baselines.gears._exchange import read_cell_gears

        options, module = read_cell_gears(Path(folder), genes=genes, targets=targets)
        model = cls(preset="upstream", **options)
        model._module = module
        return model

    def to_cell_gears(self, folder: str | Path) -> Path:
        """Write ``model.pt`` and ``config.pkl`` as cell-gears 0.1.2 reads them, and ``genes.txt`` and ``targets.txt``.

        cell-gears predicts with it as it would with its own: of a ``corrected`` model too it shows the co-expression
        graph to the first cell only, and knows no signs.
        """
        from pertbase.baselines.gears._exchange import write_cell_gears

        return write_cell_gears(self._gears(), Path(folder), self.parameters())

    # -- parts ----------------------------------------------------------------------------------------------

    def _gears(self) -> GearsModule:
        from pertbase.baselines.gears._module import GearsModule

        return of_kind(self.module, GearsModule)

    def _target_graph(self, training: Training) -> Graph:
        return target_graph(
            sets_of(training, self.gene_sets),
            k=self.target_neighbours,
            threshold=self.similarity_threshold,
            cache=cache_folder(),
        )

    def _gene_graph(self, training: Training) -> Graph:
        if training.cells is None:
            raise InputError("co-expression needs cells", key="training.cells", value=None)
        return coexpression_graph(
            training_controls(training.cells),
            k=self.gene_neighbours,
            threshold=self.coexpression_threshold,
            by_context=self.preset == "corrected",
            cache=cache_folder(),
        )

    def _net(self, genes: Graph, targets: Graph) -> GearsNet:
        import torch

        from pertbase.baselines.gears._nets import Adjacency, GearsNet

        def adjacency(graph: Graph) -> Adjacency:
            edges = torch.from_numpy(np.stack([graph.source, graph.target]))
            return Adjacency(edges, torch.from_numpy(graph.weight.copy()), len(graph.nodes))

        return GearsNet(
            adjacency(genes),
            adjacency(targets),
            hidden=self.hidden_size,
            gene_layers=self.gene_layers,
            target_layers=self.target_layers,
            uncertainty=self.uncertainty,
        )

    def _select(self, module: GearsModule, training: Training) -> None:
        val = training.conditions.loc[training.conditions["split"] == "val"]
        spoken = val.loc[[module.speaks_to(training.perturbations[name]) for name in val["perturbation"]]]
        if training.effects is None or not len(spoken):
            return
        measured = training.effects.select(spoken).values
        module.select_on([training.perturbations[name] for name in spoken["perturbation"]], measured)


class _ChangedCells(Mapping[tuple[str, str], np.ndarray]):
    """Predicted cells of each condition, made when looked up: together they would be conditions x controls x genes."""

    def __init__(self, controls: CellTable, effects: Mapping[tuple[str, str], np.ndarray]) -> None:
        self._controls = controls
        self._context = controls.obs["context"].astype(str).to_numpy()
        self._effects = effects

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        values = self._controls.X[np.flatnonzero(self._context == key[0])]
        dense = values.toarray() if sparse.issparse(values) else np.asarray(values)
        return np.asarray(dense + self._effects[key], dtype=np.float32)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._effects)

    def __len__(self) -> int:
        return len(self._effects)
