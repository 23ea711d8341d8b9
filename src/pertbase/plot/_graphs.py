"""Pictures of graphs: what of a fold they cover, and paths drawn on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pertbase._path_layout import Edge, Layout, lay_out
from pertbase._pictures import CEILING, INK, MUTED, SIGN_COLOURS, marked
from pertbase.errors import InputError
from pertbase.folds import Fold, graph_coverage
from pertbase.knowledge import Path, SignedGraph, relation_sign
from pertbase.plot._canvas import canvas, check, check_fold, finish, legend, plain, row_height, rows_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path as Drawn

__all__ = ["coverage", "paths"]

_BAR, _REST = "#009e73", "#e6e6e6"
_WORDS = {1: "activates", -1: "inhibits", 0: "affects"}
_LINES: Mapping[int, Literal["solid", "dotted"]] = {1: "solid", -1: "solid", 0: "dotted"}
# Broad lines have no heads; their dashes say the sign beside the colour.
_BROAD = {1: "solid", -1: (0, (1.0, 0.35)), 0: (0, (0.3, 0.4))}
_HEADS = {1: "-|>,head_length=0.6,head_width=0.25", -1: "|-|,widthA=0,angleA=0,widthB=0.28,angleB=0", 0: "-"}
# Inches between nodes of two columns, and from row to row.
_BETWEEN, _ROW = 1.0, 0.62
# Of a node: points of its letters, of which one takes about so much of that; points of its frame around them.
_SIZE, _LETTER, _FRAME = 8.5, 0.64, 4.5
_LONGEST = 28
# Points between two edges at a side, and those that all edges at one side may take; from an edge's end to its node.
_PORT, _SIDE, _SHORT = 8.0, 40.0, 3.0
# Points between two claims about one pair.
_APART = 4.0


def coverage(fold: Fold, graph: SignedGraph | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw how many targets, readout genes and questions of a fold a graph can speak to.

    A path can explain only what it reaches; where as many questions without a change are reached as with one, being
    reached says nothing.

    Parameters
    ----------
    fold, graph
        As for :func:`pertbase.folds.graph_coverage`, which returns the numbers.
    ax
        To draw on.

    Raises
    ------
    InputError
        Where no graph is given and the fold has none.
    """
    check_fold(fold)
    if graph is not None:
        check(
            graph, SignedGraph, key="graph", remedy="give what pertbase.knowledge.signed_graph returns, or fold.graph"
        )
    if fold.questions.empty:
        raise InputError(
            f"there is no question in the fold {fold.name} of {fold.data}", key="fold",
            remedy="make it with settings that ask something: fold.certificate says what it holds",
        )  # fmt: skip
    table = graph_coverage(fold, graph)
    shown = graph or fold.graph
    ax = canvas(ax, width=7.2, height=row_height(len(table)))
    # A share of nothing is none: its row stays empty.
    rows = table["share"].notna().to_numpy().nonzero()[0]
    ax.barh(rows, 1.0, color=_REST, height=0.7)
    ax.barh(rows, table["share"].to_numpy()[rows], color=_BAR, height=0.7)
    for row, line in enumerate(table.itertuples()):
        ax.text(1.01, row, f"{line.n:,} of {line.of:,}", va="center", fontsize="small")
    rows_axis(ax, [str(name) for name in table.index])
    ax.set_xlim(0, 1)
    ax.set_xlabel("share")
    name = "" if shown is None else f"\nin the graph {shown.name}, {len(shown):,} edges"
    title = f"{marked(fold.data, simulated=fold.simulated)}: {fold.name}{name}"
    return finish(ax, title, simulated=fold.simulated, faint=False)


