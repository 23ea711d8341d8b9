"""What was done to cells, and what makes two of them the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from pertbase.errors import InputError

__all__ = [
    "CONTROL",
    "MECHANISMS",
    "MODALITIES",
    "TABLE_COLUMNS",
    "Part",
    "Perturbation",
    "perturbation_table",
    "perturbations_from_table",
]

CONTROL = "control"
"""What ``obs["perturbation"]`` says of control cells."""

MECHANISMS: dict[str, tuple[str, int]] = {
    "CRISPRi": ("genetic", -1),
    "CRISPRa": ("genetic", +1),
    "CRISPR-KO": ("genetic", -1),
    "drug": ("chemical", 0),
    "ligand": ("chemical", +1),
}
"""Mechanism -> (modality, the sign of a target where none is given)."""

MODALITIES = ("genetic", "chemical")

TABLE_COLUMNS = ("perturbation", "part", "mechanism", "compound", "dose", "target", "sign")

Modality = Literal["genetic", "chemical", "mixed"]


@dataclass(frozen=True)
class Part:
    """One thing done: a gene lowered or raised, or a compound given at a dose.

    Parameters
    ----------
    mechanism
        A key of :data:`MECHANISMS`.
    targets
        (gene symbol, sign) pairs; sign -1 lowers the target's activity, +1 raises it, 0 is unknown. Sorted on
        creation. A genetic part has exactly one; a chemical part may have none known.
    compound
        The drug or ligand; empty for genetic parts.
    dose
        In the unit the screen declares (micromolar by custom); None where not given.
    """

    mechanism: str
    targets: tuple[tuple[str, int], ...] = ()
    compound: str = ""
    dose: float | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise InputError(
                "unknown mechanism",
                key="mechanism",
                value=self.mechanism,
                remedy=f"use one of {', '.join(MECHANISMS)}",
            )
        object.__setattr__(self, "targets", tuple(sorted({(str(gene), int(sign)) for gene, sign in self.targets})))
        genes = [gene for gene, _ in self.targets]
        if len(set(genes)) != len(genes):
            raise InputError("one target has two signs", key="sign", value=self.targets, remedy="give each target once")
        if any(not gene for gene in genes):
            raise InputError("a target has no name", key="target", value=self.targets)
        if any(sign not in (-1, 0, 1) for _, sign in self.targets):
            raise InputError("a sign is -1, 0 or +1", key="sign", value=self.targets)
        if self.modality == "genetic":
            if len(genes) != 1 or self.compound or self.dose is not None:
                raise InputError(
                    "a genetic part has exactly one target, no compound and no dose",
                    key="perturbation",
                    value=(self.targets, self.compound, self.dose),
                    remedy="write a combination as several parts",
                )
        elif not self.compound:
            raise InputError("a chemical part needs a compound", key="compound", value=self.compound)
        if self.dose is not None and not (math.isfinite(self.dose) and self.dose > 0):
            raise InputError("a dose is a positive number", key="dose", value=self.dose)

    @property
    def modality(self) -> str:
        """``genetic`` or ``chemical``."""
        return MECHANISMS[self.mechanism][0]

    @property
    def label(self) -> str:
        """The part without its mechanism: the target, or the compound and its dose."""
        if self.modality == "genetic":
            return self.targets[0][0]
        return self.compound if self.dose is None else f"{self.compound}@{self.dose:g}"

    @classmethod
    def genetic(cls, gene: str, mechanism: str) -> Part:
        """Return the part that perturbs one gene, its sign given by the mechanism."""
        if mechanism not in MECHANISMS:
            raise InputError(
                "unknown mechanism", key="mechanism", value=mechanism, remedy=f"use {', '.join(MECHANISMS)}"
            )
        return cls(mechanism, ((gene, MECHANISMS[mechanism][1]),))


@dataclass(frozen=True)
class Perturbation:
    """What was done to a cell: one part, or several given together.

    ``A+B`` and ``B+A`` are the same; the same target by another mechanism, or the same compound at another
    dose, is another perturbation.

    Parameters
    ----------
    parts
        One or more; sorted on creation.
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InputError("a perturbation has at least one part", key="parts", value=self.parts)
        parts = tuple(sorted(set(self.parts), key=lambda part: (part.mechanism, part.label, part.targets)))
        if len(parts) != len(self.parts):
            raise InputError("a part is given twice", key="perturbation", value=[part.label for part in self.parts])
        object.__setattr__(self, "parts", parts)

    @classmethod
    def genetic(cls, genes: Iterable[str], mechanism: str) -> Perturbation:
        """Return the perturbation of some genes, all by one mechanism."""
        return cls(tuple(Part.genetic(gene, mechanism) for gene in genes))

    @cached_property
    def name(self) -> str:
        """The one spelling: ``CRISPRa:A+B``, ``drug:trametinib@0.5``, ``CRISPRi:A+drug:b``."""
        mechanisms = {part.mechanism for part in self.parts}
        if len(mechanisms) == 1:
            return f"{self.parts[0].mechanism}:" + "+".join(part.label for part in self.parts)
        return "+".join(f"{part.mechanism}:{part.label}" for part in self.parts)

    @cached_property
    def modality(self) -> Modality:
        """``genetic``, ``chemical`` or, where both were done at once, ``mixed``."""
        found = {part.modality for part in self.parts}
        if found == {"genetic"}:
            return "genetic"
        return "chemical" if found == {"chemical"} else "mixed"

    @cached_property
    def mechanism(self) -> str:
        """The mechanism, or the mechanisms joined by ``+``."""
        return "+".join(sorted({part.mechanism for part in self.parts}))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The genes acted on, sorted, each once."""
        return tuple(sorted({gene for part in self.parts for gene, _ in part.targets}))

    @property
    def signs(self) -> dict[str, int]:
        """Gene -> sign; 0 where parts disagree. A new dictionary each time: perturbations are shared by baselines."""
        found: dict[str, set[int]] = {}
        for part in self.parts:
            for gene, sign in part.targets:
                found.setdefault(gene, set()).add(sign)
        return {gene: next(iter(signs)) if len(signs) == 1 else 0 for gene, signs in sorted(found.items())}

    @cached_property
    def compounds(self) -> tuple[str, ...]:
        """The compounds given, sorted, each once."""
        return tuple(sorted({part.compound for part in self.parts if part.compound}))

    @property
    def is_combination(self) -> bool:
        """Whether it has more than one part."""
        return len(self.parts) > 1

    @cached_property
    def units(self) -> tuple[str, ...]:
        """What a split keeps together: the target of each genetic part, the compound of each chemical one.

        Mechanism and dose are left out on purpose: ``CRISPRi:A`` in training and ``CRISPRa:A`` in test would
        share a target set.
        """
        return tuple(
            sorted(
                {f"gene:{p.targets[0][0]}" if p.modality == "genetic" else f"compound:{p.compound}" for p in self.parts}
            )
        )

    @property
    def split_key(self) -> str:
        """The target set or compound set as one text: equal keys never lie in two splits."""
        return "+".join(self.units)

    def __str__(self) -> str:
        return self.name


def perturbation_table(perturbations: Mapping[str, Perturbation]) -> pd.DataFrame:
    """Return the table that ``uns["pertbase"]["perturbations"]`` holds.

    One row a (perturbation, part, target), columns :data:`TABLE_COLUMNS`: ``part`` counts from 0, ``compound``
    and ``target`` are empty text and ``dose`` is NaN where there is none.
    """
    rows: list[tuple[Any, ...]] = []
    for name, perturbation in sorted(perturbations.items()):
        for number, part in enumerate(perturbation.parts):
            dose = math.nan if part.dose is None else float(part.dose)
            for gene, sign in part.targets or (("", 0),):
                rows.append((name, number, part.mechanism, part.compound, dose, gene, sign))
    table = pd.DataFrame(rows, columns=list(TABLE_COLUMNS))
    return table.astype({"part": "int64", "dose": "float64", "sign": "int64"})


def _part(rows: pd.DataFrame) -> Part:
    head = rows.iloc[0]
    targets = tuple((str(gene), int(sign)) for gene, sign in zip(rows["target"], rows["sign"], strict=True) if gene)
    dose = None if pd.isna(head["dose"]) else float(head["dose"])
    return Part(str(head["mechanism"]), targets, str(head["compound"]), dose)


def perturbations_from_table(table: pd.DataFrame, *, file: str | None = None) -> dict[str, Perturbation]:
    """Return name -> perturbation from a table of :func:`perturbation_table`'s kind.

    Raises
    ------
    InputError
        Where a column is missing, a part is inconsistent, or two names mean the same perturbation.
    """
    if not isinstance(table, pd.DataFrame):
        raise InputError(
            "the perturbations are not a table",
            file=file,
            key='uns["pertbase"]["perturbations"]',
            value=type(table).__name__,
            remedy="`pertbase prepare` writes one",
        )
    missing = [column for column in TABLE_COLUMNS if column not in table.columns]
    if missing:
        raise InputError(
            "the perturbation table lacks columns",
            file=file,
            key='uns["pertbase"]["perturbations"]',
            value=missing,
            remedy=f"it needs {', '.join(TABLE_COLUMNS)}; `pertbase prepare` writes them",
        )
    found: dict[str, Perturbation] = {}
    by_meaning: dict[Perturbation, str] = {}
    for name, rows in table.groupby("perturbation", sort=True, observed=True):
        try:
            perturbation = Perturbation(tuple(_part(part) for _, part in rows.groupby("part", sort=True)))
        except (TypeError, ValueError) as error:
            problem, value = (
                (error.problem, error.value) if isinstance(error, InputError) else (str(error), rows.to_dict("records"))
            )
            raise InputError(
                f"{str(name)!r} has a row that cannot be read ({problem})",
                file=file,
                key='uns["pertbase"]["perturbations"]',
                value=value,
                remedy="mend the table; `pertbase prepare` writes it",
            ) from error
        if perturbation in by_meaning:
            raise InputError(
                f"the names {by_meaning[perturbation]!r} and {str(name)!r} mean the same perturbation",
                file=file,
                key="perturbation",
                value=str(name),
                remedy="give its cells one name; `pertbase prepare` does",
            )
        by_meaning[perturbation] = str(name)
        found[str(name)] = perturbation
    return found
