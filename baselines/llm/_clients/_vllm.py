"""A model run by vLLM in this process. Not verified here: written by vLLM's documentation, on a machine without a GPU.

vLLM pins its own torch and transformers, so that it wants an environment of its own, or, better, a server
(``vllm serve MODEL``) asked through :class:`~pertbase.baselines.llm.OpenAIClient`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pertbase.baselines._files import model_files
from pertbase.baselines.llm._clients._base import Client, Done, Request, Response, Sampling
from pertbase.baselines.llm._clients._chat import ends_in_thought
from pertbase.baselines.llm._clients._letters import TOP, letter_row
from pertbase.baselines.llm._prompts import SCHEMA, Messages

__all__ = ["VLLMClient"]

_CHUNK = 512
"""Requests handed over together, and kept together: what a kill costs at most."""


@dataclass(frozen=True, kw_only=True)
class VLLMClient(Client):
    """A causal language model that vLLM loads and batches.

    Parameters
    ----------
    model, revision
        A folder or a name on the hub, and its commit.
    precision
        vLLM's ``dtype``.
    options
        Further arguments of ``vllm.LLM``, such as ``tensor_parallel_size``.
    """

    model: str
    revision: str | None = None
    precision: str = "bfloat16"
    options: dict[str, Any] = field(default_factory=dict)
    _held: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    guides: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "vllm")

    def __deepcopy__(self, memo: dict[int, Any]) -> VLLMClient:
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """Model, of a folder its files too, revision, precision and options."""
        return {
            "client": "vllm", "model": self.model, **model_files(self.model), "revision": self.revision,
            "precision": self.precision, "options": dict(self.options),
        }  # fmt: skip

    @property
    def title(self) -> str:
        """The model's name without the folders before it."""
        return Path(self.model).name

    @property
    def device(self) -> str:
        """vLLM chooses it."""
        return "vllm"

    def refuses(self) -> str | None:
        """Refuse where vLLM is not installed."""
        from importlib.util import find_spec

        known = find_spec("vllm") is not None
        return (
            None
            if known
            else "vllm is not installed: pip install vllm, in an environment of its own; or serve the model"
        )

    def ask(self, requests: Sequence[Request], rows: Sequence[int], sampling: Sampling, done: Done) -> None:
        """Ask in large batches, replies first."""
        for kind, one in (("reply", self._replies), ("letters", self._letters)):
            of_kind = [row for row in rows if requests[row].kind == kind]
            for begin in range(0, len(of_kind), _CHUNK):
                part = of_kind[begin : begin + _CHUNK]
                began = time.monotonic()
                made = one([requests[row] for row in part], sampling)
                share = (time.monotonic() - began) / len(part)
                done([(row, Response(**values, seconds=share)) for row, values in zip(part, made, strict=True)])

    def _chat(self, prompts: Sequence[Messages], params: Sequence[Any], thinking: bool | None) -> list[Any]:
        if "model" not in self._held:
            from vllm import LLM

            self._held["model"] = LLM(model=self.model, revision=self.revision, dtype=self.precision, **self.options)
        turns = [[{"role": role, "content": content} for role, content in prompt] for prompt in prompts]
        more = {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
        return list(self._held["model"].chat(turns, list(params), use_tqdm=False, **more))

    def _replies(self, requests: Sequence[Request], sampling: Sampling) -> list[dict[str, Any]]:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        params = [
            SamplingParams(
                temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=sampling.max_tokens,
                seed=sampling.seed + request.sample,
                structured_outputs=StructuredOutputsParams(json=SCHEMA) if request.guided(sampling) else None,
            )
            for request in requests
        ]  # fmt: skip
        made = []
        for found in self._chat([request.prompts[0] for request in requests], params, sampling.thinking):
            best = found.outputs[0]
            # Of any other end, as an abort, nobody knows whether the reply is whole.
            known = {"length": "length", "stop": "stop" if best.text.strip() else "empty"}
            begun = ends_in_thought(self._held["model"].get_tokenizer(), found.prompt_token_ids)
            about = {"served_by": self.title, "thought_begun": begun}
            counts = {"prompt_tokens": len(found.prompt_token_ids), "reply_tokens": len(best.token_ids)}
            finish = known.get(best.finish_reason, "error")
            error = f"finish_reason is {best.finish_reason!r}" if finish == "error" else ""
            made.append({"text": best.text, "finish": finish, "error": error, **about, **counts})
        return made

    def _letters(self, requests: Sequence[Request], sampling: Sampling) -> list[dict[str, Any]]:
        from vllm import SamplingParams

        prompts = [prompt for request in requests for prompt in request.prompts]
        one = SamplingParams(temperature=0.0, max_tokens=1, logprobs=TOP)
        found = self._chat(prompts, [one] * len(prompts), None if sampling.thinking is None else False)
        # A reply that ends at once has no table.
        listed = [(item.outputs[0].logprobs or [{}])[0].values() for item in found]
        tables = [letter_row((one.decoded_token or "", one.logprob) for one in top) for top in listed]
        sizes = [len(item.prompt_token_ids) for item in found]
        made, begin = [], 0
        for request in requests:
            end = begin + len(request.prompts)
            made.append(
                {"letters": tuple(tables[begin:end]), "prompt_tokens": sum(sizes[begin:end]), "served_by": self.title}
            )
            begin = end
        return made
