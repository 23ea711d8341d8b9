"""Our expression scorer beside cell-eval's own program, on the same files.

    python benchmarks/cell_eval_parity.py [--environment FOLDER] [--golden tests/scorers/cell_eval_golden.json]

Makes a virtual environment with cell-eval 0.8.2 (in FOLDER, which is kept, or in a temporary one), predicts the test
effects of two folds of the simulated screen as shrunken, noisy copies of the measured ones, writes them with
:func:`pertbase.scorers.write_cell_eval`, lets cell-eval score the files and compares condition by condition. Exits with
1 where a number differs by more than 1e-6 (relative to the larger of itself and 1).

Conditions for which nothing is predicted are left out of the comparison of correlations and discrimination scores:
there, cell-eval correlates and ranks the rounding errors of means that are equal. With ``--golden``, cell-eval's
numbers for one context and sixty genes are written with what they were made from, for a test that needs no cell-eval.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np
import pandas as pd

from pertbase._io import write_json
from pertbase.folds import Effects, Fold, FoldMaker, FoldSpec
from pertbase.scorers import EXPRESSION_METRICS, expression, write_cell_eval
from pertbase.scorers._cell_eval import CellPair, cell_pairs, write_pair
from pertbase.scorers._expression import CALL
from pertbase.simulate import simulate_screen

VERSION = "0.8.2"
LIMIT = 1e-6
# Where nothing is significant, cell-eval has 0 for the overlap and we have NaN.
ZERO_FOR_NONE = ("overlap_at_N",)
OF_ROUNDING = ("pearson_delta", *(f"discrimination_score_{name}" for name in ("l1", "l2", "cosine")))
TWINS = {"mse": "mse_delta", "mae": "mae_delta"}

RUN = """
import sys, warnings
warnings.filterwarnings("ignore")
from cell_eval import MetricsEvaluator
folder = sys.argv[1]
evaluator = MetricsEvaluator(
    adata_pred=f"{folder}/predicted.h5ad", adata_real=f"{folder}/real.h5ad", de_pred=f"{folder}/de_pred.csv",
    de_real=f"{folder}/de_real.csv", num_threads=1, outdir=f"{folder}/out")
evaluator.compute(profile="full", skip_metrics=["clustering_agreement", "pearson_edistance"], break_on_error=True)
"""


def predicted(fold: Fold, *, noise: float = 0.08) -> Effects:
    """Return effects a model might predict: some right, some noise, one condition left out and one all zero."""
    truth, screen = fold.truth.effects, fold.screen
    rng = np.random.default_rng(0)
    values = 0.6 * truth.values + rng.normal(0.0, noise, truth.values.shape)
    held = fold.controls.loc[fold.controls["role"] == "truth"]
    for context, cells in held.groupby("context"):
        basal = np.asarray(screen.X[screen.obs.index.get_indexer(cells["cell"])].mean(axis=0)).ravel()
        here = (truth.conditions["context"] == context).to_numpy()
        # No cells have a mean below zero, so that the files could not hold such a prediction.
        values[here] = np.maximum(values[here], -basal)
    values[1] = 0.0
    return Effects(values[:-1], truth.conditions.iloc[:-1], truth.genes, truth.statistic)


def python_with_cell_eval(folder: Path) -> Path:
    """Return the interpreter of an environment with cell-eval, made where it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    have = subprocess.run([python, "-c", "import cell_eval"], capture_output=True, check=False)
    if have.returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"cell-eval=={VERSION}"], check=True)
    return python


