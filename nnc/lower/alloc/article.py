"""The allocation algorithm of libnnc's article, faithfully, to compare others with.

Tensors become vertices of a flow graph between a source and a sink. An edge u → v of weight w at offset o says that w bytes at
o pass from u to v when u dies. A tensor, or a few that never live together, is put onto an edge that is heavy enough and
whose ends live before and after it; where there is none, an edge from source to sink opens a group, memory of its own.
Flow that has split never joins again, and groups share nothing: other planners do better there.
Cost: O(n · candidates · edges), candidates up to n² in the worst case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from nnc.base.records import record
from nnc.lower.alloc.problem import Ints, Problem

_FAR = 2**40  # how far away the source and the sink are, in steps
_CHUNK = 16  # candidates that are looked at together; twice as many then, since one of the first mostly fits


@record
class Groups:
    """A plan: the group of each block, its offset in the arena (where groups follow each other), and the groups' sizes."""

    group: Ints
    offsets: Ints
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """The size of the arena."""
        return sum(self.sizes)


@record
class _Edge:
    weight: int
    offset: int
    group: int
    begin: int  # the step from which the bytes are free; -_FAR at the source
    end: int  # the step from which the target needs them; _FAR at the sink


@record
class _Candidates:
    """Tuples of one or two blocks (-1: none), in the order in which they are tried."""

    first: Ints
    second: Ints

    def blocks(self, at: int) -> tuple[int, ...]:
        """Returns the blocks of a tuple."""
        pair = int(self.first[at]), int(self.second[at])
        return pair if pair[1] >= 0 else pair[:1]


def plan_groups(p: Problem, *, size_first: bool = False) -> Groups:
    """Inserts all blocks.

    A block with several live ranges is a tensor with its companions, which are inserted as one tuple.

    Args:
        size_first: whether the largest blocks are candidates, rather than those with the most conflicts, and pairs are not
            tried.
    """
    n = len(p.size)
    conflicts, edges = _Conflicts(p), _Edges(p, pairs=not size_first)
    group, offset = np.zeros(n, np.int64), np.zeros(n, np.int64)
    while conflicts.waiting.any():
        candidates = _by_size(p, conflicts) if size_first else _by_conflicts(p, conflicts)
        at = edges.first_fit(candidates)
        blocks = candidates.blocks(at if at is not None else 0)
        edge = edges.tightest(blocks) if at is not None else edges.new_group(blocks)
        for b in blocks:
            group[b], offset[b] = edge.group, edge.offset
            conflicts.insert(b)
        edges.replace(edge, _flows(p, blocks, edge))
    sizes = tuple(edges.sizes)
    base = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
    return Groups(group, base[group] + offset, sizes)


