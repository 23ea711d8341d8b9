"""What the values of somebody else's matrix are: counts, or which logarithm of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from pertbase.errors import InputError
from pertbase.folds._prepare._blocks import blocks

__all__ = ["Recognised", "Survey", "recognise", "survey"]

_SAMPLE_CELLS = 2_000
# log1p of counts per million reaches log(1 + 1e6) = 13.8; no logarithm of a count reaches 30.
_HIGHEST_LOG = 30.0
# Quantiles of the totals of one normalised file agree to 1e-6 in float32 and 1e-3 in float16.
_SAME_TOTAL = 2e-3
# Within one cell scaled counts are whole multiples of the smallest one. On perturbench's devel.h5ad every one
# of 17,663 values is a multiple (to 2%) under the right logarithm, and 2-4% are under a wrong one.
_MULTIPLE, _WHOLE, _CHANCE = 0.02, 0.95, 0.5


@dataclass(frozen=True)
class Survey:
    """One pass over the kept cells: what their values look like.

    ``sums`` and ``filled`` have one entry a row of the matrix (zero for rows that are not kept): the sum of the
    values, and how many are not zero.
    """

    whole: bool
    highest: float
    sums: np.ndarray
    filled: np.ndarray
    sample: Any


@dataclass(frozen=True)
class Recognised:
    """What the values are, and what turns them into the contract's.

    Parameters
    ----------
    counts
        Whether they are raw counts; otherwise they are logarithms.
    total
        The total of the contract: what counts will be, or were, scaled to; None until the kept cells are known.
    factor
        What logarithms are multiplied by: 1 for natural ones, ln 2 for base 2.
    text
        For the report.
    warnings
        What could not be verified.
    """

    counts: bool
    total: float | None
    factor: float
    text: str
    warnings: tuple[str, ...] = ()


def survey(values: Any, keep: np.ndarray, *, file: str | None = None, key: str = "X") -> Survey:
    """Look at every value of the kept cells once.

    Raises
    ------
    InputError
        For NaN, infinite and negative values.
    """
    sums, filled = np.zeros(len(keep)), np.zeros(len(keep), dtype=np.int64)
    whole, highest = True, 0.0
    sampled = np.zeros(len(keep), dtype=bool)
    kept = np.flatnonzero(keep)
    sampled[kept[:: max(1, len(kept) // _SAMPLE_CELLS)]] = True
    sample = []
    for rows, block in blocks(values, keep):
        data = block.data if sparse.issparse(block) else block
        if not np.isfinite(data).all():
            raise InputError(
                "holds NaN or infinite values",
                file=file,
                key=key,
                value=f"{int((~np.isfinite(data)).sum())} values among cells {rows[0]} to {rows[-1]}",
                remedy="mend or drop those cells or genes, or read raw counts with layer=NAME",
            )
        lowest = float(data.min()) if data.size else 0.0
        if lowest < 0:
            raise InputError(
                "holds negative values, so it is scaled (z-scores) or corrected data and not counts",
                file=file,
                key=key,
                value=lowest,
                remedy="read raw counts with layer=NAME, or fetch the file as it was before scaling",
            )
        whole = whole and bool(np.all(data == np.rint(data)))
        highest = max(highest, float(data.max()) if data.size else 0.0)
        sums[rows] = np.asarray(block.sum(axis=1)).ravel()
        filled[rows] = np.diff(block.indptr) if sparse.issparse(block) else np.count_nonzero(block, axis=1)
        sample.append(sparse.csr_matrix(block[sampled[rows]]))
    return Survey(whole, highest, sums, filled, sparse.vstack(sample, format="csr"))


@dataclass(frozen=True)
class _Scale:
    """One thing that values could be: how to undo it, and what to do where they are that."""

    text: str
    undo: Callable[[np.ndarray], np.ndarray]
    factor: float | None
    remedy: str = ""


_RAW = "read raw counts with layer=NAME, or "
_SCALES = (
    _Scale("natural log1p", np.expm1, 1.0),
    _Scale("log2(1 + x)", lambda x: np.expm1(x * math.log(2)), math.log(2)),
    _Scale("log10(1 + x)", lambda x: np.expm1(x * math.log(10)), math.log(10)),
    _Scale("scaled to a total without a logarithm", lambda x: x, None, _RAW + "take numpy.log1p of the values first"),
    _Scale(
        "a logarithm of logarithms",
        lambda x: np.expm1(np.expm1(x)),
        None,
        _RAW + "undo one logarithm with numpy.expm1",
    ),
)


def recognise(
    seen: Survey, *, values: str = "auto", total: float | None = None, file: str | None = None, key: str = "X"
) -> Recognised:
    """Say what the values are, from their totals and from the multiples that counts leave behind.

    Totals decide where all genes are there: only under the right logarithm are they the same in every cell.
    Where genes were subset, the multiples do: within one cell scaled counts are whole multiples of the smallest
    one, again only under the right logarithm; the total then has to be declared.

    Raises
    ------
    InputError
        For values that are no logarithm of counts, or whose total is neither to be seen nor declared.
    """
    if values == "counts" or (values == "auto" and seen.whole):
        text = "raw counts" if seen.whole else "estimated counts (not whole numbers)"
        rare = ("no value is above 1: if the counts were binarised, effects mean little",) if seen.highest <= 1 else ()
        return Recognised(True, total, 1.0, text, rare)
    if seen.highest > _HIGHEST_LOG:
        raise InputError(
            f"holds fractions up to {seen.highest:g}, so it is scaled without a logarithm, or corrected",
            file=file,
            key=key,
            value=seen.highest,
            remedy=_RAW + "take numpy.log1p; estimated counts (alevin, kallisto) are read with values=counts",
        )
    evidence = {scale.text: _evidence(seen.sample, scale) for scale in _SCALES}
    scale, by_totals = _decide(evidence) if values == "auto" else (_SCALES[0], _same(evidence, _SCALES[0]))
    if scale is not None and scale.factor is None:
        raise InputError(f"is {scale.text}", file=file, key=key, value=round(seen.highest, 3), remedy=scale.remedy)
    chosen = scale or _SCALES[0]
    totals = evidence[chosen.text].totals
    if evidence[chosen.text].unscaled:
        raise InputError(
            f"is {chosen.text} of counts that were not scaled to a total",
            file=file,
            key=key,
            value=round(seen.highest, 3),
            remedy=_RAW + "undo the logarithm and round; the counts are then scaled here",
        )
    inferred = _round_total(float(np.median(totals))) if by_totals else None
    _check_total(inferred, total, totals, file, key)
    found = total if total is not None else inferred
    text = f"{chosen.text}, scaled to {found:g}" + ("" if total is not None else ", as every cell's total shows")
    if chosen.factor not in (None, 1.0):
        text += "; turned into natural log1p"
    unsure = [] if scale is not None else ["neither totals nor multiples show the logarithm: taken as natural log1p"]
    if inferred is None:
        unsure.append(f"the declared total {found:g} cannot be checked: there are no counts, and cells' totals differ")
    return Recognised(False, found, float(chosen.factor or 1.0), text, tuple(unsure))


@dataclass(frozen=True)
class _Evidence:
    totals: np.ndarray
    same: bool
    multiples: float
    unscaled: bool


def _evidence(sample: Any, scale: _Scale) -> _Evidence:
    undone = sample.copy()
    with np.errstate(over="ignore"):
        undone.data = scale.undo(undone.data)
    filled = np.flatnonzero(np.diff(undone.indptr))
    if not (len(filled) and np.isfinite(undone.data).all()):
        return _Evidence(np.zeros(0), False, 0.0, False)
    # The matrix is canonical, so every filled row is one run of its data.
    starts = undone.indptr[filled]
    totals = np.add.reduceat(undone.data, starts)
    smallest = np.minimum.reduceat(undone.data, starts)
    ratio = undone.data / np.repeat(smallest, np.diff(undone.indptr)[filled])
    # Far multiples are blurred by rounding, and 1 is a multiple under any scale.
    telling = ratio[(ratio > 1.5) & (ratio < 30)]
    near = np.abs(telling - np.rint(telling)) < _MULTIPLE
    low, middle, high = np.quantile(totals, (0.02, 0.5, 0.98))
    near_one = np.abs(smallest - 1) < 1e-3
    return _Evidence(
        totals,
        same=bool(high - low <= _SAME_TOTAL * middle) and len(filled) > 1,
        multiples=float(near.mean()) if len(telling) >= 100 else math.nan,
        unscaled=bool(near_one.mean() > _WHOLE) and bool(np.ptp(np.rint(totals)) > 0),
    )


def _same(evidence: dict[str, _Evidence], scale: _Scale) -> bool:
    return evidence[scale.text].same


def _decide(evidence: dict[str, _Evidence]) -> tuple[_Scale | None, bool]:
    """Return the scale that the evidence shows, if any, and whether the totals show it."""
    same = [scale for scale in _SCALES if evidence[scale.text].same]
    if len(same) == 1:
        return same[0], True
    whole = [scale for scale in _SCALES if evidence[scale.text].multiples >= _WHOLE]
    others = [item.multiples for name, item in evidence.items() if not whole or name != whole[0].text]
    if len(whole) == 1 and all(not share >= _CHANCE for share in others):
        return whole[0], False
    return None, False


def _check_total(
    inferred: float | None, declared: float | None, totals: np.ndarray, file: str | None, key: str
) -> None:
    if inferred is None and declared is None:
        low, high = (float(item) for item in np.quantile(totals, (0.02, 0.98)))
        raise InputError(
            f"seems to be logged, but the cells' totals differ ({low:.4g} to {high:.4g}), as when genes were left "
            "out after scaling, so that the total cannot be seen",
            file=file,
            key=key,
            value=None,
            remedy="declare it, for example total=10000, or read raw counts with layer=NAME",
        )
    if inferred is not None and declared is not None and abs(inferred - declared) > 0.01 * declared:
        raise InputError(
            f"was scaled to {inferred:g} and not to the declared total",
            file=file,
            key="total",
            value=declared,
            remedy="leave total= out, or read raw counts with layer=NAME",
        )
    highest = float(totals.max()) if len(totals) else 0.0
    if declared is not None and highest > declared * (1 + 5 * _SAME_TOTAL):
        raise InputError(
            f"holds cells whose total is {highest:.5g}, above the declared one",
            file=file,
            key="total",
            value=declared,
            remedy="declare what the counts were scaled to, or read raw counts with layer=NAME",
        )


def _round_total(total: float) -> float:
    """Return the whole number a total was meant to be, where rounding blurred it."""
    nearest = float(round(total))
    return nearest if nearest > 0 and abs(total - nearest) <= 1e-5 * total else total