def by_cell_eval(python: Path, place: Path) -> pd.DataFrame:
    """Return cell-eval's numbers on the files of a context, one row a condition."""
    done = subprocess.run([python, "-c", RUN, place], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return pd.read_csv(place / "out" / "results.csv").set_index("perturbation")


def golden(fold: Fold, python: Path, folder: Path) -> dict[str, object]:
    """Return a small case: effects, p-values, targets, predictions, and what cell-eval says of them."""
    whole = next(cell_pairs(predicted(fold, noise=0.3), fold))
    keep = np.arange(1, len(whole.names))[whole.predicted[1:].any(axis=1)]
    significant = np.nan_to_num(whole.measured.p_adjusted[keep], nan=1.0) < 0.05
    hits = significant.sum(axis=0) + whole.measured.own[keep].any(axis=0)
    genes = np.sort(np.argsort(-hits, kind="stable")[:60])
    part = np.ix_(keep, genes)
    table = {name: getattr(whole.measured, name)[part] for name in ("values", "known", "p_adjusted", "own")}
    measured = dataclasses.replace(
        whole.measured, conditions=whole.measured.conditions.iloc[keep], genes=whole.measured.genes[genes], **table
    )
    pair = CellPair(
        context=whole.context,
        measured=measured,
        predicted=whole.predicted[part],
        names=tuple(whole.names[row] for row in keep),
        control=whole.control[:, genes],
        real=tuple(whole.real[row][:, genes] for row in keep),
        cells=tuple(whole.cells[row][:, genes] for row in keep),
    )
    write_pair(pair, folder, threshold=CALL)
    theirs = by_cell_eval(python, folder).reindex(pair.names)
    return {
        "made_by": f"benchmarks/cell_eval_parity.py --golden, cell-eval {VERSION}",
        "context": pair.context,
        "perturbations": list(measured.conditions["perturbation"]),
        "genes": list(measured.genes),
        "measured": measured.values,
        "p_adjusted": measured.p_adjusted,
        "own": measured.own.astype(int),
        "predicted": pair.predicted,
        "cell_eval": {metric: theirs[metric].to_numpy() for metric in EXPRESSION_METRICS},
    }


def compared(fold: Fold, python: Path, folder: Path) -> pd.DataFrame:
    """Return our and cell-eval's value of each metric and condition."""
    effects = predicted(fold)
    ours = expression(effects, fold.truth)
    rows = []
    for place in write_cell_eval(effects, fold, folder):
        theirs = by_cell_eval(python, place)
        here = ours.conditions.loc[ours.conditions["context"] == place.name]
        of_context = ours.by_context.loc[place.name]
        silent = effects.select(here.loc[here["status"] == "ok"]).frame().abs().sum(axis=1) == 0
        nothing = set(silent.index[silent].get_level_values(1)) | set(here.loc[here["status"] != "ok", "perturbation"])
        for _, row in here.iterrows():
            name = row["perturbation"].split(":", 1)[1]
            name = name if name in theirs.index else row["perturbation"]
            for metric in EXPRESSION_METRICS:
                if metric in OF_ROUNDING and row["perturbation"] in nothing:
                    continue
                mine = of_context[metric] if metric == "de_spearman_sig" else row[metric]
                for title in (metric, TWINS.get(metric)):
                    if title is not None:
                        other = theirs[title].get(name, np.nan)
                        rows.append((fold.name, name, title, float(mine), float(other)))
    return pd.DataFrame(rows, columns=["fold", "perturbation", "metric", "ours", "cell_eval"])


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return, per metric, how far the two are apart and where only one has a value."""
    table = table.assign(
        both=table["ours"].notna() & table["cell_eval"].notna(),
        gap=(table["ours"] - table["cell_eval"]).abs() / np.maximum(table["cell_eval"].abs(), 1.0),
    )
    zero = table["metric"].isin(ZERO_FOR_NONE) & table["ours"].isna() & (table["cell_eval"] == 0)
    alone = (table["ours"].isna() != table["cell_eval"].isna()) & ~zero
    grouped = table.assign(alone=alone, known=zero).groupby("metric")
    return grouped.agg(
        n=("both", "sum"), largest_gap=("gap", "max"), only_one=("alone", "sum"), zero_for_none=("known", "sum")
    )


def main() -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--golden", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        python = python_with_cell_eval(options.environment or Path(scratch) / "environment")
        maker = FoldMaker(simulate_screen(seed=0).screen)
        tables = []
        for kind in ("unseen_perturbation_genetic", "combinatorial"):
            fold = maker.make(FoldSpec(kind=kind))
            tables.append(compared(fold, python, Path(scratch) / kind))
            if options.golden is not None and kind == "unseen_perturbation_genetic":
                write_json(options.golden, golden(fold, python, Path(scratch) / "golden"))
    table = pd.concat(tables)
    result = judged(table)
    print(f"cell-eval {VERSION}, {table.drop_duplicates(['fold', 'perturbation']).shape[0]} conditions")
    print(result.to_string(float_format="{:.1e}".format))
    return int((result["largest_gap"] > LIMIT).any() or result["only_one"].any())


if __name__ == "__main__":
    sys.exit(main())
