"""Places the boxes of a graph in rows: geometry alone, on numbers.

The layered drawing of Sugiyama, Tagawa and Toda (1981): rows by longest path, the order within rows by the barycentre of
neighbours, positions by least squares. Wires that pass many rows run in lanes at the left, so that their number does not matter.
O((boxes + wires) log boxes). Same graph, same drawing, in every process.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GAP, SPACE = 30.0, 14.0  # between rows; between the boxes of a row
_WIDEST = 1500.0  # a row, by its boxes
_LANE, _NEAR, _SWEEPS = 4.0, 6, 6  # width of a lane; rows that a wire passes among boxes; sweeps over all rows
_THREAD = 8.0  # room for a wire among boxes

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Wire:
    """From box `start` to box `end`: a line through `points`, along curves or, where it has a lane, along the axes."""

    start: int
    end: int
    points: tuple[Point, ...]
    in_lane: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of boxes: `corners` are their upper left ones; `rows` are (top, height), `row_of` tells the row of each box."""

    corners: tuple[Point, ...]
    row_of: tuple[int, ...]
    rows: tuple[tuple[float, float], ...]
    wires: tuple[Wire, ...]
    width: float
    height: float


def lay_out(
    sizes: Sequence[Point], reads: Sequence[Sequence[int]], given: Iterable[int], light: Iterable[int], port: float
) -> Layout:
    """Returns the layout of boxes.

    Args:
        sizes: (width, height) of each box.
        reads: the boxes that each reads, all before it.
        given: boxes that stand near their first reader.
        light: those and others to which wires may be long.
        port: how far below the top of a box its wires begin, behind it.
    """
    if not sizes:
        return Layout((), (), (), (), 0.0, 0.0)
    rows = _find_rows([width for width, _ in sizes], reads, frozenset(given), frozenset(light))
    pairs = list(dict.fromkeys((j, i) for i, read in enumerate(reads) for j in read))
    near = [(a, b) for a, b in pairs if rows[b] - rows[a] <= _NEAR]
    far = [(a, b) for a, b in pairs if rows[b] - rows[a] > _NEAR]
    grid = _Grid([width for width, _ in sizes], rows, near)
    grid.improve()
    lanes, count = _find_lanes(far, rows)
    left = count * _LANE + (SPACE if count else 0.0)
    start = min(x - size / 2 for x, size in zip(grid.x, grid.widths, strict=True))
    middle = [x - start + left for x in grid.x]
    tops, heights, y = [], [], 0.0
    for row in range(len(grid.rows)):
        tops.append(y)
        heights.append(max((sizes[i][1] for i in grid.rows[row] if i < len(sizes)), default=0.0))
        y += heights[row] + GAP
    wires = [Wire(a, b, _thread(grid, middle, tops, heights, rows, (a, b), port), False) for a, b in near]
    for a, b in far:
        lane, above, below = lanes[a] * _LANE, tops[rows[a]] + heights[rows[a]], tops[rows[b]]
        leave, enter = above + 4 + a % 5 * 2, below - 6 - a % 5 * 2  # so that neighbours are told apart
        corners = (middle[a], leave), (lane, leave), (lane, enter), (middle[b], enter)
        wires.append(Wire(a, b, ((middle[a], tops[rows[a]] + port), *corners, (middle[b], below)), True))
    return Layout(
        corners=tuple((middle[i] - sizes[i][0] / 2, tops[rows[i]]) for i in range(len(sizes))),
        row_of=tuple(rows),
        rows=tuple(zip(tops, heights, strict=True)),
        wires=tuple(wires),
        width=max(x + size / 2 for x, size in zip(middle, grid.widths, strict=True)),
        height=y - GAP,
    )


def _find_rows(
    widths: Sequence[float], reads: Sequence[Sequence[int]], given: frozenset[int], light: frozenset[int]
) -> list[int]:
    """Returns the row of each box: below all that it reads; further down where that makes more wires shorter than longer."""
    count = len(reads)
    readers: list[list[int]] = [[] for _ in reads]
    rows = [0] * count
    for i, read in enumerate(reads):
        rows[i] = max((rows[j] + 1 for j in read if j not in given), default=1)
        for j in dict.fromkeys(read):
            readers[j].append(i)
    held = [0] * count  # wires that grow when a box moves down; boxes that only it needs move along
    for i, read in enumerate(reads):
        held[i] = sum(j not in light and (held[j] > 0 or len(readers[j]) > 1) for j in dict.fromkeys(read))
    for i in reversed(range(count)):
        if len(readers[i]) > held[i]:
            rows[i] = min(rows[j] for j in readers[i]) - 1
    for i in range(1, count):
        if not readers[i] and light.issuperset(reads[i]):  # nobody needs it: near the node recorded before it
            rows[i] = max(rows[i], rows[i - 1])
    filled: dict[int, float] = {}
    after: dict[int, int] = {}  # where to look on from a row that is full

    def place(i: int, row: int, step: int) -> int:
        """Returns the first row from `row` on that has room."""
        passed = []
        while filled.get(row, 0.0) >= _WIDEST:
            passed.append(row)
            row = after.get(row, row + step)
        after.update(dict.fromkeys(passed, row))
        filled[row] = filled.get(row, 0.0) + widths[i] + SPACE
        return row

    for i in sorted((i for i in range(count) if i not in given), key=lambda i: (rows[i], i)):
        rows[i] = place(i, max([rows[i], *(rows[j] + 1 for j in reads[i] if j not in given)]), 1)
    after.clear()
    for i in sorted(given):
        rows[i] = place(i, min((rows[j] for j in readers[i]), default=1) - 1, -1)
    used = {row: at for at, row in enumerate(sorted(set(rows)))}
    return [used[row] for row in rows]


