"""The checkpoints of a training by rewards: each says what belongs to it, and is gone on from whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pertbase._io import read_mapping, write_json
from pertbase.baselines.finetuned._export import first_line
from pertbase.errors import InputError, PertbaseError

__all__ = ["last_checkpoint", "mark_whole", "remove_checkpoints", "saved"]

_WHOLE = "whole.json"
"""Written into a checkpoint when all else of it is there: the step, and name and size of every file."""


def mark_whole(checkpoint: Path, step: int) -> None:
    """Write down that a checkpoint is whole, and what belongs to it."""
    files = {str(path.relative_to(checkpoint)): path.stat().st_size for path in _files(checkpoint)}
    write_json(checkpoint / _WHOLE, {"step": step, "files": files})


def last_checkpoint(folder: Path) -> tuple[int, Path | None]:
    """Return the last step that a folder has a whole checkpoint of, and where; 0 and None where there is none.

    One that was being written when training stopped is passed over.

    Raises
    ------
    PertbaseError
        Where a file of it is gone, or has another size than it had.
    """
    found = [(int(path.parent.name.rpartition("-")[2]), path.parent) for path in folder.glob(f"checkpoint-*/{_WHOLE}")]
    step, checkpoint = max(found, default=(0, None))
    if checkpoint is None:
        return 0, None
    if wrong := _wrong_with(checkpoint):
        before = max((other for other, _ in found if other < step), default=0)
        raise PertbaseError(
            f"this checkpoint is damaged: {wrong}", file=checkpoint,
            remedy=f"remove it; the same command then goes on from step {before}" if before else
            "remove it; the same command then trains anew",
        )  # fmt: skip
    return step, checkpoint


def remove_checkpoints(folder: Path) -> None:
    """Remove what a training that ended no longer goes on from; replies and steps stay."""
    for path in (*folder.glob("checkpoint-*"), folder / "start"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def saved(folder: Path) -> Iterator[None]:
    """Raise what writers of a checkpoint raise on a full disk as an error of ours.

    The half that was written does not say that it is whole, and the checkpoint before it stays.
    """
    from safetensors import SafetensorError
    from torch import OutOfMemoryError

    try:
        yield
    except OutOfMemoryError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        raise PertbaseError(
            f"a checkpoint cannot be written ({getattr(error, 'strerror', None) or first_line(error)})", file=folder,
            remedy="make room; the same command goes on from the last checkpoint that is whole",
        ) from error  # fmt: skip


def _files(checkpoint: Path) -> list[Path]:
    return [path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != _WHOLE]


def _wrong_with(checkpoint: Path) -> str:
    """Return what is wrong with a checkpoint; empty where nothing is."""
    try:
        files = read_mapping(checkpoint / _WHOLE).get("files")
    except InputError as error:
        return f"{_WHOLE} {error.problem}"
    if not isinstance(files, dict):
        return f"{_WHOLE} does not say which files belong to it"
    for name, size in files.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is not there"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes and had {size:,}"
    return ""
