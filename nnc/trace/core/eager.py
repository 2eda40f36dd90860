"""The interpreter at the bottom: runs commands on concrete arrays at once, with the best kernel that takes them.

A call's `Plan` holds all that depends on specs and parameters alone, such as the kernel. It is made once, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, cast

import numpy as np

from nnc.array.array import Array, as_command_operand, new_array
from nnc.base import dtypes
from nnc.base.context import get_context, observes_commands, set_context
from nnc.base.machine import LARGE, check_memory
from nnc.base.silence import silently
from nnc.commands.debug import raise_unless_finite
from nnc.commands.loop import run_graph
from nnc.commands.shape import broadcast_to
from nnc.commands.weakness import with_inherited_weakness
from nnc.errors import InternalError
from nnc.graph import (
    Command,
    Graph,
    Node,
    Symbol,
    TensorSpec,
    bind,
    find_interpreter,
    find_kernel,
    infer_specs,
    kernel,
    reference,
    set_eager,
    spec_of,
)
from nnc.graph.registry import alias, effect, numpy_call

NDArray = np.ndarray[Any, Any]
Arrays = Sequence[NDArray]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The kernel and settings of a command on operands of these specs. Plans are compared by identity; equal calls share one."""

    command: Command
    specs: tuple[TensorSpec, ...]
    params: Mapping[str, Any]
    graphs: tuple[Graph, ...]
    outputs: tuple[TensorSpec, ...]
    run: Callable[[Arrays], Sequence[NDArray]]
    function: Callable[..., Any] | None = None  # the function that `run` calls, where that is one call of NumPy
    registered: tuple[Any, ...] = ()  # the registry's answer when the plan was made
    known: dict[Any, Any] = field(default_factory=dict)  # answers that others cache for it, for as long as it lives


class EagerInterpreter:
    """Runs each command when it is called."""

    level = -1
    alive = True

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command at once."""
        values = [arg if type(arg) is Array else as_command_operand(arg) for arg in args]
        plan = find_plan(command, tuple([value.spec for value in values]), params, graphs)
        results = run_plan(plan, [value.data for value in values])
        return with_inherited_weakness(command, args, graphs, results)


def run_plan(plan: Plan, arrays: Arrays) -> list[Array]:
    """Runs a command; in the mode "check_finite", its results must be finite where its operands are."""
    results = plan.run(arrays)
    if "check_finite" in get_context().modes:
        raise_unless_finite(plan.command.name, arrays, results)
    return list(map(new_array, results, plan.outputs))


def find_plan(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], graphs: tuple[Graph, ...] = ()
) -> Plan:
    """Returns the plan of a command on operands of these specs.

    Raises:
        NncError: the command does not take these operands.
    """
    if graphs:
        return _make_plan(command, specs, params, graphs)
    static = _NO_PARAMS
    if params:
        try:
            static = _Params(params)
        except TypeError:  # a parameter without a hash, or a function
            return _make_plan(command, specs, params, ())
    plan = _known_plan(command, specs, static)
    if plan.registered[0] is not kernel.so_far(command) or plan.registered[1] is not reference.get(command, None):
        _known_plan.cache_clear()  # a backend or another reference has been added since
        plan = _known_plan(command, specs, static)
    return plan


class _Params:
    """Parameters that are compared by `exact_params`."""

    __slots__ = ("hash", "key", "params")

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params, self.key = params, exact_params(params)
        self.hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Params) and self.key == other.key

    def __hash__(self) -> int:
        return self.hash


def exact_params(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Returns parameters as a key. Two keys are equal only if no kernel can tell them apart: 1, 1.0 and True differ, as do 0.0
    and -0.0.

    Raises:
        TypeError: a parameter is a function. Functions are made anew for each call, and a cache would keep the values that they
            capture.
    """
    return tuple([(name, _exact(value)) for name, value in params.items()])


