"""Models of cell-gears: read and written, and never executed."""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pertbase.baselines.gears import GEARS
from pertbase.errors import InputError


class Malicious:
    """Unpickling it would make a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def saved(fitted, tmp_path) -> Path:
    return fitted.to_cell_gears(tmp_path / "saved")


def names(fitted) -> dict[str, list[str]]:
    return {"genes": list(fitted.module.genes), "targets": list(fitted.module.vocabulary)}


def test_a_model_written_and_read_back_predicts_the_same(fitted, saved, inputs):
    again = GEARS.from_cell_gears(saved, **names(fitted))
    assert again.preset == "upstream"
    for name in ("hidden_size", "gene_layers", "direction_weight", "coexpression_threshold"):
        assert getattr(again, name) == getattr(fitted, name)
    # read as upstream, in which other cells than the first do not see the graph; the weights are the same
    again.module.preset = "corrected"
    np.testing.assert_array_equal(again.predict(inputs).values, fitted.predict(inputs).values)


def test_names_are_written_beside_the_model(fitted, saved):
    assert (saved / "genes.txt").read_text().split() == names(fitted)["genes"]
    assert (saved / "targets.txt").read_text().split() == names(fitted)["targets"]


def test_written_files_hold_what_cell_gears_looks_for(fitted, saved):
    config = pickle.loads((saved / "config.pkl").read_bytes())
    for name in ("hidden_size", "num_go_gnn_layers", "decoder_hidden_size", "uncertainty_reg", "device", "num_perts"):
        assert name in config
    assert config["G_go"].shape == (2, len(config["G_go_weight"]))
    state = torch.load(saved / "model.pt", weights_only=True)
    n_genes = len(fitted.module.genes)
    assert state["indv_w1"].shape == (n_genes, 8, 1)
    assert state["indv_w2"].shape == (1, n_genes, 9)
    assert {"pert_w.weight", "bn_pert_base_trans.running_var"} <= state.keys()


def test_a_configuration_that_would_run_code_is_refused_and_not_run(fitted, saved, tmp_path):
    mark = tmp_path / "ran"
    config = pickle.loads((saved / "config.pkl").read_bytes())
    (saved / "config.pkl").write_bytes(pickle.dumps(config | {"device": Malicious(mark)}))
    with pytest.raises(InputError, match="would run code") as caught:
        GEARS.from_cell_gears(saved, **names(fitted))
    assert "config.pkl" in str(caught.value)
    assert not mark.exists()


def test_code_inside_a_tensors_bytes_is_not_run_either(fitted, saved, tmp_path):
    mark = tmp_path / "ran"

    class Storage:
        def __reduce__(self):
            content = io.BytesIO()
            torch.save(Malicious(mark), content)
            return torch.storage._load_from_bytes, (content.getvalue(),)

    config = pickle.loads((saved / "config.pkl").read_bytes())
    (saved / "config.pkl").write_bytes(pickle.dumps(config | {"G_go": Storage()}))
    with pytest.raises(InputError, match="cannot be read as a pickle"):
        GEARS.from_cell_gears(saved, **names(fitted))
    assert not mark.exists()


def test_weights_that_would_run_code_are_refused_and_not_run(fitted, saved, tmp_path):
    mark = tmp_path / "ran"
    torch.save({"gene_emb.weight": Malicious(mark)}, saved / "model.pt")
    with pytest.raises(InputError, match="holds more than tensors"):
        GEARS.from_cell_gears(saved, **names(fitted))
    assert not mark.exists()


@pytest.mark.parametrize("file", ["config.pkl", "model.pt"])
@pytest.mark.parametrize("content", [b"", b"<html><body>403 Forbidden</body></html>", None])
def test_an_error_page_or_nothing_in_place_of_a_file_is_told(fitted, saved, file, content):
    if content is None:
        (saved / file).unlink()
    else:
        (saved / file).write_bytes(content)
    with pytest.raises(InputError) as caught:
        GEARS.from_cell_gears(saved, **names(fitted))
    assert file in str(caught.value)


@pytest.mark.parametrize("which", ["genes", "targets"])
@pytest.mark.parametrize("change", [lambda given: given[:-1], lambda given: [*given, "EXTRA"]])
def test_another_number_of_names_is_told(fitted, saved, which, change):
    given = names(fitted)
    given[which] = change(given[which])
    with pytest.raises(InputError, match="gene_name"):
        GEARS.from_cell_gears(saved, **given)


def test_a_configuration_without_graphs_is_told(fitted, saved):
    config = pickle.loads((saved / "config.pkl").read_bytes())
    (saved / "config.pkl").write_bytes(pickle.dumps(config | {"G_go": None}))
    with pytest.raises(InputError, match="G_go"):
        GEARS.from_cell_gears(saved, **names(fitted))


def test_a_data_parallel_model_is_read(fitted, saved):
    state = torch.load(saved / "model.pt", weights_only=True)
    torch.save({f"module.{name}": value for name, value in state.items()}, saved / "model.pt")
    again = GEARS.from_cell_gears(saved, **names(fitted))
    assert torch.equal(again.module.net.gene.weight, fitted.module.net.gene.weight)


def test_genes_are_aligned_by_name_when_a_model_is_used_elsewhere(fitted, saved, inputs):
    given = names(fitted)
    again = GEARS.from_cell_gears(saved, **given)
    spoken = [again.module.speaks_to(inputs.perturbations[name]) for name in inputs.conditions["perturbation"]]
    inputs = replace(inputs, conditions=inputs.conditions.loc[spoken])
    turned = replace(inputs, genes=inputs.genes[::-1])
    np.testing.assert_array_equal(again.module.effects(turned), again.module.effects(inputs)[:, ::-1])
    with pytest.raises(InputError, match="without 1 of the genes"):
        again.module.effects(replace(inputs, genes=inputs.genes[:5].append(inputs.genes[:1] + "x")))
