"""``pertbase score`` and ``pertbase effects``: predictions that were made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pertbase._io import write_json
from pertbase.adapters import Fixed, HeldOut, held_out
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import (
    Answers,
    Effects,
    Fold,
    Inputs,
    Screen,
    Training,
    Truth,
    open_fold,
    read_answers,
    read_predictions,
    read_truth,
)
from pertbase.folds._mini import mini_of
from pertbase.runs._commands._help import options_of
from pertbase.runs._compose import compose, expand, split_override
from pertbase.runs._execute import instantiate
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf
from pertbase.runs._reports._reasons import score_given

if TYPE_CHECKING:
    from pertbase.scorers import OutcomeScores

__all__ = ["effects", "score"]

_SPLITS = ("train", "val", "test")
_MOSTLY = 0.5
"""From this share of questions without an answer on, that is what the scores are about."""
_ONLY_EFFECTS = ("adapter", "threshold", "answers_output", "cell_eval", "distances")
_ONLY_ANSWERS = ("paths", "graph", "gene_sets", "names", "preset", "records", "mini")


def effects(arguments: Sequence[str]) -> int:
    """Turn a table of predicted effects into ``effects.h5ad``."""
    from pertbase.cli import _options

    given = _options(arguments, options_of("effects"), ("input", "output"))
    source, output = given.pop("input"), given.pop("output")
    made = read_predictions(source, **given)
    made.write(output)
    print(f"{made!r}\nwritten to {output}")
    return 0


def score(arguments: Sequence[str], config_dirs: Sequence[Path] = ()) -> int:
    """Score answers, or effects and the answers an adapter makes of them, against a fold."""
    options, overrides = _parsed(arguments)
    splits = tuple(options.get("split", "test").split(","))
    for split in splits:
        if split not in _SPLITS:
            raise unknown_name("split", split, _SPLITS)
    names = Names(tuple(config_dirs))
    beside = [name for name in options.get("beside", "").split(",") if name]
    for name in beside:
        names.check("baseline", name)
    screen = _screen(overrides, names) if overrides else None
    if "answers" in options:
        return _score_answers(options, splits, names, beside, screen)
    fold = open_fold(options["fold_dir"], screen=screen)
    return _score_effects(options, fold, splits, names, beside)


def _parsed(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return our own options, and those of the data set (``data=NAME``, ``data.KEY=VALUE``)."""
    options: dict[str, str] = {}
    overrides = []
    for text in arguments:
        key, value = split_override(text)
        if key == "data" or key.startswith("data."):
            overrides.append(text)
        elif key not in options_of("score"):
            raise unknown_name("option", key, options_of("score"))
        else:
            options[key] = value
    if not options.get("fold_dir"):
        raise InputError("is missing", key="fold_dir", remedy="add fold_dir=FOLDER")
    if ("answers" in options) == ("effects" in options):
        raise InputError(
            "says what is scored", key="answers", remedy="give either answers=FILE or effects=FILE, and not both"
        )
    for given, only in (("answers", _ONLY_EFFECTS), ("effects", _ONLY_ANSWERS)):
        for key in only:
            if key in options and given in options:
                other = "effects" if given == "answers" else "answers"
                raise InputError(f"goes with {other}=FILE", key=key, value=options[key])
    if ("cell_eval" in options or "distances" in options) and not overrides:
        raise InputError(
            "needs the cells of the screen",
            key="cell_eval" if "cell_eval" in options else "distances",
            remedy="add data=NAME, the data set that the fold was made from",
        )
    return options, overrides


def _screen(overrides: Sequence[str], names: Names) -> Screen:
    names.make_importable()
    (job,) = expand(overrides, names, multirun=False)
    data = DataShelf().maker(compose(job, names)["data"]).data
    if not isinstance(data, Screen):
        raise InputError("holds no cells", key="data", value=data.name)
    return data


