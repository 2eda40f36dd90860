"""The form of a graph: all of it but its integers and the values of its constants; and graphs of one form with other integers.

Graphs of one form with equal integers and constants are the same. The traced graphs of one function at several sizes mostly have
one form, unless Python's `if`s, or shape rules, take another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nnc.base.records import record
from nnc.base.traced_size import TracedSize
from nnc.compiled.signature import Key, setting
from nnc.graph import Graph, Node, Symbol, TensorSpec
from nnc.graph.graph import NDArray


@record
class Form:
    """A graph taken apart.

    Attributes:
        parts: commands, wiring and parameters without integers.
        integers: the integers, in the order of `parts`.
        constants: the constants, in the order in which nodes and outputs read them: two equal ones may be one symbol or two, by the
            size.
    """

    parts: tuple[Any, ...]
    integers: list[int]
    constants: list[NDArray]


class Traced(NamedTuple):
    """The facts of a trace of one size: the sizes of arguments, the integers of its graph and its constants."""

    sizes: tuple[int, ...]
    integers: list[int]
    constants: list[NDArray]


def take_apart(graph: Graph) -> Form:
    """Returns the form of a graph."""
    found = Form((), [], [])
    return Form(tuple(_parts(graph, found)), found.integers, found.constants)


def _parts(graph: Graph, found: Form) -> Iterator[Any]:
    known: dict[Symbol, int] = {}

    def number(symbol: Symbol) -> int:
        if symbol in graph.constants:
            found.constants.append(graph.constants[symbol])
            return -1
        return known[symbol]

    def new(symbol: Symbol) -> Any:
        known[symbol] = len(known)
        return _without_integers(symbol.spec, found.integers)

    yield tuple(map(new, graph.inputs))
    for node in graph.nodes:
        yield node.command, *map(number, node.inputs)
        yield from map(new, node.outputs)
        for name, value in node.params.items():
            yield name, _without_integers(value, found.integers)
        for inner in node.graphs:
            yield tuple(_parts(inner, found))
    yield tuple(map(number, graph.outputs))


def _without_integers(value: Any, integers: list[int]) -> Any:
    kind = type(value)
    if kind in _INTEGERS:
        integers.append(value)
        return int
    if kind is TensorSpec:
        integers.extend(value.shape)
        return value.dtype, value.layout, len(value.shape)
    parts = _inner(value)
    if parts is not None:
        return kind, *[_without_integers(each, integers) for each in parts]
    if kind in _EXACT:
        return kind, repr(value)
    if isinstance(value, np.ndarray):
        return kind, value.dtype, value.shape, value.tobytes()
    return setting(value)


_INTEGERS = frozenset({int, TracedSize})
_EXACT = frozenset({float, complex})  # whose `repr` tells all values apart


def _inner(value: Any) -> Sequence[Any] | None:
    """Returns the parts of a value that may hold integers; None where it has none."""
    if isinstance(value, tuple):
        return value
    if type(value) is slice:
        return value.start, value.stop, value.step
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    return None


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a value with `change` applied to each part that is no container."""
    kind = type(value)
    if kind is TensorSpec:
        shape = tuple(map(change, value.shape))
        same = all(map(is_, shape, value.shape))  # equality would fix sizes
        return value if same else TensorSpec(shape, value.dtype, value.layout)
    parts = _inner(value)
    if parts is None:
        return change(value)
    new = [changed(each, change) for each in parts]
    if all(map(is_, new, parts)):
        return value
    if kind is tuple:
        return tuple(new)
    if kind is slice or isinstance(value, tuple):
        return kind(*new)
    return replace(value, **{field.name: each for field, each in zip(fields(value), new, strict=True)})


def with_integers(graph: Graph, give: Callable[[], Any]) -> Graph:
    """Returns a graph of the same form with other integers, which `give` returns one after the other, in the order of the form."""
    known: dict[Symbol, Symbol] = {}

    def take(value: Any) -> Any:
        return give() if type(value) in _INTEGERS else value

    def new(symbol: Symbol) -> Symbol:
        known[symbol] = Symbol(changed(symbol.spec, take), symbol.name)
        return known[symbol]

    constants: dict[Symbol, NDArray] = {}

    def read(symbol: Symbol) -> Symbol:
        if symbol in graph.constants:
            constants[symbol] = graph.constants[symbol]
            return symbol
        return known[symbol]

    inputs = tuple(map(new, graph.inputs))
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple(map(read, node.inputs))
        outputs = tuple(map(new, node.outputs))
        params = {name: changed(value, take) for name, value in node.params.items()}
        graphs = tuple([with_integers(inner, give) for inner in node.graphs])
        nodes.append(Node(node.command, operands, outputs, MappingProxyType(params), graphs, node.source))
    return graph.update(inputs=inputs, nodes=tuple(nodes), outputs=tuple(map(read, graph.outputs)), constants=constants)


def opened(graph: Graph, places: Mapping[int, Any]) -> Graph | None:
    """Returns the graph in which the constants read at these places of the form are further inputs, one for each place; None where
    a sub-graph reads one.
    """
    inputs: list[Symbol] = []
    count = 0

    def read(symbol: Symbol) -> Symbol:
        nonlocal count
        if symbol not in graph.constants:
            return symbol
        count += 1
        if count - 1 not in places:
            return symbol
        inputs.append(Symbol(symbol.spec, symbol.name))
        return inputs[-1]

    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple(map(read, node.inputs))
        if node.graphs:
            inner = Form((), [], [])
            for each in node.graphs:
                list(_parts(each, inner))
            if not places.keys().isdisjoint(range(count, count + len(inner.constants))):
                return None
            count += len(inner.constants)
        nodes.append(node if operands == node.inputs else node.update(inputs=operands))
    outputs = tuple(map(read, graph.outputs))
    return graph.update(inputs=(*graph.inputs, *inputs), nodes=tuple(nodes), outputs=outputs)


def sizes_of(key: Key) -> tuple[int, ...]:
    """Returns the sizes of all axes of a call's arrays."""
    return tuple([n for spec, _ in key.specs() for n in spec.shape])


def bits(value: NDArray) -> tuple[Any, ...]:
    """Returns the dtype, the shape and the bits of a constant, which tell it from others."""
    return value.dtype, value.shape, value.tobytes()
