"""Random generators named by what they are for."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["generator"]


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return a generator that depends on the seed and the purpose alone.

    Two purposes never share a stream, so that drawing more numbers for one leaves the other as it was.
    """
    digest = hashlib.sha256("\x1f".join(purpose).encode()).digest()
    words = [int.from_bytes(digest[start : start + 4], "little") for start in range(0, 16, 4)]
    return np.random.default_rng([seed, *words])
