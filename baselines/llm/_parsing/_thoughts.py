"""What of a reply is thought, and is never searched for an answer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain

from pertbase.baselines.llm._parsing._objects import objects, whole_object

__all__ = ["without_fence", "without_thoughts"]

# The tags of models (Qwen, R1, Magistral, Kimi, Seed, OpenThinker, Command A), of prompts, and Harmony's channels, as
# pairs of what opens and what closes a thought. Where a server strips Harmony's marks, its headers remain.
_KINDS = {
    "think": (r"<think(?:ing)?>", r"</think(?:ing)?>"),
    "bracket": (r"\[THINK\]", r"\[/THINK\]"),
    "triangle": (r"◁think▷", r"◁/think▷"),
    "seed": (r"<seed:think>", r"</seed:think>"),
    "begin": (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    "start": (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    "thought": (r"<thoughts?>", r"</thoughts?>"),
    "reasoning": (r"<reasoning>", r"</reasoning>"),
    "reflection": (r"<reflection>", r"</reflection>"),
    "channel": (
        r"<\|channel\|>(?:analysis|commentary)[^<\n]{0,80}<\|message\|>",
        r"<\|end\|>|(?:<\|start\|>assistant)?<\|channel\|>final[^<\n]{0,80}<\|message\|>",
    ),
    "header": (r"\A\s*+analysis(?=[A-Z])", r"assistantfinal"),
}
_TAG = re.compile(
    "|".join(f"(?P<{name}>{opens})|(?P<end_{name}>{closes})" for name, (opens, closes) in _KINDS.items())
    + r"|(?P<mark><\|start\|>assistant|<\|channel\|>final|<\|(?:start|message|end|return)\|>)",
    flags=re.IGNORECASE,
)
_BEGINS = re.compile(r"[<\[◁]|assistantfinal")
"""What may be a tag, where the text does not begin with one: looked for much faster than tags are."""
_OF_PROMPTS = ("thought", "reasoning", "reflection")
"""Tags that a model is asked for, and no template opens: one that opens and closes within a thought does not end it."""
_MOST_LOOKED = 8
"""How often objects are looked for in the rest of one reply, so that time stays in proportion to it."""


def without_fence(text: str) -> str:
    """Return what stands in the code fence that a text is; the text where it is none."""
    if not (text.startswith("```") and text.endswith("```") and "\n" in text):
        return text
    inner = text[text.index("\n") + 1 : -3]
    return text if "```" in inner or " " in text[: text.index("\n")].strip() else inner.strip()


def without_thoughts(text: str, *, begun: bool, stopped: bool) -> str | None:
    """Return a reply with blanks for its thoughts, places staying what they are; None where the last does not end.

    A tag that stands within a JSON object is part of what that says. What is before a closing tag without an opening
    one is thought: some servers swallow the tag that the chat template wrote. Where nothing follows, or a thought
    begins and does not end, an object that is all of what was said before is the reply.

    Parameters
    ----------
    text
        As it was returned.
    begun
        Whether the prompt ended within a thought. A reply that is an object and nothing else was none, provided that
        it ended by itself: a model that was taught, or is held to, the form of a reply writes that alone.
    stopped
        Whether the reply ended by itself.
    """
    if begun and stopped and whole_object(without_fence(text.strip())) is not None:
        return text
    tags = _tags(text)
    first = next(tags, None)
    if not begun and (first is None or whole_object(text.strip()) is not None):
        return text
    return _Thoughts(text, begun).seen(() if first is None else chain((first,), tags))


def _tags(text: str) -> Iterator[re.Match[str]]:
    end = -1
    for place in chain((0,), (found.start() for found in _BEGINS.finditer(text))):
        if place >= end and (tag := _TAG.match(text, place)) is not None:
            yield tag
            end = tag.end()


class _Thoughts:
    """The thoughts of one text: ``hidden`` are the parts that are not seen."""

    def __init__(self, text: str, begun: bool) -> None:
        self._text = text
        self._begins, self._ends = len(text) - len(text.lstrip()), len(text.rstrip())
        self._kind, self._start = ("any" if begun else ""), 0
        """The kind of the thought that is open, if any, and where it began."""
        self._mentioned: set[str] = set()
        self._after = 0
        """Where the last thought ended."""
        self._hidden: list[tuple[int, int]] = []
        self._said = _Said(text)

    def seen(self, tags: Iterable[re.Match[str]]) -> str | None:
        """Return the text with blanks for thoughts, or None; see :func:`without_thoughts`."""
        for tag in tags:
            name = str(tag.lastgroup)
            closes, name = name.startswith("end_"), name.removeprefix("end_")
            if self._kind:
                self._within(tag, name, closes)
            elif not self._said.holds(tag.start(), self._after):
                self._outside(tag, name, closes)
        if self._kind:
            self._hidden.append((self._start, len(self._text)))
            if self._kind == "any" or not _in_form(self._blanked()):
                return None
        return self._blanked()

    def _within(self, tag: re.Match[str], name: str, closes: bool) -> None:
        kind = self._kind
        if name == "mark":
            return
        if not closes:
            self._mentioned.add(name)
            if kind == "any" and tag.start() == self._begins:
                # The model wrote the tag of its prompt again.
                self._kind = name
        elif kind == "any" and name in _OF_PROMPTS and name in self._mentioned:
            self._mentioned.discard(name)
        elif kind in ("any", name):
            self._hidden.append((self._start, tag.end()))
            self._kind, self._after = "", tag.end()

    def _outside(self, tag: re.Match[str], name: str, closes: bool) -> None:
        # Some models end every message with one of Harmony's marks, answers too.
        stray = name == "mark" or tag[0] == "<|end|>"
        if not closes and not stray:
            self._kind, self._start = name, tag.start()
            self._mentioned = set()
            return
        if not stray and tag.end() >= self._ends:
            stray = _in_form(self._blanked()[: tag.start()])
        if stray:
            self._hidden.append(tag.span())
        else:
            self._hidden = [(0, tag.end())]
        self._after = tag.end()

    def _blanked(self) -> str:
        pieces, place = [], 0
        for start, end in self._hidden:
            pieces += [self._text[place:start], " " * (end - start)]
            place = end
        return "".join(pieces) + self._text[place:]


def _in_form(text: str) -> bool:
    """Return whether a text is made of objects: begins with one, and ends with one."""
    part = without_fence(text.strip())
    return part.startswith("{") and part.endswith("}") and any(True for _ in objects(part))


class _Said:
    """Which parts of a text are objects, looked for as needed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._from = -1
        self._looked = 0
        self._spans: list[tuple[int, int]] = []

    def holds(self, place: int, after: int) -> bool:
        """Return whether a place is within an object that begins behind ``after``, where the last thought ended."""
        if self._from != after:
            if self._looked == _MOST_LOOKED or "{" not in self._text[after:place]:
                return False
            self._from, self._looked = after, self._looked + 1
            self._spans = [(start, end) for start, end, _ in objects(self._text, after)]
        row = bisect_left(self._spans, (place,)) - 1
        return row >= 0 and self._spans[row][1] > place
