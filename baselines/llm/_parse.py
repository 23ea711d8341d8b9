"""From what a model wrote to an outcome, a status and a reason.

The ladder, first rung that holds: the think block is cut off (one that does not end: ``truncated``); JSON, or
``<answer>`` tags; JSON with its slips mended; the last line that begins with ``Answer:``; a text that is an outcome and
nothing else. Below it, ``truncated``, ``refusal``, ``no_answer`` or ``invalid``. The chain of thought is never searched
for an answer, nor is what the template itself says. Several answers that differ are ``conflicting``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pertbase.baselines.llm._words import outcomes_in
from pertbase.folds import OUTCOMES, STATUSES, vote
from pertbase.folds._reasons import MOST_TRIPLETS
from pertbase.knowledge._triplets import Triplet

__all__ = ["Parsed", "parse", "self_consistent"]

_THINK = re.compile(r"<think(?:ing)?>(.*?)</think(?:ing)?>", flags=re.DOTALL | re.IGNORECASE)
_THINK_ENDS = re.compile(r"^.*</think(?:ing)?>", flags=re.DOTALL | re.IGNORECASE)
_THINK_OPENS = re.compile(r"<think(?:ing)?>", flags=re.IGNORECASE)
_TAG = re.compile(r"<answer>(.*?)</answer>", flags=re.DOTALL | re.IGNORECASE)
_LINE = re.compile(
    r"^[\s>*_#\-]*(?:my\s+)?(?:final\s+)?answer[\s*_]*(?:is\b)?[\s*_]*[:=][\s*_]*(.+)$",
    flags=re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r"^```[\w-]*[ \t]*\n(.*?)\n?```\s*$", flags=re.DOTALL)
_REFUSAL = re.compile(
    r"^\W*(?:i['’]?m sorry|i am sorry|sorry|apologies|as an ai\b|"
    r"i (?:can(?:no|['’])?t|am (?:not able|unable)|won['’]t))",
    flags=re.IGNORECASE,
)
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', flags=re.DOTALL)
_TRAILING = re.compile(r",(\s*[\]}])")
_ANSWERS = ("answer", "outcome", "final_answer", "prediction")
_REASONS = ("triplets", "reason", "reasoning", "path")
_ENDS = (("head", "relation", "tail"), ("subject", "predicate", "object"), ("source", "relation", "target"))
_MOST_WORDS = 4
_TRIPLET = re.compile(r'\[\s*"([^"\[\]]+)"\s*,\s*"([^"\[\]]+)"\s*,\s*"([^"\[\]]+)"\s*\]')
_OF_JSON = frozenset("{}[]<>")


@dataclass(frozen=True)
class Parsed:
    """What a response says.

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
        Where the answer was found: ``json``, ``tag``, ``mended``, ``line``, ``word``, or empty.
    """

    outcome: str | None
    status: str
    triplets: tuple[Triplet, ...] = ()
    text: str = ""
    dropped: int = 0
    rung: str = ""


def parse(
    text: str | None, *, finish: str = "stop", names: Collection[str] = (), template_lines: Collection[str] = ()
) -> Parsed:
    """Return what a response says.

    Parameters
    ----------
    text
        As it was returned.
    finish
        Why the model stopped: ``stop``, ``length``, ``content_filter`` or ``refusal``.
    names
        Genes of the question, which are never read as a word for an outcome.
    template_lines
        Lines of the template: one that comes back whole is an echo, and no answer.
    """
    if finish in ("content_filter", "refusal"):
        return Parsed(None, "refusal")
    visible = _without_thought(text or "")
    if visible is None:
        return Parsed(None, "truncated")
    if template_lines:
        visible = "\n".join(line for line in visible.split("\n") if line.strip() not in template_lines)
    visible = visible.strip()
    found = _answered(visible, names)
    # A word that stands at the end of what was cut off is no answer.
    cut_off = finish == "length" and found is not None and found.rung == "word"
    if found is not None and found.status != "no_answer" and not cut_off:
        return found
    if finish == "length":
        return Parsed(None, "truncated", _written_out(visible))
    if not visible:
        return Parsed(None, "empty")
    if _REFUSAL.match(visible):
        return Parsed(None, "refusal")
    return found or Parsed(None, "invalid", _written_out(visible))


def _without_thought(text: str) -> str | None:
    """Return what follows the think blocks; None where one does not end."""
    visible = _THINK.sub("", text)
    # Some servers swallow the opening tag, which the chat template wrote.
    visible = _THINK_ENDS.sub("", visible)
    return None if _THINK_OPENS.search(visible) else visible


def _answered(text: str, names: Collection[str]) -> Parsed | None:
    fence = _FENCE.match(text)
    whole = _loaded(fence[1] if fence else text)
    if isinstance(whole, dict):
        return _from_objects([whole], "json", names)
    if tags := _TAG.findall(text):
        return _together([_said(tag, names) for tag in tags], "tag", _reason(text))
    if objects := [item for item in _objects(text) if _key(item, _ANSWERS)]:
        return _from_objects(objects, "mended", names)
    if lines := _LINE.findall(text):
        return _together([_said(lines[-1], names)], "line", _reason(text))
    # Broken JSON is no word, whatever stands in it.
    if len(text.split()) <= _MOST_WORDS and not set(text) & _OF_JSON and len(said := _said(text, names)) == 1:
        return _together([said], "word", ((), "", 0))
    return None


_Reason = tuple[tuple[Triplet, ...], str, int]


def _from_objects(objects: Sequence[dict[str, Any]], rung: str, names: Collection[str]) -> Parsed:
    said = []
    for item in objects:
        key = _key(item, _ANSWERS)
        value = item[key] if key else None
        said.append(_said(value, names) if isinstance(value, str) else [])
    return _together(said, rung, _reason_of(objects[-1]))


def _together(said: Sequence[list[str]], rung: str, reason: _Reason) -> Parsed:
    """Return what several answers say together; each is the list of outcomes it names."""
    triplets, text, dropped = reason
    words = {outcome for one in said for outcome in one}
    if len(words) == 1:
        return Parsed(words.pop(), "ok", triplets, text, dropped, rung)
    return Parsed(None, "conflicting" if words else "no_answer", triplets, text, dropped)


def _said(phrase: str, names: Collection[str]) -> list[str]:
    phrase = phrase.strip()
    exact = phrase.strip(" .\"'*_`").casefold()
    if exact in OUTCOMES:
        return [exact]
    return outcomes_in(phrase, names)


# -- JSON ---------------------------------------------------------------------------------------------------


class _Twice(ValueError):
    """One key with two values."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise _Twice(key)
        found[key] = value
    return found


