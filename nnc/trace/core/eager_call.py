"""Specialised calls on arrays: the nodes of a graph as calls of kernels, one after the other.

Where a command is one of NumPy's functions, NumPy broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from nnc.array.array import Array, new_array
from nnc.base.dtypes import Weakness
from nnc.base.silence import silently
from nnc.calls.assume import Range
from nnc.graph import Graph, Node, Symbol, TensorSpec
from nnc.graph.registry import alias
from nnc.trace.core.eager import Plan, find_plan, operands_of

_MEMORY = attrgetter("memory")
Run = Callable[[list[Any]], Sequence[Any]]
Cast = Callable[[Any], Any]  # a Python number in the dtype in which a graph reads it
Step = tuple[Plan, tuple[int, ...]]  # a command and the places of its operands


def take_apart(graph: Graph) -> tuple[list[Step], list[Any], int]:
    """Returns the commands that the one output depends on, the constants, and the place of the output.

    Values have places: first the inputs, then constants, then the results of the steps, one after the other.
    """
    steps = _Steps(graph, broadcasts=False)
    place = steps.place_of(graph.outputs[0])
    return steps.steps, list(graph.constants.values()), place


def run_of(
    graph: Graph, casts: Sequence[Cast | None], weak: Weakness, ranges: Sequence[Range] = ()
) -> Callable[[Sequence[Any]], Any]:
    """Returns the function from operands (arrays, and numbers where there is a cast) to the first output of a graph.

    The other outputs must lie in the ranges: else the function returns None.
    """
    steps, result = _Steps(graph), graph.outputs[0]
    place, spec, constants = steps.place_of(result), result.spec, list(graph.constants.values())
    checks = [(steps.place_of(x), within) for x, within in zip(graph.outputs[1:], ranges, strict=True)]
    if result in graph.inputs and casts[place] is None and not checks:
        return lambda operands: operands[place] if operands[place].weak == weak else operands[place].as_weak(weak)
    load: Callable[[Sequence[Any]], list[Any]] = _load_arrays if not any(casts) else partial(_load, casts)
    if len(steps.steps) == 1 and steps.steps[0][1] == tuple(range(len(casts))) and not constants and not checks:
        plan, first = steps.steps[0][0], place - len(casts)
        if plan.function is not None and spec.ndim and not any(casts):
            return _caller(plan.function, spec, weak, is_view=plan.command in alias)
        return lambda operands: new_array(plan.run(load(operands))[first], spec, weak)
    last = {i: number for number, (_, places) in enumerate(steps.steps) for i in places}
    kept = {place, *(i for i, _ in checks)}
    freed: list[tuple[Run, tuple[int, ...], tuple[int, ...]]] = []
    for number, (plan, places) in enumerate(steps.steps):
        freed.append((plan.run, places, tuple({i for i in places if last[i] == number and i not in kept})))

    def run(operands: Sequence[Any]) -> Array | None:
        values = load(operands)
        values += constants
        for kernel, places, over in freed:
            values += kernel([values[i] for i in places])
            for i in over:
                values[i] = None  # nobody reads it any more
        for i, within in checks:
            if not within.holds(values[i]):
                return None
        return new_array(values[place], spec, weak)

    return run


class _Steps:
    """The nodes of a graph that its output depends on, as plans that run on a growing list of values.

    With `broadcasts`, conversions that NumPy's functions do by themselves are left to them.
    """

    def __init__(self, graph: Graph, broadcasts: bool = True) -> None:
        self.broadcasts = broadcasts
        self.makers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.places = {symbol: i for i, symbol in enumerate((*graph.inputs, *graph.constants))}
        self.count = len(self.places)
        self.steps: list[Step] = []

    def place_of(self, symbol: Symbol) -> int:
        """Returns the place of the value of a symbol."""
        if symbol not in self.places:
            self._add(self.makers[symbol])
        return self.places[symbol]

    def _add(self, node: Node) -> None:
        plan = find_plan(node.command, tuple([symbol.spec for symbol in node.inputs]), node.params)
        inputs = operands_of(node, plan, self.makers) if self.broadcasts else node.inputs
        places = tuple([self.place_of(symbol) for symbol in inputs])
        self.steps.append((plan, places))
        for symbol in node.outputs:
            self.places[symbol] = self.count
            self.count += 1


def _caller(
    function: Callable[..., Any], spec: TensorSpec, weak: Weakness, is_view: bool
) -> Callable[[Sequence[Any]], Any]:
    """One of NumPy's functions, on arrays, with as little around it as there can be."""
    if is_view:
        return lambda operands: new_array(function(*map(_MEMORY, operands)), spec, weak)
    return lambda operands: new_array(silently(function, *map(_MEMORY, operands)), spec, weak)


def _load_arrays(operands: Sequence[Any]) -> list[Any]:
    return list(map(_MEMORY, operands))


def _load(casts: Sequence[Cast | None], operands: Sequence[Any]) -> list[Any]:
    return [x.memory if cast is None else cast(x) for x, cast in zip(operands, casts, strict=True)]
