"""Folds are made once for all tests of a process: what a test gets may not hang on which others ran before it."""

from __future__ import annotations

from typing import Any

import pytest

from pertbase.folds import FoldSpec, PathSpec

PLAIN = FoldSpec(kind="unseen_perturbation_genetic")


@pytest.mark.parametrize("changed", [{"paths": PathSpec()}, {"seed": 7}], ids=["paths", "seed"])
@pytest.mark.parametrize("first", ["plain", "changed"])
def test_a_shared_fold_is_the_one_asked_for_whoever_asked_first(  # type: ignore[no-untyped-def]
    maker, simulated, changed: dict[str, Any], first: str
) -> None:
    obs = simulated.obs
    own = type(maker)(simulated.subset((obs["context"] == "S1") & ~obs["perturbation"].str.startswith("drug")))
    specs = {"plain": PLAIN, "changed": PLAIN.with_(**changed)}
    made = {name: own.make(specs[name]) for name in sorted(specs, key=lambda name: name != first)}
    for name, spec in specs.items():
        assert made[name].spec == spec
        assert (made[name].paths is None) == (spec.paths is None)
        assert own.make(spec) is made[name]
