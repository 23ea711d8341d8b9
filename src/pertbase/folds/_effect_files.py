"""Tables of effects in files: measured ones, that make a data set, and predicted ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from pertbase.errors import InputError, unknown_name
from pertbase.folds._condition_tests import check_statistic
from pertbase.folds._effect_table import PAIR, EffectTable, pair_error
from pertbase.folds._effects import Effects, Statistic
from pertbase.folds._perturbation import MECHANISMS, Part, Perturbation
from pertbase.folds._prepare._dialects import looks_like_control, to_mechanism

__all__ = ["UNITS", "EffectTableOptions", "read_effect_table", "read_predictions"]

UNITS: Mapping[str, float] = {"log": 1.0, "log2": float(np.log(2.0)), "log10": float(np.log(10.0))}
"""Unit of the effects in a file -> what they are multiplied by to become natural logs."""

_MOST_CELLS = 2.0**53
"""Beyond which a number that is read need not be the one that is written."""


@dataclass(frozen=True, kw_only=True)
class EffectTableOptions:
    """How to read a table with one row a (context, perturbation, readout gene).

    Parameters
    ----------
    perturbation
        The column of the perturbation. One is ``A`` or ``A+B``; parts called like a control, as in GEARS' ``A+ctrl``,
        are left out. A name in the spelling of questions, ``CRISPRi:A``, is taken as it is.
    gene
        The column of the readout gene.
    effect
        The column of the effect.
    unit
        Of the effects and their standard errors: a key of :data:`UNITS`.
    statistic
        What the effects are: ``mean_log`` or ``log_mean``.
    context
        The column of the context; ``context`` where neither this nor ``context_value`` is given.
    context_value
        The one context of all rows, where no column says it.
    mechanism
        A mechanism, for all rows, or the column that holds it. Where it is not given, the column ``mechanism``; not
        needed where all names say it.
    separator
        Between the parts of a combination.
    p_value
        The column of the p-value. Without one it is that of effect / standard error against a normal.
    p_adjusted
        The column of the adjusted p-value. Without one, Benjamini-Hochberg over the pairs of the condition that are in
        the table.
    standard_error
        The column of the effect's standard error.
    n_cells
        The column of the perturbed cells' number, whole; 0 or empty where it is not known.
    split
        The column of the split that is shipped, one value a condition.
    regime
        The column of strata to report test questions by, one value a condition.
    train_regimes
        In place of ``split``: the regimes that are train, where all others are test.
    """

    perturbation: str = "perturbation"
    gene: str = "gene"
    effect: str = "effect"
    unit: str = "log"
    statistic: Statistic = "mean_log"
    context: str | None = None
    context_value: str | None = None
    mechanism: str | None = None
    separator: str = "+"
    p_value: str | None = None
    p_adjusted: str | None = None
    standard_error: str | None = None
    n_cells: str | None = None
    split: str | None = None
    regime: str | None = None
    train_regimes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_statistic(self.statistic)
        if self.unit not in UNITS:
            raise unknown_name("unit", self.unit, UNITS)
        if self.context is not None and self.context_value is not None:
            raise _which_context(self.context, None)
        # From the command line, it is one text.
        regimes: Any = self.train_regimes
        regimes = regimes.split(",") if isinstance(regimes, str) else regimes
        object.__setattr__(self, "train_regimes", tuple(regimes))
        if self.train_regimes and (self.split or not self.regime):
            raise InputError(
                "goes with regime=COLUMN, and without split=COLUMN", key="train_regimes", value=self.train_regimes
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> EffectTableOptions:
        """Return the options by name; None means the default.

        Raises
        ------
        InputError
            For an unknown name, with the nearest one.
        """
        known = {field.name for field in fields(cls)}
        for key in options:
            if key not in known:
                raise unknown_name("option", key, known)
        return cls(**{key: value for key, value in options.items() if value is not None})

    def settled(self, raw: pd.DataFrame, path: Path) -> EffectTableOptions:
        """Return the options with what was not given taken from the table, whose columns may be called just so.

        Raises
        ------
        InputError
            Where the table does not say it either.
        """
        context, mechanism = self.context, self.mechanism
        if context is None and self.context_value is None:
            if "context" not in raw.columns:
                raise _which_context(None, path)
            context = "context"
        if not mechanism and "mechanism" in raw.columns:
            mechanism = "mechanism"
        return replace(self, context=context, mechanism=mechanism)


def _which_context(value: str | None, path: Path | None) -> InputError:
    return InputError(
        "says which context the rows are of",
        file=path,
        key="context",
        value=value,
        remedy="give either context=COLUMN or context_value=NAME",
    )


def read_effect_table(path: str | Path, *, name: str | None = None, **options: Any) -> EffectTable:
    """Read measured effects from a table: CSV, TSV or Parquet.

    Parameters
    ----------
    path
        The file.
    name
        The data set's name; the file's where not given.
    **options
        Those of :class:`EffectTableOptions`.

    Raises
    ------
    InputError
        Where the file is absent or broken, or a column or value is not what the options say.
    """
    path = Path(path)
    chosen = EffectTableOptions.of(options)
    raw = _read(path)
    chosen = chosen.settled(raw, path)
    table, perturbations = _frame(raw, chosen, path)
    scale = UNITS[chosen.unit]
    error = _numbers(raw, chosen.standard_error, path) * scale
    if chosen.p_value is None and chosen.standard_error is None:
        raise InputError(
            "measured effects come with their significance",
            file=path,
            key="p_value",
            value=None,
            remedy="give p_value=COLUMN, or standard_error=COLUMN",
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        of_error = 2.0 * ndtr(-np.abs(table["effect"].to_numpy() / error))
    table["p_value"] = of_error if chosen.p_value is None else _numbers(raw, chosen.p_value, path)
    table["p_adjusted"] = _adjusted(table) if chosen.p_adjusted is None else _numbers(raw, chosen.p_adjusted, path)
    table["standard_error"] = error
    table["n_cells"] = _counts(raw, chosen.n_cells, path)
    if chosen.regime is not None:
        table["regime"] = _texts(raw, chosen.regime, path)
    if chosen.split is not None:
        table["split"] = _texts(raw, chosen.split, path)
    elif chosen.train_regimes:
        for regime in chosen.train_regimes:
            if regime not in set(table["regime"]):
                raise unknown_name("train_regimes", regime, table["regime"].unique(), file=path)
        table["split"] = np.where(table["regime"].isin(chosen.train_regimes), "train", "test")
    return EffectTable(
        name=name or path.stem,
        table=table,
        perturbations=perturbations,
        statistic=chosen.statistic,
        file=str(path),
    )


def read_predictions(path: str | Path, **options: Any) -> Effects:
    """Read predicted effects from a table: CSV, TSV or Parquet.

    A pair without a row, or with an empty value, is not known: :attr:`Effects.known` says so, and its question is
    answered as unsupported and counted.

    Parameters
    ----------
    path
        The file.
    **options
        Those of :class:`EffectTableOptions`; columns of the measurement are not looked at.

    Raises
    ------
    InputError
        Where the file is absent or broken, a column is not there, a value is infinite, or a pair is given twice.
    """
    path = Path(path)
    chosen = EffectTableOptions.of(options)
    raw = _read(path)
    chosen = chosen.settled(raw, path)
    table, _ = _frame(raw, chosen, path)
    if (infinite := np.isinf(table["effect"].to_numpy())).any():
        raise pair_error("an effect is infinite", chosen.effect, table, infinite, str(path), "leave it empty")
    if (twice := table.duplicated(PAIR).to_numpy()).any():
        raise pair_error("a pair is predicted twice", ", ".join(PAIR), table, twice, str(path), "keep one row of each")
    wide = table.pivot(index=PAIR[:2], columns="gene", values="effect")
    known = wide.notna().to_numpy()
    return Effects(
        wide.fillna(0.0).to_numpy(dtype=np.float64),
        wide.index.to_frame(index=False),
        pd.Index(wide.columns.astype(str)),
        chosen.statistic,
        known=None if known.all() else known,
    )


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix in (".csv", ".tsv"):
            # Read as text: a gene may be called NA, and is then no missing value.
            separator = "\t" if path.suffix == ".tsv" else ","
            return pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as a table ({str(error).splitlines()[0]})", file=path) from error
    raise InputError("tables of effects are .csv, .tsv or .parquet", file=path, value=path.suffix)


def _frame(raw: pd.DataFrame, options: EffectTableOptions, path: Path) -> tuple[pd.DataFrame, dict[str, Perturbation]]:
    """Return context, perturbation, gene and effect in natural log, row by row, and what the names mean."""
    table = pd.DataFrame({"gene": _texts(raw, options.gene, path)})
    table["context"] = options.context_value if options.context is None else _texts(raw, options.context, path)
    table["effect"] = _numbers(raw, options.effect, path) * UNITS[options.unit]
    labels = _texts(raw, options.perturbation, path)
    mechanism = options.mechanism or ""
    mechanisms = _texts(raw, mechanism, path) if mechanism in raw.columns else np.full(len(raw), mechanism)
    meant = {
        pair: _own_spelling(pair[0]) or _perturbation(*pair, options.separator, path)
        for pair in dict.fromkeys(zip(labels, mechanisms, strict=True))
    }
    table["perturbation"] = [meant[pair].name for pair in zip(labels, mechanisms, strict=True)]
    return table, {item.name: item for item in meant.values()}


def _own_spelling(label: str) -> Perturbation | None:
    """Return what a name in the spelling of :attr:`Perturbation.name` means; None for any other label."""
    if label.partition(":")[0] not in MECHANISMS:
        return None
    parts, mechanism = [], ""
    for text in label.split("+"):
        head, sign, rest = text.partition(":")
        if sign and head in MECHANISMS:  # that of the parts before it, where a part names none
            mechanism, text = head, rest
        if MECHANISMS[mechanism][0] == "genetic":
            parts.append(Part.genetic(text, mechanism))
            continue
        compound, at, dose = text.rpartition("@")
        number = _dose(dose) if at else None
        parts.append(Part(mechanism, (), text if number is None else compound, number))
    return Perturbation(tuple(parts))


def _dose(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _perturbation(label: str, mechanism: str, separator: str, path: Path) -> Perturbation:
    if not mechanism:
        raise InputError(
            "is not said",
            file=path,
            key="mechanism",
            value=label,
            remedy=f"give mechanism=NAME, one of {', '.join(MECHANISMS)}, or the column that holds it",
        )
    what = to_mechanism(mechanism, file=str(path))
    names = [name.strip() for name in label.split(separator)]
    parts = [name for name in names if not looks_like_control(name)]
    if not parts or not all(parts):
        raise InputError(
            "names no perturbation", file=path, key="perturbation", value=label, remedy="drop the rows of controls"
        )
    if "+" in what or MECHANISMS[what][0] == "genetic":
        return Perturbation.genetic(parts, what)
    return Perturbation(tuple(Part(what, (), name) for name in parts))


def _column(raw: pd.DataFrame, column: str, path: Path) -> pd.Series:
    if column not in raw.columns:
        raise unknown_name("column", column, map(str, raw.columns), file=path)
    return raw[column]


def _texts(raw: pd.DataFrame, column: str, path: Path) -> np.ndarray:
    values = _column(raw, column, path).astype(object)
    texts = np.asarray(values.where(values.notna(), "").astype(str), dtype=object)
    if (texts == "").any():
        row = int(np.flatnonzero(texts == "")[0])
        raise InputError("has empty values", file=path, key=column, value=f"row {row + 1}", remedy="fill or drop them")
    return texts


def _numbers(raw: pd.DataFrame, column: str | None, path: Path) -> np.ndarray:
    """Return a column as numbers, NaN where it is empty, or all NaN where there is none."""
    if column is None:
        return np.full(len(raw), np.nan)
    values = _column(raw, column, path)
    if values.dtype.kind not in "biuf":
        values = values.astype(object).replace({"": np.nan, "NA": np.nan, None: np.nan})
    try:
        # By Python's float, exactly: pandas' own parser may miss the last bit.
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"has values that are not numbers ({error})", file=path, key=column) from error


def _counts(raw: pd.DataFrame, column: str | None, path: Path) -> np.ndarray:
    """Return a column as whole numbers, 0 where it is empty, which stands for a number that is not known."""
    numbers = _numbers(raw, column, path)
    empty = np.isnan(numbers)
    wrong = ~empty & ~((numbers >= 0) & (numbers < _MOST_CELLS) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise InputError(
            "is no number of cells",
            file=path,
            key=column,
            value=float(numbers[wrong][0]),
            remedy="write a whole number, or leave it empty where it is not known",
        )
    return np.where(empty, 0, numbers).astype(np.int64)


def _adjusted(table: pd.DataFrame) -> np.ndarray:
    """Return Benjamini-Hochberg's adjusted p-values within each condition."""
    from scipy.stats import false_discovery_control  # half a second to import, and most commands need it not

    made = np.full(len(table), np.nan)
    p_value = table["p_value"].to_numpy()
    for rows in table.groupby(PAIR[:2]).indices.values():
        if ((p_value[rows] >= 0) & (p_value[rows] <= 1)).all():
            made[rows] = false_discovery_control(p_value[rows])
    return made
