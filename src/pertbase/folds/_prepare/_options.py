"""What a user may say about somebody else's file, from Python, YAML or ``key=value`` text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pertbase.errors import InputError, unknown_name

__all__ = ["DIALECTS", "Filter", "PrepareOptions", "parse_options"]

DIALECTS = ("gears", "scperturb", "perturbench", "state", "columns")

_COMPARISON = re.compile(r"^\s*(?P<column>.+?)\s*(?P<sign>>=|<=|==|!=|>|<)\s*(?P<value>.+?)\s*$")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
}


@dataclass(frozen=True)
class Filter:
    """One comparison on an obs column, such as ``grna_dominance>=0.8``; a missing value never passes."""

    column: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Return the filter that ``COLUMN SIGN VALUE`` spells."""
        match = _COMPARISON.match(text)
        if match is None:
            raise InputError(
                "is not a comparison on an obs column",
                key="keep",
                value=text,
                remedy="write COLUMN>=VALUE, with one of " + " ".join(_COMPARE),
            )
        return cls(match["column"], match["sign"], match["value"].strip("'\""))

    def passes(self, obs: pd.DataFrame, *, file: str | None = None) -> np.ndarray:
        """Return which rows of ``obs`` pass, as booleans."""
        if self.column not in obs.columns:
            raise unknown_name("obs column of keep", self.column, map(str, obs.columns), file=file)
        column = obs[self.column]
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            try:
                wanted = float(self.value)
            except ValueError as error:
                raise InputError(
                    f"obs[{self.column!r}] holds numbers and is compared with text",
                    file=file,
                    key="keep",
                    value=str(self),
                    remedy="compare it with a number",
                ) from error
            result = _COMPARE[self.sign](column.to_numpy(dtype=float, na_value=math.nan), wanted)
        elif self.sign in ("==", "!="):
            result = _COMPARE[self.sign](column.astype(str), self.value).to_numpy(dtype=bool)
        else:
            raise InputError(
                f"obs[{self.column!r}] holds text, which has no order",
                file=file,
                key="keep",
                value=str(self),
                remedy="use == or !=, or make the column numeric",
            )
        passed: np.ndarray = np.logical_and(result, column.notna().to_numpy())
        return passed

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{self.value}"


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Everything ``pertbase prepare`` can be told; what is left out is recognised or has a stated default.

    Parameters
    ----------
    dialect
        One of :data:`DIALECTS`, or ``auto``. ``columns`` takes only what is named here.
    perturbation
        The obs column that says what was done.
    control
        What that column says of control cells; ``nan`` where it says nothing of them.
    context, context_value
        The obs column of the context, or one context for all cells.
    context_names
        Context in the file -> context in the screen, for those to be renamed.
    mechanism
        An obs column, or one mechanism for all cells, in any common spelling.
    batch
        The obs column of the batch; ``none`` to ignore one that would be recognised.
    compound
        The obs column with the compound's name, where ``perturbation`` holds something else.
    treatment
        The obs column of a compound given on top of what ``perturbation`` says, without a dose.
    dose, dose_unit
        The obs column of the dose, and the obs column or text of its unit. Molar units become micromolar.
    separator
        What joins the parts of a combination; ``none`` where names are never to be split.
    names
        Name in the file -> name in the screen, for perturbations or parts to be renamed.
    targets
        Compound -> {target: sign}, or a csv or tsv file with the columns compound, target, sign.
    symbols
        The var column that holds gene symbols.
    layer
        The layer to read in place of ``X``.
    values
        ``auto``, ``counts`` (scale to the total and log) or ``log1p`` (natural, scaled already).
    total
        What counts are scaled to (default: the median of the kept cells' totals), or what they were scaled to.
    keep
        Comparisons on obs columns that a cell has to pass.
    duplicates
        What to do about a gene symbol that occurs twice: ``error``, ``first`` or ``sum``.
    min_counts
        Cells with fewer raw counts are dropped. Cells without any are always dropped.
    keep_counts
        Whether the screen carries the raw counts too.
    drop_contexts_without_control
        Whether contexts without control cells are dropped; otherwise they are an error.
    """

    dialect: str = "auto"
    perturbation: str | None = None
    control: tuple[str, ...] = ()
    context: str | None = None
    context_value: str | None = None
    context_names: Mapping[str, str] = field(default_factory=dict)
    mechanism: str | None = None
    batch: str | None = None
    compound: str | None = None
    treatment: str | None = None
    dose: str | None = None
    dose_unit: str | None = None
    separator: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, int]] | str | None = None
    symbols: str | None = None
    layer: str | None = None
    values: str = "auto"
    total: float | None = None
    keep: tuple[str, ...] = ()
    duplicates: str = "error"
    min_counts: float = 1.0
    keep_counts: bool = False
    drop_contexts_without_control: bool = False

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The comparisons of ``keep``."""
        return tuple(Filter.parse(text) for text in self.keep)

    @property
    def given(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        plain = PrepareOptions()
        return [item.name for item in fields(self) if getattr(self, item.name) != getattr(plain, item.name)]


def parse_options(given: Mapping[str, Any]) -> PrepareOptions:
    """Return the options that a mapping holds, text converted; None means not given.

    Raises
    ------
    InputError
        For an unknown option (with the nearest name) or a value that cannot be read.
    """
    valid = {item.name for item in fields(PrepareOptions)}
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in valid:
            raise unknown_name("option", key, valid)
        if value is None:
            continue
        found[key] = _CONVERT[key](key, value) if key in _CONVERT else _text(key, value)
    options = PrepareOptions(**found)
    for key, allowed in (
        ("dialect", ("auto", *DIALECTS)),
        ("values", ("auto", "counts", "log1p")),
        ("duplicates", ("error", "first", "sum")),
    ):
        if getattr(options, key) not in allowed:
            raise unknown_name(key, str(getattr(options, key)), allowed)
    if options.context is not None and options.context_value is not None:
        raise InputError(
            "says the context twice",
            key="context_value",
            value=options.context_value,
            remedy="give context=COLUMN or context_value=NAME",
        )
    # A filter that cannot be read should fail before a large file is opened.
    _ = options.filters
    return options


def _text(key: str, value: Any) -> str:
    if isinstance(value, (Mapping, list, tuple)):
        raise InputError("needs one text", key=key, value=value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return str(value)


def _number(key: str, value: Any) -> float | None:
    if key == "total" and value == "median":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError("needs a number", key=key, value=value) from error
    if not math.isfinite(number) or number < 0 or (key == "total" and number == 0):
        raise InputError("needs a positive number", key=key, value=value)
    return number


def _flag(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "yes", "1"):
        return True
    if str(value).lower() in ("false", "no", "0"):
        return False
    raise InputError("needs true or false", key=key, value=value)


def _flow(key: str, value: Any) -> Any:
    """Read ``[a, b]`` or ``{a: b}`` given as text; names may hold commas, so nothing else is split."""
    if not (isinstance(value, str) and value.strip()[:1] in ("[", "{")):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InputError("is not a list or mapping in YAML", key=key, value=value) from error


def _list(key: str, value: Any) -> tuple[str, ...]:
    value = _flow(key, value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_text(key, item) for item in value)
    return (_text(key, value),)


def _mapping(key: str, value: Any) -> dict[str, str]:
    value = _flow(key, value)
    if not isinstance(value, Mapping):
        raise InputError(
            "needs a mapping", key=key, value=value, remedy=f"write {key}='{{old: new}}' or a mapping in YAML"
        )
    return {str(old): str(new) for old, new in value.items()}


def _targets(key: str, value: Any) -> dict[str, dict[str, int]] | str:
    value = _flow(key, value)
    if not isinstance(value, Mapping):
        return _text(key, value)
    found: dict[str, dict[str, int]] = {}
    for compound, signs in value.items():
        if not isinstance(signs, Mapping) or not all(sign in (-1, 0, 1) for sign in signs.values()):
            raise InputError(
                "a compound's targets map gene symbols to signs",
                key=f"{key}.{compound}",
                value=signs,
                remedy="write {GENE: 1}; signs are -1, 0 and 1",
            )
        found[str(compound)] = {str(gene): int(sign) for gene, sign in signs.items()}
    return found


_CONVERT: dict[str, Callable[[str, Any], Any]] = {
    "control": _list,
    "context_names": _mapping,
    "names": _mapping,
    "targets": _targets,
    "total": _number,
    "min_counts": _number,
    "keep": _list,
    "keep_counts": _flag,
    "drop_contexts_without_control": _flag,
}
