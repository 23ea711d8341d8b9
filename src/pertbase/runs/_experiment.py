"""Experiments: lists of runs in ``conf/experiment/``, what they cost, and the published table they are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pertbase._io import read_yaml
from pertbase.errors import InputError, unknown_name
from pertbase.runs._names import Names

__all__ = ["CPU", "ColumnSpec", "Cost", "Experiment", "RowSpec", "TableSpec", "read_experiment"]

CPU = "cpu"
"""The part of an experiment that is run where no other is asked for."""
_ALL = "all"
_PART = "part"
_ADAPTER = "calibrated"
_Made = TypeVar("_Made")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What it takes to run a part of an experiment.

    Parameters
    ----------
    hardware
        What it was thought for.
    hours
        Of that hardware.
    disk
        In GB: what is fetched, and what is kept.
    estimated
        Where the figures come from.
    """

    hardware: str
    hours: float
    disk: float
    estimated: str

    def __str__(self) -> str:
        time = f"{self.hours:g} h" if self.hours >= 1 else f"{60 * self.hours:g} min"
        return f"{self.hardware}; {time}, {self.disk:g} GB of disk ({self.estimated})"


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """Which score of ours stands in a column.

    Parameters
    ----------
    score
        Of an adapter's answers (``balanced_accuracy``, ``auroc_called``, ...) or ``expression.METRIC``.
    data
        The data set's name, or a pattern; that of the experiment's runs where not given.
    fold
        The fold's name; that of the experiment's runs where not given.
    adapter
        Which answers.
    regime
        Of the test questions; all of them where not given.
    mean_of
        Over how many folds the published figure is a mean; one fold where not given.
    """

    score: str
    data: str | None = None
    fold: str | None = None
    adapter: str = _ADAPTER
    regime: str | None = None
    mean_of: int | None = None


@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """Which run of ours a published row is held against.

    Parameters
    ----------
    run
        Its name; none where no run of ours can be.
    note
        Why, or what else is to be known.
    """

    run: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """The published table that an experiment is held against.

    Parameters
    ----------
    published
        Its name in ``conf/published/``.
    columns
        Column -> what of ours stands there; those it names as the published table does are compared.
    rows
        Published row -> the run of ours. Runs that no row names stand below them.
    notes
        What a reader must know of ours.
    """

    published: str
    columns: Mapping[str, ColumnSpec]
    rows: Mapping[str, RowSpec] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """A list of runs.

    Parameters
    ----------
    name, file
        Which one, and where it lies.
    title
        What it is about.
    entries
        Options of a run, as they would be typed, and which part of the experiment they belong to.
    costs
        Part -> what it takes, where the experiment says so.
    table
        What it is held against, if anything.
    """

    name: str
    file: str
    title: str
    entries: tuple[tuple[str, Mapping[str, str]], ...]
    costs: Mapping[str, Cost]
    table: TableSpec | None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts there are, in their order."""
        return tuple(dict.fromkeys(part for part, _ in self.entries))

    def of_part(self, part: str) -> list[Mapping[str, str]]:
        """Return the entries of one part, or of ``all``.

        Raises
        ------
        InputError
            Where there is no such part.
        """
        if part not in (*self.parts, _ALL):
            raise unknown_name(_PART, part, (*self.parts, _ALL), file=self.file)
        return [options for own, options in self.entries if part in (own, _ALL)]


def read_experiment(name: str, names: Names) -> Experiment:
    """Return an experiment by name; one of the user's goes before ours.

    Raises
    ------
    InputError
        Where there is none of that name, or its file says something else than an experiment does.
    """
    names.check("experiment", name)
    own = [folder / "experiment" / f"{name}.yaml" for folder in names.config_dirs]
    shipped = Path(str(files("pertbase.conf").joinpath("experiment", f"{name}.yaml")))
    where = next((path for path in own if path.exists()), shipped)
    about = read_yaml(where)
    runs = about.get("runs") if isinstance(about, dict) else None
    if not isinstance(runs, list) or not runs or not all(isinstance(entry, dict) for entry in runs):
        raise InputError(
            "an experiment lists its runs",
            file=where,
            key="runs",
            value=runs,
            remedy="write runs: [{data: .., fold: .., baseline: ..}]",
        )
    for key in about:
        if key not in ("title", "cost", "runs", "table"):
            raise unknown_name("key of an experiment", str(key), ("title", "cost", "runs", "table"), file=where)
    costs = {part: _of(Cost, given, where, f"cost.{part}") for part, given in _mapping(about, "cost", where).items()}
    table = about.get("table")
    return Experiment(
        name,
        str(where),
        str(about.get("title") or name),
        tuple(_entry(entry) for entry in runs),
        costs,
        None if table is None else _table(table, where),
    )


def _entry(entry: Mapping[Any, Any]) -> tuple[str, Mapping[str, str]]:
    options = {
        str(key): ",".join(map(_text, value)) if isinstance(value, list) else _text(value)
        for key, value in entry.items()
    }
    return options.pop(_PART, CPU), options


def _text(value: Any) -> str:
    """Return a value as it would be typed."""
    return "null" if value is None else str(value)


def _table(given: Any, where: Path) -> TableSpec:
    if not isinstance(given, dict):
        raise InputError("says what the runs are held against", file=where, key="table", value=given)
    shared = {key: given[key] for key in ("data", "fold", "adapter", "mean_of") if key in given}
    columns = {
        name: _of(ColumnSpec, {**shared, **column} if isinstance(column, dict) else column, where, f"table.{name}")
        for name, column in _mapping(given, "columns", where).items()
    }
    rows = {
        name: _of(RowSpec, row, where, f"table.rows.{name}") for name, row in _mapping(given, "rows", where).items()
    }
    rest = {key: value for key, value in given.items() if key not in shared}
    made = _of(TableSpec, {**rest, "columns": columns, "rows": rows}, where, "table")
    if not columns:
        raise InputError("names no column", file=where, key="table.columns", value=given.get("columns"))
    return made


def _mapping(given: Mapping[str, Any], key: str, where: Path) -> dict[str, Any]:
    """Return a mapping below a key, with names as text; empty where there is none."""
    found = given.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError("is a mapping", file=where, key=key, value=found, remedy=f"write {key}: {{NAME: {{..}}}}")
    return {str(name): value for name, value in found.items()}


def _of(kind: type[_Made], given: Any, where: Path, key: str) -> _Made:
    """Return a dataclass made of a mapping, all of whose keys it knows."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    if not isinstance(given, dict):
        raise InputError(f"is a mapping of {', '.join(known)}", file=where, key=key, value=given)
    for name in given:
        if name not in known:
            raise unknown_name(f"key of {key}", str(name), known, file=where)
    try:
        return kind(**given)
    except TypeError as error:
        # A key that is needed is missing; which one, Python says.
        raise InputError(str(error).partition(") ")[2] or str(error), file=where, key=key, value=given) from error
