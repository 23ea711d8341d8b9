"""Graphs by name: ``conf/graph/NAME.yaml`` says where one comes from; or a file, or several of either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from pertbase.errors import InputError, unknown_name
from pertbase.knowledge._edge_tables import read_edge_table
from pertbase.knowledge._graph import SignedGraph
from pertbase.knowledge._indra import read_indra

__all__ = ["GraphSource", "graph_names", "signed_graph"]

GraphSource = str | Path | Mapping[str, Any] | SignedGraph | Sequence[Any]
"""A name, a file, a mapping ``{path: FILE, columns: {...}}``, a graph, or several of these."""

_OPTIONS = ("path", "name", "columns", "signs", "families", "licence", "source", "citation", "url", "checksum", "size")


def graph_names() -> list[str]:
    """Return the names that ``graph=`` takes, sorted."""
    return sorted(
        item.name.removesuffix(".yaml")
        for item in files("pertbase.conf").joinpath("graph").iterdir()
        if item.name.endswith(".yaml")
    )


def signed_graph(source: GraphSource) -> SignedGraph:
    """Return the graph that a name, a file, or several of them mean.

    Parameters
    ----------
    source
        One of :func:`graph_names`; a table of edges or a ``.json`` of INDRA statements, found as data files are
        (``PERTBASE_DATA``); a mapping with ``path`` and the options of :func:`read_edge_table`; or a list of these,
        which are merged. A graph is returned as it is.

    Raises
    ------
    InputError
        Where a name or option is unknown, or a file is absent or cannot be read.
    PertbaseError
        Where a named file is nowhere and cannot be fetched.
    """
    if isinstance(source, SignedGraph):
        return source
    if isinstance(source, Mapping):
        return _configured(dict(source))
    if isinstance(source, (str, Path)):
        name = str(source)
        names = graph_names()
        if name in names:
            text = files("pertbase.conf").joinpath("graph", f"{name}.yaml").read_text(encoding="utf-8")
            return _configured({"name": name, **yaml.safe_load(text)})
        if "/" not in name and not Path(name).suffix and not Path(name).exists():
            raise unknown_name("graph", name, [*names, "a file of edges"])
        return _configured({"path": name})
    if isinstance(source, Sequence) and source:
        return SignedGraph.merged([signed_graph(item) for item in source])
    raise InputError(
        "is no graph", key="graph", value=source, remedy=f"name one of {', '.join(graph_names())}, or a file of edges"
    )


def _configured(options: dict[str, Any]) -> SignedGraph:
    from pertbase.folds._data import find_data, find_or_fetch
    from pertbase.folds._download import Origin, origin_record, verify

    for key in options:
        if key not in _OPTIONS:
            raise unknown_name("graph option", str(key), _OPTIONS)
    if not options.get("path"):
        raise InputError("has to be given", key="graph.path", value=options.get("path"), remedy="name a file of edges")
    taken = {key: options.pop(key, None) for key in ("path", "source", "citation", "url", "checksum", "size")}
    licence = str(options.get("licence") or "")
    origin = Origin.of(
        url=taken["url"] or "",
        checksum=taken["checksum"],
        size=taken["size"],
        licence=licence,
        citation=taken["citation"] or "",
    )
    try:
        path = find_data(taken["path"], source=taken["source"] or "", licence=licence)
    except InputError:
        if not origin.url:
            raise
        path = find_or_fetch(taken["path"], origin)
    else:
        # A copy laid by hand is taken as it is; one that was fetched has to be what it was then.
        if origin.checksum or origin_record(path):
            verify(path, origin)
    if ".json" in path.suffixes:
        unused = [key for key in ("columns", "signs", "families") if options.get(key)]
        if unused:
            raise InputError("says how tables are read, and this is none", file=path, key=unused[0])
        return read_indra(path, name=options.get("name"), licence=licence)
    return read_edge_table(path, **{key: value for key, value in options.items() if value is not None})
