"""Who is in train, val and test: one function a fold kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import UnsupportedError, unknown_name
from pertbase.folds._perturbation import Perturbation
from pertbase.folds._spec import KINDS, FoldSpec
from pertbase.folds._split_files import SplitFile

__all__ = ["Assignment", "assign"]

UNUSED = "unused"
# A context is drawn for test, or for val, among those that can tell the classes apart, where there are any.
_ENOUGH_CALLS = 10


@dataclass(frozen=True)
class Assignment:
    """The split of every condition.

    Parameters
    ----------
    split
        ``train``, ``val``, ``test`` or ``unused``, one a condition.
    regime
        The stratum of each condition; empty where the kind has none or where it is filled in later from the
        measured effects.
    notes
        What a reader should know: flags and counts of what was left out.
    """

    split: np.ndarray
    regime: np.ndarray
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Case:
    """What a kind's function looks at."""

    conditions: pd.DataFrame
    perturbations: dict[str, Perturbation]
    spec: FoldSpec
    data: str

    def rng(self, *purpose: str) -> np.random.Generator:
        return generator(self.spec.seed, self.spec.kind, *purpose)

    def refuse(self, missing: str, remedy: str | None = None) -> UnsupportedError:
        return UnsupportedError(f"{self.data} cannot support the fold {self.spec.kind}: {missing}", remedy=remedy)

    def units(self, mask: np.ndarray) -> list[frozenset[str]]:
        return [frozenset(self.perturbations[name].units) for name in self.conditions.loc[mask, "perturbation"]]


def assign(
    conditions: pd.DataFrame, perturbations: dict[str, Perturbation], spec: FoldSpec, *, data: str
) -> Assignment:
    """Return who is in train, val and test.

    Parameters
    ----------
    conditions
        One row a condition: ``context``, ``perturbation``, ``modality``, ``target_set``, ``n_parts``, ``n_up``,
        ``n_down`` (calls, used to spread conditions with calls over the splits) and, where the data set ships a
        split, ``published``.
    perturbations
        Name -> perturbation.
    spec
        Kind, seed and shares.
    data
        The data set's name, for messages.

    Raises
    ------
    UnsupportedError
        Where the data set lacks what the kind needs; the message says what is missing.
    """
    if spec.kind not in _KIND_FUNCTIONS:
        raise unknown_name("fold", spec.kind, KINDS)
    case = _Case(conditions.reset_index(drop=True), perturbations, spec, data)
    assignment = _KIND_FUNCTIONS[spec.kind](case)
    for split in ("train", "val", "test"):
        if not (assignment.split == split).any():
            raise case.refuse(f"no condition is left for {split}", "more conditions, or other shares, are needed")
    return assignment


def _spread(keys: pd.Series, calls: pd.Series, shares: dict[str, float], rng: np.random.Generator) -> dict[str, str]:
    """Draw a split for each distinct key, so that keys with many and few calls fall into every split.

    Keys are ordered by their calls, ties at random. Their turns ``(u + i / phi) mod 1`` are spread evenly over the
    unit interval for any run of neighbours, phi being the golden ratio, and uniform for each key, u being drawn: the
    strongest key is in test as often, over seeds, as test's share says.
    """
    totals = calls.groupby(keys).sum()
    order = totals.index.to_numpy()[np.lexsort((rng.random(len(totals)), -totals.to_numpy()))]
    names = [name for name, share in shares.items() if share > 0]
    edges = np.cumsum([shares[name] for name in names])
    turns = (rng.random() + np.arange(len(order)) * (np.sqrt(5) - 1) / 2) % 1
    split = np.minimum(np.searchsorted(edges, turns * edges[-1], side="right"), len(names) - 1)
    return _filled({str(key): names[number] for key, number in zip(order, split, strict=True)}, names)


def _filled(chosen: dict[str, str], splits: list[str]) -> dict[str, str]:
    """Return the choice with no split left empty, as far as there are keys.

    With few keys a small share may come to nothing. The most numerous split then gives its key with the fewest calls.
    """
    chosen = dict(chosen)
    for lacking in splits:
        held = list(chosen.values())
        donor = max(splits, key=held.count)
        if lacking not in held and held.count(donor) > 1:
            chosen[[key for key, split in chosen.items() if split == donor][-1]] = lacking
    return chosen


def _train_share(test: float, val: float) -> dict[str, float]:
    return {"train": 1.0 - test - val, "val": val, "test": test}


def _calls(case: _Case) -> pd.Series:
    return case.conditions["n_up"] + case.conditions["n_down"]


def _modality(case: _Case) -> tuple[str, np.ndarray]:
    modality = case.spec.kind.rsplit("_", 1)[1]
    mask = (case.conditions["modality"] == modality).to_numpy()
    if not mask.any():
        raise case.refuse(f"it has no {modality} perturbations")
    return modality, mask


def _blank(case: _Case) -> tuple[np.ndarray, np.ndarray]:
    size = len(case.conditions)
    return np.full(size, UNUSED, dtype=object), np.full(size, "", dtype=object)


