"""Making folds: label once, split by kind, certify, keep under the content's hash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from filelock import FileLock

from pertbase._io import canonical_json, cut, sha256_text
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds._cells import mean_rows
from pertbase.folds._certificate import certify
from pertbase.folds._effect_table import EffectTable
from pertbase.folds._effects import Effects
from pertbase.folds._fold import FORMAT, SPLITS, Fold
from pertbase.folds._fold_files import open_fold, read_manifest
from pertbase.folds._kinds import Assignment, assign
from pertbase.folds._labelled import INPUT, Labelled, count_outcomes, label
from pertbase.folds._labels import LabelRule, label_rule
from pertbase.folds._mini import some_of_each
from pertbase.folds._outcome_table import OutcomeTable
from pertbase.folds._path_layer import PathLayer, lay_paths, layer_hash
from pertbase.folds._path_spec import PathSpec
from pertbase.folds._screen import Screen
from pertbase.folds._spec import FoldSpec
from pertbase.folds._views import AMBIGUOUS

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["FoldMaker", "basal_levels", "make_fold"]

NEAR = 0.5
"""Cosine of measured effects from which a test condition counts as near a training condition."""


class FoldMaker:
    """Makes the folds of one data set, labelling it once per rule and seed.

    Parameters
    ----------
    data
        A screen, an outcome table or an effect table.
    """

    def __init__(self, data: Screen | OutcomeTable | EffectTable) -> None:
        self.data = data
        self._labelled: dict[str, Labelled] = {}
        self._graphs: dict[str, SignedGraph] = {}
        self._last: Fold | None = None

    def labelled(self, spec: FoldSpec) -> Labelled:
        """Return the data set labelled as the spec asks."""
        key = canonical_json([spec.rule.to_dict(), spec.seed, spec.input_share, spec.min_controls])
        if key not in self._labelled:
            self._labelled[key] = label(
                self.data, spec.rule, seed=spec.seed, input_share=spec.input_share, min_controls=spec.min_controls
            )
        return self._labelled[key]

    def hash(self, spec: FoldSpec) -> str:
        """Return the hash that identifies the fold: of content, spec and format, and of no paths laid over it."""
        bare = spec.with_(paths=None).to_dict()
        parts = {"format": FORMAT, "data": self.data.name, "data_hash": self.data.hash, "spec": bare}
        if spec.reached is not None:
            parts["graph"] = self._reaching(spec).hash
        return sha256_text(canonical_json(parts))

    def expand(self, spec: FoldSpec) -> list[FoldSpec]:
        """Return one spec a fold: ``published`` over several contexts, and ``test_context="each"``, are several.

        The statistic of an effect table is a fact, not a choice: the rule takes it over.

        Raises
        ------
        UnsupportedError
            Where the data set has no such fold.
        """
        if isinstance(self.data, EffectTable):
            spec = spec.with_(rule=replace(spec.rule, statistic=self.data.statistic))
        if spec.split is not None:
            return [spec]
        # A screen ships no split; splitting it says so, once.
        shipped = isinstance(self.data, (OutcomeTable, EffectTable)) and not getattr(self.data, "pooled", False)
        if spec.kind == "published" and shipped and spec.context is None and len(self.data.contexts) > 1:
            return [spec.with_(context=context) for context in self.data.contexts]
        if spec.test_context == "each":
            return [spec.with_(test_context=context) for context in self.data.contexts]
        return [spec]

    def split(self, spec: FoldSpec) -> tuple[Labelled, pd.DataFrame, Assignment]:
        """Return the labelled data set and its conditions with their split and regime, without certifying.

        Raises
        ------
        UnsupportedError
            Where the data set lacks what the kind needs.
        """
        labelled = self.labelled(spec)
        able = (labelled.conditions["reason"] == "").to_numpy()
        assignment = assign(labelled.conditions.loc[able], dict(labelled.perturbations), spec, data=labelled.name)
        conditions = labelled.conditions.assign(split="dropped", regime="")
        conditions.loc[able, "split"] = assignment.split
        conditions.loc[able, "regime"] = assignment.regime
        return labelled, conditions, assignment

    def make(self, spec: FoldSpec) -> Fold:
        """Return the fold, certified.

        Raises
        ------
        UnsupportedError
            Where the data set lacks what the kind needs.
        """
        fold = certify(self.draw(spec))
        return fold if spec.paths is None else replace(fold, paths=self._lay(fold, spec.paths))

    def draw(self, spec: FoldSpec) -> Fold:
        """Return the fold without its certificate, which takes most of the time: to be held against another.

        Raises
        ------
        UnsupportedError
            Where the data set lacks what the kind needs.
        """
        labelled, conditions, assignment = self.split(spec)
        effects = _measured(labelled, conditions)
        if spec.kind.startswith("unseen_perturbation") and effects is not None:
            conditions["regime"] = _nearness(conditions, effects)
        questions = pd.concat(
            [
                _select(labelled.seen_questions, conditions, spec, ("train", "val")),
                _select(labelled.questions, conditions, spec, ("test",)),
            ],
            ignore_index=True,
        )
        if spec.reached is not None:
            questions = self._reached(questions, labelled, spec)
        questions = some_of_each(questions, spec.per_outcome, seed=spec.seed)
        conditions = _recounted(conditions, questions)
        screen = self.data if isinstance(self.data, Screen) else None
        controls = _visibility(labelled.controls, conditions)
        return Fold(
            spec=spec,
            data=labelled.name,
            data_hash=labelled.hash,
            hash=self.hash(spec),
            questions=questions,
            conditions=conditions,
            controls=controls,
            perturbations=labelled.perturbations,
            genes=labelled.genes,
            effects=None if screen is None or effects is None else _with_basal(effects, labelled, screen),
            simulated=labelled.simulated,
            total=labelled.total,
            notes=(*assignment.notes, *_reached_note(spec), *_dropped(conditions)),
            screen=screen,
        )

    def build(self, spec: FoldSpec, root: str | Path) -> Fold:
        """Return the fold from its folder under ``root``, making it first where it is not there.

        The folder carries the content's hash, so that a fold is built once; a lock keeps two processes from
        building it at the same time.
        """
        root = Path(root)
        # The baselines of a table run on one fold one after another: it is read once.
        if self._last is not None and self._last.hash == self.hash(spec) and self._last.spec.paths == spec.paths:
            kept = self._last.folder
            if kept is not None and kept.parent == root and (kept / "fold.yaml").exists():
                return self._last
        folder = root / f"{cut(_file_name(self.data.name), 60)}-{_file_name(spec.name)}-{self.hash(spec)[:12]}"
        screen = self.data if isinstance(self.data, Screen) else None
        try:
            if not (folder / "fold.yaml").exists():
                # A kind the data set cannot support is said before anything is written.
                self.split(spec)
                folder.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(folder.parent / f".{folder.name}.lock"):
                    if not (folder / "fold.yaml").exists():
                        self.make(spec.with_(paths=None)).write(folder)
            layer = None if spec.paths is None else self._layer(folder, spec.paths)
        except OSError as error:
            raise PertbaseError(
                f"folds cannot be kept here ({error.strerror or error})",
                file=root,
                remedy="remove what stands in its place, or choose another folder that may be written",
            ) from error
        self._last = replace(open_fold(folder, screen=screen, paths=layer), spec=spec)
        if layer is None:
            # Others may have laid paths over it; this fold was asked for without.
            self._last = replace(self._last, paths=None)
        return self._last

    def graph(self, spec: PathSpec, *, key: str = "paths.graph") -> SignedGraph:
        """Return the graph that paths are looked for in: the named one, or the data set's own.

        ``key`` is the option that names it, for the error.

        Raises
        ------
        UnsupportedError
            Where none is named and the data set brings none.
        """
        from pertbase.knowledge import signed_graph

        own = self.data.graph if isinstance(self.data, Screen) else None
        if spec.graph is None:
            if own is None:
                raise UnsupportedError(
                    f"{self.data.name} brings no graph to look for paths in",
                    key=key,
                    remedy=f"name some: {key}=[NAME,...]"
                    + ("; paths=human does, and graph=NAME,... of `paths show`" if key == "paths.graph" else ""),
                )
            return own
        named = spec.to_dict()["graph"]
        where = canonical_json(named)
        if where not in self._graphs:
            self._graphs[where] = signed_graph(named)
        return self._graphs[where]

    def _reaching(self, spec: FoldSpec) -> SignedGraph:
        return self.graph(PathSpec(graph=spec.reached_in), key="fold.reached_in")

    def _reached(self, questions: pd.DataFrame, labelled: Labelled, spec: FoldSpec) -> pd.DataFrame:
        """Return the questions of train, and those of val and test that a path leads to."""
        from pertbase.knowledge._candidates import find_candidates

        held = (questions["split"] != "train").to_numpy()
        asked = questions.loc[held].reset_index(drop=True)
        found = find_candidates(asked, labelled.perturbations, self._reaching(spec), hops=spec.reached or 1, k=1)
        keep = ~held
        keep[held] = np.diff(found.offsets) > 0
        return questions.loc[keep].reset_index(drop=True)

    def _lay(self, fold: Fold, spec: PathSpec) -> PathLayer:
        basal = None if fold.effects is None else fold.effects.basal
        return lay_paths(fold.questions, fold.perturbations, spec, self.graph(spec), fold_hash=fold.hash, basal=basal)

    def _layer(self, folder: Path, spec: PathSpec) -> str:
        """Return the name of the paths' folder within the fold's, laying them first where they are not there."""
        fold_hash = read_manifest(folder)["hash"]
        name = f"paths-{layer_hash(spec, self.graph(spec), fold_hash)[:12]}"
        if not (folder / name / "paths.yaml").exists():
            with FileLock(folder.parent / f".{folder.name}.lock"):
                if not (folder / name / "paths.yaml").exists():
                    self._lay(replace(open_fold(folder), paths=None), spec).write(folder)
        return name


def make_fold(
    data: Screen | OutcomeTable | EffectTable,
    *,
    kind: str,
    seed: int = 0,
    rule: str | LabelRule = "ranksum",
    **options: Any,
) -> Fold:
    """Return one fold of a data set.

    Parameters
    ----------
    data
        A screen, an outcome table or an effect table.
    kind
        The fold kind, for example ``unseen_perturbation_genetic``.
    seed
        Draws the control partition and the split.
    rule
        A label rule or the name of one.
    **options
        Further fields of :class:`FoldSpec`.

    Raises
    ------
    UnsupportedError
        Where the data set lacks what the kind needs; the message says what.
    InputError
        Where an option or a value is unknown, or the options mean several folds.
    """
    rule = rule if isinstance(rule, LabelRule) else label_rule(rule)
    spec = FoldSpec.from_dict({"kind": kind, "seed": seed, "rule": rule, **options})
    maker = FoldMaker(data)
    specs = maker.expand(spec)
    if len(specs) > 1:
        raise InputError(
            f"{kind} of {data.name} is {len(specs)} folds, one a context",
            key="context",
            value=None,
            remedy=f"name one: {', '.join(data.contexts)}",
        )
    return maker.make(specs[0])


def _measured(labelled: Labelled, conditions: pd.DataFrame) -> Effects | None:
    """Return measured effects: of train and val against input controls, of all else against truth controls."""
    if labelled.effects is None or labelled.seen_effects is None:
        return None
    able = conditions.loc[conditions["split"] != "dropped"]
    truth, seen = labelled.effects.select(able), labelled.seen_effects.select(able)
    trained = able["split"].isin(("train", "val")).to_numpy()
    return Effects(np.where(trained[:, None], seen.values, truth.values), able, truth.genes, truth.statistic)


def _recounted(conditions: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Return the conditions with the outcomes that their split's questions have."""
    counted = count_outcomes(conditions, questions)
    used = conditions["split"].isin(SPLITS)
    names = ["n_up", "n_down", "n_no_change", "n_ambiguous"]
    return conditions.assign(**{name: counted[name].where(used, conditions[name]) for name in names})