def paths(
    paths: Sequence[Path] | Sequence[Sequence[Sequence[str]]],
    *,
    claimed: Iterable[Sequence[str]] | None = None,
    title: str = "paths",
    simulated: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw paths from targets on the left to the readout gene on the right, and a reason's triplets over them.

    Orange arrows raise, blue bars lower, grey dotted lines do not say. With ``claimed``, the paths are broad and faint
    (whole where they raise, dashed where they lower) and the claimed triplets thin lines on top: thin on broad of one
    colour is a claim the paths bear out, of two colours a wrong sign; thin alone is an edge that is not there, broad
    alone one that is not mentioned.

    Parameters
    ----------
    paths
        Paths as :func:`pertbase.knowledge.candidate_paths` returns them, or lists of [head, relation, tail] as the
        columns ``candidate_paths`` and ``reference_paths`` of questions hold.
    claimed
        Triplets of a reason.
    title
        One line.
    simulated
        Whether to mark the picture as one of simulated data.
    ax
        To draw on.

    Raises
    ------
    InputError
        Where there is nothing to draw, or a relation is unknown.
    """
    for key, value in (("paths", paths), ("claimed", claimed)):
        if isinstance(value, str) or not (isinstance(value, Iterable) or (key == "claimed" and value is None)):
            raise _no_triplets(key, value)
    given = [_edges(path) for path in paths]
    # A triplet said twice is one claim.
    own = None if claimed is None else list(dict.fromkeys(_signed(edge) for edge in claimed))
    layout = lay_out([head, tail] for path in [*given, own or ()] for head, _, tail in path)
    if not layout.nodes:
        raise InputError(
            "there is no path and no triplet to draw", key="paths", value=[],
            remedy="choose a question whose candidate_paths or reference_paths are not empty, or give claimed",
        )  # fmt: skip
    starts, ends = {path[0][0] for path in given if path}, {path[-1][2] for path in given if path}
    widest = max(min(len(name), _LONGEST) for name in layout.nodes)
    column = _BETWEEN + (_LETTER * _SIZE * widest + 2 * _FRAME) / 72
    width = max(4.0, column * layout.n_columns + 1.6)
    ax = canvas(ax, width=width, height=max(2.0, 1.2 + _ROW * layout.n_rows))
    boxes = {}
    for name, (x, y) in layout.nodes.items():
        strong = name in starts or name in ends
        shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        boxes[name] = ax.text(
            x, y, plain(shown), ha="center", va="center", fontsize=_SIZE, color=INK, zorder=4,
            fontweight="bold" if strong else "normal", gid=f"node:{name}",
            bbox={
                "boxstyle": _Frame(layout.most_at(name)), "facecolor": "white",
                "linewidth": 1.6 if name in starts else 0.9, "edgecolor": CEILING if name in starts else MUTED,
            },
        )  # fmt: skip
    known = {(head, tail): sign for path in given for head, sign, tail in path}
    for (head, tail), sign in known.items():
        _draw(ax, _Way(ax, layout, boxes, (head, tail), 0.0), (head, sign, tail), broad=own is not None)
    said: dict[Edge, int] = {}
    for head, sign, tail in own or ():
        # Two claims about one pair, of two signs, lie beside one another.
        said[head, tail] = said.get((head, tail), -1) + 1
        way = _Way(ax, layout, boxes, (head, tail), said[head, tail] * _APART)
        _draw(ax, way, (head, sign, tail))
    half = 0.5 * column / (column + _BETWEEN)
    ax.set_xlim(-half - 0.05, layout.n_columns - 1 + half + 0.05)
    ax.set_ylim(layout.n_rows - 0.4, -0.6)
    ax.set_axis_off()
    _explain(ax, known, own)
    return finish(ax, title, simulated=simulated, faint=False)


def _edges(path: Path | Sequence[Sequence[str]]) -> list[tuple[str, int, str]]:
    if isinstance(path, Path):
        return [(head, sign, tail) for (head, tail), sign in zip(pairwise(path.nodes), path.signs, strict=True)]
    if isinstance(path, str) or not isinstance(path, Iterable):
        raise _no_triplets("paths", path)
    return [_signed(edge) for edge in path]


def _no_triplets(key: str, value: object) -> InputError:
    what = "each a list of triplets" if key == "paths" else "triplets of a reason"
    return InputError(
        f"are not {what}", key=key, value=value,
        remedy='a triplet is [head, relation, tail], as ["SPI1", "activates", "CD86"]',
    )  # fmt: skip


def _signed(edge: Sequence[str]) -> tuple[str, int, str]:
    if isinstance(edge, str) or not isinstance(edge, Iterable) or len(list(edge)) != 3:
        raise InputError(
            "is not a triplet", key="paths", value=edge,
            remedy='write [head, relation, tail], as ["SPI1", "activates", "CD86"]; paths are lists of these',
        )  # fmt: skip
    head, relation, tail = (str(part) for part in edge)
    sign = relation_sign(relation)
    if sign is None:
        raise InputError(
            "is a relation that is not known", key="relation", value=relation,
            remedy="write activates, inhibits or affects",
        )  # fmt: skip
    return head, sign, tail


class _Frame:
    """The frame of a node: as tall as the edges at one of its sides need."""

    def __init__(self, crowd: int) -> None:
        self._tall = _room(crowd) * (crowd - 1)

    def __call__(self, x: float, y: float, width: float, height: float, mutation_size: float) -> Drawn:
        from matplotlib.patches import BoxStyle

        # The letters' size in pixels is what matplotlib hands on.
        more = max(0.0, self._tall * mutation_size / _SIZE - height)
        return BoxStyle.Round(pad=_FRAME / _SIZE)(x, y - more / 2, width, height + more, mutation_size)


def _room(crowd: int) -> float:
    """Return the points between two of so many edges at one side of a node."""
    return min(_PORT, _SIDE / max(crowd - 1, 1))


class _Way:
    """The line of an edge, as matplotlib asks for it while it draws: only then is known how wide names are."""

    def __init__(self, ax: Axes, layout: Layout, boxes: Mapping[str, Any], edge: Edge, shift: float) -> None:
        self._ax, self._layout, self._boxes, self._edge, self._shift = ax, layout, boxes, edge, shift

    def __call__(self, *args: object, **kwargs: object) -> Drawn:
        from matplotlib.path import Path as Drawn

        points = self._points()
        vertices, codes = [points[0]], [Drawn.MOVETO]
        for (x0, y0), (x1, y1) in pairwise(points):
            # Level where it begins and ends; within a column it turns around the side.
            bend = 2.4 * _PORT * self._scale if x0 == x1 else (x1 - x0) / 2
            back = bend if x0 == x1 else -bend
            vertices += [(x0 + bend, y0), (x1 + back, y1), (x1, y1)]
            codes += [Drawn.CURVE4] * 3
        return Drawn(vertices, codes)

    @property
    def _scale(self) -> float:
        """Pixels of a point."""
        return float(self._ax.figure.dpi) / 72

    def _points(self) -> list[tuple[float, float]]:
        """Return where it begins, passes columns and ends, in pixels from the lower left."""
        layout, edge, scale = self._layout, self._edge, self._scale
        sides = layout.sides(edge)
        ends = []
        for name, side, port, crowd in zip(edge, sides, layout.ports[edge], layout.crowds[edge], strict=True):
            x, y = self._ax.transData.transform(layout.nodes[name])
            ends.append(
                (x + side * (self._half(name) + _SHORT * scale), y - (port * _room(crowd) + self._shift) * scale)
            )
        points = [ends[0]]
        for column, row in layout.lanes[edge]:
            x, y = self._ax.transData.transform((column, row))
            wide = sides[0] * max(self._half(name) for name, (at, _) in layout.nodes.items() if at == column)
            points += [(x - wide, y - self._shift * scale), (x + wide, y - self._shift * scale)]
        return [*points, ends[1]]

    def _half(self, name: str) -> float:
        """Return half the width of a node's frame, in pixels."""
        return float(self._boxes[name].get_window_extent().width) / 2 + _FRAME * self._scale


def _draw(ax: Axes, way: Callable[..., Drawn], edge: tuple[str, int, str], *, broad: bool = False) -> None:
    """Draw an edge from the side of one box to the side of the other."""
    head, sign, tail = edge
    # Where the two ends lie follows from the way; matplotlib wants some.
    ax.annotate(
        "", xy=(0.5, 0.5), xycoords="axes fraction", xytext=(0.5, 0.5), textcoords="axes fraction",
        gid=f"edge:{head}>{tail}:{sign:+d}", annotation_clip=False,
        arrowprops={
            "arrowstyle": "-" if broad else _HEADS[sign], "color": SIGN_COLOURS[sign],
            "linestyle": _BROAD[sign] if broad else _LINES[sign], "connectionstyle": way, "shrinkA": 0, "shrinkB": 0,
            "linewidth": 7 if broad else 1.6, "alpha": 0.3 if broad else 1.0, "zorder": 1 if broad else 2,
            "mutation_scale": 13, "capstyle": "butt",
        },
    )  # fmt: skip


def _explain(ax: Axes, known: Mapping[Edge, int], own: Sequence[tuple[str, int, str]] | None) -> None:
    """Say beside them what the lines mean, of those there are."""
    from matplotlib.lines import Line2D

    marks = {1: ">", -1: "|", 0: ""}
    drawn = [("" if own is None else "path ", [*known.values()], own is not None)]
    drawn.append(("claim ", [sign for _, sign, _ in own or ()], False))
    handles = []
    for what, signs, broad in drawn:
        for sign in (one for one in _WORDS if one in signs):
            line = Line2D([], [], color=SIGN_COLOURS[sign], label=f"{what}{_WORDS[sign]} (n = {signs.count(sign):,})")
            if broad:
                line.set(linestyle=_BROAD[sign], linewidth=7, alpha=0.3, dash_capstyle="butt", solid_capstyle="butt")
            else:
                line.set(linestyle=_LINES[sign], marker=marks[sign])
            handles.append(line)
    legend(ax, handles=handles)
