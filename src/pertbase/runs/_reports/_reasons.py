"""Reasons in runs: what they are scored with, and the tables that show it.

No reasoning number is shown alone: in every table stand its excess over the nulls and the control answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pertbase._io import write_aside
from pertbase.errors import InputError
from pertbase.folds._certificate import MINIMUM_OF_A_CLASS
from pertbase.folds._path_layer import path_folders, read_paths
from pertbase.runs._laid import paths_told
from pertbase.runs._reports._report import FoldTable, Report, marked
from pertbase.runs._reports._section import MISSING, Section, render
from pertbase.runs._reports._terms import APART_NOTES, REASON_NOTES

if TYPE_CHECKING:
    from pertbase.folds import Answers, Fold, Truth
    from pertbase.knowledge import GeneNames, GeneSets, SignedGraph
    from pertbase.runs._reports._shown import Shown
    from pertbase.scorers import ReasonScores

__all__ = [
    "Knowledge",
    "fold_sections",
    "reason_sections",
    "run_sections",
    "score_given",
    "score_reasons",
    "write_reason_records",
]

CONTROL = "control: "
_SCORES = {
    "f1": "F1", "precision": "precision", "edge_recall": "edge recall", "best_path": "best path",
    "connected": "connected", "on_path": "on path", "consistent": "consistent", "grounded_graph": "in graph",
    "grounded_prompt": "in prompt", "go_union": "GO union", "go_weighted": "GO weighted", "go_best_match": "GO match",
}  # fmt: skip
_EXCESS = {"labels": "F1 over labels", "rewired": "F1 over rewired", "contexts": "F1 over contexts"}
_AXES = {"right_answer": "answer right", "right_reason": "reason right", "consistent": "reason agrees"}
# What a narrow terminal does without.
_OPTIONAL = ("GO union", "GO weighted", "best path", "on path", "in prompt")


@dataclass(frozen=True)
class Knowledge:
    """What reasons are scored with.

    Parameters
    ----------
    graph
        Of the fold's paths; None where it has none.
    gene_sets
        The data set's own, or public ones.
    names
        What brings names to symbols.
    sets_from
        Where the gene sets come from.
    """

    graph: SignedGraph | None
    gene_sets: GeneSets | None
    names: GeneNames
    sets_from: str

    @classmethod
    def of_fold(cls, fold: Fold) -> Knowledge:
        """Return what belongs to a fold whose data set is at hand."""
        own = None if fold.screen is None else fold.screen.gene_sets
        sets, sets_from = _sets(None, own)
        return cls(None if fold.paths is None else fold.paths.graph, sets, _names(None), sets_from)

    @classmethod
    def of_folder(cls, folder: str | Path, options: Mapping[str, str], own: GeneSets | None = None) -> Knowledge:
        """Return what belongs to a fold's folder, or what ``graph``, ``gene_sets`` and ``names`` say in its place.

        ``own`` are the gene sets of its data set, where that is at hand.
        """
        from pertbase.knowledge import signed_graph

        graph: SignedGraph | None = None
        if "graph" in options:
            graph = signed_graph(options["graph"].split(","))
        elif "paths" in options or len(path_folders(folder)) == 1:
            layer = read_paths(folder, name=options.get("paths"))
            graph = None if layer is None else layer.graph
        sets, sets_from = _sets(options.get("gene_sets"), own)
        return cls(graph, sets, _names(options.get("names")), sets_from)

    def describe(self) -> dict[str, str | None]:
        """Return what it is, to be kept beside the scores."""
        return {
            "graph": None if self.graph is None else self.graph.name,
            "graph_hash": None if self.graph is None else self.graph.hash,
            "gene_sets": self.sets_from,
            "names": self.names.source or None,
            "names_sha256": self.names.sha256 or None,
        }


def _sets(source: str | None, own: GeneSets | None) -> tuple[GeneSets, str]:
    """Return the gene sets that are named, else the data set's own, else public ones; and which these are."""
    from pertbase.knowledge import gene_sets
    from pertbase.knowledge._gene_sets import DEFAULT

    if source is None and own is not None:
        return own, "the data set's own"
    return gene_sets(source or DEFAULT), source or DEFAULT


