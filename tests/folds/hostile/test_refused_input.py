"""Files of the wild, through the program: refused with file, place, value and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from wild_study import ASKED, Said, genes, named, options, scaled, study, values

from pertbase.folds import prepare


def _put(x: np.ndarray, value: float) -> np.ndarray:
    x[3, 5] = value
    return x


def _no_columns() -> ad.AnnData:
    adata = study()
    adata.obs = adata.obs[[]]
    return adata


REFUSED: dict[str, tuple[Callable[[], ad.AnnData], dict[str, str | None], list[str]]] = {
    "no obs columns": (_no_columns, {}, ["obs column of perturbation", "'what'"]),
    "no obs columns, nothing said": (
        _no_columns,
        dict.fromkeys(ASKED),
        ["obs: no dialect fits", "perturbation=COLUMN control=LABEL"],
    ),
    "log of raw counts": (lambda: values(np.log1p), {}, ["X: ", "not scaled to a total", "layer=NAME"]),
    "log of log": (
        lambda: values(lambda x: np.log1p(np.log1p(scaled(x, 1e4)))),
        {},
        ["X: is a logarithm of logarithms", "expm1"],
    ),
    "counts per million": (lambda: values(lambda x: scaled(x, 1e6)), {}, ["X: ", "without a logarithm", "log1p"]),
    "raw counts with a total declared too small for logs": (
        lambda: values(lambda x: np.log1p(scaled(x, 1e4))),
        {"total": "100"},
        ["total: was scaled to 10000", "got 100"],
    ),
    "negative values": (lambda: values(lambda x: x - x.mean(axis=0)), {}, ["X: holds negative values", "layer=NAME"]),
    "NaN": (lambda: values(lambda x: _put(x, np.nan)), {}, ["X: holds NaN or infinite", "1 values", "layer=NAME"]),
    "infinity": (lambda: values(lambda x: _put(x, np.inf)), {}, ["X: holds NaN or infinite", "1 values"]),
    "all zero": (lambda: values(lambda x: x * 0), {}, ["no expression at all", "no cell is left", "min_counts"]),
    "gene twice": (lambda: genes("G38", "G38"), {}, ["var_names: 1 gene symbols", "['G38']", "duplicates=sum"]),
    "gene twice but for a space": (lambda: genes("G38", "G38 "), {}, ["var_names: 1 gene symbols", "duplicates=sum"]),
    "gene without a name": (lambda: genes(""), {}, ["var_names: 1 genes have no name"]),
    "genes are positions": (
        lambda: genes(*map(str, range(40))),
        {},
        ["var_names: are numbers", "['0', '1', '2']", "symbols=COLUMN"],
    ),
    "genes are Ensembl ids": (
        lambda: genes(*(f"ENSG{i:011d}" for i in range(40))),
        {},
        ["var_names: are Ensembl ids", "symbols=COLUMN"],
    ),
    "no control": (
        lambda: named(ctrl="G7"),
        {},
        ["obs['what']: no cell is labelled as a control", "looked for ctrl", "control=LABEL"],
    ),
    "all control": (lambda: study(["ctrl"]), {}, ['obs["perturbation"]: has no perturbed cells']),
    "control in one line only": (
        lambda: study(["ctrl", "G0"], ["a", "b"], n=200)[np.arange(200) % 4 != 2].copy(),
        {},
        ["context: 1 contexts have no control cells", "['b']", "drop_contexts_without_control=true"],
    ),
    "label nan": (lambda: named(G0="nan"), {}, ["obs['what']: looks like a missing value", "'nan'", "control=nan"]),
    "label None": (lambda: named(G0="None"), {}, ["obs['what']: looks like a missing value", "'None'", "keep="]),
    "label empty": (lambda: named(G0=" "), {}, ["obs['what']: 120 cells do not say what was done", "control=nan"]),
    "label control beside ctrl": (
        lambda: named(G0="control"),
        {},
        ["obs['what']: looks like a control", "'control'", "control='[ctrl, control]'"],
    ),
    "label is a plus": (lambda: named(G0="+"), {}, ["obs['what']: looks like a missing value", "'+'"]),
    "a target twice": (lambda: named(G0="G1+G1"), {}, ["obs['what']: a part is given twice", "'G1+G1'", "names="]),
    "a mechanism nobody knows": (study, {"mechanism": "TALEN"}, ["mechanism: unknown mechanism", "'TALEN'", "CRISPRi"]),
    "a context that is missing": (
        lambda: _missing_context(),
        {},
        ["obs['line']: 40 cells have no context", "context=COLUMN"],
    ),
}


def _missing_context() -> ad.AnnData:
    adata = study()
    adata.obs["line"] = pd.Categorical([None if i < 40 else line for i, line in enumerate(adata.obs["line"])])
    return adata


@pytest.mark.parametrize("case", REFUSED)
def test_file_that_cannot_be_read_is_refused_with_place_value_and_remedy(
    case: str, pertbase: Said, tmp_path: Path
) -> None:
    make, changes, parts = REFUSED[case]
    make().write_h5ad(tmp_path / "in.h5ad")
    code, said = pertbase(
        "prepare", f"input={tmp_path / 'in.h5ad'}", f"output={tmp_path / 'out.h5ad'}", *options(**changes)
    )
    assert code == 2
    if "mechanism" not in changes:
        assert "in.h5ad" in said
    for part in parts:
        assert part in said
    assert [item.name for item in tmp_path.iterdir()] == ["in.h5ad"]


def _truncated(share: float) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        study(n=96).write_h5ad(path)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return make


def _other_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as store:
        store["matrix/data"] = np.arange(3)


def _damaged_block(path: Path) -> None:
    """One compressed block of the matrix is overwritten: found only when it is read."""
    import h5py

    adata = study()
    adata.X = sparse.csr_matrix(adata.X)
    adata.write_h5ad(path, compression="gzip")
    with h5py.File(path) as store:
        block = store["X/data"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[block.byte_offset : block.byte_offset + 64] = b"\xff" * 64
    path.write_bytes(bytes(content))


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absent": (lambda path: None, "there is no such file"),
    "empty": (lambda path: path.touch(), "cannot be read as AnnData"),
    "text": (lambda path: path.write_text("cell,gene\n"), "cannot be read as AnnData"),
    "folder": (lambda path: path.mkdir(), "cannot be read as AnnData"),
    "other hdf5": (_other_hdf5, "in.h5ad"),
    "damaged block": (_damaged_block, "cannot be read as AnnData"),
    **{f"truncated to {share:.0%}": (_truncated(share), "cannot be read as AnnData") for share in (0.01, 0.5, 0.99)},
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_refused_by_name_by_prepare_and_by_run(case: str, pertbase: Said, tmp_path: Path) -> None:
    make, part = BROKEN[case]
    path = tmp_path / "in.h5ad"
    make(path)
    code, said = pertbase("prepare", f"input={path}", f"output={tmp_path / 'out.h5ad'}", *options())
    assert code == 2
    assert "in.h5ad" in said
    assert part in said
    code, said = pertbase(
        "run", "data=h5ad", f"data.path={path}", "fold=combinatorial", "baseline=no_change", f"runs={tmp_path / 'runs'}"
    )
    assert code == 1
    assert "0 done, 1 failed" in said
    assert "in.h5ad" in said
    assert not (tmp_path / "out.h5ad").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("damage", ["empty folder", "a file", "no obs", "no X", "half an array"])
def test_broken_zarr_is_refused_by_name(damage: str, pertbase: Said, tmp_path: Path) -> None:
    import shutil

    path = tmp_path / "in.zarr"
    study(n=96).write_zarr(path)
    if damage in ("empty folder", "a file"):
        shutil.rmtree(path)
        path.mkdir() if damage == "empty folder" else path.write_text("x")
    elif damage == "half an array":
        (block,) = [item for item in (path / "X").iterdir() if item.name == "0.0"]
        block.write_bytes(block.read_bytes()[:20])
    else:
        shutil.rmtree(path / damage.removeprefix("no "))
    code, said = pertbase("prepare", f"input={path}", f"output={tmp_path / 'out.h5ad'}", *options())
    assert code == 2
    assert "in.zarr" in said
    assert not (tmp_path / "out.h5ad").exists()


@pytest.mark.parametrize(
    ("place", "value", "parts"),
    [
        ("format", "one", ["another format", "'one'"]),
        ("total", "many", ["total", "'many'"]),
        ("total", -1.0, ["total is not a positive number", "-1"]),
        ("perturbations", "a text", ["the perturbations are not a table", "prepare"]),
        ("mechanism", "TALEN", ["CRISPRi:G0", "unknown mechanism", "'TALEN'"]),
        ("sign", 7, ["CRISPRi:G0", "a sign is -1, 0 or +1"]),
        ("dose", -3.0, ["CRISPRi:G0", "no dose"]),
    ],
)
def test_screen_that_was_edited_by_hand_is_refused(
    place: str, value: object, parts: list[str], pertbase: Said, tmp_path: Path
) -> None:
    screen, _ = prepare(study(n=96), name="s", **ASKED)
    adata = screen.to_anndata()
    about = adata.uns["pertbase"]
    if place == "total":
        about["normalisation"]["total"] = value
    elif place in ("format", "perturbations"):
        about[place] = value
    else:
        table = about["perturbations"]
        table.loc[table["perturbation"] == "CRISPRi:G0", place] = value
    adata.write_h5ad(tmp_path / "edited.h5ad")
    code, said = pertbase(
        "run", "data=h5ad", f"data.path={tmp_path / 'edited.h5ad'}", "fold=combinatorial", "baseline=no_change",
        f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 1
    for part in ("edited.h5ad", *parts):
        assert part in said
