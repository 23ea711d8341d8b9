"""From records to prompts: templates are text files, which a user can replace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from string import Template as Substitution

from pertbase._io import canonical_json, sha256_text
from pertbase.baselines.llm._record import Example, Paths, Record
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES
from pertbase.knowledge._triplets import Triplet

__all__ = ["LETTERS", "SCHEMA", "Messages", "Template", "option_orders", "read_template", "reply_of"]

Messages = tuple[tuple[str, str], ...]
"""(role, content) of each turn: an optional system turn, then the user's."""

LETTERS = ("A", "B", "C")
SHORT = "short"
"""The name of the shipped templates in fewest words."""
_SECTIONS = ("system", "summary", "example", "question", "reply", "options")
_OPTIONAL = ("summary", "example")
_FIELDS = {
    "system": set[str](),
    "summary": {"gene", "sets"},
    "example": {"question", "reply"},
    "question": {"context", "perturbation", "gene", "levels", "paths", "summaries", "retrieved"},
    "reply": {"examples", "question", "gene"},
    "options": {"examples", "question", "gene", "options"},
}
_NEEDED = {"question": {"context", "perturbation", "gene"}, "reply": {"question"}, "options": {"question", "options"}}
_IN_WORDS = {"up": "it goes up", "down": "it goes down", "no_change": "no change"}
_NO_PATHS = "none is known"

SCHEMA = {
    "type": "object",
    "properties": {
        "triplets": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
        },
        "answer": {"type": "string", "enum": list(OUTCOMES)},
    },
    "required": ["triplets", "answer"],
    "additionalProperties": False,
}
"""What a reply is, for clients that can hold a model to it: triplets first, so that the answer follows the reason."""


@dataclass(frozen=True)
class Template:
    """A prompt's text with places for what a record says.

    Parameters
    ----------
    sections
        ``system`` (may be empty), ``example`` (one training question with its reply), ``question`` (what is asked),
        ``reply`` (the user's turn where a reason and an answer are wanted), ``options`` (where a letter is) and, for
        SUMMER, ``summary``. Places are ``$context``, ``$perturbation``, ``$gene``, ``$levels``, ``$paths``,
        ``$summaries`` and ``$retrieved`` in ``question``; ``$examples`` and ``$question`` in ``reply`` and ``options``;
        ``$options`` in ``options``; ``$question`` and ``$reply`` in ``example``; ``$gene`` and ``$sets`` in
        ``summary``.
    file
        Where it was read from.
    """

    sections: Mapping[str, str]
    file: str

    def __post_init__(self) -> None:
        for name in _SECTIONS:
            if name not in self.sections and name not in _OPTIONAL:
                raise InputError(
                    "a template lacks a section",
                    file=self.file,
                    key=name,
                    remedy=f"it has [[{']], [['.join(_SECTIONS)}]]",
                )
            places = set(Substitution(self.sections.get(name, "")).get_identifiers())
            if strange := sorted(places - _FIELDS[name]):
                known = ", ".join(f"${place}" for place in sorted(_FIELDS[name])) or "none"
                raise InputError(
                    f"[[{name}]] has a place that nothing fills",
                    file=self.file,
                    key=f"${strange[0]}",
                    remedy=f"known: {known}",
                )
            if missing := sorted(_NEEDED.get(name, set()) - places):
                raise InputError(
                    f"[[{name}]] lacks a place",
                    file=self.file,
                    key=f"${missing[0]}",
                    remedy="write it where the text is to go",
                )
        for name, text in self.sections.items():
            try:
                Substitution(text).substitute(dict.fromkeys(_FIELDS[name], ""))
            except ValueError as error:
                raise InputError(
                    f"[[{name}]] has a stray dollar sign", file=self.file, value=text, remedy="write $$ for one"
                ) from error

    @cached_property
    def hash(self) -> str:
        """Of its text: part of what identifies a response, by way of the rendered prompt."""
        return sha256_text(canonical_json(dict(self.sections)))

    @cached_property
    def _made(self) -> dict[str, Substitution]:
        return {name: Substitution(text) for name, text in self.sections.items()}

    def question(self, record: Record) -> str:
        """Return what is asked, without how to reply."""
        return self._made["question"].substitute(
            context=record.context,
            perturbation=record.perturbation,
            gene=record.gene,
            levels="; ".join(str(level) for level in record.levels),
            paths=_paths_told(record.paths),
            summaries=record.summaries,
            retrieved=record.retrieved,
        )

    def summary(self, gene: str, sets: Sequence[str]) -> Messages:
        """Return the prompt that asks what is known of a gene, from the names of the gene sets it is in.

        Raises
        ------
        InputError
            Where the template has no ``[[summary]]``.
        """
        if "summary" not in self._made:
            raise InputError("a template without [[summary]] asks for none", file=self.file, key="summary")
        return self._turns(self._made["summary"].substitute(gene=gene, sets="; ".join(sets)))

    def examples(self, examples: Sequence[Example]) -> str:
        """Return the text of the examples, for :meth:`reply`."""
        return self._examples([(self.question(one.record), reply_of(one.reason, one.outcome)) for one in examples])

    def option_examples(self, examples: Sequence[Example]) -> str:
        """Return the text of the examples with their outcomes in words, for :meth:`options`.

        Letters would say something else in every order of the options.
        """
        return self._examples([(self.question(one.record), f"Answer: {_IN_WORDS[one.outcome]}") for one in examples])

    def _examples(self, pairs: Sequence[tuple[str, str]]) -> str:
        if not pairs:
            return ""
        if "example" not in self._made:
            raise InputError("a template without [[example]] shows no examples", file=self.file, key="examples")
        made = self._made["example"]
        return "".join(made.substitute(question=question, reply=reply) + "\n" for question, reply in pairs)

    def reply(self, record: Record, examples: str = "") -> Messages:
        """Return the prompt that asks for a reason and an answer."""
        return self._turns(
            self._made["reply"].substitute(examples=examples, question=self.question(record), gene=record.gene)
        )

    def options(self, record: Record, order: Sequence[str], examples: str = "") -> Messages:
        """Return the prompt that asks for the letter of an outcome, the outcomes listed in an order."""
        text = self._made["options"].substitute(
            examples=examples, question=self.question(record), gene=record.gene, options=_options_told(order)
        )
        return self._turns(text)

    def _turns(self, user: str) -> Messages:
        system = self.sections["system"].strip()
        return ((("system", system),) if system else ()) + (("user", user),)


