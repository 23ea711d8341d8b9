"""What can be named: the options of each configuration group, ours, the user's and plug-ins'."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pertbase.errors import InputError, unknown_name

__all__ = ["ENTRY_POINTS", "GROUPS", "Names"]

GROUPS = ("data", "fold", "baseline", "adapter", "experiment")
ENTRY_POINTS = "pertbase.baselines"
_LANGUAGE = "llm/"
_COSTLY = {
    "data": r"^(url|repository):",
    "baseline": r"^_target_: pertbase\.baselines\.finetuned\.",
}
"""What is in the configuration of a data set that would be fetched, and of a language baseline outside ``llm/``."""


@dataclass(frozen=True)
class Names:
    """The options that can be named in a configuration group.

    Parameters
    ----------
    config_dirs
        Folders of the user's, each with group folders of its own such as ``baseline/``.
    """

    config_dirs: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for folder in self.config_dirs:
            if not folder.is_dir():
                raise InputError("there is no such folder", file=folder, key="--config-dir")

    def make_importable(self) -> None:
        """Let a plug-in's ``_target_`` be imported from beside its configuration, or the working directory.

        A console script does not put the working directory on the path. Both go to the end of it, so that no
        folder of the user's hides an installed package.
        """
        for folder in (*(path.resolve().parent for path in self.config_dirs), Path.cwd()):
            if str(folder) not in sys.path:
                sys.path.append(str(folder))

    def options(self, group: str) -> dict[str, str]:
        """Return name -> one-line description of every option of a group, sorted; the user's win over ours."""
        found = dict(self.plugins) if group == "baseline" else {}
        for root in (files("pertbase.conf"), *self.config_dirs):
            found.update(_walk(root.joinpath(group)))
        return dict(sorted(found.items()))

    @cached_property
    def plugins(self) -> dict[str, str]:
        """Baselines that installed packages bring, by entry point."""
        return {point.name: f"plug-in: {point.value}" for point in metadata.entry_points(group=ENTRY_POINTS)}

    @cached_property
    def targets(self) -> dict[str, str]:
        """The class of each plug-in, as Hydra's ``_target_``."""
        return {point.name: point.value.replace(":", ".") for point in metadata.entry_points(group=ENTRY_POINTS)}

    def check(self, group: str, name: str) -> None:
        """Raise where a group has no such option, with the nearest one."""
        options = self.options(group)
        if name not in options:
            raise unknown_name(group, name, options)

    def file_of(self, group: str, name: str) -> str | None:
        """Return the file that says what a name means; None for a plug-in's entry point."""
        # The user's win over ours, and among the user's the last.
        for root in (*reversed(self.config_dirs), files("pertbase.conf")):
            place = root.joinpath(group, f"{name}.yaml")
            if place.is_file():
                return str(place)
        return None

    def costly(self, group: str) -> set[str]:
        """Return the options that a pattern does not mean: language baselines, and data sets that would be fetched."""
        found = {name for name in self.options(group) if name.startswith(_LANGUAGE)}
        for root in (files("pertbase.conf"), *self.config_dirs):
            for name, text in _texts(root.joinpath(group)):
                if group in _COSTLY and re.search(_COSTLY[group], text, flags=re.MULTILINE):
                    found.add(name)
        return found

    def match(self, group: str, patterns: Iterable[str], exclude: Sequence[str] = ()) -> list[str]:
        """Return the options that fit a pattern, sorted.

        What is costly, language baselines (those in the folder ``llm/`` and those that are fine-tuned) and data sets
        that would be fetched, is matched by its own name, or by a pattern that names the folder.

        Raises
        ------
        InputError
            Where nothing fits.
        """
        patterns = list(patterns)
        costly = self.costly(group)
        names = [
            name
            for name in self.options(group)
            if any(
                fnmatchcase(name, pattern) and (name not in costly or pattern == name or pattern.startswith(_LANGUAGE))
                for pattern in patterns
            )
            and not any(fnmatchcase(name, pattern) for pattern in exclude)
        ]
        if not names:
            raise InputError(
                "matches nothing",
                key=group,
                value=f"glob({', '.join(patterns)})",
                remedy=f"known: {', '.join(self.options(group))}",
            )
        return names


def _walk(folder: Traversable | Path) -> dict[str, str]:
    found = {}
    for name, text in _texts(folder):
        first = text.split("\n", 1)[0]
        found[name] = first.lstrip("# ") if first.startswith("#") else ""
    return found


def _texts(folder: Traversable | Path, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and text of every option in a group's folder and the folders below it."""
    if not folder.is_dir():
        return
    for item in folder.iterdir():
        if item.is_dir() and not item.name.startswith(("_", ".")):
            yield from _texts(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".yaml") and not item.name.startswith("_"):
            try:
                text = item.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"cannot be read ({error})", file=str(item), remedy="write it as UTF-8") from error
            yield prefix + item.name.removesuffix(".yaml"), text
