"""Data sets by name: found where they may lie, asked for by name where they do not."""

from __future__ import annotations

import dataclasses
import logging
from importlib.resources import files
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

from pertbase import folds
from pertbase.errors import InputError
from pertbase.folds import OutcomeTable, PrepareOptions, Screen, prepare_file

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")


def config(name: str) -> dict[str, Any]:
    text = files("pertbase.conf").joinpath("data", f"{name}.yaml").read_text()
    return dict(yaml.safe_load(text))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERTBASE_DATA", str(SHARED))


@pytest.fixture
def gears_file(tmp_path: Path) -> Path:
    obs = pd.DataFrame({"condition": ["ctrl", "A+ctrl"] * 10, "cell_type": "K562"}, index=[f"c{i}" for i in range(20)])
    values = np.random.default_rng(0).poisson(3, (20, 8)).astype(np.float32) + 1
    path = tmp_path / "gears.h5ad"
    ad.AnnData(values, obs, pd.DataFrame(index=[f"G{i}" for i in range(8)])).write_h5ad(path)
    return path


@needs_data
@pytest.mark.usefixtures("shared")
def test_papalexi_holds_the_cells_with_one_dominant_guide() -> None:
    screen = folds.data("papalexi")
    assert isinstance(screen, Screen)
    assert (screen.name, screen.contexts, screen.total) == ("papalexi", ("THP-1",), 188)
    assert (len(screen.obs), len(screen.genes), len(screen.conditions)) == (16_192, 299, 25)
    assert set(screen.conditions["mechanism"]) == {"CRISPR-KO"}
    assert set(screen.obs["batch"]) == {"rep_1", "rep_2", "rep_3"}


@needs_data
@pytest.mark.usefixtures("shared")
def test_kang_is_one_ligand_with_two_targets_in_five_contexts() -> None:
    screen = folds.data("kang")
    assert isinstance(screen, Screen)
    assert len(screen.contexts) == 5
    (only,) = screen.perturbations.values()
    assert (only.mechanism, only.modality, only.compounds) == ("ligand", "chemical", ("IFNB",))
    assert only.signs == {"IFNAR1": 1, "IFNAR2": 1}
    assert set(screen.obs["batch"]) == {"101", "107"}
    assert int(screen.obs["is_control"].sum()) == 750


@needs_data
@pytest.mark.usefixtures("shared")
def test_perturbench_devel_keeps_activation_and_interference_apart() -> None:
    screen = folds.data("perturbench_devel")
    assert isinstance(screen, Screen)
    assert screen.total == 10_000
    assert screen.contexts == ("A172", "K562", "T98G", "U87MG")
    mechanisms = screen.conditions.groupby("context")["mechanism"].unique().map(list)
    assert mechanisms.to_dict() == {"A172": ["CRISPRi"], "K562": ["CRISPRa"], "T98G": ["CRISPRi"], "U87MG": ["CRISPRi"]}
    assert {"CRISPRa:MAPK1", "CRISPRi:MAPK1"} <= set(screen.perturbations)
    assert screen.X.max() <= np.log1p(10_000)


@needs_data
@pytest.mark.usefixtures("shared")
def test_perturbqa_is_a_table_and_takes_overrides() -> None:
    table = folds.data("perturbqa", lines=["HepG2"])
    assert isinstance(table, OutcomeTable)
    assert (table.name, table.contexts, len(table)) == ("perturbqa", ("HepG2",), 126_889)


@needs_data
@pytest.mark.usefixtures("shared")
def test_shipped_configurations_name_what_would_be_recognised() -> None:
    # Recognising is for files we do not know; for those we ship a configuration for, every value that matters is there.
    for name in ("papalexi", "kang", "perturbench_devel"):
        given = set(config(name))
        assert {"dialect", "perturbation", "control", "mechanism", "values", "total", "source", "licence"} <= given
        assert given & {"context", "context_value"}


