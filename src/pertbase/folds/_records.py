"""Somebody else's question-answer records in JSONL, by an explicit map of their fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, unknown_name
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._perturbation import MECHANISMS, Part, Perturbation
from pertbase.folds._prepare._dialects import plain_label, to_mechanism
from pertbase.folds._prepare._targets import Targets

__all__ = ["OUTCOME_WORDS", "FieldMap", "Records", "read_records"]

OUTCOME_WORDS: Mapping[str, tuple[str, ...]] = {
    "up": ("up", "upregulated", "increase", "increased", "increases", "activated"),
    "down": ("down", "downregulated", "decrease", "decreased", "decreases", "repressed"),
    "no_change": ("no_change", "unchanged", "not changed", "no effect", "not differentially expressed"),
}
"""How outcomes are usually spelled; case, spaces, hyphens and underscores do not matter in words."""

_NEEDED = ("context", "perturbation", "gene", "outcome")


@dataclass(frozen=True, kw_only=True)
class FieldMap:
    """Where a record says what: the key of each field, with dots into nested ones (``meta.cell_line``, ``parts.0``).

    Parameters
    ----------
    context
        The context; needed.
    perturbation
        The perturbation, a text or a list of its parts; needed.
    gene
        The readout gene; needed.
    outcome
        The outcome; needed.
    id
        The record's own id, by which its publisher matches predictions.
    mechanism
        In any common spelling; not needed where one holds for all records.
    targets
        What a compound acts on: a list, or a text separated by commas.
    dose
        In micromolar.
    split
        The split, where one file holds several.
    fold
        The test fold, where one file holds several.
    candidate_paths
        Paths that a reason may use; kept as they are.
    reference_paths
        Paths that a reason is held against; kept as they are.
    reference_text
        The text of a reason to hold others against; kept as it is.
    """

    context: str
    perturbation: str
    gene: str
    outcome: str
    id: str | None = None
    mechanism: str | None = None
    targets: str | None = None
    dose: str | None = None
    split: str | None = None
    fold: str | None = None
    candidate_paths: str | None = None
    reference_paths: str | None = None
    reference_text: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | FieldMap) -> FieldMap:
        """Return the map a configuration describes.

        Raises
        ------
        InputError
            For an unknown field (with the nearest name), or where one that is needed is left out.
        """
        if isinstance(given, FieldMap):
            return given
        known = [item.name for item in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown_name("field", str(name), known)
        missing = [name for name in _NEEDED if not given.get(name)]
        if missing:
            raise InputError("has to be given", key=f"fields.{missing[0]}", remedy="name the records' key for it")
        return cls(**{name: str(key) for name, key in given.items() if key is not None})


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Records that were read.

    Parameters
    ----------
    table
        One row a record: ``context``, ``perturbation``, ``gene``, ``outcome``, and those of ``id``, ``split``,
        ``fold``, ``candidate_paths``, ``reference_paths``, ``reference_text`` that the map names.
    perturbations
        Every name in ``table["perturbation"]``, and what it means.
    """

    table: pd.DataFrame
    perturbations: Mapping[str, Perturbation]

    def __repr__(self) -> str:
        table = self.table
        return (
            f"Records: {len(table):,} questions, {len(self.perturbations):,} perturbations, columns {', '.join(table)}"
        )


def read_records(
    path: str | Path | Iterable[str | Path],
    field_map: FieldMap | Mapping[str, Any],
    *,
    mechanism: str | None = None,
    separator: str | None = "+",
    outcomes: Mapping[str, Sequence[str]] | None = None,
    targets: Targets | None = None,
) -> Records:
    """Read records from JSONL.

    Parameters
    ----------
    path
        A file, or several.
    field_map
        Where a record says what.
    mechanism
        Of records that do not say it themselves.
    separator
        What joins the parts of a perturbation that is one text; None where names are never to be split.
    outcomes
        Outcome -> its spellings, in place of :data:`OUTCOME_WORDS`.
    targets
        Compound -> {target: sign}; where not given, those a record names have sign 0.

    Raises
    ------
    InputError
        For a line that is not a JSON object, a field the records do not have (the message lists the keys that they
        have), and an outcome, mechanism or dose that cannot be read; each with its file and line.
    """
    keys = FieldMap.of(field_map)
    if keys.mechanism is None and mechanism is None:
        raise InputError(
            "does not say by which mechanism targets were perturbed, and it is never guessed",
            key="mechanism",
            remedy=f"say fields.mechanism=KEY, or mechanism={'|'.join(MECHANISMS)} for all records",
        )
    reader = _Reader(keys, mechanism, separator, _spellings(outcomes or OUTCOME_WORDS), targets)
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    rows = [reader.row(record) for file in paths for record in _lines(Path(file))]
    if not rows:
        raise InputError("holds no records", file=", ".join(map(str, paths)) or None, key="path", value=0)
    return Records(pd.DataFrame(rows), reader.perturbations)


@dataclass(frozen=True)
class _Line:
    """One record and where it stands."""

    file: Path
    number: int
    values: Mapping[str, Any]

    def error(self, problem: str, key: str | None, value: object, remedy: str) -> InputError:
        return InputError(problem, file=self.file, key=f"line {self.number}: {key}", value=value, remedy=remedy)


def _lines(file: Path) -> Iterator[_Line]:
    if not file.is_file():
        raise InputError("there is no such file", file=file, key="path", remedy="check the path")
    try:
        with file.open(encoding="utf-8-sig") as handle:
            for number, text in enumerate(handle, start=1):
                if text.strip():
                    yield _Line(file, number, _object(file, number, text))
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text ({error.reason})", file=file, key="path", remedy="give JSONL") from error


