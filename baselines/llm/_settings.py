"""How a model is asked on this machine: none of it changes what is asked or answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

from pertbase._io import read_mapping
from pertbase.errors import InputError, unknown_name

__all__ = ["AskSettings", "Prices"]


@dataclass(frozen=True, kw_only=True)
class AskSettings:
    """How a model is asked; a configuration of ``conf/asking``.

    Parameters
    ----------
    device
        Of a local model: ``cpu``, ``cuda``, ``cuda:1``; a GPU where there is one, if not given.
    batch_size
        Prompts that a local model reads at once.
    concurrency
        Requests that a server has at once.
    requests_per_minute
        At most; None for no limit.
    attempts
        How often one request is made before it counts as failed.
    timeout
        Of one attempt, seconds.
    token_budget
        Tokens, of prompts and replies, that one command may use. At the limit it stops; the same command goes on from
        there with as much again.
    cost_budget
        What one command may cost, in the price file's currency. At the limit it stops, as for ``token_budget``.
    prices
        A YAML file: ``date``, ``currency`` and ``models``: name -> ``prompt`` and ``reply``, a million tokens each.
    responses
        The folder responses are kept in; ``_responses`` among the runs where not given.
    """

    device: str | None = None
    batch_size: int = 16
    concurrency: int = 8
    requests_per_minute: float | None = None
    attempts: int = 5
    timeout: float = 120.0
    token_budget: int | None = None
    cost_budget: float | None = None
    prices: str | None = None
    responses: str | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "concurrency", "attempts", "requests_per_minute", "timeout", "token_budget"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError("is a positive number", key=f"asking.{name}", value=value)
        if self.cost_budget is not None and self.prices is None:
            raise InputError("needs prices", key="asking.cost_budget", remedy="add asking.prices=FILE.yaml")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AskSettings:
        """Return the settings of a configuration.

        Raises
        ------
        InputError
            Where a key is unknown or a value cannot be.
        """
        known = {item.name for item in fields(cls)}
        for key in config:
            if key not in known:
                raise unknown_name("asking", str(key), known)
        return cls(**config)


@dataclass(frozen=True)
class Prices:
    """What tokens cost, by a file of the user's.

    Parameters
    ----------
    date
        When the prices held.
    currency
        For example USD.
    models
        Name -> (a million tokens of prompts, a million tokens of replies).
    """

    date: str
    currency: str
    models: Mapping[str, tuple[float, float]]

    @classmethod
    def read(cls, path: str | Path) -> Prices:
        """Read a price file.

        Raises
        ------
        InputError
            Where a key is missing or a price is no number.
        """
        about = read_mapping(path)
        for key in ("date", "currency", "models"):
            if not about.get(key):
                raise InputError(
                    "a price file lacks a key", file=path, key=key, remedy="it has date, currency and models"
                )
        when = about["date"]
        models = {}
        for name, price in dict(about["models"]).items():
            try:
                models[str(name)] = (float(price["prompt"]), float(price["reply"]))
            except (TypeError, KeyError, ValueError) as error:
                raise InputError(
                    "a model has a price for prompt and reply, of a million tokens",
                    file=path,
                    key=f"models.{name}",
                    value=price,
                ) from error
        return cls(when.isoformat() if isinstance(when, date) else str(when), str(about["currency"]), models)

    def cost(self, model: str, prompt_tokens: int, reply_tokens: int) -> float | None:
        """Return what tokens cost; None for a model that has no price."""
        if model not in self.models:
            return None
        prompt, reply = self.models[model]
        return (prompt * prompt_tokens + reply * reply_tokens) / 1e6
