"""Scores of predicted effects against measured ones."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.scorers import _expression_metrics as metrics
from pertbase.scorers._measured import Measured, laid_out, measured_effects

if TYPE_CHECKING:
    from pertbase.folds import Effects, Truth

__all__ = ["CALL", "EXPRESSION_METRICS", "ExpressionScores", "expression"]

_ALONE = (
    "pearson_delta",
    "mse",
    "mae",
    "discrimination_score_l1",
    "discrimination_score_l2",
    "discrimination_score_cosine",
    "overlap_at_N",
    "precision_at_N",
    "de_direction_match",
    "de_spearman_lfc_sig",
    "de_sig_genes_recall",
    "pr_auc",
    "roc_auc",
)
EXPRESSION_METRICS = (*_ALONE, "de_spearman_sig")
"""cell-eval's names. ``de_spearman_sig`` is one number a context, all others one a condition."""

CALL = 0.25
"""Natural log; the effect beyond which a prediction without p-values counts as calling a gene."""

_LEAST_P = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class ExpressionScores:
    """What predicted effects are worth on one fold.

    Parameters
    ----------
    fold, fold_hash, simulated
        Which truth this is against.
    statistic
        Of the effects.
    alpha, threshold
        The measured adjusted p-value below which a gene is significant; the predicted effect beyond which it is
        called, or None where p-values were given.
    n_conditions, n_unsupported
        Conditions, and those the prediction does not speak to: they count as predictions of zero.
    n_pairs, n_missing
        Measured (condition, readout gene) pairs, and those without a prediction in conditions it speaks to: zero too.
    summary
        Index metric; ``mean`` over the conditions where it has a value, ``n`` of these, ``n_nan`` where it has none,
        and ``supported``: the mean over supported conditions alone.
    by_context, by_regime
        Index context or regime; ``n_conditions``, and of each metric the mean over those where it has a value, with
        their number as ``n_METRIC`` (contexts for ``de_spearman_sig``).
    conditions
        One row a condition: ``context``, ``perturbation``, ``regime``, ``status``, ``n_missing``, ``n_significant``,
        ``n_called`` and each metric.
    pairwise
        How alike the effects of different perturbations are: ``predicted`` and ``measured`` mean correlation over the
        pairs of supported conditions of one context, on their genes but for the own targets of both, with ``n`` pairs,
        and ``n_nan`` of them where the prediction has none. A prediction near 1 where what is measured is not says the
        same of every perturbation.
    notes
        What a reader must know beside the numbers.
    """

    fold: str
    fold_hash: str
    simulated: bool
    statistic: str
    alpha: float
    threshold: float | None
    n_conditions: int
    n_unsupported: int
    n_pairs: int
    n_missing: int
    summary: pd.DataFrame
    by_context: pd.DataFrame
    by_regime: pd.DataFrame
    conditions: pd.DataFrame
    pairwise: dict[str, float | int]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, text and numbers, all but the conditions; NaN stays NaN until it is written."""
        plain = ("fold", "fold_hash", "simulated", "statistic", "alpha", "threshold")
        counts = ("n_conditions", "n_unsupported", "n_pairs", "n_missing")
        return {
            **{name: getattr(self, name) for name in (*plain, *counts)},
            "metrics": self.summary.to_dict(orient="index"),
            "pairwise": dict(self.pairwise),
            "by_context": self.by_context.to_dict(orient="index"),
            "by_regime": self.by_regime.to_dict(orient="index"),
            "notes": list(self.notes),
        }

    @property
    def _title(self) -> str:
        return (
            f"{self.fold}{' (simulated)' if self.simulated else ''}, {self.n_conditions:,} conditions, "
            f"{self.n_pairs:,} effects ({self.statistic})"
        )

    @property
    def _alike(self) -> str:
        told = [f"{self.pairwise[side]:.3f} {side}".replace("nan", "–") for side in ("predicted", "measured")]
        return f"mean correlation between perturbations: {', '.join(told)}"

    def __repr__(self) -> str:
        table = self.summary.to_string(float_format="{:.4f}".format, na_rep="–")
        told = [f"  {self._alike}", *(f"  note: {note}" for note in self.notes)]
        return "\n".join([f"ExpressionScores: {self._title}", table, *told])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in (self._alike, *self.notes))
        return f"<p>{html.escape(self._title)}</p>" + str(self.summary.to_html(float_format="{:.4f}".format)) + notes


def expression(
    effects: Effects,
    truth: Truth,
    *,
    alpha: float = 0.05,
    threshold: float = CALL,
    p_adjusted: np.ndarray | None = None,
) -> ExpressionScores:
    """Score predicted effects by cell-eval's metrics.

    The definitions are cell-eval 0.8.2's, in :mod:`pertbase.scorers._expression_metrics`, so that the numbers are the
    same on the same inputs (``benchmarks/cell_eval_parity.py``), but for what follows. Each mean is over conditions
    of all contexts, where cell-eval takes one context at a time. A prediction of effects has no p-values: it calls a
    gene where its effect is beyond ``threshold``, and genes are ranked for the two areas by their predicted effect.
    Both sides have one control, so that ``mse`` and ``mae`` are those of the effects (cell-eval's ``mse_delta`` and
    ``mae_delta``, which its ``mse`` and ``mae`` then equal). In the discrimination scores all targets of a combination
    are left out, where cell-eval leaves out a gene that is called like the perturbation, and ties count half. The
    metrics of significant genes leave out the condition's own targets, since no question asks about them; a condition
    without a significant gene has NaN, where cell-eval has 0 for the overlap or nothing.

    Parameters
    ----------
    effects
        Matched by condition and gene. Conditions it lacks or marks as unsupported, and genes it lacks, count as
        predictions of zero, and are counted.
    truth
        With measured effects: ``fold.truth``, or the questions of a table of effects.
    alpha
        Below which a measured adjusted p-value, and a predicted one, is significant.
    threshold
        Beyond which a predicted effect is called, natural log; used without ``p_adjusted``.
    p_adjusted
        Adjusted p-values of the prediction, shape of ``effects.values``, from tests of predicted cells.

    Raises
    ------
    InputError
        Where the truth has no effects, the statistics differ, or a p-value of an effect that is predicted is none.
    """
    measured = measured_effects(truth)
    if measured.statistic is not None and effects.statistic != measured.statistic:
        raise InputError(
            "the effects are of another statistic than the fold's",
            key="statistic",
            value=effects.statistic,
            remedy=f"predict {measured.statistic}",
        )
    if p_adjusted is not None and p_adjusted.shape != effects.values.shape:
        raise InputError("p-values do not fit the effects", key="p_adjusted", value=p_adjusted.shape)
    if p_adjusted is not None:
        _check_p_values(p_adjusted, effects)
    predicted, there, silent = laid_out(effects, measured)
    called, score = np.abs(predicted) > threshold, np.abs(predicted)
    if p_adjusted is not None:
        p, _, _ = laid_out(effects, measured, values=p_adjusted, missing=1.0)
        called, score = p < alpha, -np.log10(np.clip(p, _LEAST_P, 1.0))
    table = _scored(measured, predicted, called, score, alpha=alpha)
    missing = (measured.known & ~there).sum(axis=1)
    missing[silent] = 0
    first = measured.conditions.assign(status=np.where(silent, "unsupported", "ok"), n_missing=missing)
    table = pd.concat([first, table], axis=1)
    return ExpressionScores(
        fold=truth.name,
        fold_hash=truth.hash,
        simulated=truth.simulated,
        statistic=effects.statistic,
        alpha=alpha,
        threshold=None if p_adjusted is not None else threshold,
        n_conditions=len(table),
        n_unsupported=int(silent.sum()),
        n_pairs=int(measured.known.sum()),
        n_missing=int(missing.sum()),
        summary=_summary(table),
        by_context=_strata(table, "context"),
        by_regime=_strata(table, "regime"),
        conditions=table,
        pairwise=_pairwise(measured, predicted, silent),
        notes=_notes(table, measured),
    )


def _check_p_values(p_adjusted: np.ndarray, effects: Effects) -> None:
    """Refuse what is no p-value: NaN would be a gene that is not called, at an arbitrary rank."""
    predicted = np.repeat((effects.status == "ok")[:, None], len(effects.genes), axis=1)
    if effects.known is not None:
        predicted &= effects.known
    wrong = predicted & ~((p_adjusted >= 0) & (p_adjusted <= 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            "a p-value is from 0 to 1",
            key="p_adjusted",
            value=(*effects.conditions.iloc[row], effects.genes[column], float(p_adjusted[row, column])),
            remedy="say of what was not tested that it is not known: Effects(known=...)",
        )


def _scored(
    measured: Measured, predicted: np.ndarray, called: np.ndarray, score: np.ndarray, *, alpha: float
) -> pd.DataFrame:
    """Return one row of metrics a condition."""
    significant = np.nan_to_num(measured.p_adjusted, nan=1.0) < alpha
    rows = []
    for i in range(len(measured.values)):
        known, tested = measured.known[i], measured.tested[i]
        e, p = measured.values[i, known], predicted[i, known]
        te, tp = measured.values[i, tested], predicted[i, tested]
        sig, call, rank = significant[i, tested], called[i, tested], score[i, tested]
        rows.append(
            {
                "n_significant": int(sig.sum()),
                "n_called": int(call.sum()),
                "pearson_delta": metrics.pearson(p, e),
                "mse": float(((p - e) ** 2).mean()) if len(e) else np.nan,
                "mae": float(np.abs(p - e).mean()) if len(e) else np.nan,
                "overlap_at_N": metrics.overlap(te, tp, sig, call),
                "precision_at_N": metrics.precision(te, tp, sig, call) if tested.any() else np.nan,
                "de_direction_match": metrics.direction_match(te, tp, sig),
                "de_spearman_lfc_sig": metrics.spearman(te[sig], tp[sig]),
                "de_sig_genes_recall": metrics.recall(sig, call),
                "pr_auc": metrics.average_precision(sig, rank),
                "roc_auc": metrics.roc_auc(sig, rank),
            }
        )
    table = pd.DataFrame(rows)
    for distance in metrics.DISTANCES:
        table[f"discrimination_score_{distance}"] = _discrimination(measured, predicted, distance)
    return table[["n_significant", "n_called", *_ALONE]]


def _discrimination(measured: Measured, predicted: np.ndarray, distance: str) -> np.ndarray:
    """Return the discrimination score of each condition among those of its context, on genes known in all of them."""
    scores = np.full(len(predicted), np.nan)
    for rows in measured.conditions.groupby("context").indices.values():
        genes = np.flatnonzero(measured.known[rows].all(axis=0))
        part = np.ix_(rows, genes)
        scores[rows] = metrics.discrimination(measured.values[part], predicted[part], measured.own[part], distance)
    return scores


def _pairwise(measured: Measured, predicted: np.ndarray, silent: np.ndarray) -> dict[str, float | int]:
    """Return how alike predicted, and measured, effects of different perturbations of a context are."""
    ours, theirs = [np.zeros(0)], [np.zeros(0)]
    kept = measured.known & ~measured.own
    for rows in measured.conditions.loc[~silent].groupby("context").indices.values():
        part = np.flatnonzero(~silent)[rows]
        ours.append(metrics.pairwise(predicted[part], kept[part]))
        theirs.append(metrics.pairwise(measured.values[part], kept[part]))
    found = {"predicted": np.concatenate(ours), "measured": np.concatenate(theirs)}
    finite = {side: values[np.isfinite(values)] for side, values in found.items()}
    means = {side: float(values.mean()) if len(values) else np.nan for side, values in finite.items()}
    return {**means, "n": len(found["predicted"]), "n_nan": len(found["predicted"]) - len(finite["predicted"])}


def _means(table: pd.DataFrame) -> dict[str, tuple[float, int, int]]:
    """Return mean, number with a value and number without, of each metric."""
    found = {}
    for name in _ALONE:
        values = table[name].to_numpy(dtype=np.float64)
        finite = values[np.isfinite(values)]
        found[name] = (float(finite.mean()) if len(finite) else np.nan, len(finite), len(values) - len(finite))
    each = [
        metrics.spearman(rows["n_significant"].to_numpy(), rows["n_called"].to_numpy())
        for _, rows in table.loc[table["n_significant"] > 0].groupby("context")
    ]
    finite = np.array([value for value in each if np.isfinite(value)])
    n = table["context"].nunique()
    found["de_spearman_sig"] = (float(finite.mean()) if len(finite) else np.nan, len(finite), n - len(finite))
    return found


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    everything = _means(table)
    supported = _means(table.loc[table["status"] == "ok"])
    rows = {name: (*everything[name], supported[name][0]) for name in EXPRESSION_METRICS}
    made = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "n", "n_nan", "supported"])
    return made.astype({"n": int, "n_nan": int}).rename_axis("metric")


def _strata(table: pd.DataFrame, column: str) -> pd.DataFrame:
    rows: dict[str, dict[str, float]] = {}
    for name, part in table.groupby(column, sort=True):
        found = _means(part)
        means = {metric: value[0] for metric, value in found.items()}
        rows[str(name)] = {
            "n_conditions": len(part),
            **means,
            **{f"n_{metric}": n for metric, (_, n, _) in found.items()},
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(column)


def _notes(table: pd.DataFrame, measured: Measured) -> tuple[str, ...]:
    notes = []
    if silent := int((table["status"] != "ok").sum()):
        notes.append(f"{silent:,} of {len(table):,} conditions are unsupported; they count as predictions of zero")
    if missing := int(table["n_missing"].sum()):
        notes.append(f"{missing:,} of {int(measured.known.sum()):,} effects have no prediction; they count as zero")
    if not measured.known.all():
        notes.append("not every gene is measured in every condition: discrimination is over those that are, if any")
    return tuple(notes)
