"""Replies to records, read the same wherever they are: to be answers, to be rewarded, to be scored."""

from __future__ import annotations

from collections.abc import Collection

from pertbase.baselines.llm._parsing._parse import Parsed, answer_place, parse
from pertbase.baselines.llm._prompts import Template
from pertbase.baselines.llm._record import Record

__all__ = ["place_in_reply", "read_reply"]


def read_reply(text: str, finish: str, record: Record, template: Template, *, thought_begun: bool = False) -> Parsed:
    """Return what a reply to a record says."""
    lines = _own_lines(template)
    return parse(text, finish=finish, names=_names(record), template_lines=lines, thought_begun=thought_begun)


def place_in_reply(
    text: str, finish: str, record: Record, template: Template, *, thought_begun: bool = False
) -> int | None:
    """Return where the value of the answer begins in a reply to a record; None where it comes to none."""
    lines = _own_lines(template)
    return answer_place(text, finish=finish, names=_names(record), template_lines=lines, thought_begun=thought_begun)


def _names(record: Record) -> Collection[str]:
    return {record.gene, *(gene for gene, _ in record.targets)}


def _own_lines(template: Template) -> frozenset[str]:
    """Return the lines that a template itself says, without places: what of them comes back is an echo."""
    text = template.sections["reply"]
    return frozenset(line.strip() for line in text.split("\n") if line.strip() and "$" not in line)
