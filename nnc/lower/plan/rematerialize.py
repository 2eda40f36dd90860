"""Computes values again where keeping them would take too much memory: graph theory alone, on numbers.

A run of the operations is simulated under a limit of live bytes. Where the next operation would exceed it, values are dropped that
save the most bytes for the least time, and recomputed right before their next use. This is dynamic tensor rematerialization
(Kirisame et al., 2021), with the difference that all later uses are known. Same operations, same order, in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from nnc.base.records import record
from nnc.lower.plan.ordering import OperationGraph

# Values are dropped in the order of seconds of recomputing / (bytes x (seconds until the next use) ** patience).
_PATIENCE = (0.0, 0.5, 1.0)
_GROWTH = 6  # times as many operations as given, at most
_SMALL = 1000  # dead values below this part of the limit stay for values that may be recomputed from them
_HALVINGS = 7  # of the range in which the smallest limit is sought
_NEVER = -1


@dataclass(frozen=True)
class TimedOperations:
    """Operations in the order in which they are to run.

    Args:
        graph: the graph of the operations.
        seconds: how long each takes; positive for operations that read or write.
        repeatable: which operations may run more than once.
        extra: the bytes that each needs while it runs, beside its operands and results.
    """

    graph: OperationGraph
    seconds: Sequence[float]
    repeatable: Sequence[bool]
    extra: Sequence[int]

    @cached_property
    def clock(self) -> list[float]:
        """The start time of each operation, if none is repeated."""
        return [0.0, *accumulate(self.seconds)]

    @cached_property
    def useful(self) -> list[int]:
        """For each storage the last operation that reads it, or a value that could be recomputed from it."""
        graph = self.graph
        useful = [max(readers, default=_NEVER) for readers in graph.readers]
        for i in reversed(range(len(graph.reads))):
            if self.repeatable[i]:
                last = max((useful[s] for s in graph.writes[i]), default=_NEVER)
                for s in graph.reads[i]:
                    useful[s] = max(useful[s], last)
        return useful

    @property
    def peak(self) -> int:
        """The largest live set if no operation is repeated."""
        live = self.graph.live_bytes(range(len(self.graph.reads)))
        return max(map(sum, zip(live, self.extra, strict=True)), default=0)

    @property
    def largest(self) -> int:
        """The most bytes that one operation reads, or writes: no order takes less."""
        nbytes, writer = self.graph.nbytes, self.graph.writer
        made = ({s for s in read if writer[s] != _NEVER} for read in self.graph.reads)
        return max((sum(nbytes[s] for s in used) for used in (*made, *self.graph.writes)), default=0)


@record
class RunOrder:
    """Operations in order; readers of a value that was recomputed read the latest results, but for values that are kept.

    `peak` is the largest live set in bytes, `seconds` the time of the operations that are `repeated`.
    """

    operations: tuple[int, ...]
    peak: int
    seconds: float


def fit(problem: TimedOperations, limit: int) -> list[RunOrder]:
    """Finds orders with at most `limit` bytes live, the shortest time of recomputing first."""
    found = [s for patience in _PATIENCE if (s := _LimitedRun(problem, limit, patience).all()) is not None]
    return sorted(found, key=lambda order: order.seconds)


def squeeze(problem: TimedOperations) -> RunOrder:
    """Returns the order with the smallest peak that is found, by bisection."""
    best = RunOrder(tuple(range(len(problem.graph.reads))), problem.peak, 0.0)
    low = problem.largest
    for _ in range(_HALVINGS):
        limit = (low + best.peak) // 2
        runs = (_LimitedRun(problem, limit, patience).all() for patience in reversed(_PATIENCE))
        found = next((order for order in runs if order is not None), None)
        if found is None:
            low = limit
        else:
            best = found
    return best


class _LimitedRun:
    """A run under a limit. `now` is the operation of the given order that is next; others run to recompute its inputs."""

    def __init__(self, problem: TimedOperations, limit: int, patience: float) -> None:
        graph = problem.graph
        self.problem, self.graph, self.limit, self.patience = problem, graph, limit, patience
        self.small = limit // _SMALL
        self.live = [writer == _NEVER for writer in graph.writer]
        self.owned: dict[int, None] = {}  # live storages that may be dropped, in the order of their computation
        self.roots: dict[int, None] = {}  # live, not repeatable, and read only by values that are recomputed
        self.pins = [0] * len(graph.nbytes)  # operations that are about to run and read the storage
        self.passed = [0] * len(graph.nbytes)  # readers in the given order that ran
        self.wanted: dict[int, int] = {}  # uses that `_missing_use` found; later uses may have become missing since
        self.bytes = self.peak = self.now = 0
        self.seconds = 0.0
        self.operations: list[int] = []

    def all(self) -> RunOrder | None:
        """Returns the order of the whole run; None where the limit is too small."""
        reads = self.graph.reads
        for i in range(len(reads)):
            self.now = i
            missing = [s for s in reads[i] if not self.live[s]]
            again = self._closure(missing)
            if again is None or len(self.operations) + len(again) > _GROWTH * len(reads):
                return None
            if again:
                self.wanted.clear()
            for j in (*again, i):
                for s in reads[j]:
                    self.pins[s] += 1
            if not all(map(self._operation, (*again, i))):
                return None
        return RunOrder(tuple(self.operations), self.peak, self.seconds)

    def _closure(self, missing: Iterable[int]) -> list[int] | None:
        """Returns the operations, in order, that compute storages from live ones; None where one may not run again."""
        todo, found = list(missing), set()
        while todo:
            i = self.graph.writer[todo.pop()]
            if i not in found:
                if not self.problem.repeatable[i]:
                    return None
                found.add(i)
                todo += [s for s in self.graph.reads[i] if not self.live[s]]
        return sorted(found)

    # -- one operation -------------------------------------------------------------------------------------------------

    def _operation(self, i: int) -> bool:
        """Runs an operation, after dropping values to make room; False where that is not enough."""
        graph, nbytes = self.graph, self.graph.nbytes
        reads, written = dict.fromkeys(graph.reads[i]), graph.writes[i]
        for s in graph.reads[i]:
            self.pins[s] -= 1
        ending = {s for s in reads if self._ends(s)}
        results = sum(nbytes[s] for s in written) + self.problem.extra[i]
        while True:
            places = self._places(i, ending)
            needed = self.bytes + results - sum(map(nbytes.__getitem__, places))
            if needed <= self.limit:
                break
            victim = self._victim(reads, {r for r, w in graph.overwrites[i] if r not in ending and w not in places})
            if victim is None:
                return False
            if victim in reads:
                ending.add(victim)
            else:
                self._drop(victim)
        self.peak = max(self.peak, needed)
        self.operations.append(i)
        self.seconds += self.problem.seconds[i] if i != self.now else 0.0
        for s in (*sorted(ending), *(s for s in written if self.live[s])):
            self._drop(s)
        for s in written:
            self._add(s, i)
        return True

    def _places(self, i: int, ending: set[int]) -> dict[int, int]:
        """Returns the results that may lie where operands end."""
        places: dict[int, int] = {}
        for read, written in self.graph.overwrites[i]:
            if read in ending and read not in places.values():
                places.setdefault(written, read)
        return places

    def _add(self, s: int, writer: int) -> None:
        self.live[s] = True
        self.bytes += self.graph.nbytes[s]
        if self.problem.repeatable[writer] and s not in self.graph.kept and self.graph.nbytes[s]:
            self.owned[s] = None
        if self._ends(s):
            self._drop(s)

    def _drop(self, s: int) -> None:
        self.live[s] = False
        self.bytes -= self.graph.nbytes[s]
        self.owned.pop(s, None)
        self.roots.pop(s, None)

    def _next_use(self, s: int) -> int | None:
        """Returns the next operation of the given order, after this one, that reads a storage."""
        readers = self.graph.readers[s]
        at = self.passed[s]
        while at < len(readers) and readers[at] <= self.now:
            at += 1
        self.passed[s] = at
        return readers[at] if at < len(readers) else None

    def _ends(self, s: int) -> bool:
        """Whether no later operation needs a storage."""
        writer = self.graph.writer[s]
        if writer == _NEVER or self.pins[s] or s in self.graph.kept or self._next_use(s) is not None:
            return False
        if self.problem.useful[s] <= self.now:
            return True
        if not self.problem.repeatable[writer]:
            self.roots[s] = None
            return False
        return self.graph.nbytes[s] > self.small and self._missing_use(s) is None

    # -- values to drop -------------------------------------------------------------------------------------------------

    def _victim(self, reads: Mapping[int, None], overwritten: set[int]) -> int | None:
        """Returns the storage to drop next: none that is read now, unless a result can lie in its place."""
        for s in self.roots:
            if not self.pins[s] and s not in reads and self._missing_use(s) is None:
                return s
        best, least = None, float("inf")
        seconds, clock = self.problem.seconds, self.problem.clock
        for s in self.owned:
            if self.pins[s] or (s in reads and s not in overwritten):
                continue
            use = self._next_use(s)
            if use is None:
                if self.wanted.get(s, self.now) <= self.now:
                    missing = self._missing_use(s)
                    if missing is None:
                        return s
                    self.wanted[s] = missing
                use = self.wanted[s]
            gain = self.graph.nbytes[s] * (clock[use] - clock[self.now]) ** self.patience
            most = least * gain
            if seconds[self.graph.writer[s]] < most:
                price = self._price(s, most)
                if price < most:
                    best, least = s, price / gain
        return best

    def _price(self, s: int, most: float) -> float:
        """Returns the seconds of recomputing a storage, with its missing operands; any larger number from `most` on."""
        graph, seconds, repeatable = self.graph, self.problem.seconds, self.problem.repeatable
        writer = graph.writer[s]
        price, todo, found = seconds[writer], [writer], {writer}
        while todo:
            for read in graph.reads[todo.pop()]:
                if not self.live[read]:
                    i = graph.writer[read]
                    if i not in found:
                        if not repeatable[i]:
                            return float("inf")
                        found.add(i)
                        todo.append(i)
                        price += seconds[i]
                        if price >= most:
                            return price
        return price

    def _missing_use(self, s: int) -> int | None:
        """Finds the next use of a value that has to be recomputed from a storage; None where there is none."""
        graph, todo, found = self.graph, [s], {s}
        uses = []
        while todo:
            for i in graph.readers[todo.pop()]:
                for w in graph.writes[i] if i < self.now else ():
                    if not self.live[w] and w not in found and self.problem.useful[w] >= self.now:
                        found.add(w)
                        use = self.now if self.pins[w] else self._next_use(w)
                        if use is None:
                            todo.append(w)
                        else:
                            uses.append(use)
        return min(uses, default=None)
