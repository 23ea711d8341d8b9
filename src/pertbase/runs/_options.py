"""The options of whatever can be named: key, default and a line of meaning, from configurations and docstrings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from pertbase.runs._compose import defaults
from pertbase.runs._docstrings import meaning_of, parameters, referenced
from pertbase.runs._located import located
from pertbase.runs._names import Names

__all__ = ["OWNERS", "Option", "Part", "class_of", "parts"]

OWNERS = {
    "fold": "pertbase.folds.FoldSpec",
    "trainer": "pertbase.baselines.harness.TrainerSettings",
    "asking": "pertbase.baselines.llm.AskSettings",
    "paths": "pertbase.folds.PathSpec",
}
"""What the options of groups that name no class are given to."""
_USUAL = {"trainer": "cpu", "asking": "default"}


@dataclass(frozen=True)
class Option:
    """One option.

    Parameters
    ----------
    key
        As it is typed: ``baseline.ridge``.
    default
        As it would be typed; ``???`` where one has to be given.
    meaning
        One line, from the docstring of what takes it.
    """

    key: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Part:
    """Options that belong together.

    Parameters
    ----------
    title
        What they are of, as it is typed: ``baseline=gears``.
    about
        One line.
    options
        In the order of the configuration.
    """

    title: str
    about: str
    options: tuple[Option, ...]


def parts(group: str, name: str, names: Names) -> list[Part]:
    """Return the options of one name of a group, and for baselines those of how they are trained, or asked.

    Raises
    ------
    InputError
        Where there is no such name, or its class cannot be imported.
    """
    names.check(group, name)
    config = defaults(group, name, names)
    owner = class_of(group, config, file=names.file_of(group, name))
    key = f"adapters.{name}" if group == "adapter" else group
    found = [Part(f"{group}={name}", names.options(group)[name], tuple(_options(key, config, owner)))]
    if group == "baseline" and hasattr(owner, "workspace"):
        also = getattr(owner, "settings_group", "trainer")
        for one in (also,) if isinstance(also, str) else also:
            found += parts(one, _USUAL[one], names)
    return found


def class_of(group: str, config: Mapping[str, Any], *, file: str | None = None) -> Any:
    """Return the class or function that a configuration is given to.

    Raises
    ------
    InputError
        Where it cannot be imported.
    """
    return located(str(config.get("_target_") or OWNERS.get(group, "")), f"{group}._target_", file=file)


def _options(prefix: str, config: Mapping[str, Any], owner: Any) -> Iterator[Option]:
    for key, value in config.items():
        if key == "_target_":
            continue
        place, meaning = f"{prefix}.{key}", meaning_of(owner, key)
        if place == "fold.rule":
            yield from _of_rule(place, value)
            continue
        inner = _inner(place, key, value, owner)
        if inner is None:
            yield Option(place, _typed(value), meaning)
            continue
        if "_target_" not in value:
            yield Option(place, "", meaning)
        yield from _options(place, value, inner)


def _inner(place: str, key: str, value: Any, owner: Any) -> Any | None:
    """Return what takes the options of a nested mapping, or None where it is one value."""
    if not isinstance(value, Mapping):
        return None
    if "_target_" in value:
        return class_of(place, value)
    # A mapping whose keys the text refers to; of others, such as names in somebody's file, the keys are data.
    other = referenced(owner, parameters(owner).get(key, ""))
    return other if other is not None and set(value) <= set(parameters(other)) else None


def _of_rule(place: str, given: Mapping[str, Any]) -> Iterator[Option]:
    """Yield the parameters of a fold's label rule; of another rule they are others."""
    from pertbase.folds import RULES, label_rule

    rule = label_rule(given)
    yield Option(f"{place}.name", str(given["name"]), f"the label rule: {', '.join(RULES)}")
    for key, value in rule.to_dict().items():
        if key != "name":
            yield Option(f"{place}.{key}", _typed(value), meaning_of(type(rule), key))


def _typed(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
