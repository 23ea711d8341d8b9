"""Screens, and any AnnData, in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pertbase._io import write_aside, write_folder_aside
from pertbase.errors import InputError
from pertbase.folds._hdf5 import write_hdf5
from pertbase.folds._screen import Screen

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["BROKEN", "read_anndata", "read_screen", "unreadable", "write_screen"]

BROKEN = (OSError, RuntimeError, AttributeError, KeyError, IndexError, TypeError, ValueError)
"""What h5py, zarr and anndata raise for files that are truncated, damaged or something else."""


def unreadable(path: str | Path, error: Exception) -> InputError:
    """Return the error for a file that could not be read as AnnData."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"cannot be read as AnnData ({reason})",
        file=path,
        remedy="the file may be empty, truncated or damaged; fetch or write it again",
    )


def read_anndata(path: str | Path) -> AnnData:
    """Read an ``.h5ad`` file or a ``.zarr`` folder.

    Raises
    ------
    InputError
        Where it is absent, empty, truncated or of another format.
    """
    import anndata

    path = Path(path)
    if not path.exists():
        raise InputError(
            "there is no such file",
            file=path,
            remedy="check the path; relative paths start at the working directory",
        )
    try:
        if path.suffix == ".zarr":
            return anndata.read_zarr(path)
        if path.suffix in (".h5ad", ".h5"):
            return anndata.read_h5ad(path)
    except BROKEN as error:
        raise unreadable(path, error) from error
    raise InputError(
        "is neither .h5ad nor .zarr",
        file=path,
        value=path.suffix,
        remedy="write it with AnnData's write_h5ad",
    )


def read_screen(path: str | Path, *, name: str | None = None) -> Screen:
    """Read a screen in the contract from ``.h5ad`` or ``.zarr``.

    Raises
    ------
    InputError
        Where the file cannot be read or breaks the contract.
    """
    return Screen.from_anndata(read_anndata(path), name=name, file=path)


def write_screen(screen: Screen, path: str | Path) -> None:
    """Write a screen as ``.h5ad`` or ``.zarr``, whole or not at all."""
    path = Path(path)
    adata = screen.to_anndata(copy=False)
    if path.suffix == ".h5ad":
        with write_aside(path) as temporary:
            write_hdf5(adata, temporary, compression="gzip")
    elif path.suffix == ".zarr":
        with write_folder_aside(path, replace=True) as temporary:
            adata.write_zarr(temporary)
    else:
        raise InputError("a screen is written as .h5ad or .zarr", file=path, value=path.suffix)
