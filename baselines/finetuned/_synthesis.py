"""Reference texts written by a language model that is told the outcome, and kept only where they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from string import Template as Substitution
from typing import Any

import pandas as pd

from pertbase._io import read_jsonl, write_aside, write_jsonl
from pertbase.baselines.finetuned._examples import some_of_each
from pertbase.baselines.finetuned._rewards import Asked, Rewards, RewardSettings, asked_of
from pertbase.baselines.finetuned._texts import RuleTexts, Text
from pertbase.baselines.llm import LanguageModel, Parsed, Record, Request
from pertbase.baselines.llm._parsing._replies import read_reply
from pertbase.baselines.llm._prompts import Messages, Template
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import OUTCOMES, Training
from pertbase.knowledge import Triplet, signed_graph
from pertbase.knowledge._walks import BOTH, LOWERED, RAISED, reach

__all__ = ["FileTexts", "Synthesis", "synthesise", "why_rejected", "write_texts"]

_MEASURED = {"up": "goes up", "down": "goes down", "no_change": "does not change"}
_LEADS = {"up": (RAISED,), "down": (LOWERED,), "no_change": (0, BOTH)}
"""Signs with which a reason may reach the readout gene, of each outcome: of none, with neither or with both."""
_PLACES = {"question", "gene", "measured", "answer"}
_MOST_LETTERS = 600
_COLUMNS = ("id", "outcome", "triplets", "text", "source", "request")


@dataclass(frozen=True, eq=False)
class Synthesis:
    """Texts that a model wrote, and what was rejected.

    Parameters
    ----------
    texts
        Question id -> text.
    rejected
        Question id -> why.
    """

    texts: Mapping[str, Text]
    rejected: Mapping[str, str] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return ``kept``, and why others were rejected -> how many, the most frequent first."""
        return {"kept": len(self.texts), **dict(Counter(self.rejected.values()).most_common())}

    def __repr__(self) -> str:
        return f"Synthesis({', '.join(f'{count:,} {name}' for name, count in self.counts().items())})"


def synthesise(
    language: LanguageModel,
    training: Training,
    *,
    per_outcome: int | None = None,
    template: str | None = None,
    grounded: float = 1.0,
    most_triplets: int = 12,
) -> Synthesis:
    """Return texts for questions of train, written by a language model.

    It is asked as always, with the outcome and what to write added; responses are kept and asked for once. A text is
    kept where it says the outcome, and its triplets lead to it and are borne out by the graph or the paths shown.

    Parameters
    ----------
    language
        Fitted, with the preset whose prompts are to be learnt, and ``max_tokens`` that a reason has room in.
    training
        What it is fitted to.
    per_outcome
        Questions of each outcome at most; the same that a fine-tuning with this option learns from.
    template
        A text file in the place of ours, with ``$question``, ``$gene``, ``$measured`` and ``$answer``.
    grounded
        Least share of the triplets that something bears out.
    most_triplets
        Of one text.
    """
    known = training.headline
    known = some_of_each(known.loc[known["split"] == "train"], per_outcome, training.seed, "train")
    inputs = training.inputs("train")
    rows = inputs.questions.set_index("id").loc[known["id"]].reset_index()
    records = language.records(replace(inputs, questions=rows))
    outcomes = known["outcome"].astype(str).tolist()
    asking = _template(template)
    requests = [
        Request("reply", (_prompt(language.prompt_template, asking, record, outcome),), record.id)
        for record, outcome in zip(records, outcomes, strict=True)
    ]
    responses = language.ask(requests)
    said = [
        read_reply(
            response.text, response.finish, record, language.prompt_template, thought_begun=response.thought_begun
        )
        for response, record in zip(responses, records, strict=True)
    ]
    asked = list(asked_of(training, records, outcomes).values())
    graph = training.graph if language.graph is None else signed_graph(language.graph)
    why = why_rejected(asked, said, graph=graph, grounded=grounded, most_triplets=most_triplets)
    texts, rejected = {}, {}
    for record, outcome, one, reason, request in zip(records, outcomes, said, why, requests, strict=True):
        if reason:
            rejected[record.id] = reason
            continue
        key = language.request_key(request)
        texts[record.id] = Text(outcome, one.triplets, " ".join(one.text.split()), language.client.title, key)
    return Synthesis(texts, rejected)


def why_rejected(
    asked: Sequence[Asked],
    said: Sequence[Parsed],
    *,
    graph: Any = None,
    grounded: float = 1.0,
    most_triplets: int = 12,
) -> list[str]:
    """Return why each text is not learnt from, the first reason that holds; empty where it is.

    Names, walks and grounding are those of scorers.
    """
    settings = RewardSettings(most_triplets=most_triplets)
    rewards = Rewards({str(place): one for place, one in enumerate(asked)}, settings, graph=graph)
    found = rewards.reasons(asked, said)
    leads = reach(found.claims, found.starts).signs
    why = []
    for place, (one, reply) in enumerate(zip(asked, said, strict=True)):
        size = int(found.claims.sizes[place])
        checks = (
            (reply.status, reply.status != "ok"),
            ("another answer", reply.outcome != one.outcome),
            ("more triplets than may be", size > most_triplets),
            ("a long explanation", len(reply.text) > _MOST_LETTERS),
            ("no reason for a change", not size and one.outcome != "no_change"),
            ("not borne out", bool(size) and found.grounded[place] < grounded),
            ("does not lead to the outcome", int(leads[place]) not in _LEADS[one.outcome]),
        )
        why.append(next((name for name, holds in checks if holds), ""))
    return why


