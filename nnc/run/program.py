"""The lowered program: buffers with offsets, and steps with kernels, which it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnc.base.garbage import collection_paused
from nnc.base.later import later
from nnc.device.cpu import aligned_bytes
from nnc.graph import Kernel
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.native import Function, Native
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.schedule.types import Around, Schedule
from nnc.lower.plan.stages import Bound, NDArray, Planned, Step
from nnc.run.executor import Executor
from nnc.run.frame import Frame, NoRoomError, PythonFrame
from nnc.run.kernel_queue import KernelQueue
from nnc.run.native_frame import CallMemory, NativeFrame
from nnc.run.native_program import NativeCode, ProgramAbi, ProgramParts
from nnc.run.report import Cost, MemoryPlan, make_cost, make_memory_plan, program_text

_guarded = later(f"{__package__}.guard", "GuardedExecutor")


@dataclass(frozen=True, eq=False)
class Program:
    """Steps on planned memory, ready to run. Any number of threads may call it at once.

    Each call borrows an arena, one of the `idle` ones if there are any. Inputs are read where they are, unless they are not
    contiguous; outputs are fresh arrays (or the memory of donated inputs). `around` wraps each step (see `watched`).
    With `code`, compiled kernels run without Python in between; without, all steps run from Python. `parts` gives the graph, plan
    and steps of the program, which a stored program need not read to run. `guard`: calls run on guarded memory
    (nnc.run.guard). `like`: the same program at another size, whose further sizes share its code.
    """

    parts: Callable[[], ProgramParts]
    is_concurrent: bool  # whether it has several streams
    around: Around | None = None
    code: NativeCode | None = None
    guard: bool = False
    like: Program | None = None
    idle: list[Frame] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls, planned: Planned, schedule: Schedule, choose: Callable[[Step], Kernel], like: Program | None = None
    ) -> Program:
        """Returns the program of a plan and a schedule; `choose` gives the kernel of a step."""
        kernels = {id(step): choose(step) for step in walk(planned.bound.steps) if step.region is None}
        parts = ProgramParts(planned, schedule, kernels, {}, sized=like is not None)
        return cls(lambda: parts, len(schedule.streams) > 1, like=like)

    def compiled(self, queue: KernelQueue, form: type[NativeCode] = NativeCode) -> Program:
        """Returns the program as machine code, if it has compiled kernels and the compiler works; compilation begins.

        Args:
            queue: the queue that prints the kernels.
            form: the kind of machine code: it calls the steps, or queues them on a device.
        """
        found, compiler = self.parts(), queue.compiler
        known = queue.of(found.planned, found.kernels)
        if compiler is None or not compiler.works() or not (known or form.is_queued):
            return self
        natives = {key: each for key, each in known.items() if isinstance(each, Native)}
        printed = {key: each for key, each in known.items() if isinstance(each, DeviceKernel)}
        parts = replace(found, natives=natives, printed=printed)
        code = form(ProgramAbi.of(found.planned), lambda: parts, compiler)
        code.expect(self._is_apart)
        return self.with_code(code)

    def in_form(self, form: type[NativeCode]) -> Program:
        """Returns the program with machine code of another form, if it has any."""
        code = self.code
        return self if code is None else self.with_code(form(code.outside, code.parts, code.compiler))

    def with_code(self, code: NativeCode) -> Program:
        """Returns the program with this machine code."""
        return replace(self, parts=code.parts, code=code, idle=[])

    def load(self) -> None:
        """Waits for the machine code, if the program has any.

        Raises:
            InternalError: the compiler refuses a text.
        """
        if self.code is not None:
            self.code.load(self._is_apart)

    def watched(self, around: Around) -> Program:
        """Returns the program with a wrapper around each step of a run: for measurements, and for tests."""
        return replace(self, around=around, guard=False, idle=[])

    @property
    def outside(self) -> ProgramAbi:
        """The interface of the program, enough to call it."""
        return self.code.outside if self.code is not None else ProgramAbi.of(self.planned)

    @property
    def planned(self) -> Planned:
        """The steps on buffers, and the offsets of buffers."""
        return self.parts().planned

    @property
    def schedule(self) -> Schedule:
        """The steps of each stream."""
        return self.parts().schedule

    @property
    def kernels(self) -> Mapping[int, Kernel]:
        """The kernels of steps, by identity."""
        return self.parts().kernels

    @property
    def bound(self) -> Bound:
        """Steps on buffers."""
        return self.planned.bound

    @property
    def offsets(self) -> tuple[int | None, ...]:
        """The offset of each buffer in the arena."""
        return self.planned.offsets

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return self.planned.arena_bytes

    @property
    def natives(self) -> Mapping[int, Native]:
        """The compiled kernels of steps, by identity."""
        return self.code.natives if self.code is not None else {}

    @property
    def printed(self) -> Mapping[int, DeviceKernel]:
        """The kernels of steps that are printed for a device, by identity."""
        return self.code.parts().printed if self.code is not None else {}

    def functions(self) -> Mapping[int, Function]:
        """Returns the compiled kernels of steps, each as a function of its own, by identity."""
        return self.code.functions() if self.code is not None else {}

    def kernel_of(self, step: Step) -> Kernel:
        """Returns the kernel that runs a step."""
        return self.kernels[id(step)]

    @property
    def needs_no_python(self) -> bool:
        """Whether a call is one call of compiled code that overwrites no input and returns fresh arrays."""
        if self.code is None or self._is_apart or self.guard or self.code.is_queued:
            return False
        outside = self.outside
        is_plain = outside.order is not None and not (outside.donated or outside.kept or outside.loops)
        return is_plain and not self.code.entry(False).blocks

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Returns the outputs for `inputs`, arrays of the specs that the program was lowered for.

        Raises:
            ArgumentError: the number of inputs is wrong.
            ShapeError, DTypeError: an input has another spec.
        """
        try:
            frame = self.idle.pop()
        except IndexError:
            frame = self._make_frame()
        try:
            return frame.run(inputs)
        finally:
            self.idle.append(frame)

    def make_ready(self, room: CallMemory) -> None:
        """Gives this memory to the first call of compiled code, if the size is right."""
        if self.code is not None and not self.guard and room.fits(self.code.outside):
            self.idle.append(self._make_frame(room))

    def _make_frame(self, room: CallMemory | None = None) -> Frame:
        """Makes a frame: the memory of one call at a time."""
        with collection_paused():
            try:
                if self.guard:
                    return PythonFrame(_guarded(self))
                if self.code is None:
                    executor = Executor(self.outside, self.parts, aligned_bytes(self.arena_bytes))
                    return PythonFrame(executor, self.schedule, self.around)
                return NativeFrame(self.code.entry(self._is_apart), self.around, room)
            except MemoryError as error:
                raise NoRoomError(str(error)) from None

    @property
    def _is_apart(self) -> bool:
        """Whether compiled code calls steps one by one."""
        return self.is_concurrent or self.around is not None

    @property
    def memory_plan(self) -> MemoryPlan:
        """The address of each tensor, and the bytes in total; it is known before anything runs."""
        scratch = max((native.scratch for native in self.natives.values()), default=0)
        return replace(make_memory_plan(self.planned), library_bytes=scratch)

    @property
    def cost(self) -> Cost:
        """Floating-point operations and bytes of each step."""
        return make_cost(self.planned)

    def as_text(self) -> str:
        """Returns the readable form: buffers with their places, steps with their kernels."""
        return program_text(self.planned, lambda step: self.kernel_of(step).backend)

    def __str__(self) -> str:
        return self.as_text()
