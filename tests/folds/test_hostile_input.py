"""Files of the wild, through the program: refused with file, place, value and remedy, or carried to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.cli import main
from pertbase.folds import prepare, read_screen

ASKED = {"perturbation": "what", "control": "ctrl", "context": "line", "mechanism": "CRISPRi"}
GENES = [f"G{i}" for i in range(40)]
LABELS = ("ctrl", "G0", "G1", "G2", "G3", "G4", "G5", "G6")

Said = Callable[..., tuple[int, str]]


@pytest.fixture
def pertbase(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the program, and return its exit code and all that it printed."""

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(item) for item in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + err

    return run


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


def _put(x: np.ndarray, value: float) -> np.ndarray:
    x[3, 5] = value
    return x


def options(**changes: str | None) -> list[str]:
    return [f"{key}={value}" for key, value in (ASKED | changes).items() if value is not None]


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


USELESS: dict[str, tuple[Callable[[], ad.AnnData], list[str]]] = {
    "one control cell": (
        lambda: study([*LABELS[1:] * 40, "ctrl"], ["a"], n=281),
        ["no condition of s can be labelled", "truth controls, fewer than 10"],
    ),
    "one cell a perturbation": (
        lambda: study(["ctrl"] * 60 + GENES[:30], ["a"], n=90),
        ["no condition of s can be labelled", "1 cells, fewer than 25", "rule.min_cells"],
    ),
    "two cells": (lambda: study(["ctrl", "G0"], ["a"], n=2), ["no condition of s can be labelled"]),
    "one perturbation": (
        lambda: study(["ctrl", "G0"], ["a", "b"], n=400),
        ["it has 1 target sets", "at least 3 are needed", "val needs a third context"],
    ),
}


@pytest.mark.parametrize("case", USELESS)
def test_screen_that_decides_nothing_is_skipped_with_the_reason(case: str, pertbase: Said, tmp_path: Path) -> None:
    make, parts = USELESS[case]
    said = carried(pertbase, tmp_path, make(), "unseen_perturbation_genetic", "unseen_context_genetic")
    assert "0 done, 4 skipped" in said
    for part in parts:
        assert part in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "adata",
    [study(effects=False), study()[:, :1].copy(), study()[:, :2].copy(), study()[:, :7].copy()],
    ids=["nothing changes", "one gene", "two genes", "every gene is a target"],
)
def test_screen_without_a_class_runs_to_the_end_and_is_not_ranked(
    adata: ad.AnnData, pertbase: Said, tmp_path: Path
) -> None:
    carried(pertbase, tmp_path, adata, "unseen_perturbation_genetic", "unseen_context_genetic")
    code, said = pertbase("report", f"runs={tmp_path / 'runs'}")
    assert code == 0
    assert "Baselines are not ranked: test holds only" in said


# -- odd, and fine -------------------------------------------------------------------------------------------

ODD_LABELS: dict[str, tuple[dict[str, str], set[str]]] = {
    "A+ctrl, ctrl+A, A+B, B+A": (
        {"G0": "G0+ctrl", "G1": "ctrl+G0", "G2": "G3+G4", "G5": "G4+G3", "G6": "ctrl+ctrl"},
        {"CRISPRi:G0", "CRISPRi:G3", "CRISPRi:G4", "CRISPRi:G3+G4"},
    ),
    "commas, slashes, spaces, other scripts": (
        {"G0": "a, b/c [d]", "G1": "β 紫杉醇", "G2": "x=y;z"},
        {"CRISPRi:a, b/c [d]", "CRISPRi:β 紫杉醇", "CRISPRi:x=y;z"},
    ),
    "numbers": ({"G0": "1", "G1": "01", "G2": "1e5"}, {"CRISPRi:1", "CRISPRi:01", "CRISPRi:1e5"}),
    "a newline and a length": ({"G0": "G0\nG1", "G1": "G" * 400}, {"CRISPRi:G0\nG1", "CRISPRi:" + "G" * 400}),
    "words that YAML and spreadsheets change": ({"G0": "NO", "G1": "1-Mar", "G2": "true"}, {"CRISPRi:NO"}),
}


@pytest.mark.parametrize("case", ODD_LABELS)
def test_odd_names_of_perturbations_are_carried_to_the_report(case: str, pertbase: Said, tmp_path: Path) -> None:
    changes, expected = ODD_LABELS[case]
    said = carried(pertbase, tmp_path, named(**changes), "unseen_context_genetic")
    assert "2 done" in said
    assert expected <= set(read_screen(tmp_path / "screen.h5ad").perturbations)