def _score_answers(
    options: Mapping[str, str], splits: tuple[str, ...], names: Names, beside: Sequence[str], screen: Screen | None
) -> int:
    from pertbase.scorers import outcome

    whole = read_truth(options["fold_dir"], split=splits, paths=options.get("paths"))
    truth = replace(whole, questions=mini_of(whole.questions, options["mini"])) if "mini" in options else whole
    answers = _among(read_answers(options["answers"], questions=whole.questions), whole, truth)
    scores = outcome(answers, truth)
    if scores.n_without_outcome > scores.n * _MOSTLY:
        print(_unanswered(scores, options["answers"]))
    print(scores)
    rows = {Path(options["answers"]).stem: answers}
    if beside:
        fold = open_fold(options["fold_dir"])
        made = {name: _Baseline(fold, names, name, splits).answers(None) for name in beside}
        rows |= {name: _among(item, whole, truth) for name, item in made.items()}
    _print_beside(rows, truth, splits if beside else ())
    reasons = score_given(answers, truth, options, None if screen is None else screen.gene_sets)
    if "output" in options:
        write_json(options["output"], scores.to_dict() | ({} if reasons is None else {"reasoning": reasons}))
    return 0


def _among(answers: Answers, whole: Truth, part: Truth) -> Answers:
    """Return the answers to a part of the questions; all, so that strange ones are seen, where it is the whole."""
    if part is whole:
        return answers
    answers.to(whole.questions)
    ids = part.questions["id"]
    reasons = answers.reasons
    return Answers(
        answers.table.loc[answers.table["id"].isin(ids)].reset_index(drop=True),
        None if reasons is None else reasons.loc[reasons["id"].isin(ids)].reset_index(drop=True),
        answers.file,
    )


def _unanswered(scores: OutcomeScores, file: str) -> str:
    """Return what the scores are about first of all, where most questions have no answer."""
    without, missing = scores.n_without_outcome, scores.n_missing
    return (
        f"{without / scores.n:.1%} of the questions have no answer and count as wrong: of {scores.n:,}, {missing:,} "
        f"are not in {file}, and {without - missing:,} are there without an outcome\n"
    )


def _score_effects(
    options: Mapping[str, str], fold: Fold, splits: tuple[str, ...], names: Names, beside: Sequence[str]
) -> int:
    from pertbase.scorers import expression, outcome

    given = _given(options["effects"])
    truth = fold.truth_of(*splits)
    threshold = _threshold(options)
    found = expression(given, truth, threshold=threshold) if truth_has_effects(truth) else None
    adapters = _adapters(options.get("adapter", "fixed").split(","), names, threshold)
    training = fold.make_training(seed=0, cells=False)
    asked = _asked(fold, training, splits)
    held = _held_out(given, training)
    scores: dict[str, Any] = {}
    rows: dict[str, Answers] = {}
    for name, adapter in adapters.items():
        adapter.fit(training, held_out=held)
        answers = _joined([adapter.answer(inputs, given) for inputs in asked])
        result = outcome(answers, truth)
        print(f"adapter {name}: {adapter.describe()}\n{result}\n")
        rows[f"{Path(options['effects']).stem} ({name})"] = answers
        scores[name] = {**result.to_dict(), "adapter": adapter.describe()}
    if held.how == "val" and any(adapter.needs_held_out for adapter in adapters.values()):
        print("note: thresholds are fitted on val as predicted here: held out only if the model never saw val\n")
    if found is not None:
        print(f"{found}\n")
    first = next(iter(adapters.values()))
    rows |= {name: _Baseline(fold, names, name, splits).answers(first) for name in beside}
    _print_beside(rows, truth, splits if beside else ())
    if "answers_output" in options:
        next(iter(rows.values())).write(options["answers_output"])
    if "output" in options:
        whole = {"fold_hash": fold.hash, "simulated": fold.simulated, "adapters": scores}
        write_json(options["output"], whole | ({"expression": found.to_dict()} if found is not None else {}))
    _cells(options, given, fold, threshold)
    return 0


def _given(path: str) -> Effects:
    if Path(path).suffix in (".csv", ".tsv", ".parquet"):
        raise InputError(
            "is a table, not yet effects",
            file=path,
            key="effects",
            remedy=f"run `pertbase effects input={path} output=effects.h5ad ...` first, and score effects=effects.h5ad",
        )
    return Effects.read(path)


def truth_has_effects(truth: Truth) -> bool:
    """Return whether there is anything that predicted effects can be compared with."""
    return truth.effects is not None or bool(truth.questions["effect"].notna().any())


def _threshold(options: Mapping[str, str]) -> float:
    text = options.get("threshold", str(Fixed().threshold))
    try:
        return float(text)
    except ValueError as error:
        raise InputError("is a number, natural log", key="threshold", value=text) from error


def _adapters(wanted: Sequence[str], names: Names, threshold: float) -> dict[str, Any]:
    known = compose([], names)["adapters"]
    for name in wanted:
        if name not in known:
            raise unknown_name("adapter", name, known)
    made = {}
    for name in wanted:
        config = dict(known[name])
        made[name] = instantiate(config | ({"threshold": threshold} if "threshold" in config else {}), "adapter")
    return made


