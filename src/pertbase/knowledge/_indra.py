"""INDRA's statements as edges, from a file or from its subnetwork service."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, PertbaseError
from pertbase.knowledge._graph import SignedGraph
from pertbase.knowledge._triplets import relation_sign

__all__ = ["SERVICE", "fetch_indra_subnetwork", "read_indra"]

SERVICE = "https://discovery.indra.bio/api/indra_subnetwork_relations"

_ROLES = (("subj", "obj"), ("enz", "sub"), ("gef", "ras"), ("ras", "gap"))
"""Which fields of a statement act and are acted on. A GAP lowers the Ras it acts on, a GEF raises it."""
_SIGNS = {"Gef": 1, "Gap": -1}


def read_indra(path: str | Path, *, name: str | None = None, licence: str = "") -> SignedGraph:
    """Return the graph of a JSON file of INDRA statements, a list of them; gzipped or not.

    ``Activation`` and ``IncreaseAmount`` raise, ``Inhibition`` and ``DecreaseAmount`` lower, ``Gef`` raises and ``Gap``
    lowers its Ras; modifications such as ``Phosphorylation`` act with sign 0. Statements without a direction
    (``Complex``) or with one agent are left out, and counted. An agent is named as INDRA names it: by its gene symbol
    where it is a gene, by the name of the family, the drug or the process where it is not. Evidence is the length of
    ``evidence``, or ``evidence_count``.

    Raises
    ------
    InputError
        Where the file is absent or no JSON list of statements, or a statement has no type.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such file", file=path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as lines:
            statements = json.load(lines)
    except (OSError, UnicodeDecodeError, EOFError, json.JSONDecodeError) as error:
        raise InputError(f"is not JSON ({error})", file=path) from error
    return _graph(statements, name or path.name.partition(".")[0], licence, str(path))


def fetch_indra_subnetwork(
    nodes: Iterable[tuple[str, str]], *, url: str = SERVICE, timeout: float = 60.0, name: str = "indra"
) -> SignedGraph:
    """Return the graph of what INDRA's service knows between some genes. Needs a network.

    The address and the shape of what it returns are as its clients use them; they were not tried when this was
    written.

    Parameters
    ----------
    nodes
        (namespace, identifier) of each, such as ``("HGNC", "1097")``.
    url, timeout
        The service's address, and seconds to wait for it.
    name
        Of the graph.

    Raises
    ------
    InputError
        Where what it returns is no list of relations.
    PertbaseError
        Where it cannot be reached.
    """
    body = json.dumps({"nodes": [[str(space), str(key)] for space, key in nodes]}).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            relations = json.load(response)
    except (OSError, json.JSONDecodeError) as error:
        raise PertbaseError(
            f"INDRA's service gave no answer ({error})",
            key="url",
            value=url,
            remedy="check the network, or read statements from a file",
        ) from error
    if not isinstance(relations, list):
        raise InputError("is not a list of relations", file=url, value=type(relations).__name__)
    return _graph([_statement(relation, url) for relation in relations], name, "CC BY 4.0 and its sources' terms", url)


def _statement(relation: Any, url: str) -> Any:
    """Return the statement in a relation of the service, with its number of pieces of evidence."""
    about = relation.get("data", relation) if isinstance(relation, Mapping) else relation
    if not isinstance(about, Mapping) or "stmt_json" not in about:
        return about
    held = about["stmt_json"]
    try:
        statement = json.loads(held) if isinstance(held, str) else held
    except json.JSONDecodeError as error:
        raise InputError(f"a relation holds no statement ({error})", file=url, value=held) from error
    return {**statement, "evidence_count": about.get("evidence_count", 0)}


def _graph(statements: Any, name: str, licence: str, file: str) -> SignedGraph:
    if isinstance(statements, Mapping) and "statements" in statements:
        statements = statements["statements"]
        statements = list(statements.values()) if isinstance(statements, Mapping) else statements
    if not isinstance(statements, Sequence) or isinstance(statements, str):
        raise InputError("is not a list of statements", file=file, value=type(statements).__name__)
    counts: Counter[str] = Counter({"undirected": 0, "one_agent": 0})
    rows = []
    for number, statement in enumerate(statements, start=1):
        if not isinstance(statement, Mapping) or not isinstance(statement.get("type"), str):
            raise InputError("is not a statement", file=file, key=f"statement {number}", value=statement)
        kind = str(statement["type"])
        if "members" in statement:
            counts["undirected"] += 1
            continue
        ends = next(((statement[a], statement[b]) for a, b in _ROLES if a in statement and b in statement), None)
        names = None if ends is None else tuple(_name(agent) for agent in ends)
        if names is None or not all(names):
            counts["one_agent"] += 1
            continue
        source, target = names[::-1] if kind == "Gap" else names
        sign = _SIGNS.get(kind, relation_sign(kind))
        rows.append((source, target, sign or 0, _evidence(statement), _sources(statement, name)))
    if not rows:
        raise InputError("holds no statement with a direction", file=file, value=len(statements))
    table = pd.DataFrame(rows, columns=["source", "target", "sign", "evidence", "sources"])
    return SignedGraph.from_edges(table, name=name, licence=licence, counts=counts, file=file)


def _name(agent: Any) -> str:
    return str(agent.get("name", "")).strip() if isinstance(agent, Mapping) else ""


def _evidence(statement: Mapping[str, Any]) -> int:
    listed = statement.get("evidence")
    return max(len(listed) if isinstance(listed, list) else 0, int(statement.get("evidence_count") or 0), 1)


def _sources(statement: Mapping[str, Any], name: str) -> str:
    listed = statement.get("evidence")
    found = {
        str(item["source_api"])
        for item in (listed if isinstance(listed, list) else [])
        if isinstance(item, Mapping) and item.get("source_api")
    }
    return ";".join(sorted(found)) or name
