"""How a model is asked on this machine: none of it changes what is asked or answered."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

from pertbase._io import read_mapping
from pertbase.errors import InputError, unknown_name

__all__ = ["AskSettings", "Prices"]

_WORDS = {True: "a whole number", False: "a number"}
_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu|npu|hpu|mlu|musa|xla)(?::\d+)?")


@dataclass(frozen=True, kw_only=True)
class AskSettings:
    """How a model is asked; a configuration of ``conf/asking``.

    Parameters
    ----------
    device
        Of a local model: ``cpu``, ``cuda``, ``cuda:1``; a GPU where there is one, if not given.
    batch_size
        Requests that a local model reads at once; for letters, as many prompts as there are orders each.
    concurrency
        Requests that a server has at once.
    requests_per_minute
        At most; None for no limit.
    attempts
        How often one request is made before it counts as failed.
    timeout
        Of one attempt, seconds, from its beginning to the last byte of the reply.
    token_budget
        Tokens, of prompts and replies, that one command may use. At the limit it stops: what is on its way by then
        comes in, is kept and counts; the same command goes on from there with as much again. A server that does not
        say how many tokens it used is refused.
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
        for name in ("batch_size", "concurrency", "attempts", "token_budget"):
            object.__setattr__(self, name, self._number(name, whole=True))
        for name in ("requests_per_minute", "timeout", "cost_budget"):
            object.__setattr__(self, name, self._number(name, whole=False))
        for name in ("device", "prices", "responses"):
            object.__setattr__(self, name, self._text(name))
        if self.device is not None and not _DEVICE.fullmatch(self.device):
            raise InputError(
                "is no device", key="asking.device", value=self.device, remedy="for example cpu, cuda or cuda:1"
            )
        if self.cost_budget is not None and self.prices is None:
            raise InputError("needs prices", key="asking.cost_budget", remedy="add asking.prices=FILE.yaml")

    def _number(self, name: str, *, whole: bool) -> float | None:
        """Return a number above 0, a whole one as such; None where nothing is said of it and nothing need be."""
        value = getattr(self, name)
        default = type(self).__dataclass_fields__[name].default
        if value is None and default is None:
            return None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not (0 < value < math.inf) or (whole and value != int(value)):
            told = f"{_WORDS[whole]}{' or null' if default is None else ''}"
            usual = "leave it out for none" if default is None else f"leave it out for {default:g}"
            raise InputError(f"is {told}, above 0", key=f"asking.{name}", value=value, remedy=usual)
        return int(value) if whole else float(value)

    def _text(self, name: str) -> str | None:
        value = getattr(self, name)
        if value is None:
            return None
        if not isinstance(value, (str, Path)) or not str(value):
            raise InputError("is a text or null", key=f"asking.{name}", value=value, remedy="leave it out for none")
        return str(value)

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
            Where a key is missing, or a price is no number from 0 on.
        """
        about = read_mapping(path)
        for key in ("date", "currency", "models"):
            if not about.get(key):
                raise InputError(
                    "a price file lacks a key", file=path, key=key, remedy="it has date, currency and models"
                )
        when = about["date"]
        if not isinstance(about["models"], Mapping):
            raise InputError(
                "names models with their prices", file=path, key="models", value=about["models"],
                remedy="for example models: {NAME: {prompt: 1.0, reply: 4.0}}",
            )  # fmt: skip
        models = {}
        for name, price in about["models"].items():
            listed = price if isinstance(price, Mapping) else {}
            prompt, reply = (_price(listed.get(key)) for key in ("prompt", "reply"))
            if prompt is None or reply is None:
                raise InputError(
                    "a model has a price for prompt and reply, of a million tokens, each a number from 0 on",
                    file=path, key=f"models.{name}", value=price,
                    remedy="for example {prompt: 1.0, reply: 4.0}",
                )  # fmt: skip
            models[str(name)] = (prompt, reply)
        return cls(when.isoformat() if isinstance(when, date) else str(when), str(about["currency"]), models)

    def cost(self, model: str, prompt_tokens: int, reply_tokens: int) -> float | None:
        """Return what tokens cost; None for a model that has no price."""
        if model not in self.models:
            return None
        prompt, reply = self.models[model]
        return (prompt * prompt_tokens + reply * reply_tokens) / 1e6


def _price(value: Any) -> float | None:
    """Return a number from 0 on; None of anything else."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < math.inf else None