def _loaded(text: str) -> Any:
    """Return JSON as it stands, or None."""
    if not text.startswith("{"):
        return None
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a text, outermost ones, with their slips mended; what cannot be read is left out."""
    for span in _spans(text):
        mended = _TRAILING.sub(r"\1", _COMMENT.sub(lambda match: match[1] or "", span))
        for attempt in (span, mended, _double_quoted(mended)):
            try:
                made = json.loads(attempt, object_pairs_hook=_unique)
            except _Twice:
                yield {"answer": " ".join(OUTCOMES)}
                break
            except (ValueError, RecursionError):
                continue
            if isinstance(made, dict):
                yield made
            break


def _spans(text: str) -> Iterator[str]:
    """Yield the outermost balanced braces of a text; braces within double quotes do not count."""
    depth, start, quoted, escaped = 0, 0, False, False
    for place, letter in enumerate(text):
        if quoted:
            quoted, escaped = (letter != '"' or escaped), (letter == "\\" and not escaped)
        elif letter == '"' and depth:
            quoted, escaped = True, False
        elif letter == "{":
            start = start if depth else place
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
            if not depth:
                yield text[start : place + 1]


def _double_quoted(text: str) -> str:
    """Return single-quoted JSON, as Python prints dictionaries, double-quoted; unchanged where it has double quotes."""
    return text if '"' in text else text.replace("'", '"')


def _key(item: dict[str, Any], wanted: Sequence[str]) -> str | None:
    by_name = {str(key).strip().casefold().replace(" ", "_"): key for key in item}
    return next((by_name[name] for name in wanted if name in by_name), None)


# -- reasons ------------------------------------------------------------------------------------------------


def _reason(text: str) -> _Reason:
    """Return the reason of a text whose answer stands outside JSON: of its last object that has one."""
    found = [item for item in _objects(text) if _key(item, _REASONS)]
    return _reason_of(found[-1]) if found else ((), "", 0)


def _reason_of(item: dict[str, Any]) -> _Reason:
    key = _key(item, _REASONS)
    listed = item[key] if key else None
    told = next(
        (item[name] for name in ("explanation", "reasoning", "reason", "text") if isinstance(item.get(name), str)), ""
    )
    if not isinstance(listed, list):
        return (), told, 0
    made = [_triplet(member) for member in listed[:MOST_TRIPLETS]]
    kept = tuple(triplet for triplet in made if triplet is not None)
    return kept, told, len(listed) - len(kept)


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
    return Triplet(*(part.strip() for part in member))


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
