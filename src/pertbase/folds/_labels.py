"""Label rules: what turns the test of a condition and a readout gene into an outcome, or into none."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from pertbase.errors import InputError, unknown_name
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._condition_tests import (
    PSEUDOCOUNT,
    ConditionTests,
    Evidence,
    check_statistic,
    condition_tests,
    effect,
)
from pertbase.folds._effects import Statistic

__all__ = [
    "PSEUDOCOUNT",
    "RULES",
    "ConditionTests",
    "Equivalence",
    "Evidence",
    "LabelRule",
    "PertMind",
    "Ranksum",
    "VCWorld",
    "condition_tests",
    "effect",
    "label_rule",
    "power",
]

_UP, _DOWN, _NO_CHANGE = range(len(OUTCOMES))
_AMBIGUOUS = -1


@dataclass(frozen=True, kw_only=True)
class LabelRule(ABC):
    """Turns a test of a (condition, readout gene) into an outcome, or into none where it is ambiguous.

    Parameters
    ----------
    statistic
        The effect's statistic: the fold's, for labels, adapters and measured effects alike.
    min_cells
        Conditions with fewer cells get no questions. scanpy warns of the normal approximation up to 25.
    """

    name: ClassVar[str]
    statistic: Statistic = "mean_log"
    min_cells: int = 25

    def __post_init__(self) -> None:
        check_statistic(self.statistic)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if field.name != "statistic" and not (number and math.isfinite(value) and value > 0):
                raise InputError("must be a positive number", key=f"{self.name}.{field.name}", value=value)
        if self.min_cells < 2:
            raise InputError("must be at least 2", key="min_cells", value=self.min_cells)

    @property
    @abstractmethod
    def tau(self) -> float:
        """Smallest absolute effect of a call, natural log."""

    @property
    @abstractmethod
    def significance(self) -> float:
        """Largest adjusted p-value of a call."""

    @abstractmethod
    def codes(self, evidence: Evidence) -> np.ndarray:
        """Return the index into ``OUTCOMES`` of each outcome, -1 where ambiguous; int8."""

    @property
    def thresholds(self) -> tuple[float, float]:
        """``(tau_up, tau_down)``, natural log: what an effect must exceed, or fall below the negative of.

        With them measured effects can be scored as if they were predicted.
        """
        return self.tau, self.tau

    def label(self, tests: ConditionTests) -> np.ndarray:
        """Return each outcome, None where ambiguous; shape (n_conditions, n_genes), dtype object."""
        # Ambiguous, -1, is the last.
        outcomes: np.ndarray = np.array([*OUTCOMES, None], dtype=object)[self.codes(tests.evidence(self.statistic))]
        return outcomes

    def keep(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """Return which (condition, gene) pairs become questions, a mask like ``codes``; all, unless a rule samples."""
        return np.ones(codes.shape, dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """Return name and parameters: part of a fold's hash."""
        return {"name": self.name, **dataclasses.asdict(self)}


def _codes(up: np.ndarray, down: np.ndarray, no_change: np.ndarray) -> np.ndarray:
    codes: np.ndarray = np.select([up, down, no_change], [_UP, _DOWN, _NO_CHANGE], _AMBIGUOUS).astype(np.int8)
    return codes


@dataclass(frozen=True, kw_only=True)
class Ranksum(LabelRule):
    """Up or down: adjusted p < alpha and absolute effect > tau. No change: raw p > no_change_p. Else ambiguous.

    Parameters
    ----------
    threshold
        The size an effect has to exceed to be called, natural log.
    alpha
        The adjusted p-value that a call stays below.
    no_change_p
        The raw p-value above which nothing changed.
    """

    name: ClassVar[str] = "ranksum"
    threshold: float = 0.25
    alpha: float = 0.05
    no_change_p: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha <= self.no_change_p < 1:
            # An adjusted p-value is never below the raw one, so that no pair can then be both.
            raise InputError("must lie between alpha and 1", key=f"{self.name}.no_change_p", value=self.no_change_p)

    @property
    def tau(self) -> float:
        """Smallest absolute effect of a call, natural log."""
        return self.threshold

    @property
    def significance(self) -> float:
        """Largest adjusted p-value of a call."""
        return self.alpha

    def codes(self, evidence: Evidence) -> np.ndarray:
        """Return the index into ``OUTCOMES`` of each outcome, -1 where ambiguous; int8."""
        significant = evidence.p_adjusted < self.alpha
        return _codes(
            significant & (evidence.effect > self.tau),
            significant & (evidence.effect < -self.tau),
            self._unchanged(evidence),
        )

    def _unchanged(self, evidence: Evidence) -> np.ndarray:
        unchanged: np.ndarray = evidence.p_value > self.no_change_p
        return unchanged


