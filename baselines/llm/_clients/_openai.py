"""Any server that speaks OpenAI's protocol: OpenAI itself, vLLM, llama.cpp, Ollama, ``transformers serve``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pertbase._random import generator
from pertbase.baselines.llm._clients._base import Client, Done, Request, Response, Sampling
from pertbase.baselines.llm._prompts import LETTERS, SCHEMA, Messages
from pertbase.errors import InputError, PertbaseError, unknown_name

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

__all__ = ["OpenAIClient"]

_GUIDED = ("json_schema", "json_object")
_LIMITS = ("max_tokens", "max_completion_tokens")
_TOP = 20
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_FATAL = {401: "the key is not accepted", 403: "the key may not do this", 404: "there is no such model or address"}
_RETRIED = (408, 409, 425, 429)


@dataclass(frozen=True, kw_only=True)
class OpenAIClient(Client):
    """A server that speaks OpenAI's protocol of chat completions.

    What fails in passing (429, 408, 409, 5xx, a timeout, a connection that breaks, a body that is no JSON, an empty
    reply) is asked again, after the time that ``Retry-After`` names, else after waits that double. What the server
    refuses for good (400, 413, 422) is kept as ``rejected``. A wrong key or model ends the run at once.

    Parameters
    ----------
    model
        As the server calls it.
    base_url
        The server's; ``OPENAI_BASE_URL``, else OpenAI's own, where not given.
    api_key_env
        The environment variable that holds the key. The key is never written anywhere; servers of one's own often want
        none.
    logprobs
        Whether the server gives the log probabilities of the likeliest next tokens, which letters are scored with.
    guided_as
        How replies are held to the schema, where that is asked for: ``json_schema``, or ``json_object`` for servers
        that know no schema.
    limit
        What the server calls the most tokens of a reply: ``max_tokens`` or ``max_completion_tokens``.
    send_sampling
        Whether temperature, top_p and seed are sent; some models take none but their own.
    extra
        Further fields of each request's body.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    logprobs: bool = False
    guided_as: str = "json_schema"
    limit: str = "max_tokens"
    send_sampling: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    guides: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("openai",)

    def __post_init__(self) -> None:
        for name, known in (("guided_as", _GUIDED), ("limit", _LIMITS)):
            if getattr(self, name) not in known:
                raise unknown_name(name, str(getattr(self, name)), known)

    @property
    def scores_letters(self) -> bool:
        """Whether the server gives log probabilities, as the configuration says."""
        return self.logprobs

    @property
    def address(self) -> str:
        """The server's address."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"

    @property
    def identity(self) -> dict[str, Any]:
        """Model, address and what is sent beside the prompt."""
        return {
            "client": "openai",
            "model": self.model,
            "base_url": self.address,
            "guided_as": self.guided_as,
            "send_sampling": self.send_sampling,
            "extra": dict(self.extra),
        }

    @property
    def title(self) -> str:
        """The model's name."""
        return self.model

    @property
    def device(self) -> str:
        """The server's address."""
        return self.address

    def refuses(self) -> str | None:
        """Refuse where ``openai`` is not installed, or OpenAI's own server is asked without a key."""
        from importlib.util import find_spec

        if find_spec("openai") is None:
            return "openai is not installed; pip install 'pertbase[openai]'"
        if "api.openai.com" in self.address and not os.environ.get(self.api_key_env):
            return f"there is no key in {self.api_key_env}"
        return None

    def ask(self, requests: Sequence[Request], rows: Sequence[int], sampling: Sampling, done: Done) -> None:
        """Ask many at once, and hand over each response as it comes."""
        work = self._all([(row, requests[row]) for row in rows], sampling, done)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(work)
            return
        # In a notebook a loop runs already; another one needs a thread of its own.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, work).result()

    async def _all(self, asked: Sequence[tuple[int, Request]], sampling: Sampling, done: Done) -> None:
        from openai import AsyncOpenAI

        queue = iter(asked)
        api = AsyncOpenAI(
            base_url=self.address,
            api_key=os.environ.get(self.api_key_env) or "none",
            timeout=float(self.settings.get("timeout") or 120.0),
            # We retry: attempts are counted, and what comes back empty is asked again too.
            max_retries=0,
        )
        pace = _Pace(self.settings.get("requests_per_minute"))

        async def worker() -> None:
            for row, request in queue:
                done([(row, await self._one(api, request, sampling, pace))])

        async with api:
            workers = [asyncio.ensure_future(worker()) for _ in range(int(self.settings.get("concurrency") or 8))]
            try:
                await asyncio.gather(*workers)
            finally:
                for one in workers:
                    one.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _one(self, api: AsyncOpenAI, request: Request, sampling: Sampling, pace: _Pace) -> Response:
        if request.kind == "reply":
            return await self._retried(api, self._reply_body(request, sampling), request, pace, _reply)
        parts = [
            await self._retried(api, self._letters_body(prompt, sampling), request, pace, _letters)
            for prompt in request.prompts
        ]
        bad = next((part for part in parts if part.finish != "stop"), None)
        rows = [part.letters for part in parts]
        letters = None if bad or None in rows else tuple(row[0] for row in rows if row)
        return Response(
            finish=bad.finish if bad else "stop",
            letters=letters,
            error=bad.error if bad else "",
            served_by=parts[0].served_by,
            **{
                name: sum(getattr(part, name) for part in parts)
                for name in ("prompt_tokens", "reply_tokens", "seconds", "attempts")
            },
        )

    # -- what is sent ---------------------------------------------------------------------------------------

    def _reply_body(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        body = self._body(request.prompts[0], thinking=sampling.thinking)
        body[self.limit] = sampling.max_tokens
        if self.send_sampling:
            body |= {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "seed": sampling.seed + request.sample,
            }
        if request.guided(sampling):
            schema = {"name": "reply", "schema": SCHEMA, "strict": True}
            whole = {"type": "json_schema", "json_schema": schema}
            body["response_format"] = whole if self.guided_as == "json_schema" else {"type": "json_object"}
        return body

    def _letters_body(self, prompt: Messages, sampling: Sampling) -> dict[str, Any]:
        body = self._body(prompt, thinking=None if sampling.thinking is None else False)
        return body | {self.limit: 1, "temperature": 0.0, "logprobs": True, "top_logprobs": _TOP}

    def _body(self, prompt: Messages, *, thinking: bool | None) -> dict[str, Any]:
        extra = dict(self.extra)
        if thinking is not None:
            # as vLLM, SGLang and llama.cpp take it
            extra["chat_template_kwargs"] = {"enable_thinking": thinking, **extra.get("chat_template_kwargs", {})}
        messages = [{"role": role, "content": content} for role, content in prompt]
        return {"model": self.model, "messages": messages, **({"extra_body": extra} if extra else {})}

    # -- trying again ---------------------------------------------------------------------------------------

    async def _retried(
        self, api: AsyncOpenAI, body: Mapping[str, Any], request: Request, pace: _Pace, read: Any
    ) -> Response:
        from openai import APIError, APIStatusError

        attempts = int(self.settings.get("attempts") or 5)
        waits = _waits(request)
        began = time.monotonic()
        last: dict[str, Any] = {}
        for attempt in range(1, attempts + 1):
            await pace.turn()
            wait = next(waits)
            try:
                values = read(await api.chat.completions.create(**body))
            except APIStatusError as error:
                if error.status_code in _FATAL:
                    raise self._fatal(error) from error
                last = {"finish": "error", "error": f"{error.status_code}: {_short(error)}"}
                if error.status_code < 500 and error.status_code not in _RETRIED:
                    return Response(finish="rejected", error=last["error"], attempts=attempt, served_by=self.model)
                wait = _retry_after(error) or wait
            except (APIError, ValueError) as error:
                # a timeout, a broken connection, or a body that is no JSON
                last = {"finish": "error", "error": f"{type(error).__name__}: {_short(error)}"}
            else:
                if values["finish"] not in ("empty", "error"):
                    return Response(**values, attempts=attempt, seconds=time.monotonic() - began)
                last = values
            if attempt < attempts:
                await asyncio.sleep(wait)
        return Response(**last, attempts=attempts, seconds=time.monotonic() - began)

    def _fatal(self, error: APIStatusError) -> PertbaseError:
        return InputError(
            f"{_FATAL[error.status_code]} ({_short(error)})",
            key="client",
            value=f"{self.model} at {self.address}",
            remedy=f"check baseline.client.model and base_url, and the key in {self.api_key_env}",
        )


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
    return seconds if 0 <= seconds <= 3600 else None


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


# -- what comes back ----------------------------------------------------------------------------------------

_Finish = Literal["stop", "length", "content_filter"]


def _reply(made: Any) -> dict[str, Any]:
    """Return the fields of a response to a reply; what is no completion is an error to be asked again."""
    choice, values = _first(made)
    if choice is None:
        return values
    message = choice.message
    text = message.content or ""
    extra = message.model_extra or {}
    finish: str = choice.finish_reason if choice.finish_reason in ("length", "content_filter") else "stop"
    if message.refusal:
        finish, text = "refusal", message.refusal
    elif finish == "stop" and not text.strip():
        finish = "empty"
    thought = extra.get("reasoning_content") or extra.get("reasoning") or ""
    return values | {"text": text, "finish": finish, "thought": str(thought)}


def _letters(made: Any) -> dict[str, Any]:
    """Return the log probability of each letter; one that is not among the likeliest gets the least of theirs."""
    choice, values = _first(made)
    if choice is None:
        return values
    listed = choice.logprobs.content if choice.logprobs is not None else None
    if not listed or not listed[0].top_logprobs:
        return values | {"finish": "stop", "letters": None}
    top = listed[0].top_logprobs
    least = min(item.logprob for item in top)
    found = dict.fromkeys(LETTERS, least)
    for item in reversed(top):
        if item.token.strip() in found:
            found[item.token.strip()] = max(item.logprob, found[item.token.strip()])
    return values | {"finish": "stop", "letters": (tuple(found.values()),)}


def _first(made: Any) -> tuple[Any, dict[str, Any]]:
    """Return the first choice of a completion, and what it took; no choice, and why, where there is none."""
    choices = getattr(made, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        return None, {"finish": "error", "error": f"no completion came back: {str(made)[:100]!r}"}
    usage = made.usage
    counts = (usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage is not None else (0, 0)
    return choices[0], {"prompt_tokens": counts[0], "reply_tokens": counts[1], "served_by": str(made.model or "")}
