"""Scores of predicted effects against measured ones."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.scorers import _expression_metrics as metrics

if TYPE_CHECKING:
    from pertbase.folds import Effects, Truth

__all__ = ["CALL", "EXPRESSION_METRICS", "ExpressionScores", "Measured", "expression", "laid_out", "measured_effects"]

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
        Index context or regime; ``n_conditions`` and the mean of each metric.
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


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured effects laid out, conditions x genes.

    Parameters
    ----------
    conditions
        ``context``, ``perturbation``, ``regime``.
    genes
        The columns.
    values
        Effects, zero where not known.
    known, tested
        Which effects, and which adjusted p-values, there are.
    p_adjusted
        NaN where there is none.
    own
        Which genes are the condition's own targets.
    statistic
        Of the effects; None where the truth does not say.
    """

    conditions: pd.DataFrame
    genes: pd.Index
    values: np.ndarray
    known: np.ndarray
    p_adjusted: np.ndarray
    own: np.ndarray
    statistic: str | None

    @property
    def tested(self) -> np.ndarray:
        """Which adjusted p-values there are."""
        return np.asarray(np.isfinite(self.p_adjusted))


def measured_effects(truth: Truth) -> Measured:
    """Return the effects of the truth, or where it has no matrix of them those of its questions, with p-values.

    Raises
    ------
    InputError
        Where there is neither: outcomes without effects cannot be compared with effects.
    """
    questions = truth.questions
    keys = ["context", "perturbation"]
    if truth.effects is None and not questions["effect"].notna().any():
        raise InputError(
            f"the fold {truth.name} holds outcomes and no measured effects",
            key="effects",
            remedy="score answers to it instead: the adapters turn effects into answers",
        )
    if truth.effects is None:
        conditions = questions[keys].drop_duplicates().sort_values(keys, ignore_index=True)
        genes = pd.Index(sorted(questions["gene"].unique()), name="gene")
        values, known = np.zeros((len(conditions), len(genes))), np.zeros((len(conditions), len(genes)), dtype=bool)
    else:
        conditions, genes = truth.effects.conditions, truth.effects.genes
        values = truth.effects.values.copy()
        known = np.ones(values.shape, dtype=bool) if truth.effects.known is None else truth.effects.known.copy()
    row = pd.MultiIndex.from_frame(conditions).get_indexer(pd.MultiIndex.from_frame(questions[keys].astype(str)))
    column = genes.get_indexer(questions["gene"])
    if truth.effects is None:
        values[row, column] = questions["effect"].to_numpy()
        known[row, column] = True
    p_adjusted = np.full(values.shape, np.nan)
    p_adjusted[row, column] = questions["p_adjusted"].to_numpy(dtype=np.float64)
    own = np.zeros(values.shape, dtype=bool)
    for position, targets in questions["targets"].groupby(row).first().items():
        own[position] = genes.isin(str(targets).split("+"))
    regimes = questions.loc[questions["regime"] != "ambiguous"].groupby(keys, observed=True)["regime"].first()
    regime = regimes.astype(object).reindex(pd.MultiIndex.from_frame(conditions)).fillna("").to_numpy(dtype=object)
    statistic = None if truth.effects is None else truth.effects.statistic
    return Measured(conditions.assign(regime=regime), genes, values, known, p_adjusted, own, statistic)


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
        Where the truth has no effects, or the statistics differ.
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


def laid_out(
    effects: Effects, measured: Measured, *, values: np.ndarray | None = None, missing: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions in the measured layout, which pairs have one, and which conditions have none."""
    have = pd.MultiIndex.from_frame(effects.conditions)
    row = have.get_indexer(pd.MultiIndex.from_frame(measured.conditions[["context", "perturbation"]]))
    column = effects.genes.get_indexer(measured.genes)
    ok = (row >= 0) & (effects.status[np.maximum(row, 0)] == "ok") if len(have) else np.zeros(len(row), dtype=bool)
    rows, columns = np.flatnonzero(ok), np.flatnonzero(column >= 0)
    there = np.zeros((len(row), len(column)), dtype=bool)
    source = np.ix_(row[rows], column[columns])
    target = np.ix_(rows, columns)
    there[target] = True if effects.known is None else effects.known[source]
    made = np.full(there.shape, missing)
    made[target] = (effects.values if values is None else values)[source]
    made[~there] = missing
    return made, there, ~ok


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
    rows = {
        str(name): {"n_conditions": len(part)} | {metric: value[0] for metric, value in _means(part).items()}
        for name, part in table.groupby(column, sort=True)
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
