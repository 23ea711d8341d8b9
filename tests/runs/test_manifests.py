"""Manifests: the folds behind a published table are told from every other fold, by whoever makes them again."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.folds import FoldSpec, Manifest, PinnedFold

SHIPPED = Path(str(resources.files("pertbase.conf"))) / "manifest"


@pytest.fixture(scope="module")
def fold(maker):  # type: ignore[no-untyped-def]
    return maker.draw(FoldSpec(kind="combinatorial"))


@pytest.fixture(scope="module")
def pinned(fold) -> PinnedFold:  # type: ignore[no-untyped-def]
    return PinnedFold.of(fold, data="simulated")


def test_the_folds_shipped_for_the_simulated_screen_are_those_it_makes(maker) -> None:  # type: ignore[no-untyped-def]
    shipped = Manifest.read(SHIPPED / "simulated.yaml")
    assert len({one.spec.kind for one in shipped.folds}) == len(shipped.folds) == 8
    for one in shipped.folds:
        assert one.differences(maker.draw(one.spec)) == []


@pytest.mark.parametrize("name", ["gears_norman", "perturbqa", pytest.param("real_screens", marks=pytest.mark.slow)])
def test_the_folds_shipped_for_real_tables_are_those_their_data_make(name, pertbase, real_data, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, out, _ = pertbase("folds", "check", f"manifest={name}")
    assert code == 0, out
    count = len(Manifest.read(SHIPPED / f"{name}.yaml").folds)
    assert out.count("the same: ") == count
    assert f"{count} of {count} folds are the same" in out


def test_every_shipped_manifest_is_of_data_that_can_be_named() -> None:
    from pertbase.folds import data_names

    for path in SHIPPED.glob("*.yaml"):
        assert {one.data for one in Manifest.read(path).folds} <= set(data_names())


def test_the_folds_of_the_readmes_table_are_shipped() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"experiment=simple fold=([\w,]+)", text)
    shipped = {one.spec.name for one in Manifest.read(SHIPPED / "simulated.yaml").folds}
    assert len(named.split(",")) == 3
    assert set(named.split(",")) <= shipped


def test_a_manifest_comes_back_as_it_was_written(pinned: PinnedFold, tmp_path: Path) -> None:
    made = Manifest("a table: mine", (pinned, replace(pinned, hash="0" * 64)))
    made.write(tmp_path / "m.yaml")
    assert Manifest.read(tmp_path / "m.yaml") == made
    assert (tmp_path / "m.yaml").read_text().startswith("# a table: mine\n")
    assert made.find(pinned.hash) == pinned
    assert made.find("1") is None


def _moved(table: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    changed = table.copy()
    changed[column] = changed[column].astype(object)
    changed.loc[changed.index[-1], column] = value
    return changed


def test_one_changed_row_of_any_table_is_told(pinned: PinnedFold, fold) -> None:  # type: ignore[no-untyped-def]
    assert pinned.differences(fold) == []
    last = fold.questions["outcome"].iloc[-1]
    other = "down" if last == "up" else "up"
    told = pinned.differences(replace(fold, questions=_moved(fold.questions, "outcome", other)))
    assert "the questions are not those of the manifest" in told
    assert any(line.startswith("test holds ") for line in told)
    told = pinned.differences(replace(fold, questions=_moved(fold.questions, "id", "another")))
    assert told == ["the questions are not those of the manifest"]
    told = pinned.differences(replace(fold, conditions=_moved(fold.conditions, "regime", "another")))
    assert told == ["the conditions are not those of the manifest"]
    told = pinned.differences(replace(fold, controls=_moved(fold.controls, "role", "input")))
    assert told == ["the controls are not those of the manifest"] or fold.controls["role"].iloc[-1] == "input"


def test_what_may_differ_in_the_last_bits_between_machines_is_not_told(pinned: PinnedFold, fold) -> None:  # type: ignore[no-untyped-def]
    shifted = fold.questions.assign(effect=fold.questions["effect"] * (1 + 1e-12))
    power = fold.conditions.assign(power=fold.conditions["power"] * (1 + 1e-12))
    assert pinned.differences(replace(fold, questions=shifted, conditions=power)) == []


def test_another_seed_and_another_data_set_are_told(pinned: PinnedFold, fold, maker) -> None:  # type: ignore[no-untyped-def]
    told = pinned.differences(maker.draw(FoldSpec(kind="combinatorial", seed=1)))
    assert told[0].startswith("the fold's hash is ")
    assert "the conditions are not those of the manifest" in told
    (told,) = pinned.differences(replace(fold, data_hash="f" * 64))
    assert told.startswith("the data set is another: ffffffffffff here")


def test_a_manifest_of_ones_own_folds_is_written_and_checked(
    pertbase, small_screen: Path, finished: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    own = tmp_path / "mine.yaml"
    data = ["data=h5ad", f"data.path={small_screen}", "data.name=small"]
    code, out, err = pertbase("folds", "manifest", *data, "fold=combinatorial", f"output={own}", "title=My table")
    assert code == 0, err
    code, out, err = pertbase("folds", "check", f"manifest={own}", *data[1:])
    assert code == 0, out + err
    assert "My table: 1 of 1 folds are the same" in out

    code, out, _ = pertbase("folds", "check", f"manifest={own}", data[1], "data.name=other")
    assert code == 1
    assert "the fold's hash is " in out
    code, out, _ = pertbase("folds", "check", f"manifest={own}")
    assert code == 1
    assert "not checked: combinatorial of small: " in out

    (folder,) = [path for path in (finished / "_folds").iterdir() if path.is_dir()]
    code, out, _ = pertbase("folds", "check", f"manifest={own}", f"fold_dir={folder}")
    assert code == 0, out
    assert "the same: combinatorial of small" in out
    code, out, _ = pertbase("folds", "check", "manifest=simulated", f"fold_dir={folder}")
    assert code == 1
    assert "is not among the folds of" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not hold a mapping"),
        ("title: t\nfolds: []\n", "is not a manifest of folds"),
        ("title: t\nfolds:\n- {data: simulated}\n", r"folds\[0\]: lacks keys"),
        ("title: t\nfolds:\n- nothing\n", r"folds\[0\]: lacks keys"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(InputError, match=said):
        Manifest.read(tmp_path / "m.yaml")


def test_a_mistyped_manifest_answers_with_the_nearest(pertbase) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase("folds", "check", "manifest=simulatd")
    assert code == 2
    assert "Did you mean 'simulated'?" in err
