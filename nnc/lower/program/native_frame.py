"""The memory of a single call of a compiled program: one arena, and the words that compiled code reads beside it.

The entry runs all steps. It calls back for steps that only Python can run, whose views are bound as in
`nnc.lower.program.frame`: once where they stay in place, for each call where they lie in its arguments, for each iteration
where they move with a loop.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from nnc.commands.loop import check_branch, check_steps
from nnc.devices.cpu import aligned_bytes
from nnc.errors import InternalError, NncError, word_anew
from nnc.graph import reference
from nnc.lower.plan.schedule.run import StreamRunner
from nnc.lower.plan.schedule.types import Around
from nnc.lower.plan.stages import Branches, Buffer, Kind, Loop, NDArray, Step, Steps, View
from nnc.lower.program.arguments import FrameLayout, as_plain
from nnc.lower.program.entry import BIND
from nnc.lower.program.entry_steps import CALLS, POLL, Failure
from nnc.lower.program.frame import (
    Arrays,
    NoRoomError,
    Run,
    as_bytes,
    check_inputs,
    explain,
    make_view,
    result_of,
    tape_view,
)
from nnc.lower.program.native_program import Entry, ProgramAbi, Result

DirectCall = Callable[[list[Any]], Any]  # of a list of arrays, which it empties: see `nnc.lower.program.direct`

_NOTHING: tuple[NDArray, ...] = ()
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class CallMemory:
    """The memory that a program writes to in a call: an arena, and the fresh arrays of its outputs."""

    arena: NDArray
    made: list[NDArray]

    @classmethod
    def of(cls, outside: ProgramAbi, arena: NDArray | None = None) -> CallMemory:
        """Makes the memory of a program's call; its arena may have been made before."""
        if arena is None:
            arena = aligned_bytes(outside.arena_bytes)
        return cls(arena, [np.empty(spec.shape, spec.dtype) for spec in outside.made])

    def fits(self, outside: ProgramAbi) -> bool:
        """Whether a program's call can use this memory."""
        made = [(array.shape, array.dtype) for array in self.made]
        return self.arena.nbytes == outside.arena_bytes and made == [(s.shape, s.dtype) for s in outside.made]


class _Memory:
    """The memory of a frame: the arena, the arguments of the present call, tapes, and the iterations of loops."""

    def __init__(self, entry: Entry, arena: NDArray) -> None:
        outside, words = entry.outside, entry.words
        self.entry = entry
        self.arena = arena
        self.words = (ctypes.c_int64 * words.size)()
        self.given: Sequence[NDArray] = _NOTHING
        self.made: Sequence[NDArray] = _NOTHING
        self.call = 0  # counts calls
        self._tapes: dict[int, NDArray] = {}  # by buffer
        self.words[FrameLayout.table_at] = ctypes.addressof(entry.table)
        self.words[FrameLayout.arena_at] = self.arena.ctypes.data
        for i, constant in enumerate(outside.constants):
            self.words[words.constant(i)] = constant.ctypes.data

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The program's buffers."""
        return self.entry.parts().planned.bound.buffers

    @cached_property
    def _static(self) -> dict[int, NDArray]:
        """The memory of buffers whose address is fixed."""
        found: dict[int, NDArray] = {}
        for number, (buffer, offset) in enumerate(zip(self.buffers, self.entry.parts().planned.offsets, strict=True)):
            if offset is not None:
                found[number] = self.arena[offset : offset + buffer.nbytes]
            elif buffer.kind is Kind.CONSTANT:
                found[number] = as_bytes(self.entry.outside.constants[buffer.index])
        return found

    def whole(self, of: Buffer | Result) -> NDArray:
        """The whole array within which an argument or an output lies."""
        return (self.given if of.kind is Kind.INPUT else self.made)[of.index]

    def bind(self, view: View) -> NDArray | None:
        """The array of a view at a fixed address; None for other views."""
        if self.buffers[view.buffer].kind is Kind.TAPE:
            return tape_view(self._tapes, view, self.buffers[view.buffer].symbol.spec)
        if view.rounds or view.buffer not in self._static:
            return None
        return make_view(self._static[view.buffer], view)

    def moved(self, view: View) -> int:
        """The offset of a view in this iteration, in bytes."""
        words = self.entry.words
        return sum(self.words[words.round(number)] * step for number, step in view.rounds)

    def view(self, view: View, moved: int) -> NDArray:
        """The array of a view in this call, at its offset in the present iteration."""
        memory = self._static.get(view.buffer)
        if memory is None:
            memory = as_bytes(self.whole(self.buffers[view.buffer]))
        return make_view(memory, view, moved)

    def now(self, view: View) -> NDArray:
        """The array of a view at this moment."""
        array = self.bind(view)
        return self.view(view, self.moved(view)) if array is None else array

    def clear(self) -> None:
        """Frees the rows of tapes."""
        for handle in self._tapes.values():
            handle[...] = None


