"""The interpreter at the bottom: runs commands on concrete arrays at once, with the best kernel that takes them.

Facts of a call that depend on specs and parameters alone (the specs of the results, the kernel) are found once and kept as a
`Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, cast

import numpy as np

from nnc import dtypes
from nnc.array import Array, as_value, new_array
from nnc.commands.debug import raise_unless_finite
from nnc.commands.loop import run_graph
from nnc.commands.rules import alias, numpy_call
from nnc.context import get_context
from nnc.errors import InternalError
from nnc.graph import (
    Command,
    Graph,
    TensorSpec,
    find_kernel,
    infer_specs,
    kernel,
    reference,
    set_eager,
    spec_of,
)
from nnc.silence import silently

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
    facts: tuple[Any, ...] = ()  # the registry's answer when the plan was made
    known: dict[Any, Any] = field(default_factory=dict)  # facts that others cache about it, for as long as it lives


class EagerInterpreter:
    """Runs each command when it is called."""

    level = -1
    alive = True

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command at once."""
        values = [arg if type(arg) is Array else as_value(arg) for arg in args]
        plan = find_plan(command, tuple([value.spec for value in values]), params, graphs)
        return run_plan(plan, [value.data for value in values])


def run_plan(plan: Plan, arrays: Arrays) -> list[Array]:
    """Runs a command; in the mode "check_finite", its results must be finite where its operands are."""
    results = plan.run(arrays)
    if "check_finite" in get_context().modes:
        raise_unless_finite(plan.command.name, arrays, results)
    return list(map(new_array, results, plan.outputs))


def find_plan(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], graphs: tuple[Graph, ...] = ()
) -> Plan:
    """The plan of a command on operands of these specs.

    Raises:
        NncError: the command does not take them.
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
    if plan.facts[0] is not kernel.get(command, None) or plan.facts[1] is not reference.get(command, None):
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
    """Parameters as a key: equal only if no kernel can tell them apart (1, 1.0 and True; 0.0 and -0.0).

    Raises:
        TypeError: one is a function. Functions are made anew for each call, and a cache would keep the values that they captured.
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
        run = _one_result(function, outputs[0], is_view=alias.get(command, None) == "view")
    else:
        run = _runner(command, specs, outputs, params, graphs)
    facts = kernel.get(command, None), reference.get(command, None)  # after the backends are loaded
    return Plan(command, specs, params, graphs, outputs, run, function, facts)


def _numpy_function(
    command: Command, specs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], params: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """The one function of NumPy that runs a command; None where a kernel or the reference does.

    Views are NumPy's, as they copy nothing, and so are small commands: to call machine code takes longer than to call NumPy.
    """
    call: Any = numpy_call.get(command, None)
    if call is None or any(spec.dtype in _NARROW for spec in (*specs, *outputs)):
        return None
    chosen = find_kernel(command, specs, params)
    is_small = alias.get(command, None) == "view" or max([spec.size for spec in (*specs, *outputs)]) <= _SMALL
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
        return lambda arrays: checked(command, function(*arrays, graphs=graphs, run=run_graph, **params), outputs)
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


set_eager(EagerInterpreter())
