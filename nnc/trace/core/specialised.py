"""Specialised eager calls (nnc.calls.specialise): a call traced by itself, on abstract operands, to a closed graph.

The trace is empty at first, so its graph reads the operands and scalar constants alone. A value from elsewhere becomes a
captured one, and the call is not specialised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nnc.array.promote import NUMBERS_FIT, is_weak
from nnc.base import dtypes
from nnc.base.context import with_mode
from nnc.base.silence import silently
from nnc.base.traced_size import TracedSize
from nnc.calls.assume import Assumptions
from nnc.commands.elementwise import convert
from nnc.commands.fit import fit
from nnc.graph import Graph, Symbol, TensorSpec, spec_of
from nnc.graph.registry import effect
from nnc.trace.core.eager_call import Cast, run_of
from nnc.trace.core.staging import StagedTracer, stage

_WIDE = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
_CONVERSIONS = (convert, fit)
Run = Callable[[Sequence[Any]], Any]
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), TensorSpec, TracedSize})


@dataclass(frozen=True, slots=True, eq=False)
class SpecialisedCall:
    """A closed graph from operands to the result, which is `weak` or not; `casts` say how operands that are Python numbers are
    converted, and `run` is the call on arrays.
    """

    graph: Graph
    weak: dtypes.Weakness
    casts: tuple[Cast | None, ...]
    run: Run
    known: dict[Any, Any] = field(default_factory=dict)  # answers that others cache for it, for as long as it lives


def specialise(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], places: Sequence[int]
) -> SpecialisedCall | None:
    """Returns the specialised form of an eager call; None where the function does more than to run commands on its arrays."""
    assumptions = Assumptions()
    short = _specialise(function, args, kwargs, places, assumptions)
    if short is None or not assumptions.ranges:
        return short
    whole = _specialise(function, args, kwargs, places, None)
    return None if whole is None else replace(whole, run=_either(short.run, whole.run))


def _either(short: Run, whole: Run) -> Run:
    """Returns a call that goes the short way and, where its numbers are not usual, the whole one."""

    def run(operands: Sequence[Any]) -> Any:
        result = short(operands)
        return whole(operands) if result is None else result

    return run


def _specialise(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], places: Sequence[int],
    assumptions: Assumptions | None,
) -> SpecialisedCall | None:  # fmt: skip
    """Returns the specialised form of a call whose numbers are as assumed, or any, where nothing is assumed."""
    operands = [x for i in places for x in (args[i] if isinstance(args[i], list) else (args[i],))]
    numbers = [type(x) in _WIDE for x in operands]
    weak = list(map(is_weak, operands))
    results: list[Any] = []

    def traced(*tracers: Any) -> list[Any]:
        rest, given = iter(tracers), list(args)
        for i in places:
            given[i] = [next(rest) for _ in args[i]] if isinstance(args[i], list) else next(rest)
        results[:] = [function(*given, **kwargs), *(assumptions.numbers if assumptions is not None else ())]
        return results

    pairs = zip(operands, numbers, strict=True)
    specs = [TensorSpec((), _WIDE[type(x)]) if number else spec_of(x) for x, number in pairs]
    try:
        with with_mode(NUMBERS_FIT), nullcontext() if assumptions is None else with_mode(assumptions):
            staged = stage(traced, specs, weak=weak, name=function.__name__)
    except Exception:  # such as a request for a value; after any error the function itself runs, and words the error
        return None
    nodes = staged.graph.nodes
    if staged.captured or any(type(x) is not StagedTracer for x in results):
        return None
    if any(node.graphs or node.command in effect or not all(map(is_plain, node.params.values())) for node in nodes):
        return None
    narrowed = _narrowed(staged.graph, numbers)
    if narrowed is None:
        return None
    graph, casts = narrowed
    weakness, ranges = results[0].weak, assumptions.ranges if assumptions is not None else ()
    return SpecialisedCall(graph, weakness, casts, run_of(graph, casts, weakness, ranges))


def is_plain(value: Any) -> bool:
    """Whether a parameter surely holds no value made outside of the call."""
    kind = type(value)
    if kind is tuple:
        return all(map(is_plain, value))
    return kind in _PLAIN or isinstance(value, (np.generic, np.dtype))


# -- numbers -----------------------------------------------------------------------------------------------------------


def _narrowed(graph: Graph, numbers: Sequence[bool]) -> tuple[Graph, tuple[Cast | None, ...]] | None:
    """Returns the graph with numbers for inputs in the dtypes in which they are read, and how Python numbers become these.

    None where one is read in several dtypes.
    """
    casts: list[Cast | None] = []
    inputs, same = list(graph.inputs), dict[Symbol, Symbol]()
    for i, (number, is_number) in enumerate(zip(graph.inputs, numbers, strict=True)):
        if not is_number:
            casts.append(None)
            continue
        readers = [node for node in graph.nodes if number in node.inputs]
        dtype = (
            readers[0].outputs[0].spec.dtype if readers and readers[0].command in _CONVERSIONS else number.spec.dtype
        )
        inputs[i] = same[number] = Symbol(TensorSpec((), dtype))
        for node in readers:
            if (node.outputs[0].spec.dtype if node.command in _CONVERSIONS else number.spec.dtype) != dtype:
                return None
            if node.command in _CONVERSIONS:
                same[node.outputs[0]] = inputs[i]
        if number in graph.outputs and dtype != number.spec.dtype:
            return None
        casts.append(_cast(dtype))
    if same:
        nodes = [
            node.update(inputs=tuple([same.get(symbol, symbol) for symbol in node.inputs]))
            for node in graph.nodes
            if node.outputs[0] not in same
        ]
        outputs = tuple([same.get(symbol, symbol) for symbol in graph.outputs])
        graph = graph.update(inputs=tuple(inputs), nodes=tuple(nodes), outputs=outputs)
    return graph, tuple(casts)


def _cast(dtype: dtypes.DType) -> Cast:
    """Returns the conversion of a number to an array of a dtype."""
    if dtypes.is_integer(dtype) or dtypes.is_bool(dtype):
        return lambda x: np.array(x, dtype)
    if dtype in (dtypes.float32, dtypes.float64):
        most = float(np.finfo(dtype).max)
        return lambda x: np.array(x, dtype) if -most <= x <= most else silently(np.array, x, dtype)
    return lambda x: silently(np.array, x, dtype)
