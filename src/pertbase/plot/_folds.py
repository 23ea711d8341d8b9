"""Pictures of a fold: who is in which split, what the outcomes are, how large effects, how many controls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pertbase._pictures import COLOURS, INK, marked, reach
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import OUTCOMES, Fold
from pertbase.plot._canvas import (
    beyond,
    canvas,
    check_count,
    check_fold,
    finish,
    legend,
    row_height,
    rows_axis,
    seaborn,
    short,
    vertical,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["controls", "effect_distribution", "outcome_balance", "split_map"]

AMBIGUOUS = "ambiguous"
_SPLITS = ("train", "val", "test")
_BY = ("split", "context", "mechanism", "regime", "gene", "perturbation")
_KINDS = (*OUTCOMES, AMBIGUOUS)
_FILL = {**COLOURS, AMBIGUOUS: "#e6e6e6"}
# Light and dark in turn, so that they differ without their hue too.
_SPLIT_COLOURS = {"train": "#56b4e9", "val": "#f0e442", "test": "#a02c6f", "unused": "#c9cdd4", "dropped": "#6f747d"}
_ROLE_COLOURS = {"input": ("#56b4e9", INK), "truth": ("#a02c6f", "white")}
# Columns and rows that are wide enough for their names on a page; of more, none is named.
_MOST_TICKS, _MOST_ROWS = 40, 60
_WIDEST = 8.6


def outcome_balance(
    fold: Fold, *, by: str = "split", split: str | None = None, most: int = 20, ax: Axes | None = None
) -> Axes:
    """Draw the share of each outcome among the questions of each split, context, readout gene or perturbation.

    Where a bar is nearly all ``no_change``, an answer of ``no_change`` is nearly always right there; where bars of
    genes differ a lot, knowing the gene is worth much.

    Parameters
    ----------
    fold
        The fold.
    by
        ``split``, ``context``, ``mechanism``, ``regime``, ``gene`` or ``perturbation``.
    split
        Questions of this split alone; all where not given.
    most
        Groups shown; of more, those with the most questions that are up or down.
    ax
        To draw on.

    Raises
    ------
    InputError
        For another ``by`` or split, or where there is no question.
    """
    check_fold(fold)
    check_count(most, key="most")
    if by not in _BY:
        raise unknown_name("by", str(by), _BY)
    questions = _of_split(fold, split)
    kinds = questions["outcome"].astype(object).where(questions["outcome"].notna(), AMBIGUOUS)
    counts = pd.crosstab(questions[by], kinds).reindex(columns=list(_KINDS), fill_value=0)
    counts = _ordered(counts.rename(index={"": "none"}), by)
    shown = counts.head(most)
    ax = canvas(ax, height=row_height(len(shown)))
    totals = shown.sum(axis=1)
    start = np.zeros(len(shown))
    for kind in _KINDS:
        if not counts[kind].any():
            continue
        shares = (shown[kind] / totals).to_numpy()
        ax.barh(
            range(len(shown)), shares, left=start, color=_FILL[kind], height=0.78, label=kind, edgecolor="white",
            linewidth=0.4, hatch="///" if kind == AMBIGUOUS else None,
        )  # fmt: skip
        start += shares
    rows_axis(ax, [str(name) for name in totals.index], [f"(n = {total:,})" for total in totals])
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of questions")
    legend(ax)
    what = f"{_title(fold)}{'' if split is None else f', {split}'}\noutcomes by {by}"
    if len(counts) > len(shown):
        what += f", the {len(shown)} of {len(counts):,} with the most changes"
    return finish(ax, what, simulated=fold.simulated, faint=False)


def _ordered(counts: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return splits in their own order, genes and perturbations by their calls, others by name."""
    if by == "split":
        return counts.reindex([split for split in _SPLITS if split in counts.index])
    if by in ("gene", "perturbation"):
        called = counts[list(OUTCOMES[:2])].sum(axis=1)
        return counts.loc[called.sort_values(ascending=False, kind="stable").index]
    return counts.sort_index()


