"""Runs of STATE: its predicted cells are kept when asked for, and an adapter that does not fit stands aside."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pertbase.baselines.state import STATE
from pertbase.cli import main
from pertbase.folds import Effects, FoldMaker, FoldSpec, data, open_fold, read_cells, write_screen, write_split

TINY = [
    "baseline=state", "baseline.hidden_size=8", "baseline.layers=1", "baseline.heads=1", "baseline.encoder_layers=1",
    "baseline.decoder_layers=1", "baseline.set_size=16", "baseline.batch_size=8", "baseline.max_epochs=1",
    "baseline.n_controls=30",
]  # fmt: skip


@pytest.fixture(scope="module")
def command(few, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("screen")
    write_screen(few, folder / "screen.h5ad")
    return ["run", "-m", "data=h5ad", f"data.path={folder / 'screen.h5ad'}", "data.name=few", *TINY]


@pytest.mark.slow
def test_cells_are_kept_and_an_adapter_that_does_not_fit_is_skipped(command, tmp_path):
    rank = ["+adapter@adapters.rank_test=rank_test", "+adapter@adapters.fewer=rank_test", "adapters.fewer.n_cells=20"]
    runs = f"runs={tmp_path}"
    assert main([*command, "fold=unseen_context_genetic", *rank, "cells=true", runs]) == 0
    (folder,) = [path.parent for path in tmp_path.rglob("status.json")]
    cells, effects = read_cells(folder / "cells.zarr"), Effects.read(folder / "effects.h5ad")
    assert list(cells) == list(effects.conditions[["context", "perturbation"]].itertuples(index=False, name=None))
    assert list(cells.genes) == list(effects.genes)
    assert all(len(cells[key]) == 30 and np.isfinite(cells[key]).all() for key in cells)
    scores = json.loads((folder / "scores.json").read_text())["adapters"]
    assert "compares 50 cells" in scores["rank_test"]["skipped"]
    assert scores["fewer"]["accuracy"]["value"] is not None
    # what is kept is part of what the run is
    assert main([*command, "fold=unseen_context_genetic", *rank, runs]) == 1


@pytest.mark.slow
def test_a_split_file_is_run_on(command, few, tmp_path):
    fold = FoldMaker(few).make(FoldSpec(kind="unseen_context_genetic"))
    write_split(fold, tmp_path / "mine.toml")
    split = f"fold.split={tmp_path / 'mine.toml'}"
    assert main([*command, "fold=published", split, f"runs={tmp_path / 'runs'}"]) == 0
    (folder,) = [path.parent for path in (tmp_path / "runs").rglob("fold.yaml")]
    again = open_fold(folder)
    assert again.name == "published_mine"
    tables = [item.conditions.set_index(["context", "perturbation"])["split"] for item in (fold, again)]
    assert tables[0].equals(tables[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "features"),
    [
        ("kang", "unseen_context_chemical", None),
        ("perturbench_devel", "unseen_context_genetic", "gene_sets"),
        ("papalexi", "unseen_perturbation_genetic", None),
    ],
)
def test_real_cells_are_trained_on_and_answered_for(real_data, name, kind, features, monkeypatch):
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    fold = FoldMaker(data(name)).make(FoldSpec(kind=kind))
    small = {"hidden_size": 16, "layers": 1, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "set_size": 32}
    model = STATE(**small, max_epochs=2, learning_rate=0.003, n_controls=40, features=features)
    effects = model.fit(fold.make_training(seed=0, cells=True)).predict(fold.inputs("test", cells=True))
    spoken = effects.status == "ok"
    assert spoken.mean() > 0.8
    assert (effects.values[spoken].std(axis=1) > 0).all()
    assert (effects.values[~spoken] == 0).all()
