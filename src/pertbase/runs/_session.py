"""Many runs, one after another: plan all, carry out each, tell the end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pertbase._io import canonical_json
from pertbase.errors import PertbaseError, UnsupportedError
from pertbase.runs._checked import check_options, refuse_one_folder
from pertbase.runs._compose import Composer, expand, split_override
from pertbase.runs._execute import Outcome, execute
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf, Plan, Skip, make_plans, plan_of, told_by_reason

__all__ = ["Session", "run", "run_session", "summary"]

Say = Callable[[str], None]
_TRAINING = logging.getLogger("pertbase.training")


@dataclass(frozen=True, repr=False)
class Session:
    """How runs ended that were asked for together.

    Parameters
    ----------
    outcomes
        In the order they were run.
    """

    outcomes: tuple[Outcome, ...]

    def __repr__(self) -> str:
        return summary(self.outcomes)


def run(
    *overrides: str,
    config_dir: str | Path | Sequence[str | Path] = (),
    dry_run: bool = False,
    say: Say = print,
) -> Session:
    """Run baselines on folds, as the command ``pertbase run -m`` does, and keep the runs in ``runs=FOLDER``.

    A class of a notebook is named ``__main__.CLASS`` in the configuration of its baseline.

    Parameters
    ----------
    overrides
        ``key=value``, with lists and patterns: ``"baseline=additive,no_change"``, ``"fold=glob(*)"``.
    config_dir
        Folders of your own, each with ``baseline/``, ``data/``, ...
    dry_run
        Say what would be run, and stop.
    say
        Takes the lines that tell how it goes.

    Raises
    ------
    InputError
        Where a name, an option or a pattern is wrong: nothing is run then.
    PertbaseError
        Where runs failed; the others are done.
    """
    folders = [config_dir] if isinstance(config_dir, (str, Path)) else config_dir
    outcomes = run_session(
        overrides,
        multirun=True,
        config_dirs=[Path(folder) for folder in folders],
        dry_run=dry_run,
        say=say,
        tell=None if dry_run else say,
    )
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    if failed:
        first = f"{failed[0].what}: {failed[0].reason}".rstrip(".")
        raise PertbaseError(f"{len(failed)} of {len(outcomes)} runs failed, the first of them {first}")
    return Session(tuple(outcomes))


def run_session(
    overrides: Sequence[str],
    *,
    multirun: bool,
    config_dirs: Sequence[Path] = (),
    dry_run: bool = False,
    say: Say = print,
    tell: Say | None = None,
) -> list[Outcome]:
    """Run everything that a command line asks for.

    Parameters
    ----------
    overrides
        ``key=value`` as typed.
    multirun
        Whether lists, ranges and patterns are allowed.
    config_dirs
        Configuration folders of the user's.
    dry_run
        Plan, say what would be run, and stop.
    say
        Takes a line for each run as it ends, and of one that trains as it starts and goes on.
    tell
        Takes lines on what is prepared before there is anything to say of a run: plans, data sets, folds.

    Returns
    -------
    list
        How each run ended, in the order they were run.

    Raises
    ------
    InputError
        Where a name, an option or a pattern is wrong: nothing is run then.
    PertbaseError
        Where none of several jobs can have its data.
    """
    names = Names(tuple(config_dirs))
    names.make_importable()
    tell = tell or _silent
    shelf = DataShelf(tell)
    presets: dict[str, str] = {}
    jobs = expand(overrides, names, multirun=multirun)
    if len(jobs) > 1:
        tell(_planned(jobs))
    composer = Composer(names)
    asked = [plan_of(job, names, presets, composer) for job in jobs]
    # All that a command line can have wrong is said before anything is loaded.
    check_options(asked)
    refuse_one_folder(asked)
    if len(asked) > 1:
        _refuse_without_data(asked, shelf, read=not dry_run)
    plans = make_plans(asked, shelf)
    # Once more: a fold that stands for one of each context may have been named beside one of them.
    refuse_one_folder(plans)
    outcomes: list[Outcome] = []
    prepared: set[str] = set()
    for number, plan in enumerate(plans, start=1):
        if isinstance(plan, Skip):
            outcome = Outcome(plan.what, "failed" if plan.failed else "skipped", plan.reason)
        elif dry_run:
            say(str(plan))
            continue
        else:
            outcome = _executed(plan, shelf, say, tell, f"[{number}/{len(plans)}]", prepared)
        outcomes.append(outcome)
        # What is skipped is told at the end, by reason: a pattern over folds skips hundreds.
        if outcome.state != "skipped" or len(plans) == 1:
            say(_line(outcome, number, len(plans)))
    return outcomes


def _refuse_without_data(asked: Sequence[Plan], shelf: DataShelf, *, read: bool) -> None:
    """Raise what is wrong with the data where no run can have any: it is told once, and not by every run.

    Nothing is read where the runs are only to be listed, but for folds that the data set itself ships.
    """
    first: dict[str, Plan] = {}
    for plan in asked:
        first.setdefault(canonical_json(plan.config["data"]), plan)
    wrong: list[PertbaseError] = []
    for plan in first.values():
        if not read and plan.spec.kind != "published":
            return
        try:
            shelf.maker(plan.config["data"])
        except UnsupportedError:
            return
        except PertbaseError as error:
            wrong.append(error)
        else:
            return
    if wrong:
        raise wrong[0]


def _silent(line: str) -> None:
    """Take a line, and do nothing."""


def _planned(jobs: Sequence[Sequence[str]]) -> str:
    """Return how much is planned: runs, and of how many data sets, folds and baselines where several are named."""
    chosen = [dict(split_override(text) for text in job) for job in jobs]
    named = {group: len({one.get(group) for one in chosen}) for group in ("data", "fold", "baseline")}
    words = {"data": "data sets", "fold": "folds", "baseline": "baselines"}
    several = " x ".join(f"{count:,} {words[group]}" for group, count in named.items() if count > 1)
    return f"planning {len(jobs):,} runs" + (f": {several}" if several else "")


def _executed(plan: Plan, shelf: DataShelf, say: Say, tell: Say, place: str, prepared: set[str]) -> Outcome:
    def preparing(what: str) -> None:
        # A fold that cannot be made is tried for each baseline, each of which says why it is skipped.
        if what not in prepared:
            prepared.add(what)
            tell(f"{place} {what}")

    with _heard(lambda line: say(f"{place}   {line}")):
        return execute(
            plan,
            shelf,
            begun=lambda what: say(f"{place} {what}: started"),
            preparing=preparing,
        )


@contextlib.contextmanager
def _heard(say: Say) -> Iterator[None]:
    """Say what a training logs as it goes on."""
    handler, level = _Sayer(say), _TRAINING.level
    _TRAINING.addHandler(handler)
    _TRAINING.setLevel(logging.INFO)
    try:
        yield
    finally:
        _TRAINING.removeHandler(handler)
        _TRAINING.setLevel(level)


class _Sayer(logging.Handler):
    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Say the message."""
        self._say(record.getMessage())


def _line(outcome: Outcome, number: int, of: int) -> str:
    end = f"{outcome.state} in {outcome.seconds:.1f} s" if outcome.state == "done" else outcome.state
    reason = f": {outcome.reason}" if outcome.reason else ""
    return f"[{number}/{of}] {outcome.what}: {end}{reason}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return how many runs were done, skipped and failed, and the reasons, each once with its runs counted."""
    lines = []
    # Of a single run, its own line has said it.
    for state in ("skipped", "failed") if len(outcomes) > 1 else ():
        ends = ((outcome.what, outcome.reason) for outcome in outcomes if outcome.state == state)
        lines += [f"  {line}" for line in told_by_reason(state, ends)]
    states: list[str] = [outcome.state for outcome in outcomes]
    counts = ", ".join(
        f"{states.count(state)} {word}"
        for state, word in (
            ("done", "done"),
            ("already", "already complete"),
            ("skipped", "skipped"),
            ("failed", "failed"),
        )
        if states.count(state) or state == "done"
    )
    return "\n".join([*lines, counts])