def _of_split(fold: Fold, split: str | None) -> pd.DataFrame:
    if split is not None and split not in _SPLITS:
        raise unknown_name("split", str(split), _SPLITS)
    questions = fold.questions if split is None else fold.questions.loc[fold.questions["split"] == split]
    if questions.empty:
        other = "" if split is None else "draw another split, or "
        raise InputError(
            f"there is no question in the fold {fold.name} of {fold.data}", key="split", value=split,
            remedy=f"{other}make the fold with settings that ask something: fold.certificate says what it holds",
        )  # fmt: skip
    return questions


def effect_distribution(fold: Fold, *, split: str | None = None, bins: int = 60, ax: Axes | None = None) -> Axes:
    """Draw how large measured effects are, by outcome, on a logarithmic count.

    The dotted lines are the label rule's threshold, at which bars begin: what lies beyond and is significant is a call.
    The few effects beyond the ends of the axis are counted below it.

    Parameters
    ----------
    fold
        The fold.
    split
        Questions of this split alone; all where not given.
    bins
        Bars from end to end, or about as many: a whole number of them lies between zero and the threshold.
    ax
        To draw on.

    Raises
    ------
    UnsupportedError
        Where outcomes alone are known, and no effects.
    """
    check_fold(fold)
    check_count(bins, key="bins")
    questions = _of_split(fold, split)
    known = questions.loc[questions["effect"].notna()] if "effect" in questions else questions.iloc[:0]
    if known.empty:
        raise UnsupportedError(
            f"{fold.data} holds outcomes and no effects", key="effect", remedy="draw outcomes: plot.outcome_balance"
        )
    effects = known["effect"].to_numpy(dtype=float)
    tau = fold.spec.rule.tau
    edges = _edges(reach(effects), tau, bins)
    kinds = known["outcome"].astype(object).where(known["outcome"].notna(), AMBIGUOUS)
    sizes = kinds.value_counts()
    labels = {kind: f"{kind} (n = {sizes.get(kind, 0):,})" for kind in _KINDS if sizes.get(kind, 0)}
    table = pd.DataFrame({"effect": effects, "outcome": kinds.map(labels).to_numpy()})
    ax = canvas(ax)
    seaborn().histplot(
        table, x="effect", hue="outcome", hue_order=list(labels.values()), bins=edges,
        palette=[COLOURS.get(kind, INK) for kind in labels], element="step", fill=False, linewidth=1.4, ax=ax,
    )  # fmt: skip
    ax.set_yscale("log")
    ax.set_xlim(edges[0], edges[-1])
    legend(ax)
    for side in (-tau, tau):
        vertical(ax, side, f"{side:+.2g}")
    ax.set_xlabel(
        f"measured effect ({fold.spec.rule.statistic}, natural log){beyond(effects, float(edges[0]), float(edges[-1]))}"
    )
    ax.set_ylabel("questions")
    what = f"{_title(fold)}{'' if split is None else f', {split}'}\neffects of {len(known):,} questions"
    return finish(ax, what, simulated=fold.simulated, lined=True)


def _edges(limit: float, tau: float, bins: int) -> np.ndarray:
    """Return where bars begin, out to a limit or a little beyond it: zero and the threshold are among these."""
    per_tau = max(1, round(tau * bins / (2 * limit)))
    n_bars = max(per_tau, math.ceil(limit * per_tau / tau - 1e-9))
    return np.arange(-n_bars, n_bars + 1) * tau / per_tau


