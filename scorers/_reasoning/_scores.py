"""Scores of reasons against the references of one fold, beside their nulls and the control answers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pertbase._intervals import Interval
from pertbase._mean_intervals import mean_interval
from pertbase._random import generator
from pertbase.folds._answers import OUTCOMES
from pertbase.knowledge._gene_sets import GeneSets
from pertbase.knowledge._names import GeneNames
from pertbase.knowledge._triplet_sets import Integers
from pertbase.scorers._aligned import cluster_notes
from pertbase.scorers._reasoning._axes import CAUSES, CELLS, Axes, ReasonPreset, judge, reason_preset
from pertbase.scorers._reasoning._contexts import ContextSensitivity, context_sensitivity
from pertbase.scorers._reasoning._controls import control_axes, control_claims
from pertbase.scorers._reasoning._nulls import (
    NULLS,
    expected_agreement,
    labels_null,
    partners,
    rewired_null,
    swap_null,
)
from pertbase.scorers._reasoning._prepare import Prepared, prepare
from pertbase.scorers._reasoning._records import REASON_SCORES, score
from pertbase.scorers._reasoning._strata import strata

if TYPE_CHECKING:
    from pertbase.folds import Answers, Truth
    from pertbase.knowledge import SignedGraph

__all__ = ["ReasonScores", "reasoning"]

Floats = NDArray[np.float64]
_SHOWN = ("f1", "precision", "edge_recall", "connected", "consistent", "grounded_graph", "go_best_match")


@dataclass(frozen=True, eq=False, repr=False)
class ReasonScores:
    """What reasons are worth on one fold.

    The headline is over questions whose outcome is up or down and that have a reference: what no known path explains
    stands apart, and so do questions with ``no_change``, whose reference is of another kind. No number stands alone:
    nulls and control answers are in the same object.

    Parameters
    ----------
    fold, fold_hash, simulated
        Which truth this is against.
    level
        Of all intervals.
    preset
        When a reason is called right.
    n
        Questions of the headline.
    n_with_reason
        Of these, with a reason of one triplet or more.
    n_without_reference
        Questions with a change and no reference.
    scores
        Index :data:`REASON_SCORES`; columns ``value``, ``low``, ``high``, ``n``, ``excluded`` (questions with a change
        for which the score is not defined, mostly for want of a reference) and, for each null,
        its value, and ``excess`` with its ends and its number of questions (``labels``, ``labels_excess``,
        ``labels_low``, ``labels_high``, ``labels_n``, ...). An excess is paired, question by question.
    controls
        The same scores of control answers on the same questions; index control, columns scores.
    control_axes
        Where controls stand on the axes, and whether they follow the context; index control.
    no_change, without_reference
        The questions that stand apart: index ``answers`` and the controls; columns ``n``, ``with_reference``,
        ``with_reason`` and the scores, those against a reference over the questions that have one.
    axes
        Share of right answers, of right reasons and of reasons that agree with their answer.
    taxonomy, causes
        Cell -> questions, and cause -> questions whose reason is not right for it.
    by_axes, sweep
        Counts by all three axes, and the cells at every threshold of F1.
    strata
        One row a stratum (of evidence, of conflict, of context), with what the controls have there.
    contexts
        How sensitive reasons are to the context; None where no question is asked in two contexts.
    set_aside
        Triplets that were left out or could not be understood, by kind, over all questions.
    records
        One row a question of the headline: ``id``, every score, ``cell``, the causes and what was set aside.
    notes
        What a reader must know beside the numbers.
    """

    fold: str
    fold_hash: str
    simulated: bool
    level: float
    preset: ReasonPreset
    n: int
    n_with_reason: int
    n_without_reference: int
    scores: pd.DataFrame
    controls: pd.DataFrame
    control_axes: pd.DataFrame
    no_change: pd.DataFrame
    without_reference: pd.DataFrame
    axes: dict[str, Interval]
    taxonomy: dict[str, int]
    causes: dict[str, int]
    by_axes: pd.DataFrame
    sweep: pd.DataFrame
    strata: pd.DataFrame
    contexts: ContextSensitivity | None
    set_aside: dict[str, int]
    records: pd.DataFrame
    notes: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        """Return one row for the answers, one a null and one a control; columns the scores."""
        rows = {"answers": self.scores["value"]}
        rows |= {f"null: {name}": self.scores[name] for name in NULLS}
        rows |= {f"control: {name}": row for name, row in self.controls.iterrows()}
        return pd.DataFrame(rows).T.reindex(columns=list(REASON_SCORES))

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as dicts, lists, text and numbers, without the records; NaN stays NaN until written."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, (str, bool, int, float))}
        frames = ("scores", "controls", "control_axes", "no_change", "without_reference", "sweep")
        return {
            **plain,
            "preset": asdict(self.preset),
            **{name: getattr(self, name).to_dict(orient="index") for name in frames},
            "axes": {name: asdict(interval) for name, interval in self.axes.items()},
            "taxonomy": self.taxonomy,
            "causes": self.causes,
            "by_axes": self.by_axes.to_dict(orient="records"),
            "strata": self.strata.to_dict(orient="records"),
            "contexts": None if self.contexts is None else self.contexts.to_dict(),
            "set_aside": self.set_aside,
            "notes": list(self.notes),
        }

    def _lines(self) -> list[str]:
        counts = f"{self.n_with_reason:,} with a reason; {self.n_without_reference:,} more have no reference"
        cells = ", ".join(f"{self.taxonomy[name]:,} {name.replace('_', ' ')}" for name in CELLS)
        lines = [f"{self.n:,} questions with a change and a reference: {counts}"]
        lines += [f"{name.replace('_', ' ')}: {interval}" for name, interval in self.axes.items()]
        return [*lines, cells, *self.notes]

    @property
    def _title(self) -> str:
        return f"{self.fold}{' (simulated)' if self.simulated else ''}, {self.level:.0%} intervals"

    def __repr__(self) -> str:
        shown = self.table()[list(_SHOWN)].to_string(float_format="{:.3f}".format, na_rep="–")
        return "\n".join([f"ReasonScores: {self._title}", shown, *(f"  {line}" for line in self._lines())])

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self._lines())
        shown = self.table().to_html(float_format="{:.3f}".format, na_rep="–")
        return f"<p>ReasonScores: {html.escape(self._title)}</p>{shown}<ul>{lines}</ul>"


def reasoning(
    answers: Answers,
    truth: Truth,
    *,
    graph: SignedGraph | None = None,
    gene_sets: GeneSets | None = None,
    names: GeneNames | None = None,
    preset: str | ReasonPreset = "axes",
    level: float = 0.95,
    seed: int = 0,
    shown: Mapping[str, Sequence[Sequence[Sequence[str]]] | None] | None = None,
) -> ReasonScores:
    """Score the reasons of answers against the references of the fold they answer.

    Parameters
    ----------
    answers
        With reasons; questions without one have an empty reason, which scores 0 and stays in every denominator.
    truth
        The fold's test questions, with ``reference_paths`` and, where there are any, ``candidate_paths``.
    graph
        For grounding, the rewired null and the strata of evidence; without it, these are not defined.
    gene_sets
        For similarity by gene sets.
    names
        Bring names to symbols; without them, only the symbols of the graph, the screen and the prompt are known.
    preset
        When a reason is right: ``axes``, ``joined`` or one of your own.
    level
        What intervals are meant to cover.
    seed
        Of the rewired graph and the random paths.
    shown
        The paths that the model was shown with each question, by id, None for none: grounding in the prompt is in
        these. Where not given, it was shown the candidates. Nulls and controls are always made of candidates.

    Raises
    ------
    InputError
        Where the fold has no references, or an answer is not asked in this fold.
    """
    chosen = reason_preset(preset)
    ready = prepare(answers, truth, graph=graph, gene_sets=gene_sets, names=names, shown=shown)
    changed, referred = ready.aligned.true < 2, ready.case.references.union.sizes > 0
    called, bare = np.flatnonzero(changed & referred), np.flatnonzero(changed & ~referred)
    found = _Headline.of(ready, called, seed=seed, preset=chosen)
    sets, genes = ready.aligned.sets[called], ready.aligned.genes[called]
    table = _score_table(found, sets, genes, level).assign(excluded=lambda rows: int(changed.sum()) - rows["n"])
    axes = {
        name: mean_interval(getattr(found.axes, name), sets, genes, level=level)
        for name in ("right_answer", "right_reason", "consistent")
    }
    swapped = found.nulls["contexts"].get("f1", np.full(len(called), np.nan))
    drop = np.full(len(ready.aligned.true), np.nan)
    drop[called] = found.scores["f1"] - swapped
    causes = found.axes.causes
    return ReasonScores(
        fold=truth.name,
        fold_hash=truth.hash,
        simulated=truth.simulated,
        level=level,
        preset=chosen,
        n=len(called),
        n_with_reason=int((found.sizes > 0).sum()),
        n_without_reference=len(bare),
        scores=table,
        controls=pd.DataFrame({name: _means(one) for name, one in found.controls.items()}).T.rename_axis("control"),
        control_axes=found.control_axes,
        no_change=_apart(ready, np.flatnonzero(~changed), seed),
        without_reference=_apart(ready, bare, seed),
        axes=axes,
        taxonomy=found.axes.taxonomy,
        causes={name: int(causes[name].sum()) for name in CAUSES},
        by_axes=found.axes.by_axes,
        sweep=found.axes.sweep,
        strata=strata(ready, called, found.scores, found.nulls["labels"], found.controls, level=level),
        contexts=context_sensitivity(
            ready.questions, _codes(ready), ready.claims, ready.case.references.union, drop, level=level
        ),
        set_aside=_set_aside(ready),
        records=_records(ready, called, found),
        notes=_notes(ready, found, len(bare), axes["right_answer"]),
    )


@dataclass(frozen=True, eq=False)
class _Headline:
    """Scores, nulls, controls and axes of the questions with a change and a reference."""

    sizes: Integers
    scores: dict[str, Floats]
    nulls: dict[str, dict[str, Floats]]
    controls: dict[str, dict[str, Floats]]
    control_axes: pd.DataFrame
    axes: Axes

    @classmethod
    def of(cls, ready: Prepared, rows: Integers, *, seed: int, preset: ReasonPreset) -> _Headline:
        claims, case = ready.claims.at(rows), ready.case.at(rows)
        true, answered = ready.aligned.true[rows], ready.aligned.answered[rows]
        scores = _emptied(score(claims, answered, case), claims.sizes)
        codes = (ready.group[rows], ready.context[rows])
        nulls = {
            "labels": labels_null(claims, true, case) | expected_agreement(claims, answered, case.starts),
            "rewired": rewired_null(claims, case, ready.graph, generator(seed, "reasons", "rewired graph")),
            "contexts": swap_null(claims, case, partners(*codes)),
        }
        made = control_claims(case, true, generator(seed, "reasons", "random path"))
        # Controls stand for models that were shown the candidates they are made of.
        asked = replace(case, shown=None)
        controls = {name: _emptied(score(one, true, asked), one.sizes) for name, one in made.items()}
        beside = control_axes(made, controls, asked, true, preset, codes)
        axes = judge(scores, claims.sizes, answered, true, preset)
        return cls(claims.sizes, scores, nulls, controls, beside, axes)


def _emptied(scores: dict[str, Floats], sizes: Integers) -> dict[str, Floats]:
    """Return the scores with 0 for empty reasons: where there is a change, saying nothing agrees with no answer."""
    for name in ("consistent", "consistent_any"):
        scores[name] = np.where((sizes == 0) & ~np.isnan(scores[name]), 0.0, scores[name])
    return scores


def _score_table(found: _Headline, sets: Integers, genes: Integers, level: float) -> pd.DataFrame:
    rows = {}
    for name in REASON_SCORES:
        values = found.scores[name]
        interval = mean_interval(values, sets, genes, level=level)
        row = {"value": interval.value, "low": interval.low, "high": interval.high, "n": int((~np.isnan(values)).sum())}
        for null in NULLS:
            other = found.nulls[null].get(name)
            gap = np.full(len(values), np.nan) if other is None else values - other
            excess = mean_interval(gap, sets, genes, level=level, scale="linear")
            paired = ~np.isnan(gap)
            row[null] = float(other[paired].mean()) if other is not None and paired.any() else float("nan")
            # A difference of two shares lies between -1 and 1, whatever few questions would have it.
            low, high = np.clip([excess.low, excess.high], -1.0, 1.0).tolist()
            row |= {f"{null}_excess": excess.value, f"{null}_low": low, f"{null}_high": high}
            row[f"{null}_n"] = int(paired.sum())
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("score")


def _means(scores: Mapping[str, Floats]) -> dict[str, float]:
    """Return the mean of each score over the questions that have it."""
    return {name: float(np.nanmean(one)) if (~np.isnan(one)).any() else float("nan") for name, one in scores.items()}


def _apart(ready: Prepared, rows: Integers, seed: int) -> pd.DataFrame:
    """Return the scores of the answers and the controls on questions that are not of the headline."""
    claims, case = ready.claims.at(rows), ready.case.at(rows)
    true = ready.aligned.true[rows]
    made = {"answers": claims, **control_claims(case, true, generator(seed, "reasons", "random path, apart"))}
    table = {}
    for name, one in made.items():
        answered = ready.aligned.answered[rows] if name == "answers" else true
        found = score(one, answered, case if name == "answers" else replace(case, shown=None))
        # Where nothing changes, saying nothing is a reason that agrees; where something does, it agrees with no answer.
        found = {key: np.where((one.sizes == 0) & (true < 2) & ~np.isnan(v), 0.0, v) for key, v in found.items()}
        counts = {"n": len(rows), "with_reference": int((case.references.union.sizes > 0).sum())}
        table[name] = {**counts, "with_reason": int((one.sizes > 0).sum()), **_means(found)}
    return pd.DataFrame.from_dict(table, orient="index")


def _codes(ready: Prepared) -> dict[str, Integers]:
    aligned = ready.aligned
    return {
        "group": ready.group,
        "context": ready.context,
        "sets": aligned.sets,
        "genes": aligned.genes,
        "true": aligned.true,
        "answered": aligned.answered,
    }


def _set_aside(ready: Prepared) -> dict[str, int]:
    counts = {name: int(values.sum()) for name, values in vars(ready.counts).items()}
    return {**counts, "restated": int(ready.restated.sum())}


def _records(ready: Prepared, rows: Integers, found: _Headline) -> pd.DataFrame:
    words = np.array([*OUTCOMES, None], dtype=object)
    about = {
        "id": ready.questions["id"].to_numpy(dtype=object)[rows],
        "outcome": words[ready.aligned.answered[rows]],
        "n_triplets": found.sizes,
        **{name: values[rows] for name, values in vars(ready.counts).items()},
    }
    return pd.DataFrame({**about, **found.scores, "cell": found.axes.cell}).join(found.axes.causes)


def _notes(ready: Prepared, found: _Headline, bare: int, interval: Interval) -> tuple[str, ...]:
    notes = [f"{bare:,} questions with a change have no reference: they stand apart"] if bare else []
    if ready.case.given is None:
        notes.append("no paths were given with the questions: no null of labels, and no controls made of given paths")
    if ready.graph is None:
        notes.append("no graph: no grounding in it, no rewired null, no strata of evidence")
    annotations = ready.case.annotations
    if annotations is None or not annotations.annotated.any():
        notes.append("no gene sets, or none with these genes: no similarity by them")
    if not (~np.isnan(found.nulls["contexts"]["f1"])).any():
        notes.append("no question has a reference in two contexts: no null of contexts")
    if lost := int(ready.counts.unresolved.sum()):
        notes.append(f"{lost:,} triplets name something that is no known gene; they count as claimed")
    if strange := int(ready.counts.unknown_relations.sum()):
        notes.append(
            f"{strange:,} triplets have a relation that is no known word (activates, inhibits, affects, or one like "
            "them); they count as claimed, without a sign"
        )
    return (*notes, ready.names.describe(), *cluster_notes(interval))
