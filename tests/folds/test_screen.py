"""The contract of a screen: what is kept, what is refused, what its hash depends on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase.errors import InputError, PertbaseError
from pertbase.folds import CONTROL, Part, Perturbation, Screen, read_screen, write_screen

DRUG = Perturbation((Part("drug", (("MYC", -1), ("TP53", 1)), "drug, b/β", 0.5),))
BOTH = Perturbation.genetic(["B", "A"], "CRISPRa")


def make(**changes: Any) -> Screen:
    """Return a screen of two contexts, a drug and a combination."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, (40, 6)) + np.eye(40, 6)
    total = 50.0
    names = np.resize([CONTROL, DRUG.name, BOTH.name, CONTROL], 40)
    given: dict[str, Any] = {
        "name": "small",
        "X": sparse.csr_matrix(np.log1p(counts * (total / counts.sum(axis=1, keepdims=True))), dtype=np.float32),
        "obs": pd.DataFrame(
            {
                "context": np.repeat(["T cell, CD4+", "b"], 20),
                "perturbation": names,
                "is_control": names == CONTROL,
                "batch": np.resize(["1", "2"], 40),
            },
            index=pd.Index([f"c{i}" for i in range(40)], name="cell"),
        ),
        "genes": pd.Index(["A", "B", "HLA-A", "MYC", "TP53", "G/ä"], name="gene"),
        "perturbations": {DRUG.name: DRUG, BOTH.name: BOTH},
        "total": total,
        "counts": sparse.csr_matrix(counts.astype(np.float32)),
    }
    return Screen(**(given | changes))


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, lambda matrix: np.asarray(matrix.toarray())])
def test_screen_comes_back_from_disk_as_it_was(suffix: str, kind: Callable[[Any], Any], tmp_path: Path) -> None:
    screen = make(X=kind(make().X), simulated=True)
    path = tmp_path / "folder" / f"screen{suffix}"
    write_screen(screen, path)
    again = read_screen(path)
    assert again.hash == screen.hash
    assert (again.name, again.total, again.simulated) == ("small", 50.0, True)
    assert again.perturbations == screen.perturbations
    pd.testing.assert_frame_equal(again.obs, screen.obs)
    assert (again.counts != screen.counts).nnz == 0
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    write_screen(again, path)
    assert read_screen(path).hash == screen.hash


@pytest.mark.parametrize(
    "stored",
    [
        sparse.csc_matrix,
        lambda x: np.asarray(x.toarray()),
        lambda x: x.astype(np.float64),
        lambda x: np.asfortranarray(x.toarray()),
        lambda x: sparse.csr_matrix((x.data, x.indices.astype(np.int64), x.indptr.astype(np.int64)), x.shape),
    ],
    ids=["csc", "dense", "float64", "fortran", "int64 indices"],
)
def test_hash_does_not_depend_on_storage(stored: Callable[[Any], Any]) -> None:
    screen = make()
    adata = screen.to_anndata()
    adata.X = stored(adata.X)
    assert Screen.from_anndata(adata).hash == screen.hash


def test_whole_numbers_in_integer_storage_give_the_same_screen() -> None:
    adata = make().to_anndata()
    whole = np.rint(adata.X.toarray())
    hashes = set()
    for dtype in (np.int16, np.float32, np.float64):
        adata.X = sparse.csr_matrix(whole.astype(dtype))
        hashes.add(Screen.from_anndata(adata).hash)
    assert len(hashes) == 1


def test_backed_file_gives_the_same_screen(tmp_path: Path) -> None:
    write_screen(make(), tmp_path / "s.h5ad")
    backed = ad.read_h5ad(tmp_path / "s.h5ad", backed="r")
    assert Screen.from_anndata(backed).hash == make().hash
    backed.file.close()


def _changed_obs(column: str, value: Any) -> pd.DataFrame:
    obs = make().obs.copy()
    obs.iloc[1, obs.columns.get_loc(column)] = value
    return obs


@pytest.mark.parametrize(
    "changes",
    [
        {"X": make().X * np.float32(0.5)},
        {"total": 51.0},
        {"genes": make().genes[::-1]},
        {"obs": make().obs.set_axis([f"d{i}" for i in range(40)])},
        {"obs": _changed_obs("batch", "3")},
        {"obs": _changed_obs("context", "b")},
        {"obs": _changed_obs("perturbation", BOTH.name)},
        {"perturbations": {DRUG.name: Perturbation((Part("drug", (), "x"),)), BOTH.name: BOTH}},
    ],
    ids=["values", "total", "genes", "cells", "batch", "context", "perturbation", "meaning"],
)
def test_hash_depends_on_everything_a_fold_can_depend_on(changes: dict[str, Any]) -> None:
    assert make(**changes).hash != make().hash


