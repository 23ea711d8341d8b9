"""The picture of a question's candidate paths: targets on the left, the readout gene on the right."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from pertbase._path_layout import Edge, Layout, lay_out
from pertbase._pictures import CEILING, INK, MUTED, SIGN_COLOURS
from pertbase.runs._reports._page._markup import Markup, element
from pertbase.runs._reports._page._svg import picture, watermark

if TYPE_CHECKING:
    from pertbase.runs._commands._paths import Shown

__all__ = ["path_picture"]

_COLUMN, _ROW, _BOX, _MARGIN, _TOP = 170.0, 46.0, 26.0, 20.0, 64.0
# Between two edges at a side of a box, which may stand a little beyond it.
_PORT, _SIDE = 9.0, 30.0
_WORDS = {1: "activates", -1: "inhibits", 0: "affects"}


def path_picture(shown: Shown) -> str:
    """Return the paths as one SVG picture; a node is the fainter the lower its gate.

    Arrows raise, bars lower, dots do not say. Without paths the picture says so.
    """
    layout = lay_out([path.nodes for path in shown.paths])
    edges = {
        (head, tail): sign
        for path in shown.paths
        for (head, tail), sign in zip(pairwise(path.nodes), path.signs, strict=True)
    }
    size = max((len(name) for name in layout.nodes), default=0)
    box = max(64.0, 8.2 * size + 16)
    step = max(_COLUMN, box + 100)
    columns = layout.n_columns if layout.nodes else 3
    width = 2 * _MARGIN + box + (columns - 1) * step
    height = _TOP + layout.n_rows * _ROW + _MARGIN

    def at(column: float, row: float) -> tuple[float, float]:
        return _MARGIN + box / 2 + column * step, _TOP + (row + 0.5) * _ROW

    title = f"{shown.data}, {shown.context}: {shown.perturbation.name} and {shown.gene}"
    outcome = None if shown.question is None else shown.question["outcome"]
    told = "measured: " + (outcome if isinstance(outcome, str) else "not called")
    parts: list[Markup | None] = [
        element("rect", width=width, height=height, fill="#fff"),
        watermark(width / 2, height / 2 + 10, 24) if shown.simulated else None,
        element("text", title, x=_MARGIN, y=24, font_size=15, font_weight=600),
        element("text", told if shown.paths else f"{told}; no path", x=_MARGIN, y=44, fill=MUTED),
        *(
            _edge(layout, (head, tail), at, sign, box, f"{head} {_WORDS[sign]} {tail}")
            for (head, tail), sign in edges.items()
        ),
        *(_node(name, at(*place), (box, _tall(layout.most_at(name))), shown) for name, place in layout.nodes.items()),
    ]
    about = "; ".join(map(str, shown.paths)) or "no path"
    return str(picture("paths", title, about, width, height, parts, simulated=shown.simulated, alone=True)) + "\n"


def _room(crowd: int) -> float:
    """Return the pixels between two of so many edges at one side of a box."""
    return min(_PORT, _SIDE / max(crowd - 1, 1))


def _tall(crowd: int) -> float:
    return max(_BOX, _room(crowd) * (crowd - 1) + 8)


def _node(name: str, place: tuple[float, float], box: tuple[float, float], shown: Shown) -> Markup:
    (x, y), (width, height) = place, box
    gate = shown.gates.get(name, 1.0)
    own = name in {path.nodes[0] for path in shown.paths}
    return element(
        "g",
        element("title", f"{name}: gate {gate:.2f}"),
        element(
            "rect",
            x=x - width / 2,
            y=y - height / 2,
            width=width,
            height=height,
            rx=5,
            fill="#fff",
            stroke=CEILING if own else INK,
            stroke_width=2 if own else 1.2,
            stroke_opacity=max(gate, 0.25),
        ),
        element("text", name, x=x, y=y + 4, text_anchor="middle", fill_opacity=max(gate, 0.35)),
    )


def _edge(
    layout: Layout, edge: Edge, at: Callable[[float, float], tuple[float, float]], sign: int, box: float, words: str
) -> Markup:
    ends = []
    for name, side, port, crowd in zip(edge, layout.sides(edge), layout.ports[edge], layout.crowds[edge], strict=True):
        x, y = at(*layout.nodes[name])
        ends.append((x + side * box / 2, y + port * _room(crowd)))
    first, (x, y) = ends
    from_side, at_side = layout.sides(edge)
    tip = (x + 8 * at_side, y)
    points = [first]
    for column, row in layout.lanes[edge]:
        x, y = at(column, row)
        points += [(x - from_side * box / 2, y), (x + from_side * box / 2, y)]
    line = f"M{first[0]:.1f} {first[1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise([*points, tip]):
        # Level at both ends; where it comes back to its own column it turns around the side.
        bend = 45.0 if from_side == at_side else (x1 - x0) / 2
        back = bend if from_side == at_side else -bend
        line += f"C{x0 + bend:.1f} {y0:.1f} {x1 + back:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return element(
        "g",
        element("title", words),
        element("path", d=line, fill="none", stroke=SIGN_COLOURS[sign], stroke_width=1.6),
        _head(tip, -float(at_side), sign),
    )


def _head(tip: tuple[float, float], toward: float, sign: int) -> Markup:
    x, y = tip
    if sign == 1:
        points = f"{x + 7 * toward:.1f},{y:.1f} {x:.1f},{y - 4:.1f} {x:.1f},{y + 4:.1f}"
        return element("polygon", points=points, fill=SIGN_COLOURS[sign])
    if sign == -1:
        return element("path", d=f"M{x + 3 * toward:.1f} {y - 4:.1f}v8", stroke=SIGN_COLOURS[sign], stroke_width=2.4)
    return element("circle", cx=x + 3 * toward, cy=y, r=3, fill=SIGN_COLOURS[sign])
