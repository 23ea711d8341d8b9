"""From what a model wrote to an outcome, a status and a reason.

The ladder, first rung that holds, of what is not thought (one that does not end: ``truncated``): JSON; ``<answer>``
tags; JSON with its slips mended; the last line that begins with ``Answer:``; ``\\boxed{}``; a text that is an outcome
and hardly anything else. Below it, ``truncated``, ``refusal``, ``no_answer`` or ``invalid``. The chain of thought is
never searched for an answer, nor is what the template itself says. Several answers that differ are ``conflicting``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pertbase.baselines.llm._parsing._objects import ANSWER_KEYS, clean, key_of, objects, place_of_answer, whole_object
from pertbase.baselines.llm._parsing._thoughts import without_fence, without_thoughts
from pertbase.baselines.llm._parsing._words import in_short, outcomes_in
from pertbase.folds import OUTCOMES, STATUSES, vote
from pertbase.folds._reasons import MOST_TRIPLETS
from pertbase.knowledge._triplets import Triplet

__all__ = ["Parsed", "answer_place", "parse", "self_consistent"]

_TAG = re.compile(r"<(/?)answer>", flags=re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*+\{((?:[^{}]|\{[^{}]*\})*+)\}")
_LINE = re.compile(
    r"^(?:[^\S\n]|[>*_#\-])*+(?:(?:so|thus|therefore|hence)\b,?[ \t]*+)?(?:(?:the|my)[ \t]++)?(?:final[ \t]++)?"
    r"answer[ \t*_]*+(?:is\b)?[ \t*_]*+[:=][\s*_]*+(.+)$",
    flags=re.MULTILINE | re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"^\W*+(?:i['’]?m sorry|i am sorry|sorry|apologies|as an ai\b|"
    r"i (?:can(?:no|['’])?t|am (?:not able|unable)|won['’]t))",
    flags=re.IGNORECASE,
)
_KEYS = tuple(
    re.compile(rf"""["']\s*+{name.replace("_", "[ _]")}\s*+["']\s*+:\s*+["']\s*+""", flags=re.IGNORECASE)
    for name in ANSWER_KEYS
)
_AROUND = " \t\r\n\"'*_`"
"""What may stand around an outcome that is named."""
_REASONS = ("triplets", "reason", "reasoning", "path")
_ENDS = (("head", "relation", "tail"), ("subject", "predicate", "object"), ("source", "relation", "target"))
_MOST_WORDS = 8
_TRIPLET = re.compile(r'\[\s*+"([^"\[\]]++)"\s*+,\s*+"([^"\[\]]++)"\s*+,\s*+"([^"\[\]]++)"\s*+\]')
_OF_JSON = frozenset("{}[]<>")


@dataclass(frozen=True)
class Parsed:
    r"""What a response says.

    Parameters
    ----------
    outcome
        ``up``, ``down``, ``no_change`` or None.
    status
        One of :data:`~pertbase.folds.STATUSES`.
    triplets
        The reason; of a reply that was cut off or cannot be read, the triplets that stand in it whole.
    text
        What was written beside the triplets to explain them.
    dropped
        Members of the list of triplets that are none.
    rung
        Where the answer was found: ``json``, ``tag`` (``\boxed{}`` too), ``mended``, ``line``, ``word``, or empty.
    """

    outcome: str | None
    status: str
    triplets: tuple[Triplet, ...] = ()
    text: str = ""
    dropped: int = 0
    rung: str = ""


def parse(
    text: str | None,
    *,
    finish: str = "stop",
    names: Collection[str] = (),
    template_lines: Collection[str] = (),
    thought_begun: bool = False,
) -> Parsed:
    """Return what a response says.

    Parameters
    ----------
    text
        As it was returned.
    finish
        Why the model stopped: ``stop``, ``length``, ``content_filter`` or ``refusal``; ``rejected``, and nothing was
        answered.
    names
        Genes of the question, which are never read as a word for an outcome.
    template_lines
        Lines of the template: one that comes back whole is an echo, and no answer.
    thought_begun
        Whether the prompt ended within a thought, as chat templates do that end in ``<think>``: all is thought until it
        ends, and what does not end it comes to no answer. A reply that is JSON and nothing else, and ended by itself,
        was none: a model that is held to the form of a reply, or was taught it, writes that alone.
    """
    if finish in ("content_filter", "refusal"):
        return Parsed(None, "refusal")
    if finish == "rejected":
        return Parsed(None, "no_answer")
    cut_off = finish == "length"
    if not (text or "").strip():
        return Parsed(None, "truncated" if cut_off else "empty")
    seen = _seen(text or "", cut_off, template_lines, thought_begun)
    if seen is None:
        return Parsed(None, "no_answer" if thought_begun and not cut_off else "truncated")
    visible = seen.strip()
    found = _answered(visible, _rung(visible, names, cut_off), names)
    if found is not None and found.status != "no_answer":
        return found
    if cut_off:
        return Parsed(None, "truncated", _written_out(visible))
    if not visible:
        return Parsed(None, "empty")
    if _REFUSAL.match(visible):
        return Parsed(None, "refusal")
    return found or Parsed(None, "invalid", _written_out(visible))


def _seen(text: str, cut_off: bool, template_lines: Collection[str], thought_begun: bool) -> str | None:
    """Return a reply with blanks for what is not read, so that places stay what they are; None of an open thought."""
    seen = without_thoughts(clean(text), begun=thought_begun, stopped=not cut_off)
    if seen is None or not template_lines:
        return seen
    return "\n".join(" " * len(line) if line.strip() in template_lines else line for line in seen.split("\n"))


# -- where the answer stands --------------------------------------------------------------------------------

_Parts = list[tuple[int, int, dict[str, Any]]]
"""Where the answers on one rung begin and end, and the objects that they are in, empty where they are in none."""


def _rung(text: str, names: Collection[str], cut_off: bool) -> tuple[str, _Parts]:
    """Return the first rung that holds, and the answers on it; of the lines the last."""
    whole = whole_object(without_fence(text))
    if whole is not None:
        return "json", [(text.index("{"), text.rindex("}") + 1, _own(whole) or whole)]
    if tags := list(_tags(text)):
        return "tag", tags
    if held := [(start, end, own) for start, end, item in objects(text) if (own := _own(item))]:
        return "mended", held
    if lines := list(_LINE.finditer(text)):
        start, end = lines[-1].span(1)
        # What was cut off may have gone on: "up or".
        return "" if cut_off and end == len(text) and not _exact(text[start:]) else "line", [(start, end, {})]
    if boxes := list(_BOXED.finditer(text)):
        return "tag", [(*box.span(1), {}) for box in boxes]
    bare = text.lstrip("> \t")
    short = not cut_off and len(bare.split()) <= _MOST_WORDS and not set(bare) & _OF_JSON
    # Broken JSON is no word, whatever stands in it; nor is a word that stands at the end of what was cut off.
    if short and in_short(bare, names) and len(_said(bare, names)) == 1:
        return "word", [(len(text) - len(bare), len(text), {})]
    return "", []


def _tags(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    begin = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            begin = tag.end()
        elif begin is not None:
            item = whole_object(without_fence(text[begin : tag.start()].strip()))
            yield begin, tag.start(), (_own(item) if item else None) or {}
            begin = None


def _own(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object with the answer: itself, or the one within it that has one; None where there is none."""
    if key_of(item, ANSWER_KEYS):
        return item
    within = [value for value in item.values() if isinstance(value, dict) and key_of(value, ANSWER_KEYS)]
    return within[0] if len(within) == 1 else None