def _select(questions: pd.DataFrame, conditions: pd.DataFrame, spec: FoldSpec, splits: tuple[str, ...]) -> pd.DataFrame:
    """Return the questions of some splits with fold, split and regime, in the contract's column order."""
    about = conditions.set_index(["context", "perturbation"])[["split", "regime"]]
    keys = pd.MultiIndex.from_frame(questions[["context", "perturbation"]])
    placed = about.reindex(keys)
    split = placed["split"].to_numpy()
    ambiguous = questions["outcome"].isna().to_numpy()
    regime = np.where(ambiguous, AMBIGUOUS, placed["regime"].to_numpy())
    table = questions.assign(fold=spec.name, split=split, regime=regime)
    first = ["id", "fold", "split", "regime"]
    table = table[[*first, *(name for name in table.columns if name not in first)]]
    return table.loc[np.isin(split, splits)].reset_index(drop=True)


def _visibility(controls: pd.DataFrame, conditions: pd.DataFrame) -> pd.DataFrame:
    """Add, for each split, whether it may see a control: an input control of one of its contexts."""
    seen = {split: set(conditions.loc[conditions["split"] == split, "context"]) for split in SPLITS}
    is_input = controls["role"] == INPUT
    return controls.assign(**{split: is_input & controls["context"].isin(seen[split]) for split in SPLITS})


