"""``pertbase prompts``: what a language model is asked, and whether its answers follow it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pertbase.errors import InputError, unknown_name
from pertbase.folds import Inputs, Screen, Training, open_fold
from pertbase.runs._commands._help import options_of
from pertbase.runs._compose import compose, expand, split_override
from pertbase.runs._execute import instantiate
from pertbase.runs._names import Names
from pertbase.runs._plan import DataShelf
from pertbase.runs._reports._section import MISSING, Section, render

__all__ = ["follow", "show", "write"]

_SPLITS = ("val", "test")


def show(arguments: list[str]) -> int:
    """Print the prompts of some questions, as they are sent."""
    own, overrides, names = _parsed(arguments)
    _, training, inputs, model = _ready(own, overrides, names)
    model.prepare(training)
    asked = replace(inputs, questions=inputs.questions.iloc[: _number(own, 3)].reset_index(drop=True))
    records = model.records(asked)
    requests = [*model.reply_requests(records), *model.letter_requests(records[:1])]
    for request in requests:
        replied = request.prompts[0][-1][0] == "assistant"
        letters = "the likelihood of this reply" if replied else "a letter, in the first of its orders"
        what = "a reply" if request.kind == "reply" else letters
        print(f"=== {request.question}, for {what}")
        for role, content in request.prompts[0]:
            print(f"--- {role}\n{content}")
        print()
    return 0


def follow(arguments: list[str]) -> int:
    """Ask questions with an edge flipped or deleted, or the context swapped; print how often answers follow."""
    from pertbase.baselines.llm import follow as asked_so

    own, overrides, names = _parsed(arguments)
    name, training, inputs, model = _ready(own, overrides, names)
    if model.preset not in ("global_path", "cell_path"):
        raise InputError(
            "shows no paths that could be edited", key="baseline.preset", value=model.preset, remedy="use cell_path"
        )
    _fitted(model, training, own, overrides, names)
    found = asked_so(model, inputs, n=_number(own, 50), seed=training.seed)
    columns = {"agreed": "agreed before", "followed": "followed", "moved": "another answer", "score": "score gained"}
    rows = [
        {"edit": one.edit, "questions": f"{one.n:,}"}
        | {name: str(getattr(one, key)) if one.n else MISSING for key, name in columns.items()}
        for one in found
    ]
    notes = [
        "agreed before: the answer is what the paths imply; followed: after the edit it is what they then imply",
        "score gained: by the outcome that is implied after the edit; an answer that ignores paths gains nothing",
    ]
    print(render([Section(f"{name}: do answers follow what is shown", pd.DataFrame(rows), notes)], "terminal"))
    return 0


def write(arguments: list[str]) -> int:
    """Have a model that is told the outcomes of train write reasons for them; write those that hold."""
    from pertbase.baselines.finetuned import synthesise, write_texts

    own, overrides, names = _parsed(arguments)
    output = own.get("output", "")
    if not output.endswith(".jsonl"):
        raise InputError(
            "texts are written as JSONL", key="output", value=output or None, remedy="say output=NAME.jsonl"
        )
    name, training, _, model = _ready(own, overrides, names)
    _fitted(model, training, own, overrides, names)
    found = synthesise(model, training, per_outcome=_number(own, 0) if "n" in own else None)
    write_texts(found, output)
    rows = [{"texts": key, "n": f"{count:,}"} for key, count in found.counts().items()]
    notes = [
        f"{output}: for baseline=sft_reasoned baseline.reasons={output}; others are rejected, with the first reason"
    ]
    print(render([Section(f"{name}: reasons by {model.client.title}", pd.DataFrame(rows), notes)], "terminal"))
    return 0


def _fitted(model: Any, training: Training, own: dict[str, str], overrides: list[str], names: Names) -> None:
    """Get a model ready to be asked. As for a run, responses are kept among the runs, whoever asked."""
    if model.settings_group != "asking":
        raise InputError(
            "is trained in a run, and not here", key="baseline", value=type(model).__name__,
            remedy="ask what its run exported: baseline=llm/qwen3_4b baseline.client.model=RUN/model, with its preset "
            "and template",
        )  # fmt: skip
    folder = Path(own.get("runs", "runs")) / "data" / "fold" / "name" / "seed"
    model.workspace(folder, compose(overrides, names)["asking"])
    model.fit(training)


def _parsed(arguments: list[str]) -> tuple[dict[str, str], list[str], Names]:
    from pertbase.cli import _config_dirs

    rest, folders = _config_dirs(arguments)
    own: dict[str, str] = {}
    overrides = []
    for text in rest:
        key, value = split_override(text)
        if key.partition(".")[0] in ("baseline", "data", "asking"):
            overrides.append(text)
        elif key in options_of("prompts show"):
            own[key] = value
        else:
            raise unknown_name("option", key, options_of("prompts show"))
    for key, given in (("fold_dir", own), ("baseline", dict(map(split_override, overrides)))):
        if not given.get(key):
            raise InputError("is missing", key=key, remedy="write: fold_dir=FOLDER baseline=llm/NAME")
    if own.get("split", "test") not in _SPLITS:
        raise unknown_name("split", own["split"], _SPLITS)
    names = Names(tuple(folders))
    names.make_importable()
    (job,) = expand(overrides, names, multirun=False)
    return own, job, names


def _number(own: dict[str, str], default: int, key: str = "n") -> int:
    given = own.get(key, str(default))
    if not given.isdigit() or (key == "n" and int(given) < 1):
        raise InputError("is a whole number", key=key, value=given)
    return int(given)


def _ready(own: dict[str, str], overrides: list[str], names: Names) -> tuple[str, Training, Inputs, Any]:
    """Return the fold's name, what it hands out, and the model.

    Where no data set is named, paths are found in the graph of those that were laid over the fold.
    """
    from pertbase.baselines.llm import LanguageModel

    config = compose(overrides, names)
    screen = None
    if any(split_override(text)[0] == "data" for text in overrides):
        data = DataShelf().maker(config["data"]).data
        screen = data if isinstance(data, Screen) else None
    fold = open_fold(own["fold_dir"], screen=screen, paths=own.get("paths"))
    training = fold.make_training(seed=_number(own, 0, "seed"), cells=False)
    inputs = fold.inputs(own.get("split", "test"), cells=False)
    if inputs.graph is None and fold.paths is not None:
        training, inputs = replace(training, graph=fold.paths.graph), replace(inputs, graph=fold.paths.graph)
    model = instantiate(config["baseline"], "baseline")
    if not isinstance(model, LanguageModel):
        raise InputError(
            "asks no language model", key="baseline", value=type(model).__name__, remedy="use baseline=llm/NAME"
        )
    if fold.paths is not None:
        model.as_laid(fold.paths.options)
    return fold.name, training, inputs, model
