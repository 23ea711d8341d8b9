"""Tables of signed edges: OmniPath's, CollecTRI's, DoRothEA's, or anybody's with named columns."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError, unknown_name
from pertbase.knowledge._graph import SignedGraph, clean_name
from pertbase.knowledge._triplets import relation_sign

__all__ = ["FORMATS", "EdgeColumns", "expanded", "read_edge_table"]

_FALSE = ("", "0", "0.0", "false", "no", "nan", "na", "none")
_SYMBOL = re.compile(r"[A-Z][A-Z0-9-]+(_[0-9]\w*)*", re.IGNORECASE)
_COMPLEX = re.compile(r"^complex:", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class EdgeColumns:
    """Which columns of a table say what.

    Parameters
    ----------
    source, target
        Who acts, and on whom.
    sign
        A number (above 0 raises, below 0 lowers, 0 unknown) or a relation (see
        :func:`pertbase.knowledge.relation_sign`). Not given: read off ``stimulation`` and ``inhibition``, or unknown.
    stimulation, inhibition
        Whether the sources say that it raises, or lowers; where they say neither the sign is 0, and where they say both
        it is a conflict. Several columns are asked in order: the first that says either, or both, decides.
    directed
        Whether the edge has a direction; rows without are left out and counted.
    guessed
        Where the sign was decided by a default, the text says so: a value with ``default`` in it makes the sign 0.
    evidence
        A number of pieces of evidence.
    references
        A list of them, parted by ``;`` or ``,``, counted where there is no ``evidence``.
    sources
        Who says so, parted by ``;``.
    """

    source: str = "source"
    target: str = "target"
    sign: str | None = None
    stimulation: tuple[str, ...] = ()
    inhibition: tuple[str, ...] = ()
    directed: str | None = None
    guessed: str | None = None
    evidence: str | None = None
    references: str | None = None
    sources: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> EdgeColumns:
        """Return the columns that a configuration names.

        Raises
        ------
        InputError
            For an unknown key, with the nearest one.
        """
        known = [item.name for item in fields(cls)]
        for key in given:
            if key not in known:
                raise unknown_name("column", str(key), known)
        named: dict[str, Any] = {str(key): value for key, value in given.items() if value is not None}
        for key in ("stimulation", "inhibition"):
            if key in named:
                named[key] = (named[key],) if isinstance(named[key], str) else tuple(named[key])
        return cls(**named)

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that is named."""
        single = (self.sign, self.directed, self.guessed, self.evidence, self.references, self.sources)
        return (self.source, self.target, *(name for name in single if name), *self.stimulation, *self.inhibition)


FORMATS: Mapping[str, EdgeColumns] = {
    "omnipath_service": EdgeColumns(
        source="source_genesymbol",
        target="target_genesymbol",
        stimulation=("consensus_stimulation", "is_stimulation"),
        inhibition=("consensus_inhibition", "is_inhibition"),
        directed="is_directed",
        evidence="curation_effort",
        references="references",
        sources="sources",
    ),
    "omnipath_carnival": EdgeColumns(sign="interaction"),
    "collectri": EdgeColumns(sign="weight", guessed="sign.decision", references="PMID", sources="resources"),
    "dorothea": EdgeColumns(source="tf", sign="mor"),
    "plain": EdgeColumns(sign="sign", evidence="evidence", sources="sources"),
}
"""Known tables, told apart by the columns they cannot do without: source, target and sign."""

_OTHER_NAMES = {"guessed": ("sign_decision",), "references": ("references",)}
"""Columns that releases of a known table have named otherwise."""


