"""Reading a fold's folder: the whole of it, what a scorer needs, or its manifest alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._io import read_json, read_parquet, read_yaml
from pertbase.errors import InputError
from pertbase.folds._certificate_view import Certificate
from pertbase.folds._effects import Effects
from pertbase.folds._fold import FORMAT, Fold
from pertbase.folds._path_layer import PathLayer, path_folders, read_paths
from pertbase.folds._perturbation import perturbations_from_table
from pertbase.folds._question_files import read_questions
from pertbase.folds._screen import Screen
from pertbase.folds._spec import FoldSpec
from pertbase.folds._views import Truth

__all__ = ["open_fold", "read_manifest", "read_truth"]

_AGAIN = "remove the folder, and make it again with `pertbase folds make`"
_MANIFEST = (
    "name", "data", "simulated", "hash", "data_hash", "total", "spec", "notes", "content", "certificate",
)  # fmt: skip
_CERTIFICATE = ("questions", "ceiling", "priors", "smallest_difference", "ranks_baselines", "verdict")
_CONDITIONS = (
    "context", "perturbation", "modality", "mechanism", "targets", "target_set", "n_parts", "n_cells", "n_up", "n_down",
    "split", "regime",
)  # fmt: skip


def read_truth(folder: str | Path, *, split: str | tuple[str, ...] = "test", paths: str | None = None) -> Truth:
    """Read the questions of one split, or several, with their outcomes, and no effects: what a scorer of answers needs.

    Parameters
    ----------
    folder
        The fold's.
    split
        One or several.
    paths
        Which of the paths laid over it to join; see :func:`pertbase.folds.read_paths`. Not given: those there are,
        where they were chosen in one way alone.

    Raises
    ------
    InputError
        Where the folder is no fold, or has no such paths.
    """
    folder = Path(folder)
    about = read_manifest(folder)
    questions = _questions(folder)
    splits = (split,) if isinstance(split, str) else split
    questions = questions.loc[questions["split"].isin(splits)].reset_index(drop=True)
    layer = _paths(folder, paths)
    questions = questions if layer is None else layer.join(questions)
    file = folder / "perturbations.parquet"
    return Truth(
        questions=questions,
        name=about["name"],
        hash=about["hash"],
        simulated=bool(about["simulated"]),
        perturbations=perturbations_from_table(_table(folder, "perturbations"), file=str(file)),
    )


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Read a fold's ``fold.yaml``.

    Raises
    ------
    InputError
        Where the folder is no fold, or the file was cut off.
    """
    folder = Path(folder)
    if not (folder / "fold.yaml").exists():
        raise _no_fold(folder)
    about = read_yaml(folder / "fold.yaml")
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(
            "is not a fold of this format",
            file=folder / "fold.yaml",
            key="format",
            value=about.get("format") if isinstance(about, dict) else about,
            remedy=_AGAIN,
        )
    certificate = about.get("certificate")
    missing = [key for key in _MANIFEST if key not in about]
    if certificate:
        # The last of the file, so that what is missing was cut off.
        missing += [f"certificate.{key}" for key in _CERTIFICATE if key not in certificate]
    if missing:
        raise InputError("lacks keys", file=folder / "fold.yaml", key=", ".join(missing), remedy=_AGAIN)
    return about


def _no_fold(folder: Path) -> InputError:
    """Return the error for a folder without a fold, naming those below it: the folder of runs is the likeliest slip."""
    below = sorted(
        path.parent.relative_to(folder) for path in (*folder.glob("*/fold.yaml"), *folder.glob("*/*/fold.yaml"))
    )
    if not below:
        return InputError("there is no such file", file=folder / "fold.yaml", remedy="name the folder of a fold")
    listed = ", ".join(str(path) for path in below[:20]) + (f" and {len(below) - 20} more" if len(below) > 20 else "")
    return InputError("is no fold, but holds some", file=folder, key="fold_dir", remedy=f"name one of {listed}")


def _questions(folder: Path) -> pd.DataFrame:
    questions = read_questions(folder / "questions.parquet")
    _require(questions, ("split", "regime", "target_set"), folder / "questions.parquet")
    return questions


def _table(folder: Path, name: str, columns: tuple[str, ...] = ()) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    table: pd.DataFrame = read_parquet(path, remedy=_AGAIN)
    _require(table, columns, path)
    return table


def _require(table: pd.DataFrame, columns: tuple[str, ...], path: Path) -> None:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            "lacks columns", file=path, key=", ".join(missing), value=list(map(str, table.columns)), remedy=_AGAIN
        )


def _paths(folder: Path, name: str | None) -> PathLayer | None:
    """Return the named paths, or the only ones there are."""
    return read_paths(folder, name=name) if name is not None or len(path_folders(folder)) == 1 else None


def open_fold(folder: str | Path, *, screen: Screen | None = None, paths: str | None = None) -> Fold:
    """Read a fold from its folder.

    Parameters
    ----------
    folder
        What :meth:`Fold.write` wrote.
    screen
        Its cells, for baselines that are trained on cells.
    paths
        Which of the paths laid over it to read; see :func:`pertbase.folds.read_paths`. Not given: those there are,
        where they were chosen in one way alone.

    Raises
    ------
    InputError
        Where the folder is no fold, has no such paths, or the screen is not the one it was made from.
    """
    folder = Path(folder)
    about = read_manifest(folder)
    if screen is not None and screen.hash != about["data_hash"]:
        raise InputError(
            "the screen is not the one the fold was made from",
            file=folder / "fold.yaml",
            key="data_hash",
            value=screen.hash[:12],
            remedy=f"the fold needs {about['data']} with hash {about['data_hash'][:12]}",
        )
    layer = _paths(folder, paths)
    has_effects = (folder / "effects.h5ad").exists()
    effects = Effects.read(folder / "effects.h5ad") if has_effects else None
    genes = effects.genes if effects is not None else pd.Index(read_json(folder / "genes.json"), name="gene")
    return Fold(
        spec=FoldSpec.from_dict(about["spec"]).with_(paths=None if layer is None else layer.spec),
        data=about["data"],
        data_hash=about["data_hash"],
        hash=about["hash"],
        questions=_questions(folder),
        conditions=_table(folder, "conditions", _CONDITIONS),
        controls=_table(folder, "controls", ("cell", "context", "batch", "role")),
        perturbations=perturbations_from_table(
            _table(folder, "perturbations"), file=str(folder / "perturbations.parquet")
        ),
        genes=genes,
        effects=effects,
        simulated=bool(about["simulated"]),
        total=about["total"],
        notes=tuple(about["notes"]),
        certificate=Certificate(about["certificate"] or {}),
        screen=screen,
        folder=folder,
        paths=layer,
    )
