"""What the documentation takes from the code as it is built: the public names of each room, and tables of options."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from pertbase.runs import Names
from pertbase.runs._options import parts

ROOMS = (
    "pertbase",
    "pertbase.folds",
    "pertbase.knowledge",
    "pertbase.baselines",
    "pertbase.baselines.gears",
    "pertbase.baselines.scgpt",
    "pertbase.baselines.state",
    "pertbase.baselines.llm",
    "pertbase.baselines.finetuned",
    "pertbase.baselines.harness",
    "pertbase.adapters",
    "pertbase.scorers",
    "pertbase.plot",
    "pertbase.runs",
    "pertbase.simulate",
    "pertbase.errors",
)
"""Modules whose public names are documented."""


class Options(SphinxDirective):
    """``options GROUP NAME``: the table that ``pertbase list`` prints, from the same code."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return a table for each part: its own options, then how it is trained or asked."""
        group, name = self.arguments
        found: list[nodes.Node] = []
        for part in parts(group, name, Names()):
            if part.options:
                found += [_paragraph(f"{part.title}: {part.about}"), _table(part.options)]
            else:
                found.append(_paragraph(f"{part.title} has no options."))
        return found


class Named(SphinxDirective):
    """``named GROUP``: every name of a group, with its line."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a table of names and what they are."""
        rows = list(Names().options(self.arguments[0]).items())
        return [_rows(["name", "what it is"], [[nodes.literal(text=name), nodes.Text(about)] for name, about in rows])]


def _paragraph(text: str) -> nodes.paragraph:
    return nodes.paragraph(text=text)


def _table(options: Any) -> nodes.table:
    rows = [
        [nodes.literal(text=option.key), nodes.literal(text=option.default or " "), nodes.Text(option.meaning)]
        for option in options
    ]
    return _rows(["option", "default", "meaning"], rows)


def _rows(heads: list[str], rows: list[list[nodes.Node]]) -> nodes.table:
    table = nodes.table(classes=["colwidths-auto"])
    group = nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=1) for _ in heads]
    head, body = nodes.thead(), nodes.tbody()
    for place, cells in ((head, [[nodes.Text(name) for name in heads]]), (body, rows)):
        for row in cells:
            place += nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in row))
    group += [head, body]
    table += group
    return table


def write_rooms(app: Sphinx, config: Config) -> None:
    """Write a page of the public names of each room, before anything looks for pages."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    homes: dict[int, str] = {}
    # A name stands on the page of one room; the package itself, which hands on what others hold, comes last.
    rooms = {room: _public(importlib.import_module(room)) for room in (*ROOMS[1:], ROOMS[0])}
    for room, public in rooms.items():
        for item in public.values():
            homes.setdefault(id(item), room)
    for room, public in rooms.items():
        _write(folder / f"{room}.rst", _room(room, public, homes))
        # `run` and `Run` would be one file where names of files have no case.
        folded = [name.lower() for name in public]
        for name in (name for name in public if name.islower() and folded.count(name) > 1):
            config.autosummary_filename_map[f"{room}.{name}"] = f"{room}.{name}-function"
    index = [
        "Public names",
        "============",
        "",
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        *(f"   {room}" for room in ROOMS),
        "",
    ]
    _write(folder / "index.rst", "\n".join(index))


def _write(path: Path, text: str) -> None:
    """Write a page; left alone where nothing changed, so that a second build is quick."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _public(module: Any) -> dict[str, Any]:
    """Return the public names of a module by name, sorted; modules have pages of their own."""
    names = sorted(module.__all__, key=str.lower)
    found = {name: getattr(module, name) for name in names}
    return {name: item for name, item in found.items() if not inspect.ismodule(item)}


def _room(room: str, public: dict[str, Any], homes: dict[int, str]) -> str:
    own = [name for name, item in public.items() if _documented(item) and homes[id(item)] == room]
    values = [name for name, item in public.items() if not _documented(item)]
    others = [name for name, item in public.items() if _documented(item) and homes[id(item)] != room]
    lines = [
        room,
        "=" * len(room),
        "",
        f".. automodule:: {room}",
        "   :no-members:",
        "",
        f".. currentmodule:: {room}",
        "",
    ]
    if own:
        lines += [".. autosummary::", "   :toctree: generated", "", *(f"   {name}" for name in own), ""]
    for name in values:
        # Of a value, the docstring is what stands below it in the source; the class's own says nothing of it.
        lines += [f".. py:data:: {name}", "", *(f"   {line}" for line in _told(room, name, public[name])), ""]
    if others:
        lines += ["Handed on:", ""]
        lines += [f"- ``{name}``: :py:obj:`{homes[id(public[name])]}.{name}`" for name in others]
        lines.append("")
    return "\n".join(lines)


def _documented(item: Any) -> bool:
    """Whether a name has a docstring of its own: classes and functions do, values do not."""
    return inspect.isclass(item) or inspect.isroutine(item)


def _told(room: str, name: str, value: Any) -> list[str]:
    """Return what is written below a value, or the value."""
    for module in [*sys.modules.values()]:
        home = getattr(module, "__name__", "")
        if home.startswith("pertbase.") and getattr(module, "__dict__", {}).get(name) is value:
            comments = ModuleAnalyzer.for_module(home).find_attr_docs()
            if ("", name) in comments:
                return comments["", name]
    text = repr(value)
    return [f"``{text if len(text) <= 100 else text[:97] + '...'}``"]


def quiet_kernels(app: Sphinx, config: Config) -> None:
    """Have the notebooks' kernels report errors alone: each would warn that what it says to us is not encrypted."""
    home = Path(app.doctreedir) / "ipython"
    profile = home / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    _write(profile / "ipython_kernel_config.py", 'get_config().IPKernelApp.log_level = "ERROR"\n')
    # Kernels inherit it. What the reader has set up for an own IPython is left out of the pages too.
    os.environ["IPYTHONDIR"] = str(home)


def keep_sentences(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before a colon for the type of a property: it is a sentence here."""
    if what in ("attribute", "property", "data"):
        lines.insert(0, "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_directive("options", Options)
    app.add_directive("named", Named)
    app.connect("config-inited", write_rooms)
    app.connect("config-inited", quiet_kernels)
    # Before napoleon, at 500.
    app.connect("autodoc-process-docstring", keep_sentences, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
