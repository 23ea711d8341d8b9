"""Asking a server until something comes back: attempts, waits, pace, and what a refusal means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pertbase._random import generator
from pertbase.baselines.llm._clients._base import Request, Response, encodable
from pertbase.baselines.llm._clients._completions import NoCompletion

if TYPE_CHECKING:
    from openai import APIStatusError

__all__ = ["Refused", "Tries", "told"]

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_LONGEST_ASKED = 3600.0
_REJECTED = (400, 413, 422)
"""What may be about one question: all else below 500 is about the key, the address, the account or the way there."""
_PASSING = (408, 409, 423, 424, 425, 429, 499)
_NO_CREDIT = "insufficient_quota"
"""OpenAI says so with 429, which passes elsewhere."""
_SHOWN = 200


class Refused(Exception):
    """The server refuses whatever it is asked.

    Parameters
    ----------
    status
        Of HTTP; None where it answers, but without the log probabilities that letters are scored by.
    message
        The server's own.
    """

    def __init__(self, status: int | None, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Tries:
    """Attempts at the requests of one asking.

    Parameters
    ----------
    settings
        ``attempts``, ``timeout`` (seconds of one attempt, from its beginning to its last byte) and
        ``requests_per_minute``, of :class:`~pertbase.baselines.llm.AskSettings`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.attempts = int(settings.get("attempts") or 5)
        self.timeout = float(settings.get("timeout") or 120.0)
        self._pace = _Pace(settings.get("requests_per_minute"))
        self._stopped = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Begin nothing more: what is on its way comes in, and what fails then is not tried again."""
        self._stopped.set()

    async def made(
        self, call: Callable[[], Awaitable[bytes]], read: Callable[[bytes], dict[str, Any]], request: Request
    ) -> Response:
        """Return what comes back: a response, or, after the last attempt, why there is none.

        Tokens are those of all attempts: empty replies are paid for too.

        Raises
        ------
        Refused
            Where the server refuses whatever it is asked.
        """
        from openai import APIError, APIStatusError

        began, waits = time.monotonic(), _waits(request)
        prompt_tokens = reply_tokens = attempt = 0
        last: dict[str, Any] = {"finish": "error", "error": "was not asked: the others had failed"}

        def response(**values: Any) -> Response:
            taken = {"prompt_tokens": prompt_tokens, "reply_tokens": reply_tokens, "attempts": attempt}
            return Response(**{**values, **taken, "seconds": time.monotonic() - began})

        while attempt < self.attempts and not (attempt and self.stopped):
            await self._pace.turn()
            attempt += 1
            wait = next(waits)
            try:
                async with asyncio.timeout(self.timeout):
                    values = read(await call())
            except APIStatusError as error:
                message = told(error)
                last = {"finish": "error", "error": f"{error.status_code}: {message}"}
                if error.status_code in _REJECTED:
                    return response(finish="rejected", error=last["error"])
                if (error.status_code < 500 and error.status_code not in _PASSING) or error.code == _NO_CREDIT:
                    raise Refused(error.status_code, message) from error
                wait = _retry_after(error) or wait
            except NoCompletion as error:
                prompt_tokens, reply_tokens = prompt_tokens + error.tokens[0], reply_tokens + error.tokens[1]
                last = {"finish": "error", "error": _cut(str(error))}
            except TimeoutError:
                last = {"finish": "error", "error": f"no whole response came within {self.timeout:g} s"}
            except (APIError, ValueError) as error:
                # a broken connection, or a body that cannot be decoded
                last = {"finish": "error", "error": told(error)}
            else:
                prompt_tokens += values["prompt_tokens"]
                reply_tokens += values["reply_tokens"]
                if values["finish"] != "empty":
                    return response(**values)
                last = values
            if attempt < self.attempts:
                await self._waited(wait)
        return response(**last)

    async def _waited(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return


class _Pace:
    """Lets so many requests a minute begin."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for one's turn."""
        now = time.monotonic()
        begins = max(now, self._next)
        self._next = begins + self._gap
        if begins > now:
            await asyncio.sleep(begins - now)


def _waits(request: Request) -> Iterator[float]:
    """Yield waits that double, spread so that many who failed together do not come back together."""
    rng = generator(request.sample, "waits", request.question)
    wait = _FIRST_WAIT
    while True:
        yield wait * float(rng.uniform(0.5, 1.0))
        wait = min(2 * wait, _LONGEST_WAIT)


def _retry_after(error: APIStatusError) -> float | None:
    """Return the seconds that the server asks to wait; None where it does not say, or says a date."""
    given = error.response.headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _LONGEST_ASKED else None


def told(error: BaseException) -> str:
    """Return what an error says on one line: the server's own message, or the deepest cause that has words."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    if isinstance(message, str) and message.strip():
        return _cut(message)
    if hasattr(error, "status_code"):
        return _cut(str(error))
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    # What a library says of a connection that broke is the same whatever broke it.
    found = next((one for one in reversed(chain[1:]) if str(one)), chain[-1])
    return _cut(f"{type(found).__name__}: {found}".removesuffix(": "))


def _cut(text: str) -> str:
    line = " ".join(encodable(text).split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
