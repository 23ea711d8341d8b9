"""Split files of cell-load: read as folds, with an error wherever cell-load is silent, and written."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pertbase.cli import main
from pertbase.errors import InputError
from pertbase.folds import Fold, FoldMaker, FoldSpec, Perturbation, SplitFile, check_fold, read_split, write_split

SPLIT = """
[datasets]
made_up = "/data/made_up"

[training]
made_up = "train"

[zeroshot]
"made_up.K" = "test"

[fewshot."made_up.L"]
val = ["{val}"]
test = ["{test}"]
"""


@pytest.fixture(scope="module")
def few(simulated):
    """Three contexts, and single genetic perturbations alone."""
    single = {
        name for name, item in simulated.perturbations.items() if item.modality == "genetic" and len(item.parts) == 1
    }
    wanted = set(sorted(single)[:20])
    obs = simulated.obs
    inside = obs["context"].isin(simulated.contexts[:3])
    screen = simulated.subset((inside & (obs["is_control"] | obs["perturbation"].isin(wanted))).to_numpy())
    names = dict(zip(screen.contexts, ("K", "L", "M.2"), strict=True))
    return replace(screen, obs=screen.obs.assign(context=screen.obs["context"].map(names)), name="made_up")


@pytest.fixture(scope="module")
def maker(few) -> FoldMaker:
    return FoldMaker(few)


def placed(maker: FoldMaker, path: str | Path) -> pd.DataFrame:
    """Return the conditions as a split file places them."""
    return maker.split(FoldSpec.from_dict({"kind": "published", "split": path}))[1]


@pytest.fixture(scope="module")
def held(few) -> tuple[str, str]:
    """Two perturbations of L, without their mechanism."""
    names = few.conditions.loc[few.conditions["context"] == "L", "perturbation"]
    labels = [few.perturbations[name].parts[0].label for name in names]
    unique = [label for label in labels if labels.count(label) == 1]
    return unique[0], unique[1]


@pytest.fixture
def split_file(tmp_path, held):
    path = tmp_path / "mine.toml"
    path.write_text(SPLIT.format(val=held[0], test=held[1]))
    return path


def test_a_split_file_is_a_fold(few, maker, held, split_file, tmp_path):
    spec = FoldSpec.from_dict({"kind": "published", "split": str(split_file)})
    fold = maker.build(spec, tmp_path / "folds")
    used = fold.conditions.loc[fold.conditions["split"] != "dropped"]
    assert set(used.loc[used["context"] == "K", "split"]) == {"test"}
    assert set(used.loc[used["context"] == "M.2", "split"]) == {"train"}
    within = used.loc[used["context"] == "L"].set_index("perturbation")["split"]
    for label, expected in zip(held, ("val", "test"), strict=True):
        (name,) = [name for name in within.index if few.perturbations[name].parts[0].label == label]
        assert within.pop(name) == expected
    assert set(within) == {"train"}
    assert fold.name == "published_mine"
    assert set(fold.questions.loc[fold.questions["split"] == "test", "regime"]) >= {"perturbation_seen"}
    assert fold.certificate["disjoint"]
    assert check_fold(fold.folder).problems == ()


def test_the_fold_is_what_the_file_says_and_not_where_it_lies(maker, split_file, tmp_path):
    spec = FoldSpec.from_dict({"kind": "published", "split": split_file})
    (tmp_path / "elsewhere").mkdir()
    again = split_file.rename(tmp_path / "elsewhere" / "mine.toml")
    assert maker.hash(FoldSpec.from_dict({"kind": "published", "split": again})) == maker.hash(spec)
    assert FoldSpec.from_dict(spec.to_dict()) == spec
    assert "split" not in FoldSpec(kind="published").to_dict()
    again.write_text(again.read_text().replace('"made_up.K"', '"made_up.M.2"'))
    assert maker.hash(FoldSpec.from_dict({"kind": "published", "split": again})) != maker.hash(spec)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[zeroshot]", "[zero_shot]"), "did you mean 'zeroshot'"),
        (('"made_up.K"', '"made_up.k"'), "unknown context of the split.*did you mean 'K'"),
        (('"made_up.K"', "made_up.K"), "in quotes"),
        (('"made_up.K"', '"other.K"'), "names no context of the data set"),
        (('"made_up.K" = "test"', '"made_up.K" = "train"'), "leave out what is trained on"),
        (('test = ["', 'train = ["'), "cell-load ignores it"),
        (('test = ["', 'test = ["nothing", "'), "unknown perturbation of the split"),
        (('val = ["', '# val = ["'), "holds nothing out for val.*selected on test"),
        (('made_up = "train"', ""), "one data set"),
        (('made_up = "train"', 'made_up = "train"\nother = "train"'), "one data set"),
        (('made_up = "train"', 'made_up = "test"'), "is trained on"),
        (('fewshot."made_up.L"', 'fewshot."made_up.K"'), "whole and in part"),
        (("[datasets]", "[datasets"), "cannot be read as TOML"),
    ],
)
def test_what_cell_load_is_silent_about_is_an_error(maker, split_file, change, told):
    text = split_file.read_text()
    assert change[0] in text
    split_file.write_text(text.replace(*change))
    with pytest.raises(InputError, match=f"(?i){told}"):
        placed(maker, split_file)


def test_a_perturbation_held_out_twice_and_an_absent_file_are_errors(split_file, held, tmp_path):
    split_file.write_text(SPLIT.format(val=held[0], test=held[0]))
    with pytest.raises(InputError, match="listed twice"):
        read_split(split_file)
    with pytest.raises(InputError, match="no such file"):
        read_split(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="is of published folds"):
        FoldSpec(kind="combinatorial", split=SplitFile("x", (("K", "test"), ("L", "val")), ()))


def test_a_label_that_means_two_perturbations_is_an_error():
    rows = pd.DataFrame({"context": ["K", "K", "L"], "perturbation": ["CRISPRi:A", "CRISPRa:A", "CRISPRi:A"]})
    known = {name: Perturbation.genetic(["A"], name.split(":")[0]) for name in ("CRISPRi:A", "CRISPRa:A")}
    split = SplitFile("x", (("L", "val"),), (("K", "A", "test"),))
    with pytest.raises(InputError, match=r"(?i)write one of CRISPRa:A, CRISPRi:A"):
        split.assign(rows, known)
    by_name = SplitFile("x", (("L", "val"),), (("K", "CRISPRi:A", "test"),))
    assert by_name.assign(rows, known)[0].tolist() == ["test", "train", "val"]


@pytest.fixture(scope="module")
def some_fold(maker, tmp_path_factory) -> Fold:
    return maker.build(FoldSpec(kind="unseen_perturbation_genetic"), tmp_path_factory.mktemp("folds"))


@pytest.mark.parametrize("kind", ["unseen_context_genetic", "unseen_perturbation_genetic", "unseen_both_genetic"])
def test_a_written_split_trains_on_the_same_conditions(maker, some_fold, kind, tmp_path):
    fold = replace(some_fold, conditions=maker.split(FoldSpec(kind=kind))[1])
    write_split(fold, tmp_path / "split.toml", data_folder="/data")
    tables = (fold.conditions, placed(maker, tmp_path / "split.toml"))
    first, second = (table.set_index(["context", "perturbation"])["split"] for table in tables)
    for split in ("train", "val"):
        assert set(first.index[first == split]) == set(second.index[second == split])
    assert set(first.index[first == "test"]) <= set(second.index[second == "test"])
    about = tomllib.loads((tmp_path / "split.toml").read_text())
    assert about["datasets"] == {fold.data: "/data"}
    assert about["training"] == {fold.data: "train"}


def test_what_is_left_out_is_never_trained_on_by_others(some_fold, tmp_path):
    table = some_fold.conditions
    test = table.index[table["split"] == "test"][0]
    split = table["split"].to_numpy(dtype=object).copy()
    target = table.loc[test, "target_set"]
    others = table.index[(table["target_set"] == target)]
    split[others[1:]] = "dropped"
    split[np.flatnonzero(split == "train")[0]] = "unused"
    changed = replace(some_fold, conditions=table.assign(split=split))
    write_split(changed, tmp_path / "split.toml")
    held = set(read_split(tmp_path / "split.toml").conditions)
    for row in [*others[1:], *np.flatnonzero(split == "unused")]:
        assert (table.loc[row, "context"], table.loc[row, "perturbation"], "test") in held


def test_splits_are_written_and_read_from_the_command_line(some_fold, tmp_path, capsys):
    assert main(["folds", "split", f"fold_dir={some_fold.folder}", f"output={tmp_path / 'split.toml'}"]) == 0
    assert "split written to" in capsys.readouterr().out
    assert read_split(tmp_path / "split.toml").name == "split"
