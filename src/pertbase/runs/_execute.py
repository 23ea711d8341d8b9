"""One run: fold, fit, predict, answer, score, in a folder that is whole or can be taken up again."""

from __future__ import annotations

import datetime
import logging
import platform
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from pertbase._io import write_json
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds import Answers, Effects, Fold, FoldMaker, Inputs, Training
from pertbase.folds._reasons import write_reasons
from pertbase.runs._guard import ForeignError, first_line, guarded
from pertbase.runs._located import located
from pertbase.runs._parameters import check_parameters
from pertbase.runs._plan import DataShelf, Plan
from pertbase.runs._reports._reasons import Knowledge, score_reasons, write_reason_records
from pertbase.runs._reports._shown import SHOWN, Shown, write_shown
from pertbase.runs._store import FOLDS, Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Outcome", "execute", "instantiate"]

State = Literal["done", "already", "skipped", "failed"]
_VERSIONS = ("pertbase", "numpy", "scipy", "pandas", "anndata", "scikit-learn", "hydra-core")
_TRAINING_VERSIONS = ("torch", "torch-geometric", "lightning")
_log = logging.getLogger("pertbase")


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Parameters
    ----------
    what
        Data, fold, name and seed.
    state
        ``done``, ``already`` (complete before), ``skipped`` or ``failed``.
    reason
        Why it was skipped or failed.
    seconds
        Wall-clock time.
    """

    what: str
    state: State
    reason: str = ""
    seconds: float = 0.0


def execute(
    plan: Plan,
    shelf: DataShelf,
    *,
    begun: Callable[[str], None] = lambda what: None,
    preparing: Callable[[str], None] = lambda what: None,
) -> Outcome:
    """Run a plan, or take it up again, and return how it ended. Failures are recorded, not raised.

    ``begun`` is told of a run that trains when it begins, ``preparing`` of a fold that has to be made first: both take
    long.
    """
    started, what = time.monotonic(), str(plan)
    try:
        maker = shelf.maker(plan.config["data"])
        what = plan.told(maker.data.name)
        run = plan.run(maker.data.name)
        # Before anything is written: two screens of one name would be taken for one another.
        run.refuse_another_screen(plan.config["data"], maker.data.name, maker.data.hash)
        # Looked at before the folder is made: a run that is skipped leaves nothing behind.
        root = plan.runs / FOLDS
        if not any(root.glob(f"*-{maker.hash(plan.spec)[:12]}/fold.yaml")):
            preparing(f"making fold {plan.spec.name} of {maker.data.name}")
        fold = maker.build(plan.spec, root)
        baseline = instantiate(plan.config["baseline"], "baseline", file=plan.file)
        reason = guarded(lambda: _cannot(baseline, fold))
        if reason:
            return Outcome(what, "skipped", reason)
        try:
            trainer = guarded(lambda: _workspace(baseline, run, plan))
        except PertbaseError:
            # What it was made of, such as the model it began with, is gone: a run that is complete does not want it.
            if run.holds(_record(plan, maker, fold, baseline, run.trained_with)):
                return Outcome(what, "already")
            raise
        with run.lock():
            if not run.claim(_record(plan, maker, fold, baseline, trainer)):
                return Outcome(what, "already")
            if hasattr(baseline, "workspace"):
                begun(what)
            state, reason = _attempt(run, plan, fold, baseline)
        return Outcome(what, state, reason, time.monotonic() - started)
    except UnsupportedError as error:
        return Outcome(what, "skipped", str(error))
    except (PertbaseError, ForeignError) as error:
        return Outcome(what, "failed", str(error), time.monotonic() - started)
    except OSError as error:
        told = PertbaseError(
            f"runs cannot be kept here ({error.strerror or error})",
            file=plan.runs,
            key="runs",
            remedy="choose another folder, runs=FOLDER",
        )
        return Outcome(what, "failed", str(told), time.monotonic() - started)


def _attempt(run: Run, plan: Plan, fold: Fold, baseline: Any) -> tuple[State, str]:
    """Carry a run out, and return how it ended and why; its folder, which is this process's now, says so too."""
    try:
        guarded(lambda: _carry_out(run, plan, fold, baseline))
    except UnsupportedError as error:
        # It only turned out while fitting; the same command tries again.
        _note(run, "skipped", reason=str(error))
        return "skipped", str(error)
    except PertbaseError as error:
        _note(run, "failed", text=str(error), finished=_now())
        return "failed", str(error)
    except ForeignError as error:
        text = "".join(traceback.format_exception(error.__cause__))
        noted = _note(run, "failed", text=text, finished=_now())
        return "failed", f"{error} (see error.txt)" if noted else str(error)
    return "done", ""


