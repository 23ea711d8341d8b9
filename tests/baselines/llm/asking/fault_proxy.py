"""A proxy on loopback that stands between a client and a server, and does to requests what networks do."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("429", "500", "timeout", "drip", "cut", "malformed", "empty", "no_choices")
"""What can happen in passing; ``refusal``, and any other status of HTTP, do not pass."""


class Proxy:
    """Hands requests on to a server, or to a function in its place, and breaks those that the plan names.

    The function returns a completion, or any body at all as bytes.

    ``plan`` says for each request in turn which fault it gets; None, or the end of the plan, lets it through. ``error``
    is what a status of HTTP comes with.
    """

    def __init__(
        self, answer: Callable[[dict[str, Any]], dict[str, Any] | bytes] | str, plan: Sequence[str | None] = ()
    ) -> None:
        self.answer = answer
        self.plan = list(plan)
        self.lock = threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.passed = 0
        self.error: bytes | None = None

    def fault(self, body: dict[str, Any]) -> str | None:
        with self.lock:
            self.bodies.append(body)
            self.times.append(time.monotonic())
            return self.plan.pop(0) if self.plan else None

    def through(self, raw: bytes, body: dict[str, Any]) -> bytes:
        with self.lock:
            self.passed += 1
        if callable(self.answer):
            made = self.answer(body)
            return made if isinstance(made, bytes) else json.dumps(made).encode()
        host, _, port = self.answer.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=120)
        connection.request("POST", "/v1/chat/completions", raw, {"content-type": "application/json"})
        return connection.getresponse().read()


def completion(
    text: str | None, *, finish: str = "stop", refusal: str | None = None, logprobs: Any = None
) -> dict[str, Any]:
    """Return a chat completion as servers write it."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return {
        "id": "x", "object": "chat.completion", "created": 0, "model": "served-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of a reply are two writes
    proxy: Proxy

    def log_message(self, *args: object) -> None:
        pass

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        body = json.loads(raw)
        fault = self.proxy.fault(body)
        error = self.proxy.error or json.dumps({"error": {"message": f"fault {fault}", "type": "x"}}).encode()
        if fault == "429":
            self.send(429, error, retry_after="0.3")
        elif fault is not None and fault.isdigit():
            self.send(int(fault), error)
        elif fault == "timeout":
            time.sleep(1.5)
            self.close_connection = True
        elif fault == "drip":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "100")
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked has gone
                for _ in range(100):
                    self.wfile.write(b" ")
                    time.sleep(0.1)
            self.close_connection = True
        elif fault == "cut":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "5000")
            self.end_headers()
            self.wfile.write(b'{"id": "x", "choices": [{"mess')
            self.close_connection = True
        elif fault == "malformed":
            self.send(200, b'{"id": "x", "choices": [{"message": ')
        elif fault == "empty":
            self.send(200, json.dumps(completion("")).encode())
        elif fault == "no_choices":
            self.send(200, json.dumps({"id": "x", "object": "chat.completion", "choices": []}).encode())
        elif fault == "refusal":
            self.send(200, json.dumps(completion(None, refusal="I will not")).encode())
        else:
            self.send(200, self.proxy.through(raw, body))


_STARTED = itertools.count()


@contextlib.contextmanager
def running(proxy: Proxy) -> Iterator[str]:
    """Run a proxy, and yield the base URL to ask it at.

    No two addresses are the same: a port that is free again may be given again, and what is kept of one server would
    answer for the next.
    """
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{next(_STARTED)}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
