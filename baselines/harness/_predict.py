"""Effects of a module: what is asked, from which controls, in which statistic."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from pertbase._random import generator
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.errors import InputError
from pertbase.folds import CellTable, Inputs
from pertbase.folds._condition_tests import effect

if TYPE_CHECKING:
    import pandas as pd

    from pertbase.baselines.harness._module import PerturbationModule

__all__ = ["Asked", "ask", "autocast", "predicted_effects", "reproducible"]


@dataclass(frozen=True, eq=False)
class Asked:
    """Conditions a module speaks to, and the controls it answers from.

    Parameters
    ----------
    inputs
        With supported conditions and chosen controls only.
    basal
        Mean log1p of the controls of each condition's context, shape (n_conditions, n_genes); for ``log_mean`` only.
    """

    inputs: Inputs
    basal: np.ndarray | None

    def take(self, rows: np.ndarray) -> Asked:
        """Return some of the conditions, by position."""
        conditions = self.inputs.conditions.iloc[rows].reset_index(drop=True)
        return Asked(replace(self.inputs, conditions=conditions), None if self.basal is None else self.basal[rows])


def ask(
    module: PerturbationModule, inputs: Inputs, supported: np.ndarray, *, n_controls: int | None, seed: int
) -> Asked:
    """Return what a module is asked: supported conditions and, of each context, all or a fixed set of controls.

    The set depends on the seed and on the names of the cells, not on their order, the split or the other contexts.

    Raises
    ------
    InputError
        Where there are no cells, or a context has no input control.
    """
    conditions = inputs.conditions.loc[supported].reset_index(drop=True)
    basal, controls = inputs.basal, inputs.controls
    if module.needs_controls:
        if controls is None:
            raise InputError(
                "effects are predicted from input controls, and none were handed out",
                key="inputs.controls",
                value=None,
                remedy="ask with fold.inputs(split, cells=True)",
            )
        controls = _chosen(controls, n_controls, seed)
        basal = controls.basal() if inputs.statistic != "mean_log" else None
        _check_contexts(conditions, controls.obs["context"])
    if inputs.statistic == "mean_log":
        return Asked(replace(inputs, conditions=conditions, controls=controls), None)
    if basal is None:
        raise InputError("a ratio of means needs basal expression", key="inputs.basal", value=None)
    _check_contexts(conditions, basal.index)
    values = basal.reindex(columns=inputs.genes).loc[conditions["context"]].to_numpy()
    return Asked(replace(inputs, conditions=conditions, controls=controls), values)


def _check_contexts(conditions: pd.DataFrame, known: Iterable[str]) -> None:
    absent = sorted(set(conditions["context"]) - set(known))
    if absent:
        raise InputError("a context has no input control", key="context", value=absent[0])


def _chosen(controls: CellTable, n_controls: int | None, seed: int) -> CellTable:
    obs = controls.obs
    rows = np.flatnonzero(obs["is_control"].to_numpy(dtype=bool))
    contexts = obs["context"].to_numpy(dtype=object)[rows]
    kept = []
    for context in sorted(set(contexts)):
        inside = rows[contexts == context]
        if n_controls is not None and len(inside) > n_controls:
            inside = inside[np.argsort(obs.index[inside].astype(str), kind="stable")]
            drawn = generator(seed, "prediction controls", str(context)).choice(len(inside), n_controls, replace=False)
            inside = np.sort(inside[drawn])
        kept.append(inside)
    return controls.take(np.concatenate(kept) if kept else rows)


def predicted_effects(module: PerturbationModule, asked: Asked) -> np.ndarray:
    """Return effects in the statistic asked for, shape (n_conditions, n_genes); the module's mode is left as it was."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            values = np.asarray(module.effects(asked.inputs), dtype=np.float64)
    finally:
        module.train(training)
    if asked.basal is None:
        return values
    # A mean of log1p cannot be negative; the ratio of count-scale means needs that.
    return effect(np.maximum(asked.basal + values, 0.0), asked.basal, statistic=asked.inputs.statistic)


def autocast(settings: TrainerSettings, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context in which a module computes in the precision it was trained in."""
    if not settings.precision.endswith("mixed"):
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if settings.precision.startswith("bf16") else torch.float16
    return torch.autocast(device.type, dtype=dtype)


@contextlib.contextmanager
def reproducible(settings: TrainerSettings) -> Iterator[None]:
    """Use deterministic operations inside, and leave torch's generators and switches as they were."""
    was, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    if settings.deterministic and settings.kind() == "gpu":
        # cuBLAS reads it once, when it is first used, and refuses deterministic products without it
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            if settings.deterministic:
                torch.use_deterministic_algorithms(True, warn_only=settings.deterministic == "warn")
                torch.backends.cudnn.benchmark = False
            yield
        finally:
            torch.use_deterministic_algorithms(was, warn_only=warned)
            torch.backends.cudnn.benchmark = benchmark
