"""One arena and everything bound to it: the memory of a single call of a program.

Everything fixed is made once: views into the arena and the constants, and the argument lists of the kernels. A call sets
the views of its inputs and outputs in those lists, an iteration of a loop the views that move with its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnc.commands.loop import check_branch, check_steps
from nnc.commands.rules import effect
from nnc.devices.cpu import aligned_bytes
from nnc.errors import ArgumentError, DTypeError, NncError, ShapeError, user_error, word_anew
from nnc.graph import Kernel, TensorSpec, spec_of
from nnc.lower.plan.schedule.run import StreamRunner
from nnc.lower.plan.stages import Branches, Kind, Loop, NDArray, Step, Steps, View
from nnc.source import SourceLine

if TYPE_CHECKING:
    from nnc.lower.program.program import Program

Arrays = list[Any]
Run = tuple[Callable[..., None], Arrays, Arrays, Mapping[str, Any]]


@dataclass(slots=True)
class _Scope:
    """Arrays that are set anew for each call, or for each iteration of a loop: (list, position, view)."""

    patches: list[tuple[Arrays, int, View]] = field(default_factory=list)


class Frame:
    """The arena of one call at a time."""

    __slots__ = (
        "_call",
        "_fresh",
        "_memories",
        "_rounds",
        "_run",
        "_scopes",
        "_set_lists",
        "_tapes",
        "arena",
        "program",
    )

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arena = self._make_arena()
        self._tapes: dict[int, NDArray] = {}  # by buffer
        self._rounds: dict[int, int] = {}  # the present iteration of each loop that runs
        self._memories: list[Any] = [self._memory(i) for i in range(len(program.bound.buffers))]
        self._fresh = [(i, b.symbol.spec) for i, b in enumerate(program.bound.buffers) if b.kind is Kind.OUTPUT]
        self._call = _Scope()
        self._scopes: dict[int, _Scope] = {}  # of the copy of each loop that is being bound
        self._set_lists: list[_Scope] = [self._call]
        self._run = self._program(program.bound.steps)

    def _make_arena(self) -> NDArray:
        return aligned_bytes(self.program.arena_bytes)

    def _memory(self, number: int) -> NDArray | None:
        """The bytes of a buffer; None where each call has other memory for it."""
        buffer, offset = self.program.bound.buffers[number], self.program.offsets[number]
        if offset is not None:
            return self.arena[offset : offset + buffer.nbytes]
        if buffer.kind is Kind.CONSTANT:
            return as_bytes(self.program.bound.constants[buffer.index])
        return None

    # -- built once ----------------------------------------------------------------------------------------------------

    def _program(self, steps: Steps) -> Callable[[], None]:
        """A function that runs all steps by the schedule."""
        schedule, around = self.program.schedule, self.program.around
        if len(schedule.streams) == 1 and around is None:
            return self._block(steps)
        return StreamRunner(schedule, [self._block((step,)) for step in steps], around)

    def _block(self, steps: Steps) -> Callable[[], None]:
        """A function that runs steps."""
        runs = [self._step(step) for step in steps]

        def run() -> None:
            done = 0
            try:
                for kernel, arguments, results, params in runs:
                    kernel(arguments, results, params)
                    done += 1
            except NncError:
                explain(steps[done], runs[done])
                raise

        return run if steps else _nothing

    def _step(self, step: Step) -> Run:
        if isinstance(step.region, Loop):
            return self._loop(step.region, step.source), [], [], {}
        if isinstance(step.region, Branches):
            return self._branches(step.region, step.source), [], [], {}
        kernel: Kernel = self.program.kernel_of(step)
        return kernel.run, self._views(step.inputs), self._views(step.outputs), step.params

    def _views(self, views: Sequence[View]) -> Arrays:
        arrays: Arrays = []
        for view in views:
            arrays.append(self._bind(view, arrays, len(arrays)))
        return arrays

    def _bind(self, view: View, arrays: Arrays, position: int) -> NDArray | None:
        """The array of a view, or None and a note to set it later."""
        if self.program.bound.buffers[view.buffer].kind is Kind.TAPE:
            return tape_view(self._tapes, view, self.program.bound.buffers[view.buffer].symbol.spec)
        if view.rounds:
            scope = self._scopes[max(number for number, _ in view.rounds)]
        elif self._memories[view.buffer] is None:
            scope = self._call
        else:
            return make_view(self._memories[view.buffer], view)
        scope.patches.append((arrays, position, view))
        return None

    def _one(self, view: View) -> Arrays:
        return self._views((view,))

    def _branches(self, region: Branches, source: SourceLine | None) -> Callable[..., None]:
        index = self._one(region.index)
        branches = [self._block(branch) for branch in region.branches]

        def run(*_: Any) -> None:
            chosen = int(index[0])
            if not 0 <= chosen < len(branches):
                word_anew(lambda: check_branch(chosen, len(branches)), source)
            branches[chosen]()

        return run

    def _loop(self, region: Loop, source: SourceLine | None) -> Callable[..., None]:
        copies = []
        for c in region.copies:
            early, late = _Scope(), _Scope()
            self._set_lists += early, late
            self._scopes[region.number] = early
            head, test = self._block(c.head), self._one(c.test) if c.test is not None else None
            leave = self._block(c.leave)
            self._scopes[region.number] = late
            copies.append((early, head, test, leave, late, self._block(c.tail), self._block(c.turn)))
        counter = self._one(region.counter) if region.counter is not None else None
        count = self._one(region.count) if region.count is not None else None
        number, last = region.number, len(copies) - 1

        def run(*_: Any) -> None:
            step = copy = 0
            length = int(count[0]) if count is not None else region.length
            while True:
                if count is not None and step == length:
                    self._set(copies[copy][0])
                    copies[copy][3]()
                    return
                at = length - 1 - step if region.reverse and length is not None else step
                self._rounds[number] = at
                if counter is not None:
                    counter[0][...] = at
                early, head, test, leave, late, tail, turn = copies[copy]
                self._set(early)
                head()
                if test is not None and not test[0]:
                    leave()
                    return
                if step == region.limit:
                    word_anew(lambda: check_steps(region.limit or 0, region.limit), source)
                self._set(late)
                tail()
                step += 1
                if step == region.length:
                    return
                turn()
                copy = copy + 1 if copy < last else region.first

        return run

    # -- each call, each iteration -----------------------------------------------------------------------------------------

    def _set(self, scope: _Scope) -> None:
        for arrays, position, view in scope.patches:
            moved = sum(self._rounds[number] * step for number, step in view.rounds)
            arrays[position] = make_view(self._memories[view.buffer], view, moved)

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Runs all steps; returns the outputs.

        Raises:
            Exception: a step failed, or the inputs do not fit, as for `Program.run`.
        """
        inputs = check_inputs(self.program.bound, inputs)
        with np.errstate(all="ignore"):
            return self._run_checked(inputs)

    def _run_checked(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        program = self.program
        fresh = {i: np.empty(spec.shape, spec.dtype) for i, spec in self._fresh}
        given = dict(enumerate(inputs))
        for i, array in (*given.items(), *fresh.items()):  # inputs are the first buffers
            self._memories[i] = as_bytes(array)
        try:
            self._set(self._call)
            self._run()
        finally:
            self._clear()
            for i in (*given, *fresh):
                self._memories[i] = None
        return [
            result_of(view, given[view.buffer] if view.buffer in given else fresh[view.buffer])
            for view in program.bound.outputs
        ]

    def _clear(self) -> None:
        """Lets go of the arrays of a call."""
        for scope in self._set_lists:
            for arrays, position, _ in scope.patches:
                arrays[position] = None
        for handle in self._tapes.values():
            handle[...] = None


def _nothing() -> None:
    """Runs no step."""


def explain(step: Step, run: Run) -> None:
    """Raises the error of a failed step once more, worded for the user's line that made the step."""
    if step.graphs or step.region is not None or step.source is None or step.command in effect:
        return
    kernel, arguments, results, params = run
    word_anew(lambda: kernel(arguments, results, params), step.source)


class Takes(Protocol):
    """The specs with which inputs are compared."""

    @property
    def name(self) -> str:
        """The name of the program."""
        ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The specs that the program was lowered for."""
        ...

    @property
    def donated(self) -> tuple[int, ...]:
        """The inputs that the program overwrites."""
        ...


def check_inputs(bound: Takes, inputs: Sequence[NDArray]) -> list[NDArray]:
    """The inputs of a call as a program takes them: contiguous and aligned, copied where they are not; donated ones have memory of
    their own.

    Raises:
        ArgumentError: another number of inputs.
        ShapeError, DTypeError: an input has another spec.
    """
    if len(inputs) != len(bound.inputs):
        raise user_error(
            ArgumentError, bound.name, f"the program takes {len(bound.inputs)} inputs, {len(inputs)} were given.",
            fix="pass one array for each input of the graph.",
        )  # fmt: skip
    checked = list(inputs)
    for i, (x, spec) in enumerate(zip(inputs, bound.inputs, strict=True)):
        if x.shape != spec.shape or x.dtype != spec.dtype:
            raise user_error(
                ShapeError if x.shape != spec.shape else DTypeError, bound.name,
                f"input {i} has another spec than the program was lowered for.",
                operands={"expected": spec, "given": spec_of(x)},
                fix="convert the array, or lower the graph for its spec.",
            )  # fmt: skip
        if not x.flags.c_contiguous or not x.flags.aligned:
            checked[i] = np.array(x, order="C", copy=True)
    meeting = _meeting(checked) if bound.donated else frozenset[int]()
    for i in bound.donated:
        if i in meeting or not checked[i].flags.writeable:
            checked[i] = checked[i].copy()
    return checked


def _meeting(arrays: Sequence[NDArray]) -> set[int]:
    """The positions of contiguous arrays that share memory with others among them."""
    places = sorted((x.ctypes.data, x.nbytes, i) for i, x in enumerate(arrays) if x.nbytes)
    found: set[int] = set()
    reach, last = 0, -1  # of the arrays before: the end of the memory, and its owner
    for begin, nbytes, i in places:
        if begin < reach:
            found |= {i, last}
        if begin + nbytes > reach:
            reach, last = begin + nbytes, i
    return found


def tape_view(tapes: dict[int, NDArray], view: View, spec: TensorSpec) -> NDArray:
    """The array of a view of a tape, whose handles `tapes` has by buffer."""
    handle = tapes.setdefault(view.buffer, np.empty(spec.shape, spec.dtype))
    return as_strided(handle, view.spec.shape, view.strides)


def result_of(view: View, memory: NDArray) -> NDArray:
    """An output within memory that was given or made."""
    is_whole = memory.shape == view.spec.shape and memory.dtype == view.spec.dtype
    return memory if is_whole else make_view(as_bytes(memory), view)


class NoRoomError(MemoryError):
    """There is no memory for the arena or the outputs of a program; no step has run yet."""


def as_bytes(array: NDArray) -> NDArray:
    """The memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


def make_view(memory: NDArray, view: View, offset: int = 0) -> NDArray:
    """The strided tensor `view` of bytes `memory`, from `offset` on."""
    spec = view.spec
    if spec.size == 0:
        return np.empty(spec.shape, spec.dtype)
    return np.ndarray(spec.shape, spec.dtype, memory, offset + view.offset, view.strides)
