"""Opening somebody else's file without loading what is not needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from scipy import sparse

from pertbase.errors import InputError, unknown_name
from pertbase.folds._screen_files import BROKEN, read_anndata, unreadable

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["Source", "from_anndata", "holds_screen", "open_source"]


@dataclass(frozen=True, eq=False)
class Source:
    """The cells, genes and values of a file; ``values`` can be sliced by rows and may lie on disk.

    ``uns`` is the one entry of uns that was asked for, None where there is none; ``obsm`` those of obsm that were.
    """

    obs: pd.DataFrame
    var: pd.DataFrame
    values: Any
    key: str
    file: str | None
    is_screen: bool = False
    uns: Any = None
    obsm: Mapping[str, Any] = field(default_factory=dict)


def from_anndata(
    adata: AnnData,
    *,
    layer: str | None = None,
    uns: str | None = None,
    obsm: Sequence[str] = (),
    file: str | None = None,
) -> Source:
    """Return what an AnnData holds; a backed one stays on disk."""
    if layer is not None and layer not in adata.layers:
        raise unknown_name("layer", layer, adata.layers.keys(), file=file)
    values = adata.X if layer is None else adata.layers[layer]
    found = None if uns is None else adata.uns.get(uns)
    for name in obsm:
        if name not in adata.obsm:
            raise unknown_name("entry of obsm", name, adata.obsm.keys(), file=file)
    embeddings = {name: adata.obsm[name] for name in obsm}
    is_screen = "pertbase" in adata.uns
    return Source(adata.obs, adata.var, _by_rows(values, layer, file), _key(layer), file, is_screen, found, embeddings)


@contextlib.contextmanager
def open_source(
    path: str | Path, *, layer: str | None = None, uns: str | None = None, obsm: Sequence[str] = ()
) -> Iterator[Source]:
    """Open a file; of an ``.h5ad`` file only obs, var, one matrix and the entries of uns and obsm named are looked at.

    The matrix is read block by block.

    Raises
    ------
    InputError
        Where it is absent, empty, truncated or of another format, or lacks the layer.
    """
    path = Path(path)
    with contextlib.ExitStack() as stack:
        try:
            opened = _open_hdf5(path, layer, uns, obsm, stack)
            if opened is None:
                opened = from_anndata(read_anndata(path), layer=layer, uns=uns, obsm=obsm, file=str(path))
            # The matrix is read by whoever asked, and a block of it may be broken.
            yield opened
        except (OSError, RuntimeError) as error:
            raise unreadable(path, error) from error


def _open_hdf5(
    path: Path, layer: str | None, uns: str | None, obsm: Sequence[str], stack: contextlib.ExitStack
) -> Source | None:
    """Return what an HDF5 file of today's format holds; None where the whole-file reader has to decide."""
    import h5py
    from anndata.io import read_elem, sparse_dataset

    if path.suffix != ".h5ad" or not path.is_file():
        return None
    try:
        store = stack.enter_context(h5py.File(path, "r"))
        layers = list(store["layers"]) if "layers" in store else []
        if layer is not None and layer not in layers:
            raise unknown_name("layer", layer, layers, file=path)
        held = store.get("obsm", {})
        for name in obsm:
            if name not in held:
                raise unknown_name("entry of obsm", name, held, file=path)
        place = store.get("X" if layer is None else f"layers/{layer}")
        encoding = None if place is None else place.attrs.get("encoding-type")
        if encoding not in ("csr_matrix", "csc_matrix", "array") or "encoding-type" not in store["obs"].attrs:
            return None
        values = place if encoding == "array" else sparse_dataset(place)
        obs, var = read_elem(store["obs"]), read_elem(store["var"])
        is_screen = "uns" in store and "pertbase" in store["uns"]
        entry = read_elem(store["uns"][uns]) if uns is not None and "uns" in store and uns in store["uns"] else None
        embeddings = {name: read_elem(held[name]) for name in obsm}
    except InputError:
        raise
    except BROKEN:
        # Truncated or foreign: the whole-file reader says so in its own words.
        return None
    return Source(obs, var, _by_rows(values, layer, str(path)), _key(layer), str(path), is_screen, entry, embeddings)


def _by_rows(values: Any, layer: str | None, file: str | None) -> Any:
    """Return a matrix that gives rows cheaply: column-compressed ones are turned, others are left alone."""
    if values is None:
        raise InputError("has no X", file=file, key="X", value=None, remedy="say which layer=NAME holds the counts")
    if hasattr(values, "to_memory") and values.format != "csr":
        values = values.to_memory()
    if sparse.issparse(values):
        return values.tocsr()
    if len(values.shape) != 2:
        raise InputError("is not a matrix", file=file, key=_key(layer), value=values.shape)
    return values


def _key(layer: str | None) -> str:
    return "X" if layer is None else f"layers[{layer!r}]"


def holds_screen(path: str | Path) -> bool:
    """Whether a file says that it is a screen in the contract, without reading its values."""
    path = Path(path)
    if path.suffix == ".zarr":
        return (path / "uns" / "pertbase").is_dir()
    import h5py

    try:
        with h5py.File(path, "r") as store:
            return "uns" in store and "pertbase" in store["uns"]
    except BROKEN:
        return False