def _names(source: str | None) -> GeneNames:
    """Return the names of a file, or of an installed package."""
    from pertbase.knowledge import gene_names

    return gene_names(source)


def score_reasons(
    answers: Answers, truth: Truth, knowledge: Knowledge, *, preset: str = "axes", shown: Shown | None = None
) -> ReasonScores | None:
    """Return the scores of the reasons of answers; None where there are no reasons, or no references for them.

    ``shown`` are the paths that a model was shown, where it was not the fold's own candidates.
    """
    from pertbase.scorers import reasoning

    if answers.reasons is None or "reference_paths" not in truth.questions.columns:
        return None
    return reasoning(
        answers,
        truth,
        graph=knowledge.graph,
        gene_sets=knowledge.gene_sets,
        names=knowledge.names,
        preset=preset,
        shown=shown,
    )


def score_given(
    answers: Answers, truth: Truth, options: Mapping[str, str], own: GeneSets | None = None
) -> dict[str, Any] | None:
    """Score and print the reasons of somebody's answers, and return what is written; say why where they cannot be.

    Parameters
    ----------
    answers, truth
        As for :func:`score_reasons`.
    options
        Of ``pertbase score``: ``fold_dir``, and ``paths``, ``graph``, ``gene_sets``, ``names``, ``preset`` and
        ``records`` (where the scores of every question go, .parquet or .csv).
    own
        The gene sets of the data set, where it is at hand.
    """
    from pertbase.cli import _terminal_width

    if answers.reasons is None:
        return None
    if "reference_paths" not in truth.questions.columns:
        print(
            "reasons are not scored: the fold has no reference paths, or has them in several ways; add some with "
            "`pertbase folds make ... paths=own`, or name them with paths=HASH"
        )
        return None
    knowledge = Knowledge.of_folder(options["fold_dir"], options, own)
    scores = score_reasons(answers, truth, knowledge, preset=options.get("preset", "axes"))
    if scores is None:
        return None
    name = Path(options["answers"]).stem
    title = marked(truth.name, simulated=truth.simulated)
    print(render(reason_sections(title, {name: scores.to_dict()}), "terminal", width=_terminal_width()))
    if "records" in options:
        write_reason_records(scores.records, Path(options["records"]))
    return {**scores.to_dict(), "knowledge": knowledge.describe()}


def write_reason_records(records: pd.DataFrame, path: Path) -> None:
    """Write the scores of every question, and why its reason is not right, as Parquet or CSV."""
    if path.suffix not in (".parquet", ".csv"):
        raise InputError("is written as .parquet or .csv", file=path, key="records", value=path.suffix)
    with write_aside(path) as temporary:
        if path.suffix == ".csv":
            records.to_csv(temporary, index=False)
        else:
            records.to_parquet(temporary, index=False)


# -- tables -------------------------------------------------------------------------------------------------


def run_sections(report: Report, adapter: str) -> list[Section]:
    """Return the tables of the reasons of a report's runs: none where no run has any."""
    return [section for table in report.folds for section in fold_sections(table, adapter)]


def fold_sections(table: FoldTable, adapter: str) -> list[Section]:
    """Return the tables of the reasons of one fold's runs: none where no run has any."""
    main = table.main_adapter(adapter)
    # References, nulls and controls are those of the paths that a run was given: others stand in tables of their own.
    ways: dict[str, dict[str, Any]] = {}
    for run, told in zip(table.runs, paths_told(table.runs), strict=True):
        found = run.scores["adapters"].get(main, {}).get("reasoning")
        if found is not None:
            ways.setdefault(told, {})[table.label(run)] = found
    titles = {told: f"{table.title}, {told}" if len(ways) > 1 else table.title for told in ways}
    return [section for told, scores in ways.items() for section in reason_sections(titles[told], scores)]