def _template(source: str | None) -> Substitution:
    if source is None:
        made = Substitution(
            files("pertbase.baselines.finetuned").joinpath("templates", "teacher.txt").read_text(encoding="utf-8")
        )
    else:
        try:
            made = Substitution(Path(source).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read ({error})", file=source, key="template") from error
    places = set(made.get_identifiers())
    if places != _PLACES or not made.is_valid():
        raise InputError(
            "has not the places it should", file=source, key="template", value=sorted(places),
            remedy="write $question, $gene, $measured and $answer, and $$ for a dollar sign",
        )  # fmt: skip
    return made


def _prompt(template: Template, asking: Substitution, record: Record, outcome: str) -> Messages:
    user = asking.substitute(
        question=template.question(record), gene=record.gene, measured=_MEASURED[outcome], answer=outcome
    )
    system = template.sections["system"].strip()
    return ((("system", system),) if system else ()) + (("user", user.rstrip("\n")),)


# -- files --------------------------------------------------------------------------------------------------


def write_texts(found: Synthesis, path: str | Path) -> None:
    """Write texts as JSONL, one a line: id, outcome, triplets, text, source, and the hash of the request."""
    rows = [
        (key, text.outcome, [list(item) for item in text.triplets], text.explanation, text.source, text.request)
        for key, text in sorted(found.texts.items())
    ]
    with write_aside(path) as aside:
        write_jsonl(pd.DataFrame(rows, columns=list(_COLUMNS)), aside)


class FileTexts(RuleTexts):
    """Replies whose reasons stand in a file, as :func:`write_texts` writes; those of a rule for other questions.

    Parameters
    ----------
    path
        JSONL with ``id``, ``outcome`` and ``triplets``, and perhaps ``text``, ``source`` and ``request``.
    explain
        Whether texts, and sentences of references, stand before the answer.

    Raises
    ------
    InputError
        Where the file cannot be read, or a line is no text.
    """

    def __init__(self, path: str | Path, *, explain: bool = True) -> None:
        super().__init__(explain=explain)
        self.path = Path(path)
        self._known = dict(self._read())
        self._unused = set(self._known)

    def refuses(self, training: Training) -> str | None:
        """Refuse where no text is of a question of train."""
        known = training.headline
        ids = set(known.loc[known["split"] == "train", "id"].astype(str))
        return None if ids & set(self._known) else f"{self.path} has no text for a question of {training.fold}"

    def write(self, records: Sequence[Record], questions: pd.DataFrame) -> list[Text | None]:
        """Return a text for each record.

        Raises
        ------
        InputError
            Where the file says another outcome than was measured: it is of another fold.
        """
        if "reference_paths" not in questions.columns:
            questions = questions.assign(reference_paths=[[] for _ in range(len(questions))])
        own = questions["id"].astype(str).isin(self._known).to_numpy()
        made = list(super().write([one for one, known in zip(records, own, strict=True) if not known], questions[~own]))
        rest = iter(made)
        texts: list[Text | None] = []
        for record, outcome, known in zip(records, questions["outcome"].astype(str), own, strict=True):
            text = self._known[record.id] if known else next(rest)
            if known and text is not None:
                if text.outcome != outcome:
                    raise InputError(
                        "says another outcome than was measured", file=self.path, key=record.id, value=text.outcome,
                        remedy="the file is of another fold, or of other rules for outcomes; write it anew",
                    )  # fmt: skip
                self._sources[text.source] += 1
                self._unused.discard(record.id)
                text = text if self.explain else replace(text, explanation="")
            texts.append(text)
        return texts

    def account(self) -> dict[str, Any]:
        """Return how many texts are of which source, and how many of the file are of no question."""
        return {**super().account(), "file": self.path.name, "of_no_question": len(self._unused)}

    def _read(self) -> list[tuple[str, Text]]:
        try:
            table = read_jsonl(self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read ({error})", file=self.path, key="reasons") from error
        for column in _COLUMNS[:3]:
            if column not in table.columns:
                raise InputError("texts lack a column", file=self.path, key=column, value=list(table.columns))
        made = []
        for row in table.to_dict("records"):
            key, outcome, triplets = str(row["id"]), row["outcome"], row["triplets"]
            whole = isinstance(triplets, list) and all(isinstance(one, list) and len(one) == 3 for one in triplets)
            if outcome not in OUTCOMES or not whole:
                raise InputError("is no text", file=self.path, key=key, value=outcome if whole else triplets)
            told = [str(row.get(name) or "") for name in _COLUMNS[3:]]
            reason = tuple(Triplet(*map(str, one)) for one in triplets)
            made.append((key, Text(outcome, reason, told[0], told[1] or self.path.stem, told[2])))
        if len(dict(made)) < len(made):
            raise PertbaseError("texts repeat an id", file=self.path, key="id")
        return made
