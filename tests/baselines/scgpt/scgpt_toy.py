"""What tests of scGPT share: sizes, a screen with fewer genes, interruptions, and weights as the package has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pertbase.baselines.scgpt import ScGPT
from pertbase.baselines.scgpt._module import ScGPTModule
from pertbase.baselines.scgpt._net import ScGPTNet
from pertbase.baselines.scgpt._size import Size
from pertbase.folds import CellTable, Effects, Inputs, Training
from pertbase.folds._batches import CellPairs

TINY: dict[str, Any] = {"embedding_size": 12, "n_heads": 2, "hidden_size": 8, "n_layers": 2}
SHORT: dict[str, Any] = {
    "max_genes": 48,
    "max_epochs": 1,
    "batch_size": 256,
    "n_controls": 4,
    "n_selection_controls": 2,
}
SMALL = TINY | SHORT
SIZE = Size(12, 2, 2, 8)
STYLES = ("in_proj", "Wqkv", "_impl")


def some_cells(cells: CellTable, most: int) -> np.ndarray:
    """Positions of the first cells of each condition."""
    return np.flatnonzero(cells.obs.groupby(["context", "perturbation"]).cumcount().to_numpy() < most)


def restricted(training: Training, inputs: Inputs, genes: pd.Index) -> tuple[Training, Inputs]:
    """The same screen had it measured these genes only."""
    columns = training.genes.get_indexer(genes)

    def cells(table: CellTable) -> CellTable:
        return CellTable(table.X[:, columns], table.obs, genes)

    effects = training.effects
    measured = Effects(effects.values[:, columns], effects.conditions, genes, effects.statistic)
    less = replace(training, genes=genes, cells=cells(training.cells), effects=measured, basal=training.basal[genes])
    asked = replace(inputs, genes=genes, controls=cells(inputs.controls), basal=inputs.basal[genes])
    return less, asked


def theirs(name: str, style: str) -> str:
    """The name that the package gives one of our weights."""
    for ours, other in (
        ("embedding.", "encoder.embedding."),
        ("gene_norm.", "encoder.enc_norm."),
        ("values.first.", "value_encoder.linear1."),
        ("values.second.", "value_encoder.linear2."),
        ("values.norm.", "value_encoder.norm."),
        ("coefficient.", "decoder.coeff_decoder.fc."),
        ("offset.", "decoder.bias_decoder.fc."),
        ("layers.", "transformer_encoder.layers."),
    ):
        if name.startswith(ours):
            name = other + name.removeprefix(ours)
            break
    first = {"in_proj": "in_proj_", "Wqkv": "Wqkv.", "_impl": "_impl.Wqkv."}[style]
    name = name.replace("attention.in_proj.", f"self_attn.{first}")
    return name.replace("attention.out_proj.", f"self_attn.{'_impl.' if style == '_impl' else ''}out_proj.")


def published(net: ScGPTNet, *, style: str = "in_proj", decoder: bool = False) -> dict[str, torch.Tensor]:
    """A network's weights as the package names them."""
    state = {name: value for name, value in net.state_dict().items() if name not in ("perturbed", "untouched")}
    if not decoder:
        state = {name: value for name, value in state.items() if not name.startswith(("coefficient", "offset"))}
    found = {theirs(name, style): value.clone() for name, value in state.items()}
    if decoder:
        found["pert_encoder.weight"] = torch.stack([net.untouched, net.perturbed, net.perturbed]).detach()
    else:
        found["decoder.fc.0.weight"] = torch.zeros(3, 3)  # pretraining's own, which perturbations do not use
    return found | {"cls_decoder.out_layer.bias": torch.zeros(1)}


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let the training step after so many raise what an interruption does."""
    left, step = [steps], ScGPTModule.training_step

    def stopping(self: ScGPTModule, pairs: CellPairs) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return step(self, pairs)

    monkeypatch.setattr(ScGPTModule, "training_step", stopping)


def resumed(
    model: Callable[[], ScGPT], training: Training, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray]:
    """Effects of an undisturbed training, and of one that was stopped and taken up."""

    def made(folder: str) -> ScGPT:
        one = model()
        one.workspace(tmp_path / folder, {"checkpoint_every": 3})
        return one

    undisturbed = made("one").fit(training).predict(inputs)
    with monkeypatch.context() as patch:
        stop_after(patch, 8)
        with pytest.raises(KeyboardInterrupt):
            made("two").fit(training)
    assert list((tmp_path / "two").rglob("last.ckpt"))
    return undisturbed.values, made("two").fit(training).predict(inputs).values
