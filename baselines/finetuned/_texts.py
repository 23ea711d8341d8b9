"""What a model is taught to reply: the outcome alone, or a reason before it, written by a rule or by another model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from pertbase.baselines.llm import Record
from pertbase.baselines.llm._prompts import reply_of
from pertbase.baselines.llm._record import Paths, paths_of
from pertbase.errors import UnsupportedError
from pertbase.folds import Training
from pertbase.knowledge import Triplet, relation_sign

__all__ = ["OutcomeTexts", "RuleTexts", "Text", "Texts", "path_sign"]


@dataclass(frozen=True)
class Text:
    """What is taught as the reply to one training question.

    Parameters
    ----------
    outcome
        What was measured.
    triplets
        The reason; empty where there is none.
    explanation
        A sentence between reason and answer; may be empty.
    source
        ``outcome`` (there is no reason), ``rule``, ``shipped``, or the name of the model that wrote it.
    request
        Of a model's: the hash under which its response is kept.
    """

    outcome: str
    triplets: tuple[Triplet, ...] = ()
    explanation: str = ""
    source: str = "outcome"
    request: str = ""

    @property
    def reply(self) -> str:
        """The reply, in the form that prompts ask for."""
        return reply_of(self.triplets, self.outcome, self.explanation)


class Texts(Protocol):
    """Writes replies to training questions."""

    def refuses(self, training: Training) -> str | None:
        """Return why there are none on such a fold, or None."""

    def write(self, records: Sequence[Record], questions: pd.DataFrame) -> list[Text | None]:
        """Return a text for each record; None where there is none to be learnt from.

        Parameters
        ----------
        records
            As the questions are asked.
        questions
            The same, with outcomes and, where there are any, ``reference_paths`` and ``reference_text``; train's alone.
        """

    def account(self) -> dict[str, Any]:
        """Return how many texts are of which source, and what was rejected why."""


class OutcomeTexts:
    """Replies with the outcome and no reason."""

    def __init__(self) -> None:
        self._count = 0

    def refuses(self, training: Training) -> str | None:
        """Return None: every question of train has an outcome."""
        return None

    def write(self, records: Sequence[Record], questions: pd.DataFrame) -> list[Text | None]:
        """Return a text for each record."""
        self._count += len(questions)
        return [Text(str(outcome)) for outcome in questions["outcome"]]

    def account(self) -> dict[str, Any]:
        """Return how many were written."""
        return {"sources": {"outcome": self._count}}


class RuleTexts:
    """Replies whose reasons are read off the reference paths.

    Of a change, the first reference path, which is the cheapest that says it; of ``no_change``, the first that raises
    and the first that lowers, since what is both may stay. Where a question has no reference, the outcome alone. The
    label decides which path is a reference: this is for train, and nothing of it reaches a prompt.

    Parameters
    ----------
    explain
        Whether the sentence of the reference, ``reference_text``, stands before the answer.
    """

    def __init__(self, *, explain: bool = True) -> None:
        self.explain = explain
        self._sources: Counter[str] = Counter()

    def refuses(self, training: Training) -> str | None:
        """Refuse where no paths were laid over the fold."""
        if "reference_paths" in training.questions.columns:
            return None
        return (
            f"reasons are read off reference paths, and {training.fold} has none; lay paths over it, with paths=own "
            "(simulated) or paths=human"
        )

    def write(self, records: Sequence[Record], questions: pd.DataFrame) -> list[Text | None]:
        """Return a text for each record.

        Raises
        ------
        UnsupportedError
            Where the questions have no reference paths.
        """
        if "reference_paths" not in questions.columns:
            raise UnsupportedError("reasons are read off reference paths, and there are none", key="reference_paths")
        told: Sequence[Any] = questions["reference_text"] if "reference_text" in questions else [None] * len(questions)
        made: list[Text | None] = []
        for record, outcome, value, sentence in zip(
            records, questions["outcome"], questions["reference_paths"], told, strict=True
        ):
            reason = rule_reason(paths_of(value), str(outcome), dict(record.targets))
            explanation = sentence if self.explain and reason and isinstance(sentence, str) else ""
            text = Text(str(outcome), reason, explanation, "rule" if reason else "outcome")
            self._sources[text.source] += 1
            made.append(text)
        return made

    def account(self) -> dict[str, Any]:
        """Return how many have a reason, and how many the outcome alone for want of a reference."""
        return {"sources": dict(sorted(self._sources.items()))}


def rule_reason(references: Paths, outcome: str, starts: Mapping[str, int]) -> tuple[Triplet, ...]:
    """Return the triplets of the references that are told, each once: see :class:`RuleTexts`."""
    if not references:
        return ()
    told = [references[0]]
    if outcome == "no_change":
        signs = [path_sign(path, starts) for path in references]
        told = [references[signs.index(sign)] for sign in (1, -1) if sign in signs]
    return tuple(dict.fromkeys(triplet for path in told for triplet in path))


def path_sign(path: Sequence[Triplet], starts: Mapping[str, int]) -> int:
    """Return what a path says of its end: start sign times the product of relation signs; 0 where it does not say."""
    sign = starts.get(path[0].head, 0)
    for triplet in path:
        sign *= relation_sign(triplet.relation) or 0
    return sign