def _exact(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is str:
        return value
    if kind is tuple:
        return tuple([_exact(x) for x in value])
    if kind is float or kind is complex or isinstance(value, np.generic):
        return kind, repr(value)
    if kind is FunctionType or kind is MethodType:
        raise TypeError("functions are not compared")
    return (bool, value) if kind is bool else value


_NO_PARAMS = _Params({})
_NARROW = (dtypes.float16, dtypes.bfloat16)  # these are accumulated in float32
_SMALL = 1 << 12  # elements up to which calling NumPy takes less time than calling a kernel


@lru_cache(maxsize=8192)
def _known_plan(command: Command, specs: tuple[TensorSpec, ...], static: _Params) -> Plan:
    return _make_plan(command, specs, static.params, ())


def _make_plan(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], graphs: tuple[Graph, ...]
) -> Plan:
    outputs = infer_specs(command, specs, params, graphs)
    function = _numpy_function(command, specs, outputs, params) if not graphs else None
    if function is not None:
        run = _one_result(function, outputs[0], is_view=command in alias)
    else:
        run = _runner(command, specs, outputs, params, graphs)
    nbytes = sum(spec.nbytes for spec in outputs)
    if nbytes >= LARGE and command not in alias:
        run, function = _if_allowed(run, nbytes), None
    registered = kernel.so_far(command), reference.get(command, None)  # after the backends are loaded
    return Plan(command, specs, params, graphs, outputs, run, function, registered)


def _if_allowed(run: Callable[[Arrays], Sequence[NDArray]], nbytes: int) -> Callable[[Arrays], Sequence[NDArray]]:
    """Returns a run that makes large results, which the process must be allowed to have."""

    def run_if_allowed(arrays: Arrays) -> Sequence[NDArray]:
        check_memory(nbytes)
        return run(arrays)

    return run_if_allowed


def _numpy_function(
    command: Command, specs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], params: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """Returns the one function of NumPy that runs a command; None where a kernel or the reference does.

    Views are NumPy's, as they copy nothing, and so are small commands: to call machine code takes longer than to call NumPy.
    """
    call: Any = numpy_call.get(command, None)
    if call is None or any(spec.dtype in _NARROW for spec in (*specs, *outputs)):
        return None
    chosen = find_kernel(command, specs, params)
    is_small = command in alias or max([spec.size for spec in (*specs, *outputs)]) <= _SMALL
    if chosen is not None and (chosen.native is None or not is_small):
        return None
    if not isinstance(call, np.ufunc):
        call = call(*specs, **params)
    if isinstance(call, np.ufunc):
        found = call.resolve_dtypes((*[spec.dtype for spec in specs], *[None] * call.nout))[-1]
        return call if found == outputs[0].dtype else None
    return cast("Callable[..., Any] | None", call)


def _one_result(
    function: Callable[..., Any], output: TensorSpec, is_view: bool
) -> Callable[[Arrays], Sequence[NDArray]]:
    """NumPy's function in the form that a plan runs."""
    if not output.ndim:  # NumPy returns a scalar, no array
        return lambda arrays: (np.asarray(silently(function, *arrays)),)
    if is_view:
        return lambda arrays: (function(*arrays),)
    return lambda arrays: (silently(function, *arrays),)


def _runner(
    command: Command, specs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], params: Mapping[str, Any],
    graphs: tuple[Graph, ...],
) -> Callable[[Arrays], list[NDArray]]:  # fmt: skip
    """Runs the command on NumPy arrays: the best kernel that takes them, else the reference."""
    if graphs:
        function = reference[command]
        return lambda arrays: checked(command, function(*arrays, graphs=graphs, run=_SubGraphs(), **params), outputs)
    chosen = find_kernel(command, specs, params)
    if chosen is None:
        function = reference[command]
        return lambda arrays: checked(command, function(*arrays, **params), outputs)
    run, nbytes = chosen.run, chosen.workspace(specs, params)

    def run_kernel(arrays: Arrays) -> list[NDArray]:
        results = [np.empty(spec.shape, spec.dtype) for spec in outputs]
        run(arrays, [*results, np.empty(nbytes, np.uint8)] if nbytes else results, params)
        return results

    return run_kernel


def checked(command: Command, results: Any, outputs: tuple[TensorSpec, ...]) -> list[NDArray]:
    """Returns the results of a reference as a list, checked against the inferred specs."""
    listed = list(results) if isinstance(results, (tuple, list)) else [results]
    found = [np.asarray(x) for x in listed]
    if len(found) != len(outputs) or any(
        x.shape != spec.shape or x.dtype != spec.dtype for x, spec in zip(found, outputs, strict=True)
    ):
        raise InternalError(
            f"{command.name}: the reference gave {', '.join(str(spec_of(x)) for x in found)}, "
            f"the infer rule says {', '.join(map(str, outputs))}"
        )
    return found


