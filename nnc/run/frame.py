"""A call's memory, and how a program without compiled code runs in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from nnc.base.later import later
from nnc.base.machine import check_memory
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.lower.plan.schedule.types import Around, Schedule
from nnc.lower.plan.stages import NDArray
from nnc.run.executor import NOTHING, Executor, PythonSteps
from nnc.run.native_program import ProgramAbi

stream_runner = later(f"{__package__}.streams", "StreamRunner")


class NoRoomError(MemoryError):
    """There is no memory for the arena or the outputs of a program; no step has run yet."""


class Frame(ABC):
    """The memory of one call at a time, and the code that runs the program in it.

    Args:
        executor: binds steps to the memory.
        made: memory for the results of the first call, where it was made in advance.
    """

    def __init__(self, executor: Executor, made: list[NDArray] | None = None) -> None:
        self.executor = executor
        self._ready = [made] if made is not None else []
        specs = executor.outside.made
        self._shapes, self._dtypes = [spec.shape for spec in specs], [spec.dtype for spec in specs]
        self._made_bytes = sum(spec.nbytes for spec in specs)
        self._returns_made = executor.outside.returns_made

    @property
    def arena(self) -> NDArray:
        """The arena's bytes."""
        return self.executor.arena

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Runs all steps, and returns the outputs.

        Raises:
            NoRoomError: the system gives no memory for the outputs.
            Exception: a step failed, or the inputs do not fit, as for `Program.run`.
        """
        executor = self.executor
        try:
            if self._ready:
                made = self._ready.pop()
            else:
                check_memory(self._made_bytes)
                made = list(map(np.empty, self._shapes, self._dtypes))
        except MemoryError as error:
            raise NoRoomError(str(error)) from None
        executor.given, executor.made = [*inputs], made
        try:
            self._execute()
            return made if self._returns_made else executor.results()
        finally:
            executor.given = executor.made = NOTHING

    @abstractmethod
    def _execute(self) -> None:
        """Runs all steps on the arrays of the present call."""


class PythonFrame(Frame):
    """The memory of one call at a time of a program whose steps all run from Python.

    Args:
        schedule: the streams that run steps; without one, steps run in their recorded order.
        around: called for each step, which it runs; see `Around`.
    """

    def __init__(self, executor: Executor, schedule: Schedule | None = None, around: Around | None = None) -> None:
        super().__init__(executor)
        steps = executor.parts().planned.bound.steps
        self._run: Callable[[], None]
        if schedule is None or (len(schedule.streams) == 1 and around is None):
            self._run = block = PythonSteps(executor, steps)
            self._blocks = [block]
        else:
            self._blocks = [PythonSteps(executor, (step,)) for step in steps]
            self._run = stream_runner(schedule, self._blocks, around)

    def _execute(self) -> None:
        executor = self.executor
        executor.begin(check_inputs(executor.outside, executor.given))
        try:
            with np.errstate(all="ignore"):
                self._run()
            executor.finish()
        finally:
            executor.clear(self._blocks)


def check_inputs(outside: ProgramAbi, inputs: Sequence[NDArray]) -> list[NDArray]:
    """Returns the inputs of a call as a program takes them: contiguous and aligned, copied where they are not. Donated inputs
    get memory of their own.

    Raises:
        ArgumentError: the number of inputs is wrong.
        ShapeError, DTypeError: an input has another spec.
    """
    if len(inputs) != len(outside.inputs):
        problem = f"the program takes {len(outside.inputs)} inputs, {len(inputs)} were given."
        raise user_error(ArgumentError, outside.name, problem, fix="pass one array for each input of the graph.")
    checked = list(inputs)
    for i, (x, spec) in enumerate(zip(inputs, outside.inputs, strict=True)):
        if x.shape != spec.shape or x.dtype != spec.dtype:
            problem = f"input {i} has another spec than the program was lowered for."
            operands = {"expected": spec, "given": spec_of(x)}
            fix = "convert the array, or lower the graph for its spec."
            raise user_error(
                ShapeError if x.shape != spec.shape else DTypeError, outside.name, problem, operands=operands, fix=fix
            )
        if not x.flags.c_contiguous or not x.flags.aligned:
            checked[i] = np.array(x, order="C", copy=True)
    meeting = _meeting(checked) if outside.donated else frozenset[int]()
    for i in outside.donated:
        if i in meeting or not checked[i].flags.writeable:
            checked[i] = checked[i].copy()
    return checked


def _meeting(arrays: Sequence[NDArray]) -> set[int]:
    """Returns the positions of contiguous arrays that share memory with others among them."""
    places = sorted((x.ctypes.data, x.nbytes, i) for i, x in enumerate(arrays) if x.nbytes)
    found: set[int] = set()
    reach, last = 0, -1  # of the arrays before: the end of the memory, and its owner
    for begin, nbytes, i in places:
        if begin < reach:
            found |= {i, last}
        if begin + nbytes > reach:
            reach, last = begin + nbytes, i
    return found
