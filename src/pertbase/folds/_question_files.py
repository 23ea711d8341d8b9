"""Questions as files: Parquet with dictionary columns, or JSON lines."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pertbase._io import read_jsonl, read_parquet, write_aside, write_jsonl
from pertbase.errors import InputError
from pertbase.folds._shipped_paths import plain_paths

__all__ = ["read_questions", "write_questions"]

_CATEGORIES = (
    "fold",
    "split",
    "regime",
    "context",
    "perturbation",
    "mechanism",
    "targets",
    "target_set",
    "gene",
    "outcome",
)
_NUMBERS = ("effect", "p_value", "p_adjusted")
_PATHS = ("candidate_paths", "reference_paths")


def write_questions(questions: pd.DataFrame, path: str | Path) -> None:
    """Write questions as Parquet (dictionary columns) or JSONL."""
    path = Path(path)
    with write_aside(path) as temporary:
        if path.suffix == ".parquet":
            questions.astype({name: "category" for name in _CATEGORIES if name in questions}).to_parquet(
                temporary, index=False
            )
        elif path.suffix == ".jsonl":
            write_jsonl(questions, temporary)
        else:
            raise InputError("questions are written as .parquet or .jsonl", file=path, value=path.suffix)


def read_questions(path: str | Path) -> pd.DataFrame:
    """Read questions from Parquet or JSONL.

    Raises
    ------
    InputError
        Where the file cannot be read or lacks a column.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    try:
        table = read_jsonl(path) if path.suffix == ".jsonl" else read_parquet(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=path) from error
    missing = [name for name in ("id", "context", "perturbation", "gene", "outcome") if name not in table.columns]
    if missing:
        raise InputError("questions lack columns", file=path, key=", ".join(missing), value=list(table.columns))
    for name in ("id", *_CATEGORIES):
        if name in table.columns:
            column = table[name].astype(object)
            table[name] = column.where(column.notna(), None)
    for name in _PATHS:
        if name in table.columns:
            table[name] = plain_paths(table[name])
    for name in _NUMBERS:
        if name in table.columns:
            try:
                table[name] = table[name].astype("float64")
            except (TypeError, ValueError) as error:
                raise InputError(f"holds something else than numbers ({error})", file=path, key=name) from error
    return table
