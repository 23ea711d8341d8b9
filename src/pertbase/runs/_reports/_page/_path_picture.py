"""The picture of a question's candidate paths: targets on the left, the readout gene on the right."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pertbase._pictures import CEILING, INK, MUTED, SIGN_COLOURS, places
from pertbase.runs._reports._page._markup import Markup, element
from pertbase.runs._reports._page._svg import picture, watermark

if TYPE_CHECKING:
    from pertbase.runs._commands._paths import Shown

__all__ = ["path_picture"]

_COLUMN, _ROW, _BOX, _MARGIN, _TOP = 170.0, 46.0, 26.0, 20.0, 64.0
_WORDS = {1: "activates", -1: "inhibits", 0: "affects"}


def path_picture(shown: Shown) -> str:
    """Return the paths as one SVG picture; a node is the fainter the lower its gate.

    Arrows raise, bars lower, dots do not say. Without paths the picture says so.
    """
    lying = places([path.nodes for path in shown.paths])
    edges = {
        (head, tail): sign
        for path in shown.paths
        for (head, tail), sign in zip(pairwise(path.nodes), path.signs, strict=True)
    }
    size = max((len(name) for name in lying), default=0)
    box = max(64.0, 8.2 * size + 16)
    width = 2 * _MARGIN + box + max((x for x, _ in lying.values()), default=2) * max(_COLUMN, box + 60)
    height = _TOP + (max((y for _, y in lying.values()), default=0) + 1) * _ROW + _MARGIN
    step = max(_COLUMN, box + 60)
    at = {name: (_MARGIN + box / 2 + x * step, _TOP + (y + 0.5) * _ROW) for name, (x, y) in lying.items()}
    title = f"{shown.data}, {shown.context}: {shown.perturbation.name} and {shown.gene}"
    outcome = None if shown.question is None else shown.question["outcome"]
    told = "measured: " + (outcome if isinstance(outcome, str) else "not called")
    parts: list[Markup | None] = [
        element("rect", width=width, height=height, fill="#fff"),
        watermark(width / 2, height / 2 + 10, 24) if shown.simulated else None,
        element("text", title, x=_MARGIN, y=24, font_size=15, font_weight=600),
        element("text", told if shown.paths else f"{told}; no path", x=_MARGIN, y=44, fill=MUTED),
        *(
            _edge(at[head], at[tail], sign, box, f"{head} {_WORDS[sign]} {tail}")
            for (head, tail), sign in edges.items()
        ),
        *(_node(name, place, box, shown) for name, place in at.items()),
    ]
    about = "; ".join(map(str, shown.paths)) or "no path"
    return str(picture("paths", title, about, width, height, parts, simulated=shown.simulated, alone=True)) + "\n"


def _node(name: str, place: tuple[float, float], box: float, shown: Shown) -> Markup:
    x, y = place
    gate = shown.gates.get(name, 1.0)
    own = name in {path.nodes[0] for path in shown.paths}
    return element(
        "g",
        element("title", f"{name}: gate {gate:.2f}"),
        element(
            "rect",
            x=x - box / 2,
            y=y - _BOX / 2,
            width=box,
            height=_BOX,
            rx=5,
            fill="#fff",
            stroke=CEILING if own else INK,
            stroke_width=2 if own else 1.2,
            stroke_opacity=max(gate, 0.25),
        ),
        element("text", name, x=x, y=y + 4, text_anchor="middle", fill_opacity=max(gate, 0.35)),
    )


def _edge(start: tuple[float, float], end: tuple[float, float], sign: int, box: float, words: str) -> Markup:
    forward = end[0] > start[0]
    if end[0] == start[0]:
        # Within a column the edge bends around the right-hand side.
        x = start[0] + box / 2
        tip = (x + 8, end[1])
        line = (
            f"M{x:.1f} {start[1]:.1f}C{x + 45:.1f} {start[1]:.1f} {x + 45:.1f} {end[1]:.1f} {tip[0]:.1f} {tip[1]:.1f}"
        )
        toward = -1.0
    else:
        toward = 1.0 if forward else -1.0
        first, tip = start[0] + toward * box / 2, (end[0] - toward * (box / 2 + 8), end[1])
        bend = (tip[0] - first) / 2
        line = (
            f"M{first:.1f} {start[1]:.1f}C{first + bend:.1f} {start[1]:.1f} {tip[0] - bend:.1f} {tip[1]:.1f} "
            f"{tip[0]:.1f} {tip[1]:.1f}"
        )
    return element(
        "g",
        element("title", words),
        element("path", d=line, fill="none", stroke=SIGN_COLOURS[sign], stroke_width=1.6),
        _head(tip, toward, sign),
    )


def _head(tip: tuple[float, float], toward: float, sign: int) -> Markup:
    x, y = tip
    if sign == 1:
        points = f"{x + 7 * toward:.1f},{y:.1f} {x:.1f},{y - 4:.1f} {x:.1f},{y + 4:.1f}"
        return element("polygon", points=points, fill=SIGN_COLOURS[sign])
    if sign == -1:
        return element("path", d=f"M{x + 3 * toward:.1f} {y - 6:.1f}v12", stroke=SIGN_COLOURS[sign], stroke_width=2.4)
    return element("circle", cx=x + 3 * toward, cy=y, r=3, fill=SIGN_COLOURS[sign])
