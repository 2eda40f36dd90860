"""Orders operations so that little memory is live at once: graph theory alone, on numbers.

Greedy orders by several rules, each cheap and good at another kind of graph; the best wins, the given order where none is
better. The live set of an order is measured while it is made, and the order is dropped as soon as too much is live. Same graph,
same order, in every process.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, filterfalse
from typing import NamedTuple

Order = list[int]
Counts = list[int] | dict[int, int]
_NEVER = -1
_FAR = 1 << 100  # more bytes than any shapes have
_RAN = -1  # instead of a number of operations that are waited for
_REFINEMENT = 200_000  # most operations in all moves that are tried


@dataclass(frozen=True)
class OperationGraph:
    """Operations in a valid order, and the storages that they read and write.

    Storage s takes `nbytes[s]` from the operation that writes it to the last that reads it, or to the end if it is in `kept`;
    storages that nothing writes are there all the time and cost nothing here. Operation i must follow the operations `after[i]`
    beside the writers of its operands. `overwrites[i]` are pairs (read, written) of storages, equally large, that may share memory
    when i is the last reader.
    """

    nbytes: Sequence[int]
    reads: Sequence[tuple[int, ...]]
    writes: Sequence[tuple[int, ...]]
    after: Sequence[tuple[int, ...]]
    overwrites: Sequence[tuple[tuple[int, int], ...]]
    kept: frozenset[int] = field(default_factory=frozenset)

    @cached_property
    def writer(self) -> list[int]:
        """The operation that writes each storage, -1 for storages that are given."""
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
            for s in read:
                found = readers[s]
                if not found or found[-1] != i:
                    found.append(i)
        return readers

    @cached_property
    def before(self) -> list[list[int]]:
        """The operations that must precede each."""
        writer = self.writer
        before: list[list[int]] = []
        for i, (after, read) in enumerate(zip(self.after, self.reads, strict=True)):
            found = {*after, *[writer[s] for s in read]}
            found.discard(_NEVER)
            found.discard(i)
            before.append(list(found))
        return before

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
        """The storages that end with each operation if it is their last reader: storages that take bytes and are not kept."""
        ending: list[list[int]] = [[] for _ in self.reads]
        for s, (nbytes, writer, readers) in enumerate(zip(self.nbytes, self.writer, self.readers, strict=True)):
            if nbytes and writer != _NEVER and s not in self.kept:
                for i in readers:
                    ending[i].append(s)
        return ending

    @cached_property
    def written(self) -> list[tuple[int, int]]:
        """The bytes that each operation writes, and those among them that are read or kept."""
        nbytes, readers, kept = self.nbytes, self.readers, self.kept
        written: list[tuple[int, int]] = []
        for wrote in self.writes:
            added = wanted = 0
            for s in wrote:
                added += nbytes[s]
                if readers[s] or s in kept:
                    wanted += nbytes[s]
            written.append((added, wanted))
        return written

    @cached_property
    def beginning(self) -> tuple[list[int], list[int], list[int]]:
        """The state before the first operation: the number of readers of each storage, the sum of their numbers (the last reader,
        where one is left), and the bytes by which more would be live after each operation than before it, if it ran first.
        """
        nbytes, left = self.nbytes, list(map(len, self.readers))
        net = [
            wanted - sum([nbytes[s] for s in ending if left[s] == 1])
            for (_, wanted), ending in zip(self.written, self.ending, strict=True)
        ]
        return left, list(map(sum, self.readers)), net

    def peak(self, order: Iterable[int]) -> int:
        """Returns the largest live set of an order."""
        return max(self.live_bytes(order), default=0)

    def live_bytes(self, order: Iterable[int]) -> list[int]:
        """Returns the bytes that are live while each operation of `order` runs."""
        found = self.measure(order, list(map(len, self.readers)), 0)
        assert found is not None
        return found[2]

    def measure(
        self, order: Iterable[int], left: Counts, live: int, most: int = _FAR, times: int = 0
    ) -> tuple[Order, list[int], list[int]] | None:
        """Measures these operations: returns them, the bytes that are live before each, and the bytes that are live while it
        runs.

        Args:
            left: for each storage, the number of readers that have not run yet; it is counted down.
            live: the bytes that are live before all of them.
            most: the result is None, and no further operations are asked for, where more bytes than this are live, or as many
                for more than `times` operations.
        """
        nbytes, ending, written, overwrites = self.nbytes, self.ending, self.written, self.overwrites
        ran: Order = []
        before: list[int] = []
        during: list[int] = []
        for i in order:
            now, wanted = written[i]
            now += live
            ended = 0
            for s in ending[i]:
                left[s] -= 1
                if not left[s]:
                    ended += nbytes[s]
            if ended and overwrites[i]:
                now -= self.shared(i, left)
            if now >= most:
                if now > most or not times:
                    return None
                times -= 1
            ran.append(i)
            before.append(live)
            during.append(now)
            live += wanted - ended
        return ran, before, during

    def shared(self, i: int, left: Counts) -> int:
        """Returns the bytes of the results of operation i that lie in the memory of its last-read operands."""
        pairs = self.overwrites[i]
        if len(pairs) == 1:
            return 0 if left[pairs[0][0]] else self.nbytes[pairs[0][0]]
        shared = 0
        used: list[int] = []
        for read, written in pairs:
            if not left[read] and read not in used and written not in used:
                used += read, written
                shared += self.nbytes[read]
        return shared


def improve_order(graph: OperationGraph) -> Order:
    """Returns the order with the smallest peak that is found; the given one where none is better.

    Several rules make orders; small moves then improve the best of them.
    """
    best = _Placed.of(graph, range(len(graph.reads)))
    assert best is not None
    if not any(best.live):
        return best.order
    for candidate in _candidates(graph):
        best = candidate(below=max(best.live)) or best
    return _refine(best).order


def frugal_order(graph: OperationGraph) -> Order:
    """Returns the greedy order: it always runs the ready operation that adds the fewest bytes, the first of several.

    Its peak may be larger than other orders' peaks, but few results wait for long.
    """
    found = _greedy(graph, range(len(graph.reads)))
    assert found is not None
    return found.order


def _candidates(graph: OperationGraph) -> Iterator[Callable[..., _Placed | None]]:
    """Orders by different rules, each also with operations that free at least as many bytes as they take run as soon as they can.
    They are functions of `below`, the peak that they must stay below to be of use.
    """
    given = list(range(len(graph.reads)))
    yield partial(_greedy, graph, given, eager=True)
    by_depth = _depth_first(graph)
    yield partial(_Placed.of, graph, by_depth)
    yield partial(_greedy, graph, by_depth, eager=True)
    yield partial(_greedy, graph, given)
    yield partial(_greedy, graph, given[::-1])
    latest = _backwards(graph)
    yield partial(_Placed.of, graph, latest)
    yield partial(_greedy, graph, latest, eager=True)


def _greedy(graph: OperationGraph, ties: Sequence[int], below: int = _FAR, *, eager: bool = False) -> _Placed | None:
    """Orders operations greedily, in O(n log n): always runs the ready operation that adds the fewest bytes, the first in
    `ties` of several.

    The order is measured while it is made; None where its peak is not below `below` bytes. An operation that becomes the only
    remaining reader of a storage enters the queue again; entries of operations that ran are skipped.

    Args:
        eager: whether it only matters if an operation adds bytes at all.
    """
    n, following, overwrites, shared = len(ties), graph.following, graph.overwrites, graph.shared
    nbytes, all_ending, all_written = graph.nbytes, graph.ending, graph.written
    left, rest, net = map(list.copy, graph.beginning)
    position, waiting = _positions(ties), list(map(len, graph.before))
    queue = [(net[i] > 0 if eager else net[i]) * n + position[i] for i, count in enumerate(waiting) if not count]
    heapq.heapify(queue)
    order: Order = []
    before: list[int] = []
    during: list[int] = []
    live = 0
    while queue:
        i = ties[heapq.heappop(queue) % n]
        if waiting[i] == _RAN:
            continue
        waiting[i] = _RAN
        added = net[i]
        ready: list[int] = []
        for s in all_ending[i]:
            left[s] -= 1
            rest[s] -= i
            if left[s] == 1:
                j = rest[s]
                net[j] -= nbytes[s]
                if not waiting[j]:
                    ready.append(j)
        now, wanted = all_written[i]
        now += live
        if added != wanted and overwrites[i]:
            now -= shared(i, left)
        if now >= below:
            return None
        order.append(i)
        before.append(live)
        during.append(now)
        live += added
        for j in following[i]:
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
        for j in ready:
            heapq.heappush(queue, (net[j] > 0 if eager else net[j]) * n + position[j])
    return _Placed(graph, order, before, during)


def _backwards(graph: OperationGraph) -> Order:
    """Builds such an order from the last operation backwards, the last of several first: a read makes a storage live, its write
    ends the live range.
    """
    n, nbytes, all_ending, readers, before = len(graph.reads), graph.nbytes, graph.ending, graph.readers, graph.before
    # the bytes by which more would be live before each operation than after it, if it ran next
    net = [
        sum([nbytes[s] for s in ending]) - wanted for (_, wanted), ending in zip(graph.written, all_ending, strict=True)
    ]
    live = [False] * len(nbytes)
    waiting = list(map(len, graph.following))
    queue = [net[i] * n + n - 1 - i for i, count in enumerate(waiting) if not count]
    heapq.heapify(queue)
    order: Order = []
    while queue:
        i = n - 1 - heapq.heappop(queue) % n
        if waiting[i] == _RAN:
            continue
        waiting[i] = _RAN
        order.append(i)
        ready: list[int] = []  # operations that may run, or need less from now on since an operand became live
        for s in all_ending[i]:
            if not live[s]:
                live[s] = True
                for j in readers[s]:
                    net[j] -= nbytes[s]
                    if not waiting[j]:
                        ready.append(j)
        for j in before[i]:
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
        for j in ready:
            heapq.heappush(queue, net[j] * n + n - 1 - j)
    return order[::-1]


def _positions(order: Sequence[int]) -> list[int]:
    position = [0] * len(order)
    for place, i in enumerate(order):
        position[i] = place
    return position


def _depth_first(graph: OperationGraph) -> Order:
    """Each operation after its producers, the one with the largest results first, from the last operations backwards."""
    n = len(graph.reads)
    rank = [added * n - i for i, (added, _) in enumerate(graph.written)]
    seen = [False] * n
    order: Order = []
    for root in (i for i, following in enumerate(graph.following) if not following):
        stack = [root]  # operations, and ~i for one that runs when its producers have run
        while stack:
            i = stack.pop()
            if i < 0:
                order.append(~i)
            elif not seen[i]:
                seen[i] = True
                stack.append(~i)
                stack += sorted([j for j in graph.before[i] if not seen[j]], key=rank.__getitem__)
    return order


@dataclass(frozen=True)
class _Placed:
    """An order, the bytes that are live before each place, and while the operation there runs."""

    graph: OperationGraph
    order: Order
    before: list[int]
    live: list[int]

    @classmethod
    def of(cls, graph: OperationGraph, order: Iterable[int], below: int = _FAR) -> _Placed | None:
        """Returns the form of an order; None where its peak is not below so many bytes."""
        found = graph.measure(order, list(map(len, graph.readers)), 0, below)
        return cls(graph, *found) if found is not None else None

    @cached_property
    def position(self) -> list[int]:
        """The place of each operation."""
        return _positions(self.order)

    def moved(self, move: _Reordering, most: int = _FAR) -> _Placed | None:
        """Returns the order after a move; None where more than so many bytes are live then, or so many as often as now."""
        first, end = move.first, move.end
        left, times = _Left(self, first), self.live[first:end].count(most)
        found = self.graph.measure(move.part(self.order), left, self.before[first], most, times - 1)
        if found is None:
            return None
        columns = zip((self.order, self.before, self.live), found, strict=True)
        return _Placed(self.graph, *([*column[:first], *part, *column[end:]] for column, part in columns))


class _Left(dict[int, int]):
    """The number of operations that read each storage from a place of an order on, counted at the first request."""

    def __init__(self, placed: _Placed, first: int) -> None:
        super().__init__()
        self._readers, self._position, self._first = placed.graph.readers, placed.position, first

    def __missing__(self, s: int) -> int:
        position, first, readers = self._position, self._first, self._readers[s]
        return 1 if len(readers) == 1 else sum([position[i] >= first for i in readers])  # the one that runs


class _Reordering(NamedTuple):
    """Puts the operations at places `first` to `end` that are in `group` behind the others there, or in front of them."""

    first: int
    end: int
    group: set[int]
    in_front: bool = False

    def part(self, order: Order) -> Iterator[int]:
        """The operations of these places after the move."""
        between, moves = order[self.first : self.end], self.group.__contains__
        group, others = filter(moves, between), filterfalse(moves, between)
        return chain(group, others) if self.in_front else chain(others, group)


def _refine(placed: _Placed) -> _Placed:
    """Moves writers of storages that are live at the peak behind it, and readers before it, while that lowers the peak.

    The budget counts moves tried, so it does not depend on the machine.
    """
    budget = _REFINEMENT // len(placed.order)
    better: _Placed | None = placed
    while better is not None and budget > 0:
        placed, better = better, None
        least = max(placed.live)
        for move in _moves(placed, placed.live.index(least)):
            budget -= 1
            better = placed.moved(move, least)
            if better is not None or budget <= 0:
                break
    return better or placed


def _moves(placed: _Placed, peak: int) -> Iterator[_Reordering]:
    """Moves that end the live range of a storage across place `peak` that does not use it: largest first."""
    graph, order, position = placed.graph, placed.order, placed.position
    at = order[peak]
    idle = set(graph.kept).union(*[graph.reads[i] for i in order[peak + 1 :]])
    idle.difference_update(graph.reads[at], graph.writes[at])
    bystanders = [s for i in order[:peak] for s in graph.writes[i] if s in idle and graph.nbytes[s]]
    starts = {s: position[graph.writer[s]] for s in bystanders}
    lasts = {s: max([position[i] for i in graph.readers[s]], default=-1) for s in bystanders}
    needed = _reached([at], graph.before, position, range(min(starts.values(), default=peak), peak))
    following = _reached([at], graph.following, position, range(peak, max(lasts.values(), default=peak) + 1))
    for s in sorted(bystanders, key=lambda s: (-graph.nbytes[s], s)):
        writer, start, last = graph.writer[s], starts[s], lasts[s]
        if writer not in needed:  # it and operations that follow from it go behind the peak
            yield _Reordering(start, peak + 1, _reached([writer], graph.following, position, range(start, peak)))
        readers = [reader for reader in graph.readers[s] if position[reader] > peak]
        if s not in graph.kept and following.isdisjoint(readers):  # they and their producers go before the peak
            group = _reached(readers, graph.before, position, range(peak, last + 1))
            yield _Reordering(peak, last + 1, group, in_front=True)


def _reached(starts: Sequence[int], edges: Sequence[Sequence[int]], position: Sequence[int], inside: range) -> set[int]:
    """Returns the operations that edges lead to from `starts`, these included, at places `inside`."""
    found, stack = set(starts), list(starts)
    low, high = inside.start, inside.stop
    while stack:
        for j in edges[stack.pop()]:
            if j not in found and low <= position[j] < high:
                found.add(j)
                stack.append(j)
    return found
