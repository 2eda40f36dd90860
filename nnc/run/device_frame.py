"""The memory of a program's calls on a device, and the queueing of its steps there: by a compiled entry, by Python where there
is no compiler, or as a captured graph.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from nnc.commands.loop import check_branch, check_steps
from nnc.device.memory import DeviceMemory, Staging
from nnc.device.protocol import Accelerator, CapturedGraph, Driver
from nnc.errors import InternalError
from nnc.errors.errors import word_anew
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Branches, Buffer, Kind, Loop, Step, View
from nnc.run.arguments import FrameLayout
from nnc.run.entry_steps import Failure
from nnc.run.launches import Launches
from nnc.run.program import Program
from nnc.run.queued_code import QueuedCode
from nnc.run.walker import Walker, Watch

_STANDINS, _REACH = 1 << 56, 1 << 42  # addresses where no device has memory, further apart than any offset
_CALLS_BEFORE_CAPTURE = 2  # a program that is called once or twice does not earn a graph


class Module(Protocol):
    """The kernels of a program, loaded on a device."""

    def handles(self, step: Step, launches: Launches) -> Sequence[int]:
        """Returns the handles of the launches of a step, one of `launches.kernels`."""
        ...

    def can_be_captured(self, launches: Launches) -> bool:
        """Whether the device can launch the program as a captured graph."""
        ...

    def begin(self, memories: Sequence[DeviceMemory], statuses: DeviceMemory) -> None:
        """Queues the beginning of a call: clears errors and elements of the last one.

        Args:
            memories: the memories that calls use in turn.
            statuses: the status words, which are set to 0.
        """
        ...

    def finish(self, inputs: Sequence[DeviceMemory], results: Sequence[DeviceMemory]) -> None:
        """Queues the end of a call.

        Args:
            results: the memories that the call writes, effects included.
        """
        ...

    def copy(self, view: View, source: DeviceMemory, target: DeviceMemory) -> None:
        """Queues a copy of a part of some memory; `target` is as large as the part."""
        ...


class _Argument(NamedTuple):
    """An address in a captured graph that lies in an argument or a result: where it stands, and how it is found in another call."""

    node: int
    place: int
    word: int
    offset: int


class _Output(NamedTuple):
    """An output of a program: its buffer, and whether it is the whole of a buffer that is no constant."""

    view: View
    kind: Kind
    number: int
    is_whole: bool

    @classmethod
    def of(cls, view: View, buffer: Buffer) -> _Output:
        is_whole = buffer.kind is not Kind.CONSTANT and view.covers(buffer.symbol.spec.nbytes)
        return cls(view, buffer.kind, buffer.index, is_whole)


class DeviceFrame:
    """The memory of one call at a time on a device, and the streams of the program.

    Args:
        program: the program, lowered for this device.
        load: loads the kernels of a program on the device; it is given the memory that stands for effects and tapes.
    """

    def __init__(
        self, program: Program, device: Accelerator, load: Callable[[Program, Any, DeviceMemory], Module]
    ) -> None:
        self._program, self._device, self._name = program, device, program.bound.name
        code = program.code
        self._launches = launches = (
            code.launches if isinstance(code, QueuedCode) else Launches(program.planned, program.schedule)
        )
        self._arena = self._allocate(program.arena_bytes, f"the arena of {self._name}")
        self._effects = self._allocate(1, "effects and tapes")  # which have no address, and are done in order
        self._constants = self._send_constants()
        with device.current():
            self._module = load(program, device, self._effects)
        self._streams = [device.stream, *(device.new_stream() for _ in program.schedule.streams[1:])]
        driver, layout = device.driver, launches.layout
        self._words = words = (ctypes.c_int64 * layout.size)()
        words[FrameLayout.table_at] = ctypes.addressof(driver.table)
        words[FrameLayout.arena_at] = self._arena.block.address
        for i, memory in self._constants.items():
            words[layout.constant(i)] = memory.block.address
        for k, stream in enumerate(self._streams):
            words[launches.stream_word(k)] = driver.handle_of(stream)
        events = [driver.new_event() for _ in range(launches.events)]
        for i, event in enumerate(events):
            words[launches.event_word(i)] = event
        handles: list[int] = []
        for step in launches.kernels:
            made = self._module.handles(step, launches)
            for number, handle in enumerate(made):
                words[launches.kernel_words[id(step)] + number] = handle
            handles += made
        self._statuses = self._allocate(4 * len(launches.refusing), f"status words of {self._name}")
        for i, step in enumerate(launches.refusing):
            words[launches.status_word(step)] = self._statuses.block.address + 4 * i
        self._finalizer = weakref.finalize(self, driver.release, [*events, *handles])
        self._entry = new_entry(program, launches, words, driver)
        bound = program.bound
        specs = [buffer.symbol.spec for buffer in bound.buffers if buffer.kind is Kind.OUTPUT]
        self._results = [(spec.nbytes, f"{spec}, a result of {self._name}") for spec in specs]
        self._argument_words = [
            *map(layout.input, range(len(bound.inputs))), *map(layout.result, range(len(specs)))
        ]  # fmt: skip
        self._outputs = [_Output.of(view, bound.buffers[view.buffer]) for view in bound.outputs]
        places = [(x.kind, x.number) if x.is_whole else None for x in self._outputs]
        self._results_are_outputs = places == [(Kind.OUTPUT, i) for i in range(len(specs))]
        self._can_be_captured = self._module.can_be_captured(launches)
        self._calls = 0
        self._graph: CapturedGraph | None = None
        self._arguments: list[_Argument] = []

    def _allocate(self, nbytes: int, label: object) -> DeviceMemory:
        return DeviceMemory(self._device, self._device.pool.allocate(nbytes, self._device.stream, label))

    def _send_constants(self) -> dict[int, DeviceMemory]:
        """Copies the constants to the device: by number."""
        staging, label = Staging(self._device), f"a constant of {self._name}"
        sent = {i: staging.send(constant, label) for i, constant in enumerate(self._program.bound.constants)}
        staging.finish()
        return sent

    def queue(self, inputs: Sequence[DeviceMemory]) -> list[DeviceMemory]:
        """Queues all steps.

        Args:
            inputs: memory of the specs that the program was lowered for; nobody else may use inputs that the program
                overwrites.

        Returns:
            the memory of the outputs, which the last steps will write.

        Raises:
            DeviceError: the schedule does not order two steps, or an input cannot be used.
            OutOfMemoryError: the device has no memory for the outputs.
        """
        with self._device.current():
            made = self._bind(inputs)
            self._calls += 1
            if self._can_be_captured and self._graph is None and self._calls > _CALLS_BEFORE_CAPTURE:
                self._graph = self._capture(self._argument_words)
            self._module.begin([self._arena, self._effects], self._statuses)
            if self._graph is None or not self._launch(self._graph):
                self._run()
            written = [*made, self._effects]
            if self._results_are_outputs:
                outputs = made
            else:
                outputs = [self._output(output, inputs, made) for output in self._outputs]
                written += outputs
            self._module.finish(inputs, written)
        return outputs

    def walk(self, inputs: Sequence[DeviceMemory], watch: Watch) -> None:
        """Queues all steps from Python, for a caller that looks at their operands.

        Args:
            inputs: memory of the specs that the program was lowered for.
            watch: called before each launch, with the addresses of the step's operands and the handle of its stream.

        Raises:
            Exception: `watch` raised it.
        """
        with self._device.current():
            made = self._bind(inputs)
            self._module.begin([self._arena, self._effects], self._statuses)
            Walker(self._launches, self._words, self._device.driver, watch)()
        del made  # the steps are queued

    def _bind(self, inputs: Sequence[DeviceMemory]) -> list[DeviceMemory]:
        """Notes the addresses of a call, and returns the memory of its results."""
        device, words = self._device, self._words
        made = [DeviceMemory(device, block) for block in device.allocate_all(self._results)]
        for word, memory in zip(self._argument_words, (*inputs, *made), strict=True):
            words[word] = memory.block.address
        return made

    def wait(self) -> None:
        """Waits for the last call.

        Raises:
            Exception: an effect failed, such as a user's callback.
        """
        self._device.wait(self._effects.block)

    def _run(self) -> None:
        code = self._entry()
        if code:
            self._fail(code)

    # -- captured graphs -----------------------------------------------------------------------------------------------

    def _launch(self, graph: CapturedGraph) -> bool:
        """Queues all steps as a graph; False where it cannot be launched for these arguments."""
        for node, place, word, offset in self._arguments:
            graph.nodes[node].addresses[place] = self._words[word] + offset
        return graph.launch(self._device.stream)

    def _capture(self, words: Sequence[int]) -> CapturedGraph:
        """Captures the launches, and finds the addresses that change from call to call.

        During the capture, arguments and results have placeholder addresses, far from each other: one array may be passed for
        several arguments, so that its own address would not tell them apart.

        Args:
            words: the words of the frame that hold these addresses.
        """
        driver, found = self._device.driver, [self._words[word] for word in words]
        self._words[FrameLayout.table_at] = ctypes.addressof(driver.begin_capture(self._device.stream))
        try:
            for k, word in enumerate(words):
                self._words[word] = _STANDINS + k * _REACH
            self._run()
        except BaseException:
            driver.drop_capture()
            raise
        finally:
            for word, address in zip(words, found, strict=True):
                self._words[word] = address
            self._words[FrameLayout.table_at] = ctypes.addressof(driver.table)
        graph = driver.end_capture()
        for number, node in enumerate(graph.nodes):
            for place, address in enumerate(node.addresses):
                k, offset = divmod(address - _STANDINS, _REACH)
                if 0 <= k < len(words):
                    self._arguments.append(_Argument(number, place, words[k], offset))
        return graph

    # -- results and errors --------------------------------------------------------------------------------------------

    def _output(self, output: _Output, inputs: Sequence[DeviceMemory], made: Sequence[DeviceMemory]) -> DeviceMemory:
        """Returns the memory of an output; a copy where that is a part of other memory."""
        view, kind, number, is_whole = output
        if is_whole:
            return made[number] if kind is Kind.OUTPUT else inputs[number]
        memory = {Kind.CONSTANT: self._constants, Kind.INPUT: inputs, Kind.OUTPUT: made}[kind][number]  # type: ignore[index]
        out = self._allocate(view.spec.nbytes, f"{view.spec}, a result of {self._name}")
        self._module.copy(view, memory, out)
        return out

    def _fail(self, code: int) -> None:
        """Raises the error for which the entry stopped."""
        kind, number = Failure.of(code)
        if kind is Failure.DRIVER:
            raise self._device.driver.take_error(number)
        step: Step = next(step for i, step in enumerate(walk(self._launches.steps)) if i == number)
        region = step.region
        if kind is Failure.LIMIT and isinstance(region, Loop):
            word_anew(lambda: check_steps(region.limit or 0, region.limit), step.source)
        elif kind is Failure.BRANCH and isinstance(region, Branches):
            index = self._words[self._launches.fetch_word]
            word_anew(lambda: check_branch(index, len(region.branches)), step.source)
        raise InternalError(f"{self._name}: {step.command.name} stopped: {kind.name.lower()}")


def new_entry(program: Program, launches: Launches, words: Any, driver: Driver) -> Callable[[], int]:
    """Makes the function that queues all steps of a program, for the words of a frame."""
    if not isinstance(program.code, QueuedCode):
        return Walker(launches, words, driver)
    function, address = program.code.queueing, ctypes.addressof(words)
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address)

    def call(held: Any = function) -> int:  # it keeps the machine code
        return int(entry(address))

    return call
