"""A checkpoint that is damaged, or speaks of one that is gone, is refused by name; what is told to be done works."""

from __future__ import annotations

import shutil

import harness_toy as toy
import numpy as np
import pytest
import torch
from harness_toy import fitted

from pertbase.errors import PertbaseError

CPU = {**toy.CPU, "checkpoint_every": 7}


@pytest.fixture(scope="module")
def stopped(training, tmp_path_factory):
    """The folder of a training that broke in its third epoch, and the state it is gone on from."""
    folder = tmp_path_factory.mktemp("stopped")
    toy.FAIL_AT = 74
    with pytest.raises(RuntimeError, match="told to fail"):
        fitted(training, folder, CPU)
    toy.FAIL_AT = None
    return folder


DAMAGE = {
    "torn": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "overwritten": lambda path: path.write_text("not a checkpoint"),
    "of something else": lambda path: torch.save([1, 2], path),
    "without a part": lambda path: torch.save({"epoch": 1}, path),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
@pytest.mark.parametrize("ended", [False, True], ids=["stopped", "ended"])
def test_a_damaged_checkpoint_is_refused_by_name_and_the_remedy_trains(
    name, damage, ended, stopped, undisturbed, training, inputs, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed[0] if ended else stopped, folder)
    (path,) = folder.rglob(name)
    DAMAGE[damage](path)
    if (name, damage) != ("last.ckpt", "gone"):  # then there is nothing to go on from, and training begins anew
        with pytest.raises(PertbaseError) as told:
            fitted(training, folder, toy.CPU if ended else CPU)
        assert (told.value.file, told.value.remedy) == (
            str(path), f"remove {path.parent}; the same command then trains anew"
        )  # fmt: skip
        assert "diverged" not in str(told.value)
        shutil.rmtree(path.parent)
    again = fitted(training, folder, CPU)
    assert np.array_equal(again.predict(inputs).values, undisturbed[1].values)


def test_a_file_that_a_training_was_told_of_is_part_of_its_key(training, tmp_path):
    table = tmp_path / "known.txt"
    table.write_text("one")

    class Told(toy.Shift):
        def __init__(self, *, table, **options):
            super().__init__(**options)
            self.table = table

    def key() -> str:
        return Told(table=str(table)).training_key(training)

    first = key()
    assert key() == first
    table.write_text("two")
    assert key() != first
