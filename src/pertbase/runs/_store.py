"""The folder a run leaves behind, and what can be read off it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from pertbase._html import shown
from pertbase._io import cut, plain, read_mapping, sha256_text, write_json, write_text, write_yaml
from pertbase.errors import InputError, PertbaseError, unknown_name
from pertbase.folds import Answers, Effects, Fold, open_fold
from pertbase.runs._run_scores import RunScores

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FOLDS", "MAIN", "Run", "find_runs", "flat", "is_folder", "run_folder", "told_difference"]

MAIN = "calibrated"
"""The adapter that stands for a run where one alone is shown."""
FOLDS = "_folds"
"""Where, among runs, the folds they share are kept."""
_LONGEST = 120
_CONFIG = ("data_name", "fold_name", "fold_hash", "fold_folder", "baseline_name", "adapters", "seed", "name")


def run_folder(runs: str | Path, data: str, fold: str, name: str, seed: int) -> Path:
    """Return ``<runs>/<data>/<fold>/<name>/seed<n>``; what a file name cannot hold becomes ``-``."""
    # What begins with _ or . among data sets is none: the folds, the responses.
    data = f"-{data}" if data.startswith(("_", ".")) else data
    return Path(runs) / _safe(data) / _safe(fold) / _safe(name) / f"seed{seed}"


def _safe(name: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "-_.+@" else "-" for letter in name)
    kept = kept.lstrip(".") or "-"
    # File systems take names of 255 bytes.
    return kept if kept == cut(kept, _LONGEST) else f"{cut(kept, _LONGEST - 7)}-{sha256_text(name)[:6]}"


@dataclass(frozen=True)
class Run:
    """One baseline, with preset, on one fold with one seed, by its folder.

    Parameters
    ----------
    folder
        Holds ``config.yaml``, ``status.json`` and, once complete, ``scores.json``, ``answers/`` and, for expression
        baselines, ``effects.h5ad``; ``error.txt`` after a failure.
    """

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """What was run: data, fold, baseline, adapters, seed, name."""
        config = read_mapping(self.folder / "config.yaml")
        missing = [key for key in _CONFIG if key not in config]
        if missing:
            raise InputError(
                "lacks keys",
                file=self.folder / "config.yaml",
                key=", ".join(missing),
                remedy="remove the run's folder, and run it again",
            )
        return config

    @property
    def status(self) -> dict[str, Any]:
        """State (``running``, ``complete``, ``failed``), times, versions, device."""
        path = self.folder / "status.json"
        # Without a state, as after somebody else's edit, it is not complete, and the same command carries it out again.
        return {"state": "running", **read_mapping(path)} if path.exists() else {"state": "running"}

    @property
    def state(self) -> str:
        """The status's state; ``interrupted`` for one that says it is running while no process is at it."""
        state = str(self.status["state"])
        if state != "running":
            return state
        try:
            with FileLock(self.folder / ".lock").acquire(blocking=False):
                # Its process may have ended well between the two.
                now = str(self.status["state"])
                return "interrupted" if now == "running" else now
        except (Timeout, OSError):
            return state

    @property
    def complete(self) -> bool:
        """Whether it ended well."""
        return self.status.get("state") == "complete"

    @property
    def reason(self) -> str:
        """Why it failed or was skipped, on one line; empty otherwise."""
        if self.status["state"] == "failed" and (self.folder / "error.txt").is_file():
            lines = (self.folder / "error.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return str(self.status.get("reason", ""))

    @cached_property
    def scores(self) -> RunScores:
        """Scores by adapter: values only, no timings."""
        scores = read_mapping(self.folder / "scores.json")
        if not isinstance(scores.get("adapters"), dict):
            raise InputError(
                "holds no scores by adapter",
                file=self.folder / "scores.json",
                key="adapters",
                remedy="remove the run's folder, and run it again",
            )
        return RunScores(scores)

    @property
    def fold_folder(self) -> Path:
        """The fold it ran on, among its runs."""
        return self.folder.parents[3] / FOLDS / str(self.config["fold_folder"])

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters it was answered with; one that does not fit the baseline is left out."""
        return tuple(name for name in self.config["adapters"] if "skipped" not in self.scores["adapters"].get(name, {}))

    @property
    def main_adapter(self) -> str:
        """The adapter that is meant where none is named: ``calibrated``, else the first there is.

        Raises
        ------
        InputError
            Where the run is not complete, or no adapter fits the baseline.
        """
        self._finished()
        if not self.adapters:
            raise InputError("no adapter fits the baseline", file=self.folder, key="adapters")
        return MAIN if MAIN in self.adapters else self.adapters[0]

    @property
    def paths(self) -> Mapping[str, Any] | None:
        """How the paths were chosen that it was given, as options of ``paths``; None where it was given none."""
        fold = self.config.get("fold")
        paths = fold.get("paths") if isinstance(fold, Mapping) else None
        return paths if isinstance(paths, Mapping) else None

    @cached_property
    def fold(self) -> Fold:
        """The fold it ran on, with the paths it was given and without cells.

        ``pertbase.open_fold(run.fold_folder, screen=...)`` has the cells too.
        """
        layer = self.config.get("paths_hash")
        fold = open_fold(self.fold_folder, paths=None if layer is None else str(layer)[:12])
        return fold if layer is not None else replace(fold, paths=None)

    def answers(self, adapter: str | None = None) -> Answers:
        """Return the answers of one adapter, of :attr:`main_adapter` where none is named."""
        return Answers.read(self.folder / "answers" / f"{self._known(adapter)}.parquet")

    def _known(self, adapter: str | None) -> str:
        """Return the adapter that is meant, which is one of the run's."""
        if adapter is None:
            return self.main_adapter
        if adapter not in self.config["adapters"]:
            raise unknown_name("adapter", str(adapter), self.config["adapters"], file=self.folder)
        return adapter

    @cached_property
    def reasons(self) -> pd.DataFrame | None:
        """The reasons of its answers, ``id``, ``triplets`` and ``text``; None where it gave none."""
        return self.answers().reasons

    def effects(self) -> Effects:
        """Return the predicted effects of an expression baseline.

        Raises
        ------
        InputError
            Where the baseline answers questions itself, or the run is not complete.
        """
        path = self.folder / "effects.h5ad"
        if not path.exists():
            self._finished()
            raise InputError(
                "holds no effects: the baseline answers questions itself", file=self.folder, remedy="see answers()"
            )
        return Effects.read(path)

    def thresholds(self, adapter: str | None = None) -> tuple[float, float] | None:
        """Return (tau_up, tau_down) of an adapter of effects; None where it has others, or none."""
        about = self.scores["adapters"].get(self._known(adapter), {}).get("adapter", {})
        up, down = about.get("tau_up"), about.get("tau_down")
        return None if up is None or down is None else (float(up), float(down))

    def _finished(self) -> None:
        if not self.complete:
            raise InputError(
                f"the run is not complete, but {self.state}{': ' + self.reason if self.reason else ''}",
                file=self.folder,
                remedy="the same command carries it out, or takes it up again",
            )

    @property
    def _place(self) -> str:
        return "/".join(self.folder.parts[-4:])

    def __repr__(self) -> str:
        return f"Run({self._place}, {self.status.get('state')})"

    def _repr_html_(self) -> str:
        if not self.complete:
            return shown(f"{self!r} {self.reason}")
        scores = self.scores
        title = f"{self!r}{' (simulated)' if scores.get('simulated') else ''}"
        return shown(title, scores.table(), notes=scores.notes())

    # -- writing --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from running here at the same time; they wait."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock")
            with lock:
                yield
        except OSError as error:
            raise PertbaseError(
                f"the run's folder cannot be used ({error.strerror or error})",
                file=self.folder,
                remedy="remove what stands in its place, or choose another runs=FOLDER",
            ) from error

    def refuse_another_screen(self, data: Mapping[str, Any], name: str, hash: str) -> None:
        """Raise where the runs beside this one are of another data set, whose name is the same.

        Parameters
        ----------
        data
            The configuration of the data set at hand.
        name, hash
            Its own name and the hash of its content.

        Raises
        ------
        InputError
            Naming both files. Their folds would have one name too, and their answers one table.
        """
        of_data = self.folder.parents[2]
        for path in of_data.glob("*/*/seed*/config.yaml"):
            try:
                kept = read_mapping(path)
            except InputError:  # cut off; whoever runs it again is told
                continue
            if kept.get("data_hash") not in (None, hash):
                raise InputError(
                    f"runs of another data set called {name!r} are kept here: of {_origin(kept.get('data'))}",
                    file=of_data,
                    key="data",
                    value=_origin(data),
                    remedy="give one of the two a name, data.name=NAME, or runs=FOLDER of its own; where the file was "
                    "made anew, remove its runs",
                )
            return

    def claim(self, config: Mapping[str, Any]) -> bool:
        """Write the configuration, and return whether there is anything left to do.

        Raises
        ------
        InputError
            Where the folder holds a run of another configuration; the message names the difference.
        """
        wanted = plain(config)
        path = self.folder / "config.yaml"
        if path.exists():
            kept = read_mapping(path)
            if not self._same(kept, wanted):
                raise InputError(
                    f"holds a run of another configuration: {told_difference(kept, wanted, 'there', 'here')}",
                    file=self.folder,
                    key="name",
                    value=wanted.get("name"),
                    remedy="give name=ANOTHER, or remove the folder",
                )
            return not self._whole
        write_yaml(path, wanted)
        return True

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Return whether the folder holds the complete run of a configuration: there is nothing left to do."""
        path = self.folder / "config.yaml"
        return self._whole and path.is_file() and self._same(read_mapping(path), plain(config))

    @property
    def trained_with(self) -> Mapping[str, Any]:
        """The settings of the trainer that it was begun with; empty where it does not train, or has not begun."""
        path = self.folder / "config.yaml"
        found = read_mapping(path).get("trainer") if path.is_file() else None
        return found if isinstance(found, Mapping) else {}

    @property
    def _whole(self) -> bool:
        # What somebody has removed since is made again.
        return self.complete and (self.folder / "scores.json").is_file()

    def _same(self, kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Return whether two configurations are of one run."""
        files, now = kept.get("files"), wanted.get("files") or {}
        if self._whole and isinstance(files, Mapping):
            # A file that is gone says nothing against a run that wants it no more.
            left = {key: value for key, value in files.items() if key in now}
            kept = {key: value for key, value in kept.items() if key != "files"} | ({"files": left} if left else {})
        # What `data` says, a path among it, may change: its content is held by data_hash.
        return {**kept, "data": None} == {**wanted, "data": None}

    def mark(self, state: str, **about: Any) -> None:
        """Write ``status.json``."""
        write_json(self.folder / "status.json", {"state": state, **about})

    def fail(self, text: str) -> None:
        """Write ``error.txt``."""
        write_text(self.folder / "error.txt", text)


def _origin(data: Any) -> str:
    """Return the file of a data set's configuration, or what else tells it from others."""
    about = {key: value for key, value in data.items() if value is not None} if isinstance(data, Mapping) else {}
    found = about.get("path") or about.get("folder")
    return str(found or ", ".join(f"{key}={value}" for key, value in about.items()))


def told_difference(first: Any, second: Any, at_first: str, at_second: str) -> str:
    """Return what two configurations differ in, their data sets' options apart: up to three keys, with both values."""
    one, other = flat(first), flat(second)
    keys = [
        key
        for key in sorted({*one, *other})
        if not key.startswith("data.") and one.get(key, "absent") != other.get(key, "absent")
    ]
    told = [
        f"{key} is {one.get(key, 'absent')!r} {at_first} and {other.get(key, 'absent')!r} {at_second}"
        for key in keys[:3]
    ]
    return "; ".join(told) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their keys, joined with dots."""
    if isinstance(value, Mapping) and value:
        found: dict[str, Any] = {}
        for key, item in value.items():
            found.update(flat(item, f"{prefix}.{key}" if prefix else str(key)))
        return found
    return {prefix: value}


def is_folder(path: Path) -> bool:
    """Return whether there is such a folder: not where the name is longer than a name can be, which Python raises."""
    try:
        return path.is_dir()
    except OSError:
        return False


def find_runs(runs: str | Path) -> list[Run]:
    """Return every run below a folder, sorted by path.

    Raises
    ------
    InputError
        Where there is no such folder.
    """
    root = Path(runs)
    if not is_folder(root):
        raise InputError(
            "there is no such folder of runs", file=root, remedy=f"run something first: pertbase run runs={root} ..."
        )
    return [
        Run(path.parent)
        for path in sorted(root.glob("*/*/*/seed*/config.yaml"))
        if not path.relative_to(root).parts[0].startswith((".", "_"))
    ]
