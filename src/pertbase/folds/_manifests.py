"""Manifests: the folds behind a published table, small enough to ship and whole enough to be held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pertbase._io import plain, read_mapping, write_text
from pertbase.errors import InputError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._cells import hash_frame
from pertbase.folds._fold import SPLITS, Fold
from pertbase.folds._spec import FoldSpec
from pertbase.folds._views import AMBIGUOUS

__all__ = ["Manifest", "PinnedFold"]

# Effects, p-values and power may differ in the last bits between machines; who is asked what may not.
_CONDITIONS = ("context", "perturbation", "split", "regime", "n_cells")
_QUESTIONS = ("id", "split", "regime", "outcome")
_KEYS = ("data", "data_name", "hash", "data_hash", "spec", "content", "counts")


@dataclass(frozen=True)
class PinnedFold:
    """One fold as a manifest describes it: no cell, no question, but all that tells it from another.

    Parameters
    ----------
    data
        What ``data=`` names.
    data_name
        The data set's own name.
    hash, data_hash
        Of the fold, and of the data set's content.
    spec
        Kind, seed, rule and shares.
    content
        Hashes of who is in which split (``conditions``), who may see which control (``controls``) and what is asked,
        with which outcome (``questions``).
    counts
        Conditions and outcomes of each split.
    """

    data: str
    data_name: str
    hash: str
    data_hash: str
    spec: FoldSpec
    content: Mapping[str, str]
    counts: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, fold: Fold, *, data: str) -> PinnedFold:
        """Return what a manifest says of a fold."""
        content = {
            "conditions": hash_frame(fold.conditions[list(_CONDITIONS)]),
            "controls": hash_frame(fold.controls),
            "questions": hash_frame(fold.questions[list(_QUESTIONS)]),
        }
        return cls(data, fold.data, fold.hash, fold.data_hash, fold.spec, content, _counts(fold))

    @property
    def title(self) -> str:
        """Fold and data set."""
        return f"{self.spec.name} of {self.data_name}"

    def differences(self, fold: Fold) -> list[str]:
        """Return how a fold is not this one; empty where it is."""
        here = PinnedFold.of(fold, data=self.data)
        if here.data_hash != self.data_hash:
            return [f"the data set is another: {here.data_hash[:12]} here, {self.data_hash[:12]} in the manifest"]
        found = []
        if here.hash != self.hash:
            found.append(f"the fold's hash is {here.hash[:12]} here and {self.hash[:12]} in the manifest")
        found += [
            f"{split} holds {counts.get(name)} {name} here and {count} in the manifest"
            for split, wanted in self.counts.items()
            for name, count in wanted.items()
            for counts in [here.counts.get(split, {})]
            if counts.get(name) != count
        ]
        return found + [
            f"the {name} are not those of the manifest"
            for name, wanted in self.content.items()
            if here.content.get(name) != wanted
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, the fold's name among them for people."""
        return {
            "data": self.data,
            "data_name": self.data_name,
            "fold": self.spec.name,
            "hash": self.hash,
            "data_hash": self.data_hash,
            "spec": self.spec.to_dict(),
            "content": dict(self.content),
            "counts": {split: dict(counts) for split, counts in self.counts.items()},
        }


@dataclass(frozen=True)
class Manifest:
    """The folds behind a table.

    Parameters
    ----------
    title
        Which table.
    folds
        Its folds.
    """

    title: str
    folds: tuple[PinnedFold, ...]

    @classmethod
    def read(cls, path: str | Path) -> Manifest:
        """Read a manifest.

        Raises
        ------
        InputError
            Where the file is absent, is not YAML or lacks what a manifest says.
        """
        about = read_mapping(path)
        folds = about.get("folds")
        if not isinstance(about.get("title"), str) or not isinstance(folds, list) or not folds:
            raise InputError(
                "is not a manifest of folds",
                file=path,
                key="folds",
                value=folds,
                remedy="write one: pertbase folds manifest data=... fold=... output=FILE.yaml",
            )
        return cls(about["title"], tuple(_pinned(entry, number, path) for number, entry in enumerate(folds)))

    def write(self, path: str | Path) -> None:
        """Write as YAML, whole or not at all, the title as a comment first: that is what lists show."""
        about = plain({"title": self.title, "folds": [fold.to_dict() for fold in self.folds]})
        body = yaml.safe_dump(about, sort_keys=False, allow_unicode=True, width=120)
        write_text(path, f"# {self.title}\n{body}")

    def find(self, hash: str) -> PinnedFold | None:
        """Return the fold of a hash, or None."""
        return next((fold for fold in self.folds if fold.hash == hash), None)


def _pinned(entry: Any, number: int, path: str | Path) -> PinnedFold:
    missing = [key for key in _KEYS if not isinstance(entry, Mapping) or key not in entry]
    if missing:
        raise InputError("lacks keys", file=path, key=f"folds[{number}]", value=missing)
    for key in ("content", "counts"):
        if not isinstance(entry[key], Mapping) or not entry[key]:
            raise InputError("is a mapping", file=path, key=f"folds[{number}].{key}", value=entry[key])
    return PinnedFold(
        data=str(entry["data"]),
        data_name=str(entry["data_name"]),
        hash=str(entry["hash"]),
        data_hash=str(entry["data_hash"]),
        spec=FoldSpec.from_dict(entry["spec"]),
        content=dict(entry["content"]),
        counts={str(split): dict(counts) for split, counts in entry["counts"].items()},
    )


def _counts(fold: Fold) -> dict[str, dict[str, int]]:
    names = ("conditions", *OUTCOMES, AMBIGUOUS)
    return {split: {name: int(fold.summary.loc[split, name]) for name in names} for split in SPLITS}
