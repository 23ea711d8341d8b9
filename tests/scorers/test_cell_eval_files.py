"""The files for cell-eval: what they hold is what was predicted and measured."""

from __future__ import annotations

import errno
import sys
from types import ModuleType
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds import Effects, Fold, FoldMaker, FoldSpec, open_fold
from pertbase.scorers import distances, write_cell_eval
from pertbase.scorers._cell_eval import CONTROL, shifted_cells


@pytest.fixture(scope="module")
def fold(maker: FoldMaker) -> Fold:
    return maker.make(FoldSpec(kind="unseen_perturbation_genetic"))


@pytest.fixture(scope="module")
def effects(fold: Fold) -> Effects:
    truth = fold.truth.effects
    assert truth is not None
    return Effects(0.5 * truth.values, truth.conditions, truth.genes)


@pytest.fixture(scope="module")
def folders(fold: Fold, effects: Effects, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    return write_cell_eval(effects, fold, tmp_path_factory.mktemp("cell_eval"), threshold=0.1)


def test_moved_controls_have_the_mean_they_are_given_and_stay_cells(rng: np.random.Generator) -> None:
    control = rng.poisson(0.7, (50, 30)) * rng.random((50, 30))
    control[:, 0] = 0
    mean = np.maximum(control.mean(axis=0) + rng.normal(0, 0.3, 30), 0)
    mean[0] = 0.2
    moved = shifted_cells(control, mean)
    np.testing.assert_allclose(moved.mean(axis=0), mean, atol=1e-12)
    assert moved.min() >= 0
    np.testing.assert_allclose(shifted_cells(control, control.mean(axis=0)), control)
    assert (shifted_cells(control, np.full(30, -1.0)) == 0).all()


def test_the_files_hold_the_measured_and_the_predicted_effects(folders, fold, effects) -> None:  # type: ignore[no-untyped-def]
    seen = 0
    for folder in folders:
        real, predicted = (anndata.read_h5ad(folder / f"{name}.h5ad") for name in ("real", "predicted"))
        assert list(real.var_names) == list(predicted.var_names) == list(fold.genes)
        of = {
            which: pd.DataFrame(data.X, columns=data.var_names).groupby(data.obs["target"].to_numpy()).mean()
            for which, data in (("real", real), ("predicted", predicted))
        }
        np.testing.assert_array_equal(of["real"].loc[CONTROL], of["predicted"].loc[CONTROL])
        here = fold.truth.effects.conditions["context"] == folder.name
        for row in np.flatnonzero(here):
            name = fold.truth.effects.conditions["perturbation"].iloc[row]
            label = name if name in of["real"].index else name.split(":")[1]
            for which, values in (("real", fold.truth.effects.values), ("predicted", effects.values)):
                change = of[which].loc[label].to_numpy(dtype=float) - of[which].loc[CONTROL].to_numpy(dtype=float)
                np.testing.assert_allclose(change, values[row], atol=1e-5)
            seen += 1
    assert seen == len(effects.conditions)


def test_a_prediction_is_significant_exactly_beyond_the_threshold(folders, fold) -> None:  # type: ignore[no-untyped-def]
    for folder in folders:
        table = pd.read_csv(folder / "de_pred.csv")
        size = (table["log2_fold_change"] * np.log(2)).abs()
        assert ((table["fdr"] < 0.05) == (size > 0.1)).all()
        assert (np.argsort(table["fdr"], kind="stable") == np.argsort(-size, kind="stable")).all()
        real = pd.read_csv(folder / "de_real.csv")
        asked = fold.truth.questions.loc[fold.truth.questions["context"] == folder.name]
        assert (real["fdr"] < 0.05).sum() == (asked["p_adjusted"] < 0.05).sum()


def test_files_are_not_written_over_and_need_cells(folders, fold, effects, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="there already"):
        write_cell_eval(effects, fold, folders[0].parent)
    other = Effects(effects.values, effects.conditions, effects.genes, "log_mean")
    with pytest.raises(UnsupportedError, match="log1p"):
        write_cell_eval(other, fold, tmp_path)
    bare = open_fold(fold.write(tmp_path / "fold"))
    with pytest.raises(PertbaseError, match="not at hand"):
        write_cell_eval(effects, bare, tmp_path)


@pytest.fixture
def pertpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """pertpy, or where it is not installed a stand-in with the energy distance of its definition."""
    try:
        import pertpy  # noqa: F401
    except ImportError:
        tools = ModuleType("pertpy.tools")
        tools.Distance = _Distance  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pertpy", ModuleType("pertpy"))
        monkeypatch.setitem(sys.modules, "pertpy.tools", tools)


class _Distance:
    def __init__(self, metric: str) -> None:
        assert metric == "edistance"

    def __call__(self, first: np.ndarray, second: np.ndarray) -> float:
        between = cdist(first, second, "sqeuclidean").mean()
        within = [cdist(side, side, "sqeuclidean").sum() / len(side) / (len(side) - 1) for side in (first, second)]
        return float(2 * between - sum(within))


def test_the_right_effect_brings_cells_nearer_to_the_real_ones_and_no_effect_does_not(fold, pertpy) -> None:  # type: ignore[no-untyped-def]
    truth = fold.truth.effects
    right = distances(truth, fold, names=["edistance"], max_cells=30)
    none = distances(Effects(0 * truth.values, truth.conditions, truth.genes), fold, names=["edistance"], max_cells=30)
    keys = ["context", "perturbation"]
    assert (
        right[keys]
        .sort_values(keys, ignore_index=True)
        .equals(truth.conditions[keys].astype(object).sort_values(keys, ignore_index=True))
    )
    np.testing.assert_array_equal(right["control"], none["control"])
    assert np.isfinite(right[["predicted", "control"]]).all(axis=None)
    strong = right["control"] > right["control"].median()
    assert (right["predicted"] < right["control"])[strong].mean() > 0.9
    assert right["predicted"].mean() < none["predicted"].mean()


def test_distances_are_refused_with_the_remedy_where_pertpy_cannot_be_imported(fold, effects, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, "pertpy.tools", None)
    with pytest.raises(UnsupportedError, match=r"Run `pip install 'pertbase\[pertpy\]'"):
        distances(effects, fold)


def test_a_disk_that_fills_is_an_error_that_names_the_file(fold, effects, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pertbase.scorers._cell_eval.write_hdf5", full)
    with pytest.raises(PertbaseError, match=r"real\.h5ad.*No space left"):
        write_cell_eval(effects, fold, tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
