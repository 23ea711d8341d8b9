"""What a fold is asked to be: kind, seed, rule and shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pertbase._io import cut, sha256_text
from pertbase.errors import InputError, unknown_name
from pertbase.folds._labels import LabelRule, Ranksum, label_rule
from pertbase.folds._path_spec import PathSpec
from pertbase.folds._split_files import SplitFile

__all__ = ["KINDS", "FoldSpec"]

KINDS = (
    "unseen_perturbation_genetic",
    "unseen_perturbation_chemical",
    "unseen_context_genetic",
    "unseen_context_chemical",
    "unseen_both_genetic",
    "unseen_both_chemical",
    "genetic_to_chemical",
    "combinatorial",
    "published",
)


_LONGEST_SLUG = 60
_MOST_EDGES = 4


@dataclass(frozen=True, kw_only=True)
class FoldSpec:
    """Everything, beside the data set, that a fold depends on.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    seed
        Draws the control partition and the split.
    rule
        The label rule, which names the effect statistic.
    test_share
        The share of target sets (or compounds, or combinations) that test asks about.
    val_share
        The share of target sets (or compounds, or combinations) that val asks about.
    combination_test_share
        The share of combinations asked in ``combinatorial``: more than ``test_share``, since there are few.
    both_share
        The share of target sets for test, and again for val, in ``unseen_both``.
    input_share
        The share of each context's controls a model may see; the labels use the others.
    test_context
        The context that test asks about; drawn where not given.
    val_context
        The context that val asks about; drawn where not given.
    context
        For ``published``: the context whose shipped split is used.
    split
        For ``published``: a split file of cell-load's (.toml), or what one holds, in place of a shipped split. What it
        says is part of the fold, not where it lies.
    val
        For ``genetic_to_chemical``: ``genetic`` (zero-shot) or ``chemical`` (few-shot).
    min_controls
        Controls a context needs on each side of the partition.
    paths
        How candidate and reference paths are chosen; none where not given. They are laid over the fold, which is the
        same with them and without.
    per_outcome
        Questions of each outcome that val and test ask, drawn by their ids, and no ambiguous ones; all where not given.
        Balanced accuracy estimates that of the whole fold, at the cost of a few hundred questions: for language models.
    reached
        Of val and test, only questions whose readout gene a signed graph leads to from a target, in so many edges; all
        where not given. No label is looked at. On them, that there is a path says nothing, and what paths say can be.
    reached_in
        That graph, see :func:`pertbase.knowledge.signed_graph`; the data set's own where not given.
    """

    kind: str
    seed: int = 0
    rule: LabelRule = field(default_factory=Ranksum)
    test_share: float = 0.25
    val_share: float = 0.15
    combination_test_share: float = 0.5
    both_share: float = 0.35
    input_share: float = 0.5
    test_context: str | None = None
    val_context: str | None = None
    context: str | None = None
    val: str = "genetic"
    min_controls: int = 10
    paths: PathSpec | None = None
    split: SplitFile | None = None
    per_outcome: int | None = None
    reached: int | None = None
    reached_in: Any = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("fold", str(self.kind), KINDS)
        for name in ("seed", "min_controls"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError("is a whole number", key=f"fold.{name}", value=value)
        for name in ("test_context", "val_context", "context"):
            # A context may be called 1 or nan, which the command line reads as a number.
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else str(value))
        for name in ("test_share", "val_share", "combination_test_share", "both_share", "input_share"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 < value < 1:
                raise InputError("a share lies between 0 and 1", key=f"fold.{name}", value=getattr(self, name))
        for first in ("test_share", "combination_test_share"):
            if getattr(self, first) + self.val_share >= 1:
                raise InputError(
                    f"{first} and val_share leave nothing to train on", key=f"fold.{first}", value=getattr(self, first)
                )
        if self.both_share >= 0.5:
            raise InputError(
                "both_share is taken twice and leaves nothing to train on", key="fold.both_share", value=self.both_share
            )
        if self.val not in ("genetic", "chemical"):
            raise InputError("val is genetic or chemical", key="fold.val", value=self.val)
        if self.split is not None and self.kind != "published":
            raise InputError("is of published folds", key="fold.split", value=self.split.name, remedy="fold=published")
        if self.per_outcome is not None and (type(self.per_outcome) is not int or self.per_outcome < 1):
            raise InputError("is a positive number of questions", key="fold.per_outcome", value=self.per_outcome)
        if self.reached is not None and (type(self.reached) is not int or not 1 <= self.reached <= _MOST_EDGES):
            raise InputError(f"is a number of edges, 1 to {_MOST_EDGES}", key="fold.reached", value=self.reached)
        if self.reached_in is not None and self.reached is None:
            raise InputError("is of folds with fold.reached", key="fold.reached_in", value=self.reached_in)
        if isinstance(self.reached_in, list):
            object.__setattr__(self, "reached_in", tuple(self.reached_in))
        if self.seed < 0:
            raise InputError("a seed is not negative", key="fold.seed", value=self.seed)

    @property
    def name(self) -> str:
        """The fold's name: the kind, then what was named beyond it."""
        chosen = self.context if self.kind == "published" else self.test_context
        chosen = chosen if self.split is None else self.split.name
        name = self.kind + (f"_{_slug(chosen)}" if chosen else "")
        if self.kind == "genetic_to_chemical" and self.val == "chemical":
            name += "_few_shot"
        name += f"_reached{self.reached}" if self.reached else ""
        name += f"_{self.per_outcome}each" if self.per_outcome else ""
        return name if self.seed == 0 else f"{name}_seed{self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, rule, paths and split as dictionaries of their own; what is not given of these, no key.

        So folds keep their hashes, whatever options come later.
        """
        apart = ("rule", "paths", "split", "per_outcome", "reached", "reached_in")
        return {
            **{item.name: getattr(self, item.name) for item in fields(self) if item.name not in apart},
            "rule": self.rule.to_dict(),
            **({} if self.paths is None else {"paths": self.paths.to_dict()}),
            **({} if self.split is None else {"split": self.split.to_dict()}),
            **({} if self.per_outcome is None else {"per_outcome": self.per_outcome}),
            **({} if self.reached is None else {"reached": self.reached, "reached_in": _listed(self.reached_in)}),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FoldSpec:
        """Return the spec :meth:`to_dict` came from.

        Raises
        ------
        InputError
            Where a key is unknown.
        """
        known = {item.name for item in fields(cls)}
        if not isinstance(values, Mapping):
            raise InputError("a fold is a mapping of options", key="fold", value=values)
        for key in values:
            if key not in known:
                raise unknown_name("fold option", str(key), known)
        if "kind" not in values:
            raise InputError("a fold names its kind", key="fold.kind", value=None, remedy=f"use {', '.join(KINDS)}")
        rule = values.get("rule", "ranksum")
        made = {**values, "rule": rule if isinstance(rule, LabelRule) else label_rule(rule)}
        made["split"] = None if values.get("split") is None else SplitFile.of(values["split"])
        return cls(**{**made, "paths": PathSpec.of(values.get("paths"))})

    def with_(self, **changes: Any) -> FoldSpec:
        """Return a copy with some values changed."""
        return replace(self, **changes)


def _listed(graph: Any) -> Any:
    return list(graph) if isinstance(graph, tuple) else graph


def _slug(name: str) -> str:
    """Return a name as a part of a file name: names stay apart (``CD4+ T``, ``CD4- T``, ``CD4/T``)."""
    slug = "".join(letter if letter.isalnum() or letter in "+-_." else "-" for letter in name)
    if slug == name.replace(" ", "-") and slug.strip("-._") and slug == cut(slug, _LONGEST_SLUG):
        return slug
    return f"{cut(slug, _LONGEST_SLUG).strip('-._')}-{sha256_text(name)[:6]}".lstrip("-")
