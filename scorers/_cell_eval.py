"""Effects as the pair of files that cell-eval reads, so that its own program can score them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._io import write_aside
from pertbase._random import generator
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds._hdf5 import write_hdf5
from pertbase.scorers._expression import CALL
from pertbase.scorers._measured import Measured, laid_out, measured_effects

if TYPE_CHECKING:
    from pertbase.folds import Effects, Fold

__all__ = ["COMMAND", "CellPair", "cell_pairs", "shifted_cells", "write_cell_eval", "write_pair"]

COLUMN, CONTROL = "target", "non-targeting"
COMMAND = (
    "cell-eval run -ar real.h5ad -ap predicted.h5ad -dr de_real.csv -dp de_pred.csv "
    f"--pert-col {COLUMN} --control-pert {CONTROL}"
)
"""What scores the files of a context, in their folder."""


@dataclass(frozen=True, eq=False)
class CellPair:
    """Real and predicted cells of one context.

    Parameters
    ----------
    context
        The context.
    measured
        What is known of its conditions.
    predicted
        Predicted effects in the same layout; zero where there is no prediction.
    names
        cell-eval's name of each condition: the target where that is enough, else the perturbation.
    control
        Truth controls, cells x genes.
    real
        Cells of each condition, in the order of the conditions.
    cells
        Predicted cells of each condition, likewise.
    """

    context: str
    measured: Measured
    predicted: np.ndarray
    names: tuple[str, ...]
    control: np.ndarray
    real: tuple[np.ndarray, ...]
    cells: tuple[np.ndarray, ...]


def shifted_cells(control: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return control cells moved so that each gene's mean is as given, none below zero, shape of ``control``.

    Added to where the mean rises and scaled down where it falls, which keeps zeros and never goes below them. A mean
    below zero, which no cells have, becomes zero.
    """
    now = control.mean(axis=0, dtype=np.float64)
    wanted = np.maximum(mean, 0.0)
    scale = np.divide(wanted, now, out=np.ones_like(now), where=(now > 0) & (wanted < now))
    return np.asarray(control * scale + np.maximum(wanted - now, 0.0))


def cell_pairs(effects: Effects, fold: Fold, *, max_cells: int = 100) -> Iterator[CellPair]:
    """Yield real and predicted cells of the test conditions, context by context.

    A prediction of effects holds no cells. Those made here are controls, as many as the condition has cells and at
    most ``max_cells``, moved by :func:`shifted_cells` so that their mean is exactly the control's plus the effect.
    Their spread is the control's: what depends on it says nothing about the prediction.

    Raises
    ------
    PertbaseError
        Where the fold was opened without its screen.
    UnsupportedError
        Where effects are not differences of means of log1p values.
    """
    if fold.screen is None:
        raise PertbaseError(
            f"the cells of the fold {fold.name} are not at hand", file=fold.folder, remedy="give its data set, data=..."
        )
    if effects.statistic != "mean_log":
        raise UnsupportedError("cell-eval compares means of log1p values: effects have to be mean_log")
    screen, whole = fold.screen, measured_effects(fold.truth)
    predicted = laid_out(effects, whole)[0]
    rows_of = screen.obs.reset_index(drop=True).groupby(["context", "perturbation"], observed=True).indices
    position = pd.Series(np.arange(len(screen.obs)), index=screen.obs.index)
    for context, members in whole.conditions.groupby("context", sort=True).indices.items():
        held = fold.controls.loc[(fold.controls["role"] == "truth") & (fold.controls["context"] == context), "cell"]
        control = _dense(screen.X[position[held].to_numpy()])
        basal = control.mean(axis=0, dtype=np.float64)
        perturbations = whole.conditions["perturbation"].to_numpy()[members]
        real = [_dense(screen.X[rows_of[context, name]]) for name in perturbations]
        cells = []
        for row, name, own in zip(members, perturbations, real, strict=True):
            rng = generator(fold.spec.seed, "predicted cells", str(context), str(name))
            drawn = rng.permutation(len(control))[: max(2, min(len(own), max_cells))]
            cells.append(shifted_cells(control[drawn], basal + predicted[row]).astype(np.float32))
        yield CellPair(
            context=str(context),
            measured=_part(whole, members),
            predicted=predicted[members],
            names=_names(fold, perturbations),
            control=control,
            real=tuple(real),
            cells=tuple(cells),
        )


