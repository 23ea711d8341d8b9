"""Asking: what is kept already is not asked again, what comes back is kept at once, and all of it is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pertbase._io import canonical_json, sha256_text
from pertbase.baselines.llm._asking._budget import Budget, BudgetReached, counts_nothing
from pertbase.baselines.llm._asking._round import Round
from pertbase.baselines.llm._asking._settings import AskSettings
from pertbase.baselines.llm._asking._store import ResponseStore, store_folder
from pertbase.baselines.llm._clients._base import Client, Request, Response, Sampling

__all__ = ["Account", "Asker", "BudgetReached"]


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
        Why the model stopped -> how often, of replies; ``rejected`` are those that the server would not take.
    letters_unseen
        Requests for letters of which too few were seen to score anything.
    prompt_tokens, reply_tokens
        Over all, and over all attempts.
    uncounted
        Responses whose tokens nobody counted.
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
    letters_unseen: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    uncounted: int = 0
    seconds: float = 0.0
    attempts: int = 0
    served_by: set[str] = field(default_factory=set)

    def add(self, request: Request, response: Response) -> None:
        """Count one response."""
        self.requests += 1
        self.prompt_tokens += response.prompt_tokens
        self.reply_tokens += response.reply_tokens
        self.uncounted += counts_nothing(response)
        self.seconds += response.seconds
        self.attempts += response.attempts
        self.letters_unseen += response.unseen
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
        self.budget = Budget(settings, client.title)
        self._about = dict(about or {})
        identity = client.identity
        folder = None if root is None else store_folder(root, client.title, sha256_text(canonical_json(identity)))
        self.store = ResponseStore(folder, identity)

    def key(self, request: Request) -> str:
        """Return the hash under which the response to a request is kept."""
        return request.key(self.client.identity, self.sampling, self.client.schema)

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        """Return a response for each request.

        Raises
        ------
        BudgetReached
            Where this command has used what it may.
        PertbaseError
            Where some requests failed as often as is allowed, and all others are kept; or where going on is of no use.
        """
        keys = [self.key(request) for request in requests]
        passed = self._ask(requests, keys) if any(key not in self.store for key in keys) else {}
        found = []
        for request, key in zip(requests, keys, strict=True):
            response = self.store.get(key) or passed[key]
            self.account.add(request, response)
            found.append(response)
        return found

    def _ask(self, requests: Sequence[Request], keys: Sequence[str]) -> dict[str, Response]:
        # Another command that asks the same waits here, and finds what was kept meanwhile.
        with self.store.asking(sha256_text(canonical_json(sorted(set(keys))))):
            # The same question may be asked twice, word by word: one response serves both.
            waiting = {key: row for row, key in reversed(list(enumerate(keys))) if key not in self.store}
            rows = sorted(waiting.values())
            if not rows:
                return {}
            about = {"sampling": vars(self.sampling), **self._about}
            one = Round(
                self.client, self.store, self.budget, requests, keys, rows,
                attempts=self.settings.attempts, about=about,
            )  # fmt: skip
            if self.budget.over:
                raise one.reached()
            try:
                self.client.ask(requests, rows, self.sampling, one.take)
            except BudgetReached:
                # What was on its way has come in since.
                if one.left:
                    raise one.reached() from None
            finally:
                self.account.asked += len(one.passed)
                one.stopped()
                self.store.close()
            one.ended()
            return one.passed

    def summary(self) -> dict[str, Any]:
        """Return what was asked of whom and what it took, as plain values; no cost where not all was counted."""
        account = self.account.to_dict()
        price = self.budget.cost(self.account.prompt_tokens, self.account.reply_tokens)
        prices = self.budget.prices
        priced = {} if prices is None else {"prices_of": prices.date, "currency": prices.currency}
        cost = None if self.account.uncounted else price
        return {"model": self.client.title, "client": self.client.identity, **account, "cost": cost, **priced}
