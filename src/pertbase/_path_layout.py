"""Where nodes and edges of paths lie: in columns from what is perturbed to the readout gene, no edge on another.

An edge that leads past a column gets a lane of its own there, between the nodes, and edges that meet at one side of a
node meet it one below the other. So neither lies on a node that it does not belong to, nor on another edge, but where
two cross. Both pictures of paths, the page's and :func:`pertbase.plot.paths`, are drawn from this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Edge", "Layout", "lay_out"]

Edge = tuple[str, str]
# A node by its name, or the lane of an edge in a column.
_Item = tuple[str] | tuple[str, str, int]

_SWEEPS = 12
# Rows from a node to the next, from a node to a lane, and between lanes.
_GAPS = {2: 1.0, 1: 0.75, 0: 0.5}


@dataclass(frozen=True)
class Layout:
    """Where nodes and edges lie.

    Parameters
    ----------
    nodes
        Name -> column and row, both from 0.
    lanes
        Edge -> column and row of each place where it passes a column, from its head to its tail; empty where the two
        lie side by side.
    ports
        Edge -> how far from the middle of a node's side it begins and ends, as whole numbers or halves of the room
        between two edges; negative is above.
    crowds
        Edge -> how many edges share the side at which it begins, and at which it ends.
    """

    nodes: Mapping[str, tuple[int, float]]
    lanes: Mapping[Edge, tuple[tuple[int, float], ...]]
    ports: Mapping[Edge, tuple[float, float]]
    crowds: Mapping[Edge, tuple[int, int]]

    @property
    def n_columns(self) -> int:
        return 1 + max((column for column, _ in self.nodes.values()), default=0)

    @property
    def n_rows(self) -> float:
        """Rows from the highest to the lowest, lanes among them."""
        rows = [row for _, row in (*self.nodes.values(), *(place for lane in self.lanes.values() for place in lane))]
        return 1 + max(rows, default=0.0)

    def most_at(self, name: str) -> int:
        """Return how many edges there are at that side of a node where there are most; 1 where there is none."""
        found = [
            crowd for edge, both in self.crowds.items() for end, crowd in zip(edge, both, strict=True) if end == name
        ]
        return max(found, default=1)

    def sides(self, edge: Edge) -> tuple[int, int]:
        """Return at which side of its nodes an edge begins and ends: 1 is the right, -1 the left."""
        (head, _), (tail, _) = self.nodes[edge[0]], self.nodes[edge[1]]
        if head == tail:
            return 1, 1
        return (1, -1) if tail > head else (-1, 1)


def lay_out(paths: Iterable[Sequence[str]]) -> Layout:
    """Return where to draw paths: each node to the right of all that act on it, but where edges go in a circle.

    The same paths lie in the same places every time.

    Parameters
    ----------
    paths
        The nodes of each path, in order.
    """
    walks = [list(nodes) for nodes in paths]
    order = dict.fromkeys(name for nodes in walks for name in nodes)
    edges = list(dict.fromkeys(edge for nodes in walks for edge in pairwise(nodes)))
    column = _columns(order, edges)
    columns: dict[int, list[_Item]] = {}
    for name in order:
        columns.setdefault(column[name], []).append((name,))
    links: list[tuple[_Item, _Item]] = []
    passed: dict[Edge, list[_Item]] = {}
    for head, tail in edges:
        step = 1 if column[tail] >= column[head] else -1
        between: list[_Item] = [(head, tail, at) for at in range(column[head] + step, column[tail], step)]
        if column[head] == column[tail]:
            between = []
        for item in between:
            columns[int(item[-1])].append(item)
        passed[head, tail] = between
        if column[head] != column[tail]:
            links += pairwise([(head,), *between, (tail,)])
    stacks = [columns[at] for at in sorted(columns)]
    beside = _beside(links)
    rows = _rows(_untangled(stacks, links, beside), beside)
    nodes = {name: (column[name], rows[name,]) for name in order}
    lanes = {edge: tuple((int(item[-1]), rows[item]) for item in items) for edge, items in passed.items()}
    return Layout(nodes, lanes, *_ports(nodes, lanes))


def _columns(order: Iterable[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the column of each node: one more than the last of what acts on it; edges that close a circle aside."""
    forward: dict[str, set[str]] = {}
    for head, tail in edges:
        if not _leads(forward, tail, head):
            forward.setdefault(head, set()).add(tail)
    column = dict.fromkeys(order, 0)
    for _ in column:
        for head, tails in forward.items():
            for tail in tails:
                column[tail] = max(column[tail], column[head] + 1)
    return column


def _leads(forward: Mapping[str, set[str]], start: str, end: str) -> bool:
    """Return whether edges lead from one node to another."""
    seen, waiting = {start}, [start]
    while waiting:
        waiting += [name for name in forward.get(waiting.pop(), ()) if name not in seen]
        seen.update(waiting)
    return end in seen


