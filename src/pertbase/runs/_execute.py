"""One run: fold, fit, predict, answer, score, in a folder that is whole or can be taken up again."""

from __future__ import annotations

import datetime
import logging
import platform
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

from pertbase._io import write_json
from pertbase.errors import InputError, PertbaseError, UnsupportedError
from pertbase.folds import Answers, Effects, Fold, FoldMaker, Training
from pertbase.runs._guard import ForeignError, first_line, guarded
from pertbase.runs._plan import DataShelf, Plan
from pertbase.runs._store import FOLDS, Run

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


def execute(plan: Plan, shelf: DataShelf) -> Outcome:
    """Run a plan, or take it up again, and return how it ended. Failures are recorded, not raised."""
    started = time.monotonic()
    try:
        maker = shelf.maker(plan.config["data"])
        run = plan.run(maker.data.name)
        # Looked at before the folder is made: a run that is skipped leaves nothing behind.
        fold = maker.build(plan.spec, plan.runs / FOLDS)
        baseline = instantiate(plan.config["baseline"], "baseline")
        reason = guarded(lambda: _cannot(baseline, fold))
        if reason:
            return Outcome(str(plan), "skipped", reason)
        trainer = guarded(lambda: _workspace(baseline, run, plan))
        with run.lock():
            if not run.claim(_record(plan, maker, fold, trainer)):
                return Outcome(str(plan), "already")
            state, reason = _attempt(run, plan, fold, baseline)
        return Outcome(str(plan), state, reason, time.monotonic() - started)
    except UnsupportedError as error:
        return Outcome(str(plan), "skipped", str(error))
    except (PertbaseError, ForeignError) as error:
        return Outcome(str(plan), "failed", str(error), time.monotonic() - started)


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
    """Tell a baseline that trains where and how, and return what of that its predictions depend on."""
    if not hasattr(baseline, "workspace"):
        return {}
    numbers: Mapping[str, Any] = baseline.workspace(run.folder, plan.config.get("trainer") or {})
    return numbers


def _record(plan: Plan, maker: FoldMaker, fold: Fold, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies the run: all that its scores depend on, and no path of this machine."""
    return {
        "data": plan.config["data"],
        "data_name": maker.data.name,
        "data_hash": maker.data.hash,
        "fold": plan.spec.to_dict(),
        "fold_name": plan.spec.name,
        "fold_hash": fold.hash,
        "fold_folder": fold.folder.name if fold.folder else "",
        "baseline_name": plan.baseline,
        "baseline": plan.config["baseline"],
        "adapters": plan.config["adapters"],
        "seed": plan.seed,
        "name": plan.name,
        # only where a baseline trains: the others are the same whatever they run on
        **({"trainer": dict(trainer)} if trainer else {}),
    }


def instantiate(config: Mapping[str, Any], what: str) -> Any:
    """Return the object a configuration with ``_target_`` describes.

    Raises
    ------
    InputError
        Where it cannot be imported or refuses its parameters.
    """
    from hydra.errors import HydraException
    from hydra.utils import instantiate as hydra_instantiate

    if not isinstance(config, Mapping) or "_target_" not in config:
        raise InputError(f"a {what} is described by the class in _target_", key=f"{what}._target_", value=config)
    try:
        # plain lists and dictionaries, which a baseline can keep and write down
        return hydra_instantiate(dict(config), _convert_="all")
    except HydraException as error:
        cause = error.__cause__ or error
        if isinstance(cause, PertbaseError):
            raise cause from error
        raise InputError(
            f"cannot be made: {first_line(cause)}",
            key=f"{what}._target_",
            value=config["_target_"],
            remedy="check the name and the parameters; packages are looked for beside --config-dir, in the working "
            "directory and among what is installed",
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
    scores: dict[str, Any] = {}
    for name, adapter in adapters.items():
        adapter.fit(training, baseline, held_out=kept)
        try:
            predicted = _predicted_cells(baseline, adapter, inputs)
        except UnsupportedError as error:
            # One adapter that does not fit this baseline; the others do.
            scores[name] = {"skipped": str(error)}
            continue
        answers = adapter.answer(inputs, given, cells=predicted)
        answers.write(run.folder / "answers" / f"{name}.parquet")
        scores[name] = {**outcome(answers, fold.truth).to_dict(), "adapter": adapter.describe()}
    whole: dict[str, Any] = {"fold_hash": fold.hash, "simulated": fold.simulated, "adapters": scores}
    if isinstance(given, Effects) and fold.truth.effects is not None:
        whole["expression"] = expression(given, fold.truth).to_dict()
    write_json(run.folder / "scores.json", whole)
    # Last: a run is complete when everything else is written.
    run.mark("complete", finished=_now(), **_provenance(baseline))


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
    for name in (*_VERSIONS, *(_TRAINING_VERSIONS if hasattr(baseline, "workspace") else ())):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": getattr(baseline, "device", "cpu"),
    }
