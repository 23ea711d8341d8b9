"""The model of another run as a start: ``run:NAME`` is what NAME exported on the same fold with the same seed."""

from __future__ import annotations

from pathlib import Path

from pertbase.baselines.finetuned._export import ABOUT, exported
from pertbase.errors import InputError

__all__ = ["MODEL", "RUN", "is_run", "model_of"]

RUN = "run:"
MODEL = "model"
"""Where in its folder a run exports its model to."""


def is_run(start: str) -> bool:
    """Return whether a start is the model of another run."""
    return start.startswith(RUN)


def model_of(start: str, folder: Path | None) -> Path:
    """Return the folder of the model that another run exported.

    Parameters
    ----------
    start
        ``run:NAME``.
    folder
        Of the run that is to begin with it: ``<runs>/<data>/<fold>/<name>/seed<n>``.

    Raises
    ------
    InputError
        Where there is no such run, it has not exported its model, or that is not what it was when it was exported.
    """
    name = start.removeprefix(RUN)
    if folder is None:
        raise InputError(
            "another run's model is looked for among runs, and this is none", key="start", value=start,
            remedy="give its folder, such as runs/DATA/FOLD/NAME/seed0/model",
        )  # fmt: skip
    found = folder.parents[1] / name / folder.name / MODEL
    itself = not name or folder.parents[1] / name == folder.parent
    if not itself and not (found / ABOUT).is_file() and (found.parent / "status.json").is_file():
        # Its command would say that it is complete.
        raise InputError(
            "the run is here, and its model is not", file=found, key="start", value=start,
            remedy=f"remove {found.parent}, and run {name} again",
        )  # fmt: skip
    if itself or not (found / ABOUT).is_file():
        there = sorted(path.parents[2].name for path in folder.parents[1].glob(f"*/{folder.name}/{MODEL}/{ABOUT}"))
        raise InputError(
            f"no run of that name has a model on this fold with this seed; there is {', '.join(there) or 'none'}",
            file=found,
            key="start",
            value=start,
            remedy=f"run it first, with the same fold, seed and runs folder: baseline={name or 'sft_reasoned'}",
        )
    try:
        exported(found)
    except InputError as error:
        raise InputError(
            error.problem, file=found, key="start", value=start, remedy=f"remove {found.parent}, and run {name} again"
        ) from error
    return found
