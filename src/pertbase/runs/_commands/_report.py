"""``pertbase report``: runs as tables, a page or a picture; two of them compared; an experiment, ours beside theirs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pertbase.errors import InputError, unknown_name
from pertbase.runs._commands._help import options_of

if TYPE_CHECKING:
    from pertbase.runs._reports._report import Report

__all__ = ["report"]

_FORMATS = ("terminal", "md", "csv", "html", "svg")
_OF_EXPERIMENTS = ("runs", "format", "output", "experiment")


def report(arguments: Sequence[str], folders: Sequence[Path]) -> int:
    """Show what the runs say, or write it to ``output``."""
    from pertbase.cli import _options

    options = _options(arguments, options_of("report"))
    output = options.get("output")
    suffix = Path(output).suffix.removeprefix(".") if output else ""
    form = options.get("format") or ("terminal" if suffix in ("", "txt") else suffix)
    if form not in _FORMATS and "format" not in options:
        endings = ", ".join(f".{name}" for name in _FORMATS if name != "terminal")
        raise InputError(
            f"no report is written as .{suffix}",
            key="output",
            value=output,
            remedy=f"end it in {endings} or .txt, or say format=NAME",
        )
    if form not in _FORMATS:
        raise unknown_name("format", form, _FORMATS)
    if "experiment" in options:
        text = _experiment_text(options, form, folders)
        unfinished: Sequence[str] = ()
    else:
        text, unfinished = _runs_text(options, form)
    if output:
        _write(output, text, form)
    else:
        print(text, end="" if form in ("html", "svg") else "\n")
    if unfinished:
        print(
            f"{len(unfinished)} runs are not in the tables: {unfinished.count('failed')} failed, "
            f"{unfinished.count('running')} not finished; `pertbase status` lists them",
            file=sys.stderr,
        )
    return 0


def _width(options: dict[str, str]) -> int | None:
    from pertbase.cli import _terminal_width

    return None if options.get("output") else _terminal_width()


def _experiment_text(options: dict[str, str], form: str, folders: Sequence[Path]) -> str:
    """Return an experiment's table, ours beside what is published."""
    from pertbase.runs._experiment import read_experiment
    from pertbase.runs._names import Names
    from pertbase.runs._reports._reproduction import reproduce

    for key in options:
        if key not in _OF_EXPERIMENTS:
            raise InputError(
                "is not taken beside experiment",
                key=key,
                value=options[key],
                remedy=f"an experiment's file says it; leave out {key}",
            )
    names = Names(tuple(folders))
    names.make_importable()
    found = reproduce(read_experiment(options["experiment"], names), options.get("runs", "runs"), names)
    if form == "csv":
        return str(found.table().to_csv(index=False))
    if form == "html":
        from pertbase.runs._reports._page import experiment_page

        return experiment_page(found)
    if form == "svg":
        raise InputError("is not drawn alone", key="experiment", value=options["experiment"], remedy="use format=html")
    from pertbase.runs._reports._reproduction_text import reproduction_sections
    from pertbase.runs._reports._section import render

    return render(reproduction_sections(found), form, width=_width(options))


def _runs_text(options: dict[str, str], form: str) -> tuple[str, Sequence[str]]:
    """Return what the runs say, and the states of those that are in no table."""
    from pertbase.runs._reports._report import collect

    found = collect(
        options.get("runs", "runs"),
        data=[name for name in options.get("data", "").split(",") if name],
        fold=[name for name in options.get("fold", "").split(",") if name],
    )
    return _report_text(found, form, options), [run.status["state"] for run in found.unfinished]


def _report_text(found: Report, form: str, options: dict[str, str]) -> str:
    from pertbase.cli import _true

    pair = _pair(options["compare"]) if "compare" in options else None
    adapter = options.get("adapter", "calibrated")
    # Shortcuts take some seconds a fold: the page is meant to be whole, a table in a terminal to be quick.
    shortcuts = _true({"shortcuts": "true" if form == "html" else "false", **options}, "shortcuts")
    if form == "csv":
        rows = (
            found.differences(*pair, adapter=adapter)
            if pair
            else found.rows().drop(columns="thresholds", errors="ignore")
        )
        return str(rows.to_csv(index=False))
    if form == "html":
        from pertbase.runs._reports._page import page

        if shortcuts and not pair:
            told = "what each baseline adds to shortcuts takes some seconds a fold; shortcuts=false leaves it out"
            print(told, file=sys.stderr)
        return page(found, compare=pair, shortcuts=shortcuts, adapter=adapter)
    if form == "svg":
        from pertbase.runs._reports._page import picture

        if pair:
            raise InputError("is not drawn alone", key="compare", value=options["compare"], remedy="use format=html")
        return picture(found, adapter=adapter)
    from pertbase.runs._reports._render import render, sections

    return render(sections(found, compare=pair, shortcuts=shortcuts, adapter=adapter), form, width=_width(options))


def _write(output: str, text: str, form: str) -> None:
    from pertbase._io import write_aside, write_text

    if form != "csv":
        write_text(output, text)
        return
    with write_aside(output) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def _pair(text: str) -> tuple[str, str]:
    names = text.split(",")
    if len(names) != 2 or not all(names):
        raise InputError("takes two names", key="compare", value=text, remedy="write compare=A,B")
    return names[0], names[1]