def reason_sections(title: str, scores: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Return the tables of one fold.

    Parameters
    ----------
    title
        Of the fold.
    scores
        Label -> what :meth:`ReasonScores.to_dict` returned, read back or not.
    """
    first = next(iter(scores.values()))
    notes = _notes_of(scores)
    if first["n"] < MINIMUM_OF_A_CLASS:
        asked = {"with a change and a reference": "n", "with a reason": "n_with_reason"}
        counts = pd.DataFrame(
            {"answers": label, **{name: f"{one[key]:,}" for name, key in asked.items()}}
            for label, one in scores.items()
        )
        few = (
            f"no score of reasons is printed below {MINIMUM_OF_A_CLASS} questions with a change and a reference; "
            "ask more (mini=, fold.per_outcome) or what paths lead to (fold.reached=3), or make the fold with another "
            "seed or a larger fold.test_share"
        )
        return [Section(f"{title}: reasons", counts, [few])]
    return [
        Section(
            f"{title}: reasons", _score_table(scores), [*REASON_NOTES, _controls(first), *notes], optional=_OPTIONAL
        ),
        Section(f"{title}: answer, reason, and whether they agree", _axes_table(scores), _axes_notes(first)),
        Section(f"{title}: reasons by stratum", _strata_table(scores), ["the last columns are controls and a null"]),
        Section(f"{title}: where there is no change, or no reference", _apart_table(scores), APART_NOTES),
        *_context_section(title, scores),
    ]


def _notes_of(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the notes of all answers, each once: with whose it is, where it is not everybody's."""
    whose: dict[str, list[str]] = {}
    for name, one in scores.items():
        for note in one["notes"]:
            whose.setdefault(note, []).append(name)
    return [note if len(names) == len(scores) else f"{', '.join(names)}: {note}" for note, names in whose.items()]


def _controls(one: Mapping[str, Any]) -> str:
    """Return what each control is that stands in a table."""
    from pertbase.scorers._reasoning._controls import CONTROLS

    return "controls: " + "; ".join(f"{name}: {CONTROLS[name]}" for name in one["controls"] if name in CONTROLS)


def _score_table(scores: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    rows = []
    for label, one in scores.items():
        own = one["scores"]
        row = {"answers": label, "n": f"{one['n']:,}", "F1": _interval(own["f1"], "value", "low", "high")}
        for null, name in _EXCESS.items():
            row[name] = _interval(own["f1"], f"{null}_excess", f"{null}_low", f"{null}_high", signed=True)
        rows.append(row | {name: _number(own[key]["value"]) for key, name in _SCORES.items() if key != "f1"})
    first = next(iter(scores.values()))
    for control, values in first["controls"].items():
        row = {"answers": CONTROL + control, "n": f"{first['n']:,}", **dict.fromkeys(_EXCESS.values(), MISSING)}
        rows.append(row | {name: _number(values.get(key)) for key, name in _SCORES.items()})
    columns = ["answers", "n", "F1", *_EXCESS.values(), *(name for key, name in _SCORES.items() if key != "f1")]
    return pd.DataFrame(rows)[columns]


def _axes_table(scores: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    rows = []
    for label, one in scores.items():
        row = {"answers": label, "n": f"{one['n']:,}"}
        row |= {name: _interval(one["axes"][key], "value", "low", "high") for key, name in _AXES.items()}
        row |= {key.replace("_", " "): f"{count:,}" for key, count in one["taxonomy"].items()}
        rows.append(row | {key.replace("_", " "): f"{count:,}" for key, count in one["causes"].items()})
    first = next(iter(scores.values()))
    for control, values in first["control_axes"].items():
        # The outcome of a control is the true one.
        row = {"answers": CONTROL + control, "n": f"{first['n']:,}", _AXES["right_answer"]: _number(1.0)}
        row |= {_AXES[key]: _number(values[key]) for key in ("right_reason", "consistent")}
        rows.append(row | {key.replace("_", " "): f"{values[key]:,}" for key in (*first["taxonomy"], *first["causes"])})
    return pd.DataFrame(rows)


def _axes_notes(one: Mapping[str, Any]) -> list[str]:
    preset = one["preset"]
    asked = [f"signed F1 of {preset['f1']:g} or more"]
    asked += ["leads from what is perturbed to the readout gene"] if preset["connected"] else []
    asked += [f"{preset['grounded']:.0%} in the graph or the prompt"] if preset["grounded"] else []
    asked += ["implies its own answer"] if preset["consistent"] else []
    return [
        f"a reason is right where it has: {'; '.join(asked)}",
        "the six cells are exclusive and follow from the first two axes (invalid: no outcome; no reason: no triplet)",
        "the last columns: why reasons are not right; unconnected: does not lead from perturbed to readout gene",
        "ungrounded: too little of it in the graph or the prompt; inconsistent: does not imply its answer",
    ]


def _strata_table(scores: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    rows = []
    for label, one in scores.items():
        for line in one["strata"]:
            row = {"answers": label, "by": line["by"], "stratum": line["stratum"], "questions": f"{line['n']:,}"}
            row |= {"F1": _interval(line, "f1", "f1_low", "f1_high"), "consistent": _number(line["consistent"])}
            row |= {
                name: _number(line[f"f1_{key}"])
                for key, name in (("null_labels", "null: labels"), ("copied", f"{CONTROL}copied"))
            }
            rows.append(row | {f"{CONTROL}invented": _number(line["f1_invented"])})
    return pd.DataFrame(rows)


def _apart_table(scores: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    rows = []
    first = next(iter(scores.values()))
    for part, name in (("no_change", "no change"), ("without_reference", "no reference")):
        lines = {label: one[part]["answers"] for label, one in scores.items()}
        lines |= {CONTROL + key: line for key, line in first[part].items() if key != "answers"}
        for label, line in lines.items():
            if not line["n"]:
                continue
            counts = {key.replace("_", " "): f"{int(line[key]):,}" for key in ("n", "with_reference", "with_reason")}
            shown = {_SCORES[key]: _number(line[key]) for key in ("f1", "connected", "consistent", "grounded_graph")}
            rows.append({"answers": label, "questions with": name, **counts, **shown})
    return pd.DataFrame(rows)


def _context_section(title: str, scores: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    rows = []
    for label, one in scores.items():
        found = one["contexts"]
        if found is None:
            continue
        shown = {
            name: _interval(found[key], "value", "low", "high", signed=key == "drop")
            for key, name in (
                ("claimed_distance", "reasons differ"),
                ("reference_distance", "references differ"),
                ("drop", "F1 lost in another context"),
                ("flipped", "answers differ"),
                ("both_right", "both right"),
            )
        }
        counts = {"pairs": f"{found['n_pairs']:,}", "discordant": f"{found['n_discordant']:,}"}
        rows.append({"answers": label, **counts, **shown, "r": _number(found["correlation"])})
    if rows:
        rows += _context_controls(next(iter(scores.values()))["control_axes"], list(rows[0]))
    notes = (
        "pairs of contexts of one perturbation and readout gene; differ: Jaccard distance of triplets; r: correlation",
        "discordant: other outcomes, and effects that differ by a test; the last two shares are over these",
    )
    return [Section(f"{title}: do reasons follow the context", pd.DataFrame(rows), notes)] if rows else []


def _context_controls(controls: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> list[dict[str, str]]:
    """Return what controls have of the table of contexts: their reasons; their answers are the truth."""
    rows = []
    for control, values in controls.items():
        shown = {"answers": CONTROL + control, "reasons differ": _number(values["claimed_distance"])}
        shown |= {"F1 lost in another context": _number(values["drop"]), "r": _number(values["correlation"])}
        rows.append(dict.fromkeys(columns, MISSING) | shown)
    return rows


def _number(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.3f}"


def _interval(values: Mapping[str, Any], value: str, low: str, high: str, *, signed: bool = False) -> str:
    one, two, three = (values.get(key) for key in (value, low, high))
    if one is None or math.isnan(one):
        return MISSING
    form = "+.3f" if signed else ".3f"
    if two is None or three is None or math.isnan(two):
        return format(one, form)
    return f"{one:{form}} [{two:{form}}, {three:{form}}]"