class _Grid:
    """Boxes, and a point for each row that a wire passes, in their rows."""

    def __init__(self, widths: list[float], rows: list[int], wires: Sequence[tuple[int, int]]) -> None:
        self.widths = list(widths)
        self.rows: list[list[int]] = [[] for _ in range(max(rows) + 1)]
        for i, row in enumerate(rows):
            self.rows[row].append(i)
        self.above: list[list[int]] = [[] for _ in widths]
        self.below: list[list[int]] = [[] for _ in widths]
        self.paths: dict[tuple[int, int], list[int]] = {}
        through: dict[tuple[int, int], int] = {}  # the wires of a box share their points
        for a, b in wires:
            path = [a]
            for row in range(rows[a] + 1, rows[b]):
                if (a, row) not in through:
                    through[a, row] = self._point(row)
                    self._join(path[-1], through[a, row])
                path.append(through[a, row])
            self._join(path[-1], b)
            self.paths[a, b] = [*path, b]
        self.x = [0.0] * len(self.widths)

    def _point(self, row: int) -> int:
        self.widths.append(_THREAD)
        self.above.append([])
        self.below.append([])
        self.rows[row].append(len(self.widths) - 1)
        return len(self.widths) - 1

    def _join(self, a: int, b: int) -> None:
        self.below[a].append(b)
        self.above[b].append(a)

    def improve(self) -> None:
        """Orders rows by their neighbours, from the top and from the bottom in turn, then straightens wires in that order."""
        for row in self.rows:
            self._place(row, [0.0] * len(row))
        for sweep in range(_SWEEPS):
            neighbours = self.below if sweep % 2 else self.above
            for row in reversed(self.rows) if sweep % 2 else self.rows:
                wanted = {i: self._mean(neighbours[i], self.x[i]) for i in row}
                row.sort(key=wanted.__getitem__)
                self._place(row, [wanted[i] for i in row])
        for row in (*self.rows, *reversed(self.rows)):
            self._place(row, [self._mean((*self.above[i], *self.below[i]), self.x[i]) for i in row])

    def _mean(self, neighbours: Sequence[int], otherwise: float) -> float:
        return sum(self.x[j] for j in neighbours) / len(neighbours) if neighbours else otherwise

    def _place(self, row: Sequence[int], wanted: Sequence[float]) -> None:
        """The places nearest to `wanted` in which no two of a row overlap: isotonic regression, by pooling."""
        offset, offsets = 0.0, []
        pools: list[tuple[float, int]] = []  # (sum, count) of wanted places, less the room of boxes before
        for place, (i, x) in enumerate(zip(row, wanted, strict=True)):
            if place:
                offset += (self.widths[row[place - 1]] + self.widths[i]) / 2 + SPACE
            offsets.append(offset)
            total, count = x - offset, 1
            while pools and pools[-1][0] * count >= total * pools[-1][1]:
                total, count = total + pools[-1][0], count + pools.pop()[1]
            pools.append((total, count))
        means = [total / count for total, count in pools for _ in range(count)]
        for i, mean, offset in zip(row, means, offsets, strict=True):
            self.x[i] = mean + offset


def _find_lanes(wires: Sequence[tuple[int, int]], rows: Sequence[int]) -> tuple[dict[int, int], int]:
    """Returns the lane of each box that far ones read, and the number of lanes; a lane is used again where it is free."""
    last: dict[int, int] = {}
    for a, b in wires:
        last[a] = max(last.get(a, 0), rows[b])
    lanes: dict[int, int] = {}
    busy: list[tuple[int, int]] = []  # (last row, lane)
    free: list[int] = []
    count = 0
    for a in sorted(last, key=lambda a: (rows[a], -last[a])):
        while busy and busy[0][0] < rows[a]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, count)
            count += 1
        lanes[a] = heapq.heappop(free)
        heapq.heappush(busy, (last[a], lanes[a]))
    return lanes, count


def _thread(
    grid: _Grid,
    middle: Sequence[float],
    tops: Sequence[float],
    heights: Sequence[float],
    rows: Sequence[int],
    wire: tuple[int, int],
    port: float,
) -> tuple[Point, ...]:
    """Straight down through each row that a wire passes, with a curve between rows."""
    a, b = wire
    points = [(middle[a], tops[rows[a]] + port), (middle[a], tops[rows[a]] + heights[rows[a]])]
    for row, i in enumerate(grid.paths[wire][1:-1], rows[a] + 1):
        points += (middle[i], tops[row]), (middle[i], tops[row] + heights[row])
    return (*points, (middle[b], tops[rows[b]]))
