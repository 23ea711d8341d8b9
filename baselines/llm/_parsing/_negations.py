"""Patterns of what makes a named outcome none: negations, hedges, doubt, and what only looks like an outcome.

All are of words in lower case with single blanks between them, and ``not`` for every ``n't``.
"""

from __future__ import annotations

import re

__all__ = [
    "CHANGED",
    "HEDGED",
    "HOLDER",
    "NEARLY_NOT",
    "NOT",
    "NO_OUTCOME",
    "SHORT_NOT",
    "UNDETERMINED",
    "UNLIKELY",
]

SHORT_NOT = re.compile(
    r"\b(does|do|did|is|are|was|were|would|could|should|has|have|had|must|wo|ca|can)(?:nt| nt|not)\b"
)
"""``doesnt``, ``cannot``: the verb, and a negation that is written to it."""

NOT = (
    r"(?:not|no|never|neither|nor|hardly|barely|scarcely|unlikely|improbable|impossible|implausible|"
    r"fail(?:s|ed|ing)? to|unable to|insufficient to|rul(?:es?|ed|ing) out|exclud(?:es?|ed|ing)|preclud(?:es?|ed|ing)|"
    r"prevent(?:s|ed|ing)?|rather than|instead of|as opposed to|other than|far from|against|stops?|resists?|cease[sd]?)"
)
"""Negates what comes within a few words."""
NEARLY_NOT = r"(?:without|(?:absence|lack|loss) of|lacks|non|less)"
"""Negates what comes next."""
UNLIKELY = (
    r"(?:unlikely|impossible|improbable|implausible|excluded|ruled out|doubtful|not (?:\w+ )?(?:possible|expected|"
    r"likely|supported|seen|observed|plausible|the case|predicted|detected|found|indicated|correct|true|the answer))"
)
"""Negates what came before."""
CHANGED = (
    r"(?:changes?|changed|effects?|affect(?:ed)?|alter(?:ed)?|different(?:ial)?(?:ly)?|difference|"
    r"differentially expressed|significant|response|respond)"
)
"""Negated, it is no change."""

HEDGED = re.compile(
    r"\b(?:maybe|perhaps|possibly|may|might|could|potentially|conceivably|whether|if|unless|assuming|suppos(?:e|ed|ing)|"
    r"i (?:guess|wonder))\b"
)
"""A clause with one of these is no answer."""
_NO_WAY = (
    r"(?:(?:can?|could|would|do|does|did) not|impossible to|hard to|difficult to|not possible to|unable to|no way to|"
    r"not able to)"
)
UNDETERMINED = re.compile(
    rf"\b(?:{_NO_WAY} (?:(?:be|reliably|confidently|really|clearly|fully) )*+"
    r"(?:determin|tell|told|say|said|predict|know|decid|infer|conclud|answer|assess|judg|establish|guess)\w*|"
    r"not (?:sure|certain|clear|known|enough (?:information|data|evidence)|predictable|determinable|determined|"
    r"decided)|unsure|uncertain|unclear|unknown|undetermined|indeterminate|undecided|ambiguous|no idea|depends|"
    r"insufficient (?:information|data|evidence))\b"
)
"""Where this comes before an outcome, none is given."""

HOLDER = (
    r"(?:(?:co ?)?repressors?|repression|inhibitors?|inhibition|silencers?|silencing|suppressors?|suppression|"
    r"antagonists?)"
)
"""What holds a gene back: where that goes, the gene goes the other way."""

# "give up" is no rise and "knocked down" no fall; "shows up-regulation" is one.
_WITH_UP = (
    r"giv(?:e|es|en|ing)|gave|sets?|setting|ends?|ended|makes?|made|making|look(?:s|ed|ing)?|follow(?:s|ed|ing)?|"
    r"show(?:s|ed|n|ing)?|comes?|came|coming|brings?|brought|pick(?:s|ed|ing)?|tak(?:e|es|en|ing)|took|"
    r"start(?:s|ed|ing)?|back(?:s|ed|ing)?|buil(?:ds?|t|ding)|clean(?:s|ed)?|clear(?:s|ed)?|holds?|held|sums?|summed|"
    r"wraps?|mix(?:es|ed)?|speeds?|sped|catch(?:es)?|caught|stands?|stood|hangs?|hung|rounds?|splits?|warms?|wakes?|"
    r"open(?:s|ed)?|bottom|writ(?:e|es|ten)|wrote|screw(?:s|ed)?|mess(?:es|ed)?|us(?:e|es|ed)"
)
_WITH_DOWN = (
    r"knock(?:s|ed|ing)?|pull(?:s|ed|ing)?|shut(?:s|ting)?|breaks?|broken?|writ(?:e|es|ten)|wrote|slow(?:s|ed|ing)?|"
    r"settl(?:e|es|ed)|top|narrow(?:s|ed)?|tears?|torn|sits?|put|calm(?:s|ed)?|lets?|stands?|count(?:s|ed)?"
)
NO_OUTCOME = re.compile(
    rf"\b(?:(?:(?:{_WITH_UP}) up|(?:{_WITH_DOWN}) down)(?! ?regulat)|(?:comes?|came|boils?) down to|"
    r"(?:up|down) stream|ups and downs|up and running|up to date|de ?repress\w*|"
    r"(?:lower|higher) (?:bounds?|limits?|orders?)|(?:no|without a|without) (?:doubt|question)|"
    r"not (?:only|surprising(?:ly)?|unexpected(?:ly)?)|no wonder)\b"
    r"|(?<!goes )(?<!go )(?<!going )(?<!gone )(?<!went )\bup to\b"
)
"""Words that look like an outcome, or like a negation, and are none."""
