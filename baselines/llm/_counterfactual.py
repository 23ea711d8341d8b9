"""Questions with an edge flipped or deleted, or the context swapped: does the answer follow what the model is shown?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pertbase._intervals import Interval
from pertbase._mean_intervals import mean_interval
from pertbase._random import generator
from pertbase.baselines.llm._baseline import LanguageModel
from pertbase.baselines.llm._option_scores import likeliest
from pertbase.baselines.llm._record import Record
from pertbase.folds import OUTCOMES, Inputs
from pertbase.knowledge._triplets import Triplet, relation_sign, relation_word

__all__ = ["EDITS", "Follow", "deleted", "flipped", "follow"]

EDITS = ("flipped", "deleted", "context")
_Edited = tuple[Record, Record, int | None]
"""A record, the same edited, and what the edited one implies."""
_OUTCOME = {1: "up", -1: "down", None: "no_change"}


def flipped(record: Record) -> Record:
    """Return a record in which the last edge of every path, the one into the readout gene, has the other sign."""
    return replace(record, paths=tuple((*path[:-1], _turned(path[-1])) for path in record.paths or ()))


def _turned(edge: Triplet) -> Triplet:
    return Triplet(edge.head, relation_word(-(relation_sign(edge.relation) or 0)), edge.tail)


def deleted(record: Record) -> Record:
    """Return a record in which the last edge of every path is not there; a path of one edge is gone with it."""
    return replace(record, paths=tuple(path[:-1] for path in record.paths or () if len(path) > 1))


@dataclass(frozen=True)
class Follow:
    """How often answers follow an edit, over questions whose paths imply one outcome.

    Parameters
    ----------
    edit
        ``flipped`` (then the paths imply the opposite), ``deleted`` (then no path reaches the readout gene:
        ``no_change``) or ``context`` (where the paths of the other context imply another outcome).
    n
        Questions.
    agreed
        Share whose answer, before the edit, is what the paths imply.
    followed
        Share whose answer, after it, is what they then imply.
    moved
        Share whose answer is another one after the edit, whichever.
    score
        Mean change of the score of what is then implied; NaN without scores.
    """

    edit: str
    n: int
    agreed: Interval
    followed: Interval
    moved: Interval
    score: Interval


def follow(model: LanguageModel, inputs: Inputs, *, n: int, seed: int = 0) -> list[Follow]:
    """Ask questions with and without each edit, and return how often the answers follow.

    Parameters
    ----------
    model
        Fitted, with a preset that shows paths.
    inputs
        The questions to choose from.
    n
        Questions an edit, drawn from those whose paths imply up or down; fewer where there are fewer.
    seed
        Of the draw.
    """
    records = model.records(inputs)
    sure = [record for record in records if record.implied in (1, -1)]
    order = generator(seed, "counterfactual").permutation(len(sure))
    chosen = [sure[row] for row in sorted(order[:n])]
    swaps = _swapped(model, inputs, [sure[row] for row in order], n)
    groups: dict[str, list[_Edited]] = {
        "flipped": [(record, flipped(record), -(record.implied or 0)) for record in chosen],
        "deleted": [(record, deleted(record), None) for record in chosen],
        "context": swaps,
    }
    about = inputs.questions.set_index(inputs.questions["id"].astype(str))[["target_set", "gene"]].astype(str)
    return [_followed(model, edit, group, about) for edit, group in groups.items()]


def _swapped(model: LanguageModel, inputs: Inputs, records: Sequence[Record], n: int) -> list[_Edited]:
    """Return records with those of another context whose paths imply something else."""
    found: list[_Edited] = []
    if inputs.basal is None:
        return found
    contexts = [str(name) for name in inputs.basal.index]
    for record in records:
        for context in contexts:
            if context == record.context or len(found) >= n:
                continue
            other = model.in_context(record, inputs, context)
            if other.implied != 0 and other.implied != record.implied:
                found.append((record, other, other.implied))
                break
    return found


def _followed(model: LanguageModel, edit: str, group: Sequence[_Edited], about: pd.DataFrame) -> Follow:
    before, scores_before = _answered(model, [record for record, _, _ in group])
    after, scores_after = _answered(model, [record for _, record, _ in group])
    was = [_OUTCOME[record.implied] for record, _, _ in group]
    then = [_OUTCOME[sign] for _, _, sign in group]
    rows = about.loc[[record.id for record, _, _ in group]]
    sets, genes = (pd.factorize(rows[name], sort=True)[0] for name in ("target_set", "gene"))

    def over(values: Sequence[bool] | np.ndarray, *, linear: bool = False) -> Interval:
        numbers = np.asarray(values, dtype=np.float64)
        return mean_interval(numbers, sets, genes, scale="linear" if linear else "logit")

    column = [OUTCOMES.index(outcome) for outcome in then]
    change = (scores_after - scores_before)[np.arange(len(group)), column] if group else np.zeros(0)
    return Follow(
        edit,
        len(group),
        over([one == outcome for one, outcome in zip(before, was, strict=True)]),
        over([one == outcome for one, outcome in zip(after, then, strict=True)]),
        over([one != two for one, two in zip(before, after, strict=True)]),
        over(change, linear=True),
    )


def _answered(model: LanguageModel, records: Sequence[Record]) -> tuple[list[str | None], np.ndarray]:
    """Return the outcomes that the model answers, as in a run, and the scores."""
    letters = model.answer_from == "options"
    parsed, scores = model.said(records, replies=not letters)
    return (likeliest(scores) if letters else [one.outcome for one in parsed]), scores
