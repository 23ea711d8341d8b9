"""Pictures of graphs: what of a fold they cover, and paths drawn on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pertbase._pictures import CEILING, INK, MUTED, SIGN_COLOURS, marked, places
from pertbase.errors import InputError
from pertbase.folds import Fold, graph_coverage
from pertbase.knowledge import Path, SignedGraph, relation_sign
from pertbase.plot._canvas import canvas, check_fold, finish, legend, plain, row_height, rows_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["coverage", "paths"]

_BAR, _REST = "#009e73", "#e6e6e6"
_WORDS = {1: "activates", -1: "inhibits", 0: "affects"}
_LINES: Mapping[int, Literal["solid", "dotted"]] = {1: "solid", -1: "solid", 0: "dotted"}
# Broad lines have no heads; their dashes say the sign beside the colour.
_BROAD = {1: "solid", -1: (0, (1.0, 0.35)), 0: (0, (0.3, 0.4))}
_HEADS = {1: "-|>,head_length=0.6,head_width=0.28", -1: "|-|,widthA=0,angleA=0,widthB=0.35,angleB=0", 0: "-"}
_COLUMN, _ROW = 1.75, 0.62
# Points that a letter of a node's name takes, half of it, and half of what its frame takes.
_LETTER, _PAD = 2.8, 5.5
# Points from the middle of a side at which edges from above and below meet it, and at which bent ones end before it.
_PORT, _SHORT = 7.0, 6.0

Edge = tuple[str, str]


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
    table = graph_coverage(fold, graph)
    shown = graph or fold.graph
    ax = canvas(ax, width=7.2, height=row_height(len(table)))
    shares = table["share"].fillna(0).to_numpy()
    ax.barh(range(len(table)), 1.0, color=_REST, height=0.7)
    ax.barh(range(len(table)), shares, color=_BAR, height=0.7)
    for row, line in enumerate(table.itertuples()):
        ax.text(1.01, row, f"{line.n:,} of {line.of:,}", va="center", fontsize="small")
    rows_axis(ax, [str(name) for name in table.index])
    ax.set_xlim(0, 1)
    ax.set_xlabel("share")
    name = "" if shown is None else f"\nin {shown.name}, {len(shown):,} edges"
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
    given = [_edges(path) for path in paths]
    own = None if claimed is None else [_signed(edge) for edge in claimed]
    walks = [[path[0][0], *(tail for _, _, tail in path)] for path in given if path]
    lying = places([*walks, *([head, tail] for head, _, tail in own or ())])
    if not lying:
        raise InputError("there is no path and no triplet to draw", key="paths")
    columns = 1 + max(x for x, _ in lying.values())
    rows = 1 + max(y for _, y in lying.values())
    ax = canvas(ax, width=max(4.0, _COLUMN * columns), height=max(2.0, 1.2 + _ROW * rows))
    starts, ends = {walk[0] for walk in walks}, {walk[-1] for walk in walks}
    for name, (x, y) in lying.items():
        strong = name in starts or name in ends
        ax.text(
            x, y, plain(name), ha="center", va="center", fontsize="small", color=INK, zorder=4,
            fontweight="bold" if strong else "normal", gid=f"node:{name}",
            bbox={
                "boxstyle": "round,pad=0.35", "facecolor": "white", "linewidth": 1.6 if name in starts else 0.9,
                "edgecolor": CEILING if name in starts else MUTED,
            },
        )  # fmt: skip
    known = {(head, tail): sign for path in given for head, sign, tail in path}
    for edge, sign in known.items():
        _draw(ax, lying, edge, sign, broad=own is not None)
    for head, sign, tail in own or ():
        _draw(ax, lying, (head, tail), sign)
    ax.set_xlim(-0.55, columns - 0.45)
    ax.set_ylim(rows - 0.4, -0.6)
    ax.set_axis_off()
    _explain(ax, known, own)
    return finish(ax, title, simulated=simulated, faint=False)


def _edges(path: Path | Sequence[Sequence[str]]) -> list[tuple[str, int, str]]:
    if isinstance(path, Path):
        return [(head, sign, tail) for (head, tail), sign in zip(pairwise(path.nodes), path.signs, strict=True)]
    return [_signed(edge) for edge in path]


def _signed(edge: Sequence[str]) -> tuple[str, int, str]:
    head, relation, tail = (str(part) for part in edge)
    sign = relation_sign(relation)
    if sign is None:
        raise InputError(
            "is a relation that is not known", key="relation", value=relation,
            remedy="write activates, inhibits or affects",
        )  # fmt: skip
    return head, sign, tail


def _draw(ax: Axes, lying: Mapping[str, tuple[int, float]], edge: Edge, sign: int, *, broad: bool = False) -> None:
    """Draw an edge from the side of one box to the side of the other."""
    from matplotlib.transforms import ScaledTranslation

    (head, tail), ((x0, y0), (x1, y1)) = edge, (lying[edge[0]], lying[edge[1]])
    toward = 1.0 if x1 >= x0 else -1.0
    # Within a column an edge bends around the right-hand side; over several columns it passes by what lies between.
    within = x0 == x1
    bend = 0.5 * (1 if y1 > y0 else -1) if within else 0.18 if abs(x1 - x0) > 1 or toward < 0 else 0.0
    sides = (toward, toward if within else -toward)
    # What comes from another side than its neighbours ends beside them, so that no head lies on another.
    long = bend != 0 and not within
    ports = (-toward, -toward) if long else (float(y0 > y1) - float(y1 > y0), float(y1 > y0) - float(y0 > y1))
    begin, end = (
        ax.transData
        + ScaledTranslation(side * (_LETTER * len(name) + _PAD) / 72, _PORT * port / 72, ax.figure.dpi_scale_trans)
        for side, name, port in zip(sides, (head, tail), ports, strict=True)
    )
    ax.annotate(
        "", xy=(x1, y1), xycoords=end, xytext=(x0, y0), textcoords=begin, gid=f"edge:{head}>{tail}:{sign:+d}",
        annotation_clip=False,
        arrowprops={
            "arrowstyle": "-" if broad else _HEADS[sign], "color": SIGN_COLOURS[sign],
            "linestyle": _BROAD[sign] if broad else _LINES[sign],
            "connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": _SHORT if long and not broad else 1.5,
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
