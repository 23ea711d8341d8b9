"""Words for outcomes: which ones a phrase names, negations first."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["outcomes_in"]

_UP = r"(?:up(?: ?regulat(?:ed|es|e|ion|ing))?|increas(?:es|ed|e|ing)|induced|elevated|higher|raised|rises|rise)"
_DOWN = (
    r"(?:down(?: ?regulat(?:ed|es|e|ion|ing))?|decreas(?:es|ed|e|ing)|lower(?:ed)?|reduced|repressed|suppressed|"
    r"falls|fall|drops)"
)
_EITHER = rf"(?:{_UP}|{_DOWN})"
_NOT = r"(?:not|n t|no|never|neither|without|nor|hardly)"
# up to three words between a negation and what it negates: "not be significantly upregulated"
_FILL = r"(?: (?!but\b|rather\b|instead\b)\w+){0,3}?"
_BOTH = re.compile(rf"\b{_NOT}{_FILL} {_EITHER}(?: (?:or|nor|and)(?: \w+)?? {_EITHER})+\b")
_NONE = re.compile(
    rf"\b(?:{_NOT}{_FILL} (?:changes?|changed|effects?|affect(?:ed)?|alter(?:ed)?|different(?:ial)?(?:ly)?|difference|"
    r"differentially expressed|significant|response|respond)|nochange|unchanged|unaffected|unaltered|"
    r"(?:stays?|remains?|is) (?:about |roughly )?(?:the same|stable|constant|similar))\b(?: change)?"
)
_NEGATED = {"up": re.compile(rf"\b{_NOT}{_FILL} {_UP}\b"), "down": re.compile(rf"\b{_NOT}{_FILL} {_DOWN}\b")}
_PLAIN = {"up": re.compile(rf"\b{_UP}\b"), "down": re.compile(rf"\b{_DOWN}\b")}
_LEAD = re.compile(r"^\s*(?:yes|no)\s*[,;:.]\s*(?=\w)", flags=re.IGNORECASE)


def outcomes_in(phrase: str, names: Collection[str] = ()) -> list[str]:
    """Return the outcomes that a phrase names, each once; several, and the phrase does not decide.

    Words count whole, in any case: ``NOTCH1`` is no negation, ``UPP1`` no rise. A negation is looked at before what it
    negates: ``not upregulated`` names nothing, since it may go down or stay; ``neither up nor down`` and ``no
    significant change`` name ``no_change``; ``not up but down`` names ``down``.

    Parameters
    ----------
    phrase
        The text of an answer, not of a chain of thought.
    names
        Genes of the question. They are taken out first, spelled as they are.
    """
    for name in sorted(names, key=len, reverse=True):
        phrase = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", " ", phrase)
    phrase = _LEAD.sub("", phrase)
    # "no_change", "up-regulated" and "isn't" as words; what else is not a letter parts clauses.
    words = re.sub(r"[_\-‐‑–*`\"“”]+", " ", phrase.casefold())
    words = re.sub(r"['’]", " ", words)
    words = re.sub(r"(\w)n t\b", r"\1 n t", words)
    words = re.sub(r"[ \t]+", " ", words)
    found = []
    for pattern in (_BOTH, _NONE):
        words, count = pattern.subn(" ; ", words)
        if count and "no_change" not in found:
            found.append("no_change")
    for pattern in _NEGATED.values():
        words = pattern.sub(" ; ", words)
    found += [outcome for outcome, pattern in _PLAIN.items() if pattern.search(words)]
    return found
