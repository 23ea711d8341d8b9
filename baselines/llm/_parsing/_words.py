"""Words for outcomes: which ones a phrase names. What is negated, hedged or said of something else names none."""

from __future__ import annotations

import re
from collections.abc import Collection

from pertbase.baselines.llm._parsing._negations import (
    CHANGED,
    HEDGED,
    HOLDER,
    NEARLY_NOT,
    NO_OUTCOME,
    NOT,
    SHORT_NOT,
    UNDETERMINED,
    UNLIKELY,
)

__all__ = ["in_short", "outcomes_in"]

_UP = r"(?:up(?: ?regulat(?:ed|es|e|ion|ing))?|increas(?:es|ed|e|ing)|induced|elevated|higher|raised|rises|rise)"
_DOWN = (
    r"(?:down(?: ?regulat(?:ed|es|e|ion|ing))?|decreas(?:es|ed|e|ing)|lower(?:ed)?|reduced|repressed|suppressed|"
    r"falls|fall|drops)"
)
_NAMED = re.compile(rf"\b(?:(?P<UP>{_UP})|(?P<DOWN>{_DOWN})|(?P<SAME>no ?change|unchanged|unaffected|unaltered))\b")
# Once found, outcomes are words in capitals; "lower", which may be said of much else, is DOWN_, "down" is DOWN.
_ONE = r"(?:UP|DOWN|SAME)_?"
_EITHER = r"(?:UP|DOWN)_?"
_MEANS = {"UP": "up", "DOWN": "down", "SAME": "no_change"}
# What may stand between a negation and what it negates: "not be significantly upregulated"
_FILL = r"(?: (?!but\b|rather\b|instead\b)\w+){0,3}?"
_FAR = r"(?: (?!but\b|rather\b|instead\b|and (?:it|is|goes?|the|its|this|expression|will|would)\b)\w+){0,8}?"
_NEAR = r"(?: (?:a|an|any|the|further|significant|significantly|clear|strong|strongly)\b)*+"
_AND = r",? (?:(?:or|nor)(?: \w+)??|and)"
_BOTH = re.compile(
    rf"\b(?:{NOT}|without){_FILL} {_EITHER}(?:,? {_EITHER})*(?:{_AND} (?:{_EITHER}|{CHANGED}))+\b(?! of\b)"
)
_NONE = re.compile(
    rf"\b(?:(?:{NOT}|without){_FILL} {CHANGED}|{NEARLY_NOT}{_NEAR} {CHANGED}|"
    r"(?:stays?|remains?|is) (?:about |roughly )?(?:the same|stable|constant|similar))\b(?: change)?"
)
_OR_NOT = re.compile(rf"({_ONE}) or (?:not|stays?|remains?|nothing|neither|none)\b")
_NEGATED = re.compile(rf"\b(?:{NOT}{_FAR}|{NEARLY_NOT}{_NEAR}) {_ONE}(?:{_AND} {_ONE})*\b")
_RULED_OUT = re.compile(rf"\b{_ONE}(?: \w+){{0,3}}? {UNLIKELY}\b")
_OF_HOLDER = re.compile(rf"\b{_ONE}(?: (?:in|of|the|its|a|an)\b)*+ {HOLDER}\b")
_BY_HOLDER = re.compile(rf"\b{HOLDER}\b(?:(?! and ).)*+", flags=re.DOTALL)

_LEAD = re.compile(r"^\s*(?:yes|no)\s*[,;:.]\s*(?=\w)", flags=re.IGNORECASE)
_BOXED = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf|fbox)\s*\{([^{}]*)\}")
_SIGNS = str.maketrans(
    dict.fromkeys("↑⬆⇑↗⬈", " up ")
    | dict.fromkeys("↓⬇⇓↘⬊", " down ")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\ufe0e\ufe0f")
    | dict.fromkeys('_-‐‑–*`"“”$', " ")
)
_ARROW = re.compile(r"\\(?:long)?(up|down)arrow\b", flags=re.IGNORECASE)
_REMARK = re.compile(
    r", ?(?:i (?:think|believe|guess|expect|suppose)|however|therefore|in my (?:view|opinion)|as expected) ?,"
)
_PARTS = re.compile(
    r"([.;:!?()\[\]{}/|,=→\n]|\b(?:but|so|therefore|thus|hence|because|since|as a result|due to|owing to|although|"
    r"even (?:if|though|when)|though|however|whereas|while|instead(?! of)|rather(?! than)|yet)\b)"
)
_WHY = (
    "because",
    "since",
    "due to",
    "owing to",
    "although",
    "even if",
    "even though",
    "even when",
    "though",
    "whereas",
)
_BEGINS_WHY = re.compile(r" ?(?:as|given)\b")
_GENE = re.compile(r"\b(?=\w*[A-Z])(?=\w*\d)\w[\w-]*")
_SHORT = re.compile(
    r"(?:the|an?|my|final|answer|outcome|prediction|result|here|is|are|its?|s|this|that|gene|expression|levels?|of|in|for|"
    r"go|goes|going|gets?|will|would|should|be|to|one|word|likely|probably|significantly|strongly|therefore|so|thus|\d+|"
    rf"{_ONE})"
)


