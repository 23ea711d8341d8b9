"""Any server that speaks OpenAI's protocol: OpenAI itself, vLLM, llama.cpp, Ollama, ``transformers serve``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pertbase.baselines.llm._clients._address import secrets_in, server_address
from pertbase.baselines.llm._clients._base import Client, Done, Request, Response, Sampling
from pertbase.baselines.llm._clients._completions import read_letters, read_reply
from pertbase.baselines.llm._clients._letters import TOP
from pertbase.baselines.llm._clients._tries import Refused, Tries
from pertbase.baselines.llm._prompts import LETTERS, SCHEMA, Messages
from pertbase.errors import InputError, PertbaseError, unknown_name

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIClient"]

_GUIDED = ("json_schema", "json_object")
_LIMITS = ("max_tokens", "max_completion_tokens")
_OWN = "https://api.openai.com/v1"
_FROM = "OPENAI_BASE_URL"
_REFUSALS = {
    401: "the key is not accepted",
    402: "there is no credit left",
    403: "the key may not do this",
    404: "there is no such model or address",
    407: "a proxy on the way wants a login",
    429: "there is no quota left",
}
_ADVICE = (
    (_LIMITS, "use baseline.client.limit=max_tokens or max_completion_tokens, whichever the server takes"),
    (("temperature", "top_p", "seed"), "use baseline.client.send_sampling=false"),
    (
        ("response_format", "json_schema", "json_object", "structured", "grammar"),
        "use baseline.client.guided_as=json_object or baseline.guided=false",
    ),
    (("logprobs",), "use baseline.client.logprobs=false"),
    (("chat_template_kwargs", "enable_thinking"), "leave out baseline.thinking"),
    (("context", "too long", "too large", "length"), "lower baseline.max_tokens, or show fewer examples or paths"),
)
"""Words of a server's message, and what to do about it; the first that is found."""


