"""Copies nodes of a `scan` so that they run for all iterations at once: shared by the passes that take nodes out of the loop.

The column `batch` says how: the axis of time is one more leading axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nnc.base.context import set_context
from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.base.source import SourceLine
from nnc.commands.contract import dot
from nnc.commands.properties import is_sum, is_view, never_raises
from nnc.commands.roles import NodeRoles, Yield, take_loop
from nnc.commands.rules import lead
from nnc.graph import Command, GraphBuilder, Node, Symbol
from nnc.graph.graph import NDArray
from nnc.graph.registry import batch, effect

_LEAST_ITERATIONS = 2  # a loop of fewer is left alone
_GROWTH = 2  # times the bytes that a loop reads and yields may be added for rows of all iterations
_ROWS = 64  # a product with so many rows, or a sum over so many, gains little in one piece (measured: 1 row 4x, 16 rows a third)


def known_length(loop: NodeRoles) -> int:
    """Returns the number of iterations of a loop whose node tells it."""
    assert loop.length is not None
    return loop.length


def take_long_loop(node: Node) -> NodeRoles | None:
    """Returns the loop of a node with several iterations, whose number the node tells; None for other nodes."""
    loop = take_loop(node)
    return loop if loop is not None and (loop.length or 0) >= _LEAST_ITERATIONS else None


class AllIterations:
    """Copies of an iteration's nodes that compute all iterations at once, on symbols of the graph around the loop.

    Args:
        loop: a loop of known length.
        tensors: for symbols of the iteration, the tensors of their values in all iterations.
    """

    def __init__(self, loop: NodeRoles, tensors: Mapping[Symbol, Symbol]) -> None:
        self.length = known_length(loop)
        self.builder = GraphBuilder("all iterations")
        self._constants = loop.graphs[0].constants
        self._values: dict[Symbol, tuple[Any, bool]] = {inner: (outer, True) for inner, outer in tensors.items()}
        self._values.update((x.inner[0], (x.operand, False)) for x in loop.captured)
        for symbol in (*loop.node.inputs, *tensors.values()):
            self.builder.adopt(symbol)

    def copy(self, node: Node) -> None:
        """Appends one node for all iterations' results of a node of the iteration."""
        if node.outputs[0] in self._values:
            return
        pairs = [self._value(symbol) for symbol in node.inputs]
        operands, varying = tuple(x for x, _ in pairs), tuple(on for _, on in pairs)
        with self.builder, set_context(source=node.source):
            if any(varying):
                outputs, on = batch[node.command](self.length, operands, varying, **node.params)
            else:
                given = self.builder.add(node.command, *operands, source=node.source, **node.params)
                outputs = given if isinstance(given, tuple) else (given,)
                on = (False,) * len(outputs)
        self._values.update(zip(node.outputs, zip(outputs, on, strict=True), strict=True))

    def rows(self, symbol: Symbol) -> Symbol:
        """Returns the tensor of a symbol's values in all iterations; the symbol is the output of a copied node or known from
        the start.
        """
        value, varies = self._value(symbol)
        with self.builder:
            stacked: Symbol = lead(self.length, value, varies)
        return stacked

    def append(self, command: Command, inputs: tuple[Symbol, ...], source: SourceLine | None, **params: Any) -> Symbol:
        """Appends a node with one result on tensors of the graph around the loop."""
        result: Symbol = self.builder.add(command, *inputs, source=source, **params)
        return result

    def _value(self, symbol: Symbol) -> tuple[Any, bool]:
        if symbol not in self._values and symbol in self._constants:
            self._values[symbol] = self.builder.constant(self._constants[symbol], name=symbol.name), False
        return self._values[symbol]

    def nodes(self, constants: dict[Symbol, NDArray]) -> tuple[Node, ...]:
        """Returns the nodes so far; their constants are added to those given."""
        constants.update(self.builder.build().constants)
        return self.builder.nodes


