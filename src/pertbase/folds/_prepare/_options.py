"""What a user may say about somebody else's file, from Python, YAML or ``key=value`` text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
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
    """One comparison on an obs or var column, such as ``grna_dominance>=0.8``; a missing value never passes."""

    column: str
    sign: str
    value: str
    option: str = "keep"

    @classmethod
    def parse(cls, text: str, *, option: str = "keep") -> Filter:
        """Return the filter that ``COLUMN SIGN VALUE`` spells."""
        match = _COMPARISON.match(text)
        if match is None:
            raise InputError(
                f"is not a comparison on {'an obs' if option == 'keep' else 'a var'} column",
                key=option,
                value=text,
                remedy="write COLUMN>=VALUE, with one of " + " ".join(_COMPARE),
            )
        return cls(match["column"], match["sign"], match["value"].strip("'\""), option)

    def passes(self, table: pd.DataFrame, *, file: str | None = None) -> np.ndarray:
        """Return which rows of ``obs`` (or ``var``) pass, as booleans."""
        where = "obs" if self.option == "keep" else "var"
        if self.column not in table.columns:
            raise unknown_name(f"{where} column of {self.option}", self.column, map(str, table.columns), file=file)
        column = table[self.column]
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            try:
                wanted = float(self.value)
            except ValueError as error:
                raise InputError(
                    f"{where}[{self.column!r}] holds numbers and is compared with text",
                    file=file,
                    key=self.option,
                    value=str(self),
                    remedy="compare it with a number",
                ) from error
            result = _COMPARE[self.sign](column.to_numpy(dtype=float, na_value=math.nan), wanted)
        elif self.sign in ("==", "!="):
            equal = column.astype(str).map(self._equals).to_numpy(dtype=bool)
            result = equal if self.sign == "==" else ~equal
        else:
            raise InputError(
                f"{where}[{self.column!r}] holds text, which has no order",
                file=file,
                key=self.option,
                value=str(self),
                remedy="use == or !=, or make the column numeric",
            )
        passed: np.ndarray = np.logical_and(result, column.notna().to_numpy())
        return passed

    def _equals(self, text: str) -> bool:
        # Cells' labels may hold a star of their own (Adamson's do); genes' names and ids do not.
        return fnmatchcase(text, self.value) if self.option == "keep_genes" else text == self.value

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
    context
        The obs column of the context.
    context_value
        The one context of all cells, where no column says it.
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
    dose
        The obs column of the dose.
    dose_unit
        The dose's unit, as text or as the obs column that holds it. Molar units become micromolar.
    separator
        What joins the parts of a combination; ``none`` where names are never to be split.
    pattern
        A regular expression; of a label that it fits as a whole, its first group is taken: ``(.+)_p[A-Z]+[0-9]+`` for
        TARGET_PLASMID. Controls are named as they stand in the file.
    names
        Name in the file -> name in the screen, for perturbations or parts to be renamed.
    targets
        Compound -> {target: sign}; or a csv or tsv file with the columns compound, target, sign; or ``obs:COLUMN``,
        for a column that names each compound's targets, separated by commas; or ``uns:KEY``, for such a table or
        mapping in the file.
    target_names
        For ``targets=obs:COLUMN``: name in the column -> {target: sign}, for families (``HDAC``) and for signs. A name
        not in it stands for itself, with sign 0, where it is a gene that was measured, and is left out where not.
    symbols
        The var column that holds gene symbols.
    layer
        The layer to read in place of ``X``.
    embeddings
        Entries of obsm that the screen carries too, for models that predict in one.
    values
        ``auto``, ``counts`` (scale to the total and log) or ``log1p`` (natural, scaled already).
    total
        What counts are scaled to (default: the median of the kept cells' totals), or what they were scaled to.
    keep
        Comparisons on obs columns that a cell has to pass.
    keep_genes
        Comparisons on var columns that a gene has to pass; ``*`` matches anything, as in ``ensembl_id==ENSG*``. Cells
        are scaled by their totals over all genes of the file.
    min_detected
        The share of control cells, in at least one context, in which a gene has to be seen. Perturbed cells have no
        say, so that no gene is chosen by what happens to it.
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
    pattern: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, int]] | str | None = None
    target_names: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    symbols: str | None = None
    layer: str | None = None
    embeddings: tuple[str, ...] = ()
    values: str = "auto"
    total: float | None = None
    keep: tuple[str, ...] = ()
    keep_genes: tuple[str, ...] = ()
    min_detected: float = 0.0
    duplicates: str = "error"
    min_counts: float = 1.0
    keep_counts: bool = False
    drop_contexts_without_control: bool = False

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The comparisons of ``keep``."""
        return tuple(Filter.parse(text) for text in self.keep)

    @property
    def gene_filters(self) -> tuple[Filter, ...]:
        """The comparisons of ``keep_genes``."""
        return tuple(Filter.parse(text, option="keep_genes") for text in self.keep_genes)

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
    # What cannot be read should fail before a large file is opened.
    _ = options.filters, options.gene_filters
    if options.min_detected > 1:
        raise InputError("is a share of cells, at most 1", key="min_detected", value=options.min_detected)
    if options.pattern is not None:
        _check_pattern(options.pattern)
    return options


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise InputError(f"is not a regular expression ({error})", key="pattern", value=pattern) from error
    if groups != 1:
        raise InputError(
            "needs one group, which is what is taken of a label",
            key="pattern",
            value=pattern,
            remedy="put parentheses around it, and (?:...) around what else has to be held together",
        )


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
    return _signs(key, value) if isinstance(value, Mapping) else _text(key, value)


def _signs(key: str, value: Any) -> dict[str, dict[str, int]]:
    value = _flow(key, value)
    if not isinstance(value, Mapping):
        raise InputError("needs a mapping of names to {GENE: sign}", key=key, value=value)
    found: dict[str, dict[str, int]] = {}
    for compound, signs in value.items():
        if not isinstance(signs, Mapping) or not all(sign in (-1, 0, 1) for sign in signs.values()):
            raise InputError(
                "targets map gene symbols to signs",
                key=f"{key}.{compound}",
                value=signs,
                remedy="write {GENE: 1}; signs are -1, 0 and 1",
            )
        found[str(compound)] = {str(gene): int(sign) for gene, sign in signs.items()}
    return found


_CONVERT: dict[str, Callable[[str, Any], Any]] = {
    "control": _list,
    "context_names": _mapping,
    "embeddings": _list,
    "names": _mapping,
    "targets": _targets,
    "target_names": _signs,
    "total": _number,
    "min_counts": _number,
    "keep": _list,
    "keep_genes": _list,
    "min_detected": _number,
    "keep_counts": _flag,
    "drop_contexts_without_control": _flag,
}