def _asked(fold: Fold, training: Training, splits: Sequence[str]) -> list[Inputs]:
    return [fold.inputs("test", cells=False) if split == "test" else training.inputs(split) for split in splits]


def _joined(answers: Sequence[Answers]) -> Answers:
    return Answers(pd.concat([item.table for item in answers], ignore_index=True))


@dataclass(frozen=True)
class _Given:
    """Effects in the place of the model that made them: adapters are fitted to what they say of val."""

    effects: Effects
    refit: bool = False
    needs_cells: bool = False

    def fit(self, training: Training) -> None:
        """Do nothing: it was fitted elsewhere."""

    def answers_directly(self, training: Training) -> bool:
        """Return False: these are effects."""
        return False

    def predict(self, inputs: Inputs) -> Effects:
        """Return what was given."""
        return self.effects


def _held_out(given: Effects, training: Training) -> HeldOut:
    """Return what the effects say of val; nothing where they do not cover it."""
    found = held_out(_Given(given), training)
    if found.how != "none":
        return found
    return replace(found, reason="the effects given and val do not share 30 questions of each outcome")


class _Baseline:
    """One of our baselines, fitted on the fold's training, to stand beside."""

    def __init__(self, fold: Fold, names: Names, name: str, splits: Sequence[str]) -> None:
        from pertbase.baselines.base import refusal

        names.make_importable()
        self._model = instantiate(compose([f"baseline={name}"], names)["baseline"], "baseline")
        self._training = fold.make_training(seed=0, cells=False)
        self._asked = _asked(fold, self._training, splits)
        if reason := refusal(self._model, self._training):
            raise UnsupportedError(f"{name} cannot stand beside: {reason}")

    def answers(self, adapter: Any) -> Answers:
        """Return its answers; those of an expression baseline by the adapter, fitted to it."""
        model, training = self._model, self._training
        model.fit(training)
        if model.answers_directly(training):
            return _joined([model.answer(inputs) for inputs in self._asked])
        if adapter is None:
            raise UnsupportedError(f"{type(model).__name__} predicts effects, and stands beside effects only")
        adapter.fit(training, model)
        return _joined([adapter.answer(inputs, model.predict(inputs)) for inputs in self._asked])


def _print_beside(rows: Mapping[str, Answers], truth: Truth, fitted_on: Sequence[str]) -> None:
    """Print balanced accuracy and accuracy by regime, one column a row of answers; nothing for a single stratum."""
    from pertbase.scorers import outcome

    scores = {name: outcome(answers, truth) for name, answers in rows.items()}
    first = next(iter(scores.values()))
    if len(rows) == 1 and len(first.by_regime) < 2:
        return
    counts = first.by_regime[["n", "n_up", "n_down", "n_no_change"]]
    total = pd.DataFrame([counts.sum()], index=["all"])
    for measure in ("balanced_accuracy", "accuracy"):
        table = pd.concat([total, counts]).astype(int)
        for name, item in scores.items():
            table[name] = [getattr(item, measure).value, *item.by_regime[measure]]
        table.index = [name or "(none)" for name in table.index]
        told = table.to_string(float_format="{:.3f}".format, na_rep="–")
        print(f"{measure.replace('_', ' ')} by regime\n{told}\n")
    seen = [split for split in fitted_on if split != "test"]
    if seen:
        print(f"note: our baselines were fitted on {' and '.join(seen)}, and are asked about it here")


def _cells(options: Mapping[str, str], given: Effects, fold: Fold, threshold: float) -> None:
    """Write cell-eval's files and print pertpy's distances, where asked for."""
    if "cell_eval" in options:
        from pertbase.scorers import write_cell_eval
        from pertbase.scorers._cell_eval import COMMAND

        for place in write_cell_eval(given, fold, options["cell_eval"], threshold=threshold):
            print(f"written for cell-eval: cd {place} && {COMMAND}")
    if "distances" in options:
        from pertbase.scorers import distances

        try:
            table = distances(given, fold, names=options["distances"].split(","))
        except UnsupportedError as error:
            print(f"skipped: {error}")
            return
        means = table.groupby("distance")[["predicted", "control"]].mean().to_string(float_format="{:.4f}".format)
        print(f"pertpy's distances to the real cells, mean over conditions\n{means}")
