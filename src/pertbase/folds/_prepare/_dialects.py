"""How other people's files say what was done to a cell: which column, which label, which separator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pandas as pd

from pertbase.errors import InputError, nearest, unknown_name
from pertbase.folds._perturbation import MECHANISMS
from pertbase.folds._prepare._options import PrepareOptions

__all__ = ["Layout", "find_layout", "looks_like_control", "looks_missing", "plain_label", "to_mechanism"]


@dataclass(frozen=True)
class Layout:
    """Where one file says what: obs columns, or one value for all cells."""

    dialect: str
    perturbation: str
    controls: frozenset[str]
    separators: tuple[str, ...]
    separator_given: bool = False
    context: str | None = None
    context_value: str = ""
    mechanism: str | None = None
    mechanism_value: str = ""
    batch: str | None = None
    compound: str | None = None
    treatment: str | None = None
    dose: str | None = None
    dose_unit: str | None = None
    dose_unit_value: str = ""
    n_parts: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The obs columns that are read."""
        named = (
            self.perturbation, self.context, self.mechanism, self.batch, self.compound, self.treatment, self.dose,
            self.dose_unit, self.n_parts,
        )  # fmt: skip
        return tuple(name for name in named if name is not None)

    def is_control(self, label: str) -> bool:
        """Whether a label, or a part of one, stands for unperturbed cells; ``*`` in a control matches anything."""
        return label in self.controls or any(fnmatchcase(label, item) for item in self.controls if "*" in item)

    def describe(self) -> list[str]:
        """Return what was recognised, one line each."""

        def column(name: str | None) -> str:
            return f"obs[{name!r}]"

        lines = [f"perturbation from {column(self.perturbation)}, control = {_listed(self.controls)}"]
        lines.append(f"context from {column(self.context)}" if self.context else f"context {self.context_value}")
        lines.append(
            f"mechanism from {column(self.mechanism)}" if self.mechanism else f"mechanism {self.mechanism_value}"
        )
        lines += [
            f"{what} from {column(name)}"
            for what, name in (
                ("batch", self.batch),
                ("compound", self.compound),
                ("treatment", self.treatment),
                ("dose", self.dose),
            )
            if name
        ]
        return lines


@dataclass(frozen=True)
class _Dialect:
    """The columns one community uses, in the order they are looked for."""

    name: str
    recognise: Callable[[pd.DataFrame], str]
    perturbation: tuple[str, ...]
    control: tuple[str, ...]
    context: tuple[str, ...]
    separators: tuple[str, ...] = ("+",)
    mechanism: tuple[str, ...] = ()
    batch: tuple[str, ...] = ("batch",)
    treatment: tuple[str, ...] = ()
    dose: tuple[str, ...] = ()
    dose_unit: tuple[str, ...] = ()
    n_parts: tuple[str, ...] = ()


def _labels(obs: pd.DataFrame, column: str) -> set[str]:
    """Return the distinct values of a column as text, empty where there is no such column."""
    return {str(item) for item in obs[column].dropna().unique()} if column in obs.columns else set()


def _gears(obs: pd.DataFrame) -> str:
    hit = next((item for item in sorted(_labels(obs, "condition")) if "ctrl" in item.split("+")), None)
    return "" if hit is None else f"obs['condition'] holds {hit!r}"


def _perturbench(obs: pd.DataFrame) -> str:
    return "obs['condition'] holds 'control'" if "control" in _labels(obs, "condition") else ""


def _scperturb(obs: pd.DataFrame) -> str:
    # `perturbation` alone is everybody's word; a second column of the scPerturb schema has to stand by it.
    marks = [name for name in ("nperts", "dose_value", "dose_unit", "tissue_type") if name in obs.columns]
    if "perturbation_type" in obs.columns and "condition" not in obs.columns:
        marks.append("perturbation_type")
    if not marks or "control" not in _labels(obs, "perturbation"):
        return ""
    return f"obs['perturbation'] holds 'control', beside {marks[0]}"


def _state(obs: pd.DataFrame) -> str:
    for column in ("target_gene", "gene"):
        if "non-targeting" in _labels(obs, column):
            return f"obs[{column!r}] holds 'non-targeting'"
    return ""


_KNOWN = (
    _Dialect(
        "gears",
        _gears,
        perturbation=("condition",),
        control=("ctrl",),
        context=("cell_type", "cell_line"),
    ),
    _Dialect(
        "scperturb",
        _scperturb,
        perturbation=("perturbation",),
        control=("control",),
        context=("cell_line", "celltype", "cell_type"),
        separators=("+", "_"),
        mechanism=("perturbation_type",),
        dose=("dose_value",),
        dose_unit=("dose_unit",),
        n_parts=("nperts",),
    ),
    _Dialect(
        "perturbench",
        _perturbench,
        perturbation=("condition",),
        control=("control",),
        context=("cell_type", "cell_line"),
        mechanism=("perturbation_type",),
        treatment=("treatment",),
        dose=("dose",),
    ),
    _Dialect(
        "state",
        _state,
        perturbation=("target_gene", "gene"),
        control=("non-targeting",),
        context=("cell_line", "cell_type"),
        batch=("gem_group", "batch"),
    ),
)
_COLUMNS = _Dialect("columns", lambda _: "", (), (), context=(), batch=())

