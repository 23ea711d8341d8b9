"""Paths laid over a fold: candidates, references and their text, beside the questions and under a hash of their own.

A fold is the same fold with paths or without: questions, ids, splits and the fold's hash do not know of them. So a
model that is given paths and one that is not are scored on the same questions, and several ways to choose paths lie
side by side in one folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._io import (
    canonical_json,
    read_parquet,
    read_yaml,
    sha256_text,
    write_aside,
    write_folder_aside,
    write_yaml,
)
from pertbase.errors import InputError, unknown_name
from pertbase.folds._path_spec import PathSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from pertbase.folds._perturbation import Perturbation
    from pertbase.knowledge import SignedGraph
    from pertbase.knowledge._candidates import Candidates

__all__ = ["PATH_COLUMNS", "PathLayer", "lay_paths", "layer_hash", "layer_problems", "path_folders", "read_paths"]

PATH_COLUMNS = ("candidate_paths", "conflict", "reference_paths", "reference_text")
FORMAT = 1
_ROWS = 10_000
"""Hashed at once, wherever files and tables part theirs."""
_MANIFEST = ("fold_hash", "hash", "spec", "graph", "gate", "content")


@dataclass(frozen=True, eq=False, repr=False)
class PathLayer:
    """The paths of a fold's questions.

    Parameters
    ----------
    spec
        How they were chosen.
    fold_hash
        Of the fold they belong to.
    graph
        Whose edges they are made of.
    gate
        How basal expression was taken into account: ``kind``, and ``low``, ``high``, ``gap``, ``reason`` where there
        is a gate.
    table
        ``id`` and :data:`PATH_COLUMNS`; a path is a list of [head, relation, tail].
    """

    spec: PathSpec
    fold_hash: str
    graph: SignedGraph
    gate: Mapping[str, Any]
    table: pa.Table
    _row: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        ids = self.table.column("id").to_pylist()
        object.__setattr__(self, "_row", {name: row for row, name in enumerate(ids)})

    @cached_property
    def hash(self) -> str:
        """Of the fold, the graph's edges and the options: what the paths follow from, but for the labels."""
        return layer_hash(self.spec, self.graph, self.fold_hash)

    @property
    def options(self) -> dict[str, Any]:
        """How the candidates were found, as ``find_candidates`` takes it: what another context is looked at with."""
        from pertbase.knowledge._gates import Gate

        chosen = {name: getattr(self.spec, name) for name in ("hops", "k", "weight", "subnetwork", "shut")}
        return {**chosen, "gate": None if self.gate["kind"] == "none" else Gate(**self.gate)}

    @property
    def name(self) -> str:
        """The name of its folder, within the fold's."""
        return f"paths-{self.hash[:12]}"

    def join(self, questions: pd.DataFrame) -> pd.DataFrame:
        """Return questions with the columns of their paths; columns of the same names that they had go.

        Raises
        ------
        InputError
            Where a question has none here.
        """
        rows = [self._row.get(name, -1) for name in questions["id"]]
        if -1 in rows:
            missing = questions["id"].iloc[rows.index(-1)]
            raise InputError("a question has no paths in this layer", file=self.name, key="id", value=missing)
        taken = self.table.take(rows)
        made = questions.drop(columns=[name for name in PATH_COLUMNS if name in questions.columns])
        return made.assign(
            **{
                name: pd.Series(taken.column(name).to_pylist(), index=questions.index, dtype=_dtype(name))
                for name in PATH_COLUMNS
            }
        )

    @property
    def content(self) -> str:
        """SHA-256 of every row, as it is read back."""
        digest = hashlib.sha256()
        columns = self.table.select(["id", *PATH_COLUMNS])
        for start in range(0, len(columns), _ROWS):
            digest.update(canonical_json(columns.slice(start, _ROWS).to_pylist()).encode())
        return digest.hexdigest()

    def write(self, folder: str | Path) -> Path:
        """Write it into a fold's folder, whole or not at all, and return its own folder."""
        import pyarrow.parquet as pq

        place = Path(folder) / self.name
        with write_folder_aside(place, replace=True) as aside:
            with write_aside(aside / "questions.parquet") as temporary:
                pq.write_table(self.table, temporary)
            with write_aside(aside / "graph.parquet") as temporary:
                self.graph.edges.to_parquet(temporary, index=False)
            about = {
                "format": FORMAT,
                "fold_hash": self.fold_hash,
                "hash": self.hash,
                "spec": self.spec.to_dict(),
                "graph": {**_plain(self.graph.meta), "hash": self.graph.hash},
                "gate": dict(self.gate),
                "content": self.content,
            }
            # Last: a folder with paths.yaml is whole.
            write_yaml(aside / "paths.yaml", about)
        return place

    @property
    def found(self) -> int:
        """How many questions have a candidate path."""
        lengths = self.table.column("candidate_paths").combine_chunks().value_lengths().to_numpy(zero_copy_only=False)
        return int((lengths > 0).sum())

    def __repr__(self) -> str:
        found = self.table.column("candidate_paths").combine_chunks().value_lengths().to_numpy(zero_copy_only=False)
        return (
            f"PathLayer {self.hash[:12]}: {int((found > 0).sum()):,} of {len(found):,} questions have candidates, "
            f"{int(found.sum()):,} paths of at most {self.spec.hops} hops in {self.graph.name}"
        )


