"""Training one module with Lightning, from the start or from its last checkpoint."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import Callback, EarlyStopping, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, Strategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

from pertbase._random import generator
from pertbase.baselines.harness._callbacks import Checkpoints, Heartbeat, Losses, Seeding, seed_torch
from pertbase.baselines.harness._loader import PairLoader
from pertbase.baselines.harness._module import PerturbationModule, TrainedModule
from pertbase.baselines.harness._predict import reproducible
from pertbase.baselines.harness._ranks import Place, Ranks
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import Training

if TYPE_CHECKING:
    from pertbase.baselines.harness._trained import Trained

__all__ = ["train", "train_rank"]

_log = logging.getLogger("pertbase")
_SHARDED = 10_000_000
"""Parameters from which on a layer is sharded by itself."""


def train(baseline: Trained, training: Training, folder: Path, settings: TrainerSettings) -> TrainedModule:
    """Return the trained module, on the CPU, with the weights of the best epoch.

    Parameters
    ----------
    baseline
        Builds the module and says how long to train.
    training
        With cells.
    folder
        Of this training alone: checkpoints and logs are kept there, and taken up where there are some.
    settings
        On what to train.

    Raises
    ------
    PertbaseError
        Where training diverges, a rank fails or a checkpoint cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with reproducible(settings), _quiet():
        module = _built(baseline, training, settings)
        if not baseline.max_epochs:
            return module.eval()
        checkpoints = _checkpoints(baseline, training, module, folder, settings)
        if not checkpoints.ended:
            if settings.world == 1:
                _fit(baseline, training, module, checkpoints, settings, place=None)
            else:
                with Ranks(baseline, training, folder, settings) as place:
                    _fit(baseline, training, module, checkpoints, settings, place=place)
                if settings.strategy == "fsdp":
                    module = _built(baseline, training, settings)  # its layers were taken apart
    return _finished(module, checkpoints)


def train_rank(baseline: Trained, training: Training, folder: Path, settings: TrainerSettings, place: Place) -> None:
    """Train as one of the ranks that :func:`train` started."""
    baseline.at(folder.parents[1])  # <run>/training/<key>
    with reproducible(settings), _quiet():
        module = _built(baseline, training, settings)
        checkpoints = _checkpoints(baseline, training, module, folder, settings)
        _fit(baseline, training, module, checkpoints, settings, place=place)


def _built(baseline: Trained, training: Training, settings: TrainerSettings) -> TrainedModule:
    seed_torch(int(generator(training.seed, "weights").integers(2**63)), torch.device("cpu"))
    module = baseline.build(training)
    if not isinstance(module, TrainedModule):
        raise InputError("build() returns a PerturbationModule", key="baseline", value=type(module).__name__)
    if isinstance(module, PerturbationModule):
        module.genes = training.genes
    module.gradient_checkpointing = settings.gradient_checkpointing
    module.prepare(baseline.sampler(training, module))
    return module


def _checkpoints(
    baseline: Trained,
    training: Training,
    module: TrainedModule,
    folder: Path,
    settings: TrainerSettings,
) -> Checkpoints:
    monitor: str | None = baseline.monitor
    if monitor is not None and monitor.startswith("val_") and not baseline.selects(training, module):
        _log.warning("%s: nothing in val can be predicted; the weights of the last epoch are kept", training.fold)
        monitor = None
    checkpoints = Checkpoints(folder, monitor=monitor, every=settings.checkpoint_every)
    checkpoints.take_up()
    return checkpoints


