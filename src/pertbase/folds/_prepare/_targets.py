"""What compounds act on: from a mapping, a table on disk or in uns, or a column of obs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, unknown_name

__all__ = ["TargetColumn", "Targets", "check_column", "read_targets", "targets_place"]

Targets = Mapping[str, Mapping[str, int]]

_COLUMNS = ("compound", "target", "sign")
_SEPARATORS = re.compile(r"[,;|]")


def targets_place(targets: Targets | str | None, place: str) -> str | None:
    """Return NAME where the option says ``PLACE:NAME`` (``obs:target``, ``uns:drug_targets``), else None."""
    if isinstance(targets, str) and targets.startswith(f"{place}:"):
        return targets.removeprefix(f"{place}:").strip()
    return None


def read_targets(targets: Targets | str | None, *, uns: Any = None, file: str | None = None) -> Targets:
    """Return compound -> {target: sign} from a mapping, a csv or tsv file, or what uns holds.

    A table has the columns compound, target and sign; others, such as the source of a row, are left alone.

    Raises
    ------
    InputError
        Where a table lacks a column, has an empty target, a sign that is not -1, 0 or 1, or gives one target of one
        compound two signs.
    """
    if targets is None or targets_place(targets, "obs") is not None:
        return {}
    key = targets_place(targets, "uns")
    if key is not None:
        return _from_uns(uns, f"uns[{key!r}]", file)
    if isinstance(targets, Mapping):
        return targets
    path = Path(str(targets))
    if not path.exists():
        raise InputError(
            "there is no such file",
            file=path,
            key="targets",
            remedy="check the path; a column of the file is named as targets=obs:COLUMN, a table as targets=uns:KEY",
        )
    try:
        table = pd.read_csv(
            path, sep="\t" if path.suffix in (".tsv", ".txt") else ",", dtype=str, keep_default_na=False
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a table ({error})", file=path, key="targets") from error
    # The first row stands in line 2, below the header.
    return _from_table(table, str(path), "", lambda row: f"line {row + 2}")


def _from_uns(found: Any, key: str, file: str | None) -> Targets:
    if isinstance(found, pd.DataFrame):
        table = found.astype(object).where(found.notna(), "").astype(str).reset_index(drop=True)
        # A numeric column of signs with a gap in it is read as floats.
        if "sign" in table:
            table["sign"] = table["sign"].str.removesuffix(".0")
        return _from_table(table, file, key, lambda row: f"{key}, row {row}")
    if isinstance(found, Mapping) and found and all(isinstance(item, Mapping) for item in found.values()):
        rows = [(str(c), str(gene), str(sign)) for c, signs in found.items() for gene, sign in signs.items()]
        return _from_table(
            pd.DataFrame(rows, columns=list(_COLUMNS)), file, key, lambda row: f"{key}[{rows[row][0]!r}]"
        )
    raise InputError(
        "holds no table of targets",
        file=file,
        key=key,
        value=None if found is None else type(found).__name__,
        remedy="it is a table with the columns compound, target, sign, or maps compounds to {target: sign}",
    )


def _from_table(table: pd.DataFrame, file: str | None, key: str, where: Any) -> Targets:
    missing = [column for column in _COLUMNS if column not in table.columns]
    if missing:
        raise InputError(
            "the table of targets lacks columns",
            file=file,
            key=", ".join(missing) if not key else f"{key}: {', '.join(missing)}",
            value=list(map(str, table.columns)),
            remedy="it needs compound, target, sign",
        )
    found: dict[str, dict[str, int]] = {}
    for row, (compound, gene, sign) in enumerate(zip(*(table[name].str.strip() for name in _COLUMNS), strict=True)):
        if not compound or not gene or sign not in ("-1", "0", "1", "+1"):
            raise InputError(
                "a row needs a target, a compound and a sign of -1, 0 or 1",
                file=file,
                key=where(row),
                value=(compound, gene, sign),
                remedy="use 0 where the sign is not known",
            )
        if found.setdefault(compound, {}).setdefault(gene, int(sign)) != int(sign):
            raise InputError(
                "one target of one compound has two signs",
                file=file,
                key=where(row),
                value=(compound, gene, sign),
                remedy="keep one row; use 0 where sources disagree",
            )
    return found


class TargetColumn:
    """Reads the targets that a column of obs names beside each compound, such as ``HDAC,EGFR``.

    Parameters
    ----------
    column
        The obs column.
    names
        Name in the column -> {target: sign}, for what is no gene symbol or whose sign is known.
    genes
        Symbols that may stand for themselves, with sign 0.
    file
        Named in messages.
    """

    def __init__(
        self, column: str, names: Mapping[str, Mapping[str, int]], genes: Collection[str], file: str | None
    ) -> None:
        self.column, self.names, self.genes, self.file = column, names, genes, file
        self.found: dict[str, dict[str, int]] = {}
        self.left_out: set[str] = set()
        self._texts: dict[str, str] = {}

    def of(self, compound: str, text: str | None) -> Mapping[str, int]:
        """Return the targets of a compound, once and for all.

        Raises
        ------
        InputError
            Where cells of one compound name different targets.
        """
        text = (text or "").strip()
        if self._texts.setdefault(compound, text) != text:
            raise InputError(
                f"cells of {compound!r} name different targets",
                file=self.file,
                key=f"obs[{self.column!r}]",
                value=(self._texts[compound], text),
                remedy="mend the column, or give targets=FILE",
            )
        if compound not in self.found:
            self.found[compound] = self._read(text)
        return self.found[compound]

    def _read(self, text: str) -> dict[str, int]:
        targets: dict[str, int] = {}
        for name in filter(None, (piece.strip() for piece in _SEPARATORS.split(text))):
            if name not in self.names and name not in self.genes:
                self.left_out.add(name)
            for gene, sign in self.names.get(name, {name: 0} if name in self.genes else {}).items():
                # Two families that share a gene and do not agree on it leave its sign unknown.
                targets[gene] = sign if targets.get(gene, sign) == sign else 0
        return targets


def check_column(column: str, columns: Collection[str], file: str | None) -> str:
    """Return an obs column that ``targets=obs:COLUMN`` names.

    Raises
    ------
    InputError
        Where there is none of that name.
    """
    if column not in columns:
        raise unknown_name("obs column of targets", column, columns, file=file)
    return column
