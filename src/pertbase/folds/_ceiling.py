r"""What a perfect replicate of the screen would score against the screen's own outcomes.

Two numbers, for the same conditions and rule.

*Split half*, measured: the cells of each condition and the controls are halved, one half's effects are held against
thresholds and scored against the other half's outcomes, both ways round. Nothing is assumed, but effects and
outcomes are those of a screen half the size.

*Corrected*, modelled: the score of effects measured again on as many cells, against the outcomes at hand. Within a
condition true effects follow a mixture of normal distributions around zero, whose weights are fitted to the measured
effects :math:`e` and their standard errors :math:`s` (Stephens 2017, doi:10.1093/biostatistics/kxw041). A replicate is
drawn in two steps: a true effect :math:`\theta` from its distribution given :math:`e`, then :math:`N(\theta, s^2)`.

The half's score stepped up by Spearman-Brown (:math:`k' = 2k/(1+k)`, :math:`k = (BA - 1/3)/(2/3)`) is too high at fixed
thresholds: with more cells smaller effects get called too, and those lie as near to the threshold as the others did
before. Measured against an independent second screen of full size (mean of three simulated screens, or of eight
halvings of Papalexi with each half taken as a whole screen), balanced accuracy with the thresholds at the rule's tau /
tuned on the other half of the conditions:

====================================================  ===========  ===========  ==============  ===========
screen                                                replicate    half         Spearman-Brown  corrected
====================================================  ===========  ===========  ==============  ===========
Papalexi, ``mean_log``                                .828 / .878  .814 / .837  .891 / .907     .818 / .856
Papalexi, ``log_mean``                                .754 / .756  .719 / .724  .822 / .826     .756 / .756
60 conditions, 100-500 cells, sd of effects .5        .904 / .989  .864 / .968  .924 / .983     .896 / .989
the same, 40-100 cells                                .824 / .915  .831 / .869  .903 / .928     .831 / .907
the same, sd .25                                      .808 / .974  .730 / .928  .830 / .962     .792 / .977
120 conditions, 50-200 cells, 5% instead of 20% true  .876 / .966  .847 / .921  .914 / .958     .861 / .952
120 conditions, 100-200 cells, sd .15                 .627 / .924  .519 / .742  .623 / .839     .670 / .883
====================================================  ===========  ===========  ==============  ===========

The simulated cells are negative binomial, 250 genes. The last row has a few dozen calls in all. The *true* effects
of the simulated screens, same rows, score .914 / .997, .865 / .967, .818 / .990, .889 / .987 and .592 / .918.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pertbase.errors import InputError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._cells import Matrix
from pertbase.folds._condition_tests import ConditionTests, condition_tests
from pertbase.folds._labels import LabelRule

__all__ = ["Ceiling", "split_half_ceiling"]

Rows = Mapping[tuple[str, str], np.ndarray]

_UP, _DOWN, _NO_CHANGE = range(len(OUTCOMES))
_NOT_ASKED = -1

_MIN_CELLS = 4
"""A half needs two cells."""

_N_WIDTHS = 16
"""Normal components beside the point at zero; their widths are a geometric row."""

_N_STEPS = 100
"""EM steps for their weights."""

_N_FITTED = 2000
"""Genes of a condition the weights are fitted to, at most."""

_NULL_PSEUDOCOUNT = 2.0
"""Genes without an effect that are added to a condition's own: where little speaks for effects, none are assumed."""


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """Scores of measured effects against measured outcomes; NaN where a class has no question.

    Parameters
    ----------
    half, half_accuracy
        Balanced accuracy and accuracy of one half's effects against the other half's outcomes, mean over halvings.
    corrected, corrected_accuracy
        The same of a replicate of full size against the outcomes from all cells, mean over draws.
    half_thresholds, thresholds
        (tau_up, tau_down) that the halves' effects (mean over halvings) and the replicates' were held against.
    tuned
        Whether the thresholds were tuned on other conditions, or are the rule's own.
    n_conditions
        Conditions scored.
    n_up, n_down, n_no_change
        Questions scored by outcome, from all cells.
    repeats
        Halvings, each scored both ways round, and draws of a replicate.
    undefined
        How many of the ``2 * repeats`` scores of halves have no balanced accuracy, a class having no question; they
        are left out of ``half``.
    """

    half: float
    corrected: float
    half_accuracy: float
    corrected_accuracy: float
    half_thresholds: tuple[float, float]
    thresholds: tuple[float, float]
    tuned: bool
    n_conditions: int
    n_up: int
    n_down: int
    n_no_change: int
    repeats: int
    undefined: int


