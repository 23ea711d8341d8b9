"""Runs as notebooks read them: one by its folder, or all below one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pertbase.errors import InputError
from pertbase.runs._reports._report import Report, collect
from pertbase.runs._store import Run, is_folder

__all__ = ["read_run", "read_runs"]

_SHOWN = 10


def read_run(folder: str | Path) -> Run:
    """Return one run by its folder, ``<runs>/<data>/<fold>/<name>/seed<n>``; its parts are read when asked for.

    Raises
    ------
    InputError
        Where the folder holds no run; runs below it are named.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise InputError("there is no such folder", file=folder, key="folder", remedy="name the folder of a run")
    if (folder / "config.yaml").is_file():
        return Run(folder)
    below = sorted(
        str(path.parent.relative_to(folder))
        for depth in range(1, 5)
        for path in folder.glob("/".join(["*"] * depth + ["config.yaml"]))
        if path.parent.name.startswith("seed")
    )
    if not below:
        raise InputError("holds no run", file=folder, key="folder", remedy="run something first, with pertbase run")
    more = f" and {len(below) - _SHOWN} more" if len(below) > _SHOWN else ""
    raise InputError(
        "is no run, but holds some",
        file=folder,
        key="folder",
        remedy=f"name one of {', '.join(below[:_SHOWN])}{more}, or read all with read_runs",
    )


def read_runs(folder: str | Path = "runs", *, data: str | Sequence[str] = (), fold: str | Sequence[str] = ()) -> Report:
    """Return all runs below a folder, as ``pertbase report`` shows them.

    ``report["FOLD"]`` is the table of a fold, ``report["FOLD"]["NAME"]`` a run.

    Parameters
    ----------
    folder
        What ``runs=`` named.
    data, fold
        Names to keep; all where not given.

    Raises
    ------
    InputError
        Where there is no run, or runs of one name were made on folds with different content.
    """
    names = ([one] if isinstance(one, str) else list(one) for one in (data, fold))
    of_data, of_fold = names
    return collect(folder, data=of_data, fold=of_fold)
