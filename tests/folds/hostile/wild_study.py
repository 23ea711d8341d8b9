"""A study as somebody might hand it in, to be made odd or broken, and carried through the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

ASKED = {"perturbation": "what", "control": "ctrl", "context": "line", "mechanism": "CRISPRi"}
GENES = [f"G{i}" for i in range(40)]
LABELS = ("ctrl", "G0", "G1", "G2", "G3", "G4", "G5", "G6")

Said = Callable[..., tuple[int, str]]


def study(
    labels: Sequence[str] = LABELS, lines: Sequence[str] = ("a", "b", "c"), *, n: int = 960, effects: bool = True
) -> ad.AnnData:
    """Return cells of every label in every line, with counts; each label moves six genes."""
    rng = np.random.default_rng(0)
    x = rng.poisson(rng.uniform(0.5, 3, (n, 1)) * rng.gamma(0.5, 2, len(GENES))).astype(np.float32)
    what = np.resize(np.array(labels, dtype=object), n)
    line = np.array(lines, dtype=object)[(np.arange(n) // len(labels)) % len(lines)]
    for label in sorted(set(what) - {"ctrl"}) if effects else ():
        rows, moved = what == label, rng.choice(len(GENES), 6, replace=False)
        x[np.ix_(rows, moved[:3])] += rng.poisson(4, (int(rows.sum()), 3))
        x[np.ix_(rows, moved[3:])] *= rng.random((int(rows.sum()), 3)) < 0.3
    obs = pd.DataFrame({"what": what, "line": line}, index=[f"c{i}" for i in range(n)])
    return ad.AnnData(x, obs, pd.DataFrame(index=GENES))


def named(**old_to_new: str) -> ad.AnnData:
    """Return the study with other labels."""
    adata = study()
    adata.obs["what"] = [old_to_new.get(item, item) for item in adata.obs["what"]]
    return adata


def genes(*last: str) -> ad.AnnData:
    """Return the study with other names for its last genes."""
    adata = study()
    adata.var_names = [*GENES[: len(GENES) - len(last)], *last]
    return adata


def values(change: Callable[[Any], Any]) -> ad.AnnData:
    adata = study()
    adata.X = change(adata.X)
    return adata


def scaled(x: np.ndarray, total: float) -> np.ndarray:
    return x * (total / x.sum(axis=1, keepdims=True))


def options(**changes: str | None) -> list[str]:
    return [f"{key}={value}" for key, value in (ASKED | changes).items() if value is not None]


def carried(pertbase: Said, folder: Path, adata: ad.AnnData, *folds: str, name: str = "s", **changes: str) -> str:
    """Prepare, run two baselines on each fold and report in every format; return what was said on the way."""
    adata.write_h5ad(folder / "in.h5ad")
    screen, runs = folder / "screen.h5ad", folder / "runs"
    code, first = pertbase("prepare", f"input={folder / 'in.h5ad'}", f"output={screen}", *options(**changes))
    assert code == 0, first
    code, said = pertbase(
        "run", "-m", "data=h5ad", f"data.path={screen}", f"data.name={name}", f"fold={','.join(folds)}",
        "baseline=gene_prior,perturbed_mean", f"runs={runs}",
    )  # fmt: skip
    assert code == 0, said
    for form in ("terminal", "csv", "html") if runs.exists() else ():
        code, report = pertbase("report", f"runs={runs}", f"format={form}")
        assert code == 0, report
    return first + said