def split_half_ceiling(
    X: Matrix,
    controls: Mapping[str, np.ndarray],
    conditions: Rows,
    rule: LabelRule,
    *,
    rng: np.random.Generator,
    repeats: int = 5,
    batches: np.ndarray | None = None,
    tune: Rows | None = None,
    asked: Rows | None = None,
) -> Ceiling:
    """Return how well the conditions' effects, measured again, would answer the conditions' questions.

    Cells are taken to be exchangeable within condition and batch: what a batch, clone or guide does to all its
    cells is shared by both halves, and a replicate that does not share it scores less.

    Parameters
    ----------
    X
        Cells x genes, natural log1p; CSR or dense.
    controls
        Context -> row numbers of its truth controls.
    conditions
        (context, perturbation) -> row numbers of its cells: the conditions scored. Those with fewer cells than the
        rule's minimum are left out.
    rule
        Gives the outcomes, the statistic and, without ``tune``, the thresholds.
    rng
        Draws the halves and the replicates.
    repeats
        Halvings, and draws.
    batches
        One label a cell of ``X``: halves then hold equal shares of each batch.
    tune
        Further conditions, disjoint from the scored ones, on which thresholds are tuned for balanced accuracy, as
        an adapter's would be. Where they hold no question of a class, the rule's own stay.
    asked
        (context, perturbation) -> mask over genes, the readout genes asked about; all where a condition is absent.

    Raises
    ------
    InputError
        Where ``repeats`` is not positive or ``tune`` shares conditions with ``conditions``.
    """
    if repeats < 1:
        raise InputError("must be at least 1", key="repeats", value=repeats)
    tune = tune or {}
    if shared := sorted(set(tune) & set(conditions)):
        raise InputError("thresholds would be tuned on conditions that are scored", key="tune", value=shared[0])
    matrix = X.tocsr() if hasattr(X, "tocsr") else X
    least = max(rule.min_cells, _MIN_CELLS)
    rows = {**conditions, **tune}
    full = condition_tests(matrix, controls=controls, conditions=rows, min_cells=least, min_controls=_MIN_CELLS)
    keys = list(zip(full.conditions["context"], full.conditions["perturbation"], strict=True))
    kept = {key: rows[key] for key in keys}
    scored = np.array([key in conditions for key in keys], dtype=bool)
    unasked = _unasked(keys, asked, full.p_value.shape)
    codes = _codes(full, rule, unasked)

    halves = []
    for _ in range(repeats):
        first, second = _halves(matrix, controls, kept, batches, rng)
        effects = np.stack([first.effect(rule.statistic), second.effect(rule.statistic)])
        answers = np.stack([_codes(second, rule, unasked), _codes(first, rule, unasked)])
        halves.append(_score(effects, answers, scored, rule))
    drawn = _replicates(full.effect(rule.statistic), full.standard_error(rule.statistic), repeats, rng)
    whole = _score(drawn, np.broadcast_to(codes, drawn.shape), scored, rule)
    balanced = [score for half in halves for score in half.balanced]
    return Ceiling(
        half=_mean(balanced),
        corrected=_mean(whole.balanced),
        half_accuracy=_mean([score for half in halves for score in half.plain]),
        corrected_accuracy=_mean(whole.plain),
        half_thresholds=(_mean([h.thresholds[0] for h in halves]), _mean([h.thresholds[1] for h in halves])),
        thresholds=whole.thresholds,
        tuned=bool((~scored).any()),
        n_conditions=int(scored.sum()),
        n_up=int((codes[scored] == _UP).sum()),
        n_down=int((codes[scored] == _DOWN).sum()),
        n_no_change=int((codes[scored] == _NO_CHANGE).sum()),
        repeats=repeats,
        undefined=int(np.isnan(balanced).sum()),
    )


def _unasked(keys: list[tuple[str, str]], asked: Rows | None, shape: tuple[int, ...]) -> np.ndarray:
    unasked = np.zeros(shape, dtype=bool)
    for line, key in zip(unasked, keys, strict=True):
        if asked is not None and key in asked:
            line[:] = ~np.asarray(asked[key], dtype=bool)
    return unasked


def _codes(tests: ConditionTests, rule: LabelRule, unasked: np.ndarray) -> np.ndarray:
    return np.where(unasked, _NOT_ASKED, rule.codes(tests.evidence(rule.statistic)))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _halves(
    X: Matrix,
    controls: Mapping[str, np.ndarray],
    conditions: Rows,
    batches: np.ndarray | None,
    rng: np.random.Generator,
) -> tuple[ConditionTests, ConditionTests]:
    """Return the tests of two disjoint halves, of conditions and of controls alike."""

    def shuffle(rows: np.ndarray) -> np.ndarray:
        order: np.ndarray = rng.permutation(np.asarray(rows, dtype=np.intp))
        # Sorted by batch, every second cell is a random half of each batch.
        return order if batches is None else order[np.argsort(np.asarray(batches)[order], kind="stable")]

    reference = {context: shuffle(rows) for context, rows in controls.items()}
    treated = {key: shuffle(rows) for key, rows in conditions.items()}
    first, second = (
        condition_tests(
            X,
            controls={context: rows[side::2] for context, rows in reference.items()},
            conditions={key: rows[side::2] for key, rows in treated.items()},
        )
        for side in (0, 1)
    )
    return first, second


