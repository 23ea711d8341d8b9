"""Scores of reasons by how well the genes are studied, by conflict, and by context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pertbase._mean_intervals import mean_interval
from pertbase.knowledge._triplet_sets import Integers
from pertbase.scorers._reasoning._nulls import implied_signs
from pertbase.scorers._reasoning._prepare import Prepared

__all__ = ["conflicts", "strata"]

Floats = NDArray[np.float64]
_BESIDE = ("copied", "all_activates", "invented")


def strata(
    ready: Prepared,
    rows: Integers,
    scores: Mapping[str, Floats],
    labels: Mapping[str, Floats],
    controls: Mapping[str, Mapping[str, Floats]],
    *,
    level: float,
) -> pd.DataFrame:
    """Return one row a stratum: F1 with its interval, agreement, and what nulls and controls have there.

    Parameters
    ----------
    ready
        All headline questions.
    rows
        Those the scores are of.
    scores, labels, controls
        Of these questions: of the answers, of the null of labels, and of each control.
    level
        Of intervals.
    """
    sets, genes = ready.aligned.sets[rows], ready.aligned.genes[rows]
    lines = []
    for kind, name, inside in _parts(ready, rows):
        f1 = mean_interval(scores["f1"][inside], sets[inside], genes[inside], level=level)
        line: dict[str, Any] = {"by": kind, "stratum": name, "n": int(inside.sum()), "f1": f1.value}
        line |= {"f1_low": f1.low, "f1_high": f1.high, "consistent": _mean(scores["consistent"][inside])}
        line["f1_null_labels"] = _mean(labels["f1"][inside]) if "f1" in labels else float("nan")
        for control in _BESIDE:
            line[f"f1_{control}"] = _mean(controls[control]["f1"][inside]) if control in controls else float("nan")
        lines.append(line)
    return pd.DataFrame(lines)


def _mean(values: Floats) -> float:
    return float(np.nanmean(values)) if (~np.isnan(values)).any() else float("nan")


def _parts(ready: Prepared, rows: Integers) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    evidence = ready.evidence[rows]
    if len(rows) and not np.isnan(evidence).any():
        # Thirds by rank of the evidence; equal counts stay together, so that there may be fewer.
        bounds = np.unique(np.quantile(evidence, [0, 1 / 3, 2 / 3, 1]))
        edges = [*bounds[:-1], np.inf] if len(bounds) > 1 else [bounds[0], np.inf]
        for low, high in pairwise(edges):
            inside = (evidence >= low) & (evidence < high)
            if inside.any():
                last = int(evidence[inside].max())
                yield "evidence", f"{int(low):,}" if low == last else f"{int(low):,} to {last:,}", inside
    flags = conflicts(ready)
    if flags is not None:
        for name, inside in (("conflict", flags[rows]), ("no conflict", ~flags[rows])):
            if inside.any():
                yield "conflict", name, inside
    contexts = ready.questions["context"].to_numpy(dtype=object)[rows]
    for context in sorted(set(contexts)) if len(set(contexts)) > 1 else ():
        yield "context", str(context), contexts == context


def conflicts(ready: Prepared) -> NDArray[np.bool_] | None:
    """Return whether the given paths of each question imply both up and down; None where no paths were given.

    By the fold's own column where it has one.
    """
    if "conflict" in ready.questions.columns:
        return np.asarray(ready.questions["conflict"].fillna(value=False), dtype=bool)
    given = ready.case.given
    if given is None:
        return None
    implied = implied_signs(given, ready.case.starts)
    both = [np.bincount(given.record[implied == sign], minlength=given.n) > 0 for sign in (1, -1)]
    return np.asarray(both[0] & both[1])