def answer_place(
    text: str,
    *,
    finish: str = "stop",
    names: Collection[str] = (),
    template_lines: Collection[str] = (),
    thought_begun: bool = False,
) -> int | None:
    """Return where the value of the answer begins in a reply, or None where the reply comes to no answer.

    What is before it is the reason, and what led to it. The rungs are those of :func:`parse`, and the place is that of
    the first answer on the rung, of the last on the rung of lines: what the value then says, be it no outcome at all,
    changes nothing. Of a thought that does not end, a refusal, or a reply that was cut off before its answer there is
    none.

    Parameters
    ----------
    text, finish, names, template_lines, thought_begun
        As :func:`parse` takes them.
    """
    if finish in ("content_filter", "refusal", "rejected"):
        return None
    seen = _seen(text, finish == "length", template_lines, thought_begun)
    if seen is None:
        return None
    visible = seen.strip()
    rung, parts = _rung(visible, names, finish == "length")
    if parts:
        start, end, item = parts[0]
        place = start if not item else _place_within(visible, start, end)
    else:
        # What was cut off within its answer, or before what closes it.
        place = next((tag.end() for tag in _TAG.finditer(visible) if not tag[1]), None)
        if place is None:
            place = _place_within(visible, 0, len(visible))
    if place is None:
        return None
    within = rung in ("json", "mended") or not parts
    begun = visible[place:] if within else visible[place:].lstrip(_AROUND)
    return len(seen) - len(seen.lstrip()) + len(visible) - len(begun)


def _place_within(text: str, start: int, end: int) -> int | None:
    """Return where the value of the answer begins that stands in JSON, be it whole or cut off."""
    place = place_of_answer(text[start:end])
    if place is not None:
        return start + place
    return next((found.end() for pattern in _KEYS if (found := pattern.search(text, start, end))), None)


# -- what the answers say -----------------------------------------------------------------------------------

_Reason = tuple[tuple[Triplet, ...], str, int]


