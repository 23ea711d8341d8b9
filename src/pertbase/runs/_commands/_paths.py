"""``pertbase paths``: show the candidate paths of one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pertbase.errors import InputError, nearest, unknown_name
from pertbase.folds import FoldMaker, FoldSpec, PathSpec, Perturbation, Screen
from pertbase.folds._make import basal_levels
from pertbase.knowledge import Path as SignedPath
from pertbase.knowledge import SignedGraph
from pertbase.runs._commands._help import options_of
from pertbase.runs._compose import compose, expand, split_override
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf
from pertbase.runs._reports._report import marked

__all__ = ["Shown", "find", "show", "told"]

_ASKED = ("context", "perturbation", "gene")
_NUMBERS = ("hops", "k", "subnetwork")
_TEXTS = ("weight",)
_YAML = ("gate", "shut")
_OUTCOMES = {1: "up", -1: "down"}
_NEAREST = 8


@dataclass(frozen=True, eq=False)
class Shown:
    """One question, what was measured, and its candidate paths.

    Parameters
    ----------
    data, simulated
        The data set.
    context, perturbation, gene
        What is asked.
    question
        Its row with outcome, effect and p-values, or None where it was not measured.
    paths
        Cheapest first.
    gates
        Gate of each node on a path.
    graph, spec
        Where and how they were looked for.
    reached
        Readout genes that paths from this perturbation reach and that were called up or down, strongest first: said
        where the one asked about is not reached.
    """

    data: str
    simulated: bool
    context: str
    perturbation: Perturbation
    gene: str
    question: Mapping[str, Any] | None
    paths: tuple[SignedPath, ...]
    gates: Mapping[str, float]
    graph: SignedGraph
    spec: PathSpec
    reached: tuple[str, ...]


def show(arguments: list[str]) -> int:
    """Print the candidate paths of a question, and draw them where ``output=FILE.svg`` is given."""
    from pertbase.cli import _config_dirs

    rest, folders = _config_dirs(arguments)
    own, overrides = {}, []
    for text in rest:
        key, value = split_override(text)
        if key.partition(".")[0] == "data":
            overrides.append(text)
        elif key in options_of("paths show"):
            own[key] = value
        else:
            raise unknown_name("option", key, options_of("paths show"))
    for key in _ASKED:
        if not own.get(key):
            raise InputError(
                "is missing", key=key, remedy="write: pertbase paths show context=.. perturbation=.. gene=.."
            )
    output = Path(own["output"]) if "output" in own else None
    if output is not None and output.suffix != ".svg":
        raise InputError("paths are drawn as .svg", key="output", value=str(output))
    names = Names(tuple(folders))
    names.make_importable()
    (job,) = expand(overrides, names, multirun=False)
    maker = DataShelf().maker(compose(job, names)["data"])
    shown = find(maker, _spec(own), context=own["context"], perturbation=own["perturbation"], gene=own["gene"])
    print("\n".join(told(shown)))
    if output is not None:
        from pertbase._io import write_text
        from pertbase.runs._reports._page._path_picture import path_picture

        write_text(output, path_picture(shown))
        print(f"drawn in {output}")
    return 0


def find(maker: FoldMaker, spec: PathSpec, *, context: str, perturbation: str, gene: str) -> Shown:
    """Return the candidate paths of one question of a data set, beside what was measured.

    Parameters
    ----------
    maker
        Of the data set.
    spec
        How paths are chosen; ``ks`` gates are fitted to all that was measured, there being no split here.
    context, perturbation, gene
        What is asked. A perturbation is named in full, or by its targets or compound where one alone is so called.

    Raises
    ------
    InputError
        Where the data set has no such context or perturbation, or a gene is neither measured nor in the graph.
    UnsupportedError
        Where there is no graph.
    """
    from pertbase.knowledge._candidates import find_candidates, nothing_left
    from pertbase.knowledge._gates import chosen_gate, node_gates

    graph = maker.graph(spec, key="graph")
    if context not in maker.data.contexts:
        raise unknown_name("context", context, maker.data.contexts)
    chosen = _named(perturbation, maker.data.perturbations)
    labelled = maker.labelled(maker.expand(FoldSpec(kind="published"))[0])
    if gene not in labelled.genes and graph.locate([gene])[0] < 0:
        raise _unknown("gene", gene, [str(name) for name in labelled.genes])
    basal = basal_levels(labelled, maker.data) if isinstance(maker.data, Screen) else None
    measured = labelled.questions
    gate = chosen_gate(spec.gate, basal, labelled.seen_questions.assign(split="train"), matched=spec.matched)
    options: dict[str, Any] = {name: getattr(spec, name) for name in ("hops", "k", "weight", "subnetwork", "shut")}
    options.update(gate=gate, basal=basal)
    asked = pd.DataFrame({"context": [context], "perturbation": [chosen.name], "gene": [gene]})
    found = find_candidates(asked, {chosen.name: chosen}, graph, **options)
    here = measured.loc[(measured["context"] == context) & (measured["perturbation"] == chosen.name)]
    row = here.loc[here["gene"] == gene]
    reached: tuple[str, ...] = ()
    if not len(found):
        called = here.loc[here["outcome"].isin(tuple(_OUTCOMES.values()))].reset_index(drop=True)
        others = find_candidates(called, {chosen.name: chosen}, graph, **options)
        strength = -called["effect"].abs().to_numpy() if "effect" in called else np.zeros(len(called))
        order = [row for row in np.argsort(strength, kind="stable") if others.offsets[row] < others.offsets[row + 1]]
        reached = tuple(f"{called['gene'][row]} {called['outcome'][row]}" for row in order[:_NEAREST])
    paths = tuple(found.paths(0))
    levels = node_gates(graph, None if basal is None else basal.loc[context], gate)
    for target, place in zip(chosen.targets, graph.locate(chosen.targets), strict=True):
        if place >= 0 and not nothing_left(chosen, target, levels[place]):
            levels[place] = 1.0
    on_paths = sorted({name for path in paths for name in path.nodes})
    return Shown(
        data=labelled.name,
        simulated=labelled.simulated,
        context=context,
        perturbation=chosen,
        gene=gene,
        question=None if row.empty else row.iloc[0].to_dict(),
        paths=paths,
        gates=dict(zip(on_paths, levels[graph.nodes.get_indexer(on_paths)].tolist(), strict=True)),
        graph=graph,
        spec=spec,
        reached=reached,
    )


def told(shown: Shown) -> list[str]:
    """Return a question, what was measured and its paths as lines of text."""
    spec = shown.spec
    lines = [
        f"{marked(shown.data, simulated=shown.simulated)}, {shown.context}: {shown.perturbation.name} and {shown.gene}",
        f"measured: {_measured(shown.question)}",
        f"looked for in {shown.graph.name}, {len(shown.graph):,} edges: hops {spec.hops}, weight {spec.weight}, gate "
        + (spec.gate if isinstance(spec.gate, str) else "from {:g} to {:g}".format(*spec.gate))
        + (", shut below one half" if spec.shut else ""),
    ]
    outcome = None if shown.question is None else shown.question["outcome"]
    width = max((len(str(path)) for path in shown.paths), default=0)
    for number, path in enumerate(shown.paths, start=1):
        gates = " ".join(f"{shown.gates[name]:.2f}" for name in path.nodes)
        lines.append(
            f"{number:>3}  {path!s:<{width}}  {_says(path.sign, outcome):<24} weight {path.weight:.3g}, gates {gates}"
        )
    if not shown.paths:
        lines += _unreached(shown)
    elif {1, -1} <= {path.sign for path in shown.paths}:
        lines.append("the paths say both: whatever is measured finds one that agrees")
    return lines


def _measured(question: Mapping[str, Any] | None) -> str:
    if question is None:
        return "nothing"
    outcome = question["outcome"] if isinstance(question["outcome"], str) else "between up or down and no_change"
    numbers = [
        f"{label} {question[key]:.3g}"
        for key, label in (("effect", "effect"), ("p_adjusted", "adjusted p"))
        if key in question and question[key] == question[key]
    ]
    return outcome + (f" ({', '.join(numbers)})" if numbers else "")


def _says(sign: int, outcome: Any) -> str:
    if sign == 0:
        return "does not say"
    said = f"says {_OUTCOMES[sign]}"
    if outcome not in _OUTCOMES.values():
        return said
    return f"{said}, {'as' if _OUTCOMES[sign] == outcome else 'unlike what was'} measured"


def _unreached(shown: Shown) -> list[str]:
    graph = shown.graph
    targets = list(shown.perturbation.signs)
    places, end = graph.locate(targets), int(graph.locate([shown.gene])[0])
    degrees = graph.degrees
    absent = [name for name, place in zip(targets, places, strict=True) if place < 0]
    if len(absent) == len(targets):
        why = f"the graph has none of the targets ({', '.join(targets) or 'none is known'})"
    elif end < 0:
        why = f"the graph does not have {shown.gene}"
    elif degrees["in"].iloc[end] == 0:
        why = f"nothing in the graph acts on {shown.gene}"
    else:
        why = f"no path of at most {shown.spec.hops} hops leads there"
    lines = [f"no path: {why}"]
    if shown.reached:
        lines.append(f"reached from there, and measured: {', '.join(shown.reached)}")
    return lines


def _named(name: str, known: Mapping[str, Perturbation]) -> Perturbation:
    if name in known:
        return known[name]
    chosen = [item for item in known.values() if "+".join(part.label for part in item.parts) == name]
    chosen = chosen or [item for item in known.values() if "+".join(item.compounds or item.targets) == name]
    if len(chosen) > 1:
        raise InputError(
            "several perturbations are called so",
            key="perturbation",
            value=name,
            remedy=f"name one: {', '.join(sorted(item.name for item in chosen)[:10])}",
        )
    if not chosen:
        raise _unknown("perturbation", name, [*known, *("+".join(item.targets) for item in known.values())])
    return chosen[0]


def _unknown(kind: str, name: str, known: Sequence[str]) -> InputError:
    """Return the error for a name that is not among thousands: the nearest, and not all of them."""
    close = nearest(name, known)
    remedy = f"did you mean {close!r}?" if close else f"it has {', '.join(sorted(known)[:5])}, ..."
    return InputError(f"the data set has no such {kind}", key=kind, value=name, remedy=remedy)


def _spec(own: Mapping[str, str]) -> PathSpec:
    options: dict[str, Any] = {key: own[key] for key in _TEXTS if key in own}
    for key in _NUMBERS:
        if key in own:
            if not own[key].isdigit():
                raise InputError("is a whole number", key=key, value=own[key])
            options[key] = int(own[key])
    options |= {key: _understood(key, own[key]) for key in _YAML if key in own}
    if "graph" in own:
        options["graph"] = _graphs(own["graph"])
    return PathSpec(**options)


def _graphs(text: str) -> Any:
    """Return what ``graph=`` means: names or files with commas between, or YAML that begins with a bracket or brace."""
    if not text.startswith(("[", "{")):
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        return names[0] if len(names) == 1 else names
    remedy = 'name graphs or files with commas between, or quote "graph={path: FILE, columns: {source: NAME}}"'
    return _understood("graph", text, remedy)


def _understood(key: str, text: str, remedy: str | None = None) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("cannot be understood", key=key, value=text, remedy=remedy) from error
