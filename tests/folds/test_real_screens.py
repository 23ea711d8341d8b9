"""Known biology and known counts, on real screens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pertbase.errors import UnsupportedError
from pertbase.folds import KINDS, FoldMaker, FoldSpec, Screen, data


@pytest.fixture(scope="module", params=["papalexi", "kang", "perturbench_devel"])
def real(request: pytest.FixtureRequest, real_data: Path) -> FoldMaker:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PERTBASE_DATA", str(real_data))
        return FoldMaker(data(request.param))


SUPPORTED = {
    "papalexi": {"unseen_perturbation_genetic"},
    "kang": {"unseen_context_chemical"},
    "perturbench_devel": {
        "unseen_perturbation_genetic",
        "unseen_context_genetic",
        "unseen_both_genetic",
        "combinatorial",
    },
}


def _why_not(maker: FoldMaker, kind: str) -> str:
    """Return why a data set cannot support a kind, or an empty text."""
    try:
        maker.split(FoldSpec(kind=kind))
    except UnsupportedError as error:
        return str(error)
    return ""


def test_each_real_screen_supports_the_kinds_it_has_the_cells_for(real: FoldMaker) -> None:
    reasons = {kind: _why_not(real, kind) for kind in KINDS}
    assert {kind for kind, reason in reasons.items() if not reason} == SUPPORTED[real.data.name]
    assert all(f"cannot support the fold {kind}" in reason for kind, reason in reasons.items() if reason)


def test_knocking_out_the_interferon_pathway_lowers_its_targets(papalexi: Screen) -> None:
    questions = FoldMaker(papalexi).labelled(FoldSpec(kind="unseen_perturbation_genetic")).questions
    outcomes = questions.set_index(["targets", "gene"])["outcome"]
    for target in ("IFNGR1", "IFNGR2", "JAK2", "STAT1"):
        assert outcomes[target, "UBE2L6"] == "down"
        assert outcomes[target, "PSMB9"] == "down"


def test_a_fold_that_cannot_rank_says_so(papalexi: Screen) -> None:
    fold = FoldMaker(papalexi).make(FoldSpec(kind="unseen_perturbation_genetic"))
    short = {name: fold.certificate["questions"]["test"][name] for name in ("up", "down")}
    assert min(short.values()) < 10
    assert not fold.certificate["ranks_baselines"]
    assert "cannot rank baselines" in fold.certificate["verdict"]
