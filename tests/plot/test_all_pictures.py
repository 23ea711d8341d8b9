"""What holds for every picture: it is returned and not shown, whole and readable, and marked where simulated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pertbase import plot
from pertbase.errors import PertbaseError
from pertbase.folds import Effects, Fold
from pertbase.scorers import outcome


@pytest.fixture
def drawers(fold: Fold, said, reasoned, gains) -> dict[str, Callable[..., Any]]:  # type: ignore[no-untyped-def]
    """Every function of the module but those that want a folder of runs, called on the simulated fold."""
    truth, own = fold.truth, said.answers["bilinear_ridge"]
    return {
        "accuracy_by": lambda **k: plot.accuracy_by(own, truth, **k),
        "confusion": lambda **k: plot.confusion(own, truth, **k),
        "controls": lambda **k: plot.controls(fold, **k),
        "coverage": lambda **k: plot.coverage(fold, **k),
        "disagreement": lambda **k: plot.disagreement(said.answers, truth, **k),
        "effect_distribution": lambda **k: plot.effect_distribution(fold, **k),
        "effects_against_truth": lambda **k: plot.effects_against_truth(said.effects["bilinear_ridge"], truth, **k),
        "intervals": lambda **k: plot.intervals({"a": outcome(own, truth)}, **k),
        "outcome_balance": lambda **k: plot.outcome_balance(fold, **k),
        "paths": lambda **k: plot.paths([[["A", "activates", "B"]]], simulated=True, **k),
        "shortcuts": lambda **k: plot.shortcuts(gains, **k),
        "split_map": lambda **k: plot.split_map(fold, **k),
        "thresholds": lambda **k: plot.thresholds(said.adapters["bilinear_ridge"], **k),
        "reason_axes": lambda **k: plot.reason_axes(reasoned, **k),
    }


def test_every_function_is_tried_here(drawers) -> None:  # type: ignore[no-untyped-def]
    assert {*drawers, "table", "COLOURS"} == set(plot.__all__)


def test_pictures_are_drawn_on_the_axes_given_and_on_no_other(drawers) -> None:  # type: ignore[no-untyped-def]
    from matplotlib import pyplot

    for name, draw in drawers.items():
        _, ax = pyplot.subplots()
        before = pyplot.get_fignums()
        assert draw(ax=ax) is ax, name
        assert pyplot.get_fignums() == before, name
        pyplot.close("all")


def test_pictures_are_returned_and_neither_shown_nor_styled_for_others(drawers, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import matplotlib
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda *a, **k: pytest.fail("shown"))
    before = dict(matplotlib.rcParams)
    for name, draw in drawers.items():
        ax = draw()
        ax.figure.canvas.draw()
        assert dict(matplotlib.rcParams) == before, name


def test_nothing_that_is_written_is_cut_off_or_lies_on_the_title(fold: Fold, said, drawers) -> None:  # type: ignore[no-untyped-def]
    small = {
        "one gene": lambda: plot.outcome_balance(fold, by="gene", most=1),
        "one perturbation": lambda: plot.accuracy_by(said.answers["no_change"], fold.truth, by="perturbation", most=1),
        "one context": lambda: plot.split_map(
            replace(fold, conditions=fold.conditions.loc[fold.conditions["context"] == "S1"]), unused=False
        ),
        "two": lambda: plot.disagreement(
            {name: said.answers[name] for name in ("gene_prior", "no_change")}, fold.truth
        ),
    }
    for name, draw in {**drawers, **small}.items():
        ax = draw()
        figure = ax.figure
        figure.canvas.draw()
        whole = figure.bbox.padded(2)
        left = ax._left_title
        for text in _written(ax):
            box = text.get_window_extent()
            inside = whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1
            assert inside, (name, text.get_text())
            if text is not left:
                assert not left.get_window_extent().padded(-1).overlaps(box), (name, text.get_text())


def _written(ax: Any) -> list[Any]:
    """Return the texts of a picture; the mark lies behind, and its turned box is mostly air."""
    found = [text for text in ax.texts if text.get_gid() != "simulated"]
    found += [ax._left_title, ax.xaxis.label, ax.yaxis.label]
    found += ax.get_legend().get_texts() if ax.get_legend() else []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [tick.label1 for tick in axis.get_major_ticks() if ax.axison and low <= tick.get_loc() <= high]
    return [text for text in found if text.get_text().strip() and text.get_visible()]


def test_simulated_data_are_marked_and_real_ones_are_not(fold: Fold, said, drawers) -> None:  # type: ignore[no-untyped-def]
    def marks(ax: Any) -> int:
        return sum(text.get_gid() == "simulated" for text in ax.texts)

    for name, draw in drawers.items():
        ax = draw()
        assert marks(ax) == 1, name
        assert name == "paths" or "simulated" in ax.get_title(loc="left"), name
    real = replace(fold, simulated=False, data="real")
    for ax in (plot.controls(real), plot.confusion(said.answers["no_change"], real.truth), plot.split_map(real)):
        assert marks(ax) == 0
        assert "simulated" not in ax.get_title(loc="left")


def test_names_with_dollars_are_no_mathematics(fold: Fold) -> None:
    odd = r"S$\frac$1$"
    renamed = replace(
        fold,
        data=odd,
        conditions=fold.conditions.replace({"context": {"S1": odd}}),
        questions=fold.questions.replace({"context": {"S1": odd}}),
        controls=fold.controls.replace({"context": {"S1": odd}}),
    )
    for ax in (plot.controls(renamed), plot.outcome_balance(renamed, by="context"), plot.split_map(renamed)):
        ax.figure.canvas.draw()
    plot.paths([[[odd, "activates", "B$"]]], title=odd).figure.canvas.draw()


def test_conditions_that_nobody_predicts_are_no_crash(fold: Fold) -> None:
    test = fold.inputs("test").conditions.iloc[:3]
    few = Effects(fold.truth.effects.select(test).values, test, fold.genes)  # type: ignore[union-attr]
    ax = plot.effects_against_truth(few, fold.truth)
    assert "unsupported" in ax.get_title(loc="left")


@pytest.mark.parametrize("package", ["matplotlib", "seaborn"])
def test_a_missing_package_is_told_with_what_to_type(fold: Fold, said, monkeypatch, package: str) -> None:  # type: ignore[no-untyped-def]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PertbaseError, match=rf"need the package {package}.*pip install 'pertbase\[notebooks\]'"):
        plot.confusion(said.answers["no_change"], fold.truth)
    if package == "matplotlib":
        for draw in (plot.split_map, plot.controls, plot.coverage, plot.effect_distribution):
            with pytest.raises(PertbaseError, match="need the package matplotlib"):
                draw(fold)


def test_importing_pertbase_and_naming_its_plots_imports_no_matplotlib() -> None:
    code = "import sys, pertbase as pb; pb.plot; assert 'matplotlib' not in sys.modules and 'pandas' in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = "import sys, pertbase as pb; assert not {'pandas', 'matplotlib', 'torch'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