ODD_GENES = {
    "numbers among them": ["1", "2", "3.5", "1e5", "007"],
    "words for nothing": ["NA", "nan", "None", "NULL", "true", "NO", "-"],
    "dates": ["1-Mar", "2-Sep", "2001-09-01", "MARCHF1", "SEPTIN2"],
    "paths": ["A/B", "A", "A/C", ".", "..", "_index", "index", "a.b"],
    "cases and lengths": ["g0", "g1", "x" * 3_000, "β-actin", "紫"],
}


@pytest.mark.parametrize("case", ODD_GENES)
def test_odd_gene_names_are_carried_to_the_report(case: str, pertbase: Said, tmp_path: Path) -> None:
    said = carried(pertbase, tmp_path, genes(*ODD_GENES[case]), "unseen_context_genetic")
    assert "2 done" in said
    assert list(read_screen(tmp_path / "screen.h5ad").genes)[-len(ODD_GENES[case]) :] == ODD_GENES[case]
    assert ("gene symbols are dates (such as 1-Mar)" in said) == (case == "dates")


def test_genes_named_by_position_give_way_to_the_column_of_symbols() -> None:
    adata = study()
    adata.var["gene_name"] = GENES
    adata.var_names = [str(i) for i in range(len(GENES))]
    screen, report = prepare(adata, name="s", **ASKED)
    assert list(screen.genes) == GENES
    assert any("gene_name" in line for line in report.recognised)


@pytest.mark.parametrize(
    "lines",
    [
        ("CD4+ T", "CD4- T", "CD4/T"),
        (".", "..", "~"),
        ("nan", "None", "1"),
        ("x" * 300, "x" * 299, "紫" * 100),
        ("a=b", "[c]", "d,e"),
    ],
    ids=["signs", "paths", "nothings", "lengths", "grammar"],
)
def test_contexts_of_any_name_each_get_a_fold_of_their_own(
    lines: tuple[str, ...], pertbase: Said, tmp_path: Path
) -> None:
    study(lines=lines).write_h5ad(tmp_path / "in.h5ad")
    screen = tmp_path / "screen.h5ad"
    code, said = pertbase("prepare", f"input={tmp_path / 'in.h5ad'}", f"output={screen}", *options())
    assert code == 0, said
    code, said = pertbase(
        "run", "data=h5ad", f"data.path={screen}", "data.name=s", "fold=unseen_context_genetic",
        "fold.test_context=each", "baseline=no_change", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0, said
    assert "3 done" in said
    assert len(list((tmp_path / "runs" / "s").iterdir())) == 3


def test_category_without_cells_is_no_perturbation(pertbase: Said, tmp_path: Path) -> None:
    adata = study()
    adata.obs["what"] = pd.Categorical(adata.obs["what"], categories=[*LABELS, "G30", "control", "nan"])
    adata.obs["line"] = pd.Categorical(adata.obs["line"], categories=["a", "b", "c", "nowhere"])
    assert "2 done" in carried(pertbase, tmp_path, adata, "unseen_context_genetic")
    screen = read_screen(tmp_path / "screen.h5ad")
    assert set(screen.perturbations) == {f"CRISPRi:{label}" for label in LABELS[1:]}
    assert screen.contexts == ("a", "b", "c")


@pytest.mark.parametrize("stored", ["csc", "int16", "float64", "zarr"])
def test_storage_makes_no_difference_to_a_score(stored: str, pertbase: Said, tmp_path: Path) -> None:
    scores = []
    for number, way in enumerate(("plain", stored)):
        folder = tmp_path / str(number)
        folder.mkdir()
        adata = study()
        if way in ("csc", "int16", "float64"):
            change = {"csc": sparse.csc_matrix, "int16": np.int16, "float64": np.float64}[way]
            adata.X = change(adata.X)
        source = folder / ("in.zarr" if way == "zarr" else "in.h5ad")
        adata.write_zarr(source) if way == "zarr" else adata.write_h5ad(source)
        code, said = pertbase("prepare", f"input={source}", f"output={folder / 'screen.h5ad'}", *options())
        assert code == 0, said
        code, said = pertbase(
            "run", "data=h5ad", f"data.path={folder / 'screen.h5ad'}", "data.name=s", "fold=unseen_context_genetic",
            "baseline=perturbed_mean", f"runs={folder / 'runs'}",
        )  # fmt: skip
        assert code == 0, said
        (found,) = (folder / "runs").glob("s/*/*/*/scores.json")
        scores.append(found.read_bytes())
    assert scores[0] == scores[1]


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
