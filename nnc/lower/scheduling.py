"""Orders operations so that little memory is live at once: graph theory alone, on numbers.

List schedules by several rules, each cheap and good at another kind of graph; the best wins, the given order where none is
better. Same graph, same order, in every process.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add
from typing import Any

Order = list[int]
Priority = Callable[[int, int, int], tuple[int, int]]  # (bytes added, bytes freed, operation)
_NEVER = -1
_REFINEMENT = 200_000  # operations: about a fifth of a second


@dataclass(frozen=True)
class OperationGraph:
    """Operations in a valid order, and the storages that they read and write.

    Storage s takes `nbytes[s]` from the operation that writes it to the last that reads it, or to the end if it is in `kept`;
    storages that nothing writes are there all the time and cost nothing here. Operation i must follow those of `after[i]` beside
    the writers of what it reads. `overwrites[i]` are pairs (read, written) of storages that may share memory when i is the last
    reader.
    """

    nbytes: Sequence[int]
    reads: Sequence[tuple[int, ...]]
    writes: Sequence[tuple[int, ...]]
    after: Sequence[tuple[int, ...]]
    overwrites: Sequence[tuple[tuple[int, int], ...]]
    kept: frozenset[int] = field(default_factory=frozenset)

    @cached_property
    def writer(self) -> list[int]:
        """The operation that writes each storage, -1 for those that are given."""
        writer = [_NEVER] * len(self.nbytes)
        for i, written in enumerate(self.writes):
            for s in written:
                writer[s] = i
        return writer

    @cached_property
    def readers(self) -> list[list[int]]:
        """The operations that read each storage."""
        readers: list[list[int]] = [[] for _ in self.nbytes]
        for i, read in enumerate(self.reads):
            for s in dict.fromkeys(read):
                readers[s].append(i)
        return readers

    @cached_property
    def before(self) -> list[list[int]]:
        """The operations that must precede each."""
        writers = ((self.writer[s] for s in read) for read in self.reads)
        found = (dict.fromkeys((*after, *wrote)) for after, wrote in zip(self.after, writers, strict=True))
        return [[j for j in predecessors if j != _NEVER and j != i] for i, predecessors in enumerate(found)]

    @cached_property
    def following(self) -> list[list[int]]:
        """The operations that must follow each."""
        following: list[list[int]] = [[] for _ in self.reads]
        for i, predecessors in enumerate(self.before):
            for j in predecessors:
                following[j].append(i)
        return following

    @cached_property
    def ending(self) -> list[list[int]]:
        """The storages that end with each operation if it is their last reader: those that take bytes and are not kept."""
        ends = [
            n > 0 and i != _NEVER and s not in self.kept
            for s, (n, i) in enumerate(zip(self.nbytes, self.writer, strict=True))
        ]
        return [list(dict.fromkeys(s for s in read if ends[s])) for read in self.reads]

    @cached_property
    def written(self) -> list[tuple[int, int]]:
        """The bytes that each operation writes, and those among them that nothing reads."""
        nbytes, readers, kept = self.nbytes, self.readers, self.kept
        unread = [0 if read or s in kept else n for s, (n, read) in enumerate(zip(nbytes, readers, strict=True))]
        return [
            (nbytes[wrote[0]], unread[wrote[0]])
            if len(wrote) == 1 else (sum(nbytes[s] for s in wrote), sum(unread[s] for s in wrote))
            for wrote in self.writes
        ]  # fmt: skip

    def live_bytes(self, order: Sequence[int]) -> list[int]:
        """The bytes that are live while each operation of `order` runs."""
        before, added = self.run(order, list(map(len, self.readers)), 0)
        return list(map(add, before, added))

    def run(self, order: Sequence[int], left: Any, live: int) -> tuple[list[int], list[int]]:
        """The bytes that are live before each of these operations, and those that it needs beside them.

        Args:     left: as for `effect`; it is counted down. live: the bytes that are live before all of them.
        """
        ending, written = self.ending, self.written
        before, needed = [], []
        for i in order:
            added, freed = written[i]
            if ending[i]:
                dying = [s for s in ending[i] if left[s] == 1]
                if dying:
                    added, freed = self._after_ending(i, dying)
                for s in ending[i]:
                    left[s] -= 1
            before.append(live)
            needed.append(added)
            live += added - freed
        return before, needed

    def effect(self, i: int, left: Sequence[int] | Mapping[int, int]) -> tuple[int, int]:
        """The bytes that operation i needs beside those that are live, and those that it leaves free.

        Args:     left: for each storage that can end, the number of readers that have not run yet, i among them.
        """
        dying = [s for s in self.ending[i] if left[s] == 1]
        return self._after_ending(i, dying) if dying else self.written[i]

    def _after_ending(self, i: int, dying: list[int]) -> tuple[int, int]:
        """As `effect`, for the storages that end with operation i."""
        nbytes = self.nbytes
        added, freed = self.written[i]
        for s in dying:
            freed += nbytes[s]
        if self.overwrites[i]:
            taken: set[int] = set()
            for read, written in self.overwrites[i]:
                if read in dying and written not in taken:
                    dying.remove(read)
                    taken.add(written)
                    added -= nbytes[written]
                    freed -= nbytes[read]
        return added, freed

    def peak(self, order: Sequence[int]) -> int:
        """The largest live set of an order."""
        return max(self.live_bytes(order), default=0)


class _Forward:
    """A schedule in the making, from the first operation on."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph, self.before, self.following = graph, graph.before, graph.following
        self._left = [len(readers) for readers in graph.readers]

    def effect(self, i: int) -> tuple[int, int]:
        """The bytes that i needs beside those that are live, and those that it leaves free."""
        return self.graph.effect(i, self._left)

    def run(self, i: int) -> Iterator[int]:
        """Runs i; yields operations that free more from now on: they became the only reader that is left."""
        for s in self.graph.ending[i]:
            self._left[s] -= 1
            if self._left[s] == 1:
                yield from self.graph.readers[s]