def read_edge_table(
    path: str | Path,
    *,
    name: str | None = None,
    columns: EdgeColumns | Mapping[str, Any] | None = None,
    signs: Mapping[str, int] | None = None,
    families: Mapping[str, Sequence[str]] | None = None,
    licence: str = "",
) -> SignedGraph:
    """Return the graph of a table, tabs or commas between its columns, gzipped or not.

    Complexes, written ``A:B``, ``A_B`` (where every part looks like a symbol), ``_A_B`` or ``COMPLEX:A_B``, expand to
    their members: an edge from or to each. Of self-loops, repeated edges and conflicts see
    :meth:`SignedGraph.from_edges`.

    Parameters
    ----------
    path
        The file.
    name
        Of the graph; the file's where not given.
    columns
        Which say what; where not given, those of the known table (:data:`FORMATS`) that the header is of.
    signs
        Relation -> -1, 0 or +1, for words that :func:`pertbase.knowledge.relation_sign` does not know.
    families
        Name -> members, of nodes that stand for several genes, such as ``AP1``; expanded as complexes are.
    licence
        The terms its source states.

    Raises
    ------
    InputError
        Where the file is absent, is of no known table, lacks a named column, or has a sign that cannot be read.
    """
    path = Path(path)
    table = _read(path)
    known = _columns(columns, table, path)
    rows = pd.DataFrame({"source": table[known.source], "target": table[known.target]}, dtype=object)
    rows["sign"], rows["conflict"] = _signs(table, known, signs or {}, path)
    rows["evidence"] = _evidence(table, known, path)
    graph_name = name or re.sub(r"(\.(tsv|csv|txt|gz))+$", "", path.name)
    rows["sources"] = _sources(table, known, graph_name)
    counts: dict[str, int] = {}
    if known.directed:
        keep = np.array([not _false(value) for value in table[known.directed]], dtype=bool)
        counts["undirected"] = int((~keep).sum())
        rows = rows.loc[keep]
    rows, counts["complexes"] = expanded(rows.reset_index(drop=True), families or {})
    return SignedGraph.from_edges(rows, name=graph_name, licence=licence, counts=counts, file=str(path))


def expanded(rows: pd.DataFrame, families: Mapping[str, Sequence[str]]) -> tuple[pd.DataFrame, int]:
    """Return edges with complexes and families replaced by their members, and how many edges had one."""
    ends = {side: [_members(value, families) for value in rows[side]] for side in ("source", "target")}
    size = np.array([len(a) * len(b) for a, b in zip(ends["source"], ends["target"], strict=True)], dtype=np.int64)
    several = int((size > 1).sum())
    if not several:
        return rows, 0
    pairs = [(a, b) for left, right in zip(ends["source"], ends["target"], strict=True) for a in left for b in right]
    repeated = rows.loc[rows.index.repeat(size)].reset_index(drop=True)
    return repeated.assign(source=[a for a, _ in pairs], target=[b for _, b in pairs]), several


