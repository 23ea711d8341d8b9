"""What a fold hands out can be pickled and copied, as other processes and notebooks do, and is the same then."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pertbase._frozen import FrozenMapping
from pertbase.folds import FoldSpec


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, (pd.DataFrame, pd.Series, pd.Index)):
        return bool(first.equals(second))
    if sparse.issparse(first):
        return first.shape == second.shape and (first != second).nnz == 0
    if isinstance(first, np.ndarray):
        return bool(np.array_equal(first, second))
    if is_dataclass(first):
        shown = [field.name for field in fields(first) if not field.name.startswith("_")]
        return all(_same(getattr(first, name), getattr(second, name)) for name in shown)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    return bool(first == second)


@pytest.mark.parametrize(
    "again",
    [lambda item: pickle.loads(pickle.dumps(item)), copy.deepcopy],
    ids=["pickle", "deepcopy"],
)
@pytest.mark.parametrize("what", ["training", "inputs", "truth"])
def test_what_is_handed_out_comes_back_the_same(maker, what: str, again: Callable[[Any], Any]) -> None:  # type: ignore[no-untyped-def]
    fold = maker.make(FoldSpec(kind="combinatorial"))
    given = {"training": fold.training, "inputs": fold.inputs("test"), "truth": fold.truth}[what]
    found = again(given)
    assert found is not given
    assert _same(given, found)
    if what == "training":
        assert isinstance(found.gene_sets, FrozenMapping)
        assert len(found.gene_sets) > 0


def test_a_frozen_mapping_is_a_mapping_that_nobody_writes() -> None:
    source = {"a": 1}
    frozen = FrozenMapping(source)
    source["a"] = 2
    assert frozen == {"a": 1}
    assert {**frozen, "b": 2} == {"a": 1, "b": 2}
    assert repr(frozen) == "FrozenMapping({'a': 1})"
    with pytest.raises(TypeError):
        frozen["a"] = 3  # type: ignore[index]
    with pytest.raises(AttributeError):
        frozen.update(a=3)  # type: ignore[attr-defined]
