"""The page ranks where the certificate does, and says where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_reader import Page, edit, short, without_style

from pertbase.errors import InputError
from pertbase.runs import collect
from pertbase.runs._reports._page import picture


def _refuse(runs: Path) -> None:
    (manifest,) = (runs / "_folds").glob("*/fold.yaml")

    def change(content: dict) -> None:
        content["certificate"] |= {"ranks_baselines": False, "verdict": "cannot rank baselines: too few & none"}

    edit(manifest, change)


def test_baselines_are_not_ranked_where_the_certificate_refuses(copied: Path) -> None:
    _refuse(copied)
    shown = short(copied)
    _, rows = shown.table("scores on")
    assert list(rows) == sorted(rows)
    assert "replicate ceiling" not in rows
    sortable = [item.text for item in shown.all("button", within="fold")]
    assert set(sortable) == {"baseline"}
    assert not [item for item in shown.all("title") if "balanced accuracy of each baseline" in item.text]
    assert not [item for item in shown.all("caption") if "baselines by folds" in item.text]
    assert "cannot rank baselines: too few &amp; none" in shown.source
    with pytest.raises(InputError, match="nothing to draw"):
        picture(collect(copied))


def test_baselines_are_shown_best_first_where_they_are_ranked(shown: Page) -> None:
    _, rows = shown.table("scores on")
    names = list(rows)
    assert names.pop(0) == "replicate ceiling"
    values = [rows[name][0].value for name in names]
    assert values == sorted(values, reverse=True)


@pytest.mark.slow
def test_papalexi_with_few_calls_is_not_ranked(pertbase, real_data: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, _, _ = pertbase(
        "run", "-m", "data=papalexi", "fold=unseen_perturbation_genetic", "baseline=no_change,gene_prior,context_mean",
        f"runs={tmp_path}",
    )  # fmt: skip
    assert code == 0
    shown = short(tmp_path)
    assert "Baselines are not ranked on this fold." in shown.source
    heads, rows = shown.table("scores on")
    assert len(rows) == 3
    assert not [name for name in heads if name.startswith("BA")]
    assert "simulated" not in without_style(shown.source).lower()