def _answered(text: str, rung: tuple[str, _Parts], names: Collection[str]) -> Parsed | None:
    """Return what the answers on a rung say; None where there is no rung."""
    name, parts = rung
    if not name:
        return None
    said = [_part_said(item, text[start:end], names) for start, end, item in parts]
    # The reason is that of the last answer, or stands in an object of its own.
    own = [item for _, _, item in parts if key_of(item, _REASONS)]
    reason = _reason_of(own[-1]) if own else ((), "", 0) if name == "json" else _reason(text)
    return _together(said, name, reason)


def _together(said: Sequence[list[str]], rung: str, reason: _Reason) -> Parsed:
    """Return what several answers say together; each is the list of outcomes it names."""
    triplets, text, dropped = reason
    words = {outcome for one in said for outcome in one}
    if len(words) == 1:
        return Parsed(words.pop(), "ok", triplets, text, dropped, rung)
    return Parsed(None, "conflicting" if words else "no_answer", triplets, text, dropped)


def _part_said(item: dict[str, Any], text: str, names: Collection[str]) -> list[str]:
    if not item:
        return _said(text, names)
    key = key_of(item, ANSWER_KEYS)
    return _value_said(item[key], names) if key else []


def _value_said(value: Any, names: Collection[str]) -> list[str]:
    """Return the outcomes that the value of an answer names: a text, a list of texts, or an object with an answer."""
    if isinstance(value, str):
        return _said(value, names)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return [outcome for one in value for outcome in _said(one, names)]
    key = key_of(value, ANSWER_KEYS) if isinstance(value, dict) else None
    return _said(value[key], names) if key and isinstance(value[key], str) else []


def _said(phrase: str, names: Collection[str]) -> list[str]:
    exact = _exact(phrase)
    return [exact] if exact else outcomes_in(phrase, names)


def _exact(phrase: str) -> str | None:
    """Return the outcome that a phrase is, spelled as it was asked for."""
    exact = phrase.strip().strip(" .\"'*_`").casefold()
    return exact if exact in OUTCOMES else None


# -- reasons ------------------------------------------------------------------------------------------------


def _reason(text: str) -> _Reason:
    """Return the reason of a text whose answer stands elsewhere: of its last object that has one."""
    found = [item for _, _, item in objects(text) if key_of(item, _REASONS)]
    return _reason_of(found[-1]) if found else ((), "", 0)


def _reason_of(item: dict[str, Any]) -> _Reason:
    key = key_of(item, _REASONS)
    listed = item[key] if key else None
    told = next(
        (item[name] for name in ("explanation", "reasoning", "reason", "text") if isinstance(item.get(name), str)), ""
    )
    if not isinstance(listed, list):
        return (), clean(told), 0
    made = [_triplet(member) for member in listed[:MOST_TRIPLETS]]
    kept = tuple(triplet for triplet in made if triplet is not None)
    return kept, clean(told), len(listed) - len(kept)


def _written_out(text: str) -> tuple[Triplet, ...]:
    """Return the triplets that stand whole in a reply that cannot be read: it gives no answer, but a reason."""
    found = (_triplet(list(parts)) for parts in _TRIPLET.findall(text)[:MOST_TRIPLETS])
    return tuple(triplet for triplet in found if triplet is not None)


def _triplet(member: Any) -> Triplet | None:
    if isinstance(member, dict):
        member = next(([member[name] for name in ends] for ends in _ENDS if all(name in member for name in ends)), None)
    if not isinstance(member, list) or len(member) != 3:
        return None
    if not all(isinstance(part, str) and part.strip() for part in member):
        return None
    return Triplet(*(clean(part.strip()) for part in member))


# -- several samples ----------------------------------------------------------------------------------------


def self_consistent(samples: Sequence[Parsed], scores: np.ndarray | None = None) -> Parsed:
    """Return what several samples of one question say together.

    The outcome that most valid samples give; a tie goes to the larger option score, then as
    :func:`pertbase.folds.vote` has it. Samples without an outcome have no vote, and where none has one the most
    frequent status stands. The reason is that of the first sample with the outcome.

    Parameters
    ----------
    samples
        One or more.
    scores
        Option scores, shape (3,), where there are any.
    """
    valid = [sample for sample in samples if sample.outcome is not None]
    if not valid:
        statuses = [sample.status for sample in samples]
        status = max(STATUSES, key=lambda name: statuses.count(name))
        return next(sample for sample in samples if sample.status == status)
    counts = np.array([sum(sample.outcome == outcome for sample in valid) for outcome in OUTCOMES], dtype=np.float64)
    if scores is not None:
        tied = counts == counts.max()
        counts = np.where(tied, counts + scores / 2, counts)
    winner = OUTCOMES[int(vote(counts[None, :])[0])]
    return next(sample for sample in valid if sample.outcome == winner)
