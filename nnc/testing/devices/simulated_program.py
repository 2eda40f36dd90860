"""Kernels of a program on a simulated device: the CPU's, on the bytes behind the device's addresses.

Each says which bytes it touches, so a schedule which leaves a signal out is found when a program is queued, in any order of its
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nnc.device.cpu import aligned_bytes
from nnc.device.memory import DeviceMemory
from nnc.lower.plan.liveness import written
from nnc.lower.plan.schedule.accesses import has_effect
from nnc.lower.plan.stages import NDArray, Step, View
from nnc.run.executor import make_view
from nnc.run.launches import Launches
from nnc.run.native_call import NativeCall
from nnc.run.program import Program
from nnc.run.python_steps import Tapes, run_step
from nnc.testing.devices.sim import Lease, Operand, SimDevice, SimKernel, Use


class SimModule:
    """The kernels of a program on a simulated device.

    Args:
        effects: the memory that stands for effects and tapes.
    """

    def __init__(self, program: Program, device: SimDevice, effects: DeviceMemory) -> None:
        self._program, self._device, self._effects = program, device, effects
        natives, functions = program.natives, program.functions()
        self._scratch = aligned_bytes(max((native.scratch for native in natives.values()), default=0))
        address = self._scratch.ctypes.data
        self._natives = {key: NativeCall(native, functions[key], address) for key, native in natives.items()}
        self._tapes = Tapes(program)

    def handles(self, step: Step, launches: Launches) -> list[int]:
        """Returns the handles of the launches of a step."""
        return [self._device.driver.add_kernel(self._kernel(step, launches))]

    def name_of(self, step: Step, launches: Launches) -> str:
        """Describes a step in words."""
        number = next((i for i, each in enumerate(launches.steps) if each is step), None)
        where = step.command.name if number is None else f"step {number} ({step.command.name})"
        return f"{where} of {self._program.bound.name}"

    def _kernel(self, step: Step, launches: Launches) -> SimKernel:
        operands: list[Operand | None] = list(operands_of(step, launches))
        tapes = {i: view for i, view in enumerate((*step.inputs, *step.outputs)) if launches.is_tape(view)}
        for i in tapes:
            operands[i] = None
        kernel = self._program.kernels[id(step)].run
        native = self._natives.get(id(step))
        function = kernel if native is None else partial(native, kernel)

        def run(arrays: Sequence[NDArray]) -> None:
            run_step(step, function, [self._tapes.array(tapes[i]) if i in tapes else x for i, x in enumerate(arrays)])

        return SimKernel(
            name=self.name_of(step, launches),
            operands=tuple(operands),
            run=run,
            more=(Use.whole(_lease(self._effects), writes=True),) if tapes or has_effect(step) else (),
            source=step.source,
        )

    def can_be_captured(self, launches: Launches) -> bool:
        """Whether the program can be launched as a captured graph: steps that run from Python can be."""
        return launches.can_be_captured

    def begin(self, memories: Sequence[DeviceMemory], statuses: DeviceMemory) -> None:
        """Queues the beginning of a call: clears errors and elements of the last one, and sets the status words to 0."""
        for memory in memories:
            _lease(memory).uses.empty()

        def forget() -> None:
            for memory in (*memories, statuses):
                _lease(memory).error = None
            _lease(statuses).bytes[...] = 0

        words = [Use.whole(_lease(statuses), writes=True)] if statuses.block.nbytes else []
        self._device.stream.launch(f"{self._program.bound.name} begins", forget, words)

    def finish(self, inputs: Sequence[DeviceMemory], results: Sequence[DeviceMemory]) -> None:
        """Queues the end of a call: tapes drop their elements, and `results` hold the errors of the work on them."""
        self._device.stream.launch(f"{self._program.bound.name} ends", self._tapes.clear, [])

    def copy(self, view: View, source: DeviceMemory, target: DeviceMemory) -> None:
        """Queues a copy of a part of some memory; `target` is as large as the part."""
        old, new = _lease(source), _lease(target)

        def copy() -> None:
            make_view(new.bytes, View.whole(0, view.spec))[...] = make_view(old.bytes, view)

        uses = [Use.whole(old, writes=False), Use.whole(new, writes=True)]
        self._device.stream.launch("copy", copy, uses)


def operands_of(step: Step, launches: Launches) -> list[Operand]:
    """Returns the operands of a step: its inputs, then its outputs; of a loop or branch the buffers that it touches."""
    views = launches.views(step)
    if step.region is None:
        return [_operand(view, i >= len(step.inputs)) for i, view in enumerate(views)]
    changed = written((step,))
    return [_operand(view, view.buffer in changed) for view in views]


def _operand(view: View, writes: bool) -> Operand:
    first, end = (at - view.offset for at in view.extent)
    return Operand(view.spec.shape, view.spec.dtype, view.strides, first, end, writes)


def _lease(memory: DeviceMemory) -> Lease:
    lease: Lease = memory.block.owner
    return lease