def _hold_out_sets(case: _Case, mask: np.ndarray, shares: dict[str, float], *purpose: str) -> tuple[np.ndarray, int]:
    """Split single-part conditions by target set; a combination trains only if none of its parts is held out."""
    table = case.conditions
    single = mask & (table["n_parts"] == 1).to_numpy()
    keys = table.loc[single, "target_set"]
    needed = sum(share > 0 for share in shares.values())
    if keys.nunique() < max(needed, 3):
        raise case.refuse(
            f"it has {keys.nunique()} target sets or compounds perturbed alone, and at least {max(needed, 3)} are "
            "needed"
        )
    chosen = _spread(keys, _calls(case)[single], shares, case.rng("sets", *purpose))
    split = np.full(len(table), UNUSED, dtype=object)
    split[single] = [chosen[key] for key in keys]
    held = {key for key, value in chosen.items() if value != "train"}
    combined = mask & ~single
    allowed = np.array([not (units & held) for units in case.units(combined)], dtype=bool)
    positions = np.flatnonzero(combined)
    split[positions[allowed]] = "train"
    return split, int((~allowed).sum())


def _unseen_perturbation(case: _Case) -> Assignment:
    _, mask = _modality(case)
    split, left_out = _hold_out_sets(case, mask, _train_share(case.spec.test_share, case.spec.val_share))
    notes = (f"{left_out} combinations with a held-out part are not used",) if left_out else ()
    return Assignment(split, np.full(len(split), "", dtype=object), notes)


def _contexts(case: _Case, mask: np.ndarray) -> tuple[str, str | None, tuple[str, ...]]:
    """Return the test context, the val context (None with two contexts only) and notes."""
    table = case.conditions[mask]
    contexts = sorted(table["context"].unique())
    if len(contexts) < 2:
        raise case.refuse(f"it has {len(contexts)} context with such conditions, and at least 2 are needed")
    fewest_calls = table.groupby("context")[["n_up", "n_down"]].sum().min(axis=1)
    rng = case.rng("contexts")

    def draw(candidates: list[str]) -> str:
        able = [name for name in candidates if fewest_calls[name] >= _ENOUGH_CALLS] or candidates
        return str(able[int(rng.integers(len(able)))])

    def named(key: str, name: str, candidates: list[str]) -> str:
        if name not in candidates:
            raise unknown_name(f"fold.{key}", name, candidates)
        return name

    spec = case.spec
    test = named("test_context", spec.test_context, contexts) if spec.test_context else draw(contexts)
    rest = [name for name in contexts if name != test]
    if spec.val_context:
        return test, named("val_context", spec.val_context, rest), ()
    if len(rest) < 2:
        return test, None, ("only two contexts: val holds out conditions of the training context, not a context",)
    return test, draw(rest), ()


def _unseen_context(case: _Case) -> Assignment:
    _, mask = _modality(case)
    test, val, notes = _contexts(case, mask)
    context = case.conditions["context"].to_numpy()
    split, regime = _blank(case)
    split[mask] = "train"
    split[mask & (context == test)] = "test"
    if val is None:
        inside = mask & (context != test)
        keys = case.conditions.loc[inside, "target_set"]
        if keys.nunique() < 2:
            raise case.refuse("val needs a third context, or a second target set or compound in the training context")
        shares = {"train": 1.0 - case.spec.val_share, "val": case.spec.val_share}
        chosen = _spread(keys, _calls(case)[inside], shares, case.rng("val"))
        split[inside] = [chosen[key] for key in keys]
    else:
        split[mask & (context == val)] = "val"
    seen = set(case.conditions.loc[split == "train", "target_set"])
    regime[mask] = [
        "perturbation_seen" if key in seen else "perturbation_unseen" for key in case.conditions.loc[mask, "target_set"]
    ]
    return Assignment(split, regime, notes)


def _unseen_both(case: _Case) -> Assignment:
    _, mask = _modality(case)
    test, val, notes = _contexts(case, mask)
    context = case.conditions["context"].to_numpy()
    # Sets are drawn by their calls where they will be asked; a set never measured in the test context cannot be test.
    shares = _train_share(case.spec.both_share, case.spec.both_share)
    by_set, _ = _hold_out_sets(case, mask, shares)
    split, regime = _blank(case)
    split[mask & (by_set == "test") & (context == test)] = "test"
    seen_in = mask & (context != test) & ((context != val) if val is not None else True)
    split[seen_in & (by_set == "train")] = "train"
    split[mask & (by_set == "val") & ((context == val) if val is not None else (context != test))] = "val"
    left = int((mask & (split == UNUSED)).sum())
    return Assignment(
        split,
        regime,
        (*notes, f"{left} conditions share a context or a target set with another split and are not used"),
    )