_SPELLINGS = {
    "CRISPRi": ("crispri", "crisprinterference", "crisprinhibition", "interference", "dcas9krab", "crisprdcas9krab"),
    "CRISPRa": ("crispra", "crispractivation", "activation", "dcas9vp64", "dcas9vpr", "crisprdcas9vp64"),
    "CRISPR-KO": ("crisprko", "crisprknockout", "knockout", "ko", "crisprcas9", "cas9", "crisprcut", "crisprcutting"),
    "drug": ("drug", "drugs", "smallmolecule", "smallmolecules", "chemical", "compound", "smallmoleculeinhibitor"),
    "ligand": ("ligand", "ligands", "cytokine", "cytokines", "growthfactor", "chemokine", "hormone"),
}
_BY_SPELLING = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings}

_CONTROLS = frozenset(
    (
        *("control", "controls", "ctrl", "ctl", "nt", "ntc", "nontargeting", "safetargeting", "negctrl"),
        *("negativecontrol", "unperturbed", "untreated", "vehicle", "dmso", "mock"),
    )
)
_CONTROL_PREFIXES = ("nontargeting", "safetargeting", "negctrl", "negativecontrol")
_MISSING = frozenset(("", "nan", "none", "na", "null", "unknown", "unassigned"))


def plain_label(text: str) -> str:
    """Return a label in lower case without spaces and punctuation, for comparing spellings."""
    return re.sub(r"[\W_]+", "", text.lower())


def looks_like_control(label: str) -> bool:
    """Whether a label is a common word for unperturbed cells."""
    plain = plain_label(label)
    return plain in _CONTROLS or plain.startswith(_CONTROL_PREFIXES)


def looks_missing(label: str) -> bool:
    """Whether a label is a missing value that became text."""
    return label.strip().lower().strip("<>") in _MISSING


def to_mechanism(spelling: str, *, file: str | None = None, key: str = "mechanism") -> str:
    """Return the mechanism that a common spelling means, several joined by ``+``.

    Raises
    ------
    InputError
        For a spelling that is not known, or that does not say which (plain ``CRISPR``).
    """
    found = []
    for word in spelling.split("+"):
        plain = plain_label(word)
        if plain not in _BY_SPELLING:
            problem = "does not say which mechanism" if plain == "crispr" else "unknown mechanism"
            close = nearest(plain, _BY_SPELLING)
            hint = f"did you mean {_BY_SPELLING[close]}? " if close and plain != "crispr" else ""
            raise InputError(
                problem,
                file=file,
                key=key,
                value=spelling,
                remedy=f"{hint}Say mechanism=NAME, one of {', '.join(MECHANISMS)}, where it holds for all cells, "
                "or mend the column",
            )
        found.append(_BY_SPELLING[plain])
    return "+".join(found)


def find_layout(obs: pd.DataFrame, options: PrepareOptions, *, file: str | None = None) -> Layout:
    """Return where a file says what, by its dialect and the options.

    Raises
    ------
    InputError
        Where no dialect or several fit, or something needed is neither in the file nor in the options.
    """
    dialect = _find_dialect(obs, options, file)
    perturbation = _find_perturbation(obs, options, dialect, file)
    context = None if options.context_value is not None else _find_context(obs, options, dialect, file)
    mechanism, mechanism_value = _find_mechanism(obs, options, dialect, file)
    unit_column = _pick(obs, options.dose_unit, dialect.dose_unit, "dose_unit", file, may_be_text=True)
    separators = dialect.separators if options.separator is None else (options.separator,)
    return Layout(
        dialect=dialect.name,
        perturbation=perturbation,
        controls=_find_controls(obs, options, dialect, perturbation, file),
        separators=() if separators in (("none",), ("",)) else separators,
        separator_given=options.separator is not None,
        context=context,
        context_value=options.context_value or "",
        mechanism=mechanism,
        mechanism_value=mechanism_value,
        batch=_pick(obs, options.batch, dialect.batch, "batch", file),
        compound=_pick(obs, options.compound, (), "compound", file),
        treatment=_pick(obs, options.treatment, dialect.treatment, "treatment", file),
        dose=_pick(obs, options.dose, dialect.dose, "dose", file),
        dose_unit=unit_column,
        dose_unit_value=(options.dose_unit or "") if unit_column is None else "",
        n_parts=_pick(obs, None, dialect.n_parts, "n_parts", file),
    )


