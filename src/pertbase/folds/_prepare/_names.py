"""From the labels of somebody else's file to perturbations, one distinct row at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError
from pertbase.folds._perturbation import CONTROL, MECHANISMS, Part, Perturbation
from pertbase.folds._prepare._dialects import Layout, looks_like_control, looks_missing, to_mechanism
from pertbase.folds._prepare._options import PrepareOptions
from pertbase.folds._prepare._targets import TargetColumn, Targets, check_column, read_targets, targets_place

__all__ = ["NamedCells", "name_cells"]

_MICROMOLAR = {"m": 1e6, "mm": 1e3, "um": 1.0, "nm": 1e-3, "pm": 1e-6}
_DOSE = re.compile(r"^\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([^\d\s].*)?$")


@dataclass(frozen=True)
class NamedCells:
    """What every cell was given, in the contract's names."""

    names: np.ndarray
    perturbations: dict[str, Perturbation]
    warnings: tuple[str, ...]


def name_cells(
    obs: pd.DataFrame,
    layout: Layout,
    options: PrepareOptions,
    *,
    genes: Collection[str],
    uns: Any = None,
    file: str | None = None,
) -> NamedCells:
    """Return what every row of ``obs`` was given.

    Only distinct combinations of the columns are looked at, so that a million cells cost as much as their
    labels do. ``uns`` is what the file holds where ``targets=uns:KEY`` says.

    Raises
    ------
    InputError
        For a missing label, one that looks like an unnamed control, and one that cannot be split or read.
    """
    columns = {
        "label": layout.perturbation,
        "mechanism": layout.mechanism,
        "compound": layout.compound,
        "treatment": layout.treatment,
        "dose": layout.dose,
        "unit": layout.dose_unit,
        "n_parts": layout.n_parts,
    }
    named = targets_place(options.targets, "obs")
    if named is not None:
        columns["targets"] = check_column(named, [str(item) for item in obs.columns], file)
    used = {key: obs[column] for key, column in columns.items() if column is not None}
    codes = np.zeros(len(obs), dtype=np.int64)
    levels: dict[str, tuple[np.ndarray, list[str | None]]] = {}
    for key, column in used.items():
        code, distinct = pd.factorize(column, use_na_sentinel=True)
        levels[key] = (code, [*(_as_text(item) for item in distinct), None])
        # -1 marks a missing value; as the last level it indexes the None above.
        _, codes = np.unique(codes * (len(distinct) + 1) + np.where(code < 0, len(distinct), code), return_inverse=True)
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)

    known = _single_labels(levels["label"][1]) | set(genes)
    column = None if named is None else TargetColumn(named, options.target_names, set(genes), file)
    reader = _Reader(layout, options, known, read_targets(options.targets, uns=uns, file=file), column, file)
    rows = [{key: texts[code[position]] for key, (code, texts) in levels.items()} for position in first]
    perturbations: dict[str, Perturbation] = {}
    names = np.empty(len(first), dtype=object)
    for number, row in enumerate(rows):
        perturbation = reader.perturbation(row, cells=int(counts[number]))
        names[number] = CONTROL if perturbation is None else perturbation.name
        if perturbation is None:
            continue
        if perturbations.setdefault(perturbation.name, perturbation) != perturbation:
            raise InputError(
                "two perturbations would have the same name",
                file=file,
                key=f"obs[{layout.perturbation!r}]",
                value=perturbation.name,
                remedy="rename one with names={old: new}",
            )
    return NamedCells(names[inverse], perturbations, tuple(_warnings(perturbations, reader, genes)))


def _as_text(value: object) -> str:
    # Doses come back from h5ad as 0.5 and 1.0, gem groups and labels as 1: both have one spelling.
    if isinstance(value, (float, np.floating)):
        return f"{float(value):g}"
    return str(value).strip()


def _single_labels(labels: list[str | None]) -> set[str]:
    return {label for label in labels if label and not {"+", "_"} & set(label)}


