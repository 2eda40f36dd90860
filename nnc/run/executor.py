"""Binds a program's steps to memory, and runs steps from Python: this file alone knows the arrays of a call's tensors.

Views place tensors within numbered buffers. An executor turns views into arrays, at three moments:

    memory                                   bound to                                     moment
    arena, constants, tapes                  memory of the executor, of the program       once, as a block of steps is made
    arguments (also donated ones), results   the caller's arrays                          the first run of a block in a call
    views that move with a loop              the same, moved by the present iterations    a run of a block in other iterations

Programs without a compiler run all steps in this way (`nnc.run.frame`). Compiled entries read the same addresses from the
words of their frame, and call back for the steps that only Python can run (`nnc.run.native_frame`). Programs on other
devices have a frame of their own (`nnc.run.device_frame`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnc.base.source import SourceLine
from nnc.commands.loop import check_branch, check_steps
from nnc.errors import NncError
from nnc.errors.errors import word_anew
from nnc.graph.registry import effect
from nnc.lower.plan.stages import Branches, Buffer, Kind, Loop, NDArray, Step, Steps, View
from nnc.run.native_program import ProgramAbi, ProgramParts, Result

Arrays = list[Any]
Run = tuple[Callable[..., None], Arrays, Arrays, Mapping[str, Any]]

NOTHING: tuple[NDArray, ...] = ()


class Executor:
    """The memory of one call at a time, to which the blocks of steps are bound.

    Blocks hold their executor, which holds none of them: memory is freed as soon as nobody holds the frame of a call.

    Args:
        outside: the program's interface: its arguments and results.
        parts: returns the parts of the program; called when a step is bound.
        arena: memory for all intermediate values of the program.

    Attributes:
        given: the arguments of the present call.
        made: the memory for the call's results.
        call: the number of the call, from which blocks learn that arguments are new.
        iterations: the current iteration of each running loop.
    """

    def __init__(self, outside: ProgramAbi, parts: Callable[[], ProgramParts], arena: NDArray) -> None:
        self.outside, self.parts, self.arena = outside, parts, arena
        self.given: Sequence[NDArray] = NOTHING
        self.made: Sequence[NDArray] = NOTHING
        self.call = 0
        self.iterations: MutableSequence[int] | ctypes.Array[ctypes.c_int64] = [0] * outside.loops
        self._tapes: dict[int, NDArray] = {}  # by buffer

    # -- addresses of views -------------------------------------------------------------------------------------------

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The program's buffers."""
        return self.parts().planned.bound.buffers

    @cached_property
    def _fixed(self) -> tuple[NDArray | None, ...]:
        return tuple(map(self.fixed, range(len(self.buffers))))

    def fixed(self, number: int) -> NDArray | None:
        """Returns the bytes of a buffer at a fixed address; None for other buffers."""
        buffer, offset = self.buffers[number], self.parts().planned.offsets[number]
        if offset is not None:
            return self.arena[offset : offset + buffer.nbytes]
        return as_bytes(self.outside.constants[buffer.index]) if buffer.kind is Kind.CONSTANT else None

    def whole(self, of: Buffer | Result) -> NDArray:
        """Returns the whole array within which an argument or an output lies."""
        return (self.given if of.kind is Kind.INPUT else self.made)[of.index]

    def stays(self, view: View) -> bool:
        """Whether a view has the same address in all calls and iterations."""
        is_tape = self.buffers[view.buffer].kind is Kind.TAPE
        return is_tape or (not view.advances and self._fixed[view.buffer] is not None)

    def moved(self, view: View) -> int:
        """Returns the offset of a view in the present iterations, in bytes."""
        moved = 0
        for number, step in view.advances:  # mostly one, for which `sum` of a generator takes three times as long
            moved += self.iterations[number] * step
        return moved

    def memory(self, view: View) -> NDArray:
        """Returns the bytes of the buffer of a view in the present call."""
        memory = self._fixed[view.buffer]
        return as_bytes(self.whole(self.buffers[view.buffer])) if memory is None else memory

    def now(self, view: View) -> NDArray:
        """Returns the array of a view at this moment."""
        buffer = self.buffers[view.buffer]
        if buffer.kind is Kind.TAPE:
            spec = buffer.symbol.spec
            handle = self._tapes.setdefault(view.buffer, np.empty(spec.shape, spec.dtype))
            return as_strided(handle, view.spec.shape, view.strides)
        return make_view(self.memory(view), view, self.moved(view))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def bind(self, step: Step, block: PythonSteps) -> Run:
        """Binds a step of a block: the function to run, and its operands."""
        if isinstance(step.region, Loop):
            return self._loop(step.region, step.source, block), [], [], {}
        if isinstance(step.region, Branches):
            return self._branches(step.region, step.source, block), [], [], {}
        run = self.parts().kernels[id(step)].run
        return run, block.arrays(step.inputs), block.arrays(step.outputs), step.params

    def _branches(self, region: Branches, source: SourceLine | None, block: PythonSteps) -> Callable[..., None]:
        index = block.arrays((region.index,))
        branches = list(map(block.inner, region.branches))

        def run(*_: Any) -> None:
            chosen = int(index[0])
            if not 0 <= chosen < len(branches):
                word_anew(lambda: check_branch(chosen, len(branches)), source)
            branches[chosen]()

        return run

    def _loop(self, region: Loop, source: SourceLine | None, block: PythonSteps) -> Callable[..., None]:
        copies = []
        for c in region.copies:
            head = block.inner(c.head)
            test = head.arrays((c.test,)) if c.test is not None else None
            copies.append((head, test, block.inner(c.leave), block.inner(c.tail), block.inner(c.turn)))
        counter = block.arrays((region.counter,)) if region.counter is not None else None
        count = block.arrays((region.count,)) if region.count is not None else None
        last = len(copies) - 1

        def run(*_: Any) -> None:
            step = copy = 0
            length = int(count[0]) if count is not None else region.length
            while True:
                head, test, leave, tail, turn = copies[copy]
                if count is not None and step == length:
                    leave()
                    return
                at = length - 1 - step if region.reverse and length is not None else step
                self.iterations[region.number] = at
                if counter is not None:
                    counter[0][...] = at
                head()
                if test is not None and not test[0]:
                    leave()
                    return
                if step == region.limit:
                    word_anew(lambda: check_steps(region.limit or 0, region.limit), source)
                tail()
                step += 1
                if step == region.length:
                    return
                turn()
                copy = copy + 1 if copy < last else region.first

        return run

    # -- calls ---------------------------------------------------------------------------------------------------------

    def begin(self, given: Sequence[NDArray]) -> None:
        """Begins a call on arguments that fit the program: blocks bind them when they run next."""
        self.given = given
        self.call += 1

    def finish(self) -> None:
        """Ends a call in which all steps ran: steps have written to the caller's arrays, so that nothing is left to do."""

    def results(self) -> list[NDArray]:
        """Returns the outputs of the present call, each within the array that was given or made for it."""
        return [result_of(result.view, self.whole(result)) for result in self.outside.results]

    def clear(self, blocks: Iterable[PythonSteps]) -> None:
        """Drops the references of blocks to the arrays of a call, and of tapes to Python's objects."""
        for block in blocks:
            block.clear()
        for handle in self._tapes.values():
            handle[...] = None