@dataclass(slots=True)
class _Place:
    """The place of an array that is set anew: for each call, and where it has moved since."""

    arrays: Arrays
    position: int
    view: View
    moved: int | None = None


class _Block:
    """Steps in a row that run in Python."""

    def __init__(self, memory: _Memory, steps: Steps) -> None:
        self._memory, self._steps, self._call = memory, steps, -1
        self._places: list[_Place] = []
        self._runs = [self._run(step) for step in steps]

    def _run(self, step: Step) -> Run:
        kernel = self._memory.entry.parts().kernels[id(step)]
        return kernel.run, self._views(step.inputs), self._views(step.outputs), step.params

    def _views(self, views: Sequence[View]) -> Arrays:
        arrays: Arrays = []
        for view in views:
            arrays.append(self._memory.bind(view))
            if arrays[-1] is None:
                self._places.append(_Place(arrays, len(arrays) - 1, view))
        return arrays

    def __call__(self) -> None:
        """Runs the steps."""
        memory, done = self._memory, 0
        is_new, self._call = self._call != memory.call, memory.call
        for place in self._places:
            moved = memory.moved(place.view) if place.view.rounds else 0
            if is_new or moved != place.moved:
                place.arrays[place.position], place.moved = memory.view(place.view, moved), moved
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
            place.arrays[place.position] = None


@dataclass(slots=True)
class _Callbacks:
    """The function that compiled code calls back: it runs blocks of steps, by number. Exceptions wait until the entry has
    returned.
    """

    blocks: list[_Block]
    errors: dict[int, BaseException] = field(default_factory=dict)

    def __call__(self, call: int) -> int:
        """Runs a block; an interrupt before that breaks the call off."""
        number = call % CALLS
        try:
            self._run(number)
            return call
        except BaseException as error:
            self.errors[number] = error
            return 0

    def serve(self) -> Generator[int, int, None]:
        """Runs block after block, for one thread, as a generator: so it also catches interrupts that arise as it resumes."""
        done, number = 0, POLL
        while True:
            try:
                while True:
                    call = yield done
                    number = call % CALLS
                    self._run(number)
                    done, number = call, POLL
            except GeneratorExit:
                return
            except BaseException as error:
                self.errors[number] = error
                done, number = 0, POLL

    def _run(self, number: int) -> None:
        if number != POLL:
            self.blocks[number]()


