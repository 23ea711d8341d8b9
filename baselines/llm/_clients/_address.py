"""Where a server is, as it is written down: in one way, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pertbase.errors import InputError

__all__ = ["secrets_in", "server_address"]

_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "an address is http or https, a host, a port up to 65535 and a path: http://localhost:8000/v1"
_SECRET = re.compile(
    r"(?:.*[_-])?(?:api[_-]?key|apikey|secret|secret[_-]?key|password|passwd|authorization|credentials?|"
    r"(?:access|auth|bearer|refresh|session)[_-]?token)|token|key|sig",
    flags=re.IGNORECASE,
)
"""Names of what is a secret. ``max_tokens`` and ``prompt_cache_key`` are none."""
_LOOKS = re.compile(r"(?:sk|hf|gsk|xai)[-_][\w-]{8,}|bearer\s+\S+", flags=re.IGNORECASE)
"""Values that say themselves what they are."""


def server_address(given: str, *, key: str, key_from: str) -> str:
    """Return an address with what changes nothing left out: case of scheme and host, default port, last slash.

    Parameters
    ----------
    given
        As it was configured.
    key
        Where, for errors.
    key_from
        The environment variable that a server's key belongs into, for errors.

    Raises
    ------
    InputError
        Where it is no address of a server, or has a user or a key in it. The secret is not in the message.
    """
    try:
        parts = urlsplit(str(given).strip())
        port = parts.port
    except ValueError as error:
        # Without the error's own words, which hold a part of the address.
        raise InputError("is no address of a server", key=key, remedy=_EXAMPLE) from error
    if parts.username is not None or parts.password is not None:
        told = "has a user or a password in it, and would be written down"
    elif name := secrets_in(dict(parse_qsl(parts.query))):
        told = f"has a secret in it ({name}), and would be written down"
    else:
        told = ""
    if told:
        raise InputError(told, key=key, remedy=f"leave it out; a key belongs into the environment variable {key_from}")
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _PORTS or not host or any(letter.isspace() for letter in host):
        raise InputError("is no address of a server", key=key, value=given, remedy=_EXAMPLE)
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, _PORTS[scheme]) else f"{shown}:{port}"
    return urlunsplit((scheme, place, parts.path.rstrip("/"), parts.query, ""))


def secrets_in(value: Any, name: str = "") -> str | None:
    """Return the key, joined with dots, under which a secret stands in nested values; None where none does."""
    if isinstance(value, Mapping):
        items = [(f"{name}.{key}" if name else str(key), str(key), item) for key, item in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        items = [(f"{name}.{place}", "", item) for place, item in enumerate(value)]
    else:
        return name if isinstance(value, str) and _LOOKS.fullmatch(value.strip()) else None
    for where, key, item in items:
        if _SECRET.fullmatch(key) and isinstance(item, str) and item:
            return where
        if found := secrets_in(item, where):
            return found
    return None