class KnownRows:
    """The tensors that hold a symbol's values of all iterations: sequences and rows that exist already, and rows that can be
    added.

    Args:
        loop: the loop, a `scan`.
        leaving: the loop's rows that must not be read.
    """

    def __init__(self, loop: NodeRoles, leaving: Collection[Yield] = ()) -> None:
        (body,) = loop.graphs
        self.loop = loop
        self.writers = {symbol: node for node in body.nodes for symbol in node.outputs}
        self.readers = Counter(symbol for node in body.nodes for symbol in node.inputs) + Counter(body.outputs)
        self.tensors = {x.inner[0]: x.operand for x in loop.sequences}
        self.tensors.update((x.inner[0], x.result) for x in loop.rows if x not in leaving)
        self.same = {x.inner[0]: x.operand for x in loop.captured}
        self.added: list[Yield] = []

    def chain(self, symbol: Symbol) -> list[Node]:
        """Returns the views that lead to a symbol from the symbol kept for it: a known tensor, or else the smaller end of the
        chain.
        """
        nodes: list[Node] = []
        at = symbol
        while (
            at not in self.tensors and (node := self.writers.get(at)) is not None and is_view(node) and may_stack(node)
        ):
            nodes.append(node)
            at = node.inputs[0]
        return nodes[::-1] if at in self.tensors or at.spec.nbytes <= symbol.spec.nbytes else []

    def base(self, symbol: Symbol) -> Symbol:
        """Returns the symbol to be kept of each iteration, so that this one follows."""
        chain = self.chain(symbol)
        return chain[0].inputs[0] if chain else symbol

    def varies(self, symbol: Symbol) -> bool:
        """Whether a symbol is computed in the iterations, and no view of a value that is the same in all."""
        base = self.base(symbol)
        return base not in self.same and base not in self.loop.graphs[0].constants

    def missing(self, symbols: Iterable[Symbol]) -> list[Symbol]:
        """Returns the symbols that must become rows, so that these symbols are known."""
        return [base for base in dict.fromkeys(map(self.base, symbols)) if base not in self.tensors]

    def add(self, symbols: Iterable[Symbol]) -> None:
        """Adds rows."""
        length = known_length(self.loop)
        for symbol in symbols:
            row = Yield((symbol,), Symbol(symbol.spec.update(shape=(length, *symbol.shape)), symbol.name))
            self.tensors[symbol] = row.result
            self.added.append(row)

    def fits(self, symbols: Iterable[Symbol], options: Options) -> bool:
        """Whether there is memory for these rows beside the rows that were added already."""
        rows = [*symbols, *(x.inner[0] for x in self.added)]
        return fits(self.loop, known_length(self.loop) * total_bytes(rows), options)

    def all_iterations(self) -> AllIterations:
        """Copies of nodes on the tensors that are known."""
        return AllIterations(self.loop, self.tensors)


def may_stack(node: Node) -> bool:
    """Whether a node can run for all iterations at once, before or after the loop, without anybody noticing."""
    if node.graphs or not node.outputs or node.command in effect or node.command not in batch:
        return False
    if any(symbol.spec.dtype == TAPE for symbol in (*node.inputs, *node.outputs)):
        return False
    return never_raises(node)


def is_thin_product(node: Node, varying: Collection[Symbol]) -> bool:
    """Whether a node multiplies few rows that differ from iteration to iteration by a tensor that does not."""
    if node.command is not dot:
        return False
    on = [symbol in varying for symbol in node.inputs]
    if on[0] == on[1]:
        return False
    return node.inputs[on.index(True)].spec.size < _ROWS * _depth(node)


def is_short_sum(node: Node) -> bool:
    """Whether a node sums over few rows, as the products do that make a weight's gradient from a batch."""
    return is_sum(node.command) or (node.command is dot and _depth(node) < _ROWS)


def _depth(product: Node) -> int:
    """Returns the number of products of numbers that each element of a product sums."""
    depth: int = math.prod(product.inputs[0].shape[axis] for axis in product.params["contract"][0])
    return depth


def fits(loop: NodeRoles, added: int, options: Options) -> bool:
    """Whether `added` bytes may be held beside a loop's operands and results; under a budget of memory none are."""
    return options.memory_budget is None and added <= _GROWTH * total_bytes({*loop.node.inputs, *loop.node.outputs})


def total_bytes(symbols: Iterable[Symbol]) -> int:
    """Returns the bytes of tensors."""
    return sum(symbol.spec.nbytes for symbol in symbols)