@dataclass(slots=True)
class _ArrayPlace:
    """The place in a list of an array that is set anew: in each call, and where it has moved since."""

    arrays: Arrays
    position: int
    view: View
    memory: Any = None  # the bytes of its buffer, in the present call
    moved: int | None = None


class PythonSteps:
    """Steps in a row that run in Python."""

    def __init__(self, executor: Executor, steps: Steps) -> None:
        self._executor, self._steps, self._call = executor, steps, -1
        self._inner: list[PythonSteps] = []
        self._places: list[_ArrayPlace] = []
        self._moving: list[_ArrayPlace] = []  # those of them that move within a call
        self._runs = [executor.bind(step, self) for step in steps]

    def inner(self, steps: Steps) -> PythonSteps:
        """Binds the steps of a branch, or of a part of an iteration, within this block."""
        self._inner.append(PythonSteps(self._executor, steps))
        return self._inner[-1]

    def arrays(self, views: Sequence[View]) -> Arrays:
        """Binds views: arrays that stay are in the list at once, others whenever the block runs."""
        arrays: Arrays = []
        for view in views:
            if self._executor.stays(view):
                arrays.append(self._executor.now(view))
            else:
                self._places.append(_ArrayPlace(arrays, len(arrays), view))
                arrays.append(None)
                if view.advances:
                    self._moving.append(self._places[-1])
        return arrays

    def __call__(self) -> None:
        """Runs the steps."""
        executor, done = self._executor, 0
        places = self._moving
        if self._call != executor.call:
            self._call, places = executor.call, self._places
            for place in places:
                place.memory, place.moved = executor.memory(place.view), None
        for place in places:
            moved = executor.moved(place.view) if place.view.advances else 0
            if moved != place.moved:
                place.arrays[place.position], place.moved = make_view(place.memory, place.view, moved), moved
        try:
            for kernel, arguments, results, params in self._runs:
                kernel(arguments, results, params)
                done += 1
        except NncError:
            explain(self._steps[done], self._runs[done])
            raise

    def clear(self) -> None:
        """Drops the references to the arrays of a call."""
        for place in self._places:
            place.arrays[place.position] = place.memory = None
        for block in self._inner:
            block.clear()


def explain(step: Step, run: Run) -> None:
    """Raises the error of a failed step once more, worded for the user's line that made the step."""
    if step.graphs or step.region is not None or step.source is None or step.command in effect:
        return
    kernel, arguments, results, params = run
    word_anew(partial(kernel, arguments, results, params), step.source)


def result_of(view: View, memory: NDArray) -> NDArray:
    """Returns an output within memory that was given or made."""
    is_whole = memory.shape == view.spec.shape and memory.dtype == view.spec.dtype
    return memory if is_whole else make_view(as_bytes(memory), view)


def as_bytes(array: NDArray) -> NDArray:
    """Returns the memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


def make_view(memory: NDArray, view: View, offset: int = 0) -> NDArray:
    """Returns the strided tensor `view` of bytes `memory`, from `offset` on."""
    spec = view.spec
    if spec.size == 0:
        return np.empty(spec.shape, spec.dtype)
    return np.ndarray(spec.shape, spec.dtype, memory, offset + view.offset, view.strides)
