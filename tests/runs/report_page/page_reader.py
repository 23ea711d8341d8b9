"""The page as a browser would read it, for the tests of this folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from pertbase.runs import collect
from pertbase.runs._reports._page import page

_VOID = {"meta", "wbr"}


@dataclass(eq=False)
class Element:
    """An element with all the text in it, and the elements it lies in."""

    tag: str
    attributes: dict[str, str]
    above: list[Element]
    text: str = ""

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    @property
    def value(self) -> float:
        """The number a cell holds in full precision."""
        return float(self.attributes["data-value"] or "nan")


class Page(HTMLParser):
    """What a browser would read."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.elements: list[Element] = []
        self.unclosed: list[str] = []
        self._open: list[Element] = []
        self.feed(source)
        self.close()
        self.unclosed += [item.tag for item in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        item = Element(tag, {name: value or "" for name, value in attrs}, list(self._open))
        self.elements.append(item)
        if tag not in _VOID:
            self._open.append(item)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1].tag == tag:
            self._open.pop()
        else:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        for item in self._open:
            item.text += data

    def all(self, *tags: str, within: str | Element | None = None) -> list[Element]:
        """Return the elements with a tag, within an element or within any of some class."""
        found = [item for item in self.elements if item.tag in tags]
        if isinstance(within, Element):
            return [item for item in found if within in item.above]
        return [item for item in found if not within or any(within in above.classes for above in item.above)]

    def table(self, caption: str) -> tuple[list[str], dict[str, list[Element]]]:
        """Return the heads of the table whose caption holds some words, and its cells by row name."""
        (found,) = [item for item in self.all("caption") if caption in item.text]
        table = found.above[-1]
        heads = [item.text for item in self.all("th", within=table) if item.attributes["scope"] == "col"]
        rows = {}
        for row in self.all("tr", within=table):
            names = [item for item in self.all("th", within=row) if item.attributes["scope"] == "row"]
            if names:
                rows[names[0].text] = self.all("td", within=row)
        return heads, rows


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a YAML file holds."""
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def short(runs: Path) -> Page:
    """Return the page of some runs without what takes seconds."""
    return Page(page(collect(runs), shortcuts=False))


def titles(shown: Page) -> list[str]:
    """Return every title on the page that must say whether data are simulated."""
    heads = shown.all("h2", "h3", "h4", "caption", "figcaption", within="data")
    # Of many small plots of one fold, the plot itself is marked.
    return [item.text for item in heads if not any("multiples" in above.classes for above in item.above)]


def without_style(text: str) -> str:
    """Return a page without its style sheet, which names what it marks."""
    return re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
