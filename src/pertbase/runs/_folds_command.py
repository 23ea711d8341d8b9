"""``pertbase folds``: make, show, check, difficulty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import KINDS, OUTCOMES, Fold, FoldSpec, check_fold, open_fold
from pertbase.runs._compose import compose, expand, split_override
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf
from pertbase.runs._report import marked

__all__ = ["check", "difficulty", "make", "questions", "show"]


def _specs(
    overrides: Sequence[str], folders: Sequence[Path], shelf: DataShelf
) -> Iterator[tuple[dict[str, Any], FoldSpec]]:
    names = Names(tuple(folders))
    names.make_importable()
    for job in expand(overrides, names, multirun=True):
        config = compose(job, names)
        maker = shelf.maker(config["data"])
        try:
            specs = maker.expand(FoldSpec.from_dict(config["fold"]))
        except UnsupportedError as error:
            print(f"skipped: {error}")
            continue
        for spec in specs:
            yield config, spec


def _taken(arguments: Sequence[str], keys: Sequence[str]) -> tuple[list[str], dict[str, str], list[Path]]:
    from pertbase.cli import _config_dirs

    rest, folders = _config_dirs(arguments)
    own: dict[str, str] = {}
    overrides = []
    for text in rest:
        if text in ("-m", "--multirun"):
            continue
        key, value = split_override(text)
        if key in keys:
            own[key] = value
        else:
            overrides.append(text)
    return overrides, own, folders


def make(arguments: list[str]) -> int:
    """Make folds, under ``output`` (default ``folds``), and show each."""
    overrides, own, folders = _taken(arguments, ("output",))
    shelf = DataShelf()
    for config, spec in _specs(overrides, folders, shelf):
        try:
            fold = shelf.maker(config["data"]).build(spec, own.get("output", "folds"))
        except UnsupportedError as error:
            print(f"skipped: {error}")
            continue
        print(f"{describe(fold)}\nwritten to {fold.folder}\n")
    return 0


def show(arguments: list[str]) -> int:
    """Show a fold: splits, outcomes, controls, regimes, certificate."""
    _, own, _ = _taken(arguments, ("fold_dir", "questions"))
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
    from pertbase._io import write_aside
    from pertbase.folds import read_truth, write_questions
    from pertbase.folds._views import hide

    _, own, _ = _taken(arguments, ("fold_dir", "output", "split"))
    for key in ("fold_dir", "output"):
        if key not in own:
            raise InputError("is missing", key=key, remedy=f"add {key}=...")
    asked = hide(read_truth(own["fold_dir"], split=own.get("split", "test")).questions)
    if Path(own["output"]).suffix == ".csv":
        with write_aside(own["output"]) as temporary:
            asked.to_csv(temporary, index=False)
    else:
        write_questions(asked, own["output"])
    print(f"{len(asked):,} questions written to {own['output']}; add a column outcome: up, down or no_change")
    return 0


def check(arguments: list[str]) -> int:
    """Check a fold; with ``data=...`` make it again and compare. Returns 1 where something is wrong."""
    overrides, own, folders = _taken(arguments, ("fold_dir",))
    if "fold_dir" not in own:
        raise InputError("is missing", key="fold_dir", remedy="add fold_dir=FOLDER")
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
    print("\n".join(certificate_lines(found.certificate)))
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
    return "\n".join([*lines, *certificate_lines(fold.certificate)])


def certificate_lines(certificate: Any) -> list[str]:
    """Return a certificate as lines of text."""
    if not certificate:
        return ["no certificate"]
    ceiling = certificate["ceiling"]
    calls = certificate["conditions_with_calls"]
    priors = ", ".join(f"{name} {_number(value)}" for name, value in certificate["priors"].items())
    if not certificate["ranks_baselines"]:
        # What rests on a handful of calls is not printed as if it were known.
        priors, ceiling = "not given", None
    return [
        f"certificate: {certificate['verdict']}",
        f"  disjoint: {certificate['disjoint']}",
        f"  conditions with calls: {calls['train']} train, {calls['val']} val, {calls['test']} test",
        f"  balanced accuracy of the priors: {priors}",
        f"  ceiling: {_ceiling(ceiling) if certificate['ranks_baselines'] else 'not given'}",
        f"  power: {_number(certificate['power'])}",
        f"  smallest difference of the two priors it can detect: {_number(certificate['smallest_difference'])}",
    ]


def _ceiling(ceiling: Any) -> str:
    if not ceiling:
        return "none, the data set holds no cells"
    return (
        f"{_number(ceiling['corrected'])} for a replicate of the screen, {_number(ceiling['half'])} between its halves"
    )


def _number(value: float | None) -> str:
    return "none" if value is None or value != value else f"{value:.3f}"


def difficulty(arguments: list[str]) -> int:
    """Print how hard the folds of some data sets are, side by side: simulated beside real, never pooled."""
    overrides, own, folders = _taken(arguments, ("data", "output"))
    shelf = DataShelf()
    rows = []
    for data in own.get("data", "simulated").split(","):
        for kind in KINDS:
            for config, spec in _specs([f"data={data}", f"fold={kind}", *overrides], folders, shelf):
                maker = shelf.maker(config["data"])
                try:
                    fold = maker.build(spec, own["output"]) if "output" in own else maker.make(spec)
                except UnsupportedError:
                    continue
                rows.append(difficulty_row(fold))
    print(pd.DataFrame(rows).to_string(index=False, na_rep="–", float_format="{:.3f}".format))
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