def _fit(
    baseline: Trained,
    training: Training,
    module: TrainedModule,
    checkpoints: Checkpoints,
    settings: TrainerSettings,
    *,
    place: Place | None,
) -> None:
    loader = PairLoader(baseline.sampler(training, module), prefetch=settings.prefetch)
    callbacks: list[Callback] = [Seeding(training.seed), Losses()]
    if baseline.selects(training, module):
        callbacks.append(baseline.selection(training, module))
    if baseline.patience is not None and checkpoints.monitor is not None:
        callbacks.append(EarlyStopping(checkpoints.monitor, patience=baseline.patience, check_on_train_epoch_end=True))
    progress = sys.stderr.isatty() if settings.progress is None else settings.progress
    if progress:
        callbacks.append(RichProgressBar())
    elif place is None or place.rank == 0:
        callbacks.append(Heartbeat(checkpoints.monitor))
    callbacks.append(checkpoints)
    clip = baseline.clip_norm if baseline.clip_norm is not None else baseline.clip_value
    trainer = pl.Trainer(
        **_machine(settings, place),
        precision=settings.precision,  # type: ignore[arg-type]
        deterministic="warn" if settings.deterministic == "warn" else bool(settings.deterministic),
        max_epochs=baseline.max_epochs,
        gradient_clip_val=clip,
        gradient_clip_algorithm="norm" if baseline.clip_value is None else "value",
        callbacks=callbacks,
        logger=_loggers(settings, checkpoints.folder) if place is None or place.rank == 0 else False,
        log_every_n_steps=min(50, loader.sampler.steps),
        default_root_dir=checkpoints.folder,
        enable_progress_bar=progress,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        use_distributed_sampler=False,
    )
    loader.trainer = trainer
    with _interruptible(trainer), _compiled(module.compiled_parts() if settings.compile else ()):
        trainer.fit(module, train_dataloaders=loader, ckpt_path=checkpoints.last if checkpoints.last.exists() else None)


def _machine(settings: TrainerSettings, place: Place | None) -> dict[str, Any]:
    kind = settings.kind()
    devices: Any = settings.devices if kind == "cpu" or isinstance(settings.devices, int) else list(settings.devices)
    if place is None:
        # Named, so that a cluster's variables do not make Lightning take this for one of several processes.
        return {"accelerator": kind, "devices": devices, "plugins": [LightningEnvironment()]}
    strategy: Strategy
    if settings.strategy == "fsdp":
        # Whole weights in checkpoints, by their own names: what is kept does not depend on how many there were.
        policy = partial(size_based_auto_wrap_policy, min_num_params=_SHARDED)
        strategy = FSDPStrategy(cluster_environment=place, state_dict_type="full", auto_wrap_policy=policy)
    else:
        strategy = DDPStrategy(cluster_environment=place, find_unused_parameters=settings.find_unused_parameters)
    return {
        "accelerator": kind,
        "devices": devices,
        "strategy": strategy,
        "sync_batchnorm": settings.sync_batchnorm and kind == "gpu",
    }


def _loggers(settings: TrainerSettings, folder: Path) -> list[Logger]:
    from hydra.errors import HydraException
    from hydra.utils import instantiate

    # one version a start: what a stopped training logged stays beside what follows
    loggers: list[Logger] = [CSVLogger(save_dir=folder, name="log")]
    for name, config in settings.loggers.items():
        try:
            loggers.append(instantiate({"save_dir": str(folder), **config}))
        except (HydraException, ImportError) as error:
            cause = error.__cause__ or error
            raise InputError(
                f"cannot be made: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}",
                key=f"trainer.loggers.{name}",
                value=config.get("_target_"),
                remedy="check its options, and that the package it needs is installed",
            ) from error
    return loggers


def _finished(module: TrainedModule, checkpoints: Checkpoints) -> TrainedModule:
    weights = checkpoints.best_weights()
    # A module that keeps its frozen weights out of its state has them where it was built.
    parameters = [name for name, _ in module.named_parameters() if name in weights]
    if not all(torch.isfinite(weights[name]).all() for name in parameters):
        # Nothing was selected on that would have told.
        raise PertbaseError(
            "training diverged: the last epoch's weights are not finite",
            file=checkpoints.folder,
            remedy="lower the learning rate, or clip gradients",
        )
    module.to("cpu")
    module.load_state_dict(weights, strict=module.strict_loading)
    # A module that holds its trainer holds the training's cells too, and is copied with them.
    module.trainer = None
    module.zero_grad(set_to_none=True)
    return module.eval()


@contextlib.contextmanager
def _interruptible(trainer: pl.Trainer) -> Iterator[None]:
    """Let an interruption be one: Lightning turns it into an exit and leaves the signal ignored."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if trainer.interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _compiled(parts: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Compile some modules for as long as training lasts; what is compiled can be neither copied nor pickled."""
    for part in parts:
        # ``part.compile()`` leaves torch.nn's own containers as they are: a frame of theirs is never traced by itself.
        part.forward = torch.compile(_traced(part.forward))
    try:
        yield
    finally:
        for part in parts:
            del part.forward


def _traced(forward: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        return forward(*arguments, **options)

    return call


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning from announcing devices, tips and file names; warnings and errors are still told."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # Of its own use of torch's pytrees, twice a training; nobody here can mend it.
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            yield
    finally:
        logger.setLevel(level)
