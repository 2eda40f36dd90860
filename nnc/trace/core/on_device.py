"""Runs commands on a device: an interpreter for each, which arrays of the device belong to.

A command runs where its array operands are. NumPy arrays and Python numbers among the operands are sent there, and so are arrays
of the CPU without axes. An operand on another device is an error: a copy of it should be seen in the program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

import numpy as np

from nnc import tree as trees
from nnc.array.array import Array, as_command_operand, as_value
from nnc.array.device_array import DeviceArray, fresh_memory, new_device_array, note_transfer
from nnc.array.promote import as_operand
from nnc.base.bounded import BoundedCache
from nnc.base.context import LOCATORS, get_context, set_context
from nnc.base.dtypes import TAPE
from nnc.base.options import waits_in_each_call
from nnc.base.source import user_source
from nnc.calls.specialise import set_layers
from nnc.commands.debug import raise_unless_finite
from nnc.commands.rules import SILENT_EFFECTS
from nnc.commands.weakness import with_inherited_weakness
from nnc.device import (  # fmt: skip
    CPU,
    CUDA,
    Accelerator,
    Elements,
    SharingDevice,
    check_program,
    find_device,
    interpreter_of,
    kind_of,
)
from nnc.device.dlpack import CUDA as ON_CUDA
from nnc.device.dlpack import is_foreign, place_of
from nnc.device.kinds import KINDS
from nnc.device.memory import DeviceMemory, Staging
from nnc.errors import DeviceError, UnsupportedError, user_error
from nnc.errors.tracebacks import api_boundary, cut_traceback
from nnc.graph import Command, Graph, Node, Symbol, TensorSpec
from nnc.graph.registry import effect
from nnc.trace.core.eager import EagerInterpreter, Plan, find_plan, run_plan
from nnc.trace.core.specialised import SpecialisedCall
from nnc.trace.core.tracer import Tracer

__all__ = ["block_until_ready", "default_device", "device_put"]

T = TypeVar("T")

_NUMBERS = 256  # numbers that stay on a device: 64 KiB, as its smallest blocks have 256 bytes


class DeviceInterpreter:
    """Queues each command on a device when it is called, and the commands of a public function together.

    Attributes:
        follows_calls: whether it queues the commands of a public function together.
    """

    level = -1  # below dynamic graphs and all traces
    alive = True
    differentiates = False
    specialises_at_once = True  # a program of all commands is made sooner than one of each

    def __init__(self, device: Accelerator) -> None:
        self.device, self._staging = device, Staging(device)
        # it has printed kernels; else the CPU's run on the device's memory
        self.follows_calls = kind_of(device.name) != CPU
        self._numbers = BoundedCache[Any, DeviceArray](_NUMBERS)

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Queues a command.

        Raises:
            DeviceError: an operand is an array of another device.
        """
        if not any(isinstance(arg, DeviceArray) for arg in args) and any(map(_is_committed, args)):
            return EagerInterpreter().process(command, args, params, graphs)  # on the CPU, within `default_device`
        values = [self._operand(command, arg, args) for arg in args]
        plan = find_plan(command, tuple([value.spec for value in values]), params, graphs)
        return with_inherited_weakness(command, args, graphs, self._run(plan, values))

    def run(self, plan: Plan, args: Sequence[Array]) -> Sequence[Array]:
        """Queues a command whose plan is known.

        Args:
            plan: the plan of the command, or of a command that stands for a program; `plan.known[DeviceInterpreter]` runs the
                program.

        Raises:
            DeviceError: an operand is an array of another device.
        """
        return self._run(plan, [self._operand(plan.command, arg, args) for arg in args])

    def _run(self, plan: Plan, values: Sequence[Array]) -> Sequence[Array]:
        program: Callable[[Sequence[Array]], Sequence[Array]] | None = plan.known.get(DeviceInterpreter)
        if program is not None:
            return program(values)
        if _has_effect(plan.command, plan.graphs) or any(spec.dtype == TAPE for spec in (*plan.specs, *plan.outputs)):
            return self._run_on_host(plan, values)
        results = self._program(plan)(values) if self.follows_calls else self._queue(plan, values)
        if "check_finite" in get_context().modes:
            raise_unless_finite(plan.command.name, [value.data for value in values], [x.data for x in results])
        if waits_in_each_call():
            for x in results:
                x.block_until_ready()
        return results

    def _program(self, plan: Plan) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """Returns the program of a command, for a device whose kernels are printed."""
        program: Callable[[Sequence[Array]], Sequence[Array]] | None = plan.known.get(self.device.name)
        if program is None:
            program = plan.known[self.device.name] = self._make_program(_graph_of(plan))
        return program

    def _make_program(self, graph: Graph) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """Returns a program for operands of any values. An error of its steps has the line of the call, as the graph has none."""
        make = KINDS[self.device.name.partition(":")[0]].queue
        assert make is not None, f"{self.device.name}: its kind runs no programs"
        program: Callable[[Sequence[Array]], Sequence[Array]] = make()(graph, self)
        return program

    def follow(self, call: SpecialisedCall, values: Sequence[Any]) -> Any:
        """Runs a public function whose commands are known as one program; returns NotImplemented where an operand lies
        elsewhere.

        Args:
            call: the function's commands for such arguments.
            values: the arguments of the function: arrays and numbers.
        """
        operands = []
        for value, cast in zip(values, call.casts, strict=True):
            if cast is not None:
                operands.append(self._number(cast(value)))
            elif isinstance(value, DeviceArray):
                operands.append(value)
            elif value.ndim:
                return NotImplemented
            else:
                operands.append(self.put(value))
        run: Callable[[Sequence[Array]], Sequence[Array]] | None = call.known.get(self.device.name)
        if run is None:
            nodes = tuple([node.update(source=None) for node in call.graph.nodes])
            run = call.known[self.device.name] = self._make_program(call.graph.update(nodes=nodes))
        (result,) = run(operands)
        return result.as_weak(call.weak) if call.weak else result

    def _number(self, value: np.ndarray[Any, Any]) -> DeviceArray:
        """Returns an array without axes, which is sent once for many calls."""
        key = value.dtype, value.tobytes()
        found = self._numbers.find(key)
        return self._numbers.keep(key, self.put(Array(value))) if found is None else found

    def _run_on_host(self, plan: Plan, values: Sequence[Array]) -> list[Array]:
        """Runs a command at once on the CPU: one that the host must see, or one on tapes, which are Python objects."""
        with set_context(device=None):
            results = run_plan(plan, [x.data for x in values])
        return [x if x.spec.dtype == TAPE else self.put(x) for x in results]

    def take(self, x: Array) -> DeviceArray:
        """Copies a host array that is an operand to the device."""
        if x.ndim:
            note_transfer(x.spec, "the host", self.device.name)
        return self.put(x)

    def put(self, x: Any) -> DeviceArray:
        """Copies an array to the device; returns the array itself where it lies there already."""
        if isinstance(x, DeviceArray):
            if x.owner is self:
                return x
            x = x.to_device(CPU)
        return new_device_array(self._staging.send(x.data, x.spec), x.spec, x.weak)

    def receive(self, x: Any) -> DeviceArray:
        """Takes an array of another library that lies on this device, without a copy where its layout is that of nnc's arrays.

        Args:
            x: an array with `__dlpack__`.

        Raises:
            BufferError, NotImplementedError, RuntimeError, TypeError, ValueError: its library does not give the elements.
        """
        device = self.device
        assert isinstance(device, SharingDevice)
        block, shape, dtype = device.receive(x)
        memory = DeviceMemory(device, block)
        memory.share()
        return new_device_array(memory, TensorSpec(shape, dtype))

    def copy(self, memory: DeviceMemory) -> DeviceMemory:
        """Copies the elements of an array."""
        nbytes = memory.block.nbytes
        twin = DeviceMemory(self.device, self.device.pool.allocate(nbytes, self.device.stream, "a copy"))
        source, target = (Elements(x.block, (nbytes,), np.uint8) for x in (memory, twin))
        self.device.launch("copy", lambda arrays: arrays, [source], [target])
        return twin

    def _operand(self, command: Command, arg: Any, args: Sequence[Any]) -> Array:
        if _is_committed(arg) and arg.device != self.device.name:
            places = {f"operand {i}": f"{x.spec} on {x.device}" for i, x in enumerate(args) if isinstance(x, Array)}
            problem = f"its operands are on {self.device.name} and on {arg.device}."
            fix = f"copy one of them: nnc.device_put(x, {self.device.name!r})."
            raise user_error(DeviceError, command.name, problem, operands=places, fix=fix)
        value: Array = as_command_operand(arg)
        if value.spec.dtype == TAPE:
            return value
        return self.put(value) if isinstance(value, DeviceArray) else self.take(value)

    def _queue(self, plan: Plan, values: Sequence[Any]) -> list[DeviceArray]:
        results = [new_device_array(fresh_memory(self.device, spec), spec) for spec in plan.outputs]
        source = get_context().source or user_source()
        self.device.launch(plan.command.name, plan.run, _elements(values), _elements(results), source)
        return results