def _object(file: Path, number: int, text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not JSON ({error.msg})",
            file=file,
            key=f"line {number}",
            value=text.strip(),
            remedy="one record a line",
        ) from error
    if not isinstance(found, dict):
        raise InputError("is not a record", file=file, key=f"line {number}", value=found, remedy="one object a line")
    return found


def _spellings(outcomes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for outcome, words in outcomes.items():
        if outcome not in OUTCOMES:
            raise unknown_name("outcome", str(outcome), OUTCOMES)
        for word in (words,) if isinstance(words, str) else words:
            if found.setdefault(_plain(str(word)), outcome) != outcome:
                raise InputError("spells two outcomes", key=f"outcomes.{outcome}", value=word, remedy="keep one")
    return found


def _plain(text: str) -> str:
    # The sign of a number is all that tells -1 from 1.
    return plain_label(text) if any(letter.isalpha() for letter in text) else text.strip()


class _Reader:
    """Reads one record after another."""

    def __init__(
        self,
        keys: FieldMap,
        mechanism: str | None,
        separator: str | None,
        spellings: Mapping[str, str],
        targets: Targets | None,
    ) -> None:
        self.keys, self.separator, self.spellings, self.targets = keys, separator or None, spellings, targets
        self.mechanism = None if mechanism is None else to_mechanism(mechanism)
        self.perturbations: dict[str, Perturbation] = {}
        self.copied = [
            name
            for name in ("id", "split", "fold", "candidate_paths", "reference_paths", "reference_text")
            if getattr(keys, name) is not None
        ]

    def row(self, line: _Line) -> dict[str, Any]:
        """Return a record's row."""
        perturbation = self._perturbation(line)
        row = {
            "context": self._text(line, "context"),
            "perturbation": perturbation.name,
            "gene": self._text(line, "gene"),
            "outcome": self._outcome(line),
        }
        for name in self.copied:
            found = self._get(line, name, needed=name in ("id", "split", "fold"))
            row[name] = str(found) if name in ("id", "split", "fold") else found
        return row

    def _get(self, line: _Line, name: str, *, needed: bool = True) -> Any:
        key = str(getattr(self.keys, name))
        found: Any = line.values
        for step in [key] if key in line.values else key.split("."):
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            elif not needed:
                return None
            else:
                raise line.error(
                    f"has no field for {name}",
                    key,
                    sorted(_keys(line.values)),
                    f"say fields.{name}=KEY with one of the keys that the record has",
                )
        return found

    def _text(self, line: _Line, name: str) -> str:
        found = self._get(line, name)
        if isinstance(found, (dict, list)) or found is None or not str(found).strip():
            raise line.error(f"is not the text of a {name}", getattr(self.keys, name), found, f"check fields.{name}")
        return str(found).strip()

    def _outcome(self, line: _Line) -> str:
        found = self._get(line, "outcome")
        outcome = None if found is None else self.spellings.get(_plain(str(found)))
        if outcome is None:
            raise line.error(
                "is not an outcome that is known",
                self.keys.outcome,
                found,
                f"say which it is with outcomes={{up: [...], down: [...], no_change: [...]}} (known: "
                f"{', '.join(self.spellings)})",
            )
        return outcome

    def _perturbation(self, line: _Line) -> Perturbation:
        found = self._get(line, "perturbation")
        if isinstance(found, list):
            names = [str(item).strip() for item in found]
        else:
            text = self._text(line, "perturbation")
            names = [text] if self.separator is None else [item.strip() for item in text.split(self.separator)]
        mechanisms = self._mechanisms(line, len(names))
        try:
            made = Perturbation(
                tuple(self._part(line, name, one, len(names) == 1) for name, one in zip(names, mechanisms, strict=True))
            )
        except InputError as error:
            if error.file is not None:
                raise
            raise line.error(
                error.problem, self.keys.perturbation, found, "mend the record, or check separator"
            ) from error
        if self.perturbations.setdefault(made.name, made) != made:
            raise line.error(
                "records name different targets for one perturbation",
                self.keys.targets,
                (self.perturbations[made.name].signs, made.signs),
                "mend them, or give targets={compound: {GENE: sign}}",
            )
        return made

    def _mechanisms(self, line: _Line, n_parts: int) -> list[str]:
        spelled = self.mechanism
        if self.keys.mechanism is not None:
            spelled = to_mechanism(self._text(line, "mechanism"), file=str(line.file), key=f"line {line.number}")
        mechanisms = str(spelled).split("+")
        if len(mechanisms) not in (1, n_parts):
            raise line.error(
                f"has {n_parts} parts and {len(mechanisms)} mechanisms", self.keys.mechanism, spelled, "mend the record"
            )
        return mechanisms * n_parts if len(mechanisms) == 1 else mechanisms

    def _part(self, line: _Line, name: str, mechanism: str, alone: bool) -> Part:
        if MECHANISMS[mechanism][0] == "genetic":
            return Part.genetic(name, mechanism)
        signs: Mapping[str, int] = (self.targets or {}).get(name, {})
        if self.targets is None and self.keys.targets is not None and alone:
            found = self._get(line, "targets", needed=False) or []
            listed = found.split(",") if isinstance(found, str) else found
            signs = {str(item).strip(): 0 for item in listed if str(item).strip()}
        return Part(mechanism, tuple(signs.items()), name, self._dose(line, alone))

    def _dose(self, line: _Line, alone: bool) -> float | None:
        found = self._get(line, "dose", needed=False) if self.keys.dose is not None and alone else None
        if found is None or found == "":
            return None
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise line.error("is not a dose", self.keys.dose, found, "doses are numbers, in micromolar") from error


def _keys(values: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a record, dots into nested ones."""
    for key, value in values.items():
        yield prefix + str(key)
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")
