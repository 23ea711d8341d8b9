"""What a command may use: tokens, and what they cost."""

from __future__ import annotations

from pertbase.baselines.llm._asking._settings import AskSettings, Prices
from pertbase.baselines.llm._clients._base import Response
from pertbase.errors import InputError, PertbaseError

__all__ = ["Budget", "BudgetReached"]


class BudgetReached(PertbaseError):
    """A command has used what it may; what it was given is kept, and the same command goes on."""


class Budget:
    """What one command has used of what it may.

    Parameters
    ----------
    settings
        ``token_budget``, ``cost_budget`` and ``prices``.
    model
        Its name in the price file.

    Raises
    ------
    InputError
        Where there is a budget of money and no price for the model.
    """

    def __init__(self, settings: AskSettings, model: str) -> None:
        self.prices = None if settings.prices is None else Prices.read(settings.prices)
        self._settings = settings
        self._model = model
        self._tokens = 0
        self._cost = 0.0
        if settings.cost_budget is not None and self.cost(1, 1) is None:
            raise InputError(
                "has no price for the model", file=settings.prices, key="models", value=model,
                remedy="add it, or leave asking.cost_budget out",
            )  # fmt: skip

    def cost(self, prompt_tokens: int, reply_tokens: int) -> float | None:
        """Return what tokens cost by the price file; None without one."""
        return None if self.prices is None else self.prices.cost(self._model, prompt_tokens, reply_tokens)

    def spend(self, response: Response) -> None:
        """Count what a response took, whatever it is worth."""
        self._tokens += response.prompt_tokens + response.reply_tokens
        self._cost += self.cost(response.prompt_tokens, response.reply_tokens) or 0.0

    @property
    def over(self) -> bool:
        """Whether it is used up."""
        tokens, cost = self._settings.token_budget, self._settings.cost_budget
        return (tokens is not None and self._tokens >= tokens) or (cost is not None and self._cost >= cost)

    def reached(self, left: int, of: int) -> BudgetReached:
        """Return the error that says so, with the requests that are left."""
        spent = f"{self._tokens:,} tokens"
        if self._settings.cost_budget is not None and self._cost >= self._settings.cost_budget:
            spent = f"{self._cost:.4g} {self.prices.currency if self.prices else ''}".strip()
        return BudgetReached(
            f"stopped at the budget, with {spent} used and {left:,} of {of:,} requests left",
            key="asking",
            remedy="what came back is kept; the same command goes on from here, with as much again",
        )

    def check_counted(self, response: Response) -> None:
        """Raise where there is a budget, and a reply came back whose tokens nobody counted.

        Raises
        ------
        InputError
            Naming the option.
        """
        limits = [name for name in ("token_budget", "cost_budget") if getattr(self._settings, name) is not None]
        if limits and counts_nothing(response):
            raise InputError(
                f"cannot be kept to: {self._model} came back without a count of its tokens (usage)",
                key=f"asking.{limits[0]}",
                value=getattr(self._settings, limits[0]),
                remedy="leave it out, or have the server say usage; what came back is kept",
            )


def counts_nothing(response: Response) -> bool:
    """Return whether a reply came back whose tokens nobody counted: a prompt has some."""
    return response.finish in ("stop", "length") and not response.prompt_tokens + response.reply_tokens