def _graph_of(plan: Plan) -> Graph:
    """Returns the graph of one command."""
    inputs = tuple(Symbol(spec) for spec in plan.specs)
    outputs = tuple(Symbol(spec) for spec in plan.outputs)
    return Graph(
        inputs, outputs, (Node(plan.command, inputs, outputs, plan.params, plan.graphs),), name=plan.command.name
    )


def _elements(arrays: Sequence[DeviceArray]) -> list[Elements]:
    return [Elements(x.memory.block, x.spec.shape, x.spec.dtype) for x in arrays]


def _is_committed(x: Any) -> bool:
    """Whether an operand cannot be sent to a device without a word: arrays, but for those of the CPU without axes, and tapes."""
    return isinstance(x, DeviceArray) or (isinstance(x, Array) and x.ndim > 0 and x.spec.dtype != TAPE)


def _has_effect(command: Command, graphs: Sequence[Graph]) -> bool:
    """Whether a command does more than compute its results, so that the host must see it at once."""
    commands = (command, *(node.command for graph in graphs for node in graph.walk()))
    return any(effect.get(each, None) not in (None, *SILENT_EFFECTS) for each in commands)


def make_interpreter(device: Accelerator) -> DeviceInterpreter:
    """Returns the interpreter of a device. With the first one, functions begin to ask where their arguments are."""
    LOCATORS[:] = [located]
    return DeviceInterpreter(device)


