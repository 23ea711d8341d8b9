"""``pertbase folds``: make, show, check, manifest, difficulty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, PertbaseError, UnsupportedError, unknown_name
from pertbase.folds import KINDS, OUTCOMES, Fold, FoldSpec, Manifest, PinnedFold, check_fold, open_fold, remedies
from pertbase.runs._commands._help import options_of
from pertbase.runs._compose import compose, expand, split_override
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf, fold_spec, told_by_reason
from pertbase.runs._reports._report import marked
from pertbase.runs._reports._terms import LEGEND, POWER

__all__ = ["check", "difficulty", "make", "manifest", "questions", "show", "split"]

_MADE = ("data", "fold", "paths", "experiment", "part")
"""What says which folds are made, and is composed as for a run."""
_QUESTION_FILES = (".csv", ".jsonl", ".parquet")


class _Skips:
    """What cannot be made of a data set, to be told at the end, by reason: a pattern over folds skips dozens."""

    def __init__(self) -> None:
        self._ends: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, what: str, reason: UnsupportedError) -> None:
        """Keep what cannot be made, and why."""
        self._ends.append((what, str(reason)))

    def tell(self) -> None:
        """Print a line for each reason."""
        for line in told_by_reason("skipped", self._ends):
            print(line)


def _specs(
    overrides: Sequence[str], folders: Sequence[Path], shelf: DataShelf, skips: _Skips
) -> Iterator[tuple[dict[str, Any], FoldSpec]]:
    """Yield configuration and fold of everything that is asked for, composed before any data set is loaded."""
    names = Names(tuple(folders))
    names.make_importable()
    configs = [compose(job, names) for job in expand(overrides, names, multirun=True)]
    for config, spec in [(config, fold_spec(config)) for config in configs]:
        maker = shelf.maker(config["data"])
        try:
            specs = maker.expand(spec)
        except UnsupportedError as error:
            skips.add(f"{maker.data.name} {spec.name}", error)
            continue
        for one in specs:
            yield config, one


def _taken(
    arguments: Sequence[str], command: str, overriding: Sequence[str] = ()
) -> tuple[list[str], dict[str, str], list[Path]]:
    """Return overrides of the parts named, the command's other options, and folders; refuse what is none of them.

    Passed over, a misspelled option would be taken for said.
    """
    from pertbase.cli import _config_dirs

    rest, folders = _config_dirs(arguments)
    known = options_of(command)
    own: dict[str, str] = {}
    overrides = []
    for text in rest:
        if text in ("-m", "--multirun"):
            continue
        key, value = split_override(text)
        if key.lstrip("+").partition(".")[0] in overriding:
            overrides.append(text)
        elif key in known:
            own[key] = value
        else:
            raise unknown_name("option", key, known)
    return overrides, own, folders


def make(arguments: list[str]) -> int:
    """Make folds, under ``output`` (default ``folds``), and show each."""
    overrides, own, folders = _taken(arguments, "folds make", _MADE)
    shelf, skips, made = DataShelf(), _Skips(), 0
    for config, spec in _specs(overrides, folders, shelf, skips):
        maker = shelf.maker(config["data"])
        try:
            fold = maker.build(spec, own.get("output", "folds"))
        except UnsupportedError as error:
            skips.add(f"{maker.data.name} {spec.name}", error)
            continue
        made += 1
        print(f"{describe(fold)}\nwritten to {fold.folder}\n")
    skips.tell()
    if made + len(skips) > 1:
        print(f"{made} made" + (f", {len(skips)} skipped" if skips else ""))
    return 0


def show(arguments: list[str]) -> int:
    """Show a fold: splits, outcomes, controls, regimes, certificate."""
    _, own, _ = _taken(arguments, "folds show")
    if "fold_dir" not in own:
        raise InputError("is missing", key="fold_dir", remedy="add fold_dir=FOLDER")
    fold = open_fold(own["fold_dir"])
    print(describe(fold))
    if "questions" in own:
        from pertbase.folds import write_questions

        write_questions(fold.questions, own["questions"])
        print(f"questions written to {own['questions']}")
    return 0


def questions(arguments: list[str]) -> int:
    """Write the questions of a split as somebody else would be asked them, without anything of the truth."""
    from pertbase._io import canonical_json, write_aside
    from pertbase.folds import read_truth, write_questions
    from pertbase.folds._mini import mini_of
    from pertbase.folds._shipped_paths import plain_paths
    from pertbase.folds._views import hide

    _, own, _ = _taken(arguments, "folds questions")
    for key in ("fold_dir", "output"):
        if key not in own:
            raise InputError("is missing", key=key, remedy=f"add {key}=...")
    if (ending := Path(own["output"]).suffix) not in _QUESTION_FILES:
        raise InputError(
            f"questions are not written as {ending or 'a file without an ending'}",
            key="output",
            value=own["output"],
            remedy=f"end it in {' or '.join(_QUESTION_FILES)}",
        )
    truth = read_truth(own["fold_dir"], split=own.get("split", "test"), paths=own.get("paths"))
    asked = hide(mini_of(truth.questions, own.get("mini")))
    if Path(own["output"]).suffix == ".csv":
        if "candidate_paths" in asked:
            # A cell holds a text: JSON can be read by others, Python's lists cannot.
            asked["candidate_paths"] = plain_paths(asked["candidate_paths"]).map(canonical_json)
        with write_aside(own["output"]) as temporary:
            asked.to_csv(temporary, index=False)
    else:
        write_questions(asked, own["output"])
    print(f"{len(asked):,} questions written to {own['output']}; add a column outcome: up, down or no_change")
    return 0


def split(arguments: list[str]) -> int:
    """Write a fold's split as cell-load reads it."""
    from pertbase.folds import write_split

    _, own, _ = _taken(arguments, "folds split")
    for key in ("fold_dir", "output"):
        if key not in own:
            raise InputError("is missing", key=key, remedy=f"add {key}=...")
    write_split(open_fold(own["fold_dir"]), own["output"], data_folder=own.get("data_folder", "."))
    print(f"split written to {own['output']}; read it back with fold=published fold.split={own['output']}")
    return 0


