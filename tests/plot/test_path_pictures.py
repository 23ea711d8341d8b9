"""Pictures of paths: each edge once, in its colour, on nothing else; claims over them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pertbase import plot
from pertbase.errors import InputError
from pertbase.folds import Fold
from pertbase.knowledge import candidate_paths

UP, DOWN = plot.COLOURS["up"], plot.COLOURS["down"]


def edges(ax) -> dict[str, object]:  # type: ignore[no-untyped-def]
    return {text.get_gid(): text.arrow_patch for text in ax.texts if (text.get_gid() or "").startswith("edge:")}


def nodes(ax) -> dict[str, tuple[float, float]]:  # type: ignore[no-untyped-def]
    return {
        text.get_gid().removeprefix("node:"): text.get_position()
        for text in ax.texts
        if (text.get_gid() or "").startswith("node:")
    }


PATHS = [
    [["A", "inhibits", "B"], ["B", "activates", "D"]],
    [["A", "activates", "C"], ["C", "affects", "D"]],
]


def test_every_edge_of_a_path_is_drawn_once_in_the_colour_of_its_sign() -> None:
    from matplotlib.colors import to_hex

    ax = plot.paths([*PATHS, PATHS[0]])
    found = {key: to_hex(arrow.get_edgecolor()) for key, arrow in edges(ax).items()}  # type: ignore[attr-defined]
    expected = {"edge:A>B:-1": DOWN, "edge:B>D:+1": UP, "edge:A>C:+1": UP}
    assert found == {**expected, "edge:C>D:+0": plot.COLOURS["no_change"]}
    at = nodes(ax)
    assert at["A"][0] < min(at["B"][0], at["C"][0]) <= max(at["B"][0], at["C"][0]) < at["D"][0]
    assert len({at[name] for name in at}) == 4


def test_paths_found_in_a_graph_and_paths_as_questions_hold_them_make_the_same_picture(fold: Fold) -> None:
    assert fold.graph is not None
    questions = fold.paths.join(fold.questions)  # type: ignore[union-attr]
    row = questions.loc[[len(paths) > 1 for paths in questions["candidate_paths"]]].iloc[0]
    signs = fold.perturbations[row["perturbation"]].signs
    found = candidate_paths(fold.graph, signs, row["gene"], hops=3, k=3)
    as_lists = [[list(edge) for edge in path.triplets] for path in found]
    first, second = plot.paths(found), plot.paths(as_lists)
    assert edges(first).keys() == edges(second).keys()
    assert nodes(first) == nodes(second)


def test_claims_lie_thin_over_broad_paths() -> None:
    claimed = [("A", "inhibits", "B"), ("B", "inhibits", "D"), ("A", "activates", "X")]
    ax = plot.paths(PATHS, claimed=claimed)
    widths: dict[str, list[float]] = {}
    for text in ax.texts:
        if (text.get_gid() or "").startswith("edge:"):
            widths.setdefault(text.get_gid(), []).append(text.arrow_patch.get_linewidth())
    broad = {key for key, sizes in widths.items() if max(sizes) > 5}
    thin = {key for key, sizes in widths.items() if min(sizes) < 2}
    assert broad == {"edge:A>B:-1", "edge:B>D:+1", "edge:A>C:+1", "edge:C>D:+0"}
    assert thin == {"edge:A>B:-1", "edge:B>D:-1", "edge:A>X:+1"}
    assert "X" in nodes(ax)
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert told == [
        "path activates (n = 2)", "path inhibits (n = 1)", "path affects (n = 1)",
        "claim activates (n = 1)", "claim inhibits (n = 2)",
    ]  # fmt: skip
    in_legend = ax.get_legend().get_lines()
    assert [line.get_linewidth() > 5 for line in in_legend] == [True] * 3 + [False] * 2
    dashed = {line.get_linestyle() for line in in_legend[1:3]}
    assert dashed == {"--"}
    assert in_legend[0].get_linestyle() == "-"


def drawn_lines(ax, *, broad: bool = False) -> dict[str, np.ndarray]:  # type: ignore[no-untyped-def]
    """Return where each edge runs, in points, without its head: shape (n, 2)."""
    lines = {}
    for text in ax.texts:
        if (text.get_gid() or "").startswith("edge:") and (text.arrow_patch.get_linewidth() > 5) == broad:
            line = text.arrow_patch.get_connectionstyle()()
            corners = line.interpolated(1).to_polygons(closed_only=False)[0]
            steps = np.linspace(0, 1, 60)[:, None]
            dense = np.concatenate([a + (b - a) * steps for a, b in pairwise(corners)])
            lines[text.get_gid()] = dense * 72 / ax.figure.dpi
    return lines


def frames(ax) -> dict[str, tuple[float, float, float, float]]:  # type: ignore[no-untyped-def]
    """Return the frame of each node, in points: left, bottom, right, top."""
    found = {}
    for text in ax.texts:
        if (text.get_gid() or "").startswith("node:"):
            box = text.get_bbox_patch().get_window_extent()
            found[text.get_gid().removeprefix("node:")] = tuple(np.array(box.extents) * 72 / ax.figure.dpi)
    return found


def longest_together(first: np.ndarray, second: np.ndarray, near: float) -> float:
    """Return how many points one line runs no further than ``near`` from another, at most, without a break."""
    close = np.sqrt(((first[:, None] - second[None]) ** 2).sum(axis=2)).min(axis=1) < near
    steps = np.sqrt((np.diff(first, axis=0) ** 2).sum(axis=1))
    most = run = 0.0
    for step, both in zip(steps, close[1:] & close[:-1], strict=True):
        run = run + step if both else 0.0
        most = max(most, run)
    return most


def some_paths(rng: np.random.Generator) -> list[list[list[str]]]:
    """Return paths of one readout gene as a graph might have them: of one to three hops, shortcuts among them."""
    layers = [["A1", "A2"], ["B1", "B2", "B3"], ["C1", "C2", "C3"]]
    words = ("activates", "inhibits", "affects")
    sign: dict[tuple[str, str], str] = {}
    found = []
    for _ in range(rng.integers(2, 6)):
        chosen = sorted(rng.choice(3, size=rng.integers(1, 4), replace=False))
        nodes = ["A1" if rng.random() < 0.7 else "A2", *(str(rng.choice(layers[at])) for at in chosen if at), "Z"]
        found.append([[a, sign.setdefault((a, b), str(rng.choice(words))), b] for a, b in pairwise(nodes)])
    return found


CIRCLES = [
    [[["A", "activates", "B"], ["B", "activates", "A"]], [["A", "inhibits", "C"]]],
    [[["A", "activates", "B"], ["B", "inhibits", "C"], ["C", "activates", "A"]], [["A", "inhibits", "C"]]],
    [[["A", "activates", "B"], ["B", "inhibits", "C"], ["C", "affects", "D"], ["D", "activates", "B"]]],
]


@pytest.mark.parametrize("seed", range(12))
def test_no_edge_lies_on_another_or_on_a_node_that_is_not_its_own(seed: int) -> None:
    given = some_paths(np.random.default_rng(seed)) if seed >= len(CIRCLES) else CIRCLES[seed]
    ax = plot.paths(given)
    ax.figure.canvas.draw()
    lines, boxes = drawn_lines(ax), frames(ax)
    assert len(lines) == len({tuple(edge) for path in given for edge in path})
    for key, line in lines.items():
        head, tail = key.removeprefix("edge:").rpartition(":")[0].split(">")
        for name, (left, bottom, right, top) in boxes.items():
            inside = (line > (left, bottom)).all(axis=1) & (line < (right, top)).all(axis=1)
            assert name in (head, tail) or not inside.any(), (key, name)
        for other, beside in lines.items():
            # Two that cross are near one another for as long as that takes.
            assert other == key or longest_together(line, beside, 2.0) < 16, (key, other)


@pytest.mark.parametrize("seed", range(12))
def test_heads_of_edges_that_meet_at_a_node_lie_apart_and_at_its_side(seed: int) -> None:
    given = some_paths(np.random.default_rng(seed)) if seed >= len(CIRCLES) else CIRCLES[seed]
    ax = plot.paths(given)
    ax.figure.canvas.draw()
    lines, boxes = drawn_lines(ax), frames(ax)
    ends: dict[tuple[str, bool], list[float]] = {}
    for key, line in lines.items():
        head, tail = key.removeprefix("edge:").rpartition(":")[0].split(">")
        for name, (x, y) in ((head, line[0]), (tail, line[-1])):
            left, bottom, right, top = boxes[name]
            assert bottom <= y <= top, (key, name)
            assert min(abs(x - left), abs(x - right)) < 4, (key, name)
            ends.setdefault((name, x > (left + right) / 2), []).append(float(y))
    for side, heights in ends.items():
        apart = np.diff(sorted(heights))
        assert (apart >= 7.3).all(), (side, heights)


def test_claims_about_one_pair_share_its_line_and_two_signs_lie_apart() -> None:
    ax = plot.paths(PATHS, claimed=[("A", "inhibits", "B"), ("A", "activates", "B"), ("A", "inhibits", "B")])
    ax.figure.canvas.draw()
    thin, broad = drawn_lines(ax), drawn_lines(ax, broad=True)
    assert list(thin) == ["edge:A>B:-1", "edge:A>B:+1"]
    assert np.allclose(thin["edge:A>B:-1"], broad["edge:A>B:-1"])
    assert longest_together(thin["edge:A>B:-1"], thin["edge:A>B:+1"], 2.0) < 16
    assert "claim inhibits (n = 1)" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_names_of_any_length_have_room_between_them() -> None:
    for long in ("G", "a_very_long_name_of_a_complex", "x" * 400):
        ax = plot.paths([[["A", "activates", long], [long, "inhibits", "B"]], [["A", "inhibits", "B"]]])
        ax.figure.canvas.draw()
        boxes = frames(ax)
        assert set(boxes) == {"A", "B", long}
        assert boxes[long][0] - boxes["A"][2] > 40
        assert boxes["B"][0] - boxes[long][2] > 40
        assert ax.figure.get_figwidth() < 14


def test_nothing_to_draw_and_words_that_are_no_relation_are_told() -> None:
    with pytest.raises(InputError, match="no path and no triplet"):
        plot.paths([])
    with pytest.raises(InputError, match="'blocks!'"):
        plot.paths([[["A", "blocks!", "B"]]])
    assert set(nodes(plot.paths([], claimed=[("A", "inhibits", "B")]))) == {"A", "B"}