@dataclass(frozen=True, kw_only=True)
class OpenAIClient(Client):
    """A server that speaks OpenAI's protocol of chat completions.

    What fails in passing (408, 409, 423, 424, 425, 429, 499, 5xx, a timeout, a connection that breaks, a body that is
    no completion, a reply that ends in an error or does not say why it ends, an empty reply) is asked again, after the
    time that ``Retry-After`` names, else after waits that double. A prompt that the server will not take (400, 413,
    422) is kept as ``rejected``, once it takes others. Every other refusal, as of a key, a model or an account without
    credit, ends the run at once with the server's message.

    Parameters
    ----------
    model
        As the server calls it.
    base_url
        The server's; ``OPENAI_BASE_URL``, else OpenAI's own, where not given. It is written down, so that one with a
        user or a key in it is refused.
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
        Further fields of each request's body. They are written down, so that keys and tokens are refused.
    thought_begun
        Whether the model's chat template ends prompts within a thought, and the server hands the thought on as part of
        the reply: what stands before its end is then no answer. Servers that take thoughts apart want false.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    logprobs: bool = False
    guided_as: str = "json_schema"
    limit: str = "max_tokens"
    send_sampling: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    thought_begun: bool = False

    guides: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("openai",)

    def __post_init__(self) -> None:
        for name, known in (("guided_as", _GUIDED), ("limit", _LIMITS)):
            if getattr(self, name) not in known:
                raise unknown_name(name, str(getattr(self, name)), known)
        if self.base_url is not None:
            server_address(self.base_url, key="client.base_url", key_from=self.api_key_env)
        if found := secrets_in(self.extra):
            raise InputError(
                "would be written down, in the record of a run and beside responses",
                key=f"client.extra.{found}",
                remedy=f"put the server's key into the environment variable {self.api_key_env}, or name another one "
                "with client.api_key_env",
            )

    @property
    def scores_letters(self) -> bool:
        """Whether the server gives log probabilities, as the configuration says."""
        return self.logprobs

    @property
    def address(self) -> str:
        """The server's address: scheme, host and path, without what may be written in several ways.

        Raises
        ------
        InputError
            Where it is none, or has a user or a key in it.
        """
        named = os.environ.get(_FROM)
        given, key = (self.base_url, "client.base_url") if self.base_url else (named, _FROM)
        return server_address(given or _OWN, key=key, key_from=self.api_key_env)

    @property
    def identity(self) -> dict[str, Any]:
        """Model, address and what is sent beside the prompt."""
        return {
            "client": "openai",
            "model": self.model,
            "base_url": self.address,
            "guided_as": self.guided_as,
            "limit": self.limit,
            "send_sampling": self.send_sampling,
            "extra": dict(self.extra),
            "thought_begun": self.thought_begun,
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

    def advice(self, error: str) -> str:
        """Return which option to look at, by the server's own words."""
        known = error.casefold()
        return next(
            (remedy for words, remedy in _ADVICE if any(word in known for word in words)),
            "look at baseline.client (limit, send_sampling, guided_as, extra), baseline.guided and baseline.max_tokens",
        )

    def _refused(self, refused: Refused) -> PertbaseError:
        if refused.status is None:
            return InputError(
                refused.message,
                key="client.logprobs",
                value=self.logprobs,
                remedy="start the server so that it gives them, or use baseline.client.logprobs=false",
            )
        problem = _REFUSALS.get(refused.status, "the server refuses every request")
        return InputError(
            f"{problem} ({refused.status}: {refused.message})",
            key="client",
            value=f"{self.model} at {self.address}",
            remedy=f"check baseline.client.model and base_url, the account, and the key in {self.api_key_env}; what "
            "came back is kept",
        )

    def ask(self, requests: Sequence[Request], rows: Sequence[int], sampling: Sampling, done: Done) -> None:
        """Ask many at once, and hand over each response as it comes.

        Where ``done`` raises, or the server refuses, nothing more is begun; what is on its way comes in and is handed
        over, since it is paid for.
        """
        work = self._all([(row, requests[row]) for row in rows], sampling, done)
        if not _loop_runs():
            asyncio.run(work)
            return
        # In a notebook a loop runs already; another one needs a thread of its own.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, work).result()

    async def _all(self, asked: Sequence[tuple[int, Request]], sampling: Sampling, done: Done) -> None:
        from openai import AsyncOpenAI

        queue, tries = iter(asked), Tries(self.settings)
        api = AsyncOpenAI(
            base_url=self.address,
            api_key=os.environ.get(self.api_key_env) or "none",
            timeout=tries.timeout,
            # We retry: attempts are counted, and what comes back empty is asked again too.
            max_retries=0,
        )
        server, why = _Server(api, tries), list[Exception]()

        async def worker() -> None:
            while not tries.stopped and (item := next(queue, None)) is not None:
                row, request = item
                try:
                    done([(row, await self._one(server, request, sampling))])
                except (PertbaseError, Refused) as error:
                    why.append(error)
                    tries.stop()

        async with api:
            workers = [asyncio.ensure_future(worker()) for _ in range(int(self.settings.get("concurrency") or 8))]
            try:
                await asyncio.gather(*workers)
            finally:
                for one in workers:
                    one.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        if why:
            first = why[0]
            if isinstance(first, Refused):
                raise self._refused(first) from first
            raise first

    async def _one(self, server: _Server, request: Request, sampling: Sampling) -> Response:
        if request.kind == "reply":
            body = self._reply_body(request, sampling)
            found = await server.reply(body, request)
            begun = self.thought_begun and not found.thought and not request.guided(sampling)
            return replace(found, thought_begun=begun)
        parts: list[Response] = []
        for prompt in request.prompts:
            parts.append(await server.letters(self._letters_body(prompt, sampling), request))
            if parts[-1].finish != "stop":
                break
        last = parts[-1]
        rows = [row for part in parts for row in part.letters or ()]
        counts = ("prompt_tokens", "reply_tokens", "seconds", "attempts")
        return Response(
            finish=last.finish,
            letters=tuple(rows) if last.finish == "stop" else None,
            error=next((part.error for part in parts if part.error), ""),
            served_by=parts[0].served_by,
            **{name: sum(getattr(part, name) for part in parts) for name in counts},
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
        if self.send_sampling:
            body["temperature"] = 0.0
        return body | {self.limit: 1, "logprobs": True, "top_logprobs": TOP}

    def _body(self, prompt: Messages, *, thinking: bool | None) -> dict[str, Any]:
        extra = dict(self.extra)
        if thinking is not None:
            # as vLLM, SGLang and llama.cpp take it
            extra["chat_template_kwargs"] = {"enable_thinking": thinking, **extra.get("chat_template_kwargs", {})}
        messages = [{"role": role, "content": content} for role, content in prompt]
        return {"model": self.model, "messages": messages, **({"extra_body": extra} if extra else {})}


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Server:
    """A server, and what it was seen to give in one asking."""

    def __init__(self, api: AsyncOpenAI, tries: Tries) -> None:
        self._api = api
        self._tries = tries
        self._gave_letters = False

    async def reply(self, body: Mapping[str, Any], request: Request) -> Response:
        return await self._tries.made(self._call(body), read_reply, request)

    async def letters(self, body: Mapping[str, Any], request: Request) -> Response:
        return await self._tries.made(self._call(body), self._letters, request)

    def _call(self, body: Mapping[str, Any]) -> Callable[[], Any]:
        async def call() -> bytes:
            # As bytes: what is read into types beforehand is read as they say, whatever came.
            raw = await self._api.chat.completions.with_raw_response.create(**body)
            return bytes(raw.content)

        return call

    def _letters(self, raw: bytes) -> dict[str, Any]:
        """Return what was read; where log probabilities never came, they are none of this server's.

        Raises
        ------
        Refused
            Where none came with the first letters asked for.
        """
        values = read_letters(raw)
        if values["finish"] != "stop":
            return values
        if values["letters"] is None:
            if not self._gave_letters:
                raise Refused(None, "the server gives no log probabilities, and letters are scored by them")
            return values | {"letters": ((math.nan,) * len(LETTERS),)}
        self._gave_letters = True
        return values