def check(arguments: list[str]) -> int:
    """Check a fold, or the folds of a manifest; with ``data=...`` make it again and compare.

    Returns 1 where something is wrong.
    """
    overrides, own, folders = _taken(arguments, "folds check", ("data",))
    if "manifest" in own:
        return _check_manifest(own, overrides, Names(tuple(folders)))
    if "fold_dir" not in own:
        raise InputError(
            "is missing", key="fold_dir", remedy="add fold_dir=FOLDER, or manifest=NAME for those behind a table"
        )
    again = None
    if any(split_override(text)[0] == "data" for text in overrides):
        names = Names(tuple(folders))
        names.make_importable()
        (job,) = expand(overrides, names, multirun=False)
        again = DataShelf().maker(compose(job, names)["data"]).make(open_fold(own["fold_dir"]).spec)
    found = check_fold(own["fold_dir"], again=again)
    for problem in found.problems:
        print(f"problem: {problem}")
    if not found.ok:
        return 1
    print(f"sound: {', '.join(found.checked)}")
    print(repr(found.certificate))
    return 0


def _check_manifest(own: Mapping[str, str], overrides: Sequence[str], names: Names) -> int:
    """Say of each fold of a manifest, made again from its data set or read from a folder, whether it is the same."""
    pinned = Manifest.read(_manifest_path(own["manifest"], names))
    if "fold_dir" in own:
        fold = open_fold(own["fold_dir"])
        named = [item for item in pinned.folds if (item.data_name, item.spec.name) == (fold.data, fold.name)]
        one = pinned.find(fold.hash) or next(iter(named), None)
        if one is None:
            print(f"problem: {fold.name} of {fold.data} is not among the folds of {pinned.title}")
            return 1
        return int(not _told(one, one.differences(fold)))
    names.make_importable()
    shelf, same = DataShelf(), 0
    for one in pinned.folds:
        (job,) = expand([f"data={one.data}", *overrides], names, multirun=False)
        try:
            found = one.differences(shelf.maker(compose(job, names)["data"]).draw(one.spec))
        except PertbaseError as error:
            print(f"not checked: {one.title}: {error}")
            continue
        same += _told(one, found)
    print(f"{pinned.title}: {same} of {len(pinned.folds)} folds are the same")
    return int(same < len(pinned.folds))


def _told(one: PinnedFold, differences: Sequence[str]) -> bool:
    for difference in differences:
        print(f"problem: {one.title}: {difference}")
    if not differences:
        print(f"the same: {one.title}, {one.hash[:12]}")
    return not differences


