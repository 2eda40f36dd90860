"""The memory of a single call of a compiled program: one arena, and the words that compiled code reads beside it.

The entry runs all steps, and calls back for blocks of steps that only Python can run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnc.base.machine import check_memory
from nnc.commands.loop import check_branch, check_steps
from nnc.device.cpu import aligned_bytes
from nnc.errors import InternalError, NncError
from nnc.errors.errors import word_anew
from nnc.graph import reference
from nnc.lower.plan.schedule.types import Around
from nnc.lower.plan.stages import Branches, Loop, NDArray, Step
from nnc.run.arguments import FrameLayout, as_plain
from nnc.run.entry import BIND
from nnc.run.entry_steps import CALLS, POLL, Failure
from nnc.run.executor import Arrays, Executor, PythonSteps, explain
from nnc.run.frame import Frame, check_inputs, stream_runner
from nnc.run.native_program import Entry, ProgramAbi

DirectCall = Callable[[list[Any]], Any]  # of a list of arrays, which it empties: see `nnc.run.direct`

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class CallMemory(NamedTuple):
    """The memory that a program writes to in a call: an arena, and the fresh arrays of its outputs."""

    arena: NDArray
    made: list[NDArray]

    @classmethod
    def of(cls, outside: ProgramAbi, arena: NDArray | None = None) -> CallMemory:
        """Makes the memory of a program's call; its arena may have been made in advance.

        Raises:
            MemoryError: the system has no memory left.
        """
        if arena is None:
            arena = aligned_bytes(outside.arena_bytes)
        check_memory(sum(spec.nbytes for spec in outside.made))
        return cls(arena, [np.empty(spec.shape, spec.dtype) for spec in outside.made])

    def fits(self, outside: ProgramAbi) -> bool:
        """Whether a program's call can use this memory."""
        made = [(array.shape, array.dtype) for array in self.made]
        return self.arena.nbytes == outside.arena_bytes and made == [(s.shape, s.dtype) for s in outside.made]


@dataclass(slots=True)
class _Callbacks:
    """The function that compiled code calls back: it runs blocks of steps, by number. Exceptions wait until the entry has
    returned.
    """

    blocks: list[PythonSteps]
    errors: dict[int, BaseException] = field(default_factory=dict)

    def __call__(self, call: int) -> int:
        """Runs a block; an interrupt before that breaks the call off."""
        number = call % CALLS
        try:
            self._call_block(number)
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
                    self._call_block(number)
                    done, number = call, POLL
            except GeneratorExit:
                return
            except BaseException as error:
                self.errors[number] = error
                done, number = 0, POLL

    def _call_block(self, number: int) -> None:
        if number != POLL:
            self.blocks[number]()


