"""How the paths of a fold are chosen."""

from __future__ import annotations

from collections.abc import Mapping
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
        train; or ``none``.
    matched
        Whether ``ks`` matches its populations by expression.
    subnetwork
        The number of most relevant nodes that paths of a question may go through; any where not given.
    no_change
        The reference of ``no_change``: ``opposing`` paths, or ``none``.
    """

    graph: Any = None
    hops: int = 3
    k: int = 5
    weight: str = "evidence"
    gate: str = "expressed"
    matched: bool = True
    subnetwork: int | None = None
    no_change: str = "opposing"

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
        for name, known in (("weight", WEIGHTS), ("gate", GATES), ("no_change", NO_CHANGE)):
            if getattr(self, name) not in known:
                raise unknown_name(f"paths.{name}", str(getattr(self, name)), known)
        if isinstance(self.graph, list):
            object.__setattr__(self, "graph", tuple(self.graph))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(self)
        return {**plain, "graph": list(self.graph) if isinstance(self.graph, tuple) else self.graph}

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
