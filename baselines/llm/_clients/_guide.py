"""Holding a model on this machine to the form of a reply: which tokens may follow what was written so far.

The form is that of :data:`~pertbase.baselines.llm._prompts.SCHEMA` as ``json.dumps`` writes it, with relations out of
three words and names without blanks. It is a machine of states and characters; a token may follow where all of its
characters do. What a model thinks of the tokens that are left is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pertbase.folds import OUTCOMES
from pertbase.knowledge._triplets import RELATIONS

__all__ = ["FORM", "Form", "Guide", "Held"]

FORM = 1
"""Counts up when the form changes: what was said under another is no answer to this one."""

_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_WITHIN = _NAME + "-_.:/"
_LONGEST = 24
"""Characters of a name: a model that repeats itself within one comes to an end."""
_OPEN, _CLOSE = '{"triplets": [', '], "answer": "'
_PER_TRIPLET, _PER_FRAME = 20, 12
"""Tokens that a triplet of gene symbols, and all else of a reply, take in the tokenizers looked at."""


class Form:
    """The characters of a reply: states are numbers, 0 the first one, and ``end`` is where it is whole.

    Parameters
    ----------
    most
        Triplets.
    """

    def __init__(self, most: int) -> None:
        self.moves: list[dict[str, int]] = [{}]
        self.end = self._new()
        listed, closed = self._text(0, _OPEN), self._new()
        self.moves[listed]["]"] = closed
        for number in range(most):
            begun = listed if number == 0 else self._text(listed, ", ")
            relation = self._text(self._name(self._text(begun, '["')), ', "')
            told = self._new()
            for word in RELATIONS:
                self._text(relation, f'{word}"', told)
            listed = self._text(self._name(self._text(told, ', "')), "]")
            self.moves[listed]["]"] = closed
        answer = self._text(closed, _CLOSE[1:])
        said = self._new()
        for outcome in OUTCOMES:
            self._text(answer, f'{outcome}"', said)
        self._text(said, "}", self.end)

    @classmethod
    def within(cls, max_tokens: int) -> Form:
        """Return the form of a reply that ends within some tokens, as far as names are those of genes."""
        return cls(max(1, (max_tokens - _PER_FRAME) // _PER_TRIPLET))

    def _new(self) -> int:
        self.moves.append({})
        return len(self.moves) - 1

    def _text(self, start: int, text: str, end: int | None = None) -> int:
        """Return where a text leads: to ``end``, where that is given. Texts from one state may begin alike."""
        for letter in text[:-1]:
            if letter not in self.moves[start]:
                self.moves[start][letter] = self._new()
            start = self.moves[start][letter]
        self.moves[start][text[-1]] = self._new() if end is None else end
        return self.moves[start][text[-1]]

    def _name(self, start: int) -> int:
        """Return where a name with its closing quote leads."""
        end = self._new()
        letters = _NAME
        for place in range(_LONGEST):
            following = self._new()
            self.moves[start].update(dict.fromkeys(letters, following))
            if place:
                self.moves[start]['"'] = end
            start, letters = following, _WITHIN
        self.moves[start]['"'] = end
        return end


class _Node:
    """Tokens by their characters: a token stands at the node that its characters lead to."""

    __slots__ = ("following", "tokens")

    def __init__(self) -> None:
        self.following: dict[str, _Node] = {}
        self.tokens: list[int] = []


class Guide:
    """Which tokens of a tokenizer may follow at each state of a form.

    Parameters
    ----------
    form
        What a reply is.
    tokenizer
        Of transformers, whose tokens are pieces of text.
    ends
        Tokens that end a reply.
    """

    def __init__(self, form: Form, tokenizer: Any, ends: Iterable[int]) -> None:
        self.form = form
        self._ends = sorted(ends)
        self._texts = _texts(tokenizer, {letter for moves in form.moves for letter in moves})
        self._root = _Node()
        self._allowed: dict[int, list[int]] = {}
        for token, text in self._texts.items():
            node = self._root
            for letter in text:
                node = node.following.setdefault(letter, _Node())
            node.tokens.append(token)

    def allowed(self, state: int) -> list[int]:
        """Return the tokens that may follow; those that end a reply where it is whole."""
        if state not in self._allowed:
            found = list(self._ends) if state == self.form.end else sorted(self._reached(state))
            self._allowed[state] = found
        return self._allowed[state]

    def _reached(self, state: int) -> Iterator[int]:
        waiting = [(self._root, state)]
        while waiting:
            node, at = waiting.pop()
            moves = self.form.moves[at]
            for letter in node.following.keys() & moves.keys():
                following = node.following[letter]
                yield from following.tokens
                waiting.append((following, moves[letter]))

    def after(self, state: int, token: int) -> int:
        """Return the state after a token; a whole reply stays whole, whatever fills its row up."""
        for letter in self._texts.get(token, "") if state != self.form.end else "":
            state = self.form.moves[state][letter]
        return state


def _texts(tokenizer: Any, alphabet: set[str]) -> dict[int, str]:
    """Return the text of each token that is made of some characters alone: blanks are written in two ways."""
    made = {}
    words: list[str] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    for token, word in enumerate(words):
        text = (word or "").replace("Ġ", " ").replace("▁", " ")
        if text and alphabet.issuperset(text):
            made[token] = text
    return made


class Held:
    """What ``generate`` asks before each token, for the rows of one batch: all but what may follow is impossible.

    Parameters
    ----------
    guide
        The form and the tokens.
    start
        Tokens of each row before its reply.
    n_rows
        Of the batch.
    """

    def __init__(self, guide: Guide, start: int, n_rows: int) -> None:
        self._guide = guide
        self._read = start
        self._states = [0] * n_rows
        self._masks: dict[int, Any] = {}

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores of the next token of each row, minus infinity for those that may not follow."""
        import torch

        for row, tokens in enumerate(input_ids[:, self._read :].tolist()):
            for token in tokens:
                self._states[row] = self._guide.after(self._states[row], token)
        self._read = input_ids.shape[1]
        for state in set(self._states) - self._masks.keys():
            mask = torch.ones(scores.shape[1], dtype=torch.bool)
            mask[self._guide.allowed(state)] = False
            self._masks[state] = mask.to(scores.device)
        return scores.masked_fill(torch.stack([self._masks[state] for state in self._states]), -torch.inf)