def layer_hash(spec: PathSpec, graph: SignedGraph, fold_hash: str) -> str:
    """Return the hash of a layer: of the fold, the graph's edges and the options, whatever the graph is called."""
    options = {key: value for key, value in spec.to_dict().items() if key != "graph"}
    return sha256_text(
        canonical_json({"format": FORMAT, "fold": fold_hash, "graph": graph.hash, "graph_name": graph.name, **options})
    )


def lay_paths(
    questions: pd.DataFrame,
    perturbations: Mapping[str, Perturbation],
    spec: PathSpec,
    graph: SignedGraph,
    *,
    fold_hash: str,
    basal: pd.DataFrame | None = None,
) -> PathLayer:
    """Return the paths of a fold's questions.

    Candidates follow from context, perturbation, readout gene, graph and basal expression alone, but where
    ``gate`` is ``ks``; references from candidates and outcomes.

    Parameters
    ----------
    questions
        The fold's, with outcomes.
    perturbations
        Name -> perturbation.
    spec, graph
        How, and where, paths are looked for.
    fold_hash
        The fold's.
    basal
        Mean log1p of input controls, contexts x genes; None where nothing was measured: then there is no gate.
    """
    from pertbase.knowledge._candidates import find_candidates
    from pertbase.knowledge._gates import chosen_gate

    gate = chosen_gate(spec.gate, basal, questions, matched=spec.matched)
    found = find_candidates(
        questions,
        perturbations,
        graph,
        hops=spec.hops,
        k=spec.k,
        weight=spec.weight,
        gate=gate,
        basal=basal,
        subnetwork=spec.subnetwork,
        shut=spec.shut,
    )
    about = {"kind": "none"} if gate is None else {key: value for key, value in asdict(gate).items() if value == value}
    return PathLayer(spec, fold_hash, graph, about, _table(questions, found, spec))


def _table(questions: pd.DataFrame, found: Candidates, spec: PathSpec) -> pa.Table:
    import pyarrow as pa

    from pertbase.knowledge._references import is_reference, reference_text

    outcomes = [None if pd.isna(outcome) else str(outcome) for outcome in questions["outcome"]]
    reference = is_reference(found, outcomes, no_change=spec.no_change)
    has = np.bincount(found.question[reference], minlength=len(questions)) > 0
    names, genes = questions["perturbation"].astype(str).to_numpy(), questions["gene"].astype(str).to_numpy()
    texts = [""] * len(questions)
    for row in np.flatnonzero(has):
        kept = reference[found.offsets[row] : found.offsets[row + 1]]
        chosen = [path for path, keep in zip(found.paths(int(row)), kept, strict=True) if keep]
        texts[row] = reference_text(names[row], genes[row], outcomes[row], chosen)
    every = np.ones(len(found), dtype=bool)
    return pa.table(
        {
            "id": pa.array(questions["id"].astype(str).tolist(), pa.string()),
            "candidate_paths": _nested(found, every),
            "conflict": pa.array(found.conflict),
            "reference_paths": _nested(found, reference),
            "reference_text": pa.array(texts, pa.string()),
        }
    )