def _note(run: Run, state: str, *, text: str = "", **about: Any) -> bool:
    """Write how a run ended into its folder, and return whether that worked: the disk may be full."""
    try:
        if text:
            run.fail(text)
        run.mark(state, **about)
    except PertbaseError:
        return False
    return True


def _workspace(baseline: Any, run: Run, plan: Plan) -> Mapping[str, Any]:
    """Tell a baseline that trains, or asks, where and how, and return what of that its predictions depend on."""
    if not hasattr(baseline, "workspace"):
        return {}
    groups = getattr(baseline, "settings_group", "trainer")
    settings = [plan.config.get(group) or {} for group in ([groups] if isinstance(groups, str) else groups)]
    numbers: Mapping[str, Any] = baseline.workspace(run.folder, *settings)
    return numbers


def _record(plan: Plan, maker: FoldMaker, fold: Fold, baseline: Any, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies the run: all that its scores depend on, and no path of this machine but in options."""
    # Only where options name some: the others are what they were.
    files = guarded(lambda: dict(baseline.file_hashes()))
    return {
        "data": plan.config["data"],
        "data_name": maker.data.name,
        "data_hash": maker.data.hash,
        "fold": plan.spec.to_dict(),
        "fold_name": plan.spec.name,
        "fold_hash": fold.hash,
        "fold_folder": fold.folder.name if fold.folder else "",
        **({} if fold.paths is None else {"paths_hash": fold.paths.hash}),
        "baseline_name": plan.baseline,
        "baseline": plan.config["baseline"],
        **({"files": files} if files else {}),
        "adapters": plan.config["adapters"],
        "seed": plan.seed,
        "name": plan.name,
        # only where a baseline trains: the others are the same whatever they run on
        **({"trainer": dict(trainer)} if trainer else {}),
        **({"cells": True} if plan.config.get("cells") else {}),
    }


def instantiate(config: Mapping[str, Any], what: str, *, file: str | None = None) -> Any:
    """Return the object a configuration with ``_target_`` describes; ``file`` is where it stands, for errors.

    Raises
    ------
    InputError
        Where it cannot be imported, a value is not of its parameter's type, or it refuses its parameters.
    """
    from hydra.errors import HydraException
    from hydra.utils import instantiate as hydra_instantiate

    if not isinstance(config, Mapping) or "_target_" not in config:
        raise InputError(f"a {what} is described by the class in _target_", key=f"{what}._target_", value=config)
    if isinstance(config["_target_"], str):
        located(config["_target_"], f"{what}._target_", file=file)
    check_parameters(config, what)
    try:
        # plain lists and dictionaries, which a baseline can keep and write down
        return hydra_instantiate(dict(config), _convert_="all")
    except HydraException as error:
        cause = error.__cause__ or error
        if isinstance(cause, PertbaseError):
            raise cause from error
        raise InputError(
            f"cannot be made: {type(cause).__name__}: {first_line(cause)}",
            file=file,
            key=f"{what}._target_",
            value=config["_target_"],
            remedy="check the parameters",
        ) from error


def _cannot(baseline: Any, fold: Fold) -> str | None:
    """Return why a baseline cannot run on a fold, or None."""
    from pertbase.baselines import Baseline
    from pertbase.baselines.base import refusal

    if not isinstance(baseline, Baseline):
        raise InputError(
            "is not a baseline",
            key="baseline._target_",
            value=type(baseline).__name__,
            remedy="derive it from pertbase.ExpressionBaseline or pertbase.AnswerBaseline",
        )
    return refusal(baseline, fold.make_training(seed=0, cells=False))


def _carry_out(run: Run, plan: Plan, fold: Fold, baseline: Any) -> None:
    from pertbase.adapters import held_out
    from pertbase.scorers import expression, outcome

    run.mark("running", started=_now())
    (run.folder / "error.txt").unlink(missing_ok=True)
    cells = baseline.needs_cells and fold.screen is not None
    training = fold.make_training(seed=plan.seed, cells=cells)
    inputs = fold.inputs("test", cells=cells)
    adapters = {name: instantiate(config, f"adapters.{name}") for name, config in plan.config["adapters"].items()}
    # A baseline that writes into what it is given changes nothing that adapters are fitted on or answer.
    given = _predict(baseline, training.own(), inputs.own())
    if isinstance(given, Answers):
        given.to(inputs.questions)  # answers to something else are refused before adapters are fitted
    kept = held_out(baseline, training)
    if isinstance(given, Effects):
        given.write(run.folder / "effects.h5ad")
    if plan.config.get("cells"):
        _keep_cells(run, baseline, inputs)
    reasons = _write_reasons(run, given)
    shown = baseline.shown(inputs) if hasattr(baseline, "shown") else None
    if shown is not None:
        write_shown(shown, run.folder / SHOWN)
    able = reasons is not None and "reference_paths" in fold.truth.questions.columns
    knowledge = Knowledge.of_fold(fold) if able else None
    scores: dict[str, Any] = {}
    for name, adapter in adapters.items():
        adapter.fit(training, baseline, held_out=kept)
        try:
            answers = adapter.answer(inputs, given, cells=_predicted_cells(baseline, adapter, inputs))
        except UnsupportedError as error:
            # One adapter that does not fit this baseline; the others do.
            scores[name] = {"skipped": str(error)}
            continue
        # The reasons are the baseline's, whatever an adapter makes of its scores.
        answers = replace(answers, reasons=None, _checked=True)
        answers.write(run.folder / "answers" / f"{name}.parquet")
        scores[name] = {**outcome(answers, fold.truth).to_dict(), "adapter": adapter.describe()}
        if knowledge is not None:
            reasoned = replace(answers, reasons=reasons, _checked=True)
            scores[name] |= _reasoned(run, name, reasoned, fold, knowledge, shown)
    whole: dict[str, Any] = {"fold_hash": fold.hash, "simulated": fold.simulated, "adapters": scores}
    if isinstance(given, Effects) and fold.truth.effects is not None:
        whole["expression"] = expression(given, fold.truth).to_dict()
    write_json(run.folder / "scores.json", whole)
    # Last: a run is complete when everything else is written.
    run.mark("complete", finished=_now(), **_provenance(baseline))


def _reasoned(
    run: Run, name: str, answers: Answers, fold: Fold, knowledge: Knowledge, shown: Shown | None
) -> dict[str, Any]:
    """Return the scores of the reasons of one adapter's answers, and write those of every question."""
    found = score_reasons(answers, fold.truth, knowledge, shown=shown)
    if found is None:
        return {}
    write_reason_records(found.records, run.folder / "reasoning" / f"{name}.parquet")
    return {"reasoning": {**found.to_dict(), "knowledge": knowledge.describe()}}


def _write_reasons(run: Run, given: Effects | Answers) -> pd.DataFrame | None:
    """Write and return the reasons of answers: one file beside those of all adapters."""
    path = run.folder / "answers" / "reasons.parquet"
    reasons = given.reasons if isinstance(given, Answers) else None
    if reasons is None:
        path.unlink(missing_ok=True)
    else:
        write_reasons(reasons, path)
    return reasons


def _keep_cells(run: Run, baseline: Any, inputs: Inputs) -> None:
    """Write the cells that a baseline predicts from all input controls, one condition after another."""
    from pertbase.folds import write_cells

    if not hasattr(baseline, "predict_cells"):
        raise UnsupportedError(f"{type(baseline).__name__} predicts no cells to keep", remedy="leave out cells=true")
    write_cells(baseline.predict_cells(inputs.own()), run.folder / "cells.zarr", genes=inputs.genes)


def _predict(baseline: Any, training: Training, inputs: Any) -> Effects | Answers:
    baseline.fit(training)
    given = baseline.answer(inputs) if baseline.answers_directly(training) else baseline.predict(inputs)
    if not isinstance(given, (Effects, Answers)):
        raise InputError(
            "returned something else than Effects or Answers",
            key="baseline",
            value=type(given).__name__,
            remedy="predict() returns pertbase.Effects, answer() returns pertbase.Answers",
        )
    return given


def _predicted_cells(baseline: Any, adapter: Any, inputs: Any) -> Any:
    if not adapter.needs_cells:
        return None
    if not hasattr(baseline, "predict_cells"):
        raise UnsupportedError(f"{type(baseline).__name__} answers questions, and predicts no cells")
    return baseline.predict_cells(adapter.visible(inputs.own()))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _provenance(baseline: Any) -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    packages = getattr(baseline, "packages", _TRAINING_VERSIONS if hasattr(baseline, "workspace") else ())
    for name in (*_VERSIONS, *packages):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": getattr(baseline, "device", "cpu"),
        **({"speaks_of": baseline.speaks_of} if baseline.speaks_of else {}),
        # what a language model was asked, and what that took
        **({"asked": baseline.account()} if hasattr(baseline, "account") else {}),
    }
