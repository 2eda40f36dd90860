"""Transposition: walks a linear graph backwards, from cotangents of its outputs to cotangents of its linear inputs.

Some linear maps are known by their transpose alone (`pull_only`: custom vjps, recomputed functions). The reverse pass
calls the transpose; the forward pass traces and transposes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, groupby
from operator import attrgetter
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.base.context import get_context, set_context
from nnc.base.source import SourceLine
from nnc.commands.control import pull_only
from nnc.commands.rules import add_tangents, is_differentiable, zeros
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Command, Graph, Node, Symbol, TensorSpec, bind
from nnc.graph.registry import derivative
from nnc.graph.rules import Cotangents, Linear, Tangents
from nnc.trace.core.staging import stage
from nnc.trace.core.tracer import Tracer


def transpose_graph(graph: Graph, linear: int, values: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Computes the cotangents of the first `linear` inputs of a graph that is linear in them.

    Args:
        values: the values of the other inputs.
        cotangents: the cotangents of the outputs, None where zero.

    Returns:
        a cotangent for each linear input, None where it is zero.

    Raises:
        UnsupportedError: the graph is not linear in these inputs.
    """
    environment: dict[Symbol, Any] = dict(zip(graph.inputs[linear:], values, strict=True))
    environment.update((symbol, as_value(value)) for symbol, value in graph.constants.items())
    active = set(graph.inputs[:linear])
    backward: list[Node] = []
    for node in graph.nodes:
        if active.isdisjoint(node.inputs):  # reads no linear input: run it now
            with set_context(source=node.source):
                results = bind(node.command, [environment[s] for s in node.inputs], dict(node.params), node.graphs)
            environment.update(zip(node.outputs, results, strict=True))
        else:
            active.update(node.outputs)
            backward.append(node)
    sums: dict[Symbol, Any] = {}
    for symbol, ct in zip(graph.outputs, cotangents, strict=True):
        if symbol in active:
            sums[symbol] = add_tangents(sums.get(symbol), ct)
    for source, nodes in groupby(reversed(backward), attrgetter("source")):
        with set_context(source=source):
            for node in nodes:
                cts = tuple([sums.pop(symbol, None) for symbol in node.outputs])
                if any(ct is not None for ct in cts):
                    _pull(node, cts, environment, active, sums)
    return [sums.get(symbol) for symbol in graph.inputs[:linear]]


def _pull(
    node: Node,
    cotangents: tuple[Any, ...],
    environment: dict[Symbol, Any],
    active: set[Symbol],
    sums: dict[Symbol, Any],
) -> None:
    rule = derivative.get(node.command, None)
    operands: list[Any] = []
    decides = False
    for symbol in node.inputs:
        if symbol in active:
            operands.append(Linear(symbol.spec))
            decides = decides or not is_differentiable(symbol.spec)
        else:
            operands.append(environment[symbol])
    if rule is None or rule.transpose is None or decides:
        problem = "it is not linear, so it cannot be run backwards."
        shown = {f"input {i}": s.spec for i, s in enumerate(node.inputs)}
        fix = (
            "make it linear: the rule given to custom_jvp in its tangents, the bwd rule of custom_vjp in the cotangent where "
            "forward mode runs it, the function given to linear_transpose."
        )
        raise user_error(UnsupportedError, node.command.name, problem, operands=shown, fix=fix)
    if node.graphs or node.command is pull_only:  # zeros take no part there: zero times infinity is not zero
        found = rule.transpose(cotangents, tuple(operands), **node.params, graphs=node.graphs)
    else:
        found = rule.transpose(
            fill_cotangents([s.spec for s in node.outputs], cotangents), tuple(operands), **node.params
        )
    for symbol, operand, ct in zip(node.inputs, operands, found, strict=True):
        if ct is not None and type(operand) is Linear:
            sums[symbol] = add_tangents(sums.get(symbol), ct)


def fill_cotangents(specs: Sequence[TensorSpec], cotangents: Tangents) -> Cotangents:
    """Returns the cotangents of outputs of these specs, with zeros in place of None."""
    return tuple([zeros(spec) if ct is None else ct for spec, ct in zip(specs, cotangents, strict=True)])


def fill(values: Iterable[Any], flags: Sequence[bool]) -> list[Any]:
    """`values` at the places that `flags` marks, None elsewhere."""
    rest = iter(values)
    return [next(rest) if flag else None for flag in flags]


