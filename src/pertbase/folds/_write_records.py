"""A fold's questions as question-answer records in JSONL, by a map of their fields: what :mod:`_records` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase._io import canonical_json, write_aside
from pertbase.errors import InputError
from pertbase.folds._perturbation import MECHANISMS, Perturbation
from pertbase.folds._records import OUTCOME_WORDS, FieldMap
from pertbase.folds._shipped_paths import plain_paths

__all__ = ["target_table", "write_records"]


def write_records(
    questions: pd.DataFrame,
    path: str | Path,
    field_map: FieldMap | Mapping[str, Any],
    *,
    perturbations: Mapping[str, Perturbation],
    mechanism: str | None = None,
    outcomes: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Write one record a question that has an outcome, and return how many.

    Parameters
    ----------
    questions
        Of a fold; paths and texts are written where they have them.
    path
        The file.
    field_map
        Which key says what, with dots into nested ones; a field that the map leaves out is not written.
    perturbations
        Name -> perturbation.
    mechanism
        Of all records, where the map has no field for it.
    outcomes
        Outcome -> its spellings, the first of which is written.

    Raises
    ------
    InputError
        Where something that tells questions apart (a dose, a mechanism) has no field.
    """
    keys = FieldMap.of(field_map)
    words = {outcome: _first(spelled) for outcome, spelled in (outcomes or OUTCOME_WORDS).items()}
    asked = questions.loc[questions["outcome"].notna()]
    made = {name: _described(perturbations[name], keys, mechanism) for name in asked["perturbation"].unique()}
    with write_aside(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in _rows(asked):
            said = {**row, **made[row["perturbation"]], "outcome": words[row["outcome"]]}
            record: dict[str, Any] = {}
            for name, key in vars(keys).items():
                if key is not None and said.get(name) is not None:
                    _put(record, key, said[name])
            file.write(canonical_json(record) + "\n")
    return len(asked)


def _first(spelled: str | Sequence[str]) -> str:
    return spelled if isinstance(spelled, str) else spelled[0]


def _rows(questions: pd.DataFrame) -> Iterator[dict[str, Any]]:
    table = questions.copy()
    for name in ("candidate_paths", "reference_paths"):
        if name in table:
            table[name] = plain_paths(table[name])
    for row in table.to_dict("records"):
        yield {str(key): value for key, value in row.items()}


def _described(perturbation: Perturbation, keys: FieldMap, mechanism: str | None) -> dict[str, Any]:
    """Return what a record says of a perturbation: parts, mechanisms and, of one compound, targets and dose."""
    parts = perturbation.parts
    used = [part.mechanism for part in parts]
    if keys.mechanism is None and set(used) != {mechanism}:
        raise _lost("mechanism", perturbation, "+".join(used))
    names = [part.compound or part.targets[0][0] for part in parts]
    said: dict[str, Any] = {
        # A name with a separator in it is a list of one, so that it is read as one.
        "perturbation": names[0] if len(names) == 1 and "+" not in names[0] else names,
        "mechanism": used[0] if len(set(used)) == 1 else "+".join(used),
        "targets": None,
        "dose": None,
    }
    doses = [part.dose for part in parts if part.dose is not None]
    if doses and (keys.dose is None or len(parts) > 1):
        raise _lost("dose", perturbation, doses[0])
    if len(parts) == 1 and MECHANISMS[used[0]][0] == "chemical":
        said |= {"targets": list(perturbation.targets), "dose": doses[0] if doses else None}
    return said


def _lost(field: str, perturbation: Perturbation, value: object) -> InputError:
    return InputError(
        f"records have no field for the {field} of {perturbation.name}",
        key=f"fields.{field}",
        value=value,
        remedy=f"say data.fields.{field}=KEY; combinations of compounds with doses cannot be written as records"
        if field == "dose"
        else f"say data.fields.{field}=KEY",
    )


def _put(record: dict[str, Any], key: str, value: Any) -> None:
    *outer, last = key.split(".")
    for step in outer:
        record = record.setdefault(step, {})
    record[last] = value


def target_table(perturbations: Mapping[str, Perturbation]) -> pd.DataFrame:
    """Return what compounds act on, and in which direction, which a record does not say: ``compound, target, sign``."""
    rows = {
        (part.compound, gene, sign)
        for perturbation in perturbations.values()
        for part in perturbation.parts
        if part.compound
        for gene, sign in part.targets
    }
    return pd.DataFrame(sorted(rows), columns=["compound", "target", "sign"])
