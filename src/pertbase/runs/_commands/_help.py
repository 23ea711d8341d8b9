"""What every command takes, declared once: commands refuse what is not here, and their ``--help`` shows it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pertbase.errors import unknown_name

__all__ = ["COMMANDS", "Command", "help_text", "options_of"]

_WIDTH = 120
_FLAG = "--config-dir"
_CONFIG_DIR = {
    _FLAG: "FOLDER: a folder of your own with baseline/, data/, ..., beside ours; may be given several times"
}
_FOLD_DIR = {"fold_dir": "the folder of a fold, as `pertbase folds make` or a run wrote it"}
_MADE = {
    "data": "data sets, `pertbase list data`; options of one as data.KEY=VALUE",
    "fold": "folds, `pertbase list folds`; options as fold.KEY=VALUE, fold.seed=1 for example",
    "paths": "own or human: lay candidate and reference paths over the fold; options as paths.KEY=VALUE, paths.hops=2",
    "experiment": "the data sets and folds of an experiment, `pertbase list experiments`",
    "part": "which part of the experiment: cpu (default), gpu, ... or all",
}
_PROMPTS = {
    **_FOLD_DIR,
    "baseline": "a language model, baseline=llm/NAME; options as baseline.KEY=VALUE, baseline.preset=cell_path",
    "n": "how many questions (show: 3, follow: 50, write: all)",
    "split": "test (default) or val",
    "seed": "of what is drawn (default 0)",
    "paths": "which of the paths laid over the fold, by the hash in its folder's name, where there are several",
    "runs": "write and follow: where runs are kept, and with them what models replied (default runs)",
    "output": "write: the file, NAME.jsonl",
    "asking": "how models are asked; options as asking.KEY=VALUE, `pertbase list asking default`",
    "data": "the data set that the fold was made from, where a model needs its cells or graph",
    **_CONFIG_DIR,
}


@dataclass(frozen=True)
class Command:
    """One command: what it does, and what it takes.

    Parameters
    ----------
    about
        One line.
    options
        Option -> one line.
    examples
        Two, as typed.
    usage
        What follows the command's name.
    documented
        The class of options whose docstring declares those that are not in ``options``: module and name.
    """

    about: str
    options: Mapping[str, str]
    examples: Sequence[str]
    usage: str = "OPTION=VALUE ..."
    documented: tuple[str, str] | None = None


COMMANDS: Mapping[str, Command] = {
    "run": Command(
        "run baselines on folds: fit, predict, answer, score; what is there already is not done again",
        {
            "data": "a data set, `pertbase list data`; options as data.KEY=VALUE, data.path=my.h5ad",
            "fold": "a fold, `pertbase list folds`; options as fold.KEY=VALUE, fold.seed=1",
            "baseline": "a baseline, `pertbase list baselines`; options as baseline.KEY=VALUE, which go to those that "
            "have it",
            "adapters": "how effects or scores become outcomes: adapters.NAME.KEY=VALUE, `pertbase list adapters`",
            "paths": "own or human: lay candidate and reference paths beside the questions; paths.KEY=VALUE",
            "trainer": "how deep models are trained: cpu, gpu or ddp; trainer.KEY=VALUE",
            "asking": "how language models are asked: asking.KEY=VALUE, `pertbase list asking default`",
            "seed": "of models that draw numbers (default 0)",
            "name": "of the row in the table (default: the baseline's name)",
            "cells": "true: keep the cells that a model predicts, in cells.zarr",
            "runs": "where runs and their folds are kept (default runs)",
            "experiment": "a list of runs, `pertbase list experiments`; what else is typed is added to each",
            "part": "which part of an experiment: cpu (default), gpu, ... or all",
            "dry_run": "true: list the runs, and stop",
            "-m": "several values, patterns and ranges, in every combination: a,b  'glob(*)'  'range(3)'; --multirun",
            **_CONFIG_DIR,
        },
        (
            "pertbase run data=simulated fold=combinatorial baseline=bilinear_ridge baseline.ridge=1",
            "pertbase run -m data=papalexi baseline='glob(*)' fold='glob(*)'",
        ),
    ),
    "status": Command(
        "list runs: complete, running, interrupted, failed or skipped",
        {"runs": "where runs are kept (default runs)"},
        ("pertbase status", "pertbase status runs=my_runs"),
    ),
    "report": Command(
        "show runs as tables, a page or a picture; compare two; hold an experiment against published figures",
        {
            "runs": "where runs are kept (default runs)",
            "format": "terminal, md, csv, html or svg (default: as output ends, else terminal)",
            "output": "a file, in place of the terminal",
            "compare": "A,B: paired difference of two rows on the same questions",
            "shortcuts": "true or false: what each baseline adds to shortcuts, some seconds a fold (default: in html)",
            "adapter": "which answers the main columns show (default calibrated)",
            "data": "only these data sets: A,B",
            "fold": "only these folds: A,B",
            "experiment": "ours beside a published table, `pertbase list experiments`",
            **_CONFIG_DIR,
        },
        ("pertbase report runs=runs output=report.html", "pertbase report compare=gears,additive"),
    ),
    "score": Command(
        "score somebody else's answers or effects against a fold",
        {
            **_FOLD_DIR,
            "answers": "a file of answers: .csv, .tsv, .parquet or .jsonl with id (or context, perturbation, gene) and "
            "outcome",
            "effects": "a file of effects, .h5ad, as `pertbase effects` writes it",
            "split": "train, val or test, several by commas (default test)",
            "beside": "baselines of ours to stand beside, fitted here: A,B",
            "output": "scores as JSON",
            "adapter": "with effects: how they become outcomes, several by commas (default fixed)",
            "threshold": "with effects: the least effect that is a call, natural log",
            "answers_output": "with effects: where the answers of the first adapter go",
            "cell_eval": "with effects and data: a folder for the files that cell-eval reads",
            "distances": "with effects and data: pertpy's distances to the real cells, by name, several by commas",
            "paths": "with answers: which of the paths laid over the fold, by hash, where there are several",
            "graph": "with answers: the graph to check reasons in, in place of that of the fold's paths",
            "gene_sets": "with answers: gene sets to compare reasons by, in place of the data set's own or public ones",
            "names": "with answers: a file that brings gene names to symbols",
            "preset": "with answers: axes (default), or joined: a right reason also implies its own answer",
            "records": "with answers: where the scores of every reason go, .csv or .parquet",
            "mini": "with answers: a number of questions, drawn in the shares of their strata",
            "data": "the data set that the fold was made from; options as data.KEY=VALUE",
            **_CONFIG_DIR,
        },
        (
            "pertbase score answers=mine.csv fold_dir=folds/NAME beside=gene_prior",
            "pertbase score effects=mine.h5ad fold_dir=folds/NAME adapter=fixed,calibrated",
        ),
    ),
    "effects": Command(
        "turn a table of predicted effects into effects.h5ad",
        {"input": "the table: .csv, .tsv or .parquet", "output": "the effects, .h5ad"},
        (
            "pertbase effects input=mine.csv output=effects.h5ad context_value=K562 mechanism=CRISPRi",
            "pertbase effects input=mine.parquet output=effects.h5ad effect=logfc unit=log2 statistic=log_mean",
        ),
        documented=("pertbase.folds._effect_files", "EffectTableOptions"),
    ),
    "prepare": Command(
        "turn anybody's AnnData file into a screen; what is left out is recognised or has a stated default",
        {
            "input": "the file: .h5ad or .zarr",
            "output": "the screen, .h5ad or .zarr",
            "name": "of the screen (default: of the file)",
        },
        (
            "pertbase prepare input=theirs.h5ad output=screen.h5ad mechanism=CRISPRi context_value=K562",
            "pertbase prepare input=theirs.h5ad output=screen.h5ad perturbation=guide control=NT mechanism=CRISPR-KO",
        ),
        documented=("pertbase.folds", "PrepareOptions"),
    ),
    "folds make": Command(
        "make folds, and show each",
        {**_MADE, "output": "the folder they go to (default folds)", **_CONFIG_DIR},
        (
            "pertbase folds make data=simulated fold=combinatorial output=folds",
            "pertbase folds make data=h5ad data.path=screen.h5ad fold='glob(unseen_*)' paths=human",
        ),
    ),
    "folds show": Command(
        "show who is in which split, and the certificate",
        {**_FOLD_DIR, "questions": "a file to write its questions to, with outcomes: .parquet or .jsonl"},
        (
            "pertbase folds show fold_dir=folds/NAME",
            "pertbase folds show fold_dir=folds/NAME questions=questions.parquet",
        ),
    ),
    "folds questions": Command(
        "write what is asked, without anything of the truth, for answers made elsewhere",
        {
            **_FOLD_DIR,
            "output": "the file: .csv, .jsonl or .parquet",
            "split": "train, val or test (default test)",
            "mini": "a number of questions, drawn in the shares of their strata",
            "paths": "which of the paths laid over the fold, by hash, where there are several",
        },
        (
            "pertbase folds questions fold_dir=folds/NAME output=asked.csv",
            "pertbase folds questions fold_dir=folds/NAME output=asked.jsonl split=val mini=300",
        ),
    ),
    "folds records": Command(
        "write questions and paths as question-answer records, train.jsonl, val.jsonl and test.jsonl",
        {
            **_FOLD_DIR,
            "output": "the folder",
            "mini": "a number of questions of test, drawn in the shares of their strata",
            "paths": "which of the paths laid over the fold, by hash, where there are several",
            "data": "the data set whose fields are written (default pertreasonqa); data.fields.KEY=NAME changes one",
            **_CONFIG_DIR,
        },
        (
            "pertbase folds records fold_dir=folds/NAME output=records",
            "pertbase folds records fold_dir=folds/NAME output=records mini=500 data.fields.gene=target",
        ),
    ),
    "folds split": Command(
        "write a fold's split as cell-load reads it, for STATE's own package",
        {
            **_FOLD_DIR,
            "output": "the file, .toml",
            "data_folder": "where cell-load finds the data set (default: here)",
        },
        (
            "pertbase folds split fold_dir=folds/NAME output=split.toml",
            "pertbase folds split fold_dir=folds/NAME output=split.toml data_folder=/data/screens",
        ),
    ),
    "folds check": Command(
        "prove that nothing leaks; with data, make the fold again and compare; exits with 1 where it leaks",
        {
            **_FOLD_DIR,
            "data": "the data set it was made from, to make it again; options as data.KEY=VALUE",
            "manifest": "in place of fold_dir: the folds behind a table, `pertbase list manifests`, or a .yaml file",
            **_CONFIG_DIR,
        },
        ("pertbase folds check fold_dir=folds/NAME data=simulated", "pertbase folds check manifest=simulated"),
    ),
    "folds manifest": Command(
        "write down folds, for `folds check manifest=FILE` to hold others against",
        {**_MADE, "output": "the file, .yaml", "title": "of the manifest (default: the file's name)", **_CONFIG_DIR},
        (
            "pertbase folds manifest data=simulated fold='glob(*)' output=mine.yaml",
            "pertbase folds manifest data=norman,kang fold=combinatorial output=mine.yaml title='My table'",
        ),
    ),
    "folds difficulty": Command(
        "print how hard the folds of data sets are, side by side",
        {
            "data": "data sets, several by commas (default simulated); options as data.KEY=VALUE",
            "fold": "folds (default: one of each kind); options as fold.KEY=VALUE",
            "paths": _MADE["paths"],
            "output": "a folder to keep the folds in",
            **_CONFIG_DIR,
        },
        ("pertbase folds difficulty data=simulated", "pertbase folds difficulty data=simulated,papalexi fold.seed=1"),
    ),
    "paths show": Command(
        "show the signed paths from a perturbation to a readout gene, beside what was measured",
        {
            "context": "which context",
            "perturbation": "in full, or its targets or compound where one alone is so called",
            "gene": "the readout gene",
            "data": "the data set (default simulated); options as data.KEY=VALUE",
            "graph": "graphs, `pertbase list graphs`, or files, several by commas (default: the data set's own)",
            "hops": "edges of a path at most (default 3)",
            "k": "paths at most, cheapest first (default 5)",
            "subnetwork": "how many most relevant nodes paths may go through (default: any)",
            "weight": "evidence (default), or equal for all edges",
            "gate": "expressed (default), ks or none, or two levels of basal expression: '[0.1, 0.5]'",
            "shut": "true: a gate below one half lets no path through",
            "output": "a picture, .svg",
            **_CONFIG_DIR,
        },
        (
            "pertbase paths show data=papalexi context=THP-1 perturbation=IFNGR1 gene=PSMB9 graph=collectri",
            "pertbase paths show data=papalexi context=THP-1 perturbation=STAT1 gene=IRF1 graph=collectri output=p.svg",
        ),
    ),
    "prompts show": Command(
        "print what a language model is asked, as it is sent",
        _PROMPTS,
        (
            "pertbase prompts show fold_dir=folds/NAME baseline=llm/NAME n=3",
            "pertbase prompts show fold_dir=folds/NAME baseline=llm/NAME baseline.preset=cell_path split=val",
        ),
    ),
    "prompts follow": Command(
        "ask with an edge flipped or deleted, or the context swapped: do answers follow what is shown",
        _PROMPTS,
        (
            "pertbase prompts follow fold_dir=folds/NAME baseline=llm/NAME baseline.preset=cell_path",
            "pertbase prompts follow fold_dir=folds/NAME baseline=llm/NAME baseline.preset=global_path n=200",
        ),
    ),
    "prompts write": Command(
        "have a model write reasons for train's outcomes, and keep those that hold, to fine-tune on",
        _PROMPTS,
        (
            "pertbase prompts write fold_dir=folds/NAME baseline=llm/NAME n=50 output=texts.jsonl",
            "pertbase prompts write fold_dir=folds/NAME baseline=llm/NAME output=texts.jsonl asking=gpu",
        ),
    ),
    "list": Command(
        "list what can be named; with names, their options, with defaults and meaning",
        {
            "baselines": "what is run, in a table of ours",
            "folds": "ways to split a data set",
            "data": "data sets",
            "adapters": "how effects or scores become outcomes",
            "trainers": "how deep models are trained",
            "asking": "how language models are asked",
            "experiments": "lists of runs, and what they are held against",
            "manifests": "folds behind published tables",
            "graphs": "signed graphs",
            "paths": "ways to lay paths over a fold",
            **_CONFIG_DIR,
        },
        ("pertbase list baselines", "pertbase list baselines gears state"),
        usage="[GROUP [NAME ...]]",
    ),
    "new baseline": Command(
        "write a plug-in to start from: NAME.py, conf/baseline/NAME.yaml and its test",
        {"output": "the folder they go to (default: here)"},
        ("pertbase new baseline my_model", "pertbase new baseline my_model output=plugins"),
        usage="NAME [OPTION=VALUE]",
    ),
}
"""Every command, and what it takes beside what ``documented`` declares."""


def options_of(command: str) -> tuple[str, ...]:
    """Return the options of a command that are given as ``key=value``."""
    return tuple(key for key in (*COMMANDS[command].options, *_documented(COMMANDS[command])) if key[0] != "-")


def help_text(arguments: Sequence[str]) -> str:
    """Return the help of a command, or of all of one room such as ``folds``.

    Raises
    ------
    InputError
        For an action that there is none of.
    """
    name, *rest = arguments
    if name in COMMANDS:
        return "\n".join(_lines(name))
    actions = {key.partition(" ")[2]: key for key in COMMANDS if key.startswith(f"{name} ")}
    named = next((text for text in rest if text[:1] != "-" and "=" not in text), None)
    if named is None:
        return "\n".join(_room(name, list(actions.values())))
    if named not in actions:
        raise unknown_name(f"{name} action", named, actions)
    return "\n".join(_lines(actions[named]))


def _lines(name: str) -> Iterator[str]:
    command = COMMANDS[name]
    yield f"pertbase {name}: {command.about}\n"
    yield f"  pertbase {name} {command.usage}\n"
    told = {**command.options, **_documented(command)}
    width = max(map(len, told))
    for key, meaning in told.items():
        yield from textwrap.wrap(
            meaning or "see the documentation",
            _WIDTH,
            initial_indent=f"  {key:<{width}}  ",
            subsequent_indent=" " * (width + 4),
        )
    yield "\nexamples"
    yield from (f"  {example}" for example in command.examples)


def _room(name: str, commands: Sequence[str]) -> Iterator[str]:
    """Yield the actions of a command that has several, with the options of each."""
    yield f"pertbase {name} ACTION OPTION=VALUE ...; `pertbase {name} ACTION --help` says what the options mean\n"
    for key in commands:
        yield f"  pertbase {key}: {COMMANDS[key].about}"
        listed = "options: " + ", ".join(COMMANDS[key].options)
        yield from textwrap.wrap(listed, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8)
    yield "\nexamples"
    yield from (f"  {COMMANDS[key].examples[0]}" for key in commands[:2])


def _documented(command: Command) -> dict[str, str]:
    """Return the options that a class of options declares, with the first sentence said of each."""
    if command.documented is None:
        return {}
    from dataclasses import fields
    from importlib import import_module

    from pertbase.runs._docstrings import meaning_of

    module, name = command.documented
    owner = getattr(import_module(module), name)
    home = vars(import_module(owner.__module__))

    def spelled(word: re.Match[str]) -> str:
        """Return the words that a constant holds, in the place of its name."""
        known = home.get(word[0])
        return ", ".join(map(str, known)) if isinstance(known, (tuple, Mapping)) else word[0]

    return {item.name: re.sub(r"\b[A-Z]{4,}\b", spelled, meaning_of(owner, item.name)) for item in fields(owner)}