def push_graph(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """Evaluates a linear graph forwards."""
    return graph.evaluate(values, run=run_forward)


def run_forward(
    command: Command, operands: Sequence[Any], params: dict[str, Any], graphs: tuple[Any, ...]
) -> Sequence[Any]:
    """Runs a command of a linear graph."""
    if not is_recording(operands):
        if command is pull_only:
            return _push_by_transposing(operands, graphs, **params)
        graphs = tuple(map(_pushed, graphs))
    return bind(command, operands, params, graphs)


def _pushed(graph: Graph) -> Graph:
    """Returns a linear graph, such as that of a loop's iteration, as one that can be run."""
    if not any(node.command is pull_only for node in graph.walk()):
        return graph
    return stage(lambda *values: push_graph(graph, values), graph.input_specs, name=graph.name).graph


def is_recording(tangents: Sequence[Any]) -> bool:
    """Whether tangents are symbols of a linear graph, to be transposed later."""
    return any(getattr(getattr(t, "owner", None), "linear", False) is True for t in tangents)


def is_forward(tangents: Sequence[Any]) -> bool:
    """Whether tangents are symbols of a linear graph that is made for forward mode."""
    return any(getattr(getattr(t, "owner", None), "forward", False) is True for t in tangents)


class Reached:
    """A pull-back that returns only the cotangents of operands that it reaches.

    Args:
        pull: maps cotangents to one for each operand, or None.

    Attributes:
        flags: which operands it reaches; set by the first call.
    """

    def __init__(self, pull: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._pull = pull
        self.flags: tuple[bool, ...] = ()

    def __call__(self, *cotangents: Any) -> list[Any]:
        """Returns the cotangents of the operands that are reached."""
        found = self._pull(cotangents)
        self.flags = tuple(ct is not None for ct in found)
        return [ct for ct in found if ct is not None]

    def fill(self, found: Sequence[Any]) -> list[Any]:
        """Returns a value for each operand, None where it is not reached.

        Args:
            found: the values for the operands that are reached.
        """
        return fill(found, self.flags)


def _push_by_transposing(
    operands: Sequence[Any],
    graphs: tuple[Graph, ...],
    pull: Callable[..., Any],
    outputs: Sequence[TensorSpec],
    leaves_out: bool,
    takes_none: bool = False,
) -> list[Any]:
    """Computes such tangents by the transpose of the transpose."""
    if graphs:
        graph, captured = graphs[0], operands[len(operands) - len(graphs[0].inputs) + len(outputs) :]
        tangents = operands[: len(graph.outputs)]
    else:
        reached = Reached(pull)
        staged = stage(reached, outputs, name="pull")
        graph, captured, tangents = staged.graph, staged.captured, list(compress(operands, reached.flags))
    check_linear("forward mode", graph, captured, _BY_REVERSE_MODE)
    found = transpose_graph(graph, len(outputs), captured, tangents)
    return [zeros(spec) if t is None else t for t, spec in zip(found, outputs, strict=True)]


_BY_REVERSE_MODE = (
    "differentiate by nnc.grad or nnc.vjp alone, give the function a rule by nnc.custom_jvp, or make the bwd rule linear in the "
    "cotangent."
)


# -- functions that are linear but for a constant ----------------------------------------------------------------------

# Commands that add operands up or put them beside each other: all of them, or those at some places.
_JOINING = frozenset(("add", "sub", "concatenate", "assemble", "pad", "complex"))
_JOINED = {"select": (1, 2), "scatter": (0, 1), "dynamic_update_slice": (0, 1)}


def check_linear(where: str, graph: Graph, values: Sequence[Any], fix: str) -> None:
    """Raises where a result has a part that does not depend on the linear inputs: transposition would drop it.

    Zeros are allowed. Sub-graphs are not checked.

    Args:
        where: the function that needs a linear function, for messages.
        graph: the graph; its first inputs are the linear ones, its last those of `values`.
        values: the values of the other inputs.

    Raises:
        UnsupportedError: there is such a part.
    """
    linear = len(graph.inputs) - len(values)
    active = set(graph.inputs[:linear])
    known = (*zip(graph.inputs[linear:], values, strict=True), *graph.constants.items())
    zero = {symbol for symbol, value in known if _is_zero(value)}

    def refuse(name: str, source: SourceLine | None) -> None:
        problem = f"{name}: a part does not depend on the argument, so the function is not linear."
        raise user_error(UnsupportedError, where, problem, fix=fix, source=source or get_context().source)

    for node in graph.nodes:
        name = node.command.name
        if active.isdisjoint(node.inputs):
            is_zero = name == "full" and node.params["value"] == 0
            rule = derivative.get(node.command, None)
            if is_zero or (
                node.inputs and zero.issuperset(node.inputs) and rule is not None and rule.transpose is not None
            ):
                zero.update(node.outputs)
            continue
        active.update(node.outputs)
        places = range(len(node.inputs)) if name in _JOINING else _JOINED.get(name, ())
        joined = {node.inputs[i] for i in places}
        if not active.isdisjoint(joined) and not joined <= active | zero:
            refuse(name, node.source)
    if not (active | zero).issuperset(graph.outputs):
        refuse("a result", None)


def _is_zero(value: Any) -> bool:
    if isinstance(value, Tracer):
        return False
    return not np.asarray(value.concrete("a constant") if isinstance(value, Array) else value).any()