@dataclass(frozen=True, kw_only=True)
class VCWorld(Ranksum):
    """VCWorld's: as ``ranksum``, but on scanpy's fold change in base 2, and no change sampled per condition.

    Its fold change is not defined further than "log"; we read it as what ``rank_genes_groups`` returns. It is
    stated at a total of 1e4, which a screen has to be prepared with.

    Parameters
    ----------
    threshold
        On the absolute fold change, base 2.
    no_change_per_condition
        As many at most, drawn without replacement.
    """

    name: ClassVar[str] = "vcworld"
    statistic: Statistic = "log_mean"
    no_change_per_condition: int = 200

    @property
    def tau(self) -> float:
        """Smallest absolute effect of a call, natural log."""
        return self.threshold * math.log(2)

    def keep(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """Return which (condition, gene) pairs become questions: up to so many no change in a condition."""
        keep = np.ones(codes.shape, dtype=bool)
        for row, line in zip(keep, codes, strict=True):
            unchanged = np.flatnonzero(line == _NO_CHANGE)
            excess = len(unchanged) - self.no_change_per_condition
            if excess > 0:
                row[rng.choice(unchanged, excess, replace=False)] = False
        return keep


@dataclass(frozen=True, kw_only=True)
class Equivalence(Ranksum):
    """Calls as ``ranksum``; no change only where the effect is shown to be small.

    No change needs the whole interval ``effect +- z * standard error``, of coverage 1 - interval_alpha, inside
    (-tau, tau). It is a normal interval from the variance between cells, see
    :meth:`ConditionTests.standard_error`; raw p-values play no part, so that a gene nobody could have called is
    ambiguous and not ``no_change``.

    Parameters
    ----------
    interval_alpha
        One minus the interval's coverage.
    """

    name: ClassVar[str] = "equivalence"
    interval_alpha: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.interval_alpha < 1:
            raise InputError("must be below 1", key=f"{self.name}.interval_alpha", value=self.interval_alpha)

    def _unchanged(self, evidence: Evidence) -> np.ndarray:
        margin = ndtri(1 - self.interval_alpha / 2) * evidence.standard_error
        unchanged: np.ndarray = np.abs(evidence.effect) + margin < self.tau
        return unchanged


@dataclass(frozen=True, kw_only=True)
class PertMind(LabelRule):
    """PertMind's strict rule, on fold changes in base 2.

    Up or down: adjusted p <= alpha and absolute fold change >= log2_call. No change: absolute fold change <
    log2_no_change, adjusted p >= no_change_p and base mean >= base_mean.

    Parameters
    ----------
    log2_call, log2_no_change
        The size from which an effect is called, and below which it is none; base 2.
    alpha, no_change_p
        The largest adjusted p-value of a call, and the smallest of no change.
    base_mean
        Least mean of condition and control, in counts scaled to the screen's total: a gene that is hardly seen is
        not called unchanged.
    """

    name: ClassVar[str] = "pertmind"
    statistic: Statistic = "log_mean"
    min_cells: int = 30
    log2_call: float = 0.585
    log2_no_change: float = 0.2
    alpha: float = 0.05
    no_change_p: float = 0.5
    base_mean: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.log2_no_change <= self.log2_call:
            raise InputError("must not exceed log2_call", key="pertmind.log2_no_change", value=self.log2_no_change)

    @property
    def tau(self) -> float:
        """Smallest absolute effect of a call, natural log."""
        return self.log2_call * math.log(2)

    @property
    def significance(self) -> float:
        """Largest adjusted p-value of a call."""
        return self.alpha

    def codes(self, evidence: Evidence) -> np.ndarray:
        """Return the index into ``OUTCOMES`` of each outcome, -1 where ambiguous; int8."""
        significant = evidence.p_adjusted <= self.alpha
        unchanged = np.abs(evidence.effect) < self.log2_no_change * math.log(2)
        unchanged = unchanged & (evidence.p_adjusted >= self.no_change_p) & (evidence.base_mean >= self.base_mean)
        return _codes(
            significant & (evidence.effect >= self.tau), significant & (evidence.effect <= -self.tau), unchanged
        )


RULES: Mapping[str, type[LabelRule]] = {rule.name: rule for rule in (Ranksum, VCWorld, PertMind, Equivalence)}


def label_rule(rule: str | Mapping[str, Any], **parameters: Any) -> LabelRule:
    """Return a rule by its name, or from :meth:`LabelRule.to_dict`; what is not given keeps the rule's defaults.

    Raises
    ------
    InputError
        Where the rule, or a parameter of it, is unknown, or a parameter is out of range.
    """
    if not isinstance(rule, (str, Mapping)):
        raise InputError("a label rule is a name, or a mapping with name and parameters", key="rule", value=rule)
    values = {"name": rule, **parameters} if isinstance(rule, str) else {**rule, **parameters}
    name = values.pop("name", None)
    if name not in RULES:
        raise unknown_name("label rule", str(name), RULES)
    known = {field.name for field in dataclasses.fields(RULES[name])}
    for parameter in values:
        if parameter not in known:
            raise unknown_name(f"parameter of label rule {name!r}", parameter, known)
    return RULES[name](**values)


def power(tests: ConditionTests, rule: LabelRule, *, true_effect: float | None = None) -> np.ndarray:
    r"""Return the probability that a true effect of a given size would be significant, (n_conditions, n_genes).

    With the effect's standard error :math:`s` from the cells, :math:`\delta` the true effect and
    :math:`q = \Phi^{-1}(1 - p^*/2)`,

    .. math:: \Phi(\delta/s - q) + \Phi(-\delta/s - q),

    where :math:`p^*` is the raw p-value that Benjamini-Hochberg asks for in the condition as it was measured:
    :math:`\alpha k / m`, for :math:`k` of :math:`m` genes significant, at least one. It is the power of a z-test on
    means, near that of the rank-sum test for the distributions at hand. 0 for genes that no cell of either group
    expresses.

    The rule's threshold on the effect is left out: at a true effect of just that size it is passed half the time,
    however many cells there are, and what is asked here is what the number of cells decides.

    Parameters
    ----------
    true_effect
        Natural log; the rule's tau where not given.
    """
    size = rule.tau if true_effect is None else abs(true_effect)
    n_genes = tests.p_value.shape[1]
    significant = np.maximum((tests.p_adjusted < rule.significance).sum(axis=1, keepdims=True), 1)
    quantile = -ndtri(rule.significance * significant / n_genes / 2)
    error = tests.standard_error(rule.statistic)
    ratio = np.divide(size, error, out=np.zeros_like(error), where=error > 0)
    probability: np.ndarray = ndtr(ratio - quantile) + ndtr(-ratio - quantile)
    return np.where(error > 0, probability, 0.0)
