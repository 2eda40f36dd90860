"""Programs on a simulated device: their steps are queued in the streams of the schedule, with an event for each signal.

A step is the CPU's kernel on the bytes behind the device's addresses. A loop or a branch is one piece of work with all its steps,
as in a captured graph. Each piece of work tells the device which bytes it touches, so a schedule that leaves a signal out is found
when a program is queued, in any order of its steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from nnc.devices.cpu import aligned_bytes
from nnc.devices.memory import DeviceMemory, Staging
from nnc.devices.protocol import Event
from nnc.devices.sim import Lease, SimDevice, Use
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.schedule.accesses import ARENA, step_accesses
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import Kind, NDArray, Step, View
from nnc.lower.program.executor import NOTHING, Block, Executor, Run, make_view
from nnc.lower.program.native_call import NativeCall
from nnc.lower.program.program import Program


class SimExecutor(Executor):
    """Binds steps to the bytes of a simulated device.

    Args:
        program: was lowered for the device.
        arena: memory of the device for all that the program computes on the way.
        constants: memory of the device with the program's constants, by buffer.
    """

    def __init__(self, program: Program, arena: DeviceMemory, constants: Mapping[int, DeviceMemory]) -> None:
        super().__init__(program.outside, program.parts, _bytes(arena))
        natives, functions = program.natives, program.functions()
        self._constants = constants
        self._scratch = aligned_bytes(max((native.scratch for native in natives.values()), default=0))
        address = self._scratch.ctypes.data
        self._natives = {key: NativeCall(native, functions[key], address) for key, native in natives.items()}

    def fixed(self, number: int) -> NDArray | None:
        """The bytes of a buffer of the arena or of a constant; None for other buffers."""
        return _bytes(self._constants[number]) if number in self._constants else super().fixed(number)

    def bind(self, step: Step, block: Block) -> Run:
        """Binds a step to its compiled kernel, if it has one."""
        kernel, arguments, results, params = super().bind(step, block)
        native = self._natives.get(id(step)) if step.region is None else None
        return (kernel if native is None else partial(native, kernel)), arguments, results, params


class SimFrame:
    """The memory of one call at a time on a simulated device, and its streams.

    Args:
        program: was lowered for the device.
        device: runs it.
    """

    def __init__(self, program: Program, device: SimDevice) -> None:
        self._program, self._device, self._name = program, device, program.bound.name
        self._arena = self._allocate(program.arena_bytes, f"the arena of {self._name}")
        self._effects = self._allocate(1, "effects and tapes")  # which have no address, and are done in order
        self._constants = self._send_constants()
        self._executor = SimExecutor(program, self._arena, self._constants)
        self._blocks = [Block(self._executor, (step,)) for step in program.bound.steps]
        schedule = program.schedule
        self._streams = [device.stream, *(device.new_stream() for _ in schedule.streams[1:])]
        self._waits = _waits(schedule)
        self._telling = {signal.before for signal in schedule.signals}
        self._order = tuple(_order(schedule))
        self._touched = step_accesses(program.planned)

    def _allocate(self, nbytes: int, label: str) -> DeviceMemory:
        return DeviceMemory(self._device, self._device.pool.allocate(nbytes, self._device.stream, label))

    def _send_constants(self) -> dict[int, DeviceMemory]:
        """Copies the constants to the device: by buffer."""
        found, staging, bound = {}, Staging(self._device), self._program.bound
        for i, buffer in enumerate(bound.buffers):
            if buffer.kind is Kind.CONSTANT:
                found[i] = self._allocate(buffer.nbytes, f"a constant of {self._name}")
                staging.send(bound.constants[buffer.index], found[i].block)
        return found

    def queue(self, inputs: Sequence[DeviceMemory]) -> list[DeviceMemory]:
        """Queues all steps.

        Args:
            inputs: of the specs that the program was lowered for; those that it may write over are nobody else's.

        Returns:
            the memory of the outputs, to which the last steps will write.

        Raises:
            DeviceError: the schedule does not order two steps, or an input cannot be used.
            OutOfMemoryError: the device has no memory for the outputs.
        """
        bound, home = self._program.bound, self._device.stream
        made = [
            self._allocate(spec.nbytes, f"{spec}, a result of {self._name}") for spec in self._executor.outside.made
        ]
        given = {Kind.INPUT: inputs, Kind.OUTPUT: made}
        blocks = {i: given[b.kind][b.index] for i, b in enumerate(bound.buffers) if b.kind in given}
        home.launch(
            f"{self._name} begins", partial(self._begin, list(map(_bytes, inputs)), list(map(_bytes, made))), []
        )
        start = home.record()
        for stream in self._streams[1:]:
            stream.wait_for(start)
        done: dict[int, Event] = {}
        for i in self._order:
            step, stream = bound.steps[i], self._streams[self._program.schedule.stream_of[i]]
            for before in self._waits.get(i, ()):
                stream.wait_for(done[before])
            name = f"step {i} ({step.command.name}) of {self._name}"
            stream.launch(name, _quiet(self._blocks[i]), self._uses(i, step, blocks), step.source)
            if i in self._telling:
                done[i] = stream.record()
        for stream in self._streams[1:]:
            home.wait_for(stream.record())
        outputs = [self._output(view, blocks[view.buffer]) for view in bound.outputs]
        home.launch(f"{self._name} ends", self._end, [])
        return outputs

    def _uses(self, number: int, step: Step, blocks: Mapping[int, DeviceMemory]) -> list[Use]:
        """Returns the bytes that a step reads and writes."""
        uses = []
        for access in self._touched[number]:
            memory = self._arena if access.memory == ARENA else blocks.get(access.memory, self._effects)
            uses.append(Use(_lease(memory), access.first, access.end, access.writes))
        known = {use.lease for use in uses}
        for buffer in {view.buffer for part in walk((step,)) for view in part.inputs}:
            read = blocks.get(buffer) or self._constants.get(buffer)
            if read is not None and _lease(read) not in known:  # no step writes it
                uses.append(Use.whole(_lease(read), writes=False))
        return uses

    def _output(self, view: View, memory: DeviceMemory) -> DeviceMemory:
        """The memory of an output; a copy where that is a part of other memory."""
        if view.covers(memory.block.nbytes):
            return memory
        out = self._allocate(view.spec.nbytes, f"{view.spec}, a result of {self._name}")

        def copy() -> None:
            make_view(_bytes(out), View.whole(0, view.spec))[...] = make_view(_bytes(memory), view)

        uses = [Use.whole(_lease(memory), writes=False), Use.whole(_lease(out), writes=True)]
        self._device.stream.launch("copy", copy, uses)
        return out

    def _begin(self, given: list[NDArray], made: list[NDArray]) -> None:
        """Points the views of arguments and results at the memory of a call."""
        _lease(self._arena).error = _lease(self._effects).error = None
        self._executor.made = made
        self._executor.begin(given)

    def _end(self) -> None:
        """Drops the references to the memory of a call."""
        self._executor.clear(self._blocks)
        self._executor.given = self._executor.made = NOTHING


def _waits(schedule: Schedule) -> dict[int, list[int]]:
    """Returns the steps of other streams that each step waits for."""
    waits: dict[int, list[int]] = {}
    for signal in schedule.signals:
        waits.setdefault(signal.after, []).append(signal.before)
    return waits


def _order(schedule: Schedule) -> Iterator[int]:
    """Yields the steps of all streams so that each stands behind those that it waits for."""
    waits, queued = _waits(schedule), set[int]()
    left = [deque(steps) for steps in schedule.streams]
    while any(left):
        for steps in left:
            while steps and queued.issuperset(waits.get(steps[0], ())):
                queued.add(steps[0])
                yield steps.popleft()


def _quiet(run: Callable[[], None]) -> Callable[[], None]:
    """The function without NumPy's warnings of infinities and NaNs, as in programs of the CPU."""

    def quiet() -> None:
        with np.errstate(all="ignore"):
            run()

    return quiet


def _lease(memory: DeviceMemory) -> Lease:
    lease: Lease = memory.block.owner
    return lease


def _bytes(memory: DeviceMemory) -> NDArray:
    return _lease(memory).bytes
