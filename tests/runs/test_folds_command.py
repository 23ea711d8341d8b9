"""``pertbase folds`` over several folds: composed before anything is made; what cannot be is told by reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from pertbase.folds import KINDS

EVERY = f"fold={','.join(KINDS)}"


def _of(small_screen: Path, *more: str) -> list[str]:
    return ["data=h5ad", f"data.path={small_screen}", "data.name=small", *more]


def test_what_cannot_be_made_is_told_once_a_reason_with_its_folds_counted(pertbase, small_screen, tmp_path) -> None:  # type: ignore[no-untyped-def]
    output = tmp_path / "folds"
    code, out, err = pertbase("folds", "make", *_of(small_screen, EVERY), f"output={output}")
    assert code == 0, err
    made = [place for place in output.iterdir() if place.is_dir()]
    lines = [line for line in out.splitlines() if line.startswith("skipped: ")]
    reasons = [line.split(": ", 2)[2] for line in lines]
    assert len(set(reasons)) == len(reasons) < len(KINDS) - len(made)
    told = sum(1 + int(line.split(" and ")[1].split()[0] if " more: " in line else 0) for line in lines)
    assert told == len(KINDS) - len(made)
    assert out.splitlines()[-1] == f"{len(made)} made, {told} skipped"
    assert "small unseen_perturbation_chemical and " in out
    # A single one that cannot be made says so, and its name.
    code, out, _ = pertbase("folds", "make", *_of(small_screen, "fold=genetic_to_chemical"), f"output={tmp_path / 'n'}")
    assert code == 0
    (line,) = out.splitlines()
    assert line.startswith("skipped: small genetic_to_chemical: it has no chemical perturbations")
    assert not (tmp_path / "n").exists()
    # So does a manifest, which leaves them out.
    code, out, _ = pertbase("folds", "manifest", *_of(small_screen, EVERY), f"output={tmp_path / 'm.yaml'}")
    assert [line for line in out.splitlines() if line.startswith("skipped: ")] == lines
    assert f"{len(made)} folds written to" in out


@pytest.mark.parametrize("action", ["make", "manifest", "difficulty"])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("fold.see=1", "fold.see: unknown option"),
        ("fold.test_share=0.2,2", "fold.test_share: a share lies"),
        ("paths.k=5,0", "paths.k: is a whole number"),
        ("fold=combinatorial,combinatorail", "Did you mean 'combinatorial'"),
    ],
)
def test_a_typo_in_any_fold_is_told_before_anything_is_loaded(
    action, option, said, pertbase, tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    from pertbase.runs._plan import DataShelf

    monkeypatch.setattr(DataShelf, "maker", lambda *_: pytest.fail("a data set was loaded"))
    paths = ["paths=own"] if option.startswith("paths") else []
    output = [] if action == "difficulty" else [f"output={tmp_path / 'out.yaml'}"]
    code, out, err = pertbase("folds", action, "data=simulated", *paths, option, *output)
    assert (code, out) == (2, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_difficulty_of_nothing_is_the_reasons_and_no_empty_table(pertbase, small_screen) -> None:  # type: ignore[no-untyped-def]
    code, out, err = pertbase("folds", "difficulty", *_of(small_screen)[1:], "data=h5ad", "fold=genetic_to_chemical")
    assert code == 0, err
    assert "Empty" not in out
    assert "skipped: small genetic_to_chemical: " in out
