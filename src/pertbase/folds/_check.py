"""The leak check: proves on a fold's tables, by rules of its own, that nothing crosses where it must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pertbase._io import read_yaml
from pertbase.errors import PertbaseError
from pertbase.folds._cells import hash_frame
from pertbase.folds._certificate_view import Certificate
from pertbase.folds._fold import SPLITS, Fold
from pertbase.folds._fold_files import open_fold
from pertbase.folds._labelled import question_ids
from pertbase.folds._path_layer import layer_problems, path_folders
from pertbase.folds._views import AMBIGUOUS

__all__ = ["FoldCheck", "check_fold", "leaks"]


@dataclass(frozen=True)
class FoldCheck:
    """What ``pertbase folds check`` found.

    Parameters
    ----------
    folder
        The fold's.
    problems
        What is wrong; empty for a sound fold.
    checked
        What was looked at.
    certificate
        What the fold can decide.
    """

    folder: Path
    problems: tuple[str, ...]
    checked: tuple[str, ...]
    certificate: Certificate

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_fold(folder: str | Path, *, again: Fold | None = None) -> FoldCheck:
    """Check a fold on its files.

    Parameters
    ----------
    folder
        The fold's.
    again
        The same fold made afresh from its data set, where that is at hand: every table is then compared.
    """
    folder = Path(folder)
    about = read_yaml(folder / "fold.yaml")
    try:
        fold = open_fold(folder)
    except PertbaseError as error:
        return FoldCheck(folder, (str(error),), ("the files can be read",), Certificate({}))
    problems = [*_contents(fold, about), *leaks(fold), *_question_problems(fold)]
    checked = ["content hashes", "disjoint splits", "controls", "questions"]
    if path_folders(folder):
        problems += layer_problems(folder, fold.questions, fold.hash)
        checked.append("paths")
    if again is not None:
        checked.append("made again from the data set")
        problems += _differences(fold, again, about)
    return FoldCheck(folder, tuple(problems), tuple(checked), fold.certificate)


def leaks(fold: Fold) -> list[str]:
    """Return what crosses between splits: target sets, compounds, contexts, control cells; empty where nothing does."""
    return [*_condition_leaks(fold), *_control_leaks(fold)]


def _contents(fold: Fold, about: Mapping[str, Any]) -> Iterator[str]:
    written = about.get("content", {})
    for name, table in (("questions", fold.questions), ("conditions", fold.conditions), ("controls", fold.controls)):
        if hash_frame(table) != written.get(name):
            yield f"{name}.parquet is not what fold.yaml says was written"


def _condition_leaks(fold: Fold) -> Iterator[str]:
    table = fold.conditions
    repeated = table.duplicated(["context", "perturbation"])
    if repeated.any():
        twice = tuple(table.loc[repeated, ["context", "perturbation"]].iloc[0])
        yield f"a condition stands twice in conditions: {twice}"
    of = {split: table.loc[table["split"] == split] for split in SPLITS}
    keys = {split: {fold.perturbations[name].split_key for name in rows["perturbation"]} for split, rows in of.items()}
    units = {
        split: {unit for name in rows["perturbation"] for unit in fold.perturbations[name].units}
        for split, rows in of.items()
    }
    contexts = {split: set(rows["context"]) for split, rows in of.items()}
    modalities = {
        split: {fold.perturbations[name].modality for name in rows["perturbation"]} for split, rows in of.items()
    }

    def shared(what: str, sets: dict[str, set[str]], *pairs: tuple[str, str]) -> Iterator[str]:
        for first, second in pairs:
            common = sets[first] & sets[second]
            if common:
                yield f"{first} and {second} share {what}: {', '.join(sorted(common)[:5])}"

    every = (("train", "val"), ("train", "test"), ("val", "test"))
    kind = fold.kind
    if kind.startswith(("unseen_perturbation", "unseen_both")):
        yield from shared("targets or compounds", units, *every)
    if kind.startswith("unseen_both"):
        yield from shared("contexts", contexts, ("train", "test"), ("val", "test"))
    if kind.startswith("unseen_context"):
        yield from shared("contexts", contexts, ("train", "test"), ("val", "test"))
        if contexts["train"] & contexts["val"]:
            yield from shared("target sets or compounds", keys, ("train", "val"))
    if kind == "genetic_to_chemical":
        if modalities["train"] - {"genetic"} or modalities["test"] - {"chemical"}:
            yield f"train holds {sorted(modalities['train'])} and test {sorted(modalities['test'])} conditions"
        yield from shared("target sets or compounds", keys, *every)
    if kind == "combinatorial":
        yield from shared("target sets", keys, *every)
        single = [
            name
            for split in ("val", "test")
            for name in of[split]["perturbation"]
            if not fold.perturbations[name].is_combination
        ]
        if single:
            yield f"val or test holds a perturbation that is no combination: {single[0]}"
    if kind == "published":
        # A split that holds out whole contexts asks about the same targets in others.
        within = [(first, second) for first, second in every if contexts[first] & contexts[second]]
        if fold.spec.split is None:
            yield from shared("target sets or compounds", keys, *within)
        else:  # few-shot: what a context holds out is trained on in others, and that is what is asked
            yield from shared("target sets or compounds of a context", _keys_by_context(fold, of), *within)


def _keys_by_context(fold: Fold, of: Mapping[str, pd.DataFrame]) -> dict[str, set[str]]:
    return {
        split: {
            f"{fold.perturbations[name].split_key} in {context}"
            for context, name in zip(rows["context"], rows["perturbation"], strict=True)
        }
        for split, rows in of.items()
    }


def _control_leaks(fold: Fold) -> Iterator[str]:
    table = fold.controls
    if table["cell"].duplicated().any():
        yield f"a control cell stands twice: {table.loc[table['cell'].duplicated(), 'cell'].iloc[0]}"
    for split in SPLITS:
        if split not in table.columns:
            continue
        visible = table[split].astype(bool)
        wrong = visible & (table["role"] != "input")
        if wrong.any():
            yield f"{split} may see {int(wrong.sum())} truth controls, for example {table.loc[wrong, 'cell'].iloc[0]}"
        inside = set(fold.conditions.loc[fold.conditions["split"] == split, "context"])
        foreign = sorted(set(table.loc[visible, "context"]) - inside)
        if foreign:
            yield f"{split} may see controls of contexts it has no condition in: {', '.join(foreign)}"


def _question_problems(fold: Fold) -> Iterator[str]:
    table = fold.questions
    if table["id"].duplicated().any():
        yield f"an id stands twice: {table.loc[table['id'].duplicated(), 'id'].iloc[0]}"
    placed = fold.conditions.set_index(["context", "perturbation"])["split"]
    expected = placed.reindex(pd.MultiIndex.from_frame(table[["context", "perturbation"]])).to_numpy()
    astray = expected != table["split"].to_numpy()
    if astray.any():
        row = table.loc[astray].iloc[0]
        example = f"{row['id']} in {row['split']}"
        yield f"{int(astray.sum())} questions are in another split than their condition, for example {example}"
    unnamed = table["outcome"].isna() != (table["regime"] == AMBIGUOUS)
    if unnamed.any():
        yield f"{int(unnamed.sum())} questions have no outcome and are not ambiguous, or the reverse"
    for (context, name), rows in table.groupby(["context", "perturbation"], observed=True, sort=False):
        genes = rows["gene"].to_numpy()
        ids = question_ids(fold.data, fold.spec.rule, str(context), str(name), genes)
        if not np.array_equal(np.asarray(ids, dtype=object), rows["id"].to_numpy(dtype=object)):
            yield f"ids of {name} in {context} are not the hashes of what is asked"
        own = set(genes) & set(fold.perturbations[str(name)].targets)
        if own:
            yield f"{name} in {context} is asked about its own target {sorted(own)[0]}"


def _differences(fold: Fold, again: Fold, about: Mapping[str, Any]) -> Iterator[str]:
    if again.data_hash != fold.data_hash:
        yield f"the data set at hand is not the fold's: {again.data_hash[:12]} instead of {fold.data_hash[:12]}"
        return
    if again.hash != fold.hash:
        yield f"the fold made again has another hash: {again.hash[:12]} instead of {fold.hash[:12]}"
    for name in ("conditions", "controls"):
        if hash_frame(getattr(again, name)) != about.get("content", {}).get(name):
            yield f"{name} differ from those made again from the data set"
    # Effects and p-values may differ in the last bits between machines; who is asked what may not.
    columns = ["id", "split", "regime", "outcome"]
    if hash_frame(again.questions[columns]) != hash_frame(fold.questions[columns]):
        yield "questions differ from those made again from the data set"
