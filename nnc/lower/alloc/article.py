"""The allocation algorithm of libnnc's article, faithfully, to compare others with.

Tensors become vertices of a flow graph between a source and a sink. An edge u → v of weight w at offset o says that w bytes at
o pass from u to v when u dies. A tensor, or a few that never live together, is put onto an edge that is heavy enough and
whose ends live before and after it; where there is none, an edge from source to sink opens a group, memory of its own.
Flow that has split never joins again, and groups share nothing: that is what other planners do better.
Cost: O(n · candidates · edges), candidates up to n² in the worst case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnc.lower.alloc.problem import Ints, Problem

_FAR = 2**40  # how far away the source and the sink are, in steps


@dataclass(frozen=True, slots=True)
class Groups:
    """A plan: the group of each block, its offset in the arena (where groups follow each other), and the groups' sizes."""

    group: Ints
    offsets: Ints
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """The size of the arena."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class _Edge:
    weight: int
    offset: int
    group: int
    begin: int  # the step from which the bytes are free; -_FAR at the source
    end: int  # the step from which the target needs them; _FAR at the sink


Candidate = tuple[int, ...]  # the blocks of a tuple


def plan_groups(p: Problem, *, size_first: bool = False) -> Groups:
    """Inserts all blocks.

    A block with several live ranges is a tensor with its companions: they are inserted as one tuple.

    Args:     size_first: candidates are the largest blocks rather than those with the most conflicts, and pairs are not tried.
    """
    n = len(p.size)
    conflicts = _Conflicts(p)
    edges: list[list[_Edge]] = []  # of each group
    refused: dict[tuple[int, int, int], int] = {}
    sizes: list[int] = []
    group, offset = np.zeros(n, np.int64), np.zeros(n, np.int64)
    while conflicts.waiting.any():
        candidates = _by_size(p, conflicts) if size_first else _by_conflicts(p, conflicts)
        first: Candidate | None = None
        chosen: tuple[Candidate, _Edge] | None = None
        for blocks in candidates:
            first = first or blocks
            edge = _tightest(p, blocks, edges, refused)
            if edge is not None:
                chosen = blocks, edge
                break
        if chosen is None:
            assert first is not None
            edge = _Edge(max(int(p.size[b]) for b in first), 0, len(sizes), -_FAR, _FAR)
            edges.append([edge])
            sizes.append(edge.weight)
            chosen = first, edge
        blocks, edge = chosen
        edges[edge.group].remove(edge)
        for b in blocks:
            group[b], offset[b] = edge.group, edge.offset
            conflicts.insert(b)
        edges[edge.group] += _flows(p, blocks, edge)
    base = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
    return Groups(group, base[group] + offset, tuple(sizes))


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


def _by_conflicts(p: Problem, conflicts: _Conflicts) -> Iterator[Candidate]:
    """The blocks with the most conflicts, alone and each with a larger one that lives at other times; large sizes first."""
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
        partners = np.append(np.flatnonzero(single & ~together & (p.size > p.size[a])), -1)  # -1: none
        pairs.append((np.full(len(partners), a), partners))
    first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    size = np.where(second < 0, p.size[first], p.size[second])
    summed = total[first] + np.where(second < 0, 0, total[second])
    for i in np.lexsort((second, first, -summed, -size)):
        yield (int(first[i]),) if second[i] < 0 else (int(first[i]), int(second[i]))


def _by_size(p: Problem, conflicts: _Conflicts) -> Iterator[Candidate]:
    """The largest blocks, the one with the most conflicts first."""
    size = np.where(conflicts.waiting, p.size, -1)
    largest = np.flatnonzero(size == size.max())
    count = conflicts.of_blocks()
    for b in largest[np.lexsort((largest, -count[largest]))]:
        yield (int(b),)


def _tightest(
    p: Problem, blocks: Candidate, edges: list[list[_Edge]], refused: dict[tuple[int, int, int], int]
) -> _Edge | None:
    """The edge whose ends are nearest to the tuple in time, of those that it fits on and that have not both ends open.

    Edges only become lighter and shorter, so a group that has refused a tuple does so ever after; `refused` is the number of
    groups that have, by the size and the life of the tuple.
    """
    size = max(int(p.size[b]) for b in blocks)
    start, end = min(int(p.start[b]) for b in blocks), max(int(p.end[b]) for b in blocks)
    key = size, start, end
    best, least = None, 4 * _FAR
    for group in edges[refused.get(key, 0) :]:
        for edge in group:
            fits = edge.weight >= size and edge.begin <= start and end <= edge.end
            if fits and (edge.begin > -_FAR or edge.end < _FAR):
                before = start - edge.begin if edge.begin > -_FAR else _FAR
                after = edge.end - end if edge.end < _FAR else _FAR
                distance = before + after
                if distance < least:
                    best, least = edge, distance
    if best is None:
        refused[key] = len(edges)
    return best


def _flows(p: Problem, blocks: Candidate, edge: _Edge) -> Iterator[_Edge]:
    """What becomes of an edge: each byte passes from the begin to the members that cover it, in order of time, and to the end."""
    rows = sorted((int(p.lo[row]), int(p.hi[row]), int(p.size[b])) for b in blocks for row in p.rows_of(b))
    stations = [(edge.begin, edge.begin, edge.weight), *rows, (edge.end, edge.end, edge.weight)]
    for i, (_, begin, size) in enumerate(stations):
        covered = 0  # bytes that a member in between takes over
        for end, _, wanted in stations[i + 1 :]:
            passed = min(size, wanted)
            if passed > covered:
                yield _Edge(passed - covered, edge.offset + covered, edge.group, begin, end)
                covered = passed
