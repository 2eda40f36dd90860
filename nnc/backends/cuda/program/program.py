"""Kernels of a program on CUDA's devices: printed ones, calls of libraries, and for the other steps the reference on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from nnc.backends.cuda.program.library_calls import load_library_calls
from nnc.base.context import get_context, set_context, timed
from nnc.base.source import SourceLine, user_source
from nnc.device.cuda import CapturedCall, Completion, CudaDevice, Lease, RepeatedCall, StepRun
from nnc.device.memory import DeviceMemory
from nnc.errors import DeviceError, InternalError, NncError, user_error
from nnc.lower.kernels.launch import Assembler
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Loop, NDArray, Step, View
from nnc.run.device_frame import DeviceFrame
from nnc.run.launches import Launches
from nnc.run.program import Program
from nnc.run.python_steps import Tapes, run_region, run_step
from nnc.run.queued_code import QueuedCode

_STEPS_OF_A_GRAPH = 4  # for each step from Python: to launch a graph takes as long as to launch two kernels
_SAME_SIZE = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}  # dtypes that copy elements of so many bytes, bit for bit


class CudaModule:
    """The kernels of a program on one of CUDA's devices.

    Args:
        effects: the memory that stands for effects and tapes.
    """

    def __init__(self, program: Program, device: CudaDevice, effects: DeviceMemory) -> None:
        self._program, self._device, self._tapes = program, device, Tapes(program)
        self._statuses: DeviceMemory | None = None
        self._launches: Launches | None = None
        self._calls: list[StepRun] = []  # of steps without a printed kernel

    @cached_property
    def _functions(self) -> Any:
        """The functions of the program's printed kernels, by name."""
        code, printed = self._program.code, self._program.printed
        compiler = code.compiler if code is not None else None
        if not isinstance(compiler, Assembler):
            raise InternalError(f"{self._program.bound.name}: its compiler assembles no kernels of devices")
        kernels = {kernel.name: kernel for kernel in printed.values()}
        names = [kernel.function(launch) for kernel in kernels.values() for launch in kernel.launches]
        with timed("compiling kernels"):
            return self._device.find_functions(
                compiler.to_machine_code([*kernels.values()], self._device.target), names
            )

    def handles(self, step: Step, launches: Launches) -> list[int]:
        """Returns the handles of the launches of a step."""
        self._launches = launches
        printed = self._program.printed.get(id(step))
        if printed is not None:
            driver = self._device.driver
            return [
                driver.add_kernel(int(self._functions[printed.function(launch)].ptr), len(launch.operands))
                for launch in printed.launches
            ]
        views = (*step.inputs, *step.outputs)
        queue = self._program.kernels[id(step)].queue
        on_host: StepRun = partial(self._run_on_host, step, launches)
        run = on_host if queue is None else queue(step, self._device, self._program.planned.precision)
        self._calls.append(run)
        code = self._program.code
        if isinstance(run, RepeatedCall) and code is not None:
            self._device.driver.repeat_calls(load_library_calls(code.compiler).address)
        return [self._device.driver.add_step(len(views), run)]

    def _run_on_host(self, step: Step, launches: Launches, addresses: Sequence[int], stream: int) -> None:
        """Copies the operands of a step to the host, runs its reference there, and copies the results back."""
        device, count = self._device, len(step.inputs)
        views = (*step.inputs, *step.outputs)
        arrays = [
            _HostArray(view, address, self._tapes.array(view) if launches.is_tape(view) else None)
            for view, address in zip(views, addresses, strict=True)
        ]
        for i, array in enumerate(arrays):
            if i < count or array.has_gaps:  # bytes between the elements of a result stay as they are
                device.copy_to_host(array.address, array.data, stream)
        device.wait_for(stream)
        run_step(step, self._program.kernels[id(step)].run, [array.elements for array in arrays])
        for array in arrays[count:]:
            device.copy_from_host(array.address, array.data, stream)
        device.wait_for(stream)  # the host's memory is freed now

    def can_be_captured(self, launches: Launches) -> bool:
        """Whether the program is launched as captured graphs: a compiled entry queues it, most of its steps are printed kernels
        and calls that can be captured, and no loop writes its counter.
        """
        steps = walk(launches.steps, launches.printed)
        counts = any(
            isinstance(step.region, Loop) and step.region.counter is not None and not launches.is_launched(step)
            for step in steps
        )
        from_python = sum(not isinstance(call, CapturedCall) for call in self._calls)
        pays = len(launches.kernels) > (1 + _STEPS_OF_A_GRAPH) * from_python
        return launches.can_be_captured and isinstance(self._program.code, QueuedCode) and pays and not counts

    def begin(self, memories: Sequence[DeviceMemory], statuses: DeviceMemory) -> None:
        """Queues the beginning of a call: sets the status words to 0."""
        self._statuses = statuses
        if statuses.block.nbytes:
            self._device.clear(statuses.block)

    def finish(self, inputs: Sequence[DeviceMemory], results: Sequence[DeviceMemory]) -> None:
        """Queues the end of a call: the host learns later whether a kernel refused an operand; `results` depend on the status
        words.
        """
        self._tapes.clear()
        statuses = self._statuses
        has_statuses = statuses is not None and statuses.block.nbytes > 0
        if not has_statuses:
            for memory in (*inputs, *results):
                if memory.block.owner.completions:
                    break
            else:
                return  # most calls end here: Python prepares them, and compiled code launches the kernels
        waiting: dict[int, Completion] = {}
        for memory in inputs:
            for each in _lease(memory).pending():
                waiting[id(each)] = each
        if statuses is not None and has_statuses:
            words = self._device.host_memory(statuses.block.nbytes).view(np.int32)
            event = self._device.transfer.to_host(statuses.block, words, self._device.stream)
            line = get_context().source or user_source()
            call = Completion(event, words, partial(self._word_error, list(inputs), line))
            waiting[id(call)] = call
        for memory in results:
            _lease(memory).depend_on(waiting.values())

    def _word_error(self, inputs: Sequence[DeviceMemory], line: SourceLine | None, number: int) -> BaseException:
        """Words the error of the step with a status word of this number. If the arguments of the call are unchanged, the call
        runs once more, step by step, with the step's reference, which says which value it refuses.

        Args:
            line: the user's line that made the call, for steps without one.
            number: the position of the first status word that is not 0.
        """
        launches = self._launches
        assert launches is not None
        step = launches.refusing[number]

        def watch(reached: Step, addresses: Sequence[int], stream: int) -> None:
            if reached is not step:
                return
            if step.region is None:
                self._run_on_host(step, launches, addresses, stream)
                return
            arrays = [_HostArray(view, at) for view, at in zip(launches.views(step), addresses, strict=True)]
            for array in arrays:
                self._device.copy_to_host(array.address, array.data, stream)
            self._device.wait_for(stream)
            run_region(step, self._program, [array.elements for array in arrays])

        if not self._program.outside.donated:
            try:
                with set_context(source=line):
                    DeviceFrame(self._program, self._device, CudaModule).walk(inputs, watch)
            except NncError as error:
                return error
        problem = "a kernel refused its operands, an index that is out of range for instance."
        fix = "run the function on the CPU, which says which value it is."
        return user_error(DeviceError, step.command.name, problem, fix=fix, source=step.source or line)

    def copy(self, view: View, source: DeviceMemory, target: DeviceMemory) -> None:
        """Queues a copy of a part of some memory; `target` is as large as the part."""
        device, spec = self._device, view.spec
        kind = _SAME_SIZE[spec.dtype.itemsize]
        with device.arrays_in(device.stream.handle):
            part = device.view(source.block.address + view.offset, spec.shape, kind, view.strides)
            device.view(target.block.address, spec.shape, kind)[...] = part


class _HostArray:
    """The host memory for an operand of a step: all bytes from its first element to its last.

    Args:
        address: the address of the operand's first element on the device.
        tape: the array of a tape, which lies on the host alone.
    """

    def __init__(self, view: View, address: int, tape: NDArray | None = None) -> None:
        first, end = (at - view.offset for at in view.extent)
        self.address = address + first
        self.data = np.empty(0 if tape is not None else end - first, np.uint8)
        self.has_gaps = view.spec.nbytes < self.data.nbytes
        if tape is not None:
            self.elements = tape
        elif self.data.size:
            self.elements = np.ndarray(view.spec.shape, view.spec.dtype, self.data, -first, view.strides)
        else:
            self.elements = np.empty(view.spec.shape, view.spec.dtype)


def _lease(memory: DeviceMemory) -> Lease:
    lease: Lease = memory.block.owner
    return lease
