"""Steps on tensors → steps on numbered buffers, where `coalesce` has found which tensors share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from nnc.base.dtypes import int8
from nnc.commands.constants import full
from nnc.commands.shape import concatenate
from nnc.graph import TensorSpec
from nnc.graph.boxes import uncovered
from nnc.graph.registry import joined
from nnc.lower.plan.coalesce import Classes, part_boxes, part_regions, region_of
from nnc.lower.plan.emit import is_move, move
from nnc.lower.plan.stages import Branches, Iteration, Loop, Step, Steps, View


def rewrite(steps: Steps, classes: Classes, numbers: Mapping[int, int]) -> tuple[Steps, list[int]]:
    """Rewrites the steps to work on buffers, without moves that sharing made needless; also returns the number of steps at each
    point of time.

    Args:
        numbers: the buffer of each class.
    """
    rewriter = _Rewriter(classes, numbers)
    return rewriter.steps(steps), rewriter.weights


class _Rewriter:
    """Rewrites steps to buffers; `weights` counts the steps at each point of time."""

    def __init__(self, classes: Classes, numbers: Mapping[int, int]) -> None:
        self.weights: list[int] = []
        self._classes, self._numbers = classes, numbers

    def steps(self, steps: Steps) -> Steps:
        """Returns the steps on buffers."""
        new: list[Step] = []
        for step in steps:
            position = len(self.weights)
            self.weights.append(0)
            made = self._rewritten(step)
            self.weights[position] = len(made)
            new += made
        return tuple(new)

    def place(self, view: View) -> View:
        """Returns a view of a tensor, as a view of a buffer."""
        placed = self._classes.place(view)
        return placed.of(self._numbers[placed.buffer])

    def _rewritten(self, step: Step) -> list[Step]:
        if step.region is not None:
            frame = partial(self.weights.append, 1)
            return [replace(step, region=_map_region(step.region, self.place, self.steps, frame))]
        if step.command in joined and (self._classes.has_parts() or not _has_kernels(step)):
            return self._join_steps(step)
        return self._single_moves(step) if is_move(step) else [self._placed(step)]

    def _placed(self, step: Step) -> Step:
        inputs, outputs = tuple(map(self.place, step.inputs)), tuple(map(self.place, step.outputs))
        return Step(step.command, inputs, outputs, step.params, step.graphs, step.source, step.region)

    def _single_moves(self, step: Step) -> list[Step]:
        """Returns the moves of a step that are left, one by one, each before its source is overwritten."""
        moves = [(x, y, self.place(x), self.place(y)) for x, y in zip(step.inputs, step.outputs, strict=True)]
        moves = [each for each in moves if each[2] != each[3]]
        find = self._classes.find
        read, written = [find(x.buffer) for x, *_ in moves], [find(y.buffer) for _, y, *_ in moves]
        waits = [[j for j, other in enumerate(read) if other == buffer] for buffer in written]
        done: set[int] = set()
        order = [i for first in range(len(moves)) for i in _in_turn(first, waits, done)]
        return [move([moves[i][2]], [moves[i][3]], step.source) for i in order]

    def _join_steps(self, step: Step) -> list[Step]:
        """Returns the steps that are left of a join: none for parts that lie in the result, copies of other parts, zeros where
        there is no part.
        """
        placed = self._placed(step)
        regions = map(self.place, part_regions(step))
        pairs = [(view, replace(region, spec=view.spec)) for view, region in zip(placed.inputs, regions, strict=True)]
        left = [(view, region) for view, region in pairs if not _same_bytes(view, region)]
        if len(left) == len(pairs) and _has_kernels(step):
            return [placed]
        steps = [move([view], [region], step.source) for view, region in left if view.spec.size]
        out = step.outputs[0]
        for box in uncovered(part_boxes(step), out.spec.shape):
            gap = self.place(region_of(out, box))
            params = {"shape": box.shape, "dtype": out.spec.dtype, "value": 0}
            steps.append(Step(full, (), (gap,), params, source=step.source))
        return steps


def _has_kernels(join: Step) -> bool:
    """Whether backends put all parts together in one step. They have kernels for `concatenate`; plans do not depend on backends,
    so that its name says it here.
    """
    return join.command is concatenate


def _map_region(
    region: Loop | Branches, place: Callable[[View], View], steps: Callable[[Steps], Steps], frame: Callable[[], None]
) -> Loop | Branches:
    """Returns a region with its views and steps replaced, in the order of time; `frame` is called with each point of its frame."""

    def block(old: Steps) -> Steps:
        new = steps(old)
        frame()
        return new

    if isinstance(region, Branches):
        return Branches(place(region.index), tuple(map(block, region.branches)))
    copies = []
    for c in region.copies:
        frame()
        blocks = [block(old) for old in (c.head, c.leave, c.tail, c.turn)]
        copies.append(Iteration(blocks[0], place(c.test) if c.test is not None else None, *blocks[1:]))
    counter = place(region.counter) if region.counter is not None else None
    count = place(region.count) if region.count is not None else None
    begins = {place(View.whole(tensor, TensorSpec((), int8))).buffer for tensor in region.begins}
    return replace(region, copies=tuple(copies), counter=counter, count=count, begins=tuple(sorted(begins)))


def _in_turn(i: int, waits: Sequence[Sequence[int]], done: set[int]) -> Iterator[int]:
    """Yields a number after the numbers that it waits for, each once. `share` lets no moves wait in a circle."""
    if i not in done:
        done.add(i)
        for j in waits[i]:
            yield from _in_turn(j, waits, done)
        yield i


def _same_bytes(x: View, y: View) -> bool:
    same = (x.buffer, x.offset, x.advances, x.spec.shape) == (y.buffer, y.offset, y.advances, y.spec.shape)
    used = [n > 1 for n in x.spec.shape]
    return same and all(a == b or not u for a, b, u in zip(x.strides, y.strides, used, strict=True))
