"""Plans: what would be run, with everything named before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pertbase._io import canonical_json
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds import FoldMaker, FoldSpec
from pertbase.runs._compose import compose, seed_of
from pertbase.runs._guard import ForeignError, guarded
from pertbase.runs._names import Names
from pertbase.runs._store import Run, run_folder

__all__ = ["DataShelf", "Plan", "Skip", "make_plans"]


@dataclass(frozen=True)
class Plan:
    """One run to be: everything it depends on.

    Parameters
    ----------
    config
        The composed configuration.
    data, baseline
        The names chosen.
    spec
        The fold.
    """

    config: Mapping[str, Any]
    data: str
    baseline: str
    spec: FoldSpec

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["seed"])

    @property
    def name(self) -> str:
        """The row's name: given, else the baseline's."""
        return str(self.config["name"] or self.baseline.rpartition("/")[2])

    @property
    def runs(self) -> Path:
        """Where runs are kept."""
        return Path(str(self.config["runs"]))

    def run(self, data_name: str) -> Run:
        """Return the run by its folder."""
        return Run(run_folder(self.runs, data_name, self.spec.name, self.name, self.seed))

    def __str__(self) -> str:
        return f"{self.data} {self.spec.name} {self.name} seed={self.seed}"


@dataclass(frozen=True)
class Skip:
    """A combination that cannot be, or a data set that could not be had, and why.

    Parameters
    ----------
    what
        Data, fold and baseline.
    reason
        Why.
    failed
        Whether it is a failure rather than an impossibility.
    """

    what: str
    reason: str
    failed: bool = False


class DataShelf:
    """Data sets, each loaded once, with their fold makers."""

    def __init__(self) -> None:
        self._makers: dict[str, FoldMaker | PertbaseError] = {}

    def maker(self, config: Mapping[str, Any]) -> FoldMaker:
        """Return the fold maker of a data configuration.

        Raises
        ------
        PertbaseError
            Where the data set cannot be loaded; the same error each time it is asked for.
        """
        from pertbase.folds import load_data

        key = canonical_json(config)
        if key not in self._makers:
            try:
                self._makers[key] = FoldMaker(guarded(lambda: load_data(dict(config))))
            except ForeignError as error:
                self._makers[key] = PertbaseError(
                    f"the data set could not be made: {error}", key="data._target_", value=config.get("_target_")
                )
            except PertbaseError as error:
                self._makers[key] = error
        found = self._makers[key]
        if isinstance(found, PertbaseError):
            raise found
        return found


def make_plans(jobs: Sequence[Sequence[str]], names: Names, shelf: DataShelf) -> list[Plan | Skip]:
    """Return a plan, or the reason why there is none, for each job; several where a fold configuration means several.

    Raises
    ------
    InputError
        Where a configuration cannot be composed.
    """
    plans: list[Plan | Skip] = []
    for overrides in jobs:
        config = compose(overrides, names)
        choices = config.pop("choices")
        seed_of(config["seed"], "seed")
        if config["name"] is not None and not isinstance(config["name"], (str, int)):
            raise InputError("a name is a text", key="name", value=config["name"])
        if not config["runs"] or not isinstance(config["runs"], str):
            raise InputError("is a folder", key="runs", value=config["runs"], remedy="say runs=FOLDER")
        what = f"{choices['data']} {choices['fold']} {choices['baseline']}"
        spec = FoldSpec.from_dict(config["fold"])
        try:
            # Only where the number of folds depends on the data is anything loaded to plan.
            asks = spec.kind == "published" or spec.test_context == "each"
            specs = shelf.maker(config["data"]).expand(spec) if asks else [spec]
        except UnsupportedError as error:
            plans.append(Skip(what, str(error)))
        except PertbaseError as error:
            plans.append(Skip(what, str(error), failed=True))
        else:
            plans += [Plan(config, choices["data"], choices["baseline"], one) for one in specs]
    return _by_fold(plans)


def _by_fold(plans: list[Plan | Skip]) -> list[Plan | Skip]:
    """Return the plans with those of one fold together, in the order folds were first named: each is read once."""
    first: dict[tuple[str, ...], int] = {}
    for plan in plans:
        first.setdefault(_fold_key(plan), len(first))
    return sorted(plans, key=lambda plan: first[_fold_key(plan)])


def _fold_key(plan: Plan | Skip) -> tuple[str, ...]:
    return ("skip", plan.what) if isinstance(plan, Skip) else ("plan", plan.data, plan.spec.name)
