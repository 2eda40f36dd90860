"""Programs whose memory is guarded: red zones around every buffer, and poison wherever nothing was written.

With `Options.guard` (environment: `NNC_GUARD=1`) steps run one by one, each by the compiled kernel that the program would call.
Buffers share no memory: each one lies between red zones; so do inputs, constants, outputs and scratch memory. A kernel runs
twice, on two patterns of poison in the red zones, in the outputs that it is the first to write, and in all buffers that are
dead at that time. Hence kernels are checked against the live ranges from which memory was planned, and each of these mistakes
is an `InternalError` that names the step and the user's line: bytes written beside a buffer, or beside the part of it that
belongs to the step; elements of a result that were not written, or that depend on memory to which nothing was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from nnc.device.cpu import aligned_bytes
from nnc.errors import InternalError
from nnc.graph.registry import effect
from nnc.lower.plan.liveness import Liveness, walk
from nnc.lower.plan.stages import Bound, Kind, NDArray, Step, View
from nnc.run.executor import Arrays, Executor, PythonSteps, Run, as_bytes
from nnc.run.native_call import NativeCall

if TYPE_CHECKING:
    from nnc.run.program import Program

ZONE = 256  # bytes of red zone in front of a buffer and behind it: four of the longest vectors
# NaN, -1, True; then 0 and False. They differ in every dtype, and as an index neither leads far away.
POISONS = (0xFF, 0x00)
_ALIGNMENT = 64  # bytes; as an arena's buffers are aligned
_SHOWN = 8  # elements that an error names at most


@dataclass(frozen=True)
class GuardedLayout:
    """The layout of guarded memory: byte ranges, by buffer, and the bytes between them. `scratch` is memory for states."""

    places: Mapping[int, slice]
    scratch: slice
    nbytes: int

    @classmethod
    def of(cls, bound: Bound, scratch: int) -> GuardedLayout:
        """Gives each buffer that is no tape a range of its own, and one to scratch memory."""
        places: dict[int, slice] = {}
        at = ZONE
        sizes = {i: buffer.nbytes for i, buffer in enumerate(bound.buffers) if buffer.kind is not Kind.TAPE}
        for i, nbytes in [*sizes.items(), (-1, scratch)]:
            places[i] = slice(at, at + nbytes)
            at += -(-(nbytes + ZONE) // _ALIGNMENT) * _ALIGNMENT
        return cls(places, places.pop(-1), at)

    def zones(self) -> NDArray:
        """Returns the positions of all bytes of red zones."""
        free = np.ones(self.nbytes, bool)
        for place in (*self.places.values(), self.scratch):
            free[place] = False
        return np.flatnonzero(free)

    def nearest(self, position: int) -> tuple[int | None, int]:
        """Returns the buffer (None: scratch memory) that a byte of a red zone is nearest to, and how far behind its end the
        byte lies; how far in front of its start, as a negative number.
        """
        places: list[tuple[int | None, slice]] = [*self.places.items(), (None, self.scratch)]
        found = [(i, position - (p.stop if position >= p.stop else p.start)) for i, p in places]
        return min(found, key=lambda item: abs(item[1]))


class Lives:
    """The lives of buffers: those that are dead before a step, those that it writes first, and those that live on after it."""

    def __init__(self, bound: Bound) -> None:
        self._intervals = bound.intervals
        self._sizes = [buffer.nbytes for buffer in bound.buffers]
        self._wanted = {view.buffer for view in bound.outputs}
        self._kept = {i for i, buffer in enumerate(bound.buffers) if buffer.kind in (Kind.INPUT, Kind.CONSTANT)}
        self._points: dict[int, list[int]] = {}
        for point, step in enumerate(Liveness(bound.steps, self._sizes, self._wanted).points):
            if step is not None:
                self._points.setdefault(id(step), []).append(point)

    def fresh(self, step: Step) -> set[int]:
        """Returns the buffers that a step writes as a whole, without a look at their old content."""
        whole = {view.buffer for view in step.outputs if view.covers(self._sizes[view.buffer])}
        return whole - {view.buffer for view in step.inputs}

    def dead(self, step: Step) -> set[int]:
        """Returns the buffers of the program's own that hold nothing while a step runs, wherever it stands."""
        written = {view.buffer for view in step.outputs}
        return set(range(len(self._intervals))) - self._kept - written - self._live(step, 0)

    def after(self, step: Step) -> set[int]:
        """Returns the buffers that are read after a step."""
        return self._live(step, 1) | self._wanted

    def _live(self, step: Step, later: int) -> set[int]:
        """Returns the buffers that are live at the points of a step, or `later` by so many."""
        points = [point + later for point in self._points[id(step)]]
        return {i for i, lives in enumerate(self._intervals) if any(a <= p < b for a, b in lives for p in points)}