def _members(name: object, families: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the members of a complex or family, or the name alone; sorted, each once."""
    text = clean_name(name)
    bare = _COMPLEX.sub("", text)
    parts = [part.strip() for part in bare.split(":") if part.strip()] or [bare]
    if len(parts) == 1 and "_" in bare:
        pieces: list[str] = []
        for piece in filter(None, bare.split("_")):
            # C4B_2 is one gene, and CHEBI_18420 one compound: a number is no member.
            if pieces and not piece[0].isalpha():
                pieces[-1] += f"_{piece}"
            else:
                pieces.append(piece)
        marked = text != bare or bare.startswith("_")
        if pieces and (marked or all(_SYMBOL.fullmatch(piece) for piece in pieces)):
            parts = pieces
    found = {member for part in parts for member in families.get(part, (part,))}
    return sorted(found)


# -- columns ------------------------------------------------------------------------------------------------


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as lines:
            header = lines.readline()
            if not header.strip():
                raise InputError("is empty", file=path, remedy="give a table with a header")
            separator = "\t" if "\t" in header else ","
            names = [name.strip().strip('"') for name in header.rstrip("\r\n").split(separator)]
            table: pd.DataFrame = pd.read_csv(
                lines, sep=separator, dtype=str, keep_default_na=False, names=names, header=None, index_col=False
            )
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"cannot be read as text ({error})", file=path) from error
    except pd.errors.ParserError as error:
        raise InputError(f"is not a table ({error})", file=path) from error
    except pd.errors.EmptyDataError as error:
        raise InputError("holds a header and no edges", file=path) from error
    # A line that ends early has nothing in its last columns.
    return table.fillna("")


def _columns(given: EdgeColumns | Mapping[str, Any] | None, table: pd.DataFrame, path: Path) -> EdgeColumns:
    if given is not None:
        known = given if isinstance(given, EdgeColumns) else EdgeColumns.of(given)
        missing = [name for name in known.names if name not in table.columns]
        if missing:
            raise InputError("the edges lack columns", file=path, key=", ".join(missing), value=list(table.columns))
        return known
    for known in FORMATS.values():
        needed = [known.source, known.target, *([known.sign] if known.sign else known.stimulation[-1:])]
        if set(needed) <= set(table.columns):
            return _present(known, table.columns)
    raise InputError(
        "is no table of edges that is known by its columns",
        file=path,
        key="columns",
        value=list(table.columns)[:8],
        remedy="say which columns hold what: graph={path: FILE, columns: {source: NAME, target: NAME, sign: NAME}}",
    )


def _present(known: EdgeColumns, columns: Iterable[str]) -> EdgeColumns:
    """Return a known table's columns, without those that this file does not have."""
    there = set(columns)
    changes: dict[str, Any] = {}
    for name in ("directed", "guessed", "evidence", "references", "sources"):
        value = getattr(known, name)
        options = ([value] if value else []) + [other for other in _OTHER_NAMES.get(name, ()) if value]
        changes[name] = next((option for option in options if option in there), None)
    for name in ("stimulation", "inhibition"):
        changes[name] = tuple(column for column in getattr(known, name) if column in there)
    return replace(known, **changes)


def _signs(
    table: pd.DataFrame, known: EdgeColumns, signs: Mapping[str, int], path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's sign, and whether it says both."""
    both = np.zeros(len(table), dtype=bool)
    if known.sign:
        words = table[known.sign]
        meaning = {word: _sign_of(word, signs, known.sign, path) for word in pd.unique(words)}
        found = np.array([meaning[word] for word in words], dtype=np.int8)
    else:
        found = np.zeros(len(table), dtype=np.int8)
        for up, down in zip(known.stimulation, known.inhibition, strict=False):
            raises = np.array([not _false(value) for value in table[up]], dtype=np.int8)
            lowers = np.array([not _false(value) for value in table[down]], dtype=np.int8)
            undecided = (found == 0) & ~both
            found[undecided] = (raises - lowers)[undecided]
            both |= undecided & (raises == 1) & (lowers == 1)
    if known.guessed:
        by_default = np.array(["default" in value.lower() for value in table[known.guessed]], dtype=bool)
        found[by_default], both[by_default] = 0, False
    return found, both


def _sign_of(word: str, signs: Mapping[str, int], column: str, path: Path) -> int:
    if word in signs:
        return int(signs[word])
    if _false(word):
        return 0
    try:
        return int(np.sign(float(word)))
    except ValueError:
        sign = relation_sign(word)
    if sign is None:
        raise InputError(
            "is not a sign that is known",
            file=path,
            key=column,
            value=word,
            remedy=f"say what it stands for: graph={{path: FILE, signs: {{{word}: -1}}}}, 0 or 1",
        )
    return sign


def _evidence(table: pd.DataFrame, known: EdgeColumns, path: Path) -> np.ndarray:
    found = np.zeros(len(table), dtype=np.int64)
    if known.references:
        found = np.array(
            [
                len({part.strip() for part in re.split("[;,]", text) if part.strip()})
                for text in table[known.references]
            ],
            dtype=np.int64,
        )
    if known.evidence:
        text = table[known.evidence].astype(str).str.strip()
        numbers = pd.to_numeric(text.where(text != "", "0"), errors="coerce")
        bad = ~np.isfinite(numbers.to_numpy(dtype=np.float64)) | (numbers < 0).to_numpy()
        if bad.any():
            raise InputError(
                "evidence is a number of findings",
                file=path,
                key=known.evidence,
                value=text.iloc[int(np.argmax(bad))],
                remedy="write a whole number from 0 on, or leave it empty",
            )
        found = np.maximum(found, numbers.to_numpy().astype(np.int64))
    return np.maximum(found, 1)


def _sources(table: pd.DataFrame, known: EdgeColumns, name: str) -> list[str]:
    if not known.sources:
        return [name] * len(table)
    return [
        ";".join(sorted({part.strip() for part in re.split("[;,]", text) if part.strip()})) or name
        for text in table[known.sources]
    ]


def _false(value: str) -> bool:
    return value.strip().lower() in _FALSE
