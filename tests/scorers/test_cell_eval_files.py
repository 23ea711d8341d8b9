"""The files for cell-eval: what they hold is what was predicted and measured."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pytest

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


def test_distances_are_skipped_with_a_reason_where_pertpy_is_not_there(fold, effects) -> None:  # type: ignore[no-untyped-def]
    try:
        import pertpy  # noqa: F401
    except ImportError:
        with pytest.raises(UnsupportedError, match=r"pertbase\[pertpy\]"):
            distances(effects, fold)
        return
    table = distances(effects, fold, names=["edistance"], max_cells=30)
    assert len(table) == len(effects.conditions)
    assert np.isfinite(table["predicted"]).all()
