"""A fold's files: round trips, tampering, and what can be reached from what is handed out."""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pertbase._io import read_yaml, write_yaml
from pertbase.errors import InputError
from pertbase.folds import (
    Fold,
    FoldMaker,
    FoldSpec,
    Screen,
    check_fold,
    open_fold,
    read_questions,
    read_truth,
    write_questions,
)

SPEC = FoldSpec(kind="unseen_context_genetic")


@pytest.fixture(scope="module")
def fold(maker: FoldMaker) -> Fold:
    return maker.make(SPEC)


@pytest.fixture
def folder(fold: Fold, tmp_path: Path) -> Path:
    return fold.write(tmp_path / "fold with spaces, = and [brackets]")


def test_a_fold_read_back_is_the_fold_that_was_written(fold: Fold, folder: Path, simulated: Screen) -> None:
    again = open_fold(folder, screen=simulated)
    pd.testing.assert_frame_equal(again.questions, fold.questions)
    pd.testing.assert_frame_equal(again.conditions, fold.conditions, check_dtype=False)
    pd.testing.assert_frame_equal(again.controls, fold.controls, check_dtype=False)
    assert again.effects is not None
    assert fold.effects is not None
    np.testing.assert_array_equal(again.effects.values, fold.effects.values)
    assert again.spec == fold.spec
    assert again.perturbations == dict(fold.perturbations)
    assert again.manifest()["content"] == fold.manifest()["content"]
    assert repr(again) == repr(fold)


def test_a_sound_fold_passes_the_check_also_when_made_again(fold: Fold, folder: Path, simulated: Screen) -> None:
    found = check_fold(folder, again=FoldMaker(simulated).make(SPEC))
    assert found.ok, found.problems


def test_questions_keep_everything_through_jsonl_and_parquet(fold: Fold, tmp_path: Path) -> None:
    questions = fold.questions.head(2000)
    for suffix in (".parquet", ".jsonl"):
        path = tmp_path / f"questions{suffix}"
        write_questions(questions, path)
        again = read_questions(path)
        pd.testing.assert_frame_equal(again[list(questions.columns)], questions, check_exact=suffix == ".parquet")


def test_the_truth_read_alone_is_the_folds(fold: Fold, folder: Path) -> None:
    pd.testing.assert_frame_equal(read_truth(folder).questions, fold.truth.questions)


def test_a_screen_of_other_content_is_refused(folder: Path, simulated: Screen) -> None:
    other = simulated.subset(np.arange(len(simulated.obs) - 1))
    with pytest.raises(InputError, match="not the one the fold was made from"):
        open_fold(folder, screen=other)


def _rewrite(folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], *, cover: bool = False) -> None:
    """Change a table of a fold; with ``cover``, make fold.yaml agree, as somebody who hides it would."""
    path = folder / f"{name}.parquet"
    table = read_questions(path) if name == "questions" else pd.read_parquet(path)
    table = change(table)
    if name == "questions":
        write_questions(table, path)
    else:
        table.to_parquet(path, index=False)
    if cover:
        about = read_yaml(folder / "fold.yaml")
        about["content"] = open_fold(folder).manifest()["content"]
        write_yaml(folder / "fold.yaml", about)


def _first(table: pd.DataFrame, column: str, value: Any) -> int:
    return int(np.flatnonzero((table[column] == value).to_numpy())[0])


