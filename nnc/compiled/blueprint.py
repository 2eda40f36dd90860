"""Blueprints: the steps of a program for many sizes, whose numbers are polynomials of the sizes that differ.

A blueprint is made by lowering a traced graph once more, with `Size`s (nnc.base.size) in place of the integers in which the traced
graphs of several sizes differ. Passes, kernels' choices and the binding of buffers run as they do for any graph; numbers that they
compute from sizes become polynomials, decisions that they take by sizes guards. For another size the program's steps are these
polynomials' values, where

- its own traced graph has the form of the blueprint's, and each integer in it has the value that the blueprint expects,
- all guards hold, so that lowering would have decided the same,
- the sizes are at most twice, and at least half of those of the blueprint, so that choices by memory are good ones, too.

So the numbers are derived by the code that lowers any graph, not fitted to earlier sizes. Two things guard against mistakes in that
code: a `Size` is no int, which fails loudly where it is taken for one, and a blueprint is only used once it has given the same
steps as lowering at another size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from nnc.base.size import Evaluation, Sizes
from nnc.compiled.forms import changed, with_integers
from nnc.graph import Graph, Node, Symbol, structurally_equal
from nnc.graph.hashing import same_params
from nnc.lower.plan.stages import Bound, Branches, Buffer, Iteration, Loop, Step, Steps, View, new_view

T = TypeVar("T")
Column = tuple[int, ...]  # an integer of the form, in each known graph
_RANGE = 2  # times the sizes of a blueprint, or this part of them


@dataclass(frozen=True, eq=False)
class Blueprint:
    """The steps of a program for many sizes.

    Attributes:
        sizes: the sizes that differ, and the guards.
        given: the places, among the integers of the form, of the sizes that are given.
        integers: all integers of the form; those that differ are polynomials.
        bound: the program's steps.
    """

    sizes: Sizes
    given: tuple[int, ...]
    integers: tuple[Any, ...]
    bound: Bound

    @classmethod
    def of(cls, graph: Graph, known: Sequence[Sequence[int]], lower: Callable[[Graph], Bound]) -> Blueprint:
        """Makes the blueprint of a graph.

        Args:
            graph: a traced graph.
            known: the integers of its form, and those of graphs of other sizes.
            lower: lowers a graph as far as its steps.
        """
        sizes, (given, integers) = Sizes(), generated(list(zip(*known, strict=True)))
        found = [sizes.give(known[0][place]) for place in given]
        columns = [integer(found) for integer in integers]
        numbers = iter(columns)
        return cls(sizes, given, tuple(columns), lower(with_integers(graph, lambda: next(numbers))))

    def at(self, integers: Sequence[int]) -> Evaluation | None:
        """Returns the values of sizes for a graph with these integers; None where the blueprint is not made for it."""
        found = self.at_sizes([integers[place] for place in self.given])
        if found is None or list(map(found.of, self.integers)) != list(integers):
            return None
        return found

    def at_sizes(self, given: Sequence[int]) -> Evaluation | None:
        """Returns the values of sizes for given ones, whose graph has the blueprint's integers; None where it is not made for
        them.
        """
        for value, own in zip(given, self.sizes.values, strict=False):
            if not own <= value * _RANGE or not value <= own * _RANGE:
                return None
        return self.sizes.at(given)


def generated(columns: Sequence[Column]) -> tuple[tuple[int, ...], list[Callable[[Sequence[Any]], Any]]]:
    """Returns the places of integers from which all follow, as far as known graphs tell, and for each integer the function of
    these.
    """
    places: dict[Column, int] = {}
    for place, column in enumerate(columns):
        places.setdefault(column, place)
    given: list[Column] = []
    functions: dict[Column, Callable[[Sequence[Any]], Any]] = {}
    for column in sorted(places):
        found = _constant(column) or _multiple(column, given) or _product(column, given) or _affine(column, given)
        if found is None:
            given.append(column)
            found = _nth(len(given) - 1, 1, 0)
        functions[column] = found
    return tuple([places[column] for column in given]), [functions[column] for column in columns]


def _nth(i: int, factor: int, more: int) -> Callable[[Sequence[Any]], Any]:
    return lambda given: given[i] * factor + more


def _constant(column: Column) -> Callable[[Sequence[Any]], Any] | None:
    return (lambda given: column[0]) if len(set(column)) == 1 else None


def _multiple(column: Column, given: Sequence[Column]) -> Callable[[Sequence[Any]], Any] | None:
    for i, each in enumerate(given):
        factor = column[0] // each[0] if each[0] else 0
        if all(n == factor * x for n, x in zip(column, each, strict=True)):
            return _nth(i, factor, 0)
    return None


def _both(i: int, j: int, factor: int) -> Callable[[Sequence[Any]], Any]:
    return lambda given: given[i] * given[j] * factor


def _product(column: Column, given: Sequence[Column]) -> Callable[[Sequence[Any]], Any] | None:
    for i, x in enumerate(given):
        for j, y in enumerate(given[: i + 1]):
            factor = column[0] // (x[0] * y[0]) if x[0] and y[0] else 0
            if all(n == factor * a * b for n, a, b in zip(column, x, y, strict=True)):
                return _both(i, j, factor)
    return None


def _affine(column: Column, given: Sequence[Column]) -> Callable[[Sequence[Any]], Any] | None:
    for i, each in enumerate(given):
        k = next((k for k, x in enumerate(each) if x != each[0]), 0)
        factor = (column[k] - column[0]) // (each[k] - each[0]) if k else 0
        more = column[0] - factor * each[0]
        if factor and all(n == factor * x + more for n, x in zip(column, each, strict=True)):
            return _nth(i, factor, more)
    return None


# -- the steps of a size -----------------------------------------------------------------------------------------------


class Values:
    """The steps of a blueprint for other sizes.

    Args:
        evaluation: the values of sizes.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self._of = evaluation.of
        self._known: dict[int, tuple[Any, Any]] = {}  # of shared objects, by identity; the pair holds the object

    def bound(self, bound: Bound) -> Bound:
        """Returns the evaluated steps and buffers."""
        return replace(
            bound,
            inputs=tuple(map(self._value, bound.inputs)),
            buffers=tuple(map(self._buffer, bound.buffers)),
            steps=self._steps(bound.steps),
            outputs=tuple(map(self._view, bound.outputs)),
        )

    def _value(self, value: Any) -> Any:
        return changed(value, self._of)

    def _shared(self, value: T, make: Callable[[T], T]) -> T:
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = value, make(value)
        made: T = found[1]
        return made

    def _spec(self, spec: Any) -> Any:
        return self._shared(spec, self._value)

    def _buffer(self, buffer: Buffer) -> Buffer:
        symbol = self._symbol(buffer.symbol)
        return buffer if symbol is buffer.symbol else replace(buffer, symbol=symbol)

    def _symbol(self, symbol: Symbol) -> Symbol:
        return self._shared(symbol, self._make_symbol)

    def _make_symbol(self, symbol: Symbol) -> Symbol:
        spec = self._spec(symbol.spec)
        return symbol if spec is symbol.spec else Symbol(spec, symbol.name)

    def _view(self, view: View) -> View:
        return self._shared(view, self._make_view)

    def _make_view(self, view: View) -> View:
        of = self._of
        strides = tuple(map(of, view.strides))
        advances = tuple([(loop, of(nbytes)) for loop, nbytes in view.advances]) if view.advances else ()
        return new_view(view.buffer, self._spec(view.spec), of(view.offset), strides, advances)

    def _steps(self, steps: Steps) -> Steps:
        return tuple(map(self._step, steps))

    def _step(self, step: Step) -> Step:
        region = step.region
        if isinstance(region, Loop):
            region = self._loop(region)
        elif isinstance(region, Branches):
            region = Branches(self._view(region.index), tuple(map(self._steps, region.branches)))
        inputs, outputs = tuple(map(self._view, step.inputs)), tuple(map(self._view, step.outputs))
        params = self._shared(step.params, self._params)
        return Step(step.command, inputs, outputs, params, tuple(map(self._graph, step.graphs)), step.source, region)

    def _params(self, params: Any) -> Any:
        found = {name: self._value(value) for name, value in params.items()}
        return params if all(found[name] is params[name] for name in found) else MappingProxyType(found)

    def _loop(self, loop: Loop) -> Loop:
        copies = [
            Iteration(
                self._steps(c.head),
                None if c.test is None else self._view(c.test),
                self._steps(c.leave),
                self._steps(c.tail),
                self._steps(c.turn),
            )
            for c in loop.copies
        ]
        counter, count = [None if view is None else self._view(view) for view in (loop.counter, loop.count)]
        length, limit = self._of(loop.length), self._of(loop.limit)
        return replace(loop, copies=tuple(copies), counter=counter, count=count, length=length, limit=limit)

    def _graph(self, graph: Graph) -> Graph:
        return self._shared(graph, self._make_graph)

    def _make_graph(self, graph: Graph) -> Graph:
        inputs = tuple(map(self._symbol, graph.inputs))
        nodes = tuple(map(self._node, graph.nodes))
        outputs = tuple(map(self._symbol, graph.outputs))
        same = inputs == graph.inputs and nodes == graph.nodes and outputs == graph.outputs
        if same:
            return graph
        constants = {self._symbol(symbol): value for symbol, value in graph.constants.items()}
        return graph.update(inputs=inputs, nodes=nodes, outputs=outputs, constants=constants)

    def _node(self, node: Node) -> Node:
        inputs, outputs = tuple(map(self._symbol, node.inputs)), tuple(map(self._symbol, node.outputs))
        graphs = tuple(map(self._graph, node.graphs))
        params = self._shared(node.params, self._params)
        if inputs == node.inputs and outputs == node.outputs and graphs == node.graphs and params is node.params:
            return node
        return Node(node.command, inputs, outputs, params, graphs, node.source)


