"""Asking: what is kept already is not asked again, what comes back is kept at once, and all of it is counted."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pertbase._io import canonical_json, sha256_text
from pertbase.baselines.llm._clients._base import Client, Request, Response, Sampling
from pertbase.baselines.llm._settings import AskSettings, Prices
from pertbase.baselines.llm._store import ResponseStore, store_folder
from pertbase.errors import InputError, PertbaseError

__all__ = ["Account", "Asker", "BudgetReached"]

_log = logging.getLogger("pertbase.training")
_SAY_EVERY = 20.0
"""Seconds between two lines on how far it is."""


class BudgetReached(PertbaseError):
    """A command has used what it may; what it was given is kept, and the same command goes on."""


@dataclass
class Account:
    """What the responses that a run uses took, whether they were asked for now or kept from before.

    Parameters
    ----------
    requests
        How many responses.
    asked
        Of these, how many were asked for by this command.
    finish
        Why the model stopped -> how often, of replies.
    prompt_tokens, reply_tokens
        Over all.
    seconds
        Time that the model took, over all.
    attempts
        Over all; more than ``requests`` where some failed first.
    served_by
        Names of the model, as it gave them.
    """

    requests: int = 0
    asked: int = 0
    finish: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    reply_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 0
    served_by: set[str] = field(default_factory=set)

    def add(self, request: Request, response: Response) -> None:
        """Count one response."""
        self.requests += 1
        self.prompt_tokens += response.prompt_tokens
        self.reply_tokens += response.reply_tokens
        self.seconds += response.seconds
        self.attempts += response.attempts
        if request.kind == "reply":
            self.finish[response.finish] += 1
        if response.served_by:
            self.served_by.add(response.served_by)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "finish": dict(sorted(self.finish.items())), "served_by": sorted(self.served_by)}


class Asker:
    """Asks one model, and keeps what it returns.

    Parameters
    ----------
    client
        Where the model runs.
    sampling
        How replies are drawn.
    settings
        How it is asked on this machine.
    root
        The folder below which responses are kept; they are held in memory alone where not given.
    about
        What a reader of the responses wants to know beside.
    """

    def __init__(
        self,
        client: Client,
        sampling: Sampling,
        settings: AskSettings,
        *,
        root: Path | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = replace(client, settings=vars(settings)) if dict(client.settings) != vars(settings) else client
        self.sampling = sampling
        self.settings = settings
        self.account = Account()
        self._about = dict(about or {})
        self._prices = None if settings.prices is None else Prices.read(settings.prices)
        self._tokens = 0
        self._cost = 0.0
        if settings.cost_budget is not None and self.cost(1, 1) is None:
            raise InputError(
                "has no price for the model", file=settings.prices, key="models", value=client.title,
                remedy="add it, or leave asking.cost_budget out",
            )  # fmt: skip
        identity = client.identity
        folder = None if root is None else store_folder(root, client.title, sha256_text(canonical_json(identity)))
        self.store = ResponseStore(folder, identity)

    def cost(self, prompt_tokens: int, reply_tokens: int) -> float | None:
        """Return what tokens cost by the price file; None without one."""
        return None if self._prices is None else self._prices.cost(self.client.title, prompt_tokens, reply_tokens)

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        """Return a response for each request.

        Raises
        ------
        BudgetReached
            Where this command has used what it may.
        PertbaseError
            Where some requests failed as often as is allowed; all others are kept.
        """
        identity, schema = self.client.identity, self.client.schema
        keys = [request.key(identity, self.sampling, schema) for request in requests]
        # The same question may be asked twice, word by word: one response serves both.
        waiting = {key: row for row, key in reversed(list(enumerate(keys))) if key not in self.store}
        rows = sorted(waiting.values())
        passed: dict[str, Response] = {}
        if rows:
            self._ask(requests, keys, rows, passed)
        found = []
        for request, key in zip(requests, keys, strict=True):
            response = self.store.get(key) or passed[key]
            self.account.add(request, response)
            found.append(response)
        return found

    def _ask(
        self, requests: Sequence[Request], keys: Sequence[str], rows: Sequence[int], passed: dict[str, Response]
    ) -> None:
        said, began, count = time.monotonic(), time.monotonic(), 0
        failed: list[Response] = []

        def done(batch: list[tuple[int, Response]]) -> None:
            nonlocal said, count
            self.store.add([(keys[row], requests[row], response) for row, response in batch], self._written)
            for row, response in batch:
                # What is not final is not kept, but an empty reply is an answer of a kind, for this once.
                passed[keys[row]] = response
                if response.finish == "error":
                    failed.append(response)
            count += len(batch)
            self.account.asked += len(batch)
            if time.monotonic() - said > _SAY_EVERY:
                said = time.monotonic()
                left = (said - began) / count * (len(rows) - count)
                _log.info("%s: %d of %d asked, about %.0f s left", self.client.title, count, len(rows), left)
            self._spend([response for _, response in batch], count, len(rows))

        try:
            self.client.ask(requests, rows, self.sampling, done)
        finally:
            self.store.close()
        if failed:
            raise PertbaseError(
                f"{len(failed)} of {len(requests)} requests got no response after {self.settings.attempts} attempts "
                f"each; the last error: {failed[-1].error}",
                key="client",
                value=self.client.title,
                remedy="the same command asks them again, and nothing else",
            )

    @property
    def _written(self) -> dict[str, Any]:
        return {"sampling": vars(self.sampling), **self._about}

    def _spend(self, responses: Sequence[Response], count: int, of: int) -> None:
        prompt, reply = (sum(getattr(one, name) for one in responses) for name in ("prompt_tokens", "reply_tokens"))
        self._tokens += prompt + reply
        self._cost += self.cost(prompt, reply) or 0.0
        spent, limit = f"{self._tokens:,} tokens", self.settings.token_budget
        over = limit is not None and self._tokens >= limit
        if self.settings.cost_budget is not None and self._cost >= self.settings.cost_budget:
            over, spent = True, f"{self._cost:.4g} {self._prices.currency if self._prices else ''}".strip()
        if over and count < of:
            raise BudgetReached(
                f"stopped at the budget, with {spent} used and {of - count:,} of {of:,} requests left",
                key="asking",
                remedy="what came back is kept; the same command goes on from here, with as much again",
            )

    def summary(self) -> dict[str, Any]:
        """Return what was asked of whom and what it took, as plain values."""
        account = self.account.to_dict()
        price = self.cost(self.account.prompt_tokens, self.account.reply_tokens)
        priced = {} if self._prices is None else {"prices_of": self._prices.date, "currency": self._prices.currency}
        return {"model": self.client.title, "client": self.client.identity, **account, "cost": price, **priced}
