"""The page's picture of paths: every edge runs from side to side of its own nodes, and over no other."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pertbase.runs._reports._page._path_picture import path_picture

SVG = "{http://www.w3.org/2000/svg}"
WORDS = {1: "activates", -1: "inhibits", 0: "affects"}


def _drawn(paths: list[list[str]]) -> ElementTree.Element:
    signs = {1: 1, 2: -1, 0: 0}
    found = [
        SimpleNamespace(nodes=tuple(nodes), signs=tuple(signs[place % 3] for place in range(1, len(nodes))))
        for nodes in paths
    ]
    shown: Any = SimpleNamespace(
        data="some", simulated=True, context="S1", perturbation=SimpleNamespace(name="<b>A</b>"), gene="Z",
        question=None, paths=tuple(found), gates={},
    )  # fmt: skip
    return ElementTree.fromstring(path_picture(shown))


def _line(command: str) -> np.ndarray:
    """Return points along a path of cubic curves, shape (n, 2)."""
    numbers = np.array([float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", command)]).reshape(-1, 2)
    share = np.linspace(0, 1, 50)[:, None]
    parts = []
    for start in range(0, len(numbers) - 1, 3):
        a, b, c, d = numbers[start : start + 4]
        parts.append(
            (1 - share) ** 3 * a + 3 * share * (1 - share) ** 2 * b + 3 * share**2 * (1 - share) * c + share**3 * d
        )
    return np.concatenate(parts)


@pytest.mark.parametrize(
    "paths",
    [
        [["A", "Z"], ["A", "B", "Z"], ["A", "B", "C", "Z"], ["A", "C", "Z"]],
        [["A", "B", "C", "Z"], ["A", "D", "C", "Z"], ["A", "D", "Z"], ["A2", "Z"], ["A2", "C", "Z"]],
        [["A", "B", "A"], ["B", "C", "A"], ["A", "C"]],
    ],
)
def test_no_edge_of_the_page_s_picture_lies_on_another_node(paths: list[list[str]]) -> None:
    drawn = _drawn(paths)
    boxes, lines = {}, {}
    for group in drawn.iter(f"{SVG}g"):
        title = group.findtext(f"{SVG}title") or ""
        if (rect := group.find(f"{SVG}rect")) is not None:
            x, y, width, height = (float(rect.get(key) or 0) for key in ("x", "y", "width", "height"))
            boxes[title.split(":")[0]] = (x, y, x + width, y + height)
        elif (line := group.find(f"{SVG}path")) is not None:
            lines[title] = _line(line.get("d") or "")
    assert len(lines) == len({(a, b) for nodes in paths for a, b in pairwise(nodes)})
    size = np.array([float(drawn.get("width") or 0), float(drawn.get("height") or 0)])
    for title, line in lines.items():
        head, _, tail = title.split(" ")
        assert ((line > 0) & (line < size)).all(), title
        for name, (left, top, right, bottom) in boxes.items():
            inside = ((line > (left + 0.5, top)) & (line < (right - 0.5, bottom))).all(axis=1)
            assert not inside.any(), (title, name)
        (left, top, right, bottom), end = boxes[tail], line[-1]
        assert top <= end[1] <= bottom
        assert min(abs(end[0] - left), abs(end[0] - right)) < 10, (head, tail)
    ends = sorted(tuple(np.round(line[-1], 1)) for line in lines.values())
    assert len(ends) == len(set(ends))
