"""The fold: one split of conditions, the questions asked on it, and the controls each split may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pertbase._html import shown
from pertbase._io import write_aside, write_folder_aside, write_json, write_yaml
from pertbase.errors import InputError, PertbaseError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._cells import CellTable, hash_frame
from pertbase.folds._certificate_view import Certificate
from pertbase.folds._effects import Effects
from pertbase.folds._path_layer import PathLayer
from pertbase.folds._perturbation import Perturbation, perturbation_table
from pertbase.folds._question_files import write_questions
from pertbase.folds._screen import Screen
from pertbase.folds._spec import FoldSpec
from pertbase.folds._views import AMBIGUOUS, HIDDEN_OF_CONDITIONS, Inputs, Training, Truth, hide

if TYPE_CHECKING:
    from pertbase.knowledge import SignedGraph

__all__ = ["FORMAT", "SPLITS", "Fold"]

FORMAT = 2
SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Fold:
    """One train/val/test split of conditions, its questions and its controls.

    A baseline is handed :attr:`training` and :meth:`inputs` and never the fold itself; :attr:`truth` goes to
    scorers alone.

    Parameters
    ----------
    spec
        Kind, seed, rule and shares.
    data, data_hash
        Name and content hash of the data set.
    hash
        What identifies the fold: of the data set's content, the spec and the format.
    questions
        All questions of the three splits.
    conditions
        All conditions of the data set, ``split`` saying ``train``, ``val``, ``test``, ``unused`` or ``dropped``.
    controls
        ``cell``, ``context``, ``batch``, ``role`` and, for each split, whether it may see the cell.
    perturbations
        Name -> perturbation.
    genes
        Measured genes, or the readout genes of an outcome table.
    effects
        Measured effects, with the basal expression of input controls; None for outcome tables.
    simulated
        Whether the cells were simulated.
    notes
        What a reader should know about the split.
    certificate
        What the fold can decide; see :func:`pertbase.folds.certify`.
    screen
        The cells, where they are at hand.
    folder
        Where it was read from or written to.
    paths
        Candidate and reference paths of the questions, where they were laid over the fold.
    """

    spec: FoldSpec
    data: str
    data_hash: str
    hash: str
    questions: pd.DataFrame
    conditions: pd.DataFrame
    controls: pd.DataFrame
    perturbations: Mapping[str, Perturbation]
    genes: pd.Index
    effects: Effects | None
    simulated: bool
    total: float | None = None
    notes: tuple[str, ...] = ()
    certificate: Certificate = field(default_factory=lambda: Certificate({}))
    screen: Screen | None = None
    folder: Path | None = None
    paths: PathLayer | None = None

    @property
    def name(self) -> str:
        """The kind, and what was named beyond it."""
        return self.spec.name

    @property
    def kind(self) -> str:
        """One of the fold kinds."""
        return self.spec.kind

    # -- what is handed out ---------------------------------------------------------------------------------

    @cached_property
    def training(self) -> Training:
        """Train and val with outcomes: everything a baseline may be fitted on."""
        return self.make_training(seed=self.spec.seed, cells=self.screen is not None)

    def make_training(self, *, seed: int, cells: bool) -> Training:
        """Return the training for a run of some seed, with or without cells.

        Raises
        ------
        PertbaseError
            Where cells are asked for and the fold was read without its screen.
        """
        inside = self.conditions["split"].isin(("train", "val"))
        conditions = self._handed_out(inside, "n_cells")
        names, contexts = set(conditions["perturbation"]), set(conditions["context"])
        return Training(
            fold=self.name,
            kind=self.kind,
            data=self.data,
            seed=seed,
            questions=self._questions_of("train", "val"),
            conditions=conditions,
            genes=self.genes.copy(deep=True),
            perturbations={key: value for key, value in self.perturbations.items() if key in names},
            statistic=self.spec.rule.statistic,
            effects=None if self.effects is None else self._measured(conditions),
            basal=self._basal(contexts),
            cells=self._training_cells(conditions) if cells else None,
            gene_sets=None if self.screen is None else self.screen.gene_sets,
            graph=self.graph,
            simulated=self.simulated,
        )

    def inputs(self, split: str = "test", *, cells: bool | None = None) -> Inputs:
        """Return the questions of a split without outcomes, and the input controls it may see.

        Parameters
        ----------
        split
            ``val`` or ``test``.
        cells
            Whether to hand out the input controls; where the screen is at hand, if not given.
        """
        if split not in ("val", "test"):
            raise InputError("questions are asked on val or test", key="split", value=split)
        conditions = self._handed_out(self.conditions["split"] == split)
        names, contexts = set(conditions["perturbation"]), set(conditions["context"])
        controls = None
        if self.screen is not None if cells is None else cells:
            visible = self.controls.loc[self.controls[split], "cell"]
            controls = self._screen().cells(self._screen().obs.index.get_indexer(visible))
        return Inputs(
            split=split,
            questions=hide(self._questions_of(split)),
            conditions=conditions,
            genes=self.genes.copy(deep=True),
            perturbations={key: value for key, value in self.perturbations.items() if key in names},
            statistic=self.spec.rule.statistic,
            basal=self._basal(contexts),
            controls=controls,
            graph=self.graph,
        )

    @cached_property
    def truth(self) -> Truth:
        """The test questions with their outcomes: for scorers alone."""
        return self.truth_of("test")

    def truth_of(self, *splits: str) -> Truth:
        """Return the questions of any splits with their outcomes: for scorers alone."""
        conditions = self.conditions.loc[self.conditions["split"].isin(splits)]
        return Truth(
            questions=self._questions_of(*splits),
            name=self.name,
            hash=self.hash,
            simulated=self.simulated,
            effects=None if self.effects is None else self._measured(conditions),
            perturbations=dict(self.perturbations),
        )

    def _questions_of(self, *splits: str) -> pd.DataFrame:
        asked = self.questions.loc[self.questions["split"].isin(splits)].reset_index(drop=True)
        return asked if self.paths is None else self.paths.join(asked)

    def _handed_out(self, mask: pd.Series, *extra: str) -> pd.DataFrame:
        hidden = {*HIDDEN_OF_CONDITIONS, "n_no_change", "n_ambiguous", "reason", "published", "published_regime"} - set(
            extra
        )
        return self.conditions.loc[mask].drop(columns=list(hidden), errors="ignore").reset_index(drop=True)

    def _measured(self, conditions: pd.DataFrame) -> Effects:
        part = self._effects().select(conditions)
        return replace(part, basal=self._basal(set(conditions["context"])))

    def _effects(self) -> Effects:
        if self.effects is None:
            raise PertbaseError(f"the fold {self.name} of {self.data} has outcomes and no measured effects")
        return self.effects

    @property
    def graph(self) -> SignedGraph | None:
        """The graph that paths were looked for in, else the data set's own; None where there is neither."""
        if self.paths is not None:
            return self.paths.graph
        return None if self.screen is None else self.screen.graph

    def _basal(self, contexts: set[str]) -> pd.DataFrame | None:
        if self.effects is None or self.effects.basal is None:
            return None
        basal = self.effects.basal
        return basal.loc[basal.index.isin(contexts)].copy()

    def _screen(self) -> Screen:
        if self.screen is None:
            raise PertbaseError(
                f"the cells of the fold {self.name} are not at hand",
                file=self.folder,
                remedy=f"open it with its screen: open_fold(folder, screen=pertbase.data({self.data!r}))",
            )
        return self.screen

    def _training_cells(self, conditions: pd.DataFrame) -> CellTable:
        screen = self._screen()
        split = dict(
            zip(zip(conditions["context"], conditions["perturbation"], strict=True), conditions["split"], strict=True)
        )
        control = screen.obs["is_control"].to_numpy()
        of_cell = np.array(
            [split.get(key, "") for key in zip(screen.obs["context"], screen.obs["perturbation"], strict=True)],
            dtype=object,
        )
        of_cell[control] = ""
        for name in ("val", "train"):  # a control that train may see is train's
            visible = self.controls.loc[self.controls[name], "cell"]
            of_cell[screen.obs.index.get_indexer(visible)] = name
        table = screen.cells(np.flatnonzero(of_cell != ""))
        return replace(table, obs=table.obs.assign(split=of_cell[of_cell != ""]))

    # -- files ----------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """Return what ``fold.yaml`` holds."""
        tables = {"questions": self.questions, "conditions": self.conditions, "controls": self.controls}
        return {
            "format": FORMAT,
            "name": self.name,
            "data": self.data,
            "simulated": self.simulated,
            "hash": self.hash,
            "data_hash": self.data_hash,
            "total": self.total,
            "spec": self.spec.with_(paths=None).to_dict(),
            "notes": list(self.notes),
            "content": {name: hash_frame(table) for name, table in tables.items()},
            "certificate": dict(self.certificate),
        }

    def write(self, folder: str | Path) -> Path:
        """Write the fold as a folder, whole or not at all, and return its path."""
        folder = Path(folder)
        if folder.exists():
            raise InputError(
                "there is something of this name already", file=folder, remedy="remove it or choose another folder"
            )
        with write_folder_aside(folder) as aside:
            write_questions(self.questions, aside / "questions.parquet")
            for name, table in (("conditions", self.conditions), ("controls", self.controls)):
                with write_aside(aside / f"{name}.parquet") as temporary:
                    table.to_parquet(temporary, index=False)
            with write_aside(aside / "perturbations.parquet") as temporary:
                perturbation_table(self.perturbations).to_parquet(temporary, index=False)
            if self.effects is not None:
                self.effects.write(aside / "effects.h5ad")
            else:
                write_json(aside / "genes.json", list(self.genes))
            if self.paths is not None:
                self.paths.write(aside)
            # Last: a folder with fold.yaml is a whole fold.
            write_yaml(aside / "fold.yaml", self.manifest())
        return folder

    # -- reading --------------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Conditions, questions, outcomes and controls of each split."""
        rows = {}
        for split in SPLITS:
            questions = self.questions.loc[self.questions["split"] == split]
            counts = questions["outcome"].value_counts()
            visible = int(self.controls[split].sum()) if split in self.controls.columns else 0
            rows[split] = {
                "conditions": int((self.conditions["split"] == split).sum()),
                "questions": len(questions),
                **{outcome: int(counts.get(outcome, 0)) for outcome in OUTCOMES},
                AMBIGUOUS: int((questions["regime"] == AMBIGUOUS).sum()),
                "input controls": visible,
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def _title(self) -> str:
        return f"Fold {self.name} of {self.data}" + (" (simulated)" if self.simulated else "") + f", {self.hash[:12]}"

    def __repr__(self) -> str:
        return f"{self._title}\n{self.summary.to_string()}"

    def _repr_html_(self) -> str:
        return shown(self._title, self.summary, notes=self.notes)
