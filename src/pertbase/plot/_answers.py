"""Pictures of what was answered and predicted, against the truth of one fold."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._metrics import N_OUTCOMES, NO_OUTCOME
from pertbase._pictures import (
    COLOURS,
    INK,
    MUTED,
    POINTS_PER_OUTCOME,
    RULE,
    first_of_each,
    marked,
    reach,
)
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import OUTCOMES, Answers, Effects, Truth
from pertbase.plot._canvas import (
    HEAD,
    canvas,
    check,
    check_count,
    finish,
    legend,
    row_height,
    rows_axis,
    seaborn,
    short,
)
from pertbase.scorers._aligned import Aligned, align

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["accuracy_by", "confusion", "disagreement", "effects_against_truth"]

# The end of a scale of shares that are all 0, which would else reach below it.
_FAINTEST = 0.01
_BY = ("gene", "perturbation", "target_set", "context", "regime")


def confusion(answers: Answers, truth: Truth, *, ax: Axes | None = None) -> Axes:
    """Draw what was answered to the questions of each true outcome, as shares of the outcome and as counts.

    Balanced accuracy is the mean of the diagonal's shares. A dark column is an outcome that is hardly ever answered.

    Parameters
    ----------
    answers, truth
        As for :func:`pertbase.scorers.outcome`; ambiguous questions are left out.
    ax
        To draw on.

    Raises
    ------
    InputError
        Where an answer's id is not asked in this fold.
    """
    counts = _aligned(answers, truth).confusion.astype(int)
    columns = [*OUTCOMES, "none"] if counts[:, NO_OUTCOME].any() else list(OUTCOMES)
    counts = counts[:, : len(columns)]
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(totals, 1)[:, None]
    told = [
        [f"{share:.0%}\n{count:,}" if total else "–" for share, count in zip(*row, strict=True)]
        for *row, total in zip(shares, counts, totals, strict=True)
    ]
    ax = canvas(ax, width=1.6 + 1.15 * len(columns), height=3.6)
    sizes = [f"{name}\n(n = {total:,})" for name, total in zip(OUTCOMES, totals, strict=True)]
    seaborn().heatmap(
        shares, annot=np.array(told), fmt="", vmin=0, vmax=1, cmap="viridis", linewidths=1.5, cbar=False, ax=ax,
        xticklabels=columns, yticklabels=sizes,
    )  # fmt: skip
    ax.tick_params(length=0, labelsize="small")
    ax.tick_params(axis="y", rotation=0)
    ax.set_xlabel("answered")
    ax.set_ylabel("true")
    return finish(
        ax,
        f"{_title(truth)}\nanswers to {totals.sum():,} questions",
        simulated=truth.simulated,
        framed=True,
        faint=False,
    )


def effects_against_truth(
    effects: Effects,
    truth: Truth,
    *,
    thresholds: tuple[float, float] | None = None,
    most: int = POINTS_PER_OUTCOME,
    ax: Axes | None = None,
) -> Axes:
    """Draw predicted against measured effects, coloured by the true outcome.

    Points on a horizontal line are predictions that do not depend on what is measured; the few beyond the axes lie on
    the edge, and are counted. Of each outcome the same questions are drawn for every baseline.

    Parameters
    ----------
    effects
        The predicted ones.
    truth
        The fold's; ambiguous questions are left out.
    thresholds
        (tau_up, tau_down) of an adapter, above and below which an effect is called, as ``adapter.thresholds`` and
        ``run.thresholds()`` give them.
    most
        Points of each outcome.
    ax
        To draw on.

    Raises
    ------
    UnsupportedError
        Where the fold holds no measured effects.
    InputError
        Where none of the questions' effects is predicted.
    """
    check(
        effects, Effects, key="effects",
        remedy="give what an ExpressionBaseline predicts, or run.effects(); answers without effects: plot.confusion",
    )  # fmt: skip
    _check_truth(truth)
    check_count(most, key="most")
    if thresholds is not None:
        _check_pair(thresholds)
    questions = truth.questions
    asked = questions.loc[questions["outcome"].isin(OUTCOMES) & questions["effect"].notna()]
    if asked.empty:
        raise UnsupportedError(
            f"the fold {truth.name} holds no measured effects of questions with an outcome",
            key="truth",
            remedy="draw answers: plot.confusion, plot.accuracy_by",
        )
    drawn = first_of_each(asked, most)
    measured, outcomes = drawn["effect"].to_numpy(dtype=float), drawn["outcome"].to_numpy(dtype=object)
    predicted = effects.at(drawn)[0]
    known = ~np.isnan(predicted)
    if not known.any():
        raise InputError(
            "the effects are of none of these questions",
            key="effects",
            value=repr(effects),
            remedy="give the truth of the fold that they were predicted for",
        )
    limit = reach(measured, predicted[known])
    ax = canvas(ax, width=6.2, height=4.4)
    for line in (ax.axhline, ax.axvline):
        line(0, color=RULE, linewidth=1, zorder=0)
    ax.plot([-limit, limit], [-limit, limit], color=RULE, linewidth=1, zorder=0)
    for outcome in reversed(OUTCOMES):
        chosen = known & (outcomes == outcome)
        ax.scatter(
            np.clip(measured[chosen], -limit, limit), np.clip(predicted[chosen], -limit, limit), s=11, alpha=0.6,
            color=COLOURS[outcome], linewidths=0, label=f"{outcome} (n = {chosen.sum():,})", clip_on=False,
        )  # fmt: skip
    for level in () if thresholds is None else (thresholds[0], -thresholds[1]):
        ax.axhline(level, color=INK, linewidth=1, linestyle="--", zorder=1.5)
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
    outside = int((np.maximum(np.abs(measured), np.abs(predicted))[known] > limit).sum())
    told = f"\non the edge, beyond the axes: {outside:,}" if outside else ""
    ax.set_xlabel(f"measured effect ({effects.statistic}, natural log){told}")
    ax.set_ylabel("predicted effect")
    handles = ax.get_legend_handles_labels()[0]
    legend(ax, handles=handles[::-1], title="true outcome")
    what = f"{_title(truth)}\n{len(drawn):,} of {len(asked):,} questions"
    if not known.all():
        what += f", {int((~known).sum()):,} unsupported"
    return finish(ax, what, simulated=truth.simulated, framed=True)


def accuracy_by(answers: Answers, truth: Truth, *, by: str = "gene", most: int = 25, ax: Axes | None = None) -> Axes:
    """Draw the share of questions answered right for each readout gene, perturbation, context or regime.

    Questions with a change (up or down) and without one are told apart: whoever answers ``no_change`` throughout has
    all of the second and none of the first.

    Parameters
    ----------
    answers, truth
        As for :func:`pertbase.scorers.outcome`; ambiguous questions are left out.
    by
        ``gene``, ``perturbation``, ``target_set``, ``context`` or ``regime``.
    most
        Groups shown, those with the most changes first.
    ax
        To draw on.

    Raises
    ------
    InputError
        For another ``by``, or where an answer's id is not asked in this fold.
    """
    if by not in _BY:
        raise unknown_name("by", str(by), _BY)
    check_count(most, key="most")
    aligned = _aligned(answers, truth)
    group = truth.questions.set_index("id")[by].reindex(aligned.questions["id"]).to_numpy(dtype=object)
    changed = aligned.true < N_OUTCOMES - 1
    right = aligned.true == aligned.answered
    table = pd.DataFrame({"group": group, "changed": changed, "right": right})
    found = table.groupby(["group", "changed"])["right"].agg(["mean", "size"]).unstack()
    shares, sizes = found["mean"].reindex(columns=[True, False]), found["size"].reindex(columns=[True, False])
    sizes = sizes.fillna(0).astype(int)
    order = sizes.sort_values(True, ascending=False, kind="stable").index[:most]
    ax = canvas(ax, height=row_height(len(order)))
    styles: dict[bool, tuple[str, dict[str, Any]]] = {
        False: ("without a change", {"facecolor": "white", "edgecolor": COLOURS["no_change"], "marker": "s", "s": 26}),
        True: ("with a change", {"facecolor": INK, "edgecolor": INK, "marker": "o", "s": 30}),
    }
    for kind, (label, style) in styles.items():
        whole = right[changed == kind]
        told = f"{label}\nn = {len(whole):,}" + (f", {whole.mean():.2f} in all" if len(whole) else "")
        # A little apart: two that are alike would lie on one another.
        shift = -0.12 if kind else 0.12
        heights = np.arange(len(order)) + shift
        ax.scatter(shares.loc[order, kind], heights, linewidths=1.4, zorder=3, label=told, **style)
    counts = [f" ({sizes.loc[name, True]:,} | {sizes.loc[name, False]:,})" for name in order]
    rows_axis(ax, [str(name) for name in order], counts)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xlabel("share answered right; n with | without a change")
    handles = ax.get_legend_handles_labels()[0]
    legend(ax, handles=handles[::-1], title="questions")
    what = f"{_title(truth)}\nright answers by {by.replace('_', ' ')}"
    if len(shares) > len(order):
        what += f", the {len(order)} of {len(shares):,} with the most changes"
    return finish(ax, what, simulated=truth.simulated)


def disagreement(answers: Mapping[str, Answers], truth: Truth, *, ax: Axes | None = None) -> Axes:
    """Draw how often each of several baselines is right where another is wrong.

    A cell is the share of questions on which the baseline of its row is right and that of its column wrong, as a mean
    over the three outcomes. So a cell less its mirror image is the difference in balanced accuracy, and two that are
    equally good may still be right about different things.

    Parameters
    ----------
    answers
        Name -> answers to the same fold, two or more.
    truth
        The fold's; ambiguous questions are left out.
    ax
        To draw on.

    Raises
    ------
    InputError
        For fewer than two baselines, or where an answer's id is not asked in this fold.
    """
    check(answers, Mapping, key="answers", remedy="give names and answers: {name: run.answers(), ...}")
    if len(answers) < 2:
        raise InputError(
            "there is nobody to disagree with", key="answers", value=list(answers), remedy="give two or more"
        )
    aligned: dict[str, Aligned] = {name: _aligned(one, truth) for name, one in answers.items()}
    true = next(iter(aligned.values())).true
    weight = 1 / np.bincount(true, minlength=N_OUTCOMES)[true] / len(np.unique(true))
    right = {name: one.answered == one.true for name, one in aligned.items()}
    names = list(right)
    grid = pd.DataFrame(np.nan, index=names, columns=names)
    for row, column in permutations(names, 2):
        grid.loc[row, column] = weight[right[row] & ~right[column]].sum()
    shown = [short(name, HEAD) for name in names]
    # Names beside the first twelve letters, which the frame has room for.
    long = max(0, max(map(len, shown)) - 12)
    ax = canvas(ax, width=2.6 + 0.62 * len(names) + 0.1 * long, height=2.1 + 0.45 * max(len(names), 3) + 0.07 * long)
    seaborn().heatmap(
        grid, annot=True, fmt=".3f", cmap="viridis", vmin=0, vmax=max(float(np.nanmax(grid)), _FAINTEST), linewidths=1,
        ax=ax, xticklabels=False, yticklabels=False, annot_kws={"fontsize": "small"},
        cbar_kws={"label": "mean share of\nan outcome's questions"},
    )  # fmt: skip
    ax.set_xticks(np.arange(len(names)) + 0.5, shown, rotation=45, ha="right", rotation_mode="anchor", fontsize="small")
    ax.set_yticks(np.arange(len(names)) + 0.5, shown, rotation=0, fontsize="small")
    ax.tick_params(length=0)
    ax.set_facecolor(RULE)
    ax.set_ylabel("right", color=MUTED)
    ax.set_xlabel("wrong", color=MUTED)
    what = f"{_title(truth)}\nright where the other is wrong, n = {len(true):,} questions"
    return finish(ax, what, simulated=truth.simulated, framed=True, faint=False)


def _check_truth(truth: object) -> None:
    check(truth, Truth, key="truth", remedy="give fold.truth, or run.fold.truth")


def _check_pair(thresholds: object) -> None:
    pair = list(thresholds) if isinstance(thresholds, (tuple, list, np.ndarray)) else []
    if len(pair) != 2 or not all(isinstance(level, (int, float, np.number)) for level in pair):
        raise InputError(
            "are not two numbers", key="thresholds", value=thresholds,
            remedy="give adapter.thresholds, or run.thresholds()",
        )  # fmt: skip


def _aligned(answers: Answers, truth: Truth) -> Aligned:
    """Return answers beside the truth.

    Raises
    ------
    InputError
        Where the truth has no question with an outcome.
    """
    _check_truth(truth)
    found = align(answers, truth)
    if not len(found.true):
        raise InputError(
            f"the fold {truth.name} has no test question with an outcome", key="truth",
            remedy="make it with settings that ask something: fold.certificate says what it holds",
        )  # fmt: skip
    return found


def _title(truth: Truth) -> str:
    return marked(truth.name, simulated=truth.simulated)
