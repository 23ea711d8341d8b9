"""scGPT: perturbed expression, read by a transformer from a control cell in which the targets are marked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import sparse

from pertbase._io import canonical_json, sha256_file, sha256_text
from pertbase.baselines.base import PredictedCells
from pertbase.baselines.harness import LightningBaseline
from pertbase.baselines.harness._baseline import listed, of_kind, supported_conditions, tell_unsupported
from pertbase.baselines.scgpt._checkpoint import Checkpoint, load, open_checkpoint
from pertbase.baselines.scgpt._genes import Genes, Vocabulary, genes_read, read_vocabulary
from pertbase.baselines.scgpt._size import Size, sized
from pertbase.baselines.scgpt._tuning import TUNINGS, Tuning, restrict
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import CellTable, Inputs, Perturbation, Training

if TYPE_CHECKING:
    from pertbase.baselines.harness import PerturbationModule
    from pertbase.baselines.scgpt._module import ScGPTModule

__all__ = ["ScGPT"]

_log = logging.getLogger("pertbase")
_progress = logging.getLogger("pertbase.training")


class ScGPT(LightningBaseline):
    r"""scGPT (Cui et al. 2024) for perturbations, from scratch at any size or from a published checkpoint.

    A transformer reads a control cell: each gene's name, its expression, and a mark where it is a target. It predicts
    what the cell would express. So it can speak of targets and combinations that were never perturbed, and its
    predictions depend on the control cell, and with it on context.

    What it can speak to. A perturbation is its targets, of drugs too, each with its sign. A target that is not
    measured joins the sequence as a gene without counts where train perturbs it; a perturbation with another target
    that is not measured, or without known targets, is ``unsupported``. Measured genes outside the vocabulary are
    masked: never attended to and never predicted, their effect is 0, and a warning counts them.

    What to expect. Mean squared error over all genes rewards the expression of control cells, which is nearly all of
    it: predictions of different perturbations tend to be alike. The report's pairwise correlation shows it.

    Presets
    -------
    ``corrected``
        The default. The targets of every cell are among the genes of every training step; genes without a token are
        masked; targets have signs (raised ones get the opposite mark); a control is redrawn each epoch, matched by
        context and batch; an effect is the prediction under the perturbation minus that under none; selection is on
        the effects of val.
    ``upstream``
        scgpt 0.2.4's arithmetic and its tutorial's procedure: genes of a training step are drawn at random, so that
        the targets are mostly absent; genes without a token share that of padding; signs are ignored; one control is
        drawn for all epochs; an effect is prediction minus control; selection is on the correlation of raw expression;
        layers start alike. Targets that are not measured have no mark there, and predictions without a mark would be
        those of a control cell: they are ``unsupported``.

    Parameters
    ----------
    preset
        ``corrected`` or ``upstream``.
    size
        ``small`` (64 numbers a gene, 2 layers), for processors, or ``published`` (512, 12 layers, 8 heads), for GPUs.
        A checkpoint has its own.
    embedding_size
        Numbers a gene; the size's own where not given.
    n_layers
        Transformer layers; the size's own where not given.
    n_heads
        Attention heads in each layer; the size's own where not given.
    hidden_size
        Width of a layer's feed-forward part; the size's own where not given.
    dropout
        Share of numbers dropped in training.
    max_genes
        Genes of a training step. Predictions are of all genes at once.
    vocabulary
        Which genes have a token: a ``vocab.json``, or ``scgpt`` for the one of the installed package. Not given: the
        checkpoint's, else every gene.
    checkpoint
        A folder with ``best_model.pt``, ``vocab.json`` and ``args.json``.
    checkpoint_url
        Address of a folder to fetch them from where ``checkpoint`` lacks them; a fetch that was cut goes on.
    tuning
        What of a checkpoint is trained: ``all``, ``frozen`` (nothing but the decoder and the mark), ``last`` (the last
        ``last_layers`` layers too) or ``lora`` (matrices of low rank added to those of the layers; needs peft).
    last_layers
        How many layers ``last`` trains.
    lora_rank
        Rank of the matrices that ``lora`` adds.
    lora_alpha
        Scale of the matrices that ``lora`` adds: they are multiplied with ``lora_alpha / lora_rank``.
    learning_rate
        Of Adam. Not given: 1e-4, as published, for a checkpoint and the published size, else 3e-3.
    decay
        Factor of the learning rate after each epoch.
    n_controls
        Input controls of each context that effects are predicted from: a prediction of 5,000 genes at published size
        takes a processor ten seconds a cell. Each control is its own reference, so that few do; all if None.
    n_selection_controls
        The same for selection on val, after every epoch.
    max_epochs, batch_size, patience, clip_norm, pairing, monitor
        See :class:`~pertbase.baselines.harness.LightningBaseline`. ``pairing`` and ``monitor`` follow the preset where
        not given.
    """

    speaks_of = "perturbations with known targets that are read as genes"

    def __init__(
        self,
        *,
        preset: Literal["corrected", "upstream"] = "corrected",
        size: str | None = None,
        embedding_size: int | None = None,
        n_layers: int | None = None,
        n_heads: int | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
        max_genes: int = 1536,
        vocabulary: str | None = None,
        checkpoint: str | None = None,
        checkpoint_url: str | None = None,
        tuning: Tuning = "all",
        last_layers: int = 2,
        lora_rank: int = 8,
        lora_alpha: float = 16.0,
        learning_rate: float | None = None,
        decay: float = 0.9,
        max_epochs: int = 15,
        batch_size: int = 64,
        patience: int | None = 10,
        clip_norm: float | None = 1.0,
        pairing: Literal["redrawn", "fixed"] | None = None,
        monitor: str | None = None,
        n_controls: int | None = 32,
        n_selection_controls: int | None = 8,
    ) -> None:
        if preset not in ("corrected", "upstream"):
            raise unknown_name("preset", preset, ("corrected", "upstream"))
        if tuning not in TUNINGS:
            raise unknown_name("tuning", tuning, TUNINGS)
        for key, value, least in (("max_genes", max_genes, 1), ("lora_rank", lora_rank, 1), ("dropout", dropout, 0)):
            if value < least:
                raise InputError(f"is at least {least}", key=key, value=value)
        changes = {
            "embedding_size": embedding_size, "n_layers": n_layers, "n_heads": n_heads, "hidden_size": hidden_size
        }  # fmt: skip
        _check_source(checkpoint, checkpoint_url, tuning, {"size": size, "vocabulary": vocabulary, **changes})
        if checkpoint is None:
            sized(size or "small", **changes)
        super().__init__(
            max_epochs=max_epochs,
            batch_size=batch_size,
            patience=patience,
            clip_norm=clip_norm,
            pairing=pairing or ("redrawn" if preset == "corrected" else "fixed"),
            monitor=monitor or ("val_mse" if preset == "corrected" else "val_raw_distance"),
            n_controls=n_controls,
            n_selection_controls=n_selection_controls,
        )
        self.preset: Literal["corrected", "upstream"] = preset
        self.size = size
        self.embedding_size = embedding_size
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.max_genes = max_genes
        self.vocabulary = vocabulary
        self.checkpoint = checkpoint
        self.checkpoint_url = checkpoint_url
        self.tuning: Tuning = tuning
        self.last_layers = last_layers
        self.lora_rank = lora_rank
        self.lora_alpha = lora_alpha
        self.learning_rate = learning_rate
        self.decay = decay

    def refuses(self, training: Training) -> str | None:
        """Return that no measured gene, or no perturbation of train with all of its targets, is read, where so."""
        reason = super().refuses(training)
        if reason:
            return reason
        genes = self._genes(training, self._vocabulary())
        if not len(genes.columns) or genes.padded.all():
            return f"scGPT knows none of the {len(genes.measured):,} measured genes (for example {genes.measured[0]})"
        known = set(genes.names)
        trained = [training.perturbations[name] for name in _train(training)]
        if any(item.targets and known.issuperset(item.targets) for item in trained):
            return None
        example = next((gene for item in trained for gene in item.targets), "none is known")
        return f"scGPT reads no gene that train perturbs (for example {example}; {len(known):,} genes are read)"

    def build(self, training: Training) -> PerturbationModule:
        """Return the module, untrained but for what comes from a checkpoint."""
        from pertbase.baselines.scgpt._module import Optimisation, ScGPTModule
        from pertbase.baselines.scgpt._net import ScGPTNet

        source = self._source()
        genes = self._genes(training, source.vocabulary if source else self._vocabulary())
        n_own = int((~genes.padded).sum())
        padding = n_own if genes.padded.any() else None
        original = self.preset == "upstream"
        net = ScGPTNet(
            n_own + int(padding is not None),
            source.size if source else self._sized(),
            dropout=self.dropout,
            padding=padding,
            alike=original,
        )
        loaded = None
        if source:
            tokens = np.append(genes.tokens[~genes.padded], np.full(int(padding is not None), -1))
            loaded = load(net, source, tokens)
            _progress.info("%s", loaded)
        restrict(net, self.tuning, last_layers=self.last_layers, rank=self.lora_rank, alpha=self.lora_alpha)
        rate = self.learning_rate or (1e-4 if source or self.size == "published" else 3e-3)
        module = ScGPTModule(
            net,
            genes=genes,
            preset=self.preset,
            optimisation=Optimisation(learning_rate=rate, decay=self.decay, max_genes=self.max_genes),
            loaded=loaded,
        )
        _tell(module, training)
        return module

    def training_key(self, training: Training) -> str:
        """Return what tells this training from others: that of the files it starts from too."""
        parts: list[object] = [super().training_key(training)]
        if source := self._source():
            parts.append(sha256_file(source.weights))
        if vocabulary := self._vocabulary():
            parts.append(dict(vocabulary))
        return str(parts[0]) if len(parts) == 1 else sha256_text(canonical_json(parts))[:16]

    def predict_cells(self, inputs: Inputs) -> PredictedCells:
        """Return each condition's predicted cells, from ``n_controls`` input controls of its context.

        They are worked out when looked up. Values below zero are left as they are.

        Raises
        ------
        UnsupportedError
            Where no input controls were handed out.
        """
        from pertbase.baselines.harness._predict import ask
        from pertbase.baselines.scgpt._module import ScGPTModule

        if inputs.controls is None:
            raise UnsupportedError("scGPT predicts cells from input controls, and the inputs hold none")
        module = of_kind(self.module, ScGPTModule)
        supported = supported_conditions(module, inputs.conditions, inputs.perturbations)
        asked = ask(module, inputs, supported, n_controls=self.n_controls, seed=self._seed).inputs
        keys = zip(asked.conditions["context"].astype(str), asked.conditions["perturbation"].astype(str), strict=True)
        if asked.controls is None:
            raise UnsupportedError("scGPT predicts cells from input controls, and there are none")
        return _PredictedCells(module, asked.controls, {key: inputs.perturbations[key[1]] for key in keys})

    # -- parts ----------------------------------------------------------------------------------------------

    def _source(self) -> Checkpoint | None:
        return None if self.checkpoint is None else open_checkpoint(self.checkpoint, url=self.checkpoint_url)

    def _vocabulary(self) -> Vocabulary | None:
        if self.checkpoint is not None:
            return open_checkpoint(self.checkpoint, url=self.checkpoint_url).vocabulary
        return None if self.vocabulary is None else read_vocabulary(self.vocabulary)

    def _sized(self) -> Size:
        return sized(
            self.size or "small",
            embedding_size=self.embedding_size,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            hidden_size=self.hidden_size,
        )

    def _genes(self, training: Training, vocabulary: Vocabulary | None) -> Genes:
        targets = {gene for name in _train(training) for gene in training.perturbations[name].targets}
        return genes_read(training.genes, targets, vocabulary, padded=self.preset == "upstream")


def _check_source(checkpoint: str | None, url: str | None, tuning: str, given: Mapping[str, object]) -> None:
    """Refuse options that a checkpoint decides, and those that need one."""
    if checkpoint is None:
        if url is not None:
            raise InputError("where are its files to lie?", key="checkpoint", value=None, remedy="name a folder")
        if tuning != "all":
            raise InputError(
                "keeps what was pretrained, and without a checkpoint nothing is", key="tuning", value=tuning
            )
        return
    for key, value in given.items():
        if value is not None:
            raise InputError("is the checkpoint's own", key=key, value=value, remedy=f"leave out {key} or checkpoint")


def _train(training: Training) -> list[str]:
    """Return the perturbations of train, sorted."""
    return sorted(set(training.conditions.loc[training.conditions["split"] == "train", "perturbation"]))


def _tell(module: ScGPTModule, training: Training) -> None:
    """Warn of genes without a token, and of perturbations it cannot speak to."""
    masked = module.read.masked
    if len(masked):
        _log.warning(
            "%s: %d of %d measured genes are not in the vocabulary; they are masked, and their effect is 0: %s",
            *(training.fold, len(masked), len(module.genes), listed([str(name) for name in masked])),
        )
    if module.read.padded.any():
        shared = module.vocabulary[module.read.padded]
        _log.warning(
            "%s: %d of %d measured genes are not in the vocabulary; they share the token of padding: %s",
            *(training.fold, len(shared), len(module.genes), listed([str(name) for name in shared])),
        )
    tell_unsupported(module, training, "have no known targets, or targets that are not read; they are unsupported")


class _PredictedCells(Mapping[tuple[str, str], np.ndarray]):
    """Predicted cells of each condition, made when looked up: together they would be conditions x controls x genes."""

    def __init__(self, module: ScGPTModule, controls: CellTable, asked: Mapping[tuple[str, str], Perturbation]) -> None:
        self._module = module
        self._controls = controls
        self._context = controls.obs["context"].astype(str).to_numpy()
        self._asked = asked

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        from pertbase.folds._batches import encode_targets

        targets, signs = encode_targets([self._asked[key]], self._module.vocabulary)
        values = self._controls.X[np.flatnonzero(self._context == key[0])]
        dense = np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float32)
        return self._module.cells(dense, targets[0], signs[0])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._asked)

    def __len__(self) -> int:
        return len(self._asked)