def _genetic_to_chemical(case: _Case) -> Assignment:
    table = case.conditions
    genetic = (table["modality"] == "genetic").to_numpy()
    chemical = (table["modality"] == "chemical").to_numpy()
    for name, mask in (("genetic", genetic), ("chemical", chemical)):
        if not mask.any():
            raise case.refuse(f"it has no {name} perturbations")
    split, regime = _blank(case)
    if case.spec.val == "chemical":
        keys = table.loc[chemical, "target_set"]
        if keys.nunique() < 2:
            raise case.refuse("val=chemical needs at least 2 compounds")
        shares = {"test": 1.0 - case.spec.val_share, "val": case.spec.val_share}
        chosen = _spread(keys, _calls(case)[chemical], shares, case.rng("val"))
        split[chemical] = [chosen[key] for key in keys]
        split[genetic] = "train"
        notes: tuple[str, ...] = ("few-shot: val holds chemical conditions",)
    else:
        shares = {"train": 1.0 - case.spec.val_share, "val": case.spec.val_share}
        by_set, left_out = _hold_out_sets(case, genetic, {**shares, "test": 0.0})
        split[genetic] = by_set[genetic]
        split[chemical] = "test"
        notes = ("zero-shot: no chemical condition in train or val",)
        if left_out:
            notes += (f"{left_out} combinations with a held-out part are not used",)
    perturbed = {
        gene
        for name in table.loc[genetic & (split == "train"), "perturbation"]
        for gene in case.perturbations[name].targets
    }
    for row in np.flatnonzero(chemical):
        targets = case.perturbations[table.loc[row, "perturbation"]].targets
        known = "target_perturbed" if set(targets) & perturbed else "target_not_perturbed"
        regime[row] = known if targets else "target_unknown"
    return Assignment(split, regime, notes)


def _combinatorial(case: _Case) -> Assignment:
    table = case.conditions
    combined = (table["n_parts"] > 1).to_numpy()
    keys = table.loc[combined, "target_set"]
    if keys.nunique() < 3:
        raise case.refuse(f"it has {keys.nunique()} combinations, and at least 3 are needed")
    shares = _train_share(case.spec.combination_test_share, case.spec.val_share)
    chosen = _spread(keys, _calls(case)[combined], shares, case.rng("combinations"))
    split, regime = _blank(case)
    split[combined] = [chosen[key] for key in keys]
    split[~combined] = "train"
    # A combination of one target with itself (CRISPRi:A with CRISPRa:A) would share a target set with a single.
    collapsed = combined & table["target_set"].isin(set(table.loc[~combined, "target_set"])).to_numpy()
    split[collapsed] = UNUSED
    alone = {
        (context, case.perturbations[name].parts[0])
        for context, name in zip(table.loc[~combined, "context"], table.loc[~combined, "perturbation"], strict=True)
    }
    for row in np.flatnonzero(combined):
        parts = case.perturbations[table.loc[row, "perturbation"]].parts
        seen = sum((table.loc[row, "context"], part) in alone for part in parts)
        regime[row] = f"{seen}_of_{len(parts)}_seen"
    return Assignment(split, regime)


def _overlap(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Whether both hold a target set, and a context; a split over contexts holds out one or the other."""
    return all(set(first[column]) & set(second[column]) for column in ("context", "target_set"))


def _from_file(case: _Case, file: SplitFile) -> Assignment:
    table = case.conditions
    split, notes = file.assign(table, case.perturbations)
    seen = set(table.loc[split == "train", "target_set"])
    regime = np.where(table["target_set"].isin(seen), "perturbation_seen", "perturbation_unseen").astype(object)
    return Assignment(split, regime, notes)


def _published(case: _Case) -> Assignment:
    if case.spec.split is not None:
        return _from_file(case, case.spec.split)
    table = case.conditions
    if "published" not in table.columns:
        raise case.refuse("it ships no split of its own", "choose another fold kind")
    split, regime = _blank(case)
    inside = np.ones(len(table), dtype=bool)
    if case.spec.context:
        if case.spec.context not in set(table["context"]):
            raise unknown_name("fold.context", case.spec.context, table["context"].unique())
        inside = (table["context"] == case.spec.context).to_numpy()
    published = table["published"].to_numpy()
    if not case.spec.context and _overlap(table.loc[published == "train"], table.loc[published == "test"]):
        raise case.refuse(
            "its contexts ship splits that overlap, so it makes one fold a context", "give fold.context=NAME"
        )
    split[inside & (published == "test")] = "test"
    split[inside & (published == "val")] = "val"
    training = inside & (published == "train")
    split[training] = "train"
    if not (split == "val").any():
        shares = {"train": 1.0 - case.spec.val_share, "val": case.spec.val_share}
        keys = table.loc[training, "target_set"]
        chosen = _spread(keys, _calls(case)[training], shares, case.rng("val", case.spec.context or ""))
        split[training] = [chosen[key] for key in keys]
    if "published_regime" in table.columns:
        regime[:] = table["published_regime"].to_numpy()
    return Assignment(split, regime)


_KIND_FUNCTIONS: dict[str, Callable[[_Case], Assignment]] = {
    "unseen_perturbation_genetic": _unseen_perturbation,
    "unseen_perturbation_chemical": _unseen_perturbation,
    "unseen_context_genetic": _unseen_context,
    "unseen_context_chemical": _unseen_context,
    "unseen_both_genetic": _unseen_both,
    "unseen_both_chemical": _unseen_both,
    "genetic_to_chemical": _genetic_to_chemical,
    "combinatorial": _combinatorial,
    "published": _published,
}
