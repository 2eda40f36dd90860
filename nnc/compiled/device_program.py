"""Runs compiled programs on devices: host arguments are sent there, results stay there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from nnc.array.array import Array, as_value
from nnc.array.device_array import DeviceArray, new_device_array
from nnc.array.promote import astype
from nnc.base.dtypes import is_scalar
from nnc.base.fork import new_rlock
from nnc.base.garbage import IN_VARIABLE
from nnc.base.options import Options, waits_in_each_call
from nnc.compiled.bindings import Inputs, Outputs
from nnc.compiled.pipeline import lower
from nnc.compiled.toolchain import toolchain
from nnc.device import Accelerator
from nnc.device.kinds import KINDS
from nnc.device.memory import DeviceMemory
from nnc.graph import Graph, TensorSpec
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.schedule.accesses import has_effect
from nnc.run.device_frame import DeviceFrame
from nnc.run.program import Program
from nnc.trace.core.on_device import DeviceInterpreter


class QueuedProgram:
    """A program on a device, called with values for the inputs of its graph.

    Args:
        name: the function's name in messages.
    """

    def __init__(self, name: str, program: Program, interpreter: Any) -> None:
        self._name, self._program, self._interpreter = name, program, interpreter
        self._device: Accelerator = interpreter.device
        self._frame: DeviceFrame | None = None
        self._lock, self._donated = new_rlock(), program.outside.donated
        self._has_effects = any(map(has_effect, walk(program.bound.steps)))
        self._specs = [TensorSpec(view.spec.shape, view.spec.dtype) for view in program.bound.outputs]

    def run_arrays(self, arrays: Sequence[Any]) -> list[DeviceArray]:
        """Queues the program, and returns its outputs. Arrays of the CPU are sent.

        Args:
            arrays: arrays, or their elements, for all inputs; they are not overwritten.

        Raises:
            OutOfMemoryError: the device has no memory for the outputs.
        """
        interpreter, device = self._interpreter, self._device
        with self._lock:
            memory: list[DeviceMemory] = []
            for x in arrays:  # each command by itself comes here: `x.owner` would take twice as long
                own: Any = (
                    getattr(x, "memory", None) if type(x) is DeviceArray else None
                )  # another thread may donate it
                is_here = own is not None and own.device is device
                memory.append(own if is_here else interpreter.put(as_value(x)).memory)
            for place in self._donated:
                memory[place] = interpreter.copy(memory[place])
            outputs = self._queue(memory)
        return _ready([*map(new_device_array, outputs, self._specs)])

    def _queue(self, inputs: Sequence[DeviceMemory]) -> list[DeviceMemory]:
        """Queues the program, and waits for one that does more than compute its outputs."""
        frame = self._frame or self._load()
        outputs = frame.queue(inputs)
        if self._has_effects:
            frame.wait()  # before the next call forgets the error
        return outputs

    def _load(self) -> DeviceFrame:
        load = KINDS[self._device.name.partition(":")[0]].program
        assert load is not None, f"{self._device.name}: its kind runs no programs"
        self._frame = DeviceFrame(self._program, self._device, load())
        return self._frame


class DeviceProgram(QueuedProgram):
    """A compiled function on a device.

    Args:
        name: the function's name in messages.
    """

    def __init__(self, name: str, program: Program, inputs: Inputs, outputs: Outputs, interpreter: Any) -> None:
        super().__init__(name, program, interpreter)
        self._inputs, self._outputs = inputs, outputs
        self._captured: list[DeviceMemory] | None = None

    def run(self, leaves: Sequence[Any]) -> Any:
        """Queues the program for dynamic leaves, which callers have checked, and returns the result, which may not be computed
        yet.

        Args:
            leaves: arrays of the device, arrays of the CPU, NumPy arrays and numbers; callers refuse arrays of other devices.

        Raises:
            OutOfMemoryError: the device has no memory for the results.
        """
        with self._lock:
            if self._captured is None:
                self._captured = [self._place(value, value.spec) for value in self._inputs.captured]
            memory = [self._place(leaves[i], spec) for i, spec in self._inputs.reads]
            for place in self._inputs.written:
                memory[place] = self._own(leaves[self._inputs.reads[place][0]], memory, place)
            outputs = self._queue([*memory, *self._captured])
        for i in self._inputs.spared:
            if isinstance(leaves[i], Array):
                leaves[i].delete()
        arrays = [
            new_device_array(*each) for each in zip(outputs, self._outputs.specs, self._outputs.weak, strict=True)
        ]
        _ready(arrays)
        return arrays[0] if self._outputs.is_array else self._outputs.tree.build(arrays)

    def _place(self, leaf: Any, spec: TensorSpec) -> DeviceMemory:
        """Returns the memory of an argument on the device."""
        if type(leaf) is DeviceArray and leaf.owner is self._interpreter:
            return leaf.alive()
        value = as_value(astype(leaf, spec.dtype, "argument") if is_scalar(leaf) else leaf)
        put = self._interpreter.put if isinstance(value, DeviceArray) else self._interpreter.take
        memory: DeviceMemory = put(value).memory
        return memory

    def _own(self, leaf: Any, memory: list[Any], place: int) -> DeviceMemory:
        """Returns the memory of a donated argument, which the program may write over: a copy where somebody else sees it."""
        own: DeviceMemory = memory[place]
        if not isinstance(leaf, DeviceArray):
            return self._interpreter.copy(own) if own.is_shared else own  # was sent for this call
        memory[place] = None
        leaf.delete()
        if own.is_shared or sys.getrefcount(own) > IN_VARIABLE:
            own = self._interpreter.copy(own)
        own.forget()
        return own


def program_of(graph: Graph, interpreter: DeviceInterpreter) -> Callable[[Sequence[Array]], Sequence[Array]]:
    """Returns the commands of an eager call as a program of a device."""
    options = Options.from_environment().update(device=interpreter.device.name, cache_folder=None)  # it is a few steps
    tools = toolchain(options.device)
    program = lower(graph, options, tools.choose_kernel, tools.compiler() if options.native else None)
    return QueuedProgram(graph.name, program, interpreter).run_arrays


def _ready(arrays: list[DeviceArray]) -> list[DeviceArray]:
    """Returns the results of a call, for which the host waits if the user wants that."""
    if waits_in_each_call():
        for array in arrays:
            array.block_until_ready()
    return arrays