def write_cell_eval(
    effects: Effects, fold: Fold, folder: str | Path, *, threshold: float = CALL, max_cells: int = 100
) -> list[Path]:
    """Write the test conditions and their predictions as cell-eval reads them, and return the folders, one a context.

    Each holds ``real.h5ad`` and ``predicted.h5ad`` with the same truth controls, and ``de_real.csv`` and
    ``de_pred.csv``, of which :data:`COMMAND` makes the numbers of :func:`~pertbase.scorers.expression`, except where a
    predicted mean lies below zero, which no cells have: it is zero in the files. The ``fdr`` of
    ``de_pred.csv`` is no p-value: it is below .05 exactly where the effect is beyond the threshold, and falls as the
    effect grows. Without the two tables cell-eval tests the predicted cells, which are moved controls (see
    :func:`cell_pairs`), as if they had been predicted as cells.

    Raises
    ------
    InputError
        Where a context's folder is there already, or the threshold is not positive.
    """
    if threshold <= 0:
        raise InputError("has to be positive", key="threshold", value=threshold)
    folder = Path(folder)
    written = []
    for pair in cell_pairs(effects, fold, max_cells=max_cells):
        place = folder / "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in pair.context)
        if place.exists():
            raise InputError("is there already", file=place, key="cell_eval", remedy="name another folder")
        write_pair(pair, place, threshold=threshold)
        written.append(place)
    return written


def write_pair(pair: CellPair, place: Path, *, threshold: float) -> None:
    """Write the four files of one context."""
    real, predicted = _tables(pair, threshold)
    _write_cells(pair, pair.real, place / "real.h5ad")
    _write_cells(pair, pair.cells, place / "predicted.h5ad")
    for table, name in ((real, "de_real.csv"), (predicted, "de_pred.csv")):
        with write_aside(place / name) as temporary:
            table.to_csv(temporary, index=False)


def _dense(values: Any) -> np.ndarray:
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float32)


def _part(measured: Measured, rows: np.ndarray) -> Measured:
    return replace(
        measured,
        conditions=measured.conditions.iloc[rows].reset_index(drop=True),
        **{name: getattr(measured, name)[rows] for name in ("values", "known", "p_adjusted", "own")},
    )


def _names(fold: Fold, perturbations: np.ndarray) -> tuple[str, ...]:
    """Return each target, by which cell-eval leaves it out of the comparison, where that names one condition only."""
    short = pd.Series(["+".join(part.label for part in fold.perturbations[name].parts) for name in perturbations])
    return tuple(np.where(short.duplicated(keep=False), perturbations, short))


def _tables(pair: CellPair, threshold: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return measured and predicted effects of the tested pairs as cell-eval's tables of differential expression."""
    rows, columns = np.nonzero(pair.measured.tested)
    first = {"target": np.array(pair.names, dtype=object)[rows], "feature": pair.measured.genes.to_numpy()[columns]}
    of_real = pair.measured.p_adjusted[rows, columns]
    size = np.abs(pair.predicted[rows, columns])
    # 1 for no effect, 1/20 at the threshold, and never the same for two effects.
    of_predicted = 1.0 / (1.0 + 19.0 * size / threshold)
    made = []
    for values, fdr in ((pair.measured.values, of_real), (pair.predicted, of_predicted)):
        change = values[rows, columns] / np.log(2.0)
        made.append(pd.DataFrame({**first, "log2_fold_change": change, "p_value": fdr, "fdr": fdr}))
    return made[0], made[1]


def _write_cells(pair: CellPair, cells: tuple[np.ndarray, ...], path: Path) -> None:
    from anndata import AnnData

    labels = [CONTROL] * len(pair.control)
    for name, block in zip(pair.names, cells, strict=True):
        labels += [name] * len(block)
    obs = pd.DataFrame({COLUMN: pd.Categorical(labels)}, index=[f"cell{i}" for i in range(len(labels))])
    adata = AnnData(np.concatenate([pair.control, *cells]), obs=obs, var=pd.DataFrame(index=pair.measured.genes.copy()))
    with write_aside(path) as temporary:
        write_hdf5(adata, temporary)
