"""From what was typed to configurations, one a run: Hydra composes, we expand.

Hydra's own ``glob(*)`` skips nested groups and plug-ins and succeeds on no match, and its grammar does not take
paths with ``=``, commas or brackets. So patterns are expanded and paths quoted here, before Hydra sees them.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pertbase.errors import InputError, nearest, unknown_name
from pertbase.runs._experiment import CPU, read_experiment
from pertbase.runs._names import Names

__all__ = ["PATH_KEYS", "Composer", "compose", "defaults", "expand", "quote", "seed_of", "split_override"]

PATH_KEYS = ("runs", "data.path", "data.targets", "data.folder")
"""Options that take a path, verbatim: never a list, never an expression."""

_NAMED = ("data", "fold", "baseline")
_GROUPS = (*_NAMED, "trainer", "asking", "paths")
_PARTS = (*_GROUPS, "adapters", "seed", "name", "cells", "runs")
_MOST_VALUES = 10_000


def split_override(text: str) -> tuple[str, str]:
    """Return key and value of ``key=value``.

    Raises
    ------
    InputError
        Where there is no ``=``.
    """
    key, sign, value = text.partition("=") if isinstance(text, str) else ("", "", "")
    if not sign or not key:
        raise InputError(
            "is not of the form key=value", key="command line", value=text, remedy="write for example seed=1"
        )
    return key, value


def quote(text: str) -> str:
    """Return an override in which a path is one quoted text for Hydra."""
    key, value = split_override(text)
    if key.lstrip("+~") not in PATH_KEYS or value == "null":
        return text
    # Hydra unescapes quotes, and backslashes only where they stand before one.
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"{key}='{escaped}'"


def expand(overrides: Sequence[str], names: Names, *, multirun: bool) -> list[list[str]]:
    """Return one list of single-valued overrides a run.

    Parameters
    ----------
    overrides
        As typed: ``key=value``; in a multirun ``key=a,b``, ``range(3)``, ``glob(*)`` too. ``experiment=NAME`` stands
        for the runs that its file lists, ``part=NAME`` for which of them; what else is typed is added to each.
        Of several baselines, an option ``baseline.KEY=...`` goes to those that have it.
    names
        What can be named.
    multirun
        Whether several values may be given.

    Raises
    ------
    InputError
        Where a name is unknown, a pattern matches nothing, or several values are given outside a multirun.
    """
    pairs = [split_override(text) for text in overrides]
    experiments = [value for key, value in pairs if key == "experiment"]
    parts = [value for key, value in pairs if key == "part"]
    rest = [text for text, (key, _) in zip(overrides, pairs, strict=True) if key not in ("experiment", "part")]
    if not experiments:
        if parts:
            raise InputError("is of an experiment", key="part", value=parts[-1], remedy="say experiment=NAME too")
        return _with_own_options(list(_product(rest, names, multirun=multirun)), names)
    jobs = []
    for experiment in experiments[-1].split(","):
        for entry in read_experiment(experiment, names).of_part(parts[-1] if parts else CPU):
            typed = {split_override(text)[0] for text in rest}
            listed = [f"{key}={value}" for key, value in entry.items() if key not in typed]
            jobs += list(_product([*listed, *rest], names, multirun=True))
    return _with_own_options(jobs, names)


def _with_own_options(jobs: list[list[str]], names: Names) -> list[list[str]]:
    """Leave out, of several baselines, options that this one does not have and another has; no run comes twice then.

    An option that none of them has stays where it is, to be refused by name.
    """
    options = {key for job in jobs for key, _ in map(split_override, job) if key.startswith("baseline.")}
    chosen = {value for job in jobs for key, value in map(split_override, job) if key == "baseline"}
    if len(chosen) < 2 or not options:
        return jobs
    known = {name: defaults("baseline", name, names).keys() for name in sorted(chosen)}
    having = {key: {name for name in chosen if key.split(".")[1] in known[name]} for key in options}
    kept: dict[tuple[str, ...], None] = {}
    for job in jobs:
        name = dict(map(split_override, job)).get("baseline")
        own = (text for text in job if not (found := having.get(split_override(text)[0])) or name in found)
        kept.setdefault(tuple(own))
    return [list(job) for job in kept]


def _product(overrides: Sequence[str], names: Names, *, multirun: bool) -> Iterator[list[str]]:
    choices: dict[str, list[str]] = {}
    for text in overrides:
        key, _ = split_override(text)
        values = _values(text, names)
        if len(values) > 1 and not multirun:
            raise InputError("several values are given", key=key, value=text, remedy="add -m to run them all")
        choices[key] = values  # the last one typed wins, as in Hydra
    for group in _GROUPS:
        for value in choices.get(group, ()):
            names.check(group, value.partition("=")[2])
    yield from ([*job] for job in itertools.product(*choices.values()))


def _values(text: str, names: Names) -> list[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    key, value = split_override(text)
    quoted = quote(text)
    try:
        override = OverridesParser.create().parse_override(quoted)
    except HydraException as error:
        raise InputError(
            "cannot be understood",
            key=key,
            value=value,
            remedy="quote it: " + f"\"{key}='{value}'\"" + " takes any text",
        ) from error
    if not override.is_sweep_override():
        return [quoted]
    sweep: Any = override.value()
    if isinstance(sweep, Glob):
        if key not in _NAMED:
            raise InputError("only data, fold and baseline take patterns", key=key, value=value)
        return [f"{key}={name}" for name in names.match(key, sweep.include, sweep.exclude)]
    found = [f"{key}={item}" for item in itertools.islice(override.sweep_string_iterator(), _MOST_VALUES + 1)]
    if not 0 < len(found) <= _MOST_VALUES:
        wrong = f"gives more than {_MOST_VALUES:,} values" if found else "gives no value"
        raise InputError(wrong, key=key, value=value, remedy="write for example seed=range(3), which gives 0, 1 and 2")
    return found


def defaults(group: str, name: str, names: Names) -> dict[str, Any]:
    """Return the configuration of one name of a group; what has to be given is ``???``."""
    override = f"adapter@adapters.fixed={name}" if group == "adapter" else f"{group}={name}"
    composed = compose([override], names, missing=True)
    return dict(composed["adapters"]["fixed"] if group == "adapter" else composed[group])


def compose(overrides: Sequence[str], names: Names, *, config: str = "run", missing: bool = False) -> dict[str, Any]:
    """Return the composed configuration of one run, resolved, with the chosen names under ``choices``.

    Parameters
    ----------
    overrides
        Single-valued, as :func:`expand` gives them.
    names
        What can be named.
    config
        Which configuration of ours.
    missing
        Whether values that have to be given may be missing: they stay ``???``.

    Raises
    ------
    InputError
        Where a key is unknown or a value is missing.
    """
    return _composed(overrides, names, config=config, missing=missing)[0]


class Composer:
    """Composes the runs of one command: of folds times baselines, each fold and each baseline once, not each pair.

    Hydra takes a tenth of a second a run. A pair is put together from two configurations that were composed, where
    each of them differs from the first one in its own part alone, and no value is taken from another part (``${..}``);
    any other run is composed as a whole.

    Parameters
    ----------
    names
        What can be named.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._first: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self._folds: dict[tuple[str, ...], dict[str, Any]] = {}
        self._rests: dict[tuple[str, ...], dict[str, Any]] = {}

    def __call__(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Return what :func:`compose` does."""
        of_fold = [split_override(text)[0].lstrip("+~").partition(".")[0] == "fold" for text in overrides]
        fold = tuple(text for text, own in zip(overrides, of_fold, strict=True) if own)
        rest = tuple(text for text, own in zip(overrides, of_fold, strict=True) if not own)
        if fold in self._folds and rest in self._rests:
            return _put_together(self._folds[fold], self._rests[rest])
        whole, alone = _composed(overrides, self._names)
        if self._first is None and alone:
            self._first = (fold, rest)
            self._folds[fold] = self._rests[rest] = whole
        elif self._first is not None and alone:
            first = self._folds[self._first[0]]
            if rest == self._first[1] and whole == _put_together(whole, first):
                self._folds[fold] = whole
            if fold == self._first[0] and whole == _put_together(first, whole):
                self._rests[rest] = whole
        return copy.deepcopy(whole)


def _put_together(fold: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the fold of one and all else of the other."""
    whole = copy.deepcopy({**rest, "fold": fold["fold"]})
    whole["choices"] |= {"fold": fold["choices"]["fold"]}
    return whole


def _composed(
    overrides: Sequence[str], names: Names, *, config: str = "run", missing: bool = False
) -> tuple[dict[str, Any], bool]:
    """Return a configuration, and whether every value in it stands for itself."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
    from yaml import YAMLError

    overrides = [_named(text) for text in overrides]
    for name, target in names.targets.items():
        ConfigStore.instance().store(group="baseline", name=name, node={"_target_": target})
    listed = ",".join(f"'file://{folder.resolve()}'" for folder in names.config_dirs)
    extra = [f"hydra.searchpath=[{listed}]"] if listed else []
    try:
        with initialize_config_module("pertbase.conf", version_base="1.3"):
            try:
                composed = hydra_compose(config, [*overrides, *extra], return_hydra_config=True)
            except (HydraException, ValueError) as error:
                # Composed again without single values, to tell which could have been given instead.
                groups = [text for text in overrides if split_override(text)[0] in _GROUPS]
                among = hydra_compose(config, [*groups, *extra], return_hydra_config=True)
                raise _explain(error, among) from error
        choices = {key: str(value) for key, value in composed.hydra.runtime.choices.items() if key in _NAMED}
        OmegaConf.set_struct(composed, False)
        composed.pop("hydra")
        alone = "${" not in str(OmegaConf.to_container(composed, resolve=False))
        # a mapping of plain values; `???` left in it is caught here
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=not missing)
    except MissingMandatoryValue as error:
        key = str(error.full_key)
        raise InputError("needs a value", key=key, remedy=f"add {key}=VALUE to the command") from error
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot be composed: {first}", key="command line", value=list(overrides)) from error
    except YAMLError as error:
        raise _not_yaml(error) from error
    if not isinstance(plain, dict):
        raise InputError("the configuration is not a mapping", key=config, value=plain)
    for group in _NAMED:
        if not isinstance(plain.get(group), dict):
            raise InputError(
                f"{choices.get(group, group)}.yaml does not give a mapping of options",
                key=group,
                value=plain.get(group),
                remedy="write key: value lines, and no `# @package`",
            )
    for part in plain if config == "run" else ():
        if part not in _PARTS:  # +KEY=VALUE adds whatever it is told to
            raise unknown_name("option", str(part), _PARTS)
    return {**{str(key): value for key, value in plain.items()}, "choices": choices}, alone


def _named(text: str) -> str:
    """Return an override whose name stays a text: ``nan``, ``1`` and ``true`` are names too, of a row as well.

    The parameters of a label rule are those of the rule that is named, which knows and checks them.
    """
    key, value = split_override(text)
    if key.startswith("fold.rule.") and key != "fold.rule.name":
        return f"++{text}"
    named = key in _NAMED or (key == "name" and value != "null")
    return f"{key}='{value}'" if named and re.fullmatch(r"[\w./+-]+", value) else text


def _not_yaml(error: Exception) -> InputError:
    mark = getattr(error, "problem_mark", None)
    place = "" if mark is None else f", line {mark.line + 1}"
    return InputError(
        f"is not valid YAML ({getattr(error, 'problem', None) or error}{place})",
        file=None if mark is None else mark.name,
        remedy="mend the file",
    )


def _explain(error: Exception, composed: Any) -> InputError:
    """Return an error that names the option which cannot be set, and those that can."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    found = re.search(r"Could not override '([^']+)'", first)
    if not found:
        return InputError(f"cannot be composed: {first}", key="command line")
    *parents, child = found[1].split(".")
    node = composed
    for parent in parents:
        node = node.get(parent) if hasattr(node, "get") else None
    known = sorted(str(key) for key in node if not str(key).startswith("_")) if hasattr(node, "keys") else []
    close = nearest(child, known)
    hint = f"did you mean {close!r}? " if close else ""
    chosen = composed.hydra.runtime.choices.get(parents[0]) if parents else None
    there = f"Known there: {', '.join(known)}" if known else "there is nothing to set below it"
    if not known and chosen:
        there += f"; name another {parents[0]} in the same command: `pertbase list {parents[0]}`"
    of = f" of {parents[0]}={chosen}" if chosen and len(parents) == 1 else ""
    return InputError(f"unknown option{of}", key=found[1], remedy=f"{hint}{there}")


def seed_of(text: Any, key: str) -> int:
    """Return a seed from a configuration value."""
    if isinstance(text, bool) or not isinstance(text, int) or text < 0:
        raise InputError("a seed is a whole number from 0 on", key=key, value=text)
    return text
