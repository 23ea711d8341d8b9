"""How the paths of a fold are chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pertbase.errors import InputError, unknown_name

__all__ = ["PathSpec"]


@dataclass(frozen=True, kw_only=True)
class PathSpec:
    """How the paths of a fold are chosen.

    Parameters
    ----------
    graph
        A name, a file or a list of them, see :func:`pertbase.knowledge.signed_graph`. Not given: the graph that the
        data set brings.
    hops
        Edges of a path at most, 1 to 4.
    k
        Paths of a question at most.
    weight
        ``evidence``, or ``equal`` for all edges.
    gate
        ``expressed``; ``ks``, fitted to which genes respond in train, so that candidates then depend on labels of
        train; ``none``; or two levels, mean log1p, at which the gate is .1 and .9.
    matched
        Whether ``ks`` matches its populations by expression.
    subnetwork
        The number of most relevant nodes that paths of a question may go through; any where not given.
    no_change
        The reference of ``no_change``: ``opposing`` paths, or ``none``.
    shut
        Whether a gate below one half lets no path through, in the place of making it dearer: where hardly any question
        has more than k paths, a price alone changes nothing.
    """

    graph: Any = None
    hops: int = 3
    k: int = 5
    weight: str = "evidence"
    gate: str | tuple[float, float] = "expressed"
    matched: bool = True
    subnetwork: int | None = None
    no_change: str = "opposing"
    shut: bool = False

    def __post_init__(self) -> None:
        from pertbase.knowledge._gates import GATES
        from pertbase.knowledge._paths import MAX_HOPS, WEIGHTS
        from pertbase.knowledge._references import NO_CHANGE

        for name, least, most in (("hops", 1, MAX_HOPS), ("k", 1, 100), ("subnetwork", 1, 10**9)):
            value = getattr(self, name)
            if value is None and name == "subnetwork":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InputError(f"is a whole number from {least} to {most}", key=f"paths.{name}", value=value)
        if isinstance(self.gate, (list, tuple)):
            object.__setattr__(self, "gate", _levels(self.gate))
        gates = (*GATES, "two levels, such as [0.2,0.6]")
        for name, known in (("weight", WEIGHTS), ("gate", gates), ("no_change", NO_CHANGE)):
            value = getattr(self, name)
            if value not in known and not (name == "gate" and isinstance(value, tuple)):
                raise unknown_name(f"paths.{name}", str(value), known)
        if not isinstance(self.shut, bool):
            raise InputError("is true or false", key="paths.shut", value=self.shut)
        if isinstance(self.graph, list):
            object.__setattr__(self, "graph", tuple(self.graph))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        # Layers keep the hash they had before gates could be shut.
        return plain if self.shut else {key: value for key, value in plain.items() if key != "shut"}

    @classmethod
    def of(cls, given: PathSpec | Mapping[str, Any] | None) -> PathSpec | None:
        """Return the spec that a configuration means; None for none, or an empty one.

        Raises
        ------
        InputError
            Where a key is unknown.
        """
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise InputError("paths are a mapping of options", key="paths", value=given)
        for key in given:
            if key not in cls.__dataclass_fields__:
                raise unknown_name("paths option", str(key), cls.__dataclass_fields__)
        return cls(**{str(key): value for key, value in given.items()}) if given else None


def _levels(given: Sequence[Any]) -> tuple[float, float]:
    """Return the two levels of a gate."""
    numbers = all(isinstance(level, (int, float)) and not isinstance(level, bool) for level in given)
    if len(given) != 2 or not numbers or not -math.inf < given[0] < given[1] < math.inf:
        raise InputError(
            "a gate has two levels, the lower one first",
            key="paths.gate",
            value=list(given),
            remedy="write for example paths.gate=[0.2,0.6]",
        )
    return float(given[0]), float(given[1])
