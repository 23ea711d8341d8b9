"""Columns of somebody else's obs: what a screen is not made from is said, and what may be a batch is named."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from pertbase.folds import prepare

ASKED = {"perturbation": "what", "control": "ctrl", "context": "line", "mechanism": "CRISPRi"}
CELLS = 480


def study(**columns: object) -> ad.AnnData:
    """Return cells of two lines under three perturbations and control, with these columns besides."""
    rng = np.random.default_rng(0)
    obs = pd.DataFrame(
        {"what": np.resize(["ctrl", "G1", "G2", "G3"], CELLS), "line": np.repeat(["a", "b"], CELLS // 2), **columns},
        index=[f"cell{i}" for i in range(CELLS)],
    )
    values = rng.poisson(2.0, (CELLS, 30)).astype(np.float32)
    return ad.AnnData(values, obs, pd.DataFrame(index=[f"G{i}" for i in range(30)]))


def told(adata: ad.AnnData, **options: str) -> str:
    return str(prepare(adata, name="s", **ASKED, **options)[1])


# Drawn over conditions, as lanes are.
LANE = np.random.default_rng(1).choice(["l1", "l2", "l3"], CELLS)


def test_a_column_that_is_not_used_is_said_and_one_that_is_used_is_not() -> None:
    adata = study(lane=LANE, quality=np.linspace(0, 1, CELLS), note="same")
    text = told(adata, keep="quality>=0", batch="lane")
    assert "not used: note\n" in text
    assert "may be a batch" not in text
    assert "not used" not in told(study())


def test_few_values_crossed_with_conditions_may_be_a_batch() -> None:
    text = told(study(lane=LANE, replicate=np.resize([1, 1, 1, 1, 2, 2, 2, 2], CELLS)))
    assert "not used: lane, replicate\n" in text
    assert "may be a batch (few values, each with controls and several perturbations): lane, replicate; say" in text
    assert "may be a batch" not in told(study(lane=LANE), batch="none")


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(np.arange(CELLS) / 7, id="a number of its own for each cell"),
        pytest.param([f"barcode{i}" for i in range(CELLS)], id="a name for each cell"),
        pytest.param("one", id="a constant"),
        pytest.param(np.repeat(["A", "B"], CELLS // 2), id="another name of the context"),
        pytest.param(np.resize(["no", "yes", "yes", "yes"], CELLS), id="whether it was perturbed"),
        pytest.param(np.resize(["-", "x", "y", "z"], CELLS), id="another name of the perturbation"),
        pytest.param(np.where(np.arange(CELLS) < 5, None, LANE), id="with gaps"),
    ],
)
def test_what_is_not_crossed_with_conditions_is_not_taken_for_a_batch(column: object) -> None:
    text = told(study(column=column))
    assert "not used: column\n" in text
    assert "may be a batch" not in text


def test_many_columns_are_counted_rather_than_listed() -> None:
    text = told(study(**{f"extra{number:02}": "x" for number in range(25)}))
    assert "extra19 and 5 more" in text
    assert "extra20" not in text
