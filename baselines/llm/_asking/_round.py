"""One asking: responses are kept as they come, what may be the configuration's fault is held back, and when to stop."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pertbase.baselines.llm._asking._budget import Budget, BudgetReached
from pertbase.baselines.llm._asking._store import ResponseStore
from pertbase.baselines.llm._clients._base import Client, Request, Response
from pertbase.errors import InputError, PertbaseError

__all__ = ["MOST_FAILED", "MOST_REJECTED", "Round"]

_log = logging.getLogger("pertbase.training")
_SAY_EVERY = 20.0
"""Seconds between two lines on how far it is."""
MOST_REJECTED = 10
"""Requests that may be rejected, or show no letters, before the first that is not: then it is the configuration."""
MOST_FAILED = 5
"""Requests that may fail one after the other, each after all of its attempts: then nobody is there."""


class Round:
    """Takes the responses to some requests.

    A response that says what the configuration may be to blame for, and no single question, is held back until that is
    known, and kept only then: a rejected request until one of its kind is accepted, letters of which too few are seen
    until the end.

    Parameters
    ----------
    client, store, budget
        Who answers, where it is kept, and what it may take.
    requests, keys
        All there are; what is in the store counts as seen.
    rows
        Positions of those that are asked.
    attempts
        How often each is tried, for messages.
    about
        What is written beside each response.
    """

    def __init__(
        self,
        client: Client,
        store: ResponseStore,
        budget: Budget,
        requests: Sequence[Request],
        keys: Sequence[str],
        rows: Sequence[int],
        *,
        attempts: int,
        about: Mapping[str, Any],
    ) -> None:
        self.passed: dict[str, Response] = {}
        """Key -> response, kept or not: an empty reply is an answer of a kind, for this once."""
        self._client, self._store, self._budget = client, store, budget
        self._requests, self._keys, self._n = requests, keys, len(rows)
        self._attempts, self._about = attempts, about
        self._accepted: set[str] = set()
        """Kinds of requests of which one was not rejected."""
        self._letters: Counter[bool] = Counter()
        """Requests for letters by whether too few were seen."""
        self._held: list[tuple[int, Response]] = []
        self._failed: list[Response] = []
        self._in_a_row = 0
        self._said = self._began = time.monotonic()
        for request, key in zip(requests, keys, strict=True):
            if (known := store.get(key)) is not None:
                self._learn(request, known)

    @property
    def left(self) -> int:
        """Requests without a response, or with a failure alone."""
        return self._n - len(self.passed) + len(self._failed)

    def take(self, batch: list[tuple[int, Response]]) -> None:
        """Keep a batch, and stop where going on would be in vain or cost too much.

        Raises
        ------
        BudgetReached
            Where the command has used what it may, and requests are left.
        PertbaseError
            Where it is no use to go on.
        """
        for row, response in batch:
            self.passed[self._keys[row]] = response
            self._budget.spend(response)
            self._learn(self._requests[row], response)
            self._in_a_row = self._in_a_row + 1 if response.finish == "error" else 0
            if response.finish == "error":
                self._failed.append(response)
        self._keep([*self._held, *batch])
        self._say()
        self._judge()
        for _, response in batch:
            self._budget.check_counted(response)
        if self._budget.over and self.left:
            raise self._budget.reached(self.left, self._n)

    def _learn(self, request: Request, response: Response) -> None:
        if response.finish not in ("rejected", "error"):
            self._accepted.add(request.kind)
        if request.kind != "reply" and response.letters is not None:
            self._letters[response.unseen] += 1

    def _keep(self, batch: Sequence[tuple[int, Response]], *, ended: bool = False) -> None:
        """Write what is beyond doubt, and hold the rest back."""
        sure: list[tuple[int, Response]] = []
        self._held = []
        for row, response in batch:
            rejected = response.finish == "rejected" and self._requests[row].kind not in self._accepted
            unseen = response.unseen and not (ended and self._letters[False] >= self._letters[True])
            (self._held if rejected or unseen else sure).append((row, response))
        if sure:
            self._store.add([(self._keys[row], self._requests[row], response) for row, response in sure], self._about)

    def _judge(self, *, ended: bool = False) -> None:
        rejected = [response for _, response in self._held if response.finish == "rejected"]
        if len(rejected) >= (1 if ended else MOST_REJECTED):
            raise InputError(
                f"rejects every request, {len(rejected)} of {len(rejected)}; the last error: {rejected[-1].error}",
                key="client",
                value=self._client.title,
                remedy=f"{self._client.advice(rejected[-1].error)}; nothing of it is kept",
            )
        seen, unseen = self._letters[False], self._letters[True]
        if unseen > seen if ended else (unseen >= MOST_REJECTED and not seen):
            example = next((response.error for _, response in self._held if response.unseen and response.error), "")
            raise InputError(
                f"shows fewer than two of the letters A, B and C as the next word of {unseen} of {seen + unseen} "
                f"questions, so that they have no scores{f' ({example})' if example else ''}",
                key="client",
                value=self._client.title,
                remedy="a model that thinks before it answers wants baseline.thinking=false; where that is no help, do "
                "without letters: baseline.orders=0",
            )
        if self._in_a_row >= MOST_FAILED and self.left:
            remedy = "see that the server is there; what came back is kept, and the same command asks the rest"
            raise self._unanswered(f"{self._in_a_row} requests in a row", remedy)

    def _unanswered(self, told: str, remedy: str) -> PertbaseError:
        return PertbaseError(
            f"{told} got no response after {self._attempts} attempts each; the last error: {self._failed[-1].error}",
            key="client",
            value=self._client.title,
            remedy=remedy,
        )

    def stopped(self) -> None:
        """Keep what was held back and is beyond doubt by now; nothing more will come."""
        held, self._held = self._held, []
        self._keep(held, ended=True)

    def ended(self) -> None:
        """Say what is wrong with the whole of it, now that everything was asked.

        Raises
        ------
        PertbaseError
            Where every request was rejected, most questions show no letters, or some got no response.
        """
        self._judge(ended=True)
        if self._failed:
            told = f"{len(self._failed)} of {len(self._requests)} requests"
            raise self._unanswered(told, "the same command asks them again, and nothing else")
        if self._letters[True]:
            _log.warning(
                "%s: %d of %d questions have no scores: fewer than two letters are among the likeliest next words",
                self._client.title, self._letters[True], self._letters[True] + self._letters[False],
            )  # fmt: skip

    def reached(self) -> BudgetReached:
        """Return the error of a budget that was met, with what is left now."""
        return self._budget.reached(self.left, self._n)

    def _say(self) -> None:
        now, count = time.monotonic(), len(self.passed)
        if now - self._said > _SAY_EVERY and count:
            self._said = now
            left = (now - self._began) / count * self.left
            _log.info("%s: %d of %d asked, about %.0f s left", self._client.title, count, self._n, left)