def located(args: Sequence[Any], kwargs: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """A block within which new arrays are made where the arguments of a function are."""
    ambient = get_context().device
    place = _place_of((*args, *kwargs.values()), ambient)
    return nullcontext() if place is ambient else set_context(device=place)


def _place_of(values: Iterable[Any], ambient: Any) -> Any:
    """Returns the interpreter of the first array on a device, also of another library, among values and in the containers among
    them; None where all arrays with axes are on the CPU, the ambient one where there is none. Each object is looked at once:
    graphs reach theirs in many ways.
    """
    todo, seen, found = list(values), set[int](), ambient
    while todo:
        x = todo.pop()
        if isinstance(x, Tracer):
            x = x.held
        if isinstance(x, DeviceArray):
            return x.owner
        if isinstance(x, Array):
            found = None if _is_committed(x) else found
        elif id(x) not in seen:
            if isinstance(x, (list, tuple)):
                todo += x
            elif isinstance(x, dict):
                todo += x.values()
            elif is_foreign(type(x)):
                kind, number = place_of(x)
                if kind == ON_CUDA:
                    with suppress(UnsupportedError):  # no device of nnc: to read the array is an error
                        return interpreter_of(find_device(f"{CUDA}:{number}", "asarray"))
            elif dataclasses.is_dataclass(x) and not isinstance(x, type):
                todo += [getattr(x, field.name, None) for field in dataclasses.fields(x)]
            else:
                continue
            seen.add(id(x))
    return found


set_layers(device_array=DeviceArray)


# -- for users ---------------------------------------------------------------------------------------------------------


def device_put(tree: T, device: str | None = None) -> T:
    """Copies the arrays of a pytree to a device. The call returns before the copies are done.

    Args:
        tree: arrays, NumPy arrays and numbers, in any pytree.
        device: a name, as `nnc.devices` lists it; by default the one of `nnc.default_device`, else "cpu".

    Returns:
        the pytree with its arrays on the device; arrays that are there already are returned as they are.

    Raises:
        UnsupportedError: there is no such device.
        DTypeError, ArgumentTypeError: a leaf is no array of numbers.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> x = nnc.device_put(np.ones(3, "float32"), "sim:0")
        >>> x + 1
        Array([2., 2., 2.], dtype=float32, device=sim:0)
    """
    try:  # without a boundary, which would make the arrays' own device the ambient one
        ambient = get_context().device
        default = CPU if ambient is None else ambient.device.name
        name = default if device is None else find_device(device, "device_put").name
        if device is not None:
            check_program(name, "device_put")
        with set_context(device=None):  # arrays of NumPy go straight to the device
            placed: T = trees.map(lambda x: _put(x, name), tree)
        return placed
    except BaseException as error:
        cut_traceback(error)
        raise


def _put(x: Any, device: str) -> Any:
    """Returns an array on a device; values of traces, which have none yet, are returned as they are."""
    value = as_value(as_operand(x, "device_put", "a leaf"))
    return value.to_device(device) if isinstance(value, Array) else value


@api_boundary
def block_until_ready(tree: T) -> T:
    """Waits until the arrays of a pytree are computed.

    Args:
        tree: arrays in any pytree.

    Returns:
        the pytree.

    Example:
        >>> nnc.block_until_ready(nnp.ones(2) + 1)
        Array([2., 2.], dtype=float32)
    """
    for x in trees.leaves(tree):
        if isinstance(x, Array):
            x.block_until_ready()
    return tree


@api_boundary
def default_device(device: str) -> AbstractContextManager[object]:
    """Makes a device the one on which new arrays are made, within a `with` block.

    Operations on arrays run where these are, in the block, too.

    Args:
        device: a name, as `nnc.devices` lists it.

    Raises:
        UnsupportedError: there is no such device.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> with nnc.default_device("sim:0"):
        ...     print(nnp.zeros(2).device)
        sim:0
    """
    found = find_device(device, "default_device")
    check_program(found.name, "default_device")
    return set_context(device=interpreter_of(found))
