"""Plans: what would be run, with everything named before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pertbase._io import canonical_json
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds import FoldMaker, FoldSpec
from pertbase.runs._compose import Composer, compose, seed_of, split_override
from pertbase.runs._guard import ForeignError, guarded
from pertbase.runs._located import located
from pertbase.runs._names import Names
from pertbase.runs._store import Run, run_folder

__all__ = ["DataShelf", "Plan", "Skip", "fold_spec", "make_plans", "plan_of", "told_by_reason"]

_REFUSAL = " cannot support the fold "
"""Between data set and kind, before what is missing."""


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
    preset
        The baseline's, where it is not the one it has when none is given; else empty.
    file
        Where the baseline's configuration lies, to be named where its class cannot be imported.
    """

    config: Mapping[str, Any]
    data: str
    baseline: str
    spec: FoldSpec
    preset: str = ""
    file: str | None = None

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["seed"])

    @property
    def name(self) -> str:
        """The row's name: given, else the baseline's, and its preset where that is not the default."""
        own = self.baseline.rpartition("/")[2]
        return str(self.config["name"] or (f"{own}_{self.preset}" if self.preset else own))

    @property
    def runs(self) -> Path:
        """Where runs are kept."""
        return Path(str(self.config["runs"]))

    def run(self, data_name: str) -> Run:
        """Return the run by its folder."""
        return Run(run_folder(self.runs, data_name, self.spec.name, self.name, self.seed))

    def told(self, data_name: str) -> str:
        """Return what it is called in messages: data set, fold, name and seed."""
        return f"{data_name} {self.spec.name} {self.name} seed={self.seed}"

    def __str__(self) -> str:
        return self.told(str(self.config["data"].get("name") or self.data))


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
    """Data sets, each loaded once, with their fold makers.

    Parameters
    ----------
    tell
        Takes a line before a data set is loaded, which may take minutes.
    """

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._tell = tell
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
            if self._tell is not None:
                name = config.get("name") or config.get("path")
                self._tell(f"loading data set {name}" if name else "loading the data set")
            try:
                if isinstance(target := config.get("_target_"), str):
                    located(target, "data._target_")
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


def make_plans(asked: Sequence[Plan], shelf: DataShelf) -> list[Plan | Skip]:
    """Return a plan, or the reason why there is none, for each run; several where a fold configuration means several.

    Parameters
    ----------
    asked
        As :func:`plan_of` gives them, all of them composed: what follows may load data.
    shelf
        Where data sets are loaded.
    """
    plans: list[Plan | Skip] = []
    for plan in asked:
        spec, what = plan.spec, f"{plan.data} {plan.spec.name} {plan.baseline}"
        try:
            # Only where the number of folds depends on the data is anything loaded to plan.
            asks = spec.kind == "published" or spec.test_context == "each"
            specs = shelf.maker(plan.config["data"]).expand(spec) if asks else [spec]
        except UnsupportedError as error:
            plans.append(Skip(what, str(error)))
        except PertbaseError as error:
            plans.append(Skip(what, str(error), failed=True))
        else:
            plans += [replace(plan, spec=one) for one in specs]
    return _by_fold(plans)


def plan_of(overrides: Sequence[str], names: Names, presets: dict[str, str], composed: Composer | None = None) -> Plan:
    """Return the plan of one job, as it is before data say how many folds it means.

    Parameters
    ----------
    overrides
        Single-valued, as :func:`~pertbase.runs._compose.expand` gives them.
    names
        What can be named.
    presets
        Each baseline's own preset, filled as they are asked for.
    composed
        What composes the runs of this command, where there are several.

    Raises
    ------
    InputError
        Where the configuration cannot be composed.
    """
    config = composed(overrides) if composed is not None else compose(overrides, names)
    choices = config.pop("choices")
    seed_of(config["seed"], "seed")
    if config["name"] is not None and not isinstance(config["name"], (str, int)):
        raise InputError("a name is a text", key="name", value=config["name"])
    if not config["runs"] or not isinstance(config["runs"], str) or "\0" in config["runs"]:
        raise InputError("is a folder", key="runs", value=config["runs"], remedy="say runs=FOLDER")
    if not isinstance(config["cells"], bool):  # `no` is a text, and would count as true
        raise InputError("is true or false", key="cells", value=config["cells"])
    if not isinstance(config["adapters"], Mapping):
        raise InputError("are a mapping of adapters", key="adapters", value=config["adapters"])
    preset = _preset(overrides, config, names, choices["baseline"], presets)
    file = names.file_of("baseline", choices["baseline"])
    return Plan(config, choices["data"], choices["baseline"], fold_spec(config), preset, file)


def _preset(
    overrides: Sequence[str], config: Mapping[str, Any], names: Names, baseline: str, defaults: dict[str, str]
) -> str:
    """Return the preset that was asked for, or an empty text where it is the baseline's own; fills ``defaults``."""
    rest = [text for text in overrides if split_override(text)[0].lstrip("+") != "baseline.preset"]
    if len(rest) == len(overrides):
        return ""
    if baseline not in defaults:
        defaults[baseline] = str(compose(rest, names)["baseline"].get("preset"))
    chosen = str(config["baseline"].get("preset"))
    return "" if chosen == defaults[baseline] else chosen


def fold_spec(config: Mapping[str, Any]) -> FoldSpec:
    """Return the fold that a composed configuration asks for, with the paths to lay over it."""
    return FoldSpec.from_dict({**config["fold"], "paths": config.get("paths")})


def _by_fold(plans: list[Plan | Skip]) -> list[Plan | Skip]:
    """Return the plans with those of one fold together, in the order folds were first named: each is read once."""
    first: dict[tuple[str, ...], int] = {}
    for plan in plans:
        first.setdefault(_fold_key(plan), len(first))
    return sorted(plans, key=lambda plan: first[_fold_key(plan)])


def _fold_key(plan: Plan | Skip) -> tuple[str, ...]:
    return ("skip", plan.what) if isinstance(plan, Skip) else ("plan", plan.data, plan.spec.name)


def told_by_reason(word: str, ends: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, with the first of those that have it and how many more do.

    Parameters
    ----------
    word
        How they ended, for example ``skipped``.
    ends
        What it is, data set and fold among it, and the reason. A reason that begins with them is one for all kinds.
    """
    reasons: dict[str, list[str]] = {}
    for what, reason in ends:
        fold = reason.partition(_REFUSAL)[2]
        reasons.setdefault(fold.partition(": ")[2] or reason, []).append(what)
    return [
        f"{word}: {found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}: {reason}"
        for reason, found in reasons.items()
    ]