def _beside(links: Sequence[tuple[_Item, _Item]]) -> dict[_Item, list[_Item]]:
    beside: dict[_Item, list[_Item]] = {}
    for first, second in links:
        beside.setdefault(first, []).append(second)
        beside.setdefault(second, []).append(first)
    return beside


def _untangled(
    stacks: list[list[_Item]], links: Sequence[tuple[_Item, _Item]], beside: Mapping[_Item, list[_Item]]
) -> list[list[_Item]]:
    """Return the columns in the order, of those tried, in which the fewest edges cross.

    Each column is sorted by the mean place of what its items are linked to in the column before, to and fro.
    """
    best, fewest = stacks, _crossings(stacks, links)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        stacks = [list(stack) for stack in stacks]
        numbers = range(1, len(stacks)) if sweep % 2 == 0 else range(len(stacks) - 2, -1, -1)
        for number in numbers:
            known = stacks[number - 1 if sweep % 2 == 0 else number + 1]
            at = {item: place - (len(known) - 1) / 2 for place, item in enumerate(known)}
            middle = (len(stacks[number]) - 1) / 2
            wanted = {}
            for place, item in enumerate(stacks[number]):
                found = [at[other] for other in beside.get(item, ()) if other in at]
                wanted[item] = sum(found) / len(found) if found else place - middle
            stacks[number].sort(key=wanted.__getitem__)
        crossings = _crossings(stacks, links)
        if crossings < fewest:
            best, fewest = stacks, crossings
    return best


def _crossings(stacks: Sequence[Sequence[_Item]], links: Sequence[tuple[_Item, _Item]]) -> int:
    at = {item: (number, place) for number, stack in enumerate(stacks) for place, item in enumerate(stack)}
    by_column: dict[int, list[tuple[int, int]]] = {}
    for link in links:
        (left, first), (_, second) = sorted(at[item] for item in link)
        by_column.setdefault(left, []).append((first, second))
    return sum(
        (first[0] - second[0]) * (first[1] - second[1]) < 0
        for drawn in by_column.values()
        for number, first in enumerate(drawn)
        for second in drawn[:number]
    )


def _rows(stacks: Sequence[Sequence[_Item]], beside: Mapping[_Item, list[_Item]]) -> dict[_Item, float]:
    """Return the row of each item: near what it is linked to, in its column's order, no closer than there is room."""
    offsets = []
    for stack in stacks:
        offset = [0.0] if stack else []
        for first, second in pairwise(stack):
            offset.append(offset[-1] + _GAPS[(len(first) == 1) + (len(second) == 1)])
        offsets.append(offset)
    rows = {
        item: at - offset[-1] / 2 for stack, offset in zip(stacks, offsets, strict=True)
        for item, at in zip(stack, offset, strict=True)
    }  # fmt: skip
    for sweep in range(_SWEEPS):
        for number in range(len(stacks)) if sweep % 2 == 0 else reversed(range(len(stacks))):
            stack, offset = stacks[number], offsets[number]
            wanted = []
            for item, at in zip(stack, offset, strict=True):
                found = [rows[other] for other in beside.get(item, ())]
                wanted.append((sum(found) / len(found) if found else rows[item]) - at)
            rows.update({item: at + shift for item, at, shift in zip(stack, offset, _ascending(wanted), strict=True)})
    least = min(rows.values(), default=0.0)
    return {item: round(row - least, 3) for item, row in rows.items()}


def _ascending(values: Sequence[float]) -> list[float]:
    """Return the ascending numbers that lie nearest to others by squared distance (pooled adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, n = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / n:
            before, m = blocks.pop()
            total, n = total + before, n + m
        blocks.append((total, n))
    return [total / n for total, n in blocks for _ in range(n)]


def _ports(
    nodes: Mapping[str, tuple[int, float]], lanes: Mapping[Edge, tuple[tuple[int, float], ...]]
) -> tuple[dict[Edge, tuple[float, float]], dict[Edge, tuple[int, int]]]:
    """Return where at the sides of its nodes each edge begins and ends, and how many share these sides."""
    sides: dict[tuple[str, int], list[tuple[float, int, Edge, int]]] = {}
    for edge, lane in lanes.items():
        head, tail = edge
        way = [nodes[head], *lane, nodes[tail]]
        for end, (name, here, other) in enumerate(((head, way[0], way[1]), (tail, way[-1], way[-2]))):
            side = 1 if other[0] >= here[0] else -1
            sides.setdefault((name, side), []).append((other[1], len(lane), edge, end))
    places: dict[tuple[Edge, int], tuple[float, int]] = {}
    for meeting in sides.values():
        for place, (_, _, edge, end) in enumerate(sorted(meeting)):
            places[edge, end] = (place - (len(meeting) - 1) / 2, len(meeting))
    return (
        {edge: (places[edge, 0][0], places[edge, 1][0]) for edge in lanes},
        {edge: (places[edge, 0][1], places[edge, 1][1]) for edge in lanes},
    )
