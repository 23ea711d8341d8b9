"""What can be said against the runs of a command before any data are loaded: option values, and runs that are one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pertbase._io import canonical_json
from pertbase.errors import InputError
from pertbase.runs._execute import instantiate
from pertbase.runs._guard import ForeignError, guarded
from pertbase.runs._options import OWNERS, class_of
from pertbase.runs._parameters import check_parameters
from pertbase.runs._plan import Plan, Skip
from pertbase.runs._store import flat, told_difference

__all__ = ["check_options", "refuse_one_folder"]

_OURS = "pertbase."
_TARGET = "_target_"


def check_options(plans: Sequence[Plan]) -> None:
    """Raise where a value is none that its option takes, of any of the runs: nothing is loaded then, and nothing run.

    Values are held against the types of parameters. Classes of ours are made once, to refuse what they refuse;
    somebody else's may read gigabytes when they are made, and are made when their run comes. A class that cannot be
    imported or made at all fails its own runs, and the others are done.

    Raises
    ------
    InputError
        Naming key and value.
    """
    seen: set[str] = set()
    for plan in plans:
        for where, config in _parts(plan):
            key = f"{where} {canonical_json(config)}"
            if key not in seen:
                seen.add(key)
                _check(config, where)


def _parts(plan: Plan) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the parts of a run's configuration that a class is made of, with their keys."""
    baseline = plan.config["baseline"]
    yield "baseline", baseline
    for name, adapter in plan.config["adapters"].items():
        yield f"adapters.{name}", adapter
    for group in _settings(baseline):
        yield group, {_TARGET: OWNERS[group], **(plan.config.get(group) or {})}


def _settings(baseline: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups that say how a baseline is trained, or asked; none where it is neither, or cannot be found."""
    try:
        owner = guarded(lambda: class_of("baseline", baseline))
    except (InputError, ForeignError):
        return ()
    if not hasattr(owner, "workspace"):
        return ()
    groups = getattr(owner, "settings_group", "trainer")
    return tuple(group for group in ((groups,) if isinstance(groups, str) else groups) if group in OWNERS)


def _check(config: Any, where: str) -> None:
    if not isinstance(config, Mapping) or not isinstance(config.get(_TARGET), str):
        found = config.get(_TARGET) if isinstance(config, Mapping) else config
        raise InputError("names no class", key=f"{where}.{_TARGET}", value=found, remedy="write package.module.Class")
    try:
        guarded(lambda: check_parameters(config, where))
        if where in OWNERS:
            settings: Any = class_of(where, config)
            settings.from_config({key: value for key, value in config.items() if key != _TARGET})
        elif config[_TARGET].startswith(_OURS):
            guarded(lambda: instantiate(config, where))
    except InputError as error:
        if error.key != f"{where}.{_TARGET}":
            raise
    except ForeignError:
        return


def refuse_one_folder(plans: Sequence[Plan | Skip]) -> None:
    """Raise where two runs of a command differ and have one name, data set, fold and seed: they would share a folder.

    Raises
    ------
    InputError
        Naming what they differ in, and how to name them apart.
    """
    first: dict[tuple[str, ...], Plan] = {}
    for plan in plans:
        if isinstance(plan, Skip):
            continue
        place = (str(plan.runs), canonical_json(plan.config["data"]), plan.spec.name, plan.name, str(plan.seed))
        kept = first.setdefault(place, plan)
        one, other = _identity(kept), _identity(plan)
        if one != other:
            raise InputError(
                f"two runs of this command have one name, and differ: {told_difference(one, other, 'first', 'second')}",
                key="name",
                value=plan.name,
                remedy=_apart(kept, plan, one, other),
            )


def _identity(plan: Plan) -> dict[str, Any]:
    """Return what makes a run another, but for how it is trained, of which only a part does."""
    chosen = {key: plan.config.get(key) for key in ("baseline", "adapters", "cells")}
    fold = plan.spec.to_dict()
    return {"baseline_name": plan.baseline, "fold": fold, **chosen, "paths": fold.pop("paths", None)}


def _apart(kept: Plan, plan: Plan, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if kept.baseline != plan.baseline:
        return "leave out name=, so that each is called as its baseline is"
    first, second = flat(one), flat(other)
    for key in sorted({*first, *second}):
        values = (first.get(key), second.get(key))
        if values[0] != values[1] and all(isinstance(value, (int, float, str)) for value in values):
            return f"give each a name of its own, for example name='{plan.name}_${{{key}}}'"
    return "give each a name of its own, name=NAME, in a command of its own"
