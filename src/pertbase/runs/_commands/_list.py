"""``pertbase list``: what can be named, and the options of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pertbase.errors import InputError, unknown_name
from pertbase.runs._names import Names

__all__ = ["costs", "listed"]

_LISTED = {
    "baselines": "baseline", "folds": "fold", "data": "data", "adapters": "adapter", "trainers": "trainer",
    "asking": "asking", "experiments": "experiment", "manifests": "manifest", "graphs": "graph", "paths": "paths",
}  # fmt: skip
_WIDEST = 36


def listed(arguments: Sequence[str], folders: Sequence[Path]) -> int:
    """Print the names of some groups, or of all; or the options of names of one group."""
    names = Names(tuple(folders))
    wanted = list(arguments) or list(_LISTED)
    if wanted[0] not in _LISTED:
        raise unknown_name("list", wanted[0], _LISTED)
    if len(wanted) > 1 and wanted[1] not in _LISTED:
        names.make_importable()
        for name in wanted[1:]:
            print(
                "\n".join(_experiment(name, names) if wanted[0] == "experiments" else _options(wanted[0], name, names))
            )
        return 0
    for what in wanted:
        if what not in _LISTED:
            raise unknown_name("list", what, _LISTED)
        if len(wanted) > 1:
            print(f"{what}:")
        options = names.options(_LISTED[what])
        width = max((len(name) for name in options), default=0)
        for name, about in options.items():
            print(f"{name:<{width}}  {about}".rstrip())
    return 0


def _options(what: str, name: str, names: Names) -> Iterator[str]:
    """Yield the options of one name, a line each: key, default and meaning."""
    if what in ("manifests", "graphs"):
        raise InputError(
            "has no options to list",
            key="list",
            value=f"{what} {name}",
            remedy="`pertbase folds check manifest=NAME` makes a manifest's folds; graphs are named by graph=NAME",
        )
    from pertbase.runs._options import parts

    found = parts(_LISTED[what], name, names)
    every = [option for part in found for option in part.options]
    key = max((len(option.key) for option in every), default=0)
    value = min(max((len(option.default) for option in every), default=0), _WIDEST)
    for number, part in enumerate(found):
        yield f"{'' if number == 0 else chr(10)}{part.title}: {part.about}".rstrip(": ")
        if not part.options:
            yield "  no options"
        for option in part.options:
            yield f"  {option.key:<{key}}  {option.default:<{value}}  {option.meaning}".rstrip()


def costs(overrides: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """Yield what the experiments among some overrides take, part by part."""
    from pertbase.runs._experiment import CPU, read_experiment

    for text in overrides:
        key, _, name = text.partition("=")
        if key == "experiment":
            found = read_experiment(name, Names(tuple(folders)))
            for part in found.parts:
                if part in found.costs:
                    yield f"experiment={name}{'' if part == CPU else f' part={part}'}: {found.costs[part]}"


def _experiment(name: str, names: Names) -> Iterator[str]:
    """Yield what an experiment runs, what that takes and what it is held against."""
    from pertbase.runs._experiment import CPU, read_experiment

    found = read_experiment(name, names)
    yield f"experiment={name}: {found.title}"
    for part in found.parts:
        yield f"  {'' if part == CPU else f'part={part}: '}{found.costs.get(part, 'what it takes is not said')}"
        for options in found.of_part(part):
            yield f"    {' '.join(f'{key}={value}' for key, value in options.items())}"
    if found.table is not None:
        yield f"  beside {found.table.published}'s published figures: pertbase report experiment={name}"
