"""Folds and runs that were damaged: refused by every command with the file, or made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from small_runs import Pertbase


def _edit(key: str, value: Any = None, *, drop: bool = False) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        about = yaml.safe_load((folder / "fold.yaml").read_text())
        if drop:
            del about[key]
        else:
            about[key] = value
        (folder / "fold.yaml").write_text(yaml.safe_dump(about))

    return change


def _cut(name: str, share: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def _other_columns(name: str) -> Callable[[Path], None]:
    return lambda folder: pd.DataFrame({"a": [1]}).to_parquet(folder / name)


FILES = ("questions.parquet", "conditions.parquet", "controls.parquet", "perturbations.parquet")
DAMAGED_FOLDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    **{f"{name} cut": (_cut(name, 0.5), name) for name in (*FILES, "effects.h5ad")},
    **{f"{name} empty": (_cut(name, 0), name) for name in (*FILES, "effects.h5ad", "fold.yaml")},
    **{f"{name} gone": (lambda folder, name=name: (folder / name).unlink(), name) for name in FILES},
    **{f"{name} with other columns": (_other_columns(name), name) for name in FILES},
    **{
        f"fold.yaml without {key}": (_edit(key, drop=True), key)
        for key in ("format", "name", "data", "hash", "data_hash", "simulated", "spec", "notes", "certificate")
    },
    **{f"fold.yaml cut to {share:.0%}": (_cut("fold.yaml", share), "fold.yaml") for share in (0.2, 0.5, 0.8, 0.9)},
    "fold.yaml without a kind": (_edit("spec", {}), "fold.kind"),
    "fold.yaml without a spec": (_edit("spec"), "a fold is a mapping"),
}


@pytest.mark.parametrize("case", DAMAGED_FOLDS)
def test_damaged_fold_is_refused_by_every_command_with_the_file(
    case: str, pertbase: Pertbase, fold_dir: Path, small_screen: Path, runs: Path
) -> None:
    damage, part = DAMAGED_FOLDS[case]
    folder = runs / "_folds" / fold_dir.name
    damage(folder)
    code, out, err = pertbase("folds", "show", f"fold_dir={folder}")
    assert code == 2
    assert part in err
    code, out, err = pertbase("folds", "check", f"fold_dir={folder}")
    assert code in (1, 2)
    assert part in out + err
    code, out, err = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        "baseline=perturbed_mean", f"runs={runs}",
    )  # fmt: skip
    assert (code, "0 done, 1 failed" in out) == (1, True)
    assert part in out
    assert pertbase("report", f"runs={runs}")[0] in (0, 2)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"{", b"null", b"\xff"])
@pytest.mark.parametrize("name", ["config.yaml", "status.json", "scores.json"])
def test_damaged_run_is_named_or_run_again(
    name: str, content: bytes, pertbase: Pertbase, small_screen: Path, runs: Path
) -> None:
    path = runs / "small" / "combinatorial" / "no_change" / "seed0" / name
    path.write_bytes(content)
    told = name == "config.yaml" and content == b"{}"
    for command in (("status",), ("report",), ("report", "format=html")):
        code, _, err = pertbase(*command, f"runs={runs}")
        assert code in (0, 2)
        assert code == 0 or name in err
    code, out, _ = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        "baseline=no_change", f"runs={runs}",
    )  # fmt: skip
    assert code in (0, 1)
    assert code == 0 or name in out or told