@dataclass(frozen=True)
class _Scores:
    balanced: list[float]
    plain: list[float]
    thresholds: tuple[float, float]


def _score(effects: np.ndarray, codes: np.ndarray, scored: np.ndarray, rule: LabelRule) -> _Scores:
    """Score thresholded effects; both arrays are (n_scores, n_conditions, n_genes), ``scored`` masks conditions."""
    tau_up, tau_down = thresholds = _tuned(effects[:, ~scored], codes[:, ~scored], rule)
    balanced, plain = [], []
    for effect, truth in zip(effects[:, scored], codes[:, scored], strict=True):
        answer = np.select([effect > tau_up, effect < -tau_down], [_UP, _DOWN], _NO_CHANGE)
        right = [(answer == truth)[truth == outcome] for outcome in (_UP, _DOWN, _NO_CHANGE)]
        balanced.append(float(np.mean([hit.mean() for hit in right])) if all(map(len, right)) else float("nan"))
        pooled = np.concatenate(right)
        plain.append(float(pooled.mean()) if len(pooled) else float("nan"))
    return _Scores(balanced, plain, thresholds)


def _tuned(effects: np.ndarray, codes: np.ndarray, rule: LabelRule) -> tuple[float, float]:
    """Return the (tau_up, tau_down) of the highest balanced accuracy, the rule's where a class is absent.

    With both at 0 or above no effect passes both, so balanced accuracy is a sum of a term in tau_up and a term in
    tau_down, and each is found on its own: the share of called effects beyond it less that of unchanged ones.
    """
    found = []
    for sign, outcome, own in ((1, _UP, rule.thresholds[0]), (-1, _DOWN, rule.thresholds[1])):
        called = np.sort(sign * effects[codes == outcome])
        unchanged = np.sort(sign * effects[codes == _NO_CHANGE])
        if not (len(called) and len(unchanged)):
            found.append(own)
            continue
        values = np.concatenate([called, unchanged])
        candidates = np.unique(np.concatenate([[0.0], values[values > 0]]))
        missed = np.searchsorted(called, candidates, side="right") / len(called)
        spared = np.searchsorted(unchanged, candidates, side="right") / len(unchanged)
        found.append(float(candidates[np.argmax(spared - missed)]))
    return found[0], found[1]


def _replicates(effects: np.ndarray, errors: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n replicates of the effects, (n, n_conditions, n_genes), drawn condition by condition."""
    drawn = np.empty((n, *effects.shape))
    for condition, (effect, error) in enumerate(zip(effects, errors, strict=True)):
        # Without spread between cells, as of a gene no cell expresses, there is nothing to draw.
        drawn[:, condition] = effect
        spread = error > 0
        if spread.any():
            drawn[:, condition, spread] = _replicate(effect[spread], error[spread], n, rng)
    return drawn


def _replicate(effect: np.ndarray, error: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw true effects given the measured ones, then measure them again; shape (n, n_genes)."""
    widest = 2 * max(float(np.abs(effect).max()), float(error.min()))
    widths = np.concatenate([[0.0], np.geomspace(error.min() / 3, widest, _N_WIDTHS)])
    variance = error[:, None] ** 2 + widths**2
    log_density = -0.5 * (effect[:, None] ** 2 / variance + np.log(variance))
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weights = np.full(len(widths), 1 / len(widths))
    fitted = density[:: -(-len(effect) // _N_FITTED)]
    for _ in range(_N_STEPS):
        share = fitted * weights
        counts = (share / share.sum(axis=1, keepdims=True)).sum(axis=0)
        counts[0] += _NULL_PSEUDOCOUNT
        weights = counts / counts.sum()
    reach = np.cumsum(density * weights, axis=1)
    reach /= reach[:, -1:]
    component = (rng.random((n, len(effect), 1)) >= reach).sum(axis=2).clip(max=_N_WIDTHS)
    kept = widths[component] ** 2 / (widths[component] ** 2 + error**2)
    true = kept * effect + np.sqrt(kept) * error * rng.standard_normal(component.shape)
    replicate: np.ndarray = true + error * rng.standard_normal(component.shape)
    return replicate
