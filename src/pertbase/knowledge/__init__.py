"""What is known of genes beside a screen: gene sets, and signed graphs with the paths in them.

Names are loaded when they are first used: gene sets alone are cheap, and most runs want nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pertbase.errors import no_attribute
from pertbase.knowledge._gene_sets import (
    GeneSets,
    default_gene_sets,
    gene_sets,
    membership,
    read_gene2go,
    read_gmt,
)

if TYPE_CHECKING:
    from pertbase.knowledge._candidates import Candidates, find_candidates
    from pertbase.knowledge._edge_tables import EdgeColumns, read_edge_table
    from pertbase.knowledge._gates import Gate, ks_gate
    from pertbase.knowledge._graph import SignedGraph
    from pertbase.knowledge._indra import fetch_indra_subnetwork, read_indra
    from pertbase.knowledge._named_graphs import graph_names, signed_graph
    from pertbase.knowledge._names import GeneNames, gene_names, read_hgnc
    from pertbase.knowledge._paths import Path, PathFinder, candidate_paths
    from pertbase.knowledge._references import is_reference, reference_text
    from pertbase.knowledge._relevance import Relevance, personalised_pagerank
    from pertbase.knowledge._triplets import RELATIONS, Triplet, relation_sign, relation_word

_HOMES = {
    "Candidates": "_candidates",
    "EdgeColumns": "_edge_tables",
    "Gate": "_gates",
    "GeneNames": "_names",
    "Path": "_paths",
    "PathFinder": "_paths",
    "RELATIONS": "_triplets",
    "Relevance": "_relevance",
    "SignedGraph": "_graph",
    "Triplet": "_triplets",
    "candidate_paths": "_paths",
    "fetch_indra_subnetwork": "_indra",
    "find_candidates": "_candidates",
    "gene_names": "_names",
    "graph_names": "_named_graphs",
    "is_reference": "_references",
    "ks_gate": "_gates",
    "personalised_pagerank": "_relevance",
    "read_edge_table": "_edge_tables",
    "read_hgnc": "_names",
    "read_indra": "_indra",
    "reference_text": "_references",
    "relation_sign": "_triplets",
    "relation_word": "_triplets",
    "signed_graph": "_named_graphs",
}

__all__ = [
    "RELATIONS",
    "Candidates",
    "EdgeColumns",
    "Gate",
    "GeneNames",
    "GeneSets",
    "Path",
    "PathFinder",
    "Relevance",
    "SignedGraph",
    "Triplet",
    "candidate_paths",
    "default_gene_sets",
    "fetch_indra_subnetwork",
    "find_candidates",
    "gene_names",
    "gene_sets",
    "graph_names",
    "is_reference",
    "ks_gate",
    "membership",
    "personalised_pagerank",
    "read_edge_table",
    "read_gene2go",
    "read_gmt",
    "read_hgnc",
    "read_indra",
    "reference_text",
    "relation_sign",
    "relation_word",
    "signed_graph",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"pertbase.knowledge.{_HOMES[name]}"), name)
    raise no_attribute("pertbase.knowledge", name, __all__)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