def outcomes_in(phrase: str, names: Collection[str] = ()) -> list[str]:
    """Return the outcomes that a phrase names, each once; several, and the phrase does not decide.

    Words count whole, in any case: ``NOTCH1`` is no negation, ``UPP1`` no rise. What is negated names nothing: ``not
    upregulated`` may go down or stay. So does what is hedged (``may go up``, ``up?``, ``cannot be determined``), is no
    outcome (``knocked down``, ``give up``, ``derepressed``), or is said of what holds a gene back (``its repressor is
    reduced``). ``neither up nor down`` and ``no significant change`` name ``no_change``; ``not up but down`` names
    ``down``. In brackets behind an outcome, and in a clause that says why, words such as ``lower`` name no other.

    Parameters
    ----------
    phrase
        The text of an answer, not of a chain of thought.
    names
        Genes of the question. They are taken out first, spelled as they are.
    """
    words = _marked(_without_names(phrase, names))
    doubt, first = UNDETERMINED.search(words), re.search(rf"\b{_ONE}\b", words)
    if first is None or (doubt is not None and doubt.start() < first.start()):
        return []
    named = _by_clause(words)
    return [outcome for mark, outcome in _MEANS.items() if named & {mark, f"{mark}_"}]


def in_short(phrase: str, names: Collection[str] = ()) -> bool:
    """Return whether a phrase says an outcome and hardly anything else: ``The gene goes down.``, ``It is up``."""
    words = _marked(_GENE.sub(" ", _without_names(phrase, names)))
    return all(_SHORT.fullmatch(word) for word in re.findall(r"\w+", words))


def _without_names(phrase: str, names: Collection[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        if name in phrase:
            phrase = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", " ", phrase)
    return phrase


def _marked(phrase: str) -> str:
    """Return the words of a phrase in lower case, outcomes marked, with what is none left out."""
    for _ in range(2):
        phrase = _BOXED.sub(r" \1 ", phrase)
    words = _LEAD.sub("", _ARROW.sub(r" \1 ", phrase.replace("\\_", " ")).translate(_SIGNS)).casefold()
    # "isn't" and "doesnt" as words; then blanks of every kind, one each.
    words = re.sub(r"n['’ʼ]t\b", " not ", words)
    words = SHORT_NOT.sub(r"\1 not", words)
    words = re.sub(r"['’ʼ]", " ", words)
    words = re.sub(r"[^\S\n]+", " ", words)
    words = words.replace("anything but", "not").replace("nothing but", " ")
    words = NO_OUTCOME.sub(" ", _REMARK.sub(" ", words))
    words = _NAMED.sub(_mark, re.sub(r" +", " ", words))
    words = _NONE.sub("SAME", _BOTH.sub("SAME", words))
    return _OR_NOT.sub(r"\1 or SAME", words)


def _mark(found: re.Match[str]) -> str:
    mark = str(found.lastgroup)
    return mark if mark == "SAME" or found[0].startswith(mark.lower()) else f"{mark}_"


def _by_clause(words: str) -> set[str]:
    """Return the marks that clauses name; where no other does, those that say why, or ``lower`` in brackets."""
    outside: set[str] = set()
    within: set[str] = set()
    reasons: set[str] = set()
    parts = ["", *_PARTS.split(words), ""]
    deep, why = 0, False
    for before, clause, behind in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        deep += (before in ("(", "[", "{")) - (before in (")", "]", "}") and deep > 0)
        # "Since A goes up, it goes down": what a sentence begins with ends at its comma.
        why = before in _WHY or bool(_BEGINS_WHY.match(clause)) or (why and bool(outside) and before in (",", "(", ")"))
        if behind == "?" or HEDGED.search(clause) or UNDETERMINED.search(clause):
            continue
        clause = _BY_HOLDER.sub(" ", _OF_HOLDER.sub(" ", clause))
        clause = _NEGATED.sub(" ", _RULED_OUT.sub(" ", clause))
        (reasons if why else within if deep else outside).update(re.findall(rf"\b{_ONE}\b", clause))
    if outside:
        return outside | {mark for mark in within if not mark.endswith("_")}
    return within or reasons
