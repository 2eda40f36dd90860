"""Finds tensors that may share memory, so that moves cost nothing; `rewrite` puts steps onto the buffers that this leaves.

Two sets of tensors may become one buffer unless both hold something at the same time. At the same time they may hold one value
(one is a move of the other), or meet in a single step that may overwrite its input. In this order: loop carries (on which
the number of their copies rests), all other moves, joins that are parts of joins, commands that may overwrite an input, all other
parts that are joined, and donated arguments for results. Moves that cannot share memory stay copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import NamedTuple

from nnc.base.dtypes import DType
from nnc.commands.rules import in_place_of
from nnc.graph import TensorSpec
from nnc.graph.boxes import Box
from nnc.graph.registry import joined
from nnc.lower.plan.emit import is_move
from nnc.lower.plan.liveness import Liveness, join
from nnc.lower.plan.stages import Buffer, Intervals, Kind, Step, Steps, View
from nnc.lower.plan.views import within

_MEETINGS = 16  # points in a row at which two classes may meet in place


def overlap(x: Intervals, y: Intervals) -> list[tuple[int, int]]:
    """Returns the ranges that both have in common."""
    found, i, j = [], 0, 0
    while i < len(x) and j < len(y):
        first, end = max(x[i][0], y[j][0]), min(x[i][1], y[j][1])
        if first < end:
            found.append((first, end))
        if x[i][1] < y[j][1]:
            i += 1
        else:
            j += 1
    return found


class _JoinedPart(NamedTuple):
    """A class of tensors lies within the tensor `region.buffer`, which step number `join` puts together.

    `place` is the part's place in the outermost tensor.
    """

    region: View
    join: int
    place: View


class _ShownAt(NamedTuple):
    """The positions of inputs and outputs of a step that show a tensor, and the pairs (input, output) that may share memory."""

    reads: dict[int, list[int]]
    writes: dict[int, list[int]]
    overwrite: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, step: Step) -> _ShownAt:
        """Finds the operands of a step, by tensor."""
        found = cls({}, {}, frozenset(in_place_of(step.command, step.params).overwrite))
        for places, views in ((found.reads, step.inputs), (found.writes, step.outputs)):
            for i, view in enumerate(views):
                places.setdefault(view.buffer, []).append(i)
        return found


class Classes:
    """Classes of tensors that share memory."""

    def __init__(
        self, tensors: Sequence[Buffer], steps: Steps, last: Sequence[int], donated: Sequence[int] = ()
    ) -> None:
        self.tensors = tensors
        self._nbytes = [tensor.nbytes for tensor in tensors]
        self.live = Liveness(steps, self._nbytes, last)
        self.intervals = [join(lives) if len(lives) > 1 else lives for lives in self.live.intervals]
        self._members = [[i] for i in range(len(tensors))]
        self.kinds = [tensor.kind for tensor in tensors]
        self._parent = list(range(len(tensors)))
        self._returned = [tensor.kind is Kind.OUTPUT for tensor in tensors]
        self._donated = {i for i in donated if self.kinds[i] is Kind.INPUT}
        self._parts: dict[int, _JoinedPart] = {}
        self._joined: set[int] = set()  # classes that parts lie in
        self._lying: dict[int, dict[int, list[int]]] = {}  # the parts in a tensor, by the point of their join
        self._known: dict[int, _ShownAt] = {}  # of steps that may overwrite an input, by their point

    @cached_property
    def _views(self) -> list[set[View]]:
        """Finds the views of each tensor that steps read and write, and join into it."""
        views: list[set[View]] = [set() for _ in self.tensors]
        for step in self.live.points:
            if step is not None:
                regions = part_regions(step) if step.command in joined else ()
                for view in (*step.inputs, *step.outputs, *regions):
                    views[view.buffer].add(view)
        return views

    def find(self, tensor: int) -> int:
        """Returns the representative of the tensors that share memory with this one."""
        while self._parent[tensor] != tensor:
            self._parent[tensor] = self._parent[self._parent[tensor]]
            tensor = self._parent[tensor]
        return tensor

    # -- conditions for sharing ----------------------------------------------------------------------------------------

    def share(self, x: int, y: int, moved: tuple[int, int] | None = None) -> bool:
        """Makes two tensors share memory if that is safe.

        Args:
            moved: (from, to), where one tensor is a move of the other.
        """
        a, b = self.find(x), self.find(y)
        if a == b:
            return True
        kind = self._kind(a, b)
        if kind is None or self._nbytes[a] != self._nbytes[b]:
            return False
        if self._parts and any(root in self._parts or root in self._joined for root in (a, b)):
            return False
        if not self._compatible(a, b, moved):
            return False
        if self.kinds[b] is Kind.INPUT:
            a, b = b, a
        self._merge(a, b, kind)
        return True

    def _merge(self, a: int, b: int, kind: Kind) -> None:
        self._parent[b] = a
        self.kinds[a] = kind
        self._returned[a] |= self._returned[b]
        self.intervals[a] = join((*self.intervals[a], *self.intervals[b]))
        self._members[a] += self._members[b]

    def _kind(self, a: int, b: int) -> Kind | None:
        """Returns the kind of the union of two classes; None where they must stay apart."""
        kinds = x, y = self.kinds[a], self.kinds[b]
        if Kind.CONSTANT in kinds or Kind.TAPE in kinds or (self._returned[a] and self._returned[b]):
            return None
        if Kind.INPUT in kinds:
            taken = a if x is Kind.INPUT else b
            return Kind.INPUT if x is not y and taken in self._donated else None
        if Kind.OUTPUT in kinds:
            return Kind.OUTPUT if x is not y else None
        return Kind.ARENA

    def _compatible(self, a: int, b: int, moved: tuple[int, int] | None) -> bool:
        for first, end in overlap(self.intervals[a], self.intervals[b]):
            if moved is not None and self._same_value(*moved, first, end):
                continue
            if end - first > _MEETINGS or not all(self._in_place(at, a, b) for at in range(first, end)):
                return False
        return True

    def _same_value(self, source: int, target: int, first: int, end: int) -> bool:
        """Whether the two, one a move of the other, hold the same value from `first` to `end`.

        The target holds the value that the source had at the last move. Hence it suffices that meanwhile nothing else is
        written to either, and that no step which may read both writes to the class of either.
        """
        live, both = self.live, (source, target)
        if not all(any(a <= first and end <= b for a, b in live.intervals[tensor]) for tensor in both):
            return False
        if any(first <= at < end for at in live.writes[source]):
            return False
        moves = [at for at in live.writes[target] if first <= at < end]
        if not all(self._moves(at, source, target) for at in moves):
            return False
        steps = [step for at in (*moves, end - 1) if (step := live.points[at]) is not None]
        others = {view.buffer for step in steps for view in step.outputs}.difference(both)
        return not any(self.find(tensor) in map(self.find, both) for tensor in others)

    def _moves(self, at: int, source: int, target: int) -> bool:
        """Whether the step at this point moves or joins one tensor into another, with all elements in the same order."""
        step = self.live.points[at]
        if step is None:
            return False
        if is_move(step):
            pairs = zip(step.inputs, step.outputs, strict=True)
            return any((x.buffer, y.buffer) == (source, target) and self._alike(x, y) for x, y in pairs)
        joins = step.command in joined and step.outputs[0].buffer == target
        return joins and source in self._operands(at, step).reads

    def _in_place(self, at: int, a: int, b: int) -> bool:
        """Whether the step at this point may overwrite its input, where one of two classes ends and the other begins."""
        step = self.live.points[at]
        if step is None or step.region is not None:
            return False
        operands = self._operands(at, step)
        written = [j for tensor in (*self._members[a], *self._members[b]) for j in operands.writes.get(tensor, ())]
        if len(written) != 1:
            return False
        j = written[0]
        out = step.outputs[j]
        other = a if self.find(out.buffer) == b else b
        read = [(i, step.inputs[i]) for tensor in self._members[other] for i in operands.reads.get(tensor, ())]
        if is_move(step):
            fits = all(self._whole(view) for _, view in (*read, (j, out))) and not self._goes_around(step, a, b)
        else:
            fits = all((i, j) in operands.overwrite and self._alike(view, out) for i, view in read)
        return bool(read) and fits and self._ends(other, at)

    def _operands(self, at: int, step: Step) -> _ShownAt:
        if at not in self._known:
            self._known[at] = _ShownAt.of(step)
        return self._known[at]

    def _goes_around(self, step: Step, a: int, b: int) -> bool:
        """Whether moves, if two classes were one, would wait for one another: each for the reader of the buffer that it
        overwrites.
        """

        def found(view: View) -> int:
            root = self.find(view.buffer)
            return a if root == b else root

        reads = {found(y): found(x) for x, y in zip(step.inputs, step.outputs, strict=True) if found(x) != found(y)}
        at, steps = a, 0
        while at in reads and steps <= len(reads):
            at, steps = reads[at], steps + 1
        return steps > len(reads)

    def _ends(self, root: int, at: int) -> bool:
        """Whether no value that a class holds at a point is read after it."""
        if any(end == at + 1 for _, end in self.intervals[root]):
            return True
        lives = (life for member in self._members[root] for life in self.live.intervals[member])
        return all(end == at + 1 for first, end in lives if first <= at < end)

    def _whole(self, view: View) -> bool:
        """Whether a view is all of its tensor, in row-major order."""
        if view.spec is self.tensors[view.buffer].symbol.spec:
            return view.is_dense and not view.offset and not view.advances
        return view.covers(self._nbytes[view.buffer])

    def _alike(self, x: View, y: View) -> bool:
        a, b = x.spec, y.spec
        same = a is b or (a.shape == b.shape and a.dtype.itemsize == b.dtype.itemsize)
        return same and self._whole(x) and self._whole(y)

    # -- attempts to share ---------------------------------------------------------------------------------------------

    def share_carried(self, pairs: Sequence[tuple[View, View]]) -> bool:
        """Lets loop carries stay in place; False if one of them cannot."""
        shared = [self.share(x.buffer, y.buffer, (x.buffer, y.buffer)) for x, y in pairs]
        return all(shared)

    def share_moves(self) -> None:
        """Lets the two sides of each move share memory."""
        for step in self.live.points:
            if step is not None and is_move(step):
                for x, y in zip(step.inputs, step.outputs, strict=True):
                    if self._alike(x, y):
                        self.share(x.buffer, y.buffer, (x.buffer, y.buffer))

    def share_in_place(self) -> None:
        """Lets commands overwrite inputs after their last read."""
        for step in self.live.points:
            if step is None or step.region is not None:
                continue
            inputs, outputs = step.inputs, step.outputs
            numbers = in_place_of(step.command, step.params).overwrite
            pairs = [(inputs[i], outputs[j]) for i, j in numbers if i < len(inputs) and j < len(outputs)]
            # nothing else can lie in a donated argument
            pairs.sort(key=lambda pair: pair[0].buffer not in self._donated)
            for x, y in pairs:
                if self._alike(x, y):
                    self.share(x.buffer, y.buffer)

    def place_parts(self, joins: bool = False) -> None:
        """Lets the parts of a joined tensor be written in their places within it; the last join of a part decides its place.

        Args:
            joins: whether only parts that are joined tensors themselves are placed.
        """
        for at in reversed(range(len(self.live.points))):
            step = self.live.points[at]
            if step is not None and step.command in joined:
                for view, region in zip(step.inputs, part_regions(step), strict=True):
                    if not joins or self._is_joined(view.buffer):
                        self._place(view, region, at)

    def _is_joined(self, tensor: int) -> bool:
        """Whether a tensor is joined from others."""
        steps = (self.live.points[at] for at in self.live.writes[tensor])
        return any(step is not None and step.command in joined for step in steps)

    def _place(self, view: View, region: View, join_at: int) -> None:
        part, whole = self.find(view.buffer), self.find(region.buffer)
        tensor = self.tensors[view.buffer]
        free = self.kinds[part] is Kind.ARENA and part not in self._parts and part not in self._joined and part != whole
        if (
            not free
            or region.advances
            or self.kinds[whole] is Kind.INPUT
            or not tensor.nbytes
            or not view.covers(tensor.nbytes)
        ):
            return
        place = self._lies(region)
        views = (other for member in self._members[part] for other in self._views[member])
        if place is None or any(within(other, place) is None for other in views):
            return
        if self._has_room(view.buffer, _JoinedPart(region, join_at, place)):
            self._parts[part] = _JoinedPart(region, join_at, place)
            self._lying.setdefault(region.buffer, {}).setdefault(join_at, []).append(part)
            self._joined.add(whole)

    def _has_room(self, tensor: int, part: _JoinedPart) -> bool:
        """Whether nothing else uses the bytes that a part would lie in, while it does."""
        mine, root = self.intervals[self.find(tensor)], self.find(tensor)
        level: _JoinedPart | None = part
        chain = [tensor]
        while level is not None:
            chain.append(level.region.buffer)
            whole = self.find(level.region.buffer)
            if whole == root:
                return False
            same = partial(self._same_value, *chain) if level is part else partial(self._same_through, chain)
            if not all(same(first, end) for first, end in overlap(mine, self._occupied(whole, level))):
                return False
            level = self._parts.get(whole)
        return True

    def _same_through(self, chain: Sequence[int], first: int, end: int) -> bool:
        """Whether the last of these tensors, each of them joined into the next, holds from `first` to `end` the value of the first.

        This holds if the first is written once, then joined into the second, the second, later, into the third, and so on, and
        neither these tensors nor their classes are written otherwise until the end.
        """
        live = self.live
        lives = next((life for life in live.intervals[chain[0]] if life[0] <= first and end <= life[1]), None)
        if lives is None or not any(a <= first and end <= b for a, b in live.intervals[chain[-1]]):
            return False
        since = max((at for at in live.writes[chain[0]] if lives[0] <= at < end), default=first)
        if since >= first:
            return False
        joins: list[int] = []
        for source, target in pairwise(chain):
            found = [at for at in live.writes[target] if since < at < end]
            if not found or not all(self._moves(at, source, target) for at in found):
                return False
            joins, since = joins + found, found[0]
        steps = [step for at in (*joins, end - 1) if (step := live.points[at]) is not None]
        others = {view.buffer for step in steps for view in step.outputs}.difference(chain)
        return not any(self.find(tensor) in map(self.find, chain) for tensor in others)

    def _occupied(self, whole: int, level: _JoinedPart) -> Intervals:
        """Returns the intervals in which a class itself, or a part of it that another join put there, may use the bytes of
        `level`.
        """
        low, high = level.region.extent
        ranges = list(self.intervals[whole])
        for tensor in self._members[whole]:
            for join_at, roots in self._lying.get(tensor, {}).items():
                for root in roots if join_at != level.join else ():
                    first, end = self._parts[root].region.extent
                    if first < high and low < end:
                        ranges += self._lives(root)
        return join(ranges)

    def _lives(self, root: int) -> Iterator[tuple[int, int]]:
        """The live range of a class and of the tensors that lie in it."""
        yield from self.intervals[root]
        for tensor in self._members[root]:
            for roots in self._lying.get(tensor, {}).values():
                for inner in roots:
                    yield from self._lives(inner)

    def give_donated(self, outputs: Sequence[int]) -> None:
        """Lets results lie in donated arguments that are dead by then."""
        given: dict[tuple[DType, int], list[int]] = {}
        for i in sorted(self._donated):
            if not self._returned[self.find(i)]:
                given.setdefault((self.tensors[i].symbol.dtype, self.tensors[i].nbytes), []).append(i)
        for output in outputs:
            if self.kinds[self.find(output)] is Kind.OUTPUT and self.find(output) not in self._joined:
                alike = given.get((self.tensors[output].symbol.dtype, self.tensors[output].nbytes), [])
                taken = next((i for i in alike if self.share(i, output)), None)
                if taken is not None:
                    alike.remove(taken)

    # -- the result ----------------------------------------------------------------------------------------------------

    def place(self, view: View) -> View:
        """Returns a view of a tensor, as a view of the class that it lies in."""
        placed = self._lies(view)
        assert placed is not None
        return placed

    def _lies(self, view: View) -> View | None:
        """Returns the place of a view of a tensor; None if its elements are not evenly spaced there."""
        root = self.find(view.buffer)
        if root not in self._parts:
            return view.of(root)
        place = self._parts[root].place
        return within(view, place.of(self.find(place.buffer)))

    def ranges(self) -> dict[int, Intervals]:
        """Returns the live ranges of each class of tensors, with its parts."""
        found: dict[int, list[Intervals]] = {}
        for root, parent in enumerate(self._parent):
            if parent == root:
                top = root
                while top in self._parts:
                    top = self.find(self._parts[top].region.buffer)
                found.setdefault(top, []).append(self.intervals[root])
        return {root: join(chain(*ranges)) if len(ranges) > 1 else ranges[0] for root, ranges in found.items()}

    def has_parts(self) -> bool:
        """Whether any tensor lies within another."""
        return bool(self._parts)


def part_regions(step: Step) -> list[View]:
    """Returns the part of the output in which each input of a join lies."""
    return [region_of(step.outputs[0], box) for box in part_boxes(step)]


def part_boxes(step: Step) -> list[Box]:
    """Returns the elements of its output that each input of a join is."""
    specs = [view.spec for view in step.inputs]
    starts = joined[step.command](*specs, **step.params)
    return [Box(tuple(start), spec.shape) for start, spec in zip(starts, specs, strict=True)]


def region_of(out: View, box: Box) -> View:
    """Returns the part of a tensor that lies in a box."""
    spec = TensorSpec(box.shape, out.spec.dtype)
    skipped = sum(a * stride for a, stride in zip(box.start, out.strides, strict=True))
    return out.show(spec, out.offset + skipped, out.strides)
