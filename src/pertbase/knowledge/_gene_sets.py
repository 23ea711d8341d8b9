"""Gene sets: name -> gene symbols, from a GMT file, a table of annotations, or an installed package."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from pertbase._frozen import FrozenMapping
from pertbase._unpickle import read_pickle
from pertbase.errors import InputError, unknown_name

__all__ = ["GeneSets", "default_gene_sets", "gene_sets", "membership", "read_gene2go", "read_gmt"]

GeneSets = Mapping[str, tuple[str, ...]]
"""Name of the set -> its gene symbols, sorted, each once."""

DEFAULT = "GO_Biological_Process_2023"
_PACKAGE = "blitzgsea"
HUMAN = 9606

MSIGDB = "c5.go.bp.v2023.2"
_MSIGDB_FILE = f"msigdb/{MSIGDB}.Hs.symbols.gmt"
# The address was not fetched when this was written, so that no checksum is known beforehand: the first copy's is kept.
_MSIGDB_URL = f"https://data.broadinstitute.org/gsea-msigdb/msigdb/release/2023.2.Hs/{MSIGDB}.Hs.symbols.gmt"


def gene_sets(source: str | Path) -> GeneSets:
    """Return the gene sets that a name or a file means.

    Parameters
    ----------
    source
        ``GO_Biological_Process_2023``; ``c5.go.bp.v2023.2``, MSigDB's, which is fetched once and asked for the same
        checksum ever after; or a ``.gmt`` file, a table of annotations (see :func:`read_gene2go`), either gzipped or
        not. Files are found as data files are (``PERTBASE_DATA``).

    Raises
    ------
    InputError
        Where the name is unknown, or the file is absent or cannot be read.
    """
    name = str(source)
    if name == DEFAULT:
        return default_gene_sets()
    if name == MSIGDB:
        return _msigdb()
    suffixes = Path(name).suffixes
    if not suffixes and "/" not in name and name != "gene2go" and not Path(name).exists():
        raise unknown_name("gene_sets", name, [DEFAULT, MSIGDB, "a .gmt file", "a gene2go file"])
    from pertbase.folds._data import find_data

    path = find_data(name)
    return read_gmt(path) if ".gmt" in path.suffixes else read_gene2go(path)


def default_gene_sets() -> GeneSets:
    """Return the biological processes of the Gene Ontology, 2023, as Enrichr made sets of them.

    5,407 sets of 14,698 human genes (CC BY 4.0). The file comes with the package ``blitzgsea``, which is not imported.

    Raises
    ------
    InputError
        Where the package, or the file in it, is absent.
    """
    found = importlib.util.find_spec(_PACKAGE)
    places = [] if found is None else list(found.submodule_search_locations or [])
    for place in places:
        path = Path(place) / "data" / DEFAULT
        if path.is_file():
            return read_gmt(path)
    raise InputError(
        f"comes with the package {_PACKAGE}, which is not installed",
        key="gene_sets",
        value=DEFAULT,
        remedy=f"pip install {_PACKAGE}, or name a .gmt file",
    )


def _msigdb() -> GeneSets:
    from pertbase.folds._data import find_or_fetch
    from pertbase.folds._download import Origin

    origin = Origin.of(
        url=_MSIGDB_URL,
        licence="CC BY 4.0",
        citation=(
            "Liberzon et al., Molecular signatures database (MSigDB) 3.0, Bioinformatics 27:1739 (2011), "
            "doi:10.1093/bioinformatics/btr260; the Gene Ontology Consortium, Genetics 224:iyad031 (2023)"
        ),
    )
    return read_gmt(find_or_fetch(_MSIGDB_FILE, origin))


def read_gmt(path: str | Path) -> GeneSets:
    """Return the sets of a GMT file: a line a set, ``name<TAB>description<TAB>gene<TAB>gene...``.

    What follows a comma in a gene is a weight (Enrichr's older files have them) and is left out.

    Raises
    ------
    InputError
        Where the file is absent, a line has no gene, or a name comes twice.
    """
    sets: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(_lines(path), start=1):
        fields = line.rstrip("\r\n").split("\t")
        if fields == [""]:
            continue
        genes = {field.partition(",")[0].strip() for field in fields[2:]} - {""}
        if len(fields) < 3 or not genes:
            raise InputError(
                "is not a line of a GMT file: name, description and genes, with tabs between",
                file=path,
                key=f"line {number}",
                value=line[:60],
            )
        if fields[0] in sets:
            raise InputError("a set comes twice", file=path, key=f"line {number}", value=fields[0])
        sets[fields[0]] = tuple(sorted(genes))
    return _checked(sets, path)


def read_gene2go(path: str | Path, *, symbols: Mapping[int, str] | str | Path | None = None) -> GeneSets:
    """Return a set for each GO term from a table of annotations.

    Three kinds are read, told apart by what is in them:

    - NCBI's ``gene2go`` (columns ``#tax_id``, ``GeneID``, ``GO_ID``, ``Qualifier``, ...). Human biological processes
      are taken, negated annotations are not. It holds numbers of genes, so symbols are needed beside it.
    - A table with columns ``gene`` and ``set`` (tabs, or commas in a ``.csv``).
    - The pickle of cell-gears, gene -> GO terms (``.pkl``): read without running what may be in it.

    Parameters
    ----------
    path
        The file, gzipped or not.
    symbols
        For NCBI's: GeneID -> symbol, or NCBI's ``gene_info`` file. Not given: ``gene_info`` or ``gene_info.gz`` (or
        ``Homo_sapiens.gene_info.gz``) beside it.

    Raises
    ------
    InputError
        Where the file is absent or of neither kind, or symbols are needed and not there.
    """
    path = Path(path)
    if path.suffix in (".pkl", ".pickle"):
        return _from_annotations(read_pickle(path, remedy="give a .gmt file instead"), path)
    header = next(_lines(path), "").lstrip("#").rstrip("\r\n")
    separator = "," if ".csv" in path.suffixes else "\t"
    columns = header.split(separator)
    if {"GeneID", "GO_ID"} <= set(columns):
        return _from_ncbi(path, symbols)
    if not {"gene", "set"} <= set(columns):
        raise InputError(
            "is no table of annotations",
            file=path,
            key="columns",
            value=columns[:8],
            remedy="it needs the columns gene and set, or those of NCBI's gene2go",
        )
    table = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, usecols=["gene", "set"])
    return _grouped(table["set"], table["gene"], path)


def membership(sets: GeneSets, genes: pd.Index) -> sparse.csr_matrix:
    """Return which gene is in which set, genes x sets, ones of float32."""
    names = list(sets)
    columns = np.repeat(np.arange(len(names)), [len(sets[name]) for name in names])
    rows = genes.get_indexer([gene for name in names for gene in sets[name]])
    known = rows >= 0
    ones = np.ones(int(known.sum()), dtype=np.float32)
    return sparse.csr_matrix((ones, (rows[known], columns[known])), shape=(len(genes), len(names)))


def _lines(path: str | Path) -> Iterator[str]:
    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"cannot be read as text ({error})", file=path) from error


def _from_ncbi(path: Path, symbols: Mapping[int, str] | str | Path | None) -> GeneSets:
    names = symbols if isinstance(symbols, Mapping) else _symbols(path, symbols)
    table = pd.read_csv(
        path,
        sep="\t",
        dtype={"GO_ID": str, "Qualifier": str, "Category": str},
        usecols=lambda name: name in ("#tax_id", "tax_id", "GeneID", "GO_ID", "Qualifier", "Category"),
        keep_default_na=False,
    ).rename(columns=lambda name: name.lstrip("#"))
    keep = table["tax_id"] == HUMAN
    if "Category" in table:
        keep &= table["Category"] == "Process"
    if "Qualifier" in table:
        keep &= ~table["Qualifier"].str.startswith("NOT")
    table = table.loc[keep]
    symbol = table["GeneID"].map(dict(names))
    known = symbol.notna()
    return _grouped(table.loc[known, "GO_ID"], symbol[known], path)


def _symbols(path: Path, given: str | Path | None) -> dict[int, str]:
    """Return GeneID -> symbol from NCBI's ``gene_info``."""
    places = ("gene_info", "gene_info.gz", "Homo_sapiens.gene_info", "Homo_sapiens.gene_info.gz")
    candidates = [Path(given)] if given is not None else [path.with_name(name) for name in places]
    for place in candidates:
        if place.is_file():
            table = pd.read_csv(place, sep="\t", dtype={"Symbol": str}, usecols=["GeneID", "Symbol"])
            return {int(key): str(value) for key, value in zip(table["GeneID"], table["Symbol"], strict=True)}
    raise InputError(
        "holds numbers of genes, and the file that gives their symbols is not beside it",
        file=path,
        key="symbols",
        value=[str(place) for place in candidates],
        remedy="put NCBI's Homo_sapiens.gene_info.gz beside it",
    )


def _from_annotations(content: object, path: Path) -> GeneSets:
    if not isinstance(content, Mapping) or not all(
        isinstance(gene, str) and isinstance(terms, Iterable) and not isinstance(terms, str)
        for gene, terms in content.items()
    ):
        raise InputError("does not map genes to terms", file=path, value=type(content).__name__)
    pairs = [(str(term), gene) for gene, terms in content.items() for term in terms]
    return _grouped(pd.Series([term for term, _ in pairs]), pd.Series([gene for _, gene in pairs]), path)


def _grouped(names: pd.Series, genes: pd.Series, path: Path) -> GeneSets:
    pairs = pd.DataFrame({"set": names.to_numpy(), "gene": genes.to_numpy()}, dtype=object)
    pairs = pairs.loc[(pairs["set"] != "") & (pairs["gene"] != "")].drop_duplicates().sort_values(["set", "gene"])
    return _checked({str(name): tuple(rows) for name, rows in pairs.groupby("set", sort=True)["gene"]}, path)


def _checked(sets: dict[str, tuple[str, ...]], path: str | Path) -> GeneSets:
    if not sets:
        raise InputError("holds no gene sets", file=path)
    return FrozenMapping(sets)
