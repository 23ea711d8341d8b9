"""The folder a run leaves behind, and what can be read off it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pertbase._io import cut, plain, read_mapping, sha256_text, write_json, write_text, write_yaml
from pertbase.errors import InputError, PertbaseError
from pertbase.folds import Answers, Effects

__all__ = ["FOLDS", "Run", "find_runs", "run_folder"]

FOLDS = "_folds"
"""Where, among runs, the folds they share are kept."""
_LONGEST = 120
_CONFIG = ("data_name", "fold_name", "fold_hash", "fold_folder", "baseline_name", "adapters", "seed", "name")


def run_folder(runs: str | Path, data: str, fold: str, name: str, seed: int) -> Path:
    """Return ``<runs>/<data>/<fold>/<name>/seed<n>``; what a file name cannot hold becomes ``-``."""
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
    def scores(self) -> dict[str, Any]:
        """Scores by adapter: values only, no timings."""
        scores = read_mapping(self.folder / "scores.json")
        if not isinstance(scores.get("adapters"), dict):
            raise InputError(
                "holds no scores by adapter",
                file=self.folder / "scores.json",
                key="adapters",
                remedy="remove the run's folder, and run it again",
            )
        return scores

    @property
    def fold_folder(self) -> Path:
        """The fold it ran on, among its runs."""
        return self.folder.parents[3] / FOLDS / str(self.config["fold_folder"])

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters it was answered with; one that does not fit the baseline is left out."""
        return tuple(name for name in self.config["adapters"] if "skipped" not in self.scores["adapters"].get(name, {}))

    def answers(self, adapter: str) -> Answers:
        """Return the answers of one adapter."""
        return Answers.read(self.folder / "answers" / f"{adapter}.parquet")

    def effects(self) -> Effects:
        """Return the predicted effects of an expression baseline."""
        return Effects.read(self.folder / "effects.h5ad")

    def __repr__(self) -> str:
        return f"Run({'/'.join(self.folder.parts[-4:])}, {self.status.get('state')})"

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
            # What `data` says, a path among it, may change: its content is held by data_hash.
            if {**kept, "data": None} != {**wanted, "data": None}:
                raise InputError(
                    f"holds a run of another configuration: {_difference(kept, wanted)}",
                    file=self.folder,
                    key="name",
                    value=wanted.get("name"),
                    remedy="give name=ANOTHER, or remove the folder",
                )
            return not self.complete
        write_yaml(path, wanted)
        return True

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


def _difference(kept: Any, wanted: Any) -> str:
    first, second = _flat(kept), _flat(wanted)
    keys = [
        key
        for key in sorted({*first, *second})
        if not key.startswith("data.") and first.get(key, "absent") != second.get(key, "absent")
    ]
    told = [f"{key} is {first.get(key, 'absent')!r} there and {second.get(key, 'absent')!r} here" for key in keys[:3]]
    return "; ".join(told) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat.update(_flat(item, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    return {prefix: value}


def find_runs(runs: str | Path) -> list[Run]:
    """Return every run below a folder, sorted by path.

    Raises
    ------
    InputError
        Where there is no such folder.
    """
    root = Path(runs)
    if not root.is_dir():
        raise InputError(
            "there is no such folder", file=root, key="runs", remedy="run something first: pertbase run runs=FOLDER ..."
        )
    return [
        Run(path.parent)
        for path in sorted(root.glob("*/*/*/seed*/config.yaml"))
        if not path.relative_to(root).parts[0].startswith((".", "_"))
    ]
