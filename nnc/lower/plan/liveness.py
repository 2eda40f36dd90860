"""Live ranges of tensors over steps that contain loops and branches.

All steps stand on one line of time: a loop's copies one after the other, and branches one after the
other. A tensor is live where some path of execution may still read its content, so ranges have gaps: a tensor that one branch needs
is dead in the others, and a tensor that an iteration reads last leaves its place to a result that it writes then.

Structured control flow needs no general fixpoint: one backward walk, and two for a loop (tensors that its first copy reads are live
at the end of its last).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from itertools import accumulate

from nnc.lower.plan.stages import Branches, Intervals, Iteration, Loop, Step, Steps, View

Live = dict[int, int]  # tensor -> the end of its present range


class Timeline:
    """The number of points of time that steps take, and the buffers that they touch.

    A region takes a point to enter, an iteration of a loop one to begin. Each block of steps within a region ends with a point of
    its own, at which the operands of its followers are live: so a buffer that a block reads last, and others need after it, does
    not seem to end there.
    """

    def __init__(self) -> None:
        self._spans: dict[int, tuple[Step, int]] = {}  # by identity of the step, which is held
        self._touched: dict[int, frozenset[int]] = {}

    def span(self, step: Step) -> int:
        """Counts the points of a step, with the points of its region."""
        if step.region is None:
            return 1
        if id(step) not in self._spans:
            self._spans[id(step)] = step, 1 + self._inside(step.region)
        return self._spans[id(step)][1]

    def length(self, steps: Steps) -> int:
        """Returns the points of steps in a row."""
        return sum(map(self.span, steps))

    def _inside(self, region: Loop | Branches) -> int:
        if isinstance(region, Branches):
            return sum(1 + self.length(branch) for branch in region.branches)
        return sum(5 + self.length(c.steps) for c in region.copies)

    def touched(self, step: Step) -> frozenset[int]:
        """Returns the tensors that a step with a region reads or writes."""
        self.span(step)  # holds the step
        if id(step) not in self._touched:
            self._touched[id(step)] = frozenset(touched((step,)))
        return self._touched[id(step)]


def touched(steps: Iterable[Step]) -> set[int]:
    """Returns all tensors that steps read or write, steps within regions included."""
    found: set[int] = set()
    for step in walk(steps):
        found |= touched_itself(step)
    return found


def touched_itself(step: Step) -> set[int]:
    """Returns the tensors that a step reads or writes, without those of the steps in its region."""
    found = {view.buffer for view in (*step.inputs, *step.outputs)}
    region = step.region
    if isinstance(region, Branches):
        found.add(region.index.buffer)
    elif region is not None:
        found.update(region.begins)
        views = (region.counter, region.count, *(c.test for c in region.copies))
        found.update(view.buffer for view in views if view is not None)
    return found


def written(steps: Iterable[Step]) -> set[int]:
    """Returns all tensors that steps write, steps within regions included."""
    found: set[int] = set()
    for step in walk(steps):
        found.update(view.buffer for view in step.outputs)
        if isinstance(step.region, Loop) and step.region.counter is not None:
            found.add(step.region.counter.buffer)
    return found


def walk(steps: Iterable[Step], whole: Container[int] = ()) -> Iterable[Step]:
    """Yields all steps, each before the steps in its region.

    Args:
        whole: regions, by identity of the step, whose steps are left out.
    """
    for step in steps:
        yield step
        if id(step) in whole:
            continue
        if isinstance(step.region, Branches):
            for branch in step.region.branches:
                yield from walk(branch, whole)
        elif step.region is not None:
            for c in step.region.copies:
                yield from walk(c.steps, whole)


class Liveness:
    """The live ranges of every tensor that some steps touch.

    `intervals[t]` are the lives of tensor t, `writes[t]` the points at which it is written, in part or as a whole. `points[i]` is
    the step at point i of time (None for points of a loop's frame).

    Args:
        steps: the steps of the whole program.
        sizes: bytes of each tensor.
        last: the tensors that are live after the last step.
    """

    def __init__(self, steps: Steps, sizes: list[int], last: Iterable[int]) -> None:
        self.timeline = Timeline()
        self.sizes = sizes
        self.points: list[Step | None] = []
        self.writes: list[list[int]] = [[] for _ in sizes]
        self._found: list[list[tuple[int, int, bool]]] | None = [[] for _ in sizes]
        self._list_points(steps)
        self.end = len(self.points)
        live: Live = dict.fromkeys(last, max(self.end, 1))
        self._steps(steps, self.end, live)
        self._close(live, 0)
        assert self._found is not None
        self.intervals: list[Intervals] = [_lives(ranges) for ranges in self._found]

    # -- points --------------------------------------------------------------------------------------------------------

    def _list_points(self, steps: Steps) -> None:
        for step in steps:
            for view in step.outputs:
                self.writes[view.buffer].append(len(self.points))
            self.points.append(step)
            if isinstance(step.region, Branches):
                for branch in step.region.branches:
                    self._list_points(branch)
                    self.points.append(None)
            elif step.region is not None:
                for tensor in step.region.begins:
                    self.writes[tensor].append(len(self.points) - 1)
                for c in step.region.copies:
                    if step.region.counter is not None:
                        self.writes[step.region.counter.buffer].append(len(self.points))
                    self.points.append(None)
                    for block in (c.head, c.leave, c.tail, c.turn):
                        self._list_points(block)
                        self.points.append(None)

    # -- ranges, backwards ---------------------------------------------------------------------------------------------

    def _record(self, tensor: int, first: int, end: int, written: bool = False) -> None:
        if self._found is not None and first < end:
            self._found[tensor].append((first, end, written))

    def _close(self, live: Live, at: int) -> set[int]:
        """Ends the walk of a block at its start: records the tensors that are live there, and returns them."""
        for tensor, end in live.items():
            self._record(tensor, at, end)
        return set(live)

    def _write(self, view: View, at: int, live: Live) -> None:
        if view.covers(self.sizes[view.buffer]):
            self._record(view.buffer, at, max(live.pop(view.buffer, 0), at + 1), written=True)
        else:
            live.setdefault(view.buffer, at + 1)  # the rest of the tensor stays live

    def _steps(self, steps: Steps, stop: int, live: Live) -> int:
        """Walks steps that end before `stop`; returns where they start."""
        at = stop
        for step in reversed(steps):
            end, at = at, at - self.timeline.span(step)
            if step.region is not None:
                self._region(step, step.region, at, end, live)
                continue
            for view in step.outputs:
                self._write(view, at, live)
            for view in step.inputs:
                live.setdefault(view.buffer, at + 1)
        return at

    def _region(self, step: Step, region: Loop | Branches, at: int, stop: int, live: Live) -> None:
        inside = self.timeline.touched(step)
        after = {tensor: live.pop(tensor) for tensor in inside if tensor in live}
        self._close(after, stop)
        wanted = set(after)
        if isinstance(region, Branches):
            entering = self._branches(region, stop, wanted)
            entering.add(region.index.buffer)
        else:
            entering = self._loop(region, stop, wanted)
            for tensor in region.begins:
                entering.discard(tensor)
                self._record(tensor, at, at + 1, written=True)
            if region.count is not None:
                entering.add(region.count.buffer)
        live.update(dict.fromkeys(entering, at + 1))

    def _branches(self, region: Branches, stop: int, wanted: set[int]) -> set[int]:
        entering: set[int] = set()
        for branch in reversed(region.branches):
            stop, needed = self._block(branch, stop, wanted)
            entering |= needed
        return entering

    def _loop(self, region: Loop, stop: int, wanted: set[int]) -> set[int]:
        again = region.length is None or region.length > len(region.copies)
        around: set[int] = set()
        if again:  # needs of the copy after the last, found by a walk that records nothing
            recorded, self._found = self._found, None
            around = self._copies(region, stop, wanted, around)[region.first]
            self._found = recorded
        return self._copies(region, stop, wanted, around)[0]

    def _copies(self, region: Loop, stop: int, wanted: set[int], around: set[int]) -> list[set[int]]:
        """Returns the tensors that are live at the start of each copy, where `around` is live after the last."""
        entering: list[set[int]] = [set()] * len(region.copies)
        following = around
        for k in reversed(range(len(region.copies))):
            after = wanted if region.last == k else set()
            stop, entering[k] = self._copy(region, region.copies[k], stop, following, after, wanted)
            following = entering[k]
        return entering

    def _copy(
        self, region: Loop, c: Iteration, stop: int, following: set[int], after: set[int], wanted: set[int]
    ) -> tuple[int, set[int]]:
        """Returns the point where a copy starts and the tensors that are live there.

        Args:
            following: the tensors that are live at the start of the next iteration.
            after: the tensors that are live where the loop ends here because of its length.
            wanted: the tensors that are live where the test ends the loop.
        """
        stop, needed = self._block(c.turn, stop, following)
        stop, needed = self._block(c.tail, stop, needed | after)
        stop, leaving = self._block(c.leave, stop, wanted if region.length is None else set())
        needed |= leaving
        if c.test is not None:
            needed.add(c.test.buffer)
        live = dict.fromkeys(needed, stop)
        stop = self._steps(c.head, stop - 1, live) - 1
        if region.counter is not None:
            self._write(region.counter, stop, live)
        return stop, self._close(live, stop)

    def _block(self, steps: Steps, stop: int, needed: set[int]) -> tuple[int, set[int]]:
        """Returns the point where a block that ends at `stop` starts, and the tensors live there, if `needed` is live at its
        end.
        """
        live = dict.fromkeys(needed, stop)
        start = self._steps(steps, stop - 1, live)
        return start, self._close(live, start)


def _lives(ranges: list[tuple[int, int, bool]]) -> Intervals:
    """Returns one range for each life of a tensor: ranges that only the end of a block parted are joined; a write begins a new
    one.
    """
    lives: list[tuple[int, int]] = []
    for first, end, written in sorted(ranges):
        if lives and first <= lives[-1][1] and not written:
            lives[-1] = lives[-1][0], max(end, lives[-1][1])
        else:
            lives.append((first, end))
    return tuple(lives)


def join(ranges: Iterable[tuple[int, int]]) -> Intervals:
    """Returns ranges in order, with ranges that meet or overlap made one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return tuple(joined)


def max_live(first: Iterable[int], end: Iterable[int], size: Iterable[int]) -> int:
    """Returns the largest number of bytes that are live in one step, of tensors from a first step until before an end."""
    changes: Counter[int] = Counter()
    for begin, stop, nbytes in zip(first, end, size, strict=True):
        changes[begin] += nbytes
        changes[max(begin, stop)] -= nbytes
    return max(accumulate(changes[point] for point in sorted(changes)), default=0)