def test_matrices_are_read_only_and_subsets_are_copies() -> None:
    screen = make()
    with pytest.raises(ValueError, match="read-only"):
        screen.X.data[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        screen.counts.data[0] = 1
    part = screen.subset(screen.obs["context"].to_numpy() == "b")
    assert part.contexts == ("b",)
    assert not np.shares_memory(part.X.data, screen.X.data)
    only = screen.subset(np.flatnonzero(screen.obs["perturbation"] != DRUG.name))
    assert set(only.perturbations) == {BOTH.name}
    # A copy for others to change.
    adata = screen.to_anndata()
    adata.X.data[:] = 0
    assert screen.hash == make().hash


def test_conditions_describe_each_context_and_perturbation() -> None:
    rows = make().conditions.itertuples(index=False, name=None)
    expected = [
        (BOTH.name, 5, "genetic", "CRISPRa", "A+B", "gene:A+gene:B", 2),
        (DRUG.name, 5, "chemical", "drug", "MYC+TP53", "compound:drug, b/β", 1),
    ]
    assert list(rows) == [(context, *row) for context in ("T cell, CD4+", "b") for row in expected]


def test_repr_says_what_it_holds_and_that_it_is_simulated() -> None:
    assert repr(make()) == (
        "Screen 'small': 40 cells x 6 genes, 2 contexts, 2 perturbations, 4 conditions, 20 controls"
    )
    assert "(simulated)" in repr(make(simulated=True))


def _x(change: Callable[[np.ndarray], None]) -> sparse.csr_matrix:
    values = make().X.toarray()
    change(values)
    return sparse.csr_matrix(values)


def _set(value: float) -> sparse.csr_matrix:
    def change(values: np.ndarray) -> None:
        values[0, 0] = value

    return _x(change)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"X": _set(np.nan)}, "X: .*NaN or infinite"),
        ({"X": _set(np.inf)}, "X: .*NaN or infinite"),
        ({"X": _set(-1)}, r"X: .*negative values.*got -1"),
        ({"X": _set(9.5)}, r"exceeds log\(1 \+ total\) = 3\.932.*got 9\.5"),
        ({"total": 0.0}, "total is not a positive number"),
        ({"total": float("nan")}, "total is not a positive number"),
        ({"genes": pd.Index(["A", "A", "c", "d", "e", "f"])}, r"var_names: names are not unique \(got \['A'\]\)"),
        ({"genes": pd.Index(["A"])}, "do not fit"),
        ({"obs": make().obs.set_axis(["c"] * 40)}, "obs_names: names are not unique"),
        ({"obs": _changed_obs("context", "")}, r"obs\[\"context\"\].*empty context|empty context"),
        ({"obs": _changed_obs("is_control", True)}, r"is_control and perturbation.*disagree for 1 cells.*c1"),
        ({"obs": _changed_obs("perturbation", "else")}, r"not in the perturbation table \(got \['else'\]\)"),
        ({"obs": _changed_obs("context", "lonely")}, r"no control cells \(got \['lonely'\]\)"),
    ],
)
def test_contract_is_checked_when_a_screen_is_made(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make(**changes)


def test_screen_of_controls_only_is_refused() -> None:
    obs = make().obs.assign(perturbation=CONTROL, is_control=True)
    with pytest.raises(InputError, match="no perturbed cells"):
        make(obs=obs)


def _without_about(adata: ad.AnnData) -> None:
    del adata.uns["pertbase"]


def _other_format(adata: ad.AnnData) -> None:
    adata.uns["pertbase"]["format"] = 99


def _without_total(adata: ad.AnnData) -> None:
    adata.uns["pertbase"]["normalisation"] = {}


def _without_context(adata: ad.AnnData) -> None:
    del adata.obs["context"]


def _with_missing_context(adata: ad.AnnData) -> None:
    adata.obs["context"] = adata.obs["context"].astype(object)
    adata.obs.iloc[3, adata.obs.columns.get_loc("context")] = None


def _with_odd_flags(adata: ad.AnnData) -> None:
    adata.obs["is_control"] = np.where(adata.obs["is_control"], "yes", "no")


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (_without_about, r"f\.h5ad: uns\[\"pertbase\"\]: is not a pertbase screen.*pertbase prepare"),
        (_other_format, r"f\.h5ad: .*another format \(got 99\)"),
        (_without_total, r"f\.h5ad: .*total.*not declared"),
        (_without_context, r"f\.h5ad: obs: obs lacks columns \(got \['context'\]\)"),
        (_with_missing_context, r"f\.h5ad: obs\[\"context\"\]: 1 cells have no context"),
        (_with_odd_flags, r"f\.h5ad: .*is_control.*(true and false).*'(yes|no)'"),
    ],
)
def test_file_outside_the_contract_is_refused_by_name(spoil: Callable[[ad.AnnData], None], match: str) -> None:
    adata = make().to_anndata()
    spoil(adata)
    with pytest.raises(InputError, match=match):
        Screen.from_anndata(adata, file="f.h5ad")


def test_file_in_memory_is_left_alone() -> None:
    adata = make().to_anndata()
    Screen.from_anndata(adata)
    adata.X.data[:] = 0
    adata.layers["counts"].data[:] = 0


def test_batch_may_be_absent() -> None:
    adata = make().to_anndata()
    del adata.obs["batch"]
    assert set(Screen.from_anndata(adata).obs["batch"]) == {""}


def test_files_that_are_absent_empty_or_of_another_format_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.h5ad: there is no such file"):
        read_screen(tmp_path / "none.h5ad")
    (tmp_path / "empty.h5ad").touch()
    with pytest.raises(InputError, match=r"empty\.h5ad: cannot be read as AnnData"):
        read_screen(tmp_path / "empty.h5ad")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(InputError, match=r"empty\.zarr: "):
        read_screen(tmp_path / "empty.zarr")
    (tmp_path / "table.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"table\.csv: is neither \.h5ad nor \.zarr"):
        read_screen(tmp_path / "table.csv")
    with pytest.raises(InputError, match=r"\.h5ad or \.zarr"):
        write_screen(make(), tmp_path / "out.loom")


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.h5ad"
    write_screen(make(), path)
    before = path.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pertbase.folds._screen_files.write_hdf5", full)
    with pytest.raises(PertbaseError, match="No space left"):
        write_screen(make(total=60.0), path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["s.h5ad"]