def _nested(found: Candidates, keep: np.ndarray) -> pa.Array:
    """Return list<list<list<string>>>, a list of paths a question, without making Python lists of millions of edges."""
    import pyarrow as pa

    from pertbase.knowledge._triplets import relation_word

    graph = found.graph
    edges = found.edges[keep]
    flat = edges[edges >= 0]
    words = np.array([relation_word(sign) for sign in (-1, 0, 1)], dtype=object)
    nodes = graph.nodes.to_numpy()
    parts = np.empty((len(flat), 3), dtype=object)
    parts[:, 0], parts[:, 2] = nodes[graph.source[flat]], nodes[graph.target[flat]]
    parts[:, 1] = words[graph.sign[flat].astype(np.int64) + 1]
    triplets = _listed(pa.array(parts.ravel(), pa.string()), np.full(len(flat), 3))
    paths = _listed(triplets, (edges >= 0).sum(axis=1))
    return _listed(paths, np.bincount(found.question[keep], minlength=len(found.offsets) - 1))


def _listed(values: pa.Array, lengths: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), values)


# -- reading ------------------------------------------------------------------------------------------------


def path_folders(folder: str | Path) -> list[Path]:
    """Return the folders of paths within a fold's folder, sorted by name."""
    return sorted(place.parent for place in Path(folder).glob("paths-*/paths.yaml"))


def read_paths(folder: str | Path, *, name: str | None = None) -> PathLayer | None:
    """Return the paths laid over a fold; None where there are none and none are named.

    Parameters
    ----------
    folder
        The fold's.
    name
        The layer's folder or the beginning of its hash; where not given, there is one at most.

    Raises
    ------
    InputError
        Where there are several and none is named, the named one is absent, or a file cannot be read.
    """
    found = path_folders(folder)
    if name is not None:
        chosen = [place for place in found if place.name.removeprefix("paths-").startswith(name.removeprefix("paths-"))]
        if len(chosen) != 1:
            raise unknown_name("paths", name, [place.name for place in found], file=folder)
        return _read(chosen[0])
    if len(found) > 1:
        raise InputError(
            "there are several ways to choose paths here",
            file=folder,
            key="paths",
            value=[place.name for place in found],
            remedy="name one: paths=HASH",
        )
    return _read(found[0]) if found else None


def _read(place: Path) -> PathLayer:
    import pyarrow.parquet as pq

    from pertbase.knowledge import SignedGraph

    again = "remove the folder, and make it again with `pertbase folds make paths=...`"
    about = read_yaml(place / "paths.yaml")
    missing = [key for key in _MANIFEST if key not in about] if isinstance(about, dict) else list(_MANIFEST)
    if missing or about.get("format") != FORMAT:
        raise InputError("is not of this format", file=place / "paths.yaml", key=", ".join(missing), remedy=again)
    edges = read_parquet(place / "graph.parquet", remedy=again)
    read_parquet(place / "questions.parquet", remedy=again)
    spec = PathSpec.of(about["spec"])
    graph = SignedGraph.stored(edges, meta=about["graph"])
    layer = PathLayer(
        spec or PathSpec(), about["fold_hash"], graph, about["gate"], pq.read_table(place / "questions.parquet")
    )
    if layer.hash != about["hash"] or graph.hash != about["graph"]["hash"]:
        raise InputError("the graph is not the one that was written", file=place / "graph.parquet", remedy=again)
    return layer


def layer_problems(folder: str | Path, questions: pd.DataFrame, fold_hash: str) -> Iterable[str]:
    """Yield what is wrong with the paths laid over a fold: contents, questions, references."""
    from pertbase.knowledge import relation_sign

    outcomes = questions.set_index("id")["outcome"]
    for place in path_folders(folder):
        about, layer = read_yaml(place / "paths.yaml"), _read(place)
        if layer.content != about["content"]:
            yield f"{place.name}/questions.parquet is not what paths.yaml says was written"
        if layer.fold_hash != fold_hash or set(layer._row) != set(outcomes.index):
            yield f"{place.name} belongs to another fold"
            continue
        for row in layer.table.to_pylist():
            strange = [path for path in row["reference_paths"] if path not in row["candidate_paths"]]
            if strange or (row["reference_paths"] and pd.isna(outcomes[row["id"]])):
                yield f"{place.name}: question {row['id']} has a reference that is no candidate, or no outcome"
                break
            if any(relation_sign(edge[1]) is None for path in row["candidate_paths"] for edge in path):
                yield f"{place.name}: question {row['id']} has a relation that is not known"
                break


def _dtype(name: str) -> str:
    return "bool" if name == "conflict" else "object"


def _plain(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in meta.items()}