def _warnings(perturbations: Mapping[str, Perturbation], reader: _Reader, genes: Collection[str]) -> list[str]:
    found = []
    targets = reader.targets
    if reader.column is not None:
        targets = {compound: signs for compound, signs in reader.column.found.items() if signs}
        left_out = sorted(reader.column.left_out)
        if left_out:
            found.append(
                f"{len(left_out)} names in obs[{reader.column.column!r}] are neither genes measured nor in "
                f"target_names, and were left out ({_some(left_out)})"
            )
    compounds = {item for perturbation in perturbations.values() for item in perturbation.compounds}
    without = sorted(compounds - set(targets))
    if without:
        found.append(
            f"{len(without)} of {len(compounds)} compounds have no known target ({_some(without)}): name them in "
            "targets=FILE"
        )
    if reader.targets and not compounds & set(targets):
        found.append("none of the compounds in targets= occurs in the screen")
    measured = set(genes)
    acted_on = {gene for perturbation in perturbations.values() for gene in perturbation.targets}
    absent = sorted(acted_on - measured)
    if absent:
        hint = "; pattern=... takes a gene out of the name of a guide" if 2 * len(absent) > len(acted_on) else ""
        found.append(
            f"{len(absent)} of {len(acted_on)} targets are not among the genes measured ({_some(absent)}){hint}"
        )
    return found


def _some(items: list[str]) -> str:
    return ", ".join(items[:5]) + (", ..." if len(items) > 5 else "")


