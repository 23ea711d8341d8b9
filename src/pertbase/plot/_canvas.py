"""What every picture shares: its axes, its title, the mark of simulated data."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pertbase._pictures import CEILING, MUTED, RULE
from pertbase.errors import InputError, PertbaseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "HEAD", "beyond", "canvas", "check", "check_count", "check_fold", "finish", "legend", "plain", "row_height",
    "rows_axis", "seaborn", "short", "vertical",
]  # fmt: skip

_ROW, _FRAME = 0.27, 1.3
_LONGEST = 32
_MOST_LINES = 5
HEAD = 28
"""Letters of a name beside or below a grid."""
# No font has them, and somebody's gene or baseline name may.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TITLE = 9.5
# Of a title, and the inches that labels of rows take on its left.
_LETTERS_PER_INCH, _LEFT = 13.5, 1.5


def _missing(package: str, error: ModuleNotFoundError) -> PertbaseError:
    return PertbaseError(
        f"plots need the package {package}",
        key="pertbase.plot",
        value=str(error),
        remedy="install it with pip install 'pertbase[notebooks]'",
    )


def canvas(ax: Axes | None, *, width: float = 6.4, height: float = 4.0) -> Axes:
    """Return the axes given, or those of a new figure of some inches.

    Raises
    ------
    PertbaseError
        Where matplotlib is not installed, with what to type.
    InputError
        Where what is given is no axes.
    """
    if ax is not None:
        from matplotlib.axes import Axes

        check(ax, Axes, key="ax", remedy="give one of those that pyplot.subplots() returns, or leave it out")
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] != "matplotlib":
            raise
        raise _missing("matplotlib", error) from error
    made: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return made


def check(given: object, kinds: type | tuple[type, ...], *, key: str, remedy: str) -> None:
    """Raise where something else is given than what a picture is of, with what has one."""
    if not isinstance(given, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        article = "an" if names[0][0] in "AEIO" else "a"
        raise InputError(f"is not {article} {' or '.join(names)}", key=key, value=type(given).__name__, remedy=remedy)


def check_fold(given: object) -> None:
    """Raise where something else than a fold is given, with what has one."""
    from pertbase.folds import Fold

    check(given, Fold, key="fold", remedy="give what pertbase.make_fold or pertbase.open_fold returns, or run.fold")


def check_count(given: object, *, key: str) -> None:
    """Raise where something else than a whole number from 1 is given."""
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
        raise InputError("is not a whole number from 1", key=key, value=given, remedy=f"give one, as {key}=20")


def beyond(values: np.ndarray, low: float, high: float) -> str:
    """Return a line for the label of an axis: how many values lie beyond its ends; nothing where none does."""
    below, above = int((values < low).sum()), int((values > high).sum())
    return f"\nbeyond the axis: {below:,} on the left, {above:,} on the right" if below or above else ""


def seaborn() -> Any:
    """Return the module seaborn.

    Raises
    ------
    PertbaseError
        Where it is not installed, with what to type.
    """
    try:
        import seaborn as module
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("seaborn", "matplotlib"):
            raise
        raise _missing(package, error) from error
    return module


def row_height(n_rows: int) -> float:
    """Return the inches that so many labelled rows and their frame take."""
    return _FRAME + _ROW * max(n_rows, 2)


def finish(
    ax: Axes, title: str, *, simulated: bool, framed: bool = False, faint: bool = True, lined: bool = False
) -> Axes:
    """Give the axes their title and, where data are simulated, their mark, and return them.

    Parameters
    ----------
    ax
        The axes.
    title
        Lines; those that the figure is too narrow for are wrapped.
    simulated
        Whether to mark them.
    framed
        Whether to keep the lines above and on the right.
    faint
        Whether the mark lies large behind what is drawn; else small above the title, where nothing is free behind.
    lined
        Whether lines of :func:`vertical` are labelled between axes and title.
    """
    width = ax.figure.bbox.width / ax.figure.dpi
    letters = max(24, round(_LETTERS_PER_INCH * (width - _LEFT)))
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, letters)]
    if len(lines) > _MOST_LINES:
        # A name of hundreds of letters would leave no room for what is drawn.
        lines = [*lines[: _MOST_LINES - 1], f"{lines[_MOST_LINES - 1][: letters - 1]}…"]
    pad = 18 if lined else 6
    ax.set_title(plain("\n".join(lines)), loc="left", fontsize=_TITLE, pad=pad)
    if not framed:
        ax.spines[["top", "right"]].set_visible(False)
    if simulated and faint:
        ax.text(
            0.5, 0.5, "SIMULATED", transform=ax.transAxes, ha="center", va="center", rotation=16, fontsize=24,
            fontweight="bold", color=CEILING, alpha=0.18, zorder=0.5, gid="simulated",
        )  # fmt: skip
    elif simulated:
        ax.annotate(
            "SIMULATED", (0, 1), xycoords="axes fraction", xytext=(0, pad + 1.25 * _TITLE * len(lines)),
            textcoords="offset points", fontsize=6.5, fontweight="bold", color=CEILING, gid="simulated",
            annotation_clip=False,
        )  # fmt: skip
    return ax


_BESIDE: dict[str, Any] = {
    "loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0, "frameon": False, "fontsize": "small",
    "title_fontsize": "small", "alignment": "left",
}  # fmt: skip


def legend(ax: Axes, *, title: str | None = None, handles: Sequence[Any] | None = None) -> None:
    """Put the legend on the right of the axes, where it covers nothing; one that seaborn made is moved there."""
    made = ax.get_legend()
    if made is not None and handles is None:
        style = {key: value for key, value in _BESIDE.items() if key != "loc"}
        seaborn().move_legend(ax, _BESIDE["loc"], title=title, **style)
        return
    given = {**_BESIDE} if handles is None else {**_BESIDE, "handles": list(handles)}
    ax.legend(title=title, **given)


def rows_axis(ax: Axes, labels: Sequence[str], counts: Sequence[str] = ()) -> None:
    """Label rows from top to bottom, with faint lines between them; ``counts`` stand behind names, however long."""
    shown = [short(label) for label in labels]
    if counts:
        shown = [f"{label} {count}" for label, count in zip(shown, counts, strict=True)]
    ax.set_yticks(range(len(shown)), shown, fontsize="small")
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=RULE, linewidth=0.8)
    ax.set_axisbelow(True)


def vertical(ax: Axes, x: float, label: str, *, strong: bool = False, side: str = "center") -> None:
    """Draw a value to compare with as a vertical line, labelled above the axes: ``center``, or to one side of it."""
    colour = CEILING if strong else MUTED
    ax.axvline(x, color=colour, linewidth=1.3, linestyle=(0, (5, 3)) if strong else (0, (1.5, 3)), zorder=1)
    ax.annotate(
        label, (x, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points", ha=side,
        va="bottom", fontsize="x-small", color=colour, annotation_clip=False,
    )  # fmt: skip


def short(name: object, most: int = _LONGEST) -> str:
    """Return a name as a label on one line, of so many letters at most: it leaves room for what is drawn."""
    text = " ".join(str(name).splitlines()).replace("\t", " ")
    return plain(text if len(text) <= most else f"{text[: most - 1]}…")


def plain(text: str) -> str:
    """Return a name that is drawn as it is: matplotlib takes what lies between two dollar signs for mathematics."""
    return _CONTROLS.sub("\ufffd", text).replace("$", r"\$")
