"""What can be named: the options of each configuration group, ours, the user's and plug-ins'."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
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

    def match(self, group: str, patterns: Iterable[str], exclude: Sequence[str] = ()) -> list[str]:
        """Return the options that fit a pattern, sorted.

        Language baselines, in their folder ``llm/``, are costly: they match only a pattern that names the folder.

        Raises
        ------
        InputError
            Where nothing fits.
        """
        patterns = list(patterns)
        names = [
            name
            for name in self.options(group)
            if any(
                fnmatchcase(name, pattern) and (pattern.startswith(_LANGUAGE) or not name.startswith(_LANGUAGE))
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


def _walk(folder: Traversable | Path, prefix: str = "") -> dict[str, str]:
    if not folder.is_dir():
        return {}
    found = {}
    for item in folder.iterdir():
        if item.is_dir() and not item.name.startswith(("_", ".")):
            found.update(_walk(item, f"{prefix}{item.name}/"))
        elif item.name.endswith(".yaml") and not item.name.startswith("_"):
            first = item.read_text(encoding="utf-8").split("\n", 1)[0]
            found[prefix + item.name.removesuffix(".yaml")] = first.lstrip("# ") if first.startswith("#") else ""
    return found