def _find_dialect(obs: pd.DataFrame, options: PrepareOptions, file: str | None) -> _Dialect:
    by_name = {dialect.name: dialect for dialect in (*_KNOWN, _COLUMNS)}
    if options.dialect != "auto":
        return by_name[options.dialect]
    if options.perturbation is not None or options.compound is not None:
        return _COLUMNS
    found = {dialect.name: reason for dialect in _KNOWN if (reason := dialect.recognise(obs))}
    if len(found) == 1:
        return by_name[next(iter(found))]
    if found:
        raise InputError(
            "several dialects fit: " + "; ".join(f"{name} ({reason})" for name, reason in found.items()),
            file=file,
            key="dialect",
            value=list(found),
            remedy="say which: " + " or ".join(f"dialect={name}" for name in found),
        )
    raise InputError(
        "no dialect fits (looked for gears, scperturb, perturbench and state)",
        file=file,
        key="obs",
        value=list(map(str, obs.columns)),
        remedy="name the columns: perturbation=COLUMN control=LABEL context=COLUMN mechanism=NAME",
    )


def _pick(
    obs: pd.DataFrame,
    given: str | None,
    usual: Iterable[str],
    option: str,
    file: str | None,
    *,
    may_be_text: bool = False,
) -> str | None:
    """Return the column an option names, else the first usual one that is there, else None."""
    if given is not None and given in obs.columns:
        return given
    if given is not None:
        if may_be_text or given.lower() in ("none", ""):
            return None
        raise unknown_name(f"obs column of {option}", given, map(str, obs.columns), file=file)
    return next((name for name in usual if name in obs.columns), None)


def _find_perturbation(obs: pd.DataFrame, options: PrepareOptions, dialect: _Dialect, file: str | None) -> str:
    given = options.perturbation or (options.compound if dialect is _COLUMNS else None)
    found = _pick(obs, given, dialect.perturbation, "perturbation", file)
    if found is None:
        raise InputError(
            f"has no column that says what was done, as dialect {dialect.name} has it",
            file=file,
            key="obs",
            value=list(map(str, obs.columns)),
            remedy="say perturbation=COLUMN",
        )
    return found


def _find_context(obs: pd.DataFrame, options: PrepareOptions, dialect: _Dialect, file: str | None) -> str:
    found = _pick(obs, options.context, dialect.context, "context", file)
    if found is None:
        raise InputError(
            "does not say which context the cells are of",
            file=file,
            key="obs",
            value=list(map(str, obs.columns)),
            remedy="say context=COLUMN, or context_value=NAME for all cells",
        )
    return found


def _find_mechanism(
    obs: pd.DataFrame, options: PrepareOptions, dialect: _Dialect, file: str | None
) -> tuple[str | None, str]:
    if options.mechanism is not None and options.mechanism not in obs.columns:
        return None, to_mechanism(options.mechanism)
    column = _pick(obs, options.mechanism, dialect.mechanism, "mechanism", file)
    if column is None:
        raise InputError(
            "does not say by which mechanism targets were perturbed, and it is never guessed",
            file=file,
            key="mechanism",
            value=list(map(str, obs.columns)),
            remedy=f"say mechanism=COLUMN, or one of {', '.join(MECHANISMS)} for all cells",
        )
    return column, ""


def _find_controls(
    obs: pd.DataFrame, options: PrepareOptions, dialect: _Dialect, perturbation: str, file: str | None
) -> frozenset[str]:
    column = obs[perturbation]
    labels = _labels(obs, perturbation)
    wanted = options.control or dialect.control
    likely = sorted(label for label in labels if looks_like_control(label))
    if not wanted:
        if len(likely) == 1:
            return frozenset(likely)
        raise InputError(
            "does not say which cells are controls",
            file=file,
            key=f"obs[{perturbation!r}]",
            value=likely or sorted(labels)[:10],
            remedy="say control=LABEL, control='[A, B]' where there are several, or a pattern such as control='NT*'",
        )
    missing = [
        item
        for item in wanted
        if not (
            item in labels
            or ("*" in item and any(fnmatchcase(label, item) for label in labels))
            or (looks_missing(item) and column.isna().any())
        )
    ]
    if missing:
        close = likely or [item for item in [nearest(missing[0], labels)] if item]
        remedy = "say control=LABEL"
        if close:
            n_cells = int((column.astype(str) == close[0]).sum())
            remedy = f"did you mean control={close[0]} ({n_cells:,} cell{'' if n_cells == 1 else 's'})?"
        raise InputError(
            f"no cell is labelled as a control (looked for {', '.join(missing)})",
            file=file,
            key=f"obs[{perturbation!r}]",
            value=sorted(labels)[:10],
            remedy=remedy,
        )
    return frozenset(wanted)


def _listed(items: Iterable[str]) -> str:
    return ", ".join(sorted(items))