class GuardedExecutor(Executor):
    """Binds steps to guarded memory, into which arguments are copied, and checks each of them in each run."""

    def __init__(self, program: Program) -> None:
        natives, functions = program.natives, program.functions()
        self.layout = GuardedLayout.of(program.bound, max((native.scratch for native in natives.values()), default=0))
        super().__init__(program.outside, program.parts, aligned_bytes(self.layout.nbytes))
        self._zones = self.layout.zones()
        self._lives = Lives(program.bound)
        self._numbers = {id(step): i for i, step in enumerate(walk(program.bound.steps))}
        scratch = self.arena.ctypes.data + self.layout.scratch.start
        self._natives = {key: NativeCall(native, functions[key], scratch) for key, native in natives.items()}

    def fixed(self, number: int) -> NDArray | None:
        """Returns the bytes of a buffer between its red zones; None for tapes."""
        place = self.layout.places.get(number)
        return None if place is None else self.arena[place]

    def begin(self, given: Sequence[NDArray]) -> None:
        """Poisons all memory, and copies the arguments of a call and the constants into it."""
        super().begin(given)
        self.arena[...] = POISONS[0]
        for i, buffer in enumerate(self.buffers):
            if buffer.kind in (Kind.INPUT, Kind.CONSTANT) and i in self.layout.places:
                known = given if buffer.kind is Kind.INPUT else self.outside.constants
                self.arena[self.layout.places[i]] = as_bytes(known[buffer.index])

    def finish(self) -> None:
        """Copies results and donated arguments to the arrays of the call."""
        for i, buffer in enumerate(self.buffers):
            is_donated = buffer.kind is Kind.INPUT and buffer.index in self.outside.donated
            if (is_donated or buffer.kind is Kind.OUTPUT) and i in self.layout.places:
                as_bytes(self.whole(buffer))[...] = self.arena[self.layout.places[i]]

    # -- steps ---------------------------------------------------------------------------------------------------------

    def bind(self, step: Step, block: PythonSteps) -> Run:
        """Binds a step to a function that runs it and looks at the memory around."""
        kernel, arguments, results, params = super().bind(step, block)
        if step.region is not None:
            return kernel, arguments, results, params
        places, lives, native = self.layout.places, self._lives, self._natives.get(id(step))
        run = kernel if native is None else partial(native, kernel)
        # Effects happen at each run; NumPy's kernels write whole results that they made elsewhere.
        poisons = POISONS if native is not None and step.command not in effect else POISONS[:1]
        fresh, after = lives.fresh(step), lives.after(step)
        dead = [places[i] for i in lives.dead(step) if i in places]
        written = {view.buffer: self.arena[places[view.buffer]] for view in step.outputs if view.buffer in places}
        read = {view.buffer: self.arena[places[view.buffer]] for view in step.inputs if view.buffer in places}
        wanted = [view for view in step.outputs if view.buffer in after]

        def guarded(inputs: Arrays, outputs: Arrays, params: Any) -> None:
            """Runs the step and checks the memory around its outputs."""
            before = {i: block.copy() for i, block in written.items() if i not in fresh}
            found: list[list[bytes]] = []
            for poison in poisons:
                self.arena[self._zones] = poison
                for place in (self.layout.scratch, *dead):
                    self.arena[place] = poison
                for i, block in written.items():
                    block[...] = before.get(i, poison)
                known = {i: before.get(i, poison) for i in written} | {i: read[i].copy() for i in read.keys() - written}
                run(inputs, outputs, params)
                self._check_zones(step, poison)
                for i, block in (read | written).items():
                    self._check_beside(step, i, outputs, block != known[i])
                found.append([x.tobytes() for x, view in zip(outputs, step.outputs, strict=True) if view in wanted])
            for other in found[1:]:
                self._compare(step, wanted, found[0], other)

        return guarded, arguments, results, params

    def _check_zones(self, step: Step, poison: int) -> None:
        """Raises where red zones were written to."""
        spoilt = self._zones[self.arena[self._zones] != poison]
        if spoilt.size:
            near, distance = self.layout.nearest(int(spoilt[0]))
            where = f"{distance} bytes behind the end" if distance >= 0 else f"{-distance} bytes in front"
            name = "its scratch memory" if near is None else self._name(near)
            self._fail(step, f"wrote {spoilt.size} bytes outside of all buffers, the first {where} of {name}")

    def _check_beside(self, step: Step, number: int, outputs: Arrays, changed: NDArray) -> None:
        """Raises where a step changed bytes of a buffer in a part that is not its own."""
        start = self.arena.ctypes.data + self.layout.places[number].start
        for x, view in zip(outputs, step.outputs, strict=True):
            if view.buffer == number and x.size:
                at = x.ctypes.data - start
                np.ndarray((*x.shape, x.dtype.itemsize), bool, changed, at, (*x.strides, 1))[...] = False
        if changed.any():
            first = int(np.flatnonzero(changed)[0])
            problem = (
                f"wrote {int(changed.sum())} bytes beside its part of {self._name(number)}, the first at byte {first}"
            )
            self._fail(step, problem)

    def _compare(self, step: Step, views: Sequence[View], one: Sequence[bytes], other: Sequence[bytes]) -> None:
        """Raises where two runs of a step differ in more than the poison that they found."""
        for view, x, y in zip(views, one, other, strict=True):
            if x != y:
                size = view.spec.dtype.itemsize
                a, b = (np.frombuffer(text, np.uint8).reshape(-1, size) for text in (x, y))
                places = np.flatnonzero((a != b).any(1))
                shown = ", ".join(str(tuple(map(int, np.unravel_index(p, view.spec.shape)))) for p in places[:_SHOWN])
                self._fail(
                    step, f"did not write {places.size} elements of {self._name(view.buffer)}, or read memory that nothing was "
                    f"written to for them: {shown} of {view.spec}",
                )  # fmt: skip

    def _name(self, number: int) -> str:
        buffer = self.buffers[number]
        return f"buffer {number} ({buffer.kind.value} {buffer.symbol.spec})"

    def _fail(self, step: Step, problem: str) -> NoReturn:
        kernel = self.parts().kernels[id(step)]
        name = f"step {self._numbers[id(step)]} ({step.command.name}, {kernel.backend})"
        lines = [
            f"{self.outside.name}: {name} {problem}.",
            f"  inputs {', '.join(map(str, step.input_specs))}   outputs {', '.join(str(v.spec) for v in step.outputs)}",
        ]
        if step.source is not None:
            lines.append(f"  at {step.source.describe()}")
        raise InternalError("\n".join(lines))