def _manifest_path(text: str, names: Names) -> Path:
    """Return where a manifest lies: a file of the user's, or one of those that can be named."""
    if Path(text).suffix in (".yaml", ".yml"):
        return Path(text)
    names.check("manifest", text)
    ours = Path(str(resources.files("pertbase.conf")))
    places = [folder / "manifest" / f"{text}.yaml" for folder in (*names.config_dirs, ours)]
    return next(place for place in places if place.is_file())


def manifest(arguments: list[str]) -> int:
    """Write a manifest of folds, ``output=FILE.yaml``: what ``folds check manifest=FILE.yaml`` holds others against."""
    overrides, own, folders = _taken(arguments, "folds manifest", _MADE)
    if "output" not in own:
        raise InputError("is missing", key="output", remedy="add output=FILE.yaml")
    shelf, skips = DataShelf(), _Skips()
    pinned = []
    for config, spec in _specs(overrides, folders, shelf, skips):
        maker = shelf.maker(config["data"])
        try:
            fold = maker.draw(spec)
        except UnsupportedError as error:
            skips.add(f"{maker.data.name} {spec.name}", error)
            continue
        pinned.append(PinnedFold.of(fold, data=config["choices"]["data"]))
    skips.tell()
    if not pinned:
        raise InputError("there is no fold to write down", key="fold", value=" ".join(overrides))
    Manifest(own.get("title") or Path(own["output"]).stem, tuple(pinned)).write(own["output"])
    print(f"{len(pinned)} folds written to {own['output']}")
    return 0


def describe(fold: Fold) -> str:
    """Return a fold as text: its table, regimes, notes and certificate."""
    test = fold.questions.loc[fold.questions["split"] == "test"]
    regimes = test["regime"].replace("", "all").value_counts()
    lines = [
        repr(fold),
        "test questions by regime: " + ", ".join(f"{name} {count:,}" for name, count in regimes.items()),
    ]
    lines += [f"note: {note}" for note in fold.notes]
    if fold.paths is not None:
        lines.append(repr(fold.paths))
        if not fold.paths.found:
            lines.append(
                "warning: no question has a path. Targets and readout genes may be spelled otherwise in the graph: "
                "`pertbase paths show data=... context=... perturbation=... gene=...` says which it lacks"
            )
    lines += fold.certificate.lines()
    if fold.certificate:
        lines.append(f"  where power is {POWER}")
        lines.append(f"  and the ceiling is {LEGEND['replicate ceiling']}")
    if fold.certificate and not fold.certificate["ranks_baselines"]:
        lines.append("what may help:")
        lines += [f"  {item}" for item in remedies(fold.spec, fold.certificate["questions"]["test"])]
    return "\n".join(lines)


def difficulty(arguments: list[str]) -> int:
    """Print how hard the folds of some data sets are, side by side: simulated beside real, never pooled."""
    overrides, own, folders = _taken(arguments, "folds difficulty", _MADE[:3])
    shelf, skips = DataShelf(), _Skips()
    rows = []
    every = ["data=simulated", f"fold={','.join(KINDS)}", *overrides]  # what is typed wins
    for config, spec in _specs(every, folders, shelf, skips):
        maker = shelf.maker(config["data"])
        try:
            fold = maker.build(spec, own["output"]) if "output" in own else maker.make(spec)
        except UnsupportedError as error:
            skips.add(f"{maker.data.name} {spec.name}", error)
            continue
        rows.append(difficulty_row(fold))
    if rows:
        print(pd.DataFrame(rows).to_string(index=False, na_rep="–", float_format="{:.3f}".format))
    skips.tell()
    return 0


def difficulty_row(fold: Fold) -> dict[str, Any]:
    """Return the figures a simulation has to share with real screens."""
    certificate = fold.certificate
    test = certificate["questions"]["test"]
    asked = sum(test[name] for name in OUTCOMES)
    share = {name: test[name] / asked if asked else float("nan") for name in OUTCOMES[:2]}
    ceiling = certificate["ceiling"]
    return {
        "data": marked(fold.data, simulated=fold.simulated),
        "fold": fold.name,
        "questions": asked,
        **share,
        "gene prior": certificate["priors"]["gene_prior"],
        "balanced prior": certificate["priors"]["gene_prior_balanced"],
        "ceiling": ceiling["corrected"] if ceiling else float("nan"),
        "ranks": "yes" if certificate["ranks_baselines"] else "no",
    }