class NativeFrame(Frame):
    """The arena of one call at a time of a compiled program. `room` is the memory of its first call, where that was prefetched."""

    def __init__(self, entry: Entry, around: Around | None, room: CallMemory | None = None) -> None:
        outside, layout = entry.outside, entry.words
        arena = aligned_bytes(outside.arena_bytes) if room is None else room.arena
        super().__init__(Executor(outside, entry.parts, arena), room.made if room is not None else None)
        self.entry = entry
        self._words = words = (ctypes.c_int64 * layout.size)()
        self.address = ctypes.addressof(words)
        self.executor.iterations = (ctypes.c_int64 * outside.loops).from_buffer(words, 8 * layout.round(0))
        self._callbacks = _Callbacks([PythonSteps(self.executor, steps) for steps in entry.blocks])
        self._function = _CALLBACK(self._called())
        schedule = entry.parts().schedule if entry.apart else None
        # Steps that follow one another share their workspace; steps that run side by side cannot.
        shared = schedule is None or len(schedule.streams) == 1
        sizes = [native.scratch for native in entry.states]
        self._scratch = [aligned_bytes(size) for size in ([max(sizes, default=0)] if shared else sizes)]
        places = [memory.ctypes.data for memory in self._scratch] * (len(entry.states) if shared else 1)
        self._states = [
            native.state(at) for native, at in zip(entry.states, places, strict=True) if native.state is not None
        ]
        words[FrameLayout.table_at] = ctypes.addressof(entry.table)
        words[FrameLayout.callback_at] = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        words[FrameLayout.arena_at] = arena.ctypes.data
        words[FrameLayout.next_call] = self.address * CALLS  # other frames have other numbers of calls
        for i, constant in enumerate(outside.constants):
            words[layout.constant(i)] = constant.ctypes.data
        for i, state in enumerate(self._states):
            words[layout.state(i)] = state.address
        for i, number in enumerate(entry.numbers):
            words[layout.number(i)] = number
        self._runner: Any = None
        if schedule is not None:
            steps = range(len(entry.parts().planned.bound.steps))
            self._runner = stream_runner(schedule, [partial(self._part, i) for i in steps], around)
        self._bind = (BIND,) if entry.apart else ()
        self._is_plain = not entry.blocks and not entry.apart
        self.direct: DirectCall | None = None

    def _called(self) -> Callable[[int], int]:
        """Returns the function that compiled code calls back."""
        if self.entry.apart:  # from several threads
            return self._callbacks
        generator = self._callbacks.serve()
        next(generator)
        return generator.send

    def _execute(self) -> None:
        executor = self.executor
        self._words[FrameLayout.given_at], self._words[FrameLayout.made_at] = id(executor.given), id(executor.made)
        if self._is_plain:
            code = self.entry.call(self.address)
            if code:
                self._go_on(code)
        else:
            self._run_with_python()

    def _run_with_python(self) -> None:
        """Runs all steps, some of them in Python, or on several streams."""
        executor = self.executor
        executor.begin(executor.given)
        try:
            with np.errstate(all="ignore"):
                code = self.entry.call(self.address, *self._bind)
                if code:
                    self._go_on(code)
                if self._runner is not None:
                    self._runner()
        finally:
            executor.clear(self._callbacks.blocks)

    def _go_on(self, code: int) -> None:
        """Continues after the entry stopped: runs it again with copies of refused inputs, or raises the error."""
        executor, outside = self.executor, self.entry.outside
        if Failure.of(code)[0] is Failure.REFUSED:
            checked = zip(check_inputs(outside, executor.given), outside.inputs, strict=True)
            executor.given = given = [as_plain(x, spec.dtype) for x, spec in checked]
            self._words[FrameLayout.given_at] = id(given)
            code = self.entry.call(self.address, *self._bind)
        if code:
            self._fail(code)

    def _part(self, position: int) -> None:
        """Runs a step."""
        code = self.entry.call(self.address, position)
        if code:
            self._fail(code)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _fail(self, code: int) -> None:
        """Raises the error for which the entry stopped: the one that Python would have raised."""
        kind, number = Failure.of(code)
        if kind in (Failure.PYTHON, Failure.INTERRUPT):
            errors = self._callbacks.errors
            found = errors.pop(number if kind is Failure.PYTHON else POLL, errors.pop(POLL, None))
            # None is found where an interrupt came before the callback could catch it.
            error = found if found is not None else KeyboardInterrupt()
            try:
                raise error
            finally:
                del found, error, errors  # they hold this frame
        step = self.entry.steps[number]
        region = step.region
        if kind is Failure.LIMIT and isinstance(region, Loop):
            word_anew(lambda: check_steps(region.limit or 0, region.limit), step.source)
        elif kind is Failure.BRANCH and isinstance(region, Branches):
            index = int(self.executor.now(region.index))
            word_anew(lambda: check_branch(index, len(region.branches)), step.source)
        elif kind is Failure.KERNEL:
            with np.errstate(all="ignore"):
                self._reword(step)
        raise InternalError(f"{self.entry.outside.name}: {step.command.name} stopped: {kind.name.lower()}")

    def _reword(self, step: Step) -> None:
        """Runs a step that its compiled kernel refused by the reference, which words the error."""
        arguments, results = (list(map(self.executor.now, views)) for views in (step.inputs, step.outputs))

        def refer(inputs: Arrays, outputs: Arrays, params: Mapping[str, Any]) -> None:
            reference[step.command](*inputs, **params)

        is_simple = step.command in reference and not step.graphs
        kernel = refer if is_simple else self.entry.parts().kernels[id(step)].run
        try:
            kernel(arguments, results, step.params)
        except NncError:
            explain(step, (kernel, arguments, results, step.params))
            raise
