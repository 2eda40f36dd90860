"""Loops and branches as one kernel: the threads of one block run all iterations, without the host.

    head: a, b; test, leave; tail: c        a(); barrier; b(); barrier; test, leave; c(); barrier; the next iteration

The printed kernel of each step becomes a function that the threads of the block call, with a barrier behind it. Iterations and
branches are printed as the CPU's entry prints them (`nnc.run.entry_steps`): all threads read the same number and take the same way.

Small values lie where threads reach them fast: those of a single thread on its stack, which LLVM turns into registers; those of
several threads in shared memory. A value that no other step of the program touches is never copied there or back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from nnc.backends.cuda.kernels.layout import at_least
from nnc.backends.cuda.kernels.step_functions import SINGLE, StepFunction, UnfitError, step_functions
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.plan.liveness import Liveness, touched, touched_itself, walk, written
from nnc.lower.plan.schedule.accesses import has_effect
from nnc.lower.plan.stages import Kind, Loop, Planned, Step, Steps, View
from nnc.run.arguments import FrameLayout
from nnc.run.entry_steps import Outline, StepCode

_ELEMENTS = 4096  # of an operand of a step, at most: beyond, many blocks are faster than one, launches included
_STEPS = 64  # within a region: LLVM takes longer for one long function
_THREADS = 512  # of a block: each has 128 registers
_ON_STACK = 64  # bytes of a value that one thread keeps; it has 255 registers of 4 bytes
_SHARED = 16 << 10  # bytes of values in shared memory: the functions of steps need some of its 48 KiB, too


def print_region(step: Step, planned: Planned, machine: GpuTarget) -> DeviceKernel | str:
    """Prints a loop or a branch of a program, with all that runs within it, as one kernel of one block.

    Args:
        step: the step with the region.
        planned: the program.

    Returns:
        the kernel, on all buffers that the region touches and its status word; else the reason why it is none.
    """
    try:
        leaves = _leaves(step, planned)
        largest = max((view.spec.size for leaf in leaves for view in (*leaf.inputs, *leaf.outputs)), default=1)
        wide = min(max(at_least(largest) // 4, machine.grids.lanes), _THREADS)
        counts = [1] if largest <= SINGLE else []
        while wide >= machine.grids.lanes:
            counts.append(wide)
            wide //= 2
        for threads in counts:
            functions = step_functions(leaves, machine, threads)
            if functions is not None:
                return _BlockCode(step, planned, functions, threads).kernel()
    except UnfitError as unfit:
        return str(unfit)
    return "it has steps whose threads one block cannot stand for"


def _leaves(step: Step, planned: Planned) -> Steps:
    """Returns the steps that compute, of a region that is small enough."""
    leaves = tuple(inner for inner in walk((step,)) if inner.region is None)
    if len(leaves) > _STEPS:
        raise UnfitError(f"it has {len(leaves)} steps, and one kernel takes {_STEPS}")
    if any(planned.bound.buffers[number].kind is Kind.TAPE for number in touched((step,))):
        raise UnfitError("its tapes grow, which memory of a device does not")
    for leaf in leaves:
        name = leaf.command.name
        if has_effect(leaf):
            raise UnfitError(f"it prints or calls Python ({name})")
        size = max((view.spec.size for view in (*leaf.inputs, *leaf.outputs)), default=0)
        if size > _ELEMENTS:
            raise UnfitError(f"it has {name} on {size} elements, and one block takes {_ELEMENTS}")
    return leaves


# -- the kernel --------------------------------------------------------------------------------------------------------


class _BlockCode(StepCode):
    """The work of one thread of the block.

    Args:
        functions: the functions of each step within the region, by identity.
        threads: threads of the block.
    """

    def __init__(self, step: Step, planned: Planned, functions: Mapping[int, list[StepFunction]], threads: int) -> None:
        super().__init__(Outline.of(planned, {}, {}, FrameLayout(0, 0, 0, 0, 0)), "KERNEL_region")
        self._step, self._functions, self._threads = step, functions, threads
        self._buffers = sorted(touched((step,)))
        self._may_fail = any(each.may_fail for many in functions.values() for each in many)
        self.returns, self.linkage = "void", "ptx_kernel"
        self.attributes = f'nounwind convergent "nvvm.maxntid"="{threads}"'
        self._variables: list[str] = []
        self._entering, self._left = _lives(step, planned)
        self._thread = self._special("tid.x") if threads > 1 else Value("0", dtypes.int32)

    def kernel(self) -> DeviceKernel:
        """Returns the kernel."""
        taken = self._take_values()
        self.steps((self._step,))
        for number, place in taken:
            if number in self._left:
                self._move(place, f"%p{self._buffers.index(number)}", number)
        self.finish()
        self.parameters = tuple(("ptr", f"p{i}") for i in range(len(self._buffers) + self._may_fail))
        functions = {each.name: each for many in self._functions.values() for each in many}
        declared = self.declarations.union(*(each.declarations for each in functions.values()))
        text = "\n".join(
            [*sorted(declared), *self._variables, *(each.text for each in functions.values()), self.text()]
        )
        operands = tuple(range(len(self.parameters)))
        updates = tuple(i for i, number in enumerate(self._buffers) if number in self._entering)
        launch = Launch(f"@{self.name}", (1, 1, 1), (self._threads, 1, 1), operands, updates=updates)
        return DeviceKernel(text, (launch,), self._may_fail)

    def finish(self) -> None:
        """Prints the return; where a loop is too long, or there is no such branch, the status word is set."""
        self.ret()
        if self._failures:
            self._may_fail = True
            self.place("failed")
            self.line(f"%refused = atomicrmw umax ptr {self._status}, i32 1 monotonic")
            self.ret()

    @property
    def _status(self) -> str:
        return f"%p{len(self._buffers)}"

    def _special(self, register: str) -> Value:
        self.declare(f"declare i32 @llvm.nvvm.read.ptx.sreg.{register}()")
        with self._early():
            self.line(f"%thread = call i32 @llvm.nvvm.read.ptx.sreg.{register}()")
        return Value("%thread", dtypes.int32)

    def _barrier(self) -> None:
        """Waits for all threads of the block."""
        if self._threads > 1:
            self.declare("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)")
            self.line("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")

    # -- values in registers and shared memory -------------------------------------------------------------------------

    def _memory(self, number: int) -> str:
        return f"%p{self._buffers.index(number)}"

    def _take_in(self, step: Step) -> dict[int, tuple[str, int, bool]]:
        return {}  # the whole kernel has taken its values in

    def _take_values(self) -> list[tuple[int, str]]:
        """Gives small values a place near the threads, and copies those there that the region reads before it writes them."""
        taken, left, stays = list[tuple[int, str]](), _SHARED, self._stays()
        for number in self._buffers:
            nbytes = self.outline.planned.bound.buffers[number].nbytes
            if not nbytes or number in stays or nbytes > (_ON_STACK if self._threads == 1 else left):
                continue
            if self._threads == 1:
                place = self.room(nbytes)
            else:
                place, left = self._shared(nbytes), left - nbytes
            if number in self._entering:
                self._move(self._memory(number), place, number)
            taken.append((number, place))
        self._local.update(taken)
        if taken:
            self._barrier()
        return taken

    def _stays(self) -> set[int]:
        """Buffers that stay where they are: those of which iterations read or write their own part, as not all parts may be filled;
        and those that share bytes with others that the rest of the program needs.
        """
        stays = {view.buffer for step in walk((self._step,)) for view in (*step.inputs, *step.outputs) if view.advances}
        planned = self.outline.planned
        outer = [n for n in self._buffers if n in self._entering or n in self._left]
        ranges = [(o, o + planned.bound.buffers[n].nbytes, n) for n in outer if (o := planned.offsets[n]) is not None]
        for first, end, number in ranges:
            if any(a < end and first < b and other != number for a, b, other in ranges):
                stays.add(number)
        return stays

    def _shared(self, nbytes: int) -> str:
        """Returns a pointer to a variable of the block."""
        name = f"@KERNEL_region.value{len(self._variables)}"
        self._variables.append(f"{name} = internal addrspace(3) global [{nbytes} x i8] undef, align 64")
        with self._early():
            register = self.fresh()
            self.line(f"{register} = addrspacecast ptr addrspace(3) {name} to ptr")
        return register

    def _move(self, source: str, target: str, number: int) -> None:
        """Copies a buffer by all threads."""
        nbytes = self.outline.planned.bound.buffers[number].nbytes
        kind = dtypes.uint32 if nbytes % 4 == 0 else dtypes.uint8
        if self._threads == 1:
            for at in range(0, nbytes, kind.itemsize):
                self.store(self.offset(target, at), self.load(self.offset(source, at), kind))
            return
        with self.loop(self.convert(self._thread, dtypes.int64), nbytes // kind.itemsize, self._threads) as i:
            place = self.mul(i, self.integer(kind.itemsize))
            self.store(self.offset(target, place), self.load(self.offset(source, place), kind))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _way(self, step: Step) -> Callable[[Steps], None]:
        return self._calls if step.region is None else self._regions

    def _kernel(self, step: Step) -> None:
        views = (*step.inputs, *step.outputs)
        for function in self._functions[id(step)]:
            places = [self._status if i == len(views) else self.address(views[i]) for i in function.operands]
            self._call(function, places)

    def _call(self, function: StepFunction, places: Sequence[str]) -> None:
        """Prints the work of a launch, and a barrier behind it.

        Where threads need one another, the launch's blocks follow one another. Else the threads of all its blocks stand in a row,
        of which this block takes as many at a time as it has.
        """
        whole, together = function.blocks * function.threads, self._threads
        if function.is_joint:
            for number in range(function.blocks):
                with self._below(self._thread, function.threads, together):
                    self._run(function, places, Value(str(number), dtypes.int32), self._thread)
                self._barrier()
            return
        for first in range(0, whole, together):
            unit = self.add(self._thread, self.constant(first, dtypes.int32)) if first else self._thread
            block, thread = self.constant(0, dtypes.int32), unit
            if function.blocks > 1:
                count = self.constant(function.threads, dtypes.int32)
                block, thread = self.div(unit, count), self.rem(unit, count)
            with self._below(unit, whole, first + together):
                self._run(function, places, block, thread)
        self._barrier()

    def _run(self, function: StepFunction, places: Sequence[str], block: Value, thread: Value) -> None:
        operands = [*(f"ptr {place}" for place in places), block.typed, thread.typed]
        self.line(f"call void {function.name}({', '.join(operands)})")

    @contextmanager
    def _below(self, number: Value, limit: int, end: int) -> Iterator[None]:
        """Prints the block for threads whose number, which is below `end`, is below a limit."""
        if end <= limit:
            yield
        else:
            with self.when(self.compare("lt", number, self.constant(limit, dtypes.int32))):
                yield

    # -- regions -------------------------------------------------------------------------------------------------------

    def decide(self, view: View) -> Value:
        """Reads a number by which a loop or a branch finds its way, before a thread may write to its memory again."""
        found = super().decide(view)
        self._barrier()
        return found

    def count(self, view: View, iteration: Value) -> None:
        """Writes the number of an iteration where its steps read it."""
        with self._below(self._thread, 1, self._threads):
            super().count(view, iteration)
        self._barrier()

    def _reads_iterations(self, step: Step, region: Loop) -> bool:
        return False

    def _polls(self, step: Step, region: Loop) -> bool:
        return False


def _lives(step: Step, planned: Planned) -> tuple[set[int], set[int]]:
    """Returns the buffers whose content a region takes from the program around it, and those that it writes for it."""
    bound, mine = planned.bound, touched((step,))
    inside = set(map(id, walk((step,))))
    around = {view.buffer for view in bound.outputs}
    around |= {number for number in mine if bound.buffers[number].kind is not Kind.ARENA}
    for other in walk(bound.steps):
        if id(other) not in inside:
            around |= touched_itself(other)
    lives = Liveness((step,), [buffer.nbytes for buffer in bound.buffers], mine & around).intervals
    entering = {number for number in mine if lives[number] and lives[number][0][0] == 0}
    begun = set(step.region.begins) if isinstance(step.region, Loop) else set()
    return entering - begun, written((step,)) & around