class NativeFrame:
    """The arena of one call at a time of a compiled program. `room` is the memory of its first call, where that was prefetched."""

    def __init__(self, entry: Entry, around: Around | None, room: CallMemory | None = None) -> None:
        self.entry = entry
        self._made = [room.made] if room is not None else []
        self._memory = _Memory(entry, aligned_bytes(entry.outside.arena_bytes) if room is None else room.arena)
        self._callbacks = _Callbacks([_Block(self._memory, steps) for steps in entry.blocks])
        self._function = _CALLBACK(self._called())
        schedule = entry.parts().schedule if entry.apart else None
        # Steps that follow one another share their workspace; steps that run side by side cannot.
        shared = schedule is None or len(schedule.streams) == 1
        sizes = (
            [max((native.scratch for native in entry.states), default=0)]
            if shared
            else [n.scratch for n in entry.states]
        )
        self._scratch = [aligned_bytes(size) for size in sizes]
        places = [memory.ctypes.data for memory in self._scratch] * (len(entry.states) if shared else 1)
        self._states = [
            native.state(at) for native, at in zip(entry.states, places, strict=True) if native.state is not None
        ]
        words = self._memory.words
        self.address = ctypes.addressof(words)
        words[FrameLayout.callback_at] = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        words[FrameLayout.next_call] = self.address * CALLS  # other frames have other numbers of calls
        for i, state in enumerate(self._states):
            words[entry.words.state(i)] = state.address
        self._runner: StreamRunner | None = None
        if schedule is not None:
            steps = range(len(entry.parts().planned.bound.steps))
            self._runner = StreamRunner(schedule, [partial(self._part, i) for i in steps], around)
        self._bind = (BIND,) if entry.apart else ()
        self._is_plain = not entry.blocks and not entry.apart
        self._returns_made = entry.outside.returns_made
        self.direct: DirectCall | None = None
        self._shapes = [spec.shape for spec in entry.outside.made]
        self._dtypes = [spec.dtype for spec in entry.outside.made]

    def _called(self) -> Callable[[int], int]:
        """Returns the function that compiled code calls back."""
        if self.entry.apart:  # from several threads
            return self._callbacks
        generator = self._callbacks.serve()
        next(generator)
        return generator.send

    @property
    def arena(self) -> NDArray:
        """The arena's bytes."""
        return self._memory.arena

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Runs all steps; returns the outputs.

        Raises:
            Exception: a step failed, or the inputs do not fit, as for `Program.run`.
        """
        entry, memory = self.entry, self._memory
        memory.given = given = list(inputs)
        try:
            memory.made = made = self._made.pop() if self._made else list(map(np.empty, self._shapes, self._dtypes))
        except MemoryError as error:
            memory.given = _NOTHING
            raise NoRoomError(str(error)) from None
        memory.words[FrameLayout.given_at], memory.words[FrameLayout.made_at] = id(given), id(made)
        try:
            if self._is_plain:
                code = entry.call(self.address)
                if code:
                    self._go_on(code)
            else:
                self._run_with_python()
            return made if self._returns_made else self._results()
        finally:
            memory.given = memory.made = _NOTHING

    def _run_with_python(self) -> None:
        """Runs all steps, some of them in Python, or on several streams."""
        self._memory.call += 1
        try:
            with np.errstate(all="ignore"):
                code = self.entry.call(self.address, *self._bind)
                if code:
                    self._go_on(code)
                if self._runner is not None:
                    self._runner()
        finally:
            for block in self._callbacks.blocks:
                block.clear()
            self._memory.clear()

    def _go_on(self, code: int) -> None:
        """Continues after the entry stopped: runs it again with copies of refused inputs, or raises the error."""
        memory, outside = self._memory, self.entry.outside
        if Failure.of(code)[0] is Failure.REFUSED:
            checked = zip(check_inputs(outside, memory.given), outside.inputs, strict=True)
            memory.given = given = [as_plain(x, spec.dtype) for x, spec in checked]
            memory.words[FrameLayout.given_at] = id(given)
            code = self.entry.call(self.address, *self._bind)
        if code:
            self._fail(code)

    def _part(self, position: int) -> None:
        """Runs a step."""
        code = self.entry.call(self.address, position)
        if code:
            self._fail(code)

    def _results(self) -> list[NDArray]:
        memory = self._memory
        return [result_of(result.view, memory.whole(result)) for result in self.entry.outside.results]

    # -- failures ------------------------------------------------------------------------------------------------------

    def _fail(self, code: int) -> None:
        """Raises the error for which the entry stopped: the one that Python would have raised."""
        kind, number = Failure.of(code)
        if kind in (Failure.PYTHON, Failure.INTERRUPT):
            errors = self._callbacks.errors
            found = errors.pop(number if kind is Failure.PYTHON else POLL, errors.pop(POLL, None))
            error = (
                found if found is not None else KeyboardInterrupt()
            )  # an interrupt before the callback could catch it
            try:
                raise error
            finally:
                del found, error, errors  # they hold this frame
        step = self.entry.steps[number]
        region = step.region
        if kind is Failure.LIMIT and isinstance(region, Loop):
            word_anew(lambda: check_steps(region.limit or 0, region.limit), step.source)
        elif kind is Failure.BRANCH and isinstance(region, Branches):
            index = int(self._memory.now(region.index))
            word_anew(lambda: check_branch(index, len(region.branches)), step.source)
        elif kind is Failure.KERNEL:
            with np.errstate(all="ignore"):
                self._reword(step)
        raise InternalError(f"{self.entry.outside.name}: {step.command.name} stopped: {kind.name.lower()}")

    def _reword(self, step: Step) -> None:
        """Runs a step that its compiled kernel refused by the reference, which words the error."""
        arguments, results = ([self._memory.now(view) for view in views] for views in (step.inputs, step.outputs))

        def refer(inputs: Arrays, outputs: Arrays, params: Mapping[str, Any]) -> None:
            reference[step.command](*inputs, **params)

        is_simple = step.command in reference and not step.graphs
        kernel = refer if is_simple else self.entry.parts().kernels[id(step)].run
        try:
            kernel(arguments, results, step.params)
        except NncError:
            explain(step, (kernel, arguments, results, step.params))
            raise