def _paths_told(paths: Paths | None) -> str:
    if not paths:
        return _NO_PATHS
    lines = ("; ".join(" ".join(triplet) for triplet in path) for path in paths)
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def _options_told(order: Sequence[str]) -> str:
    return "\n".join(f"{letter}. {_IN_WORDS[outcome]}" for letter, outcome in zip(LETTERS, order, strict=True))


def reply_of(reason: Sequence[Triplet], outcome: str, explanation: str = "") -> str:
    """Return a reply in the form that is asked for; an explanation stands between the triplets and the answer."""
    import json

    said = {"explanation": explanation} if explanation else {}
    made = {"triplets": [list(triplet) for triplet in reason], **said, "answer": outcome}
    return json.dumps(made, ensure_ascii=False)


def option_orders(n: int) -> tuple[tuple[str, ...], ...]:
    """Return orders of the outcomes: with 3, each outcome stands once at each letter; with 6, all there are.

    Raises
    ------
    InputError
        For another number than 1, 3 or 6.
    """
    if n not in (1, 3, 6):
        raise InputError("options are listed in 1, 3 or 6 orders", key="orders", value=n)
    if n == 6:
        return tuple(permutations(OUTCOMES))
    return tuple(OUTCOMES[shift:] + OUTCOMES[:shift] for shift in range(n))


def read_template(source: str | None, preset: str) -> Template:
    """Return the template of a preset, or a user's own file.

    Parameters
    ----------
    source
        A text file, or ``short``: the preset's in fewest words, which a model that is trained on it needs no more of.
        The preset's own where not given.
    preset
        See :data:`~pertbase.baselines.llm._record.PRESETS`.

    Raises
    ------
    InputError
        Where the file cannot be read, lacks a section, or has a place that nothing fills.
    """
    if source is None or source == SHORT:
        name = f"{preset}.txt" if source is None else f"{SHORT}_{preset}.txt"
        shipped = files("pertbase.baselines.llm").joinpath("templates", name)
        if not shipped.is_file():
            raise InputError("has no short template", key="preset", value=preset, remedy="name a file of your own")
        return Template(_sections(shipped.read_text(encoding="utf-8"), preset), f"templates/{name}")
    try:
        text = Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=source, key="template") from error
    return Template(_sections(text, source), source)


def _sections(text: str, file: str) -> dict[str, str]:
    parts = re.split(r"^\[\[(\w+)\]\][ \t]*\n", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    found: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name not in _SECTIONS:
            raise InputError(
                "a template has an unknown section", file=file, key=name, remedy=f"known: {', '.join(_SECTIONS)}"
            )
        # The line end before the next heading is the file's; what stands before it is the text's.
        found[name] = body.removesuffix("\n")
    return found