def split_map(fold: Fold, *, unused: bool = True, ax: Axes | None = None) -> Axes:
    """Draw which conditions are in train, val and test: contexts by perturbations.

    A column of one colour is a perturbation held out everywhere, a row of one colour a context held out; white was not
    measured. ``unused`` is neither trained on nor asked about, ``dropped`` could not be labelled. Columns are named as
    long as there is room; the names of more are in ``fold.conditions``.

    Parameters
    ----------
    fold
        The fold.
    unused
        Whether to draw conditions that are in no split.
    ax
        To draw on.
    """
    check_fold(fold)
    codes = {split: number for number, split in enumerate(_SPLIT_COLOURS)}
    conditions = fold.conditions if unused else fold.conditions.loc[fold.conditions["split"].isin(_SPLITS)]
    if conditions.empty:
        raise InputError(
            f"the fold {fold.name} of {fold.data} has no condition to draw", key="fold",
            remedy="draw those that are in no split too (unused=True)" if not unused else "make it of another screen",
        )  # fmt: skip
    coded = conditions.assign(code=conditions["split"].map(codes))
    grid = coded.pivot_table("code", "context", "perturbation", aggfunc="min")[_columns(coded)]
    # A few perturbations in many contexts are read more easily the other way round.
    turned = grid.shape[1] < grid.shape[0]
    values = grid.T if turned else grid
    n_rows, n_columns = values.shape
    named, tall = n_columns <= _MOST_TICKS, n_rows > _MOST_ROWS
    width = 3.0 + (0.14 if named else 0.06) * n_columns
    ax = canvas(
        ax, width=min(max(6.4, width), _WIDEST), height=row_height(min(n_rows, _MOST_ROWS)) + (1.2 if named else 0.4)
    )
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    ax.pcolormesh(
        np.ma.masked_invalid(values.to_numpy(dtype=float)), cmap=ListedColormap(list(_SPLIT_COLOURS.values())),
        vmin=-0.5, vmax=len(codes) - 0.5, edgecolors="white", linewidth=0.5 if named else 0,
    )  # fmt: skip
    ax.invert_yaxis()
    rows = [] if tall else [short(name) for name in values.index]
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize="small")
    if tall:
        ax.set_ylabel(f"{n_rows:,} {'perturbations' if turned else 'contexts'}")
    names = [short(name) for name in values.columns] if named else []
    ax.set_xticks(np.arange(len(names)) + 0.5, names, rotation=90, fontsize=7)
    ax.tick_params(length=0)
    ax.set_xlabel(f"{n_columns:,} {'contexts' if turned else 'perturbations, by split and target'}")
    sizes = conditions["split"].value_counts()
    patches = [
        Patch(facecolor=colour, label=f"{split} (n = {sizes[split]:,})")
        for split, colour in _SPLIT_COLOURS.items()
        if split in sizes
    ]
    legend(ax, handles=patches)
    return finish(ax, f"{_title(fold)}\nconditions by split", simulated=fold.simulated, framed=True, faint=False)


def _columns(conditions: pd.DataFrame) -> list[str]:
    """Return the perturbations by the split that most of their conditions are in, then by target set and name."""
    by = conditions.groupby("perturbation", observed=True).agg(code=("code", "median"), own=("target_set", "first"))
    return list(by.reset_index().sort_values(["code", "own", "perturbation"])["perturbation"])


def controls(fold: Fold, *, ax: Axes | None = None) -> Axes:
    """Draw how many control cells each context has for models (input) and for labels (truth).

    With few truth controls, labels of test are noisy in all conditions of a context alike; with few input controls, so
    is what a model knows of the context.

    Parameters
    ----------
    fold
        The fold.
    ax
        To draw on.

    Raises
    ------
    UnsupportedError
        Where the data set holds no cells.
    """
    check_fold(fold)
    if fold.controls.empty:
        raise UnsupportedError(
            f"{fold.data} holds no cells, and no controls",
            key="controls",
            remedy="draw what it has: plot.outcome_balance, plot.split_map",
        )
    counts = pd.crosstab(fold.controls["context"], fold.controls["role"]).sort_index()
    ax = canvas(ax, height=row_height(len(counts)))
    start = np.zeros(len(counts))
    for role, (colour, ink) in _ROLE_COLOURS.items():
        sizes = counts[role].to_numpy() if role in counts else np.zeros(len(counts), dtype=int)
        label = f"{role} (n = {sizes.sum():,})"
        bars = ax.barh(range(len(counts)), sizes, left=start, height=0.7, color=colour, label=label)
        ax.bar_label(bars, [f"{size:,}" for size in sizes], label_type="center", fontsize="small", color=ink)
        start += sizes
    rows_axis(ax, [str(name) for name in counts.index])
    ax.set_xlabel("control cells")
    legend(ax)
    return finish(ax, f"{_title(fold)}\ncontrol cells of each context", simulated=fold.simulated, faint=False)


def _title(fold: Fold) -> str:
    return f"{marked(fold.data, simulated=fold.simulated)}: {fold.name}"