def test_simulated_screen_is_a_data_set_like_any_other() -> None:
    screen = folds.data("simulated")
    assert isinstance(screen, Screen)
    assert screen.simulated
    assert screen.hash == folds.data("simulated", seed=0).hash


def test_h5ad_configuration_lists_every_option() -> None:
    given = config("h5ad")
    assert set(given) - {"_target_", "path", "name"} == {item.name for item in dataclasses.fields(PrepareOptions)}
    assert all(value is None for key, value in given.items() if key not in ("_target_", "path"))


def test_any_file_is_prepared_in_memory_and_what_was_done_is_logged(
    gears_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="pertbase"):
        screen = folds.data("h5ad", path=gears_file, mechanism="CRISPRi")
    assert screen.name == "gears"
    assert "dialect gears" in caplog.text
    assert any(item.levelname == "WARNING" and "targeted panel" in item.message for item in caplog.records)


def test_screen_in_the_contract_is_read_as_it_is(gears_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "screen.h5ad"
    prepare_file(gears_file, path, name="mine", mechanism="CRISPRi")
    screen = folds.data("h5ad", path=path)
    assert screen.name == "mine"
    assert screen.hash == folds.data("h5ad", path=gears_file, mechanism="CRISPRi").hash
    with pytest.raises(InputError, match=r"screen\.h5ad: total: is a screen already.*leave these options out|Leave"):
        folds.data("h5ad", path=path, total=10)


def test_file_is_looked_for_in_every_place_and_all_are_named(
    gears_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, cache, here = tmp_path / "mine", tmp_path / "cache", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PERTBASE_DATA", str(mine))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with pytest.raises(InputError) as caught:
        folds.data("papalexi")
    message = str(caught.value)
    for part in (str(mine), str(cache / "pertbase"), "Set PERTBASE_DATA", "sceptredata", "MIT"):
        assert part in message or part in str(caught.value.value)
    options = {"path": "sets/gears.h5ad", "mechanism": "CRISPRi"}
    for folder, effect in ((cache / "pertbase", "CRISPRi"), (mine, "CRISPRa")):
        (folder / "sets").mkdir(parents=True)
        (folder / "sets" / "gears.h5ad").write_bytes(gears_file.read_bytes())
        screen = folds.data("h5ad", **(options | {"mechanism": effect}))
        assert isinstance(screen, Screen)
        assert str(folder) in str(screen.file)


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        ("papalexy", {}, ["unknown data", "'papalexy'", "Did you mean 'papalexi'", "kang"]),
        ("h5ad", {}, ["path", "path=VALUE"]),
        ("h5ad", {"path": "x", "contxt": "y"}, ["unknown option", "'contxt'", "Did you mean 'context'"]),
        ("papalexi", {"totl": 1}, ["'totl'", "Did you mean 'total'"]),
        ("perturbqa", {"line": "K562"}, ["'line'", "Did you mean 'lines'"]),
    ],
)
def test_unknown_names_and_options_answer_with_the_nearest(
    name: str, options: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        folds.data(name, **options)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "target", [None, "nowhere.load", "pertbase.folds.lod_h5ad", "pertbase.folds.CONTROL", "builtins.dict", "load"]
)
def test_target_that_is_no_function_is_refused(target: str | None) -> None:
    with pytest.raises(InputError, match="_target_"):
        folds.load_data({"_target_": target})


def test_target_that_makes_something_else_is_refused() -> None:
    with pytest.raises(InputError, match=r"made no data set \(got 'pertbase\.folds\.data_names -> list'\)"):
        folds.load_data({"_target_": "pertbase.folds.data_names"})


def test_configuration_composed_by_hydra_loads_as_it_does_from_yaml(gears_file: Path) -> None:
    given = OmegaConf.create(
        config("h5ad") | {"path": str(gears_file), "mechanism": "CRISPRi", "keep": ["cell_type==K562"]}
    )
    given.names = {"A": "B"}
    screen = folds.load_data(given)
    assert isinstance(screen, Screen)
    assert set(screen.perturbations) == {"CRISPRi:B"}