# -- sub-graphs --------------------------------------------------------------------------------------------------------


class _SubGraphs:
    """Runs the sub-graphs of one run of a command, a loop perhaps, on arrays. Each is planned once."""

    def __init__(self) -> None:
        self._known: dict[Graph, Callable[[Arrays], list[NDArray]]] = {}

    def __call__(self, graph: Graph, values: Arrays) -> list[NDArray]:
        if type(find_interpreter(())) is not EagerInterpreter or observes_commands(get_context()):
            return run_graph(graph, values)
        run = self._known.get(graph)
        if run is None:
            run = self._known[graph] = _planned(graph)
        return run(values)


def _planned(graph: Graph) -> Callable[[Arrays], list[NDArray]]:
    """Returns a graph as calls of kernels one after the other. Values have places: inputs, then constants, then results."""
    makers = {symbol: node for node in graph.nodes for symbol in node.outputs}
    plans = {
        node: find_plan(node.command, tuple([x.spec for x in node.inputs]), node.params, node.graphs)
        for node in graph.nodes
    }
    operands = {node: operands_of(node, plan, makers) for node, plan in plans.items()}
    read = {*graph.outputs, *(symbol for symbols in operands.values() for symbol in symbols)}
    nodes = [node for node in graph.nodes if node.command is not broadcast_to or node.outputs[0] in read]
    known = (*graph.inputs, *graph.constants)
    places = {symbol: i for i, symbol in enumerate((*known, *(symbol for node in nodes for symbol in node.outputs)))}
    kept = {*known, *graph.outputs}
    last = {symbol: node for node in nodes for symbol in operands[node]}
    steps = []
    for node in nodes:
        over = [
            places[symbol] for symbol in dict.fromkeys(operands[node]) if last[symbol] is node and symbol not in kept
        ]
        run = _by_interpreter(node) if node.graphs or node.command in effect else _with_line(plans[node].run, node)
        steps.append((run, [places[symbol] for symbol in operands[node]], over))
    constants, yielded = [*graph.constants.values()], [places[symbol] for symbol in graph.outputs]

    def run_steps(arrays: Arrays) -> list[NDArray]:
        values: list[Any] = [*arrays, *constants]
        for run, taken, over in steps:
            values += run([values[i] for i in taken])
            for i in over:
                values[i] = None  # nobody reads it any more
        return [values[i] for i in yielded]

    return run_steps


def _by_interpreter(node: Node) -> Callable[[Arrays], Sequence[NDArray]]:
    """Returns a node that is no call of a kernel: users' functions see the node's line, and arrays that they cannot write to."""

    def run(arrays: Arrays) -> list[NDArray]:
        with set_context(source=node.source):
            return [x.data for x in bind(node.command, arrays, dict(node.params), node.graphs)]

    return run


def _with_line(run: Callable[[Arrays], Sequence[NDArray]], node: Node) -> Callable[[Arrays], Sequence[NDArray]]:
    """Returns a kernel whose errors have the node's line."""

    def run_with_line(arrays: Arrays) -> Sequence[NDArray]:
        try:
            return run(arrays)
        except Exception:
            with set_context(source=node.source):
                return run(arrays)

    return run_with_line


def operands_of(node: Node, plan: Plan, makers: Mapping[Symbol, Node]) -> Sequence[Symbol]:
    """Returns the operands of a node. Where one of NumPy's functions runs it, they are not broadcast: the function does that.

    Args:
        makers: for each symbol, the node that makes it.
    """
    function = plan.function
    if function is not np.where and not (isinstance(function, np.ufunc) and function.signature is None):
        return node.inputs
    sources = []
    for symbol in node.inputs:
        maker = makers.get(symbol)
        broadcast = maker is not None and maker.command is broadcast_to and maker.params.get("axes") is None
        sources.append(maker.inputs[0] if maker is not None and broadcast else symbol)
    is_whole = np.broadcast_shapes(*[symbol.spec.shape for symbol in sources]) == node.outputs[0].spec.shape
    return sources if is_whole else node.inputs


set_eager(EagerInterpreter())
