"""Triplets: (head, relation, tail), the currency of reasons, and the sign a relation stands for."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["RELATIONS", "Triplet", "relation_sign", "relation_word"]

RELATIONS = {"activates": 1, "inhibits": -1, "affects": 0}
"""The relations that pertbase writes, with the sign of each."""

_WORDS = {
    1: (
        "activates activate activation activator upregulates upregulate upregulation induces induce induction "
        "increases increase increaseamount stimulates stimulate stimulation promotes promote enhances enhance positive "
        "positivelyregulates"
    ),
    -1: (
        "inhibits inhibit inhibition inhibitor represses repress repression downregulates downregulate downregulation "
        "decreases decrease decreaseamount suppresses suppress suppression blocks block reduces reduce negative "
        "negativelyregulates"
    ),
    0: (
        "affects affect binds bind binding phosphorylates phosphorylate phosphorylation dephosphorylates "
        "dephosphorylate dephosphorylation ubiquitinates ubiquitinate ubiquitination interacts interact interactswith "
        "interaction complex regulates regulate regulation regulateamount unknown"
    ),
}
_SIGNS = {word: sign for sign, words in _WORDS.items() for word in words.split()}


class Triplet(NamedTuple):
    """One claimed edge.

    Parameters
    ----------
    head, tail
        Gene symbols, or other names a graph has.
    relation
        What head does to tail; see :func:`relation_sign`.
    """

    head: str
    relation: str
    tail: str


def relation_sign(relation: str) -> int | None:
    """Return +1 for a relation that raises, -1 for one that lowers, 0 where it does not say, None for unknown words.

    Case, spaces, hyphens and underscores are not looked at: ``Positively regulates`` is ``positively_regulates``.
    """
    return _SIGNS.get(re.sub(r"[\s_\-]+", "", relation).lower())


def relation_word(sign: int) -> str:
    """Return the relation that pertbase writes for a sign: activates, inhibits or affects."""
    return next(word for word, value in RELATIONS.items() if value == sign)