def basal_levels(labelled: Labelled, screen: Screen) -> pd.DataFrame:
    """Return the mean expression of each context's input controls, contexts x genes."""
    visible = labelled.controls.loc[labelled.controls["role"] == INPUT]
    basal = {
        str(context): mean_rows(screen.X, screen.obs.index.get_indexer(cells["cell"]))
        for context, cells in visible.groupby("context", observed=True)
    }
    table: pd.DataFrame = pd.DataFrame.from_dict(basal, orient="index", columns=screen.genes)
    return table.rename_axis("context")


def _with_basal(effects: Effects, labelled: Labelled, screen: Screen) -> Effects:
    """Return the measured effects with the mean expression of each context's input controls."""
    table = basal_levels(labelled, screen)
    return Effects(effects.values, effects.conditions, effects.genes, effects.statistic, effects.status, table)


def _nearness(conditions: pd.DataFrame, effects: Effects) -> np.ndarray:
    """Return ``near`` or ``far`` for val and test: cosine of measured effects to the nearest training condition."""
    able = conditions["split"].isin(SPLITS).to_numpy()
    rows = effects.select(conditions.loc[able]).values
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    split = conditions.loc[able, "split"].to_numpy()
    nearest = (unit @ unit[split == "train"].T).max(axis=1)
    regime = np.full(len(conditions), "", dtype=object)
    regime[np.flatnonzero(able)] = np.where(split == "train", "", np.where(nearest >= NEAR, "near", "far"))
    return regime


def _reached_note(spec: FoldSpec) -> tuple[str, ...]:
    if spec.reached is None:
        return ()
    edges = "one edge" if spec.reached == 1 else f"at most {spec.reached} edges"
    return (f"val and test ask only what a path of {edges} leads to, whatever its sign",)


def _dropped(conditions: pd.DataFrame) -> tuple[str, ...]:
    reasons = conditions.loc[conditions["split"] == "dropped", "reason"]
    return (f"{len(reasons)} conditions dropped: {'; '.join(sorted(set(reasons))[:5])}",) if len(reasons) else ()


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