# -- comparing steps ---------------------------------------------------------------------------------------------------


def same_steps(a: Bound, b: Bound) -> bool:
    """Whether two programs have the same steps on the same buffers."""
    facts = [
        (
            bound.inputs,
            [(buffer.kind, buffer.index, buffer.symbol.spec) for buffer in bound.buffers],
            [(value.dtype, value.shape, value.tobytes()) for value in bound.constants],
            bound.outputs,
            bound.intervals,
            bound.donated,
            bound.kept,
        )
        for bound in (a, b)
    ]
    return facts[0] == facts[1] and _all_same(a.steps, b.steps)


def _all_same(a: Steps, b: Steps) -> bool:
    return len(a) == len(b) and all(map(_same_step, a, b))


def _same_step(a: Step, b: Step) -> bool:
    if (a.command, a.inputs, a.outputs, len(a.graphs)) != (b.command, b.inputs, b.outputs, len(b.graphs)):
        return False
    if not same_params(a.params, b.params) or not all(map(structurally_equal, a.graphs, b.graphs)):
        return False
    if isinstance(a.region, Loop) and isinstance(b.region, Loop):
        empty = tuple([Iteration((), c.test, (), ()) for c in a.region.copies])
        others = tuple([Iteration((), c.test, (), ()) for c in b.region.copies])
        return replace(a.region, copies=empty) == replace(b.region, copies=others) and all(
            _all_same(x.steps, y.steps) for x, y in zip(a.region.copies, b.region.copies, strict=True)
        )
    if isinstance(a.region, Branches) and isinstance(b.region, Branches):
        pairs = zip(a.region.branches, b.region.branches, strict=True)
        return a.region.index == b.region.index and all(_all_same(x, y) for x, y in pairs)
    return a.region is b.region is None