class _Reader:
    """Reads one distinct row of labels."""

    def __init__(
        self,
        layout: Layout,
        options: PrepareOptions,
        known: set[str],
        targets: Targets,
        column: TargetColumn | None,
        file: str | None,
    ) -> None:
        self.layout, self.options, self.known, self.file = layout, options, known, file
        self.targets, self.column = targets, column
        self.pattern = None if options.pattern is None else re.compile(options.pattern)
        self.units: dict[str, str] = {}

    def perturbation(self, row: Mapping[str, str | None], *, cells: int) -> Perturbation | None:
        """Return what was done, or None for a control."""
        label = self._label(row["label"], cells)
        mechanisms = self._mechanisms(row, label)
        pieces = self._pieces(label, mechanisms, row)
        treatment = row.get("treatment")
        extra = None if treatment is None or _is_nothing(treatment) else self.options.names.get(treatment, treatment)
        try:
            parts = [*self._parts(pieces, mechanisms, row)]
            if extra is not None:
                parts.append(self._chemical("drug", extra, None, row, alone=not parts))
            return Perturbation(tuple(parts)) if parts else None
        except InputError as error:
            if error.key is not None and error.key.startswith("obs["):
                raise
            raise self._error(
                error.problem, label, error.remedy or "mend the label, or rename it with names={old: new}"
            ) from error

    def _label(self, label: str | None, cells: int) -> str:
        if label is None or label == "":
            if any(looks_missing(item) for item in self.layout.controls):
                return ""
            raise InputError(
                f"{cells} cells do not say what was done to them",
                file=self.file,
                key=self._key,
                value=None,
                remedy="say control=nan if these are the controls, or drop them with keep=",
            )
        match = None if self.pattern is None or self._is_control(label) else self.pattern.fullmatch(label)
        label = label if match is None else match[1].strip()
        return self.options.names.get(label, label)

    def _mechanisms(self, row: Mapping[str, str | None], label: str) -> list[str]:
        """Return one mechanism, or one a part; none for a control."""
        if not label or self._is_control(label):
            return []
        if self.layout.mechanism is None:
            return self.layout.mechanism_value.split("+")
        key = f"obs[{self.layout.mechanism!r}]"
        spelling = row["mechanism"]
        if spelling is None:
            raise InputError(
                f"cells of {label!r} have no mechanism",
                file=self.file,
                key=key,
                value=None,
                remedy="fill the column, or say mechanism=NAME for all cells",
            )
        mechanisms = to_mechanism(spelling, file=self.file, key=key).split("+")
        return mechanisms if len(set(mechanisms)) > 1 else mechanisms[:1]

    def _pieces(self, label: str, mechanisms: list[str], row: Mapping[str, str | None]) -> list[str]:
        """Return the parts of a label, without controls: ``A+ctrl`` is ``A``."""
        if not mechanisms:
            return []
        separator = next((item for item in self.layout.separators if item in label), None)
        if separator is None:
            return [label]
        pieces = [piece.strip() for piece in label.split(separator)]
        if not self.layout.separator_given:
            chemical, dose = all(MECHANISMS[item][0] == "chemical" for item in mechanisms), row.get("dose")
            # A compound's own name may hold a plus, as (+)-JQ1 does: only one dose a part makes it a combination.
            if chemical and (dose is None or len(dose.split("+")) != len(pieces)) and len(mechanisms) == 1:
                return [label]
            if separator == "_" and not self._may_split(label, pieces, row.get("n_parts")):
                return [label]
        return [piece for piece in pieces if not self._is_control(piece)]

    def _may_split(self, label: str, pieces: list[str], n_parts: str | None) -> bool:
        """Whether an underscore joins two targets, or is part of one name."""
        if n_parts in ("1", str(len(pieces))):
            return n_parts != "1"
        known = [piece in self.known or self._is_control(piece) for piece in pieces]
        if all(known):
            return True
        if label in self.known or not any(known):
            return False
        raise self._error(
            "may be one name or several",
            label,
            "say separator=_ to split such names, or separator=none to leave them whole",
        )

    def _parts(self, pieces: list[str], mechanisms: list[str], row: Mapping[str, str | None]) -> list[Part]:
        if not pieces:
            return []
        label = "+".join(pieces)
        if len(mechanisms) == 1:
            mechanisms = mechanisms * len(pieces)
        if len(mechanisms) != len(pieces):
            raise self._error(f"has {len(pieces)} parts and {len(mechanisms)} mechanisms", label, None)
        doses = self._doses(row, len(pieces)) if any(MECHANISMS[item][0] == "chemical" for item in mechanisms) else []
        parts = []
        for number, (piece, mechanism) in enumerate(zip(pieces, mechanisms, strict=True)):
            name = self._checked(self.options.names.get(piece, piece), label)
            if MECHANISMS[mechanism][0] == "genetic":
                parts.append(Part.genetic(name, mechanism))
            else:
                compound = row.get("compound") or name
                compound = compound if len(pieces) == 1 else name
                parts.append(self._chemical(mechanism, compound, doses[number], row, alone=len(pieces) == 1))
        return parts

    def _chemical(
        self, mechanism: str, compound: str, dose: float | None, row: Mapping[str, str | None], *, alone: bool
    ) -> Part:
        if self.column is None:
            signs = self.targets.get(compound, {})
        elif alone:
            signs = self.column.of(compound, row.get("targets"))
        else:
            raise self._error(
                "names the targets of several things given at once, which cannot be told apart",
                compound,
                "give targets=FILE instead",
                key=self.column.column,
            )
        return Part(mechanism, tuple(signs.items()), compound, dose)

    def _checked(self, name: str, label: str) -> str:
        if looks_missing(name):
            raise self._error("looks like a missing value", label, "say control=nan, or drop those cells with keep=")
        if looks_like_control(name):
            raise self._error(
                "looks like a control that was not named as one",
                label,
                f"say control='[{', '.join([*sorted(self.layout.controls), name])}]'",
            )
        return name

    def _is_control(self, label: str) -> bool:
        return self.layout.is_control(label)

    def _doses(self, row: Mapping[str, str | None], n_parts: int) -> list[float | None]:
        text = row.get("dose")
        if text is None or looks_missing(text):
            return [None] * n_parts
        pieces = text.split("+") if n_parts > 1 else [text]
        if len(pieces) == 1:
            pieces = pieces * n_parts
        if len(pieces) != n_parts:
            raise self._error(f"has {n_parts} parts and {len(pieces)} doses", text, None, key=self.layout.dose)
        unit = row.get("unit") or self.layout.dose_unit_value
        return [self._dose(piece, unit) for piece in pieces]

    def _dose(self, text: str, unit: str) -> float:
        match = _DOSE.match(text)
        try:
            number = float(match[1]) if match else math.nan
        except ValueError:
            number = math.nan
        if match is None or not (number > 0 and math.isfinite(number)):
            raise self._error(
                "is not a dose above zero",
                text,
                "write a number, with its unit or dose_unit=; cells at dose zero are controls",
                key=self.layout.dose,
            )
        unit = (match[2] or unit or "").strip().lower().replace("µ", "u").replace("μ", "u")
        unit = {"micromolar": "um", "nanomolar": "nm", "millimolar": "mm"}.get(unit, unit)
        if unit:
            # Other units (ng/ml) cannot be turned into molar ones without the molar mass: the number stays.
            self.units.setdefault("micromolar" if unit in _MICROMOLAR else unit, text)
            if len(self.units) > 1:
                raise self._error(
                    f"doses are in units that cannot be compared ({', '.join(self.units)})",
                    f"{text} {unit}",
                    "convert the column to one unit",
                    key=self.layout.dose,
                )
        return float(f"{number * _MICROMOLAR.get(unit, 1.0):.12g}")

    @property
    def _key(self) -> str:
        return f"obs[{self.layout.perturbation!r}]"

    def _error(self, problem: str, value: str, remedy: str | None, *, key: str | None = None) -> InputError:
        where = self._key if key is None else f"obs[{key!r}]"
        return InputError(problem, file=self.file, key=where, value=value, remedy=remedy)


def _is_nothing(treatment: str) -> bool:
    return looks_missing(treatment) or looks_like_control(treatment)