class _Conflicts:
    """For each row the number of rows, not inserted yet, that live together with it."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.waiting = np.ones(len(p.size), bool)
        self.count = np.searchsorted(p.lo, p.hi, side="left") - np.searchsorted(np.sort(p.hi), p.lo, side="right") - 1

    def insert(self, block: int) -> None:
        """Counts the rows of `block` no more."""
        self.waiting[block] = False
        for row in self.p.rows_of(block):
            self.count[(self.p.lo < self.p.hi[row]) & (self.p.hi > self.p.lo[row])] -= 1

    def of_blocks(self) -> Ints:
        """For each block the largest number among its rows."""
        result = np.zeros(len(self.p.size), np.int64)
        np.maximum.at(result, self.p.owner, self.count)
        return result


def _by_conflicts(p: Problem, conflicts: _Conflicts) -> _Candidates:
    """Returns the blocks with the most conflicts, alone and each with a larger one that lives at other times; large sizes first."""
    count = np.where(conflicts.waiting, conflicts.of_blocks(), -1)
    most = np.flatnonzero(count == count.max())
    total = np.zeros(len(p.size), np.int64)
    np.add.at(total, p.owner, conflicts.count)
    single = conflicts.waiting & (np.diff(p.first_row) == 1)
    pairs: list[tuple[Ints, Ints]] = []
    for a in most.tolist():
        together = np.zeros(len(p.size), bool)
        for row in p.rows_of(a):
            together[p.owner[(p.lo < p.hi[row]) & (p.hi > p.lo[row])]] = True
        partners = np.append(np.flatnonzero(single & ~together & (p.size > p.size[a])), -1)
        pairs.append((np.full(len(partners), a), partners))
    first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    size = np.where(second < 0, p.size[first], p.size[second])
    summed = total[first] + np.where(second < 0, 0, total[second])
    order = np.lexsort((second, first, -summed, -size))
    return _Candidates(first[order], second[order])


def _by_size(p: Problem, conflicts: _Conflicts) -> _Candidates:
    """Returns the largest blocks, the one with the most conflicts first."""
    size = np.where(conflicts.waiting, p.size, -1)
    largest = np.flatnonzero(size == size.max())
    count = conflicts.of_blocks()
    first = largest[np.lexsort((largest, -count[largest]))]
    return _Candidates(first, np.full(len(first), -1))


class _Edges:
    """The edges of each group.

    Edges only become lighter and shorter, so a group that has refused a tuple refuses it for good. For each pair of blocks, the
    number of groups that have refused it is kept, so that most candidates need not be compared with edges again.

    Args:
        pairs: whether tuples may be pairs of blocks.
    """

    def __init__(self, p: Problem, pairs: bool) -> None:
        self.p = p
        self.sizes: list[int] = []
        self._edges: list[list[_Edge]] = []
        # of each group the weights, begins and ends of edges that have not both ends open
        self._tables: list[Ints | None] = []
        n = len(p.size)
        self._refused = np.zeros((n, n + 1 if pairs else 1), np.int16)  # the last column is for blocks alone

    def first_fit(self, candidates: _Candidates) -> int | None:
        """Returns the first tuple that fits on an edge."""
        p, first, second = self.p, candidates.first, candidates.second
        waiting = np.flatnonzero(self._refused[first, second] < len(self._edges))
        at, count = 0, _CHUNK
        while at < len(waiting):
            chunk = waiting[at : at + count]
            at, count = at + count, 2 * count
            a, b = first[chunk], second[chunk]
            other = np.where(b < 0, a, b)
            wanted = (
                np.maximum(p.size[a], p.size[other]),
                np.minimum(p.start[a], p.start[other]),
                np.maximum(p.end[a], p.end[other]),
            )
            known, fits = self._refused[a, b], np.zeros(len(chunk), bool)
            for group in range(int(known.min()), len(self._edges)):
                fits |= (known <= group) & self._fits(group, *wanted)
            found = np.flatnonzero(fits)
            refused = chunk[: found[0]] if found.size else chunk
            self._refused[first[refused], second[refused]] = len(self._edges)
            if found.size:
                return int(chunk[found[0]])
        return None

    def _fits(self, group: int, size: Ints, start: Ints, end: Ints) -> Any:
        """Returns whether each of some tuples fits on an edge of a group."""
        table = self._tables[group]
        if table is None:
            rows = [(e.weight, e.begin, e.end) for e in self._edges[group] if e.begin > -_FAR or e.end < _FAR]
            table = self._tables[group] = np.array(rows, np.int64).reshape(-1, 3).T
        weight, begin, until = table[:, :, None]
        return ((weight >= size) & (begin <= start) & (end <= until)).any(0)

    def tightest(self, blocks: tuple[int, ...]) -> _Edge:
        """Finds the edge whose ends are nearest to a tuple in time, among the edges that it fits on and that have not both ends
        open.
        """
        p = self.p
        size = max(int(p.size[b]) for b in blocks)
        start, end = min(int(p.start[b]) for b in blocks), max(int(p.end[b]) for b in blocks)
        best, least = None, 4 * _FAR
        for edge in (edge for group in self._edges for edge in group):
            fits = edge.weight >= size and edge.begin <= start and end <= edge.end
            if fits and (edge.begin > -_FAR or edge.end < _FAR):
                before = start - edge.begin if edge.begin > -_FAR else _FAR
                after = edge.end - end if edge.end < _FAR else _FAR
                if before + after < least:
                    best, least = edge, before + after
        assert best is not None
        return best

    def new_group(self, blocks: tuple[int, ...]) -> _Edge:
        """Returns the edge of a group that is opened for a tuple."""
        edge = _Edge(max(int(self.p.size[b]) for b in blocks), 0, len(self.sizes), -_FAR, _FAR)
        self.sizes.append(edge.weight)
        self._edges.append([edge])
        self._tables.append(None)
        return edge

    def replace(self, edge: _Edge, others: Iterable[_Edge]) -> None:
        """Replaces one edge of a group by others."""
        self._edges[edge.group].remove(edge)
        self._edges[edge.group] += others
        self._tables[edge.group] = None


def _flows(p: Problem, blocks: tuple[int, ...], edge: _Edge) -> Iterator[_Edge]:
    """Splits an edge: each byte passes from the begin to the members that cover it, in order of time, and to the end."""
    rows = sorted((int(p.lo[row]), int(p.hi[row]), int(p.size[b])) for b in blocks for row in p.rows_of(b))
    stations = [(edge.begin, edge.begin, edge.weight), *rows, (edge.end, edge.end, edge.weight)]
    for i, (_, begin, size) in enumerate(stations):
        covered = 0  # bytes that a member in between takes over
        for end, _, wanted in stations[i + 1 :]:
            passed = min(size, wanted)
            if passed > covered:
                yield _Edge(passed - covered, edge.offset + covered, edge.group, begin, end)
                covered = passed
