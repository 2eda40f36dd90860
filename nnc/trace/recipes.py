"""Recipes of eager calls (nnc.graph.recall): the commands that a function runs, without the function.

The function is traced once on the specs of its operands. The nodes of the graph become calls of kernels, one after the other.
Python numbers are converted as the function would convert them, and where a command is one of NumPy's functions, NumPy broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.array import Array, new_array
from nnc.commands.elementwise import convert
from nnc.commands.promote import is_weak
from nnc.commands.rules import alias, effect
from nnc.commands.shape import broadcast_to
from nnc.errors import NncError
from nnc.graph import Graph, Node, Symbol, TensorSpec, spec_of
from nnc.graph.recall import set_recall
from nnc.silence import silently
from nnc.trace.eager import Plan, find_plan
from nnc.trace.staging import Staged, stage
from nnc.trace.tracer import Tracer

_WIDE = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
_NARROW = frozenset(dtypes.ALL) - {dtypes.float64, dtypes.complex128}
_MEMORY = attrgetter("memory")
Run = Callable[[list[Any]], Sequence[Any]]
Cast = Callable[[Any], Any]  # a Python number in the dtype of the array that it meets
Step = tuple[Plan, tuple[int, ...]]  # a command and the places of its operands


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """The commands of a call: `run` on arrays, and one by one.

    Values have places: those of the operands, then `constants`, then what the steps yield, one after the other.
    """

    run: Callable[[Sequence[Any]], Any]
    casts: tuple[Cast | None, ...]  # of operands that are Python numbers
    weak: bool
    graph: Graph
    known: dict[Any, Any] = field(default_factory=dict)  # what others found out about it, kept as long as it is

    def take_apart(self) -> tuple[list[Step], list[Any], int]:
        """The commands as they stand in the function, the constants, and the place of the result."""
        steps = _Steps(self.graph, self.casts, broadcasts=False)
        place = steps.place_of(self.graph.outputs[0])
        return steps.steps, list(self.graph.constants.values()), place


def make_recipe(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], places: Sequence[int]
) -> Recipe | None:
    """The recipe of a call; None where the function does more than to run commands on its arrays."""
    operands = [x for i in places for x in (args[i] if isinstance(args[i], list) else (args[i],))]
    numbers = [type(x) in _WIDE for x in operands]
    weak = [number or is_weak(x) for x, number in zip(operands, numbers, strict=True)]
    if operands and all(weak):
        return None  # numbers by themselves have other dtypes than those that meet an array
    results: list[Any] = []

    def traced(*tracers: Any) -> list[Any]:
        rest, given = iter(tracers), list(args)
        for i in places:
            given[i] = [next(rest) for _ in args[i]] if isinstance(args[i], list) else next(rest)
        results[:] = [function(*given, **kwargs)]
        return results

    def staged_with(number_dtype: Callable[[Any], dtypes.DType]) -> Staged:
        specs = [
            TensorSpec((), number_dtype(x)) if number else spec_of(x)
            for x, number in zip(operands, numbers, strict=True)
        ]
        return stage(traced, specs, weak=weak, name=function.__name__)

    def reads(graph: Graph) -> list[Any]:
        return [_dtypes_of(x, graph) if number else () for x, number in zip(graph.inputs, numbers, strict=True)]

    try:
        staged = staged_with(lambda x: _WIDE[type(x)])
        read = reads(staged.graph)
        if not all(map(_NARROW.issuperset, read)) and reads(staged_with(dtypes.scalar_dtype).graph) != read:
            return None  # numbers that meet no array have their default dtype, as in where(mask, 1.0, 0.0)
    except (NncError, TypeError, ValueError):  # it asks for a value, or returns something else than an array
        return None
    graph = staged.graph
    if staged.captured or not isinstance(results[0], Tracer):
        return None
    if any(node.graphs or node.command in effect for node in graph.nodes):
        return None
    if any(len(found) > 1 for found in read):
        return None
    casts = tuple([_cast(*found) if found else None for found in read])
    return Recipe(_Steps(graph, casts).runner(results[0].weak), casts, results[0].weak, graph)


def _dtypes_of(number: Symbol, graph: Graph) -> set[dtypes.DType]:
    """The dtypes in which a number is read: the graph converts a wider one."""
    readers = [node for node in graph.nodes if number in node.inputs]
    found = {node.outputs[0].spec.dtype if node.command is convert else number.spec.dtype for node in readers}
    return found or {number.spec.dtype}


def _cast(dtype: dtypes.DType) -> Cast:
    """How a number becomes an array of a dtype."""
    if dtypes.is_integer(dtype) or dtypes.is_bool(dtype):
        return lambda x: np.array(x, dtype)
    if dtype in (dtypes.float32, dtypes.float64):
        most = float(np.finfo(dtype).max)
        return lambda x: np.array(x, dtype) if -most <= x <= most else silently(np.array, x, dtype)
    return lambda x: silently(np.array, x, dtype)


class _Steps:
    """The nodes of a graph that its output depends on, as plans that run on a growing list of values.

    With `broadcasts`, what NumPy's functions do by themselves is left to them.
    """

    def __init__(self, graph: Graph, casts: Sequence[Cast | None], broadcasts: bool = True) -> None:
        self.graph, self.casts, self.broadcasts = graph, casts, broadcasts
        self.makers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.places = {symbol: i for i, symbol in enumerate((*graph.inputs, *graph.constants))}
        self.count = len(self.places)
        self.steps: list[Step] = []

    def place_of(self, symbol: Symbol) -> int:
        """Where the value of a symbol will stand."""
        if symbol not in self.places:
            self._add(self.makers[symbol])
        return self.places[symbol]

    def _add(self, node: Node) -> None:
        source = node.inputs[0] if node.inputs else None
        if node.command is convert and source in self.graph.inputs and self.casts[self.graph.inputs.index(source)]:
            self.places[node.outputs[0]] = self.places[source]  # a number, which is converted at once
            return
        plan = find_plan(node.command, tuple([symbol.spec for symbol in node.inputs]), node.params)
        inputs = self._narrowest(node) if self.broadcasts and _broadcasts(plan.function) else node.inputs
        places = tuple([self.place_of(symbol) for symbol in inputs])
        self.steps.append((plan, places))
        for symbol in node.outputs:
            self.places[symbol] = self.count
            self.count += 1

    def _narrowest(self, node: Node) -> Sequence[Symbol]:
        """The operands of one of NumPy's functions before they are broadcast, where it does that itself."""
        sources = []
        for symbol in node.inputs:
            maker = self.makers.get(symbol)
            broadcast = maker is not None and maker.command is broadcast_to and maker.params.get("axes") is None
            sources.append(maker.inputs[0] if maker is not None and broadcast else symbol)
        is_whole = np.broadcast_shapes(*[symbol.spec.shape for symbol in sources]) == node.outputs[0].spec.shape
        return sources if is_whole else node.inputs

    def runner(self, weak: bool) -> Callable[[Sequence[Any]], Any]:
        """The function from the operands to the result."""
        result = self.graph.outputs[0]
        place, spec, casts = self.place_of(result), result.spec, self.casts
        constants = list(self.graph.constants.values())
        if result in self.graph.inputs and casts[place] is None:
            return lambda operands: operands[place] if operands[place].weak == weak else operands[place].as_weak()
        load: Callable[[Sequence[Any]], list[Any]] = _load_arrays if not any(casts) else partial(_load, casts)
        steps: list[tuple[Run, tuple[int, ...]]] = [(plan.run, places) for plan, places in self.steps]
        if len(steps) == 1 and steps[0][1] == tuple(range(len(casts))) and not constants:
            plan, first = self.steps[0][0], place - len(casts)
            if plan.function is not None and spec.ndim and not any(casts):
                return _caller(plan.function, spec, weak, is_view=alias.get(plan.command, None) == "view")
            return lambda operands: new_array(plan.run(load(operands))[first], spec, weak)

        last = {i: number for number, (_, places) in enumerate(steps) for i in places}
        ended = [[i for i in places if last[i] == number and i != place] for number, (_, places) in enumerate(steps)]
        freed = [(kernel, places, tuple(set(over))) for (kernel, places), over in zip(steps, ended, strict=True)]

        def run(operands: Sequence[Any]) -> Array:
            values = load(operands)
            values += constants
            for kernel, places, over in freed:
                values += kernel([values[i] for i in places])
                for i in over:
                    values[i] = None  # nobody reads it any more
            return new_array(values[place], spec, weak)

        return run


def _caller(
    function: Callable[..., Any], spec: TensorSpec, weak: bool, is_view: bool
) -> Callable[[Sequence[Any]], Any]:
    """One of NumPy's functions, on arrays, with as little around it as there can be."""
    if is_view:
        return lambda operands: new_array(function(*map(_MEMORY, operands)), spec, weak)
    return lambda operands: new_array(silently(function, *map(_MEMORY, operands)), spec, weak)


def _load_arrays(operands: Sequence[Any]) -> list[Any]:
    return list(map(_MEMORY, operands))


def _load(casts: Sequence[Cast | None], operands: Sequence[Any]) -> list[Any]:
    return [x.memory if cast is None else cast(x) for x, cast in zip(operands, casts, strict=True)]


def _broadcasts(function: Callable[..., Any] | None) -> bool:
    """Whether NumPy's function takes operands of other shapes and broadcasts them."""
    return function is np.where or (isinstance(function, np.ufunc) and function.signature is None)


set_recall(Array, make_recipe)
