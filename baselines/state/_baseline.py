"""STATE's transition model: what a set of control cells becomes under a perturbation."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pertbase._io import canonical_json, sha256_file, sha256_text
from pertbase.baselines.base import PredictedCells, sets_of
from pertbase.baselines.harness import LightningBaseline
from pertbase.baselines.harness._baseline import of_kind, supported_conditions, tell_unsupported
from pertbase.baselines.state._features import (
    SOURCES,
    Features,
    feature_source,
    features_of,
    trained_perturbations,
)
from pertbase.baselines.state._sizes import Shape, shape_of
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import CONTROL, Effects, Inputs, Training
from pertbase.folds._cells import hash_matrix
from pertbase.folds._data import find_data
from pertbase.folds._sets import SetSampler

if TYPE_CHECKING:
    from pertbase.baselines.harness import PerturbationModule
    from pertbase.baselines.state._net import LatentDecoder, StateNet

__all__ = ["STATE"]

_log = logging.getLogger("pertbase")
_PRESETS = ("corrected", "upstream")
_LOSSES = ("energy", "sinkhorn", "mix", "mse")
_RESIDUALS = ("cell", "token", "bottleneck")


class STATE(LightningBaseline):
    r"""The transition model of STATE (Adduri et al. 2025): cells as sets.

    A set of control cells and a perturbation go in, a set of perturbed cells comes out. Each cell is a token, its
    encoding plus that of the perturbation; a transformer without positions lets the cells of a set see each other; the
    output is read off each token. It is trained to make predicted and measured *sets* alike, in energy distance: there
    is no pairing of single cells. Predictions depend on the control cells, so that contexts are told apart by them.

    A perturbation is known to it by features. One-hot, it can speak of what was perturbed in training, in contexts it
    has not seen; by gene sets, expression or a file, of what was never perturbed as well. What has no features is
    ``unsupported``, and its cells are never trained on. Several contexts, mechanisms and doses are trained together.

    Presets
    -------
    ``corrected``
        The default. Sets are redrawn each epoch; what is predicted is a change of the control cell itself, nothing
        before training; an effect is measured from what the model predicts of the same cells under no perturbation; a
        decoder also learns from measured cells.
    ``upstream``
        arc-state 0.11.1's arithmetic: sets and their order are drawn once for all epochs; expression is rebuilt from
        the token, so that what the network cannot draw of a cell counts as effect, which is measured from the control
        cells; a decoder learns from predicted cells alone.

    Neither has the original's unused parts (an embedding of 32,000 words, a second gene decoder), selects on test, or
    takes a perturbation without features for one of zeros or for the control.

    Parameters
    ----------
    preset
        ``corrected`` or ``upstream``.
    size
        ``small``, ``base`` or ``large``: the published sizes, with 29, 76 and 213 million weights in the transformer.
    hidden_size
        Width of a token; the size's own where not given.
    layers
        Transformer layers; the size's own where not given.
    heads
        Attention heads in each layer; the size's own where not given.
    intermediate_size
        Width between the two products of a layer's feed-forward part; the size's own where not given.
    encoder_layers
        Linear layers of each of the two encoders; the size's own where not given.
    decoder_layers
        Linear layers of the output; the size's own where not given.
    set_size
        Cells in a set at most; the size's own where not given.
    dropout
        In the encoders and the output.
    residual
        ``cell``, ``token``, or ``bottleneck`` (arc-state's where it predicts all genes), see
        :class:`~pertbase.baselines.state._net.StateNet`; by the preset where not given.
    loss
        ``energy``, ``sinkhorn``, ``mix`` (energy + 0.01 sinkhorn) or ``mse``.
    blur
        Finest scale that ``sinkhorn`` sees.
    learning_rate
        Of Adam.
    warmup
        Steps over which the learning rate rises to that.
    features
        ``one_hot``, ``gene_sets``, ``expression`` (loadings of the targets on control cells' principal components), or
        a file: a table whose first column names perturbations, compounds or genes, or a ``.pt`` of tensors by name. Not
        given: one-hot where all that val asks about was perturbed in train, else gene sets.
    feature_size
        Features of a target by gene sets or expression.
    gene_sets
        A name or file, see :func:`pertbase.knowledge.gene_sets`. Not given: those the data set brings, else
        GO_Biological_Process_2023.
    embedding
        Name of an embedding in the screen's ``obsm``, to predict in, with a decoder to expression trained beside. Not
        given: expression itself.
    decoder_weight
        Weight of the decoder's loss.
    batch_embedding
        Whether batches have an embedding, added to their cells' tokens. Batches that training does not have get the
        mean of all.
    max_epochs, batch_size, patience, clip_norm, pairing, match, include_control, n_controls, monitor
        See :class:`~pertbase.baselines.harness.LightningBaseline`; a batch is of sets. ``pairing`` follows the preset
        where not given.
    """

    speaks_of = "perturbations that have features"

    def __init__(
        self,
        *,
        preset: Literal["corrected", "upstream"] = "corrected",
        size: Literal["small", "base", "large"] = "small",
        hidden_size: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        intermediate_size: int | None = None,
        encoder_layers: int | None = None,
        decoder_layers: int | None = None,
        set_size: int | None = None,
        dropout: float = 0.1,
        residual: Literal["cell", "token", "bottleneck"] | None = None,
        loss: Literal["energy", "sinkhorn", "mix", "mse"] = "energy",
        blur: float = 0.05,
        learning_rate: float = 1e-4,
        warmup: int = 0,
        features: str | None = None,
        feature_size: int = 64,
        gene_sets: str | None = None,
        embedding: str | None = None,
        decoder_weight: float = 1.0,
        batch_embedding: bool = False,
        max_epochs: int = 50,
        batch_size: int = 16,
        patience: int | None = None,
        clip_norm: float | None = 10.0,
        pairing: Literal["redrawn", "fixed"] | None = None,
        match: Sequence[str] = ("context", "batch"),
        include_control: bool = True,
        n_controls: int | None = 512,
        monitor: str = "val_mse",
    ) -> None:
        for key, value, known in (("preset", preset, _PRESETS), ("loss", loss, _LOSSES)):
            if value not in known:
                raise unknown_name(key, str(value), known)
        if residual is not None and residual not in _RESIDUALS:
            raise unknown_name("residual", residual, _RESIDUALS)
        for key, number, right, what in (
            ("dropout", dropout, 0 <= dropout < 1, "lies between 0 and 1"),
            ("blur", blur, blur > 0, "is a positive number"),
            ("learning_rate", learning_rate, learning_rate > 0, "is a positive number"),
            ("warmup", warmup, warmup >= 0, "is a number of steps"),
            ("feature_size", feature_size, feature_size >= 1, "is a number from 1 on"),
            ("decoder_weight", decoder_weight, decoder_weight >= 0, "is a number from 0 on"),
        ):
            if not right:
                raise InputError(what, key=key, value=number)
        super().__init__(
            max_epochs=max_epochs,
            batch_size=batch_size,
            patience=patience,
            clip_norm=clip_norm,
            pairing=pairing or ("redrawn" if preset == "corrected" else "fixed"),
            match=match,
            include_control=include_control,
            n_controls=n_controls,
            monitor=monitor,
        )
        self.preset: Literal["corrected", "upstream"] = preset
        self.size = size
        self.hidden_size = hidden_size
        self.layers = layers
        self.heads = heads
        self.intermediate_size = intermediate_size
        self.encoder_layers = encoder_layers
        self.decoder_layers = decoder_layers
        self.set_size = set_size
        self.dropout = dropout
        self.residual = residual or ("cell" if preset == "corrected" else "token")
        self.loss: Literal["energy", "sinkhorn", "mix", "mse"] = loss
        self.blur = blur
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.features = features
        self.feature_size = feature_size
        self.gene_sets = gene_sets
        self.embedding = embedding
        self.decoder_weight = decoder_weight
        self.batch_embedding = batch_embedding
        self._shape = self._sized()

    @property
    def shape(self) -> Shape:
        """The size of the network."""
        return self._shape

    def _sized(self) -> Shape:
        names = ("hidden_size", "layers", "heads", "intermediate_size", "encoder_layers", "decoder_layers", "set_size")
        return shape_of(self.size, **{name: getattr(self, name) for name in names})

    def refuses(self, training: Training) -> str | None:
        """Return that no perturbation in train has features, where that is so."""
        reason = super().refuses(training)
        if reason:
            return reason
        source, trained = feature_source(self.features, training), trained_perturbations(training)
        if source == "expression" and training.cells is None:
            known = set(training.genes)
            described = any(item.targets and known.issuperset(item.targets) for item in trained)
        else:
            features = self._features(training)
            described = any(features.of(item) is not None for item in trained)
        return None if described else f"STATE has no features ({source}) of any train perturbation"

    def training_key(self, training: Training) -> str:
        """Return what tells this training from others; the content of files and embeddings is part of it."""
        parts: dict[str, str] = {"key": super().training_key(training)}
        if self.features is not None and self.features not in SOURCES:
            parts["features"] = sha256_file(find_data(self.features))
        if self.embedding is not None and training.cells is not None:
            parts["embedding"] = hash_matrix(training.cells.embedding(self.embedding))
        return parts["key"] if len(parts) == 1 else sha256_text(canonical_json(parts))[:16]

    def build(self, training: Training) -> PerturbationModule:
        """Return the untrained module, with the features of this training's perturbations."""
        from pertbase.baselines.state._module import Optimisation, StateModule

        features = self._features(training)
        net, decoder = self._nets(training, features)
        module = StateModule(
            net,
            features=features,
            genes=training.genes,
            set_size=self.shape.set_size,
            optimisation=Optimisation(
                loss=self.loss,
                blur=self.blur,
                learning_rate=self.learning_rate,
                warmup=self.warmup,
                decoder_weight=self.decoder_weight,
            ),
            embedding=self.embedding,
            decoder=decoder,
            anchored=self.preset == "corrected" and self.include_control,
            reads_measured=self.preset == "corrected",
        )
        tell_unsupported(module, training, "have no features; they are not trained on and are unsupported")
        return module

    def sampler(self, training: Training, module: PerturbationModule, *, split: str = "train") -> SetSampler:
        """Return what draws the batches of a training: sets of cells of perturbations that have features."""
        if training.cells is None:
            raise InputError("there are no cells to draw", key="training.cells", value=None)
        from pertbase.baselines.state._module import StateModule

        source = of_kind(module, StateModule).features
        features = {name: source.of(item) for name, item in training.perturbations.items()}
        if self.include_control:
            features[CONTROL] = source.of(None)
        return SetSampler(
            training.cells,
            {name: item for name, item in features.items() if item is not None},
            split=split,
            set_size=self.shape.set_size,
            batch_size=self.batch_size,
            seed=training.seed,
            pairing=self.pairing,
            match=self.match or (),
            embedding=self.embedding,
        )

    def predict(self, inputs: Inputs) -> Effects:
        """Return the effects of the conditions asked about, and say how many it cannot speak of."""
        effects = super().predict(inputs)
        unsupported = int((effects.status == "unsupported").sum())
        if unsupported:
            hint = "; features=gene_sets or a file speak of more" if self.features in (None, "one_hot") else ""
            _log.warning(
                "STATE has no features of %d of %d conditions of %s%s",
                unsupported,
                len(effects.conditions),
                inputs.split,
                hint,
            )
        return effects

    def predict_cells(self, inputs: Inputs) -> PredictedCells:
        """Return each condition's predicted cells: what becomes of the input controls that effects are predicted from.

        They are worked out when looked up, one condition at a time.

        Raises
        ------
        UnsupportedError
            Where no input controls were handed out.
        """
        from pertbase.baselines.harness._predict import ask
        from pertbase.baselines.state._cells import SetCells
        from pertbase.baselines.state._module import StateModule

        if inputs.controls is None:
            raise UnsupportedError("STATE predicts cells from input controls, and the inputs hold none")
        module = of_kind(self.module, StateModule)
        supported = supported_conditions(module, inputs.conditions, inputs.perturbations)
        asked = ask(module, inputs, supported, n_controls=self.n_controls, seed=self._seed)
        return SetCells(module, asked.inputs, self._settings)

    # -- models of arc-state --------------------------------------------------------------------------------

    @classmethod
    def from_arc_state(
        cls,
        checkpoint: str | Path,
        *,
        genes: Sequence[str],
        perturbations: Sequence[str] | Mapping[str, Any] | None = None,
        batches: Sequence[str] = (),
        hyper_parameters: Mapping[str, Any] | str | Path | None = None,
        **options: Any,
    ) -> STATE:
        """Return a model that arc-state trained, with the preset ``upstream``: its weights, and nothing of its code.

        Parameters
        ----------
        checkpoint
            A ``.ckpt`` of arc-state's transition model. It is read without running what may be in it.
        genes
            Gene symbols in the model's order; where it was trained on an embedding, those its decoder reads off.
        perturbations
            What its perturbation encoder was shown: names in order of its columns, or name -> features. Not given:
            ``pert_onehot_map.pt`` beside the checkpoint, or in the folder above. A name is as pertbase spells it
            (``CRISPRi:A``) or without the mechanism (``A``).
        batches
            Names in order, for a model with an embedding of batches.
        hyper_parameters
            Where the checkpoint holds none: a mapping, or a YAML or JSON file.
        options
            Further arguments of the constructor, such as ``n_controls``.

        Raises
        ------
        InputError
            Where a file is absent or cannot be read, the model has a part that is not known here, or a weight is
            missing, left over or of another shape; the message names it.
        """
        from pertbase.baselines.state._exchange import read_arc_state

        chosen, module = read_arc_state(
            Path(checkpoint),
            genes=genes,
            perturbations=perturbations,
            batches=batches,
            hyper_parameters=hyper_parameters,
        )
        model = cls(**{"preset": "upstream", **chosen, **options})
        model._module = module
        return model

    # -- parts ----------------------------------------------------------------------------------------------

    def _features(self, training: Training) -> Features:
        source = feature_source(self.features, training)
        return features_of(source, training, sets=lambda: sets_of(training, self.gene_sets), n=self.feature_size)

    def _nets(self, training: Training, features: Features) -> tuple[StateNet, LatentDecoder | None]:
        from pertbase.baselines.state._net import LatentDecoder, StateNet

        cells = training.cells
        n_genes = width = len(training.genes)
        n_batches = 0
        if cells is not None and self.batch_embedding:
            n_batches = cells.obs["batch"].astype(str).nunique()
        if cells is not None and self.embedding is not None:
            width = cells.embedding(self.embedding).shape[1]
        net = StateNet(
            self.shape,
            n_in=width,
            n_out=width,
            n_features=features.width,
            n_batches=n_batches,
            dropout=self.dropout,
            residual=self.residual,
            positive=self.embedding is None,
        )
        return net, None if self.embedding is None else LatentDecoder(width, n_genes, self.dropout)