def _move_condition(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[_first(table, "split", "test"), "split"] = "train"
    return table


def _flip_outcome(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[_first(table, "outcome", "up"), "outcome"] = "down"
    return table


def _move_question(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[_first(table, "split", "test"), "split"] = "train"
    return table


def _swap_id(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[0, "id"] = "0" * 20
    return table


def _show_truth(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[_first(table, "role", "truth"), "test"] = True
    return table


def _show_foreign(table: pd.DataFrame) -> pd.DataFrame:
    row = int(np.flatnonzero(((table["role"] == "input") & table["test"]).to_numpy())[0])
    table.loc[row, "train"] = True
    return table


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("conditions", _move_condition),
        ("questions", _flip_outcome),
        ("questions", _move_question),
        ("questions", _swap_id),
        ("controls", _show_truth),
        ("controls", _show_foreign),
    ],
)
def test_a_tampered_table_fails_the_check(
    folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    _rewrite(folder, name, change)
    assert any(f"{name}.parquet is not what fold.yaml says" in problem for problem in check_fold(folder).problems)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("conditions", _move_condition, "train and test share contexts"),
        ("questions", _move_question, "in another split than their condition"),
        ("questions", _swap_id, "not the hashes of what is asked"),
        ("controls", _show_truth, "truth controls"),
        ("controls", _show_foreign, "contexts it has no condition in"),
    ],
)
def test_a_leak_is_found_even_where_fold_yaml_was_made_to_agree(
    folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    _rewrite(folder, name, change, cover=True)
    assert any(said in problem for problem in check_fold(folder).problems)


def test_a_changed_outcome_is_found_by_making_the_fold_again(folder: Path, maker: FoldMaker) -> None:
    _rewrite(folder, "questions", _flip_outcome, cover=True)
    assert check_fold(folder).ok
    assert any("questions differ" in problem for problem in check_fold(folder, again=maker.make(SPEC)).problems)


def test_a_fold_is_built_once_per_content(maker: FoldMaker, tmp_path: Path) -> None:
    first = maker.build(SPEC, tmp_path)
    assert first.folder is not None
    written = (first.folder / "fold.yaml").stat().st_mtime_ns
    assert FoldMaker(maker.data).build(SPEC, tmp_path).folder == first.folder
    assert (first.folder / "fold.yaml").stat().st_mtime_ns == written
    assert maker.build(SPEC.with_(seed=3), tmp_path).folder != first.folder


def test_a_fold_that_could_not_be_written_leaves_nothing(fold: Fold, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    with pytest.raises(Exception, match=r"in the way|Not a directory|exists|cannot"):
        fold.write(blocked / "fold")
    with pytest.raises(InputError, match="something of this name"):
        fold.write(blocked)
    assert os.listdir(tmp_path) == ["a file"]


# -- what a baseline can reach -------------------------------------------------------------------------------


def _reachable(*roots: object) -> list[object]:
    """Everything that can be reached from some objects by attributes, items, array bases and closures."""
    seen: dict[int, object] = {}
    stack = list(roots)
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, (type, types.ModuleType, types.BuiltinFunctionType)):
            continue
        if isinstance(item, types.FunctionType):
            stack += [cell.cell_contents for cell in item.__closure__ or ()]
            continue
        seen[id(item)] = item
        stack += gc.get_referents(item)
        base = getattr(item, "base", None) if isinstance(item, np.ndarray) else None
        if base is not None:
            stack.append(base)
    return list(seen.values())


def _tables(found: list[object]) -> list[pd.DataFrame]:
    return [item for item in found if isinstance(item, pd.DataFrame)]


def test_a_baseline_that_tries_cannot_reach_a_test_outcome(maker: FoldMaker, tmp_path: Path) -> None:
    fold = maker.build(SPEC, tmp_path)
    ids = set(fold.truth.questions["id"])
    truth_cells = set(fold.controls.loc[fold.controls["role"] == "truth", "cell"])
    test = fold.conditions.loc[fold.conditions["split"] == "test", ["context", "perturbation"]]
    test_conditions = set(map(tuple, test.to_numpy()))
    assert maker.data.name == "simulated"
    found = _reachable(fold.make_training(seed=0, cells=True), fold.inputs("test"))
    assert len(found) > 1000
    assert not any(isinstance(item, (Fold, Screen, FoldMaker)) for item in found)
    effects = fold.effects
    assert effects is not None
    for table in _tables(found):
        if "id" in table.columns and set(table["id"]) & ids:
            assert not {"outcome", "effect", "p_value", "p_adjusted", "regime", "n_cells"} & set(table.columns)
        if "is_control" in table.columns:
            assert not truth_cells & set(table.index)
            treated = table.loc[~table["is_control"], ["context", "perturbation"]]
            assert not test_conditions & set(map(tuple, treated.to_numpy()))
    # Nor a number of it: no array holds the measured effects of a test condition.
    own = effects.select(test.iloc[:5]).values
    for item in found:
        if (
            isinstance(item, np.ndarray)
            and item.dtype == np.float64
            and item.ndim == 2
            and item.shape[1] == own.shape[1]
        ):
            assert not any((item == row).all(axis=1).any() for row in own)


def test_the_search_for_outcomes_is_not_blind(fold: Fold) -> None:
    found = _reachable(fold)
    assert any("outcome" in table.columns for table in _tables(found))
    assert any(isinstance(item, Screen) for item in found)


def test_val_inputs_of_the_training_hide_what_test_inputs_hide(fold: Fold) -> None:
    assert list(fold.training.inputs("val").questions.columns) == list(fold.inputs("test").questions.columns)
    assert list(fold.training.inputs("val").conditions.columns) == list(fold.inputs("test").conditions.columns)


def test_training_holds_only_train_and_val_cells_and_their_input_controls(fold: Fold) -> None:
    cells = fold.training.cells
    assert cells is not None
    inside = fold.conditions.loc[fold.conditions["split"].isin(("train", "val"))]
    assert len(cells) == int(inside["n_cells"].sum()) + int((fold.controls["train"] | fold.controls["val"]).sum())
    held_out = set(fold.conditions.loc[fold.conditions["split"] == "test", "context"])
    assert not held_out & set(cells.obs["context"])
    basal = fold.training.basal
    assert basal is not None
    assert not held_out & set(basal.index)


def test_regrouped_training_moves_conditions_with_their_questions_and_cells(fold: Fold) -> None:
    training = fold.training
    (group, *_) = training.groups(3)
    moved = training.regroup(group)
    assert set(moved.part("val").conditions["context"]) == set(training.conditions.loc[group, "context"])
    assert len(moved.part("train").questions) + len(moved.part("val").questions) == len(training.questions)
    trained = moved.part("train").cells
    assert trained is not None
    assert not set(trained.obs["context"]) & set(moved.part("val").conditions["context"])


def test_groups_are_disjoint_and_cover_every_condition(fold: Fold) -> None:
    groups = fold.training.groups(5)
    assert np.sum(groups, axis=0).tolist() == [1] * len(fold.training.conditions)