class _Backward:
    """A schedule in the making, from the last operation backwards: reading makes a storage live, writing it ends that."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph, self.before, self.following = graph, graph.following, graph.before
        self._live = [writer == _NEVER or s in graph.kept for s, writer in enumerate(graph.writer)]

    def effect(self, i: int) -> tuple[int, int]:
        """The bytes that i needs beside those that are live, and those that it leaves free."""
        nbytes, live = self.graph.nbytes, self._live
        added = sum(nbytes[s] for s in {*self.graph.reads[i], *self.graph.writes[i]} if not live[s])
        return added, sum(nbytes[s] for s in self.graph.writes[i])

    def run(self, i: int) -> Iterator[int]:
        """Runs i; yields operations that need less from now on: something that they read became live."""
        for s in dict.fromkeys(self.graph.reads[i]):
            if not self._live[s]:
                self._live[s] = True
                yield from self.graph.readers[s]


def improve_order(graph: OperationGraph) -> Order:
    """The order with the smallest peak that is found; the given one where none is better.

    Several rules make orders; small moves then improve the best of them.
    """
    best = list(range(len(graph.reads)))
    least = graph.peak(best)
    if not least:
        return best
    for candidate in _candidates(graph):
        peak = graph.peak(candidate)
        if peak < least:
            best, least = candidate, peak
    return _refine(graph, best)


def _candidates(graph: OperationGraph) -> Iterator[Order]:
    """Orders by different rules, each also with operations that free at least what they take run as soon as they can."""
    given = list(range(len(graph.reads)))
    yield _schedule(_Forward(graph), _eager(given))
    by_depth = _depth_first(graph)
    yield by_depth
    yield _schedule(_Forward(graph), _eager(by_depth))
    yield _schedule(_Forward(graph), lambda added, freed, i: (added - freed, i))
    yield _schedule(_Forward(graph), lambda added, freed, i: (added - freed, -i))
    latest = _schedule(_Backward(graph), lambda added, freed, i: (added - freed, -i))[::-1]
    yield latest
    yield _schedule(_Forward(graph), _eager(latest))


def _eager(order: Sequence[int]) -> Priority:
    """Operations that free at least what they take at once, the others by `order`."""
    position = _positions(order)
    return lambda added, freed, i: (0 if added <= freed else 1, position[i])


def _positions(order: Sequence[int]) -> list[int]:
    position = [0] * len(order)
    for place, i in enumerate(order):
        position[i] = place
    return position


def _schedule(state: _Forward | _Backward, priority: Priority) -> Order:
    """Runs at every turn the ready operation of the least priority, which may depend on what is live: O(n log n).

    An operation whose effect improves enters the queue once more; entries of operations that ran are passed over.
    """
    waiting = [len(before) for before in state.before]
    ran = [False] * len(waiting)
    queue = [(priority(*state.effect(i), i), i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(queue)
    order: Order = []
    while queue:
        _, i = heapq.heappop(queue)
        if ran[i]:
            continue
        ran[i] = True
        order.append(i)
        changed = {j: None for j in state.run(i) if not ran[j] and not waiting[j]}
        for j in state.following[i]:
            waiting[j] -= 1
            if not waiting[j]:
                changed[j] = None
        for j in changed:
            heapq.heappush(queue, (priority(*state.effect(j), j), j))
    return order


def _depth_first(graph: OperationGraph) -> Order:
    """Each operation after what it needs, that with the largest results first, from the last operations backwards."""
    size = [sum(graph.nbytes[s] for s in written) for written in graph.writes]
    seen = [False] * len(size)
    order: Order = []
    for root in (i for i, following in enumerate(graph.following) if not following):
        stack = [(root, False)]
        while stack:
            i, done = stack.pop()
            if done:
                order.append(i)
            elif not seen[i]:
                seen[i] = True
                stack.append((i, True))
                stack += [(j, False) for j in sorted(graph.before[i], key=lambda j: (size[j], -j)) if not seen[j]]
    return order


@dataclass(frozen=True)
class _Placed:
    """An order, the bytes that are live before each place, and while the operation there runs."""

    graph: OperationGraph
    order: Order
    before: list[int]
    live: list[int]

    @classmethod
    def of(cls, graph: OperationGraph, order: Order) -> _Placed:
        """The form of an order."""
        before, added = graph.run(order, list(map(len, graph.readers)), 0)
        return cls(graph, order, before, list(map(add, before, added)))

    @cached_property
    def position(self) -> list[int]:
        """The place of each operation."""
        return _positions(self.order)

    def moved(self, first: int, part: Sequence[int]) -> _Placed:
        """The order in which those from place `first` on stand as in `part`; nothing changes before and behind them."""
        ending, readers, position = self.graph.ending, self.graph.readers, self.position
        left: dict[int, int] = {}
        for i in part:
            for s in ending[i]:
                if s not in left:
                    left[s] = sum([position[j] >= first for j in readers[s]])
        before, added = self.graph.run(part, left, self.before[first])
        end = first + len(part)
        return _Placed(
            self.graph,
            [*self.order[:first], *part, *self.order[end:]],
            [*self.before[:first], *before, *self.before[end:]],
            [*self.live[:first], *map(add, before, added), *self.live[end:]],
        )


def _refine(graph: OperationGraph, order: Order) -> Order:
    """Moves writers of what is live at the peak behind it, and readers before it, while that lowers the peak.

    The budget counts operations looked at, so it does not depend on the machine.
    """
    placed = _Placed.of(graph, order)
    budget = _REFINEMENT // len(order)
    improved = True
    while improved and budget > 0:
        improved = False
        least = max(placed.live)
        count = placed.live.count(least)
        for first, part in _moves(placed, placed.live.index(least)):
            budget -= 1
            candidate = placed.moved(first, part)
            if (max(candidate.live), candidate.live.count(least)) < (least, count):
                placed, improved = candidate, True
                break
            if budget <= 0:
                break
    return placed.order


def _moves(placed: _Placed, peak: int) -> Iterator[tuple[int, Order]]:
    """Parts of an order, from a place on, in which something that is live at place `peak`, though not used there, is no longer:
    largest first."""
    graph, order, position = placed.graph, placed.order, placed.position
    at = order[peak]
    used = {*graph.reads[at], *graph.writes[at]}
    bystanders = []
    for s, writer in enumerate(graph.writer):
        if writer != _NEVER and s not in used and position[writer] < peak and graph.nbytes[s]:
            last = max((position[i] for i in graph.readers[s]), default=-1)
            if last > peak or s in graph.kept:
                bystanders.append((-graph.nbytes[s], s, last))
    first = min((position[graph.writer[s]] for _, s, _ in bystanders), default=peak)
    end = max((last for _, _, last in bystanders), default=peak)
    needed = _reached([at], graph.before, position, range(first, peak))
    following = _reached([at], graph.following, position, range(peak, end + 1))
    for _, s, last in sorted(bystanders):
        writer = graph.writer[s]
        start = position[writer]
        if writer not in needed:  # it and what follows from it go behind the peak
            group = _reached([writer], graph.following, position, range(start, peak))
            between = order[start : peak + 1]
            yield start, [*(i for i in between if i not in group), *(i for i in between if i in group)]
        readers = [reader for reader in graph.readers[s] if position[reader] > peak]
        if s not in graph.kept and following.isdisjoint(readers):  # they and what they need go before the peak
            group = _reached(readers, graph.before, position, range(peak, last + 1))
            between = order[peak : last + 1]
            yield peak, [*(i for i in between if i in group), *(i for i in between if i not in group)]


def _reached(starts: Sequence[int], edges: Sequence[Sequence[int]], position: Sequence[int], inside: range) -> set[int]:
    """What edges lead to from `starts`, these included, at places `inside`."""
    found, stack = set(starts), list(starts)
    low, high = inside.start, inside.stop
    while stack:
        for j in edges[stack.pop()]:
            if j not in found and low <= position[j] < high:
                found.add(j)
                stack.append(j)
    return found
